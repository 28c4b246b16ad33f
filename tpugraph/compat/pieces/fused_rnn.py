"""The cells of ``tf.contrib.rnn`` on ops that compute a whole step, or all steps, and what runs cells over time at once.

TensorFlow still has the ops, and the gradient of BlockLSTM; the gradients of the others were part of ``tf.contrib``.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_rnn_ops
from tf_keras.api._v1.keras.__internal__.legacy.rnn_cell import LSTMStateTuple

from tpugraph.compat.pieces.rnn_cells import Cell

tf1 = tf.compat.v1


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
    return [kernel, *peepholes, tf1.get_variable("bias", [4 * units], dtype, initializer=tf1.zeros_initializer())]


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
        ones, zeros = tf1.ones_initializer(), tf1.zeros_initializer()
        shapes = ([rows, 2 * units], None), ([2 * units], ones), ([rows, units], None), ([units], zeros)
        gates, gates_bias, candidate, candidate_bias = (
            tf1.get_variable(name, shape, inputs.dtype, initializer=start)
            for name, (shape, start) in zip(self._names, shapes, strict=True)
        )
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
            return (
                tf.reverse(steps, [0])
                if lengths is None
                else tf.reverse_sequence(steps, lengths, seq_axis=0, batch_axis=1)
            )

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
