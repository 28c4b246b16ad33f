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
    """The graph of that name."""
    return build({**BREAKING, **GOOD}[name], optimizer=OPTIMIZERS.get(name))


def _count(weights: Any, least: int = 1) -> Any:
    """A whole number, int32 [], that depends on the weights."""
    return tf.cast(tf.reduce_sum(weights) * 0.001, tf.int32) + least


def _image(weights: Any, dtype: Any = tf.float32) -> Any:
    """An image [1, 3, 3, 1] of the weights, which has no rows of the batch in it."""
    return tf.reshape(tf.cast(tf.tile(weights, [1, 3]) * 10, dtype), [1, 3, 3, 1])


def _total(value: Any) -> Any:
    return tf.reduce_mean(tf.cast(value, tf.float32)) * 0.01


# --------------------------------------------------------------------------- op types without a kernel


def _gamma(x: Any, w: Any) -> Any:
    return _total(tf.stop_gradient(tf1.random_gamma([2], tf.exp(w))))


def _complex_total(x: Any, w: Any) -> Any:
    return _total(tf.abs(tf.reduce_sum(tf.cast(x @ w, tf.complex64)))) + _gamma(x, w)  # a sum over the cores


def _ctc(x: Any, w: Any) -> Any:
    logits = tf.reshape(tf.tile(x @ w, [1, 12]), [32, 3, 4])
    labels = tf.SparseTensor(tf.constant([[0, 0], [1, 0], [2, 0]], tf.int64), tf.constant([0, 1, 0]), [3, 1])
    return _total(tf1.nn.ctc_loss(labels, logits, [4, 4, 4]))


def _crop(x: Any, w: Any) -> Any:
    boxes = tf.constant([[0.0, 0.0, 0.5, 0.5]])
    return _total(tf.image.crop_and_resize(_image(w), boxes, [0], [2, 2]))


def _embedded(x: Any, w: Any) -> Any:
    table = variable("table", (8, 3))
    rows = tf.cast(tf.abs(x[:, 0] * 4), tf.int32) % 8
    return _total(tf.square(tf.gather(table, rows) + x))


def _sampled(x: Any, w: Any) -> Any:
    table, bias = variable("table", (20, 3)), variable("bias", (20,))
    labels = tf.cast(tf.abs(x[:, :1] * w[0, 0] * 4), tf.int64) % 20
    return _total(tf.nn.sampled_softmax_loss(table, bias, labels, x, 5, 20))


def _bicubic(x: Any, w: Any) -> Any:
    return _total(tf1.image.resize_bicubic(_image(w), [4, 4]))


def _fractional(x: Any, w: Any) -> Any:
    return _total(tf.nn.fractional_max_pool(_image(w), [1, 1.4, 1.4, 1], pseudo_random=True, seed=1)[0])


def _sparse_product(x: Any, w: Any) -> Any:
    sparse = tf.SparseTensor(tf.constant([[0, 0], [1, 2]], tf.int64), tf.constant([1.0, 2.0]), [2, 3])
    return _total(tf.sparse.sparse_dense_matmul(sparse, w))


def _determinant(x: Any, w: Any) -> Any:
    return _total(tf.linalg.det(tf.tile(w, [1, 3]) + tf.eye(3)))


def _glimpse(x: Any, w: Any) -> Any:
    return _total(tf1.image.extract_glimpse(_image(w), [1, 1], [[0.0, 0.0]]))


def _histogram(x: Any, w: Any) -> Any:
    return _total(tf.histogram_fixed_width(tf.reshape(w, [-1]), [-1.0, 1.0], 4))


def _poisson(x: Any, w: Any) -> Any:
    return _total(tf.stop_gradient(tf1.random_poisson(tf.exp(w), [2])))


# --------------------------------------------------------------------------- text, tables, the host


def _text(x: Any, w: Any) -> Any:
    return _total(tf.stop_gradient(tf.strings.to_number(tf.strings.as_string(w))))


def _hashed(x: Any, w: Any) -> Any:
    return _total(tf.strings.to_hash_bucket_fast(tf.strings.as_string(w), 10))


def _table(x: Any, w: Any) -> Any:
    keys = tf.constant([0, 1, 2], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 2), -1)
    return _total(table.lookup(tf.cast(w, tf.int64)))


def _python(x: Any, w: Any) -> Any:
    return _total(tf.stop_gradient(tf1.py_func(np.tanh, [w], tf.float32)))


def _fed(x: Any, w: Any) -> Any:
    return tf1.placeholder(tf.float32, [], "rate") * tf.reduce_sum(w)


def _jpeg(x: Any, w: Any) -> Any:
    image = tf.reshape(_image(tf.abs(w), tf.uint8), [3, 3, 1])
    return _total(tf.io.decode_jpeg(tf.io.encode_jpeg(image)))


# --------------------------------------------------------------------------- dtypes and attributes


def _double(x: Any, w: Any) -> Any:
    other = tf1.get_variable("double", initializer=tf.constant([[1.0], [2.0], [3.0]], tf.float64))
    return _total(tf.square(tf.cast(x, tf.float64) @ other))


def _wide_spectrum(x: Any, w: Any) -> Any:
    return _total(tf.abs(tf.signal.fft(tf.cast(tf.transpose(w), tf.complex128))))


def _whole_product(x: Any, w: Any) -> Any:
    whole = tf.cast(w, tf.int64)
    return _total(whole @ tf.transpose(whole))


def _complex_sum(x: Any, w: Any) -> Any:
    return _total(tf.abs(tf.cumsum(tf.cast(w, tf.complex64))))


def _small_sum(x: Any, w: Any) -> Any:
    return _total(tf.cumsum(tf.cast(w * 10, tf.int8)))


# --------------------------------------------------------------------------- operands that must be constants


def _reshaped(x: Any, w: Any) -> Any:
    return _total(tf.reshape(w, tf.stack([_count(w), 3])))


def _filled(x: Any, w: Any) -> Any:
    return _total(tf.fill([_count(w)], 2.0))


def _ranged(x: Any, w: Any) -> Any:
    return _total(tf.range(_count(w, 3)))


def _tiled(x: Any, w: Any) -> Any:
    return _total(tf.tile(x, tf.stack([_count(w), 1])))


def _one_hot(x: Any, w: Any) -> Any:
    return _total(tf.one_hot([0, 1], _count(w, 3)))


def _axis(x: Any, w: Any) -> Any:
    return _total(tf.reduce_sum(x, _count(w, 0)))


def _turned(x: Any, w: Any) -> Any:
    one = _count(w)
    return _total(tf.transpose(x, tf.stack([one, 1 - one])))


def _padded(x: Any, w: Any) -> Any:
    return _total(tf.pad(x, tf.stack([tf.stack([_count(w), 0]), tf.constant([0, 0])])))


def _drawn_size(x: Any, w: Any) -> Any:
    drawn = tf1.random_uniform([], 1, 3, tf.int32)
    return tf.reduce_sum(w) * _total(tf.zeros([drawn]) + 1.0)


def _broadcast(x: Any, w: Any) -> Any:
    return _total(tf.broadcast_to(w, tf.stack([3, _count(w)])))


def _segments(x: Any, w: Any) -> Any:
    return _total(tf.math.unsorted_segment_sum(x, tf.cast(x[:, 0] > 0, tf.int32), _count(w, 2)))


def _resized(x: Any, w: Any) -> Any:
    return _total(tf1.image.resize_bilinear(_image(w), tf.stack([_count(w, 3), 3])))


def _rolled(x: Any, w: Any) -> Any:
    return _total(tf.cumsum(x, _count(w, 0)))


def _joined(x: Any, w: Any) -> Any:
    return _total(tf.concat([x, x], _count(w, 0)))


def _split(x: Any, w: Any) -> Any:
    return _total(tf.split(w, tf.stack([_count(w), 2]))[0])


# --------------------------------------------------------------------------- open shapes, loops


def _first_of(x: Any, w: Any) -> Any:
    return _total(tf.nn.top_k(tf.reshape(w, [-1]), _count(w)).values)


def _looked_up(x: Any, w: Any) -> Any:
    return _total(tf.gather(variable("table", (9, 1)), tf.unique(tf.cast(tf.reshape(w, [-1]), tf.int32)).y + 4))


def _map_in_map(x: Any, w: Any) -> Any:
    return _total(tf.square(tf1.map_fn(lambda row: tf1.map_fn(lambda v: v * w[0, 0], row), w)))


def _segment(x: Any, w: Any) -> Any:
    return _total(tf.math.segment_sum(w, [0, 0, 1]))


def _nearest(x: Any, w: Any) -> Any:
    return _total(tf.square(tf1.image.resize_nearest_neighbor(_image(w), [5, 5])))


def _masked(x: Any, w: Any) -> Any:
    return _total(tf.boolean_mask(w, w > 0))


def _unbounded(x: Any, w: Any) -> Any:
    return 0.01 * tf1.while_loop(lambda v: tf.abs(v) < 10.0, lambda v: v * 1.5 + 1.0, [tf.reduce_sum(w)])


def _array(x: Any, w: Any) -> Any:
    array = tf.TensorArray(tf.float32, size=_count(w, 3), element_shape=[])
    return _total(array.write(0, tf.reduce_sum(w)).read(0))


def _dynamic_array(x: Any, w: Any) -> Any:
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
    return _total(array.write(0, tf.reduce_sum(w)).read(0))


BREAKING: dict[str, Part] = {
    name[1:]: part
    for name, part in list(globals().items())
    if name[0] == "_" and name[1] != "_" and name not in ("_count", "_image", "_total") and callable(part)
}
embedded_momentum = BREAKING.pop("embedded")

# --------------------------------------------------------------------------- what goes


def nothing(x: Any, w: Any) -> Any:
    return 0.0


def dropout(x: Any, w: Any) -> Any:
    return _total(tf1.nn.dropout(x @ w, rate=0.5))


def bounded(x: Any, w: Any) -> Any:
    return 0.01 * tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 0.5), [0, tf.reduce_sum(w)])[1]


def loop_in_loop(x: Any, w: Any) -> Any:
    def inner(v: Any) -> Any:
        return tf1.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v * 0.9), [0, v])[1]

    return tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, inner(v)), [0, tf.reduce_sum(w)])[1]


def gradient_of_loop_in_loop(x: Any, w: Any) -> Any:
    def inner(v: Any) -> Any:
        return tf1.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, tf.sin(v * 1.3)), [0, v])[1]

    return _total(tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, inner(v)), [0, w])[1])


def gradient_of_branch_in_loop(x: Any, w: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        return i + 1, tf1.cond(tf.reduce_sum(v) > 0.5, lambda: tf.sin(v * 1.3), lambda: tf.exp(v * 0.3) * v)

    return _total(tf1.while_loop(lambda i, _: i < 5, body, [0, w])[1])


def gradient_of_loop_in_branch_in_loop(x: Any, w: Any) -> Any:
    def inner(v: Any) -> Any:
        return tf1.while_loop(lambda j, _: j < 2, lambda j, z: (j + 1, tf.sin(z * 1.2)), [0, v])[1]

    def body(i: Any, v: Any) -> Any:
        return i + 1, tf1.cond(i < 2, lambda: inner(v), lambda: v * 2.0)

    return _total(tf1.while_loop(lambda i, _: i < 3, body, [0, w])[1])


def branch(x: Any, w: Any) -> Any:
    return tf1.cond(tf.reduce_sum(w) > 0, lambda: tf.reduce_sum(w), lambda: -tf.reduce_sum(w))


def convolution(x: Any, w: Any) -> Any:
    filtered = tf.nn.conv2d(_image(w), variable("k", (2, 2, 1, 2)), 1, "SAME")
    return _total(tf.nn.max_pool2d(filtered, 2, 1, "VALID"))


def einsum(x: Any, w: Any) -> Any:
    return _total(tf.einsum("ij,jk->ik", x, w))


def sorted_rows(x: Any, w: Any) -> Any:
    return _total(tf.sort(x * tf.transpose(w)))


def cholesky(x: Any, w: Any) -> Any:
    return _total(tf.linalg.cholesky(w @ tf.transpose(w) + tf.eye(3) * 2.0))


def spectrum(x: Any, w: Any) -> Any:
    return _total(tf.abs(tf.signal.fft(tf.cast(tf.transpose(w), tf.complex64))))


def of_shape(x: Any, w: Any) -> Any:
    return _total(tf.reshape(x * tf.transpose(w), tf.stack([tf.shape(x)[0], tf.shape(x)[1], 1])))


def embedded_adagrad(x: Any, w: Any) -> Any:
    return _embedded(x, w)


def embedded_adam(x: Any, w: Any) -> Any:
    return _embedded(x, w)


def first_rows(x: Any, w: Any) -> Any:
    return _total(x[: _count(w, 2)])


def top(x: Any, w: Any) -> Any:
    return _total(tf.nn.top_k(x, _count(w)).values)


def places(x: Any, w: Any) -> Any:
    return _total(tf.where(w > 0))


def different(x: Any, w: Any) -> Any:
    return _total(tf.unique(tf.cast(tf.reshape(w, [-1]), tf.int32)).y)


def drawn(x: Any, w: Any) -> Any:
    return _total(tf1.multinomial(tf.transpose(w), 2))


def shuffled(x: Any, w: Any) -> Any:
    return _total(tf.stop_gradient(tf1.random_shuffle(w)))


def halves(x: Any, w: Any) -> Any:
    return _total(tf.square(tf.cast(x, tf.float16) @ tf.cast(w, tf.float16)))


def short_floats(x: Any, w: Any) -> Any:
    return _total(tf.square(tf.cast(x, tf.bfloat16) @ tf.cast(w, tf.bfloat16)))


def some_elements(x: Any, w: Any) -> Any:
    return _total(tf.square(tf.gather_nd(w, [[0, 0], [2, 0]])))


def repeated(x: Any, w: Any) -> Any:
    return _total(tf.repeat(tf.repeat(_image(w), 2, 1), 2, 2))


GOOD: dict[str, Part] = {
    part.__name__: part
    for part in (nothing, dropout, bounded, branch, convolution, einsum, sorted_rows, cholesky, spectrum, of_shape,
                 embedded_adagrad, embedded_adam, loop_in_loop, first_rows, top, places, different, drawn, shuffled,
                 gradient_of_loop_in_loop, gradient_of_branch_in_loop,
                 gradient_of_loop_in_branch_in_loop, halves, short_floats, some_elements, repeated)
} | {"embedded_momentum": embedded_momentum}  # fmt: skip

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
