"""The cells of ``tf.contrib.rnn`` that ``tf.nn.rnn_cell`` does not have; variables have TensorFlow 1.15's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_rnn_ops
from tf_keras.api._v1.keras.__internal__.legacy.rnn_cell import LSTMStateTuple, RNNCell

tf1 = tf.compat.v1


def linear(
    values: Any, size: int, bias: bool = True, names: Sequence[str] = ("kernel", "bias"), start: float = 0.0
) -> Any:
    """``values``, concatenated, times a variable, plus a bias with the initial value ``start``."""
    together = tf.concat(values, 1) if isinstance(values, list | tuple) else values
    product = tf.matmul(together, tf1.get_variable(names[0], [together.shape.as_list()[1], size], together.dtype))
    return tf.nn.bias_add(product, _filled(names[1], [size], together.dtype, start)) if bias else product


def _filled(name: str, shape: Any, dtype: Any, start: float = 0.0) -> Any:
    return tf1.get_variable(name, shape, dtype, initializer=tf1.constant_initializer(start))


class Cell(RNNCell):  # type: ignore[misc]
    """A cell by the sizes of its state and of its output; one size stands for both."""

    def __init__(self, size: Any, output: Any = None, reuse: Any = None, name: Any = None, dtype: Any = None) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._sizes = size, size if output is None else output

    @property
    def state_size(self) -> Any:
        return self._sizes[0]

    @property
    def output_size(self) -> Any:
        return self._sizes[1]


def _lstm(memory: Any, ingoing: Any, candidate: Any, forget: Any, outgoing: Any, activation: Any = tf.tanh) -> Any:
    """The output of an LSTM and its new state, of the scores of its gates."""
    new = tf.sigmoid(forget) * memory + tf.sigmoid(ingoing) * activation(candidate)
    output = activation(new) * tf.sigmoid(outgoing)
    return output, LSTMStateTuple(new, output)


class UGRNNCell(Cell):
    """A recurrence with one gate: ``g * state + (1 - g) * candidate`` (Collins and others, 2016)."""

    def __init__(self, num_units: int, initializer: Any = None, forget_bias: float = 1.0,
                 activation: Callable[[Any], Any] = tf.tanh, reuse: Any = None) -> None:  # fmt: skip
        super().__init__(num_units, reuse=reuse)
        self._initializer, self._forget_bias, self._activation = initializer, forget_bias, activation

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        with tf1.variable_scope(tf1.get_variable_scope(), initializer=self._initializer):
            gate, candidate = tf.split(linear([inputs, state], 2 * self.output_size), 2, axis=1)
        gate = tf.sigmoid(gate + self._forget_bias)
        new = gate * state + (1.0 - gate) * self._activation(candidate)
        return new, new


class LayerNormLSTMCell(Cell):
    """An LSTM with peepholes, clipping and a projection, whose gates and state may be normalised over the units."""

    _gates: tuple[str, ...] = ("input", "transform", "forget", "output")
    _names = ("kernel", "bias"), ("projection/kernel",)

    def __init__(self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None, initializer: Any = None,
                 num_proj: int | None = None, proj_clip: float | None = None, forget_bias: float = 1.0, activation: Any = None,
                 layer_norm: bool = False, norm_gain: float = 1.0, norm_shift: float = 0.0, reuse: Any = None) -> None:  # fmt: skip
        output = num_proj or num_units
        super().__init__(LSTMStateTuple(num_units, output), output, reuse=reuse)
        self._units, self._norm = num_units, layer_norm
        self._shift, self._gain = tf1.constant_initializer(norm_shift), tf1.constant_initializer(norm_gain)
        self._peepholes, self._initializer, self._project = use_peepholes, initializer, num_proj
        self._cell_clip, self._proj_clip = cell_clip, proj_clip
        self._forget_bias, self._activation = forget_bias, activation or tf.tanh

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        with tf1.variable_scope(tf1.get_variable_scope(), initializer=self._initializer):
            return self._step(inputs, *state)

    def _step(self, inputs: Any, memory: Any, last: Any) -> tuple[Any, Any]:
        width = len(self._gates)
        scores = linear([inputs, last], width * self._units, not self._norm, self._names[0])
        gates = dict(zip(self._gates, map(self._normal, tf.split(scores, width, 1), self._gates), strict=True))
        forget = tf.sigmoid(gates["forget"] + self._forget_bias + self._peep("w_f_diag", memory))
        kept = tf.sigmoid(gates["input"] + self._peep("w_i_diag", memory)) if "input" in gates else 1 - forget
        new = self._normal(forget * memory + kept * self._candidate(gates["transform"]), "state")
        new = _clipped(new, self._cell_clip)
        output = tf.sigmoid(gates["output"] + self._peep("w_o_diag", new)) * self._activation(new)
        if self._project:
            output = _clipped(linear(output, self._project, False, self._names[1]), self._proj_clip)
        return output, LSTMStateTuple(new, output)

    def _candidate(self, scores: Any) -> Any:
        return self._activation(scores)

    def _peep(self, name: str, memory: Any) -> Any:
        return tf1.get_variable(name, [self._units], memory.dtype) * memory if self._peepholes else 0.0

    def _normal(self, value: Any, scope: str) -> Any:
        if not self._norm:
            return value
        with tf1.variable_scope(scope):
            gamma = tf1.get_variable("gamma", value.shape[1:], value.dtype, initializer=self._gain)
            beta = tf1.get_variable("beta", value.shape[1:], value.dtype, initializer=self._shift)
        mean, variance = tf.nn.moments(value, [1], keepdims=True)
        return tf.nn.batch_normalization(value, mean, variance, beta, gamma, 1e-12)


def _clipped(value: Any, limit: float | None) -> Any:
    return value if limit is None else tf.clip_by_value(value, -limit, limit)


class LayerNormBasicLSTMCell(LayerNormLSTMCell):
    """An LSTM whose gates and state are normalised over the units, with dropout of the candidate alone."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, input_size: Any = None, activation: Any = tf.tanh,
                 layer_norm: bool = True, norm_gain: float = 1.0, norm_shift: float = 0.0, dropout_keep_prob: Any = 1.0,
                 dropout_prob_seed: int | None = None, reuse: Any = None) -> None:  # fmt: skip
        del input_size  # of no use since TensorFlow 1.0
        super().__init__(
            num_units, False, None, None, None, None, forget_bias, activation, layer_norm, norm_gain, norm_shift, reuse
        )
        self._keep, self._seed = dropout_keep_prob, dropout_prob_seed

    def _candidate(self, scores: Any) -> Any:
        candidate = self._activation(scores)
        dropped = tf.is_tensor(self._keep) or self._keep < 1
        return tf1.nn.dropout(candidate, self._keep, seed=self._seed) if dropped else candidate


class CoupledInputForgetGateLSTMCell(LayerNormLSTMCell):
    """A :class:`LayerNormLSTMCell` whose input gate is one minus its forget gate (Greff and others, 2015)."""

    _gates = ("transform", "forget", "output")
    _names = ("W", "B"), ("W_P",)

    def __init__(self, num_units: int, use_peepholes: bool = False, initializer: Any = None, num_proj: int | None = None,
                 proj_clip: float | None = None, num_unit_shards: int = 1, num_proj_shards: int = 1, forget_bias: float = 1.0,
                 state_is_tuple: bool = True, activation: Any = tf.tanh, reuse: Any = None, layer_norm: bool = False,
                 norm_gain: float = 1.0, norm_shift: float = 0.0) -> None:  # fmt: skip
        _refuse(not state_is_tuple, "state_is_tuple=False")
        _refuse(num_unit_shards != 1 or num_proj_shards != 1, "num_unit_shards and num_proj_shards other than 1")
        super().__init__(num_units, use_peepholes, None, initializer, num_proj, proj_clip, forget_bias, activation, layer_norm,
                         norm_gain, norm_shift, reuse)  # fmt: skip


def _refuse(given: bool, what: str) -> None:
    if given:
        raise ValueError(f"{what} was deprecated in TensorFlow 1 and is not there any more: leave it out")


class NASCell(Cell):
    """The LSTM that a search over architectures found (Zoph and Le, 2017)."""

    def __init__(self, num_units: int, num_proj: int | None = None, use_bias: bool = False, reuse: Any = None,
                 **named: Any) -> None:  # fmt: skip
        size = num_proj or num_units
        super().__init__(LSTMStateTuple(num_units, size), size, reuse=reuse, **named)
        self._units, self._project, self._bias = num_units, num_proj, use_bias

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        memory, last = state
        own = linear(last, 8 * self._units, self._bias, ("recurrent_kernel", "bias"))
        pairs = zip(tf.split(linear(inputs, 8 * self._units, False), 8, 1), tf.split(own, 8, 1), strict=True)
        leaves = [a * b if place == 3 else a + b for place, (a, b) in enumerate(pairs)]
        applied = (tf.sigmoid, tf.nn.relu, tf.sigmoid, tf.nn.relu, tf.tanh, tf.sigmoid, tf.tanh, tf.sigmoid)
        leaves = [function(leaf) for function, leaf in zip(applied, leaves, strict=True)]
        new = tf.tanh(tf.tanh(leaves[0] * leaves[1]) + memory) * tf.tanh(leaves[2] + leaves[3])
        output = tf.tanh(new * tf.tanh(tf.tanh(leaves[4] * leaves[5]) + tf.sigmoid(leaves[6] + leaves[7])))
        if self._project:
            output = linear(output, self._project, False, ("projection_weights",))
        return output, LSTMStateTuple(new, output)


class ConvLSTMCell(Cell):
    """An LSTM over images, whose gates are convolutions (Shi and others, 2015); ``input_shape`` has no batch."""

    def __init__(self, conv_ndims: int, input_shape: Sequence[int], output_channels: int, kernel_shape: Sequence[int],
                 use_bias: bool = True, skip_connection: bool = False, forget_bias: float = 1.0, initializers: Any = None,
                 name: str = "conv_lstm_cell") -> None:  # fmt: skip
        del initializers  # the original reads them nowhere
        if conv_ndims != len(input_shape) - 1:
            raise ValueError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        *space, columns = input_shape
        output = tf.TensorShape([*space, output_channels + (columns if skip_connection else 0)])
        super().__init__(LSTMStateTuple(tf.TensorShape([*space, output_channels]), output), output, name=name)
        self._channels, self._kernel, self._bias = output_channels, kernel_shape, use_bias
        self._skip, self._forget_bias = skip_connection, forget_bias

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        together = tf.concat([inputs, state[1]], -1)
        shape = [*self._kernel, together.shape.as_list()[-1], 4 * self._channels]
        scores = tf.nn.convolution(together, tf1.get_variable("kernel", shape, together.dtype), padding="SAME")
        if self._bias:
            scores += _filled("biases", shape[-1:], together.dtype)
        ingoing, candidate, forget, outgoing = tf.split(scores, 4, -1)
        output, new = _lstm(state[0], ingoing, candidate, forget + self._forget_bias, outgoing)
        output = tf.concat([output, inputs], -1) if self._skip else output
        return output, LSTMStateTuple(new[0], output)


class Conv1DLSTMCell(ConvLSTMCell):
    __init__ = partialmethod(ConvLSTMCell.__init__, 1, name="conv_1d_lstm_cell")


class Conv2DLSTMCell(ConvLSTMCell):
    __init__ = partialmethod(ConvLSTMCell.__init__, 2, name="conv_2d_lstm_cell")


class Conv3DLSTMCell(ConvLSTMCell):
    __init__ = partialmethod(ConvLSTMCell.__init__, 3, name="conv_3d_lstm_cell")


class SRUCell(Cell):
    """A recurrence whose matrix products do not read the state (Lei and Zhang, 2017)."""

    def __init__(self, num_units: int, activation: Any = None, reuse: Any = None, name: str | None = None,
                 **named: Any) -> None:  # fmt: skip
        super().__init__(num_units, reuse=reuse, name=name, **named)
        self._activation = activation or tf.tanh

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        candidate, forget, reset, skipped = tf.split(linear(inputs, 4 * self.output_size, bias=False), 4, 1)
        bias = tf.split(_filled("bias", [2 * self.output_size], inputs.dtype), 2)
        forget, reset = tf.sigmoid(forget + bias[0]), tf.sigmoid(reset + bias[1])
        new = forget * state + (1.0 - forget) * candidate
        return reset * self._activation(new) + (1.0 - reset) * skipped, new


class PhasedLSTMCell(Cell):
    """An LSTM whose units are updated in a part of their period of time only (Neil and others, 2016).

    Its inputs are ``(time [batch, 1], values [batch, columns])``.
    """

    def __init__(self, num_units: int, use_peepholes: bool = False, leak: float = 0.001, ratio_on: float = 0.1,
                 trainable_ratio_on: bool = True, period_init_min: float = 1.0, period_init_max: float = 1000.0,
                 reuse: Any = None) -> None:  # fmt: skip
        super().__init__(LSTMStateTuple(num_units, num_units), num_units, reuse=reuse)
        self._peepholes, self._leak, self._ratio, self._trainable = use_peepholes, leak, ratio_on, trainable_ratio_on
        self._periods = period_init_min, period_init_max

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        time, values = inputs
        memory, last = state

        def scores(scope: str, count: int, *peep: Any) -> Any:
            with tf1.variable_scope(scope):
                return linear([values, last, *(peep if self._peepholes else ())], count * self.output_size)

        ingoing, forget = tf.split(tf.sigmoid(scores("mask_gates", 2, memory)), 2, 1)
        new = forget * memory + ingoing * tf.tanh(scores("new_input", 1))
        output = tf.tanh(new) * tf.sigmoid(scores("output_gate", 1, new))
        openness = self._openness(time, values.dtype)
        new, output = (openness * to + (1.0 - openness) * old for to, old in ((new, memory), (output, last)))
        return output, LSTMStateTuple(new, output)

    def _openness(self, time: Any, dtype: Any) -> Any:
        """How far each unit is updated: from 0 to 1 and back in the first ``ratio_on`` of its period, then ``leak``."""

        def periods(shape: Any, dtype: Any = dtype, partition_info: Any = None) -> Any:
            return tf.exp(tf.random.uniform(shape, *np.log(self._periods), dtype=dtype))

        def phases(shape: Any, dtype: Any = dtype, partition_info: Any = None) -> Any:
            return tf.random.uniform(shape, dtype=dtype) * period.initial_value

        units = [self.output_size]
        period = tf1.get_variable("period", units, dtype, initializer=periods)
        phase = tf1.get_variable("phase", units, dtype, initializer=phases)
        ratio = tf1.get_variable("ratio_on", units, dtype, initializer=tf1.constant_initializer(self._ratio),
                                 trainable=self._trainable)  # fmt: skip
        place = tf.math.floormod(tf.cast(time, dtype) - phase, period) / period
        up = 2 * place / ratio
        return tf.where(up < 1, up, tf.where(up < 2, 2 - up, self._leak * place))


def _independent(inputs: Any, state: Any, count: int, scope: str = "", kernel: Any = None, bias: Any = None) -> Any:
    """``count`` scores of each unit, which reads the inputs and its own state."""
    columns, units = inputs.shape.as_list()[1], count * state.shape.as_list()[1]
    sizes = {"kernel_w": [columns, units], "kernel_u": [1, units], "bias": [units]}
    starts = kernel, tf1.random_uniform_initializer(-1, 1), bias or tf1.zeros_initializer()
    into, own, offset = (tf1.get_variable(scope + name, size, inputs.dtype, initializer=start)
                         for (name, size), start in zip(sizes.items(), starts, strict=True))  # fmt: skip
    return tf.matmul(inputs, into) + tf.tile(state, [1, count]) * own + offset


class IndRNNCell(Cell):
    """A recurrence in which each unit reads only its own state (Li and others, 2018)."""

    def __init__(self, num_units: int, activation: Any = None, reuse: Any = None, name: str | None = None,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__(num_units, reuse=reuse, name=name, dtype=dtype)
        self._activation = activation or tf.tanh

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        output = self._activation(_independent(inputs, state, 1))
        return output, output


class IndyGRUCell(Cell):
    """A GRU in which each unit reads only its own state."""

    def __init__(self, num_units: int, activation: Any = None, reuse: Any = None, kernel_initializer: Any = None,
                 bias_initializer: Any = None, name: str | None = None, dtype: Any = None) -> None:  # fmt: skip
        super().__init__(num_units, reuse=reuse, name=name, dtype=dtype)
        self._activation, self._kernel, self._bias = activation or tf.tanh, kernel_initializer, bias_initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        ones = self._bias or tf1.ones_initializer()
        reset, update = tf.split(tf.sigmoid(_independent(inputs, state, 2, "gates/", self._kernel, ones)), 2, 1)
        candidate = _independent(inputs, reset * state, 1, "candidate/", self._kernel, self._bias)
        new = update * state + (1 - update) * self._activation(candidate)
        return new, new


class IndyLSTMCell(Cell):
    """An LSTM in which each unit reads only its own state (Gonnet and Deselaers, 2019)."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, activation: Any = None, reuse: Any = None,
                 kernel_initializer: Any = None, bias_initializer: Any = None, name: str | None = None,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__(LSTMStateTuple(num_units, num_units), num_units, reuse=reuse, name=name, dtype=dtype)
        self._forget_bias, self._activation = forget_bias, activation or tf.tanh
        self._starts = kernel_initializer, bias_initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        ingoing, candidate, forget, outgoing = tf.split(_independent(inputs, state[1], 4, "", *self._starts), 4, 1)
        return _lstm(state[0], ingoing, candidate, forget + self._forget_bias, outgoing, self._activation)  # type: ignore[no-any-return]


class AttentionCellWrapper(Cell):
    """A cell that looks back at its last ``attn_length`` outputs with attention (Bahdanau and others, 2014).

    The state is that of the cell, the last attention, and the outputs in one row.
    """

    def __init__(self, cell: Any, attn_length: int, attn_size: int | None = None, attn_vec_size: int | None = None,
                 input_size: int | None = None, state_is_tuple: bool = True, reuse: Any = None) -> None:  # fmt: skip
        _refuse(not state_is_tuple, "state_is_tuple=False")
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        size = attn_size or cell.output_size
        super().__init__((cell.state_size, size, size * attn_length), size, reuse=reuse)
        self._cell, self._length, self._size, self._hidden, self._input_size = (
            cell, attn_length, size, attn_vec_size or size, input_size)  # fmt: skip

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        inner, attention, past = state
        past = tf.reshape(past, [-1, self._length, self._size])
        width = self._input_size or inputs.shape.as_list()[1]
        output, inner = self._cell(linear([inputs, attention], width), inner)
        attention = self._attend(tf.concat(tf.nest.flatten(inner), 1), past)
        with tf1.variable_scope("attn_output_projection"):
            output = linear([output, attention], self._size)
        past = tf.concat([past[:, 1:], output[:, None]], 1)
        return output, (inner, attention, tf.reshape(past, [-1, self._length * self._size]))

    def _attend(self, query: Any, past: Any) -> Any:
        with tf1.variable_scope("attention"):
            keys = tf1.get_variable("attn_w", [1, 1, self._size, self._hidden])
            score = tf1.get_variable("attn_v", [self._hidden])
            hidden = tf.tensordot(past, keys[0, 0], 1) + linear(query, self._hidden)[:, None]
            weights = tf.nn.softmax(tf.reduce_sum(score * tf.tanh(hidden), 2))
            return tf.reduce_sum(weights[:, :, None] * past, 1)


class HighwayWrapper(Cell):
    """A cell whose output is mixed with its input, by gates (Srivastava and others, 2015)."""

    def __init__(self, cell: Any, couple_carry_transform_gates: bool = True, carry_bias_init: float = 1.0) -> None:
        super().__init__(cell.state_size, cell.output_size)
        self._cell, self._coupled, self._bias = cell, couple_carry_transform_gates, carry_bias_init

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        def gate(name: str, bias: float) -> Any:
            return tf.sigmoid(linear(inputs, inputs.shape.as_list()[-1], names=(f"{name}_w", f"{name}_b"), start=bias))

        output, state = self._cell(inputs, state)
        carry = gate("carry", self._bias)
        transform = 1 - carry if self._coupled else gate("transform", -self._bias)
        return inputs * carry + output * transform, state


class InputProjectionWrapper(Cell):
    """A cell whose input is projected to ``num_proj`` columns."""

    def __init__(
        self, cell: Any, num_proj: int, activation: Any = None, input_size: Any = None, reuse: Any = None
    ) -> None:
        del input_size
        super().__init__(cell.state_size, cell.output_size, reuse=reuse)
        self._cell, self._columns, self._activation = cell, num_proj, activation or tf.identity

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        return self._cell(self._activation(linear(inputs, self._columns)), state)  # type: ignore[no-any-return]


class OutputProjectionWrapper(Cell):
    """A cell whose output is projected to ``output_size`` columns."""

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None) -> None:
        super().__init__(cell.state_size, output_size, reuse=reuse)
        self._cell, self._activation = cell, activation or tf.identity

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        output, state = self._cell(inputs, state)
        return self._activation(linear(output, self.output_size)), state


class EmbeddingWrapper(Cell):
    """A cell whose input is the number of a row in a variable ``embedding``."""

    def __init__(self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None,
                 reuse: Any = None) -> None:  # fmt: skip
        super().__init__(cell.state_size, cell.output_size, reuse=reuse)
        self._cell, self._shape, self._initializer = cell, [embedding_classes, embedding_size], initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        initializer = self._initializer or tf1.get_variable_scope().initializer
        initializer = initializer or tf1.random_uniform_initializer(-(3**0.5), 3**0.5)
        table = tf1.get_variable("embedding", self._shape, initializer=initializer)
        return self._cell(tf1.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)  # type: ignore[no-any-return]


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any], cells_bw: Sequence[Any], inputs: Any, initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None, dtype: Any = None, sequence_length: Any = None,
    parallel_iterations: int | None = None, time_major: bool = False, scope: Any = None, swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Stacked bidirectional layers: each reads both directions of the layer below. Returns the outputs and both states."""
    del parallel_iterations, swap_memory
    options = {"dtype": dtype, "sequence_length": sequence_length, "time_major": time_major}

    def layer(*words: Any, **named: Any) -> Any:
        outputs, states = tf1.nn.bidirectional_dynamic_rnn(*words, **named, **options)
        return tf.concat(outputs, 2), *states

    return _stacked(layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope)


def stack_bidirectional_rnn(
    cells_fw: Sequence[Any], cells_bw: Sequence[Any], inputs: Any, initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """As :func:`stack_bidirectional_dynamic_rnn`, of a list of inputs and without a loop."""

    def layer(*words: Any, **named: Any) -> Any:
        return tf1.nn.static_bidirectional_rnn(*words, **named, dtype=dtype, sequence_length=sequence_length)

    return _stacked(layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope)


def _stacked(layer: Callable[..., Any], cells_fw: Sequence[Any], cells_bw: Sequence[Any], inputs: Any, starts_fw: Any,
             starts_bw: Any, scope: Any) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    if len(cells_fw) != len(cells_bw):
        raise ValueError("Forward and Backward cells must have the same depth.")
    states_fw, states_bw = [], []
    none = [None] * len(cells_fw)
    with tf1.variable_scope(scope or "stack_bidirectional_rnn"):
        for depth, (forward, backward, start_fw, start_bw) in enumerate(
            zip(cells_fw, cells_bw, starts_fw or none, starts_bw or none, strict=True)
        ):
            with tf1.variable_scope(f"cell_{depth}"):
                inputs, last_fw, last_bw = layer(
                    forward, backward, inputs, initial_state_fw=start_fw, initial_state_bw=start_bw
                )
            states_fw.append(last_fw)
            states_bw.append(last_bw)
    return inputs, tuple(states_fw), tuple(states_bw)


# --------------------------------------------------------------------------- ops that compute a step, or all of them

# TensorFlow still has the ops, and the gradient of BlockLSTM; the gradients of the others were part of tf.contrib.


@ops.RegisterGradient("LSTMBlockCell")  # type: ignore[untyped-decorator]
def _lstm_block_cell_grad(op: Any, *grads: Any) -> tuple[Any, ...]:
    x, _, h_prev, w = op.inputs[:4]
    states, gates, *peepholes = gen_rnn_ops.lstm_block_cell_grad(
        *op.inputs, *op.outputs[:-1], grads[1], grads[6], use_peephole=op.get_attr("use_peephole")
    )
    into_x, into_h = tf.split(tf.matmul(gates, w, transpose_b=True), [int(x.shape[1]), int(h_prev.shape[1])], 1)
    kernel = tf.matmul(tf.concat([x, h_prev], 1), gates, transpose_a=True)
    return into_x, states, into_h, kernel, *peepholes, tf.reduce_sum(gates, 0)


@ops.RegisterGradient("GRUBlockCell")  # type: ignore[untyped-decorator]
def _gru_block_cell_grad(op: Any, *grads: Any) -> tuple[Any, ...]:
    x, h_prev = op.inputs[:2]
    reset = op.outputs[0]
    into_x, into_h, candidate, gates = gen_rnn_ops.gru_block_cell_grad(*op.inputs, *op.outputs[:3], grads[3])
    into_gates = tf.matmul(tf.concat([x, h_prev], 1), gates, transpose_a=True)
    into_candidate = tf.matmul(tf.concat([x, h_prev * reset], 1), candidate, transpose_a=True)
    return into_x, into_h, into_gates, into_candidate, tf.reduce_sum(gates, 0), tf.reduce_sum(candidate, 0)


def _lstm_variables(columns: int, units: int, peephole: bool, dtype: Any) -> list[Any]:
    """The kernel, the three peepholes (zeros where there are none) and the bias."""
    kernel = tf1.get_variable("kernel", [columns + units, 4 * units], dtype)
    names = ("w_i_diag", "w_f_diag", "w_o_diag")
    none = tf.zeros([units], dtype)
    peepholes = [tf1.get_variable(name, [units], dtype) if peephole else none for name in names]
    return [kernel, *peepholes, _filled("bias", [4 * units], dtype)]


class LSTMBlockCell(Cell):
    """An LSTM whose step is one op; its weights are those of ``BasicLSTMCell``."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                 use_peephole: bool = False, dtype: Any = None, reuse: Any = None, name: str = "lstm_cell") -> None:  # fmt: skip
        super().__init__(LSTMStateTuple(num_units, num_units), num_units, reuse=reuse, name=name, dtype=dtype)
        self._options: dict[str, Any] = {"forget_bias": forget_bias, "use_peephole": use_peephole,
                         "cell_clip": -1 if cell_clip is None else cell_clip}  # fmt: skip

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        kernel, *rest = _lstm_variables(inputs.shape.as_list()[1], self.output_size, self._options["use_peephole"],
                                        inputs.dtype)  # fmt: skip
        _, new, _, _, _, _, output = gen_rnn_ops.lstm_block_cell(inputs, *state, kernel, *rest, **self._options)
        return output, LSTMStateTuple(new, output)


class GRUBlockCellV2(Cell):
    """A GRU whose step is one op, with the variables of ``GRUCell``."""

    _names = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")

    def __init__(self, num_units: Any = None, cell_size: Any = None, reuse: Any = None, name: str = "gru_cell",
                 dtype: Any = None) -> None:  # fmt: skip
        if (num_units is None) == (cell_size is None):
            raise ValueError("Exactly one of num_units or cell_size must be provided.")
        super().__init__(num_units or cell_size, reuse=reuse, name=name, dtype=dtype)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        units, rows = self.output_size, inputs.shape.as_list()[1] + self.output_size
        names, dtype = self._names, inputs.dtype
        gates = tf1.get_variable(names[0], [rows, 2 * units], dtype)
        gates_bias = _filled(names[1], [2 * units], dtype, 1.0)
        candidate = tf1.get_variable(names[2], [rows, units], dtype)
        candidate_bias = _filled(names[3], [units], dtype)
        found = gen_rnn_ops.gru_block_cell(inputs, state, gates, candidate, gates_bias, candidate_bias)
        return found.h, found.h


class GRUBlockCell(GRUBlockCellV2):
    """The same with names of its own for the variables."""

    _names = ("w_ru", "b_ru", "w_c", "b_c")


class FusedRNNCell:
    """Something that runs over all steps of ``[time, batch, columns]``, or of a list of them, at once."""

    def __call__(self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None,
                 scope: Any = None) -> tuple[Any, Any]:  # fmt: skip
        """The outputs of all steps, and the last state."""
        listed = isinstance(inputs, list)
        options = {"initial_state": initial_state, "dtype": dtype, "sequence_length": sequence_length, "scope": scope}
        outputs, state = self._run(tf.stack(inputs) if listed else inputs, **options)
        return tf.unstack(outputs) if listed else outputs, state

    def _run(self, *inputs: Any, **options: Any) -> tuple[Any, Any]:
        raise NotImplementedError("Abstract method")


class FusedRNNCellAdaptor(FusedRNNCell):
    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._dynamic = cell, use_dynamic_rnn

    def _run(self, inputs: Any, **options: Any) -> tuple[Any, Any]:
        if self._dynamic:
            return tf1.nn.dynamic_rnn(self._cell, inputs, time_major=True, **options)  # type: ignore[no-any-return]
        outputs, state = tf1.nn.static_rnn(self._cell, tf.unstack(inputs), **options)
        return tf.stack(outputs), state


class TimeReversedFusedRNN(FusedRNNCell):
    """A fused cell that runs backwards in time, each row from its own last step on."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    def _run(self, inputs: Any, **options: Any) -> tuple[Any, Any]:
        lengths = options["sequence_length"]

        def reverse(steps: Any) -> Any:
            if lengths is None:
                return tf.reverse(steps, [0])
            return tf.reverse_sequence(steps, lengths, seq_axis=0, batch_axis=1)

        outputs, state = self._cell(reverse(inputs), **options)
        return reverse(outputs), state


class LSTMBlockFusedCell(FusedRNNCell):
    """An LSTM whose steps are all one op; its weights are those of ``BasicLSTMCell``."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
                 use_peephole: bool = False, reuse: Any = None, dtype: Any = None,
                 name: str = "lstm_fused_cell") -> None:  # fmt: skip
        self.num_units = num_units
        self._options: dict[str, Any] = {"forget_bias": forget_bias, "use_peephole": use_peephole,
                         "cell_clip": -1 if cell_clip is None else cell_clip}  # fmt: skip
        self._name, self._reuse, self._dtype, self._scope = name, reuse, dtype, None

    def _run(self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None,
             scope: Any = None) -> tuple[Any, Any]:  # fmt: skip
        dtype = dtype or self._dtype or inputs.dtype
        steps, rows = tf.shape(inputs)[0], tf.shape(inputs)[1]
        if initial_state is None:
            initial_state = (tf.zeros([rows, self.num_units], dtype),) * 2
        again = {"reuse": self._reuse} if self._scope is None else {"reuse": True, "auxiliary_name_scope": False}
        with tf1.variable_scope(scope or self._scope, self._name, **again) as self._scope:
            kernel, *rest = _lstm_variables(
                inputs.shape.as_list()[2], self.num_units, self._options["use_peephole"], dtype
            )
            _, states, _, _, _, _, outputs = gen_rnn_ops.block_lstm(
                tf.cast(steps, tf.int64), inputs, *initial_state, kernel, *rest, **self._options
            )
        if sequence_length is None:
            last = states[-1], outputs[-1]
        else:
            mask = tf.transpose(tf.sequence_mask(sequence_length, steps, dtype))[:, :, None]
            at = tf.transpose(tf.one_hot(sequence_length, steps + 1, dtype=dtype))[:, :, None]
            last = tuple(
                tf.reduce_sum(tf.concat([start[None], all_steps], 0) * at, 0)
                for start, all_steps in zip(initial_state, (states, outputs), strict=True)
            )
            outputs *= mask
        return outputs, LSTMStateTuple(*last)
