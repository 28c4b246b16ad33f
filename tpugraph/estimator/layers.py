"""The layers of ``tf.layers`` that TensorFlow no longer has, with the same arguments and the same variable names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


def dense(inputs: Any, units: int, activation: Callable[[Any], Any] | None = None, use_bias: bool = True,
          kernel_initializer: Any = None, bias_initializer: Any = None, kernel_regularizer: Any = None,
          trainable: bool = True, name: str | None = None, reuse: Any = None) -> Any:  # fmt: skip
    """A fully connected layer: ``[..., n]`` becomes ``[..., units]``; its variables are ``kernel`` and ``bias``."""
    with tf1.variable_scope(name, default_name="dense", reuse=reuse):
        width = inputs.shape.as_list()[-1]
        kernel = tf1.get_variable("kernel", [width, units], inputs.dtype, kernel_initializer, kernel_regularizer,
                                  trainable=trainable)  # fmt: skip
        if inputs.shape.rank == 2:
            outputs = tf.matmul(inputs, kernel, name="MatMul")
        else:
            outputs = tf.tensordot(inputs, kernel, [[inputs.shape.rank - 1], [0]])
        return _finish(outputs, units, use_bias, bias_initializer, activation, trainable)


def conv2d(inputs: Any, filters: int, kernel_size: int | Sequence[int], strides: int | Sequence[int] = (1, 1),
           padding: str = "valid", data_format: str = "channels_last", dilation_rate: int | Sequence[int] = (1, 1),
           activation: Callable[[Any], Any] | None = None, use_bias: bool = True, kernel_initializer: Any = None,
           bias_initializer: Any = None, kernel_regularizer: Any = None, trainable: bool = True,
           name: str | None = None, reuse: Any = None) -> Any:  # fmt: skip
    """A convolution over images ``[batch, height, width, channels]``; its variables are ``kernel`` and ``bias``."""
    _channels_last(data_format)
    with tf1.variable_scope(name, default_name="conv2d", reuse=reuse):
        shape = [*_pair(kernel_size), inputs.shape.as_list()[-1], filters]
        kernel = tf1.get_variable("kernel", shape, inputs.dtype, kernel_initializer, kernel_regularizer,
                                  trainable=trainable)  # fmt: skip
        outputs = tf.nn.conv2d(inputs, kernel, _pair(strides), padding.upper(), dilations=_pair(dilation_rate))
        return _finish(outputs, filters, use_bias, bias_initializer, activation, trainable)


def max_pooling2d(inputs: Any, pool_size: int | Sequence[int], strides: int | Sequence[int], padding: str = "valid",
                  data_format: str = "channels_last", name: str | None = None) -> Any:  # fmt: skip
    """The largest value of each window of images ``[batch, height, width, channels]``."""
    _channels_last(data_format)
    return tf.nn.max_pool2d(inputs, _pair(pool_size), _pair(strides), padding.upper(), name=name or "max_pooling2d")


def average_pooling2d(inputs: Any, pool_size: int | Sequence[int], strides: int | Sequence[int], padding: str = "valid",
                      data_format: str = "channels_last", name: str | None = None) -> Any:  # fmt: skip
    """The mean of each window of images ``[batch, height, width, channels]``."""
    _channels_last(data_format)
    return tf.nn.avg_pool2d(inputs, _pair(pool_size), _pair(strides), padding.upper(), name=name or "average_pooling2d")


def dropout(inputs: Any, rate: float = 0.5, noise_shape: Any = None, seed: int | None = None, training: bool = False,
            name: str | None = None) -> Any:  # fmt: skip
    """Zeroes a share ``rate`` of the values while training, and scales the others up."""
    if not training:
        return tf.identity(inputs, name=name or "dropout")
    return tf1.nn.dropout(inputs, rate=rate, noise_shape=noise_shape, seed=seed, name=name or "dropout")


def flatten(inputs: Any, name: str | None = None) -> Any:
    """``[batch, ...]`` becomes ``[batch, n]``."""
    size = inputs.shape[1:].num_elements()
    rows = inputs.shape.as_list()[0] if size is None else None
    return tf.reshape(inputs, [-1 if rows is None else rows, -1 if size is None else size], name=name or "flatten")


def _finish(outputs: Any, units: int, use_bias: bool, initializer: Any, activation: Any, trainable: bool) -> Any:
    if use_bias:
        first = initializer or tf1.zeros_initializer()
        outputs = tf.nn.bias_add(outputs, tf1.get_variable("bias", [units], outputs.dtype, first, trainable=trainable))
    return outputs if activation is None else activation(outputs)


def _pair(value: int | Sequence[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _channels_last(data_format: str) -> None:
    if data_format != "channels_last":
        raise ValueError(f"data_format is '{data_format}', but only 'channels_last' is there")
