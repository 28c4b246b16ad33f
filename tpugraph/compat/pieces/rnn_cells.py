"""The cells of ``tf.contrib.rnn`` that ``tf.nn.rnn_cell`` does not have; variables have TensorFlow 1.15's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tf_keras.api._v1.keras.__internal__.legacy.rnn_cell import LSTMStateTuple, RNNCell

tf1 = tf.compat.v1


def linear(values: Any, size: int, bias: bool = True, start: Any = None) -> Any:
    """``values`` side by side, times a variable ``kernel``, plus a variable ``bias`` that starts as zeros or as ``start``."""
    together = tf.concat(values, 1) if isinstance(values, list | tuple) else values
    kernel = tf1.get_variable("kernel", [together.shape.as_list()[1], size], together.dtype)
    product = tf.matmul(together, kernel)
    if not bias:
        return product
    start = start or tf1.zeros_initializer()
    return tf.nn.bias_add(product, tf1.get_variable("bias", [size], together.dtype, initializer=start))


class Cell(RNNCell):  # type: ignore[misc]
    """A cell whose state, or whose output, has so many columns."""

    def __init__(
        self, size: Any, output: Any = None, reuse: Any = None, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(_reuse=reuse, name=name, dtype=dtype)
        self._sizes = size, size if output is None else output

    @property
    def state_size(self) -> Any:
        """The columns of the state."""
        return self._sizes[0]

    @property
    def output_size(self) -> Any:
        """The columns of an output."""
        return self._sizes[1]


class UGRNNCell(Cell):
    """A recurrence with one gate: ``g * state + (1 - g) * candidate`` (Collins and others, 2016)."""

    def __init__(self, num_units: int, initializer: Any = None, forget_bias: float = 1.0,
                 activation: Callable[[Any], Any] = tf.tanh, reuse: Any = None) -> None:  # fmt: skip
        super().__init__(num_units, reuse=reuse)
        self._initializer, self._forget_bias, self._activation = initializer, forget_bias, activation

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The output, and the same as the new state."""
        with tf1.variable_scope(tf1.get_variable_scope(), initializer=self._initializer):
            gate, candidate = tf.split(linear([inputs, state], 2 * self.output_size), 2, axis=1)
        gate = tf.sigmoid(gate + self._forget_bias)
        new = gate * state + (1.0 - gate) * self._activation(candidate)
        return new, new


class LayerNormBasicLSTMCell(Cell):
    """An LSTM whose gates and state are normalised over the units, with dropout of the candidate alone."""

    def __init__(self, num_units: int, forget_bias: float = 1.0, input_size: Any = None,
                 activation: Callable[[Any], Any] = tf.tanh, layer_norm: bool = True, norm_gain: float = 1.0,
                 norm_shift: float = 0.0, dropout_keep_prob: Any = 1.0, dropout_prob_seed: int | None = None,
                 reuse: Any = None) -> None:  # fmt: skip
        del input_size  # of no use since TensorFlow 1.0
        super().__init__(LSTMStateTuple(num_units, num_units), num_units, reuse=reuse)
        self._forget_bias, self._activation, self._norm = forget_bias, activation, layer_norm
        self._start = tf1.constant_initializer(norm_shift), tf1.constant_initializer(norm_gain)
        self._keep, self._seed = dropout_keep_prob, dropout_prob_seed

    def _normal(self, value: Any, scope: str) -> Any:
        if not self._norm:
            return value
        shift, gain = self._start
        with tf1.variable_scope(scope):
            gamma = tf1.get_variable("gamma", value.shape[1:], value.dtype, initializer=gain)
            beta = tf1.get_variable("beta", value.shape[1:], value.dtype, initializer=shift)
        mean, variance = tf.nn.moments(value, [1], keepdims=True)
        return tf.nn.batch_normalization(value, mean, variance, beta, gamma, 1e-12)

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The output, and the new state."""
        gates = tf.split(linear([inputs, state[1]], 4 * self.output_size, bias=not self._norm), 4, axis=1)
        names = ("input", "transform", "forget", "output")
        ingoing, candidate, forget, outgoing = map(self._normal, gates, names)
        candidate = self._activation(candidate)
        if tf.is_tensor(self._keep) or self._keep < 1:
            candidate = tf1.nn.dropout(candidate, self._keep, seed=self._seed)
        new = state[0] * tf.sigmoid(forget + self._forget_bias) + tf.sigmoid(ingoing) * candidate
        new = self._normal(new, "state")
        output = self._activation(new) * tf.sigmoid(outgoing)
        return output, LSTMStateTuple(new, output)


class AttentionCellWrapper(Cell):
    """A cell that looks back at its last ``attn_length`` outputs with attention (Bahdanau and others, 2014).

    The state is that of the cell, the last attention, and the outputs in one row. Concatenated states
    (``state_is_tuple=False``) were slow and deprecated already, and are refused.
    """

    def __init__(self, cell: Any, attn_length: int, attn_size: int | None = None, attn_vec_size: int | None = None,
                 input_size: int | None = None, state_is_tuple: bool = True, reuse: Any = None) -> None:  # fmt: skip
        if not state_is_tuple:
            raise ValueError("state_is_tuple=False is not there any more: the state is a tuple")
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        size = attn_size or cell.output_size
        super().__init__((cell.state_size, size, size * attn_length), size, reuse=reuse)
        self._cell, self._length, self._size, self._hidden, self._input_size = (
            cell, attn_length, size, attn_vec_size or size, input_size)  # fmt: skip

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The output, projected from the cell's and the attention; and the new state."""
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
        """The mixed output, and the cell's new state."""

        def gate(name: str, bias: float) -> Any:
            size = inputs.shape.as_list()[-1]
            weight = tf1.get_variable(f"{name}_w", [size, size])
            return tf.sigmoid(tf1.nn.xw_plus_b(
                inputs, weight, tf1.get_variable(f"{name}_b", [size], initializer=tf1.constant_initializer(bias))))  # fmt: skip

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
        """What the cell makes of the projected input."""
        return self._cell(self._activation(linear(inputs, self._columns)), state)  # type: ignore[no-any-return]


class OutputProjectionWrapper(Cell):
    """A cell whose output is projected to ``output_size`` columns."""

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None) -> None:
        super().__init__(cell.state_size, output_size, reuse=reuse)
        self._cell, self._activation = cell, activation or tf.identity

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """The projected output, and the cell's new state."""
        output, state = self._cell(inputs, state)
        return self._activation(linear(output, self.output_size)), state


class EmbeddingWrapper(Cell):
    """A cell whose input is the number of a row in a variable ``embedding``."""

    def __init__(self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None,
                 reuse: Any = None) -> None:  # fmt: skip
        super().__init__(cell.state_size, cell.output_size, reuse=reuse)
        self._cell, self._shape, self._initializer = cell, [embedding_classes, embedding_size], initializer

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """What the cell makes of the rows."""
        initializer = self._initializer or tf1.get_variable_scope().initializer
        initializer = initializer or tf1.random_uniform_initializer(-(3**0.5), 3**0.5)
        table = tf1.get_variable("embedding", self._shape, initializer=initializer)
        return self._cell(tf1.nn.embedding_lookup(table, tf.reshape(inputs, [-1])), state)  # type: ignore[no-any-return]


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any], cells_bw: Sequence[Any], inputs: Any, initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None, dtype: Any = None, sequence_length: Any = None,
    parallel_iterations: int | None = None, time_major: bool = False, scope: Any = None, swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
    """Layers of both directions, each of which reads both directions of the one below; outputs and the states of both."""
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
