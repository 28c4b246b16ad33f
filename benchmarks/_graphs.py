"""Training graphs of any size, as an Estimator would write them: variables, slots, summaries, an iterator, savers.

TensorFlow takes a millisecond to trace a node, so that a big graph is made of one traced part, stacked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

tf1 = tf.compat.v1
WIDTH = 8
_NODES_OF_BLOCK = 117  # measured: two layers with their gradients, slots, initialisers and saver nodes
_NODES_AROUND = 200


def write_training_graph(path: Path, nodes: int) -> int:
    """Write a residual MLP with Adam that has about ``nodes`` nodes; returns how many it has."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.disable_resource_variables()
        tf1.set_random_seed(1)
        _model(max(1, round((nodes - _NODES_AROUND) / _NODES_OF_BLOCK)))
    definition = graph.as_graph_def()
    path.write_bytes(definition.SerializeToString())
    return len(definition.node)


_PART = "part0000"  # stands in every name of a part; another part has another number of as many digits
_BLOCKS_OF_PART = 40


def write_stacked_graph(path: Path, nodes: int) -> int:
    """Write the same network as parts of 40 blocks, each part behind the one before; returns how many nodes it has."""
    part, head = _traced(_part), _traced(_head)
    count = max(1, round((nodes - len(head.node)) / len(part.node)))
    joined = tf1.GraphDef(versions=head.versions, library=head.library)
    ends = ["head/Adam"]
    for number in range(count):
        name = f"part{number:04}"
        before = f"part{number - 1:04}/after" if number else "head/rows"
        behind = f"part{number + 1:04}/gradient_before" if number + 1 < count else "head/gradient_before"
        data = part.SerializeToString().replace(_PART.encode(), name.encode())
        _join(joined, tf1.GraphDef.FromString(data), {f"{name}/before": before, f"{name}/gradient": behind})
        ends.append(f"{name}/Adam")
    _join(joined, head, {"head/before": f"part{count - 1:04}/after"})
    joined.node.add(name="train", op="NoOp", input=[f"^{end}" for end in ends])
    path.write_bytes(joined.SerializeToString())
    return len(joined.node)


def _traced(build: Callable[[], None]) -> tf1.GraphDef:
    with tf.Graph().as_default() as graph:
        tf1.disable_resource_variables()
        tf1.set_random_seed(1)
        build()
    return graph.as_graph_def()


def _join(joined: tf1.GraphDef, part: tf1.GraphDef, fed: dict[str, str]) -> None:
    """Add the nodes of a part; what stands for another part (a placeholder) is replaced by the other part's tensor."""
    for node in part.node:
        if node.name not in fed:
            node.input[:] = [fed.get(text, text) for text in node.input]
            joined.node.append(node)


def _part() -> None:
    """Blocks that hand their output on, and hand back the gradient of what they read."""
    with tf1.variable_scope(_PART), tf.name_scope(f"{_PART}/"):
        x = before = tf1.placeholder(tf.float32, [16, WIDTH], "before")
        gradient = tf1.placeholder(tf.float32, [16, WIDTH], "gradient")
        tf.identity(_blocks(x, _BLOCKS_OF_PART), "after")
        _train(x.graph.get_tensor_by_name(f"{_PART}/after:0"), before, gradient)
    tf1.train.Saver(sharded=True, name=f"{_PART}/save")


def _head() -> None:
    """The input, the loss and the step counter."""
    step = tf1.train.get_or_create_global_step()
    with tf1.variable_scope("head"), tf.name_scope("head/"):
        rows, labels = _batch()
        tf.identity(rows, "rows")
        before = tf1.placeholder(tf.float32, [16, WIDTH], "before")
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, _dense(before, 3, "logits"))
        tf1.summary.scalar("loss", loss)
        _train(loss, before, None, step)
    tf1.train.Saver(sharded=True)


def _train(y: tf.Tensor, x: tf.Tensor, gradient: tf.Tensor | None, step: tf.Tensor | None = None) -> None:
    variables = tf1.trainable_variables()
    *gradients, of_x = tf1.gradients([y], [*variables, x], None if gradient is None else [gradient])
    tf.identity(of_x, "gradient_before")
    tf1.train.AdamOptimizer(1e-3).apply_gradients(zip(gradients, variables, strict=True), step)


def _model(blocks: int) -> None:
    x, labels = _batch()
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, _dense(_blocks(x, blocks), 3, "logits"))
    tf1.summary.scalar("loss", loss)
    tf1.summary.merge_all()
    step = tf1.train.get_or_create_global_step()
    tf1.train.AdamOptimizer(1e-3).minimize(loss, step)
    tf.group(tf1.global_variables_initializer(), tf1.local_variables_initializer(), tf1.tables_initializer())
    tf1.train.Saver(sharded=True)


def _batch() -> tuple[tf.Tensor, tf.Tensor]:
    rows = tf.random.stateless_uniform([64, WIDTH], [1, 2])
    labels = tf.cast(tf.reduce_sum(rows, 1) * 10, tf.int32) % 3
    dataset = tf1.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(16, drop_remainder=True)
    iterator = tf1.data.make_initializable_iterator(dataset)
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    x, y = iterator.get_next()
    return x, y


def _blocks(x: tf.Tensor, blocks: int) -> tf.Tensor:
    for block in range(blocks):
        with tf1.variable_scope(f"block_{block}"):
            x = x + _dense(tf.nn.relu(_dense(x, WIDTH, "in")), WIDTH, "out") * 0.1
    return x


def _dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    with tf1.variable_scope(name):
        kernel = tf1.get_variable("kernel", [x.shape[1], units])
        bias = tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)
