"""The steps of step_beside_jax.py as plain TensorFlow 1 training graphs, converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from _jax_steps import CLASSES, HEADS, LAYERS, RATE, WIDTH

from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.tpu.program import Program

tf1 = tf.compat.v1
Array = np.ndarray[Any, Any]


def make(name: str, batches: Sequence[Array]) -> Program:
    """A model for one core whose input has these batches, again and again; as many steps in a loop as there are batches."""
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(3)
        with tf1.variable_scope("model", initializer=tf1.glorot_uniform_initializer(seed=5), use_resource=True):
            loss = {"cnn": _cnn, "transformer": _transformer}[name](*_input(*batches))
        step = tf1.train.get_or_create_global_step()
        optimizer = tf1.train.GradientDescentOptimizer if name == "cnn" else tf1.train.AdamOptimizer
        optimizer(RATE).minimize(loss, step)
        tf1.train.Saver()
        definition = graph.as_graph_def()
    plain = graphdef.from_graph_def(definition, source=name)
    return convert(plain, num_replicas=1, iterations_per_loop=len(batches[0]))


def _cnn(images: Any, labels: Any) -> Any:
    x = tf.reshape(images, [-1, 28, 28, 1])
    for number, (before, after) in enumerate(((1, 32), (32, 64))):
        with tf1.variable_scope(f"conv_{number}"):
            kernel = tf1.get_variable("kernel", [5, 5, before, after])
            bias = tf1.get_variable("bias", [after], initializer=tf1.zeros_initializer())
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))
        x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    x = tf.nn.relu(_dense(tf.reshape(x, [-1, 3136]), 1024, "dense_0"))
    return _cross_entropy(_dense(x, 10, "dense_1"), labels)


def _transformer(tokens: Any, labels: Any) -> Any:
    x = tf.gather(tf1.get_variable("embedding", [CLASSES, WIDTH]), tokens)
    for layer in range(LAYERS):
        with tf1.variable_scope(f"layer_{layer}"):
            x = x + _attention(_normal(x))
            x = x + _dense(tf.nn.relu(_dense(_normal(x), 4 * WIDTH, "up")), WIDTH, "down")
    return _cross_entropy(_dense(tf.reduce_mean(_normal(x), 1), CLASSES, "logits"), labels)


def _attention(x: Any) -> Any:
    rows, length, _ = x.shape

    def heads(name: str) -> Any:
        return tf.transpose(tf.reshape(_dense(x, WIDTH, name), [rows, length, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])

    weights = tf.nn.softmax(tf.matmul(heads("q"), heads("k"), transpose_b=True) * (WIDTH // HEADS) ** -0.5)
    mixed = tf.transpose(tf.matmul(weights, heads("v")), [0, 2, 1, 3])
    return _dense(tf.reshape(mixed, [rows, length, WIDTH]), WIDTH, "o")


def _normal(x: Any) -> Any:
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred * centred, -1, keepdims=True) + 1e-6)


def _dense(x: Any, units: int, name: str) -> Any:
    with tf1.variable_scope(name):
        kernel = tf1.get_variable("kernel", [x.shape[-1], units])
        bias = tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
    flat = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel)
    return tf.reshape(tf.nn.bias_add(flat, bias), [*x.shape[:-1], units])


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=labels))


def _input(*batches: Array) -> Any:
    data = tf1.data.Dataset.from_tensor_slices(batches).repeat()
    batch = tf1.data.make_initializable_iterator(data)
    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, batch.initializer)
    return batch.get_next()
