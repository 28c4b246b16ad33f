"""Small training graphs that break one rule of the TPU compiler each, and others that break none.

Each is a linear model with something added to its loss. What the rule is about depends on the weights, so that it has to
run on the device and no pass can move it to the host. What the real compiler says of each is in ``tests/data/breaking.json``:

    python tests/breaking.py > tests/data/breaking.json
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from models import finish, linear, squared_error, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.support.errors import TpuGraphError
from tpugraph.xla import stablehlo, topologies

RECORDED = Path(__file__).parent / "data" / "breaking.json"
OPTIONS = {"num_replicas": 8, "iterations_per_loop": 2}

tf1 = tf.compat.v1
Part = Callable[[Any, Any], Any]
"""What is added to the loss, a scalar, of features [32, 3] and weights [3, 1]."""


def build(part: Part, *, optimizer: Any = None) -> Graph:
    """The training graph of the linear model with a part added to its loss."""

    def model() -> None:
        features, targets, weights = linear(32)
        loss = tf.reduce_mean(squared_error(features, targets, weights)) + part(features, weights)
        finish(loss, optimizer() if optimizer else tf1.train.GradientDescentOptimizer(0.1))

    return trace(model, resource=True)


def graph(name: str) -> Graph:
    return build({**BREAKING, **GOOD}[name], optimizer=OPTIMIZERS.get(name))


def _count(weights: Any, least: int = 1) -> Any:
    """A whole number, int32 [], that depends on the weights."""
    return tf.cast(tf.reduce_sum(weights) * 0.001, tf.int32) + least


def _image(weights: Any, dtype: Any = tf.float32) -> Any:
    """An image [1, 3, 3, 1] of the weights, which has no rows of the batch in it."""
    return tf.reshape(tf.cast(tf.tile(weights, [1, 3]) * 10, dtype), [1, 3, 3, 1])


def _total(value: Any) -> Any:
    return tf.reduce_mean(tf.cast(value, tf.float32)) * 0.01


def _complex_total(x: Any, w: Any) -> Any:
    summed = tf.reduce_sum(tf.cast(x @ w, tf.complex64))  # over the cores
    return _total(tf.abs(summed)) + BREAKING["gamma"](x, w)


def _ctc(x: Any, w: Any) -> Any:
    logits = tf.reshape(tf.tile(x @ w, [1, 12]), [32, 3, 4])
    labels = tf.SparseTensor(tf.constant([[0, 0], [1, 0], [2, 0]], tf.int64), tf.constant([0, 1, 0]), [3, 1])
    return _total(tf1.nn.ctc_loss(labels, logits, [4, 4, 4]))


def _embedded(x: Any, w: Any) -> Any:
    table = variable("table", (8, 3))
    rows = tf.cast(tf.abs(x[:, 0] * 4), tf.int32) % 8
    return _total(tf.square(tf.gather(table, rows) + x))


def _sampled(x: Any, w: Any) -> Any:
    table, bias = variable("table", (20, 3)), variable("bias", (20,))
    labels = tf.cast(tf.abs(x[:, :1] * w[0, 0] * 4), tf.int64) % 20
    return _total(tf.nn.sampled_softmax_loss(table, bias, labels, x, 5, 20))


def _sparse_product(x: Any, w: Any) -> Any:
    sparse = tf.SparseTensor(tf.constant([[0, 0], [1, 2]], tf.int64), tf.constant([1.0, 2.0]), [2, 3])
    return _total(tf.sparse.sparse_dense_matmul(sparse, w))


def _table(x: Any, w: Any) -> Any:
    keys = tf.constant([0, 1, 2], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 2), -1)
    return _total(table.lookup(tf.cast(w, tf.int64)))


def _double(x: Any, w: Any) -> Any:
    other = tf1.get_variable("double", initializer=tf.constant([[1.0], [2.0], [3.0]], tf.float64))
    return _total(tf.square(tf.cast(x, tf.float64) @ other))


def _turned(x: Any, w: Any) -> Any:
    one = _count(w)
    return _total(tf.transpose(x, tf.stack([one, 1 - one])))


def _first_written(array: Any, w: Any) -> Any:
    return _total(array.write(0, tf.reduce_sum(w)).read(0))


def _ids(w: Any) -> Any:
    """The distinct whole numbers among the weights."""
    return tf.unique(tf.cast(tf.reshape(w, [-1]), tf.int32)).y


BREAKING: dict[str, Part] = {
    # op types without a kernel
    "gamma": lambda x, w: _total(tf.stop_gradient(tf1.random_gamma([2], tf.exp(w)))),
    "complex_total": _complex_total,
    "ctc": _ctc,
    "crop": lambda x, w: _total(tf.image.crop_and_resize(_image(w), tf.constant([[0.0, 0.0, 0.5, 0.5]]), [0], [2, 2])),
    "sampled": _sampled,
    "bicubic": lambda x, w: _total(tf1.image.resize_bicubic(_image(w), [4, 4])),
    "fractional": lambda x, w: _total(tf.nn.fractional_max_pool(_image(w), [1, 1.4, 1.4, 1], pseudo_random=True, seed=1)[0]),
    "sparse_product": _sparse_product,
    "determinant": lambda x, w: _total(tf.linalg.det(tf.tile(w, [1, 3]) + tf.eye(3))),
    "glimpse": lambda x, w: _total(tf1.image.extract_glimpse(_image(w), [1, 1], [[0.0, 0.0]])),
    "histogram": lambda x, w: _total(tf.histogram_fixed_width(tf.reshape(w, [-1]), [-1.0, 1.0], 4)),
    "poisson": lambda x, w: _total(tf.stop_gradient(tf1.random_poisson(tf.exp(w), [2]))),
    # text, tables, the host
    "text": lambda x, w: _total(tf.stop_gradient(tf.strings.to_number(tf.strings.as_string(w)))),
    "hashed": lambda x, w: _total(tf.strings.to_hash_bucket_fast(tf.strings.as_string(w), 10)),
    "table": _table,
    "python": lambda x, w: _total(tf.stop_gradient(tf1.py_func(np.tanh, [w], tf.float32))),
    "fed": lambda x, w: tf1.placeholder(tf.float32, [], "rate") * tf.reduce_sum(w),
    "jpeg": lambda x, w: _total(tf.io.decode_jpeg(tf.io.encode_jpeg(tf.reshape(_image(tf.abs(w), tf.uint8), [3, 3, 1])))),
    # dtypes and attributes
    "double": _double,
    "wide_spectrum": lambda x, w: _total(tf.abs(tf.signal.fft(tf.cast(tf.transpose(w), tf.complex128)))),
    "whole_product": lambda x, w: _total(tf.cast(w, tf.int64) @ tf.transpose(tf.cast(w, tf.int64))),
    "complex_sum": lambda x, w: _total(tf.abs(tf.cumsum(tf.cast(w, tf.complex64)))),
    "small_sum": lambda x, w: _total(tf.cumsum(tf.cast(w * 10, tf.int8))),
    # operands that must be constants
    "reshaped": lambda x, w: _total(tf.reshape(w, tf.stack([_count(w), 3]))),
    "filled": lambda x, w: _total(tf.fill([_count(w)], 2.0)),
    "ranged": lambda x, w: _total(tf.range(_count(w, 3))),
    "tiled": lambda x, w: _total(tf.tile(x, tf.stack([_count(w), 1]))),
    "one_hot": lambda x, w: _total(tf.one_hot([0, 1], _count(w, 3))),
    "axis": lambda x, w: _total(tf.reduce_sum(x, _count(w, 0))),
    "turned": _turned,
    "padded": lambda x, w: _total(tf.pad(x, tf.stack([tf.stack([_count(w), 0]), tf.constant([0, 0])]))),
    "drawn_size": lambda x, w: tf.reduce_sum(w) * _total(tf.zeros([tf1.random_uniform([], 1, 3, tf.int32)]) + 1.0),
    "broadcast": lambda x, w: _total(tf.broadcast_to(w, tf.stack([3, _count(w)]))),
    "segments": lambda x, w: _total(tf.math.unsorted_segment_sum(x, tf.cast(x[:, 0] > 0, tf.int32), _count(w, 2))),
    "resized": lambda x, w: _total(tf1.image.resize_bilinear(_image(w), tf.stack([_count(w, 3), 3]))),
    "rolled": lambda x, w: _total(tf.cumsum(x, _count(w, 0))),
    "joined": lambda x, w: _total(tf.concat([x, x], _count(w, 0))),
    "split": lambda x, w: _total(tf.split(w, tf.stack([_count(w), 2]))[0]),
    # open shapes, loops
    "first_of": lambda x, w: _total(tf.nn.top_k(tf.reshape(w, [-1]), _count(w)).values),
    "looked_up": lambda x, w: _total(tf.gather(variable("table", (9, 1)), _ids(w) + 4)),
    "map_in_map": lambda x, w: _total(tf.square(tf1.map_fn(lambda row: tf1.map_fn(lambda v: v * w[0, 0], row), w))),
    "segment": lambda x, w: _total(tf.math.segment_sum(w, [0, 0, 1])),
    "nearest": lambda x, w: _total(tf.square(tf1.image.resize_nearest_neighbor(_image(w), [5, 5]))),
    "masked": lambda x, w: _total(tf.boolean_mask(w, w > 0)),
    "unbounded": lambda x, w: (0.01 * tf1.while_loop(lambda v: tf.abs(v) < 10.0, lambda v: v * 1.5 + 1.0, [tf.reduce_sum(w)])),
    "array": lambda x, w: _first_written(tf.TensorArray(tf.float32, size=_count(w, 3), element_shape=[]), w),
    "dynamic_array": lambda x, w: _first_written(tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[]), w),
}  # fmt: skip

# --------------------------------------------------------------------------- what goes


def _turns(count: int, body: Callable[[Any, Any], Any], start: Any) -> Any:
    """What a loop of so many turns makes of a value; ``body`` gets the number of the turn."""
    return tf1.while_loop(lambda i, _: i < count, lambda i, v: (i + 1, body(i, v)), [0, start])[1]


def _branch_in_loop(x: Any, w: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        return tf1.cond(tf.reduce_sum(v) > 0.5, lambda: tf.sin(v * 1.3), lambda: tf.exp(v * 0.3) * v)

    return _total(_turns(5, body, w))


def _loop_in_branch_in_loop(x: Any, w: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        return tf1.cond(i < 2, lambda: _turns(2, lambda _, z: tf.sin(z * 1.2), v), lambda: v * 2.0)

    return _total(_turns(3, body, w))


def _convolution(x: Any, w: Any) -> Any:
    filtered = tf.nn.conv2d(_image(w), variable("k", (2, 2, 1, 2)), 1, "SAME")
    return _total(tf.nn.max_pool2d(filtered, 2, 1, "VALID"))


def _squared_product(x: Any, w: Any, dtype: Any) -> Any:
    return _total(tf.square(tf.cast(x, dtype) @ tf.cast(w, dtype)))


GOOD: dict[str, Part] = {
    "nothing": lambda x, w: 0.0,
    "dropout": lambda x, w: _total(tf1.nn.dropout(x @ w, rate=0.5)),
    "bounded": lambda x, w: 0.01 * _turns(3, lambda i, v: v * 0.5, tf.reduce_sum(w)),
    "branch": lambda x, w: tf1.cond(tf.reduce_sum(w) > 0, lambda: tf.reduce_sum(w), lambda: -tf.reduce_sum(w)),
    "convolution": _convolution,
    "einsum": lambda x, w: _total(tf.einsum("ij,jk->ik", x, w)),
    "sorted_rows": lambda x, w: _total(tf.sort(x * tf.transpose(w))),
    "cholesky": lambda x, w: _total(tf.linalg.cholesky(w @ tf.transpose(w) + tf.eye(3) * 2.0)),
    "spectrum": lambda x, w: _total(tf.abs(tf.signal.fft(tf.cast(tf.transpose(w), tf.complex64)))),
    "of_shape": lambda x, w: _total(tf.reshape(x * tf.transpose(w), tf.stack([tf.shape(x)[0], tf.shape(x)[1], 1]))),
    "embedded_adagrad": _embedded,
    "embedded_adam": _embedded,
    "embedded_momentum": _embedded,
    "loop_in_loop": lambda x, w: _turns(3, lambda i, v: _turns(2, lambda j, z: z * 0.9, v), tf.reduce_sum(w)),
    "first_rows": lambda x, w: _total(x[: _count(w, 2)]),
    "top": lambda x, w: _total(tf.nn.top_k(x, _count(w)).values),
    "places": lambda x, w: _total(tf.where(w > 0)),
    "different": lambda x, w: _total(_ids(w)),
    "drawn": lambda x, w: _total(tf1.multinomial(tf.transpose(w), 2)),
    "shuffled": lambda x, w: _total(tf.stop_gradient(tf1.random_shuffle(w))),
    "gradient_of_loop_in_loop": lambda x, w: _total(
        _turns(3, lambda i, v: _turns(2, lambda j, z: tf.sin(z * 1.3), v), w)
    ),
    "gradient_of_branch_in_loop": _branch_in_loop,
    "gradient_of_loop_in_branch_in_loop": _loop_in_branch_in_loop,
    "halves": lambda x, w: _squared_product(x, w, tf.float16),
    "short_floats": lambda x, w: _squared_product(x, w, tf.bfloat16),
    "some_elements": lambda x, w: _total(tf.square(tf.gather_nd(w, [[0, 0], [2, 0]]))),
    "repeated": lambda x, w: _total(tf.repeat(tf.repeat(_image(w), 2, 1), 2, 2)),
}

OPTIMIZERS: dict[str, Any] = {
    "embedded_momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "embedded_adam": lambda: tf1.train.AdamOptimizer(0.1),
    "embedded_adagrad": lambda: tf1.train.AdagradOptimizer(0.1),
}


def compiled(name: str) -> dict[str, str | None]:
    """What conversion, lowering and the real compiler say: who refuses the graph, if anyone, and at which node."""
    stage = "conversion"
    try:
        program = convert(graph(name), **OPTIONS)
        stage = "lowering"
        module = stablehlo.lower(graphdef.from_graph_def(program.graph_def))
        stage = "compiler"
        topologies.compile_for(module, "v5e:2x4")
    except TpuGraphError as error:
        return {"refused_by": stage, "node": error.node and error.node.partition(" (")[0]}
    return {"refused_by": None, "node": None}


if __name__ == "__main__":
    json.dump({name: compiled(name) for name in (*BREAKING, *GOOD)}, sys.stdout, indent=1)
