"""Training graphs of any size, as an Estimator would write them: variables, slots, summaries, an iterator, a saver."""

from __future__ import annotations

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


def _model(blocks: int) -> None:
    rows = tf.random.stateless_uniform([64, WIDTH], [1, 2])
    labels = tf.cast(tf.reduce_sum(rows, 1) * 10, tf.int32) % 3
    dataset = tf1.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(16, drop_remainder=True)
    iterator = tf1.data.make_initializable_iterator(dataset)
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    x, y = iterator.get_next()
    for block in range(blocks):
        with tf1.variable_scope(f"block_{block}"):
            x = x + _dense(tf.nn.relu(_dense(x, WIDTH, "in")), WIDTH, "out") * 0.1
    loss = tf1.losses.sparse_softmax_cross_entropy(y, _dense(x, 3, "logits"))
    tf1.summary.scalar("loss", loss)
    tf1.summary.merge_all()
    step = tf1.train.get_or_create_global_step()
    tf1.train.AdamOptimizer(1e-3).minimize(loss, step)
    tf.group(tf1.global_variables_initializer(), tf1.local_variables_initializer(), tf1.tables_initializer())
    tf1.train.Saver(sharded=True)


def _dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    with tf1.variable_scope(name):
        kernel = tf1.get_variable("kernel", [x.shape[1], units])
        bias = tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)
