"""``tf.contrib.seq2seq.AttentionWrapper``: a cell that reads a memory with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tf_keras.api._v1.keras.__internal__.legacy.layers import Dense
from tf_keras.api._v1.keras.__internal__.legacy.rnn_cell import RNNCell

tf1 = tf.compat.v1
nest = tf.nest


class AttentionWrapperState(NamedTuple):
    """The state of an :class:`AttentionWrapper`; of several mechanisms the last three are tuples."""

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """The same with other values, whose shapes must fit."""
        return self._replace(**kwargs)


def _compute_attention(
    mechanism: Any, cell_output: Any, attention_state: Any, attention_layer: Any
) -> tuple[Any, Any, Any]:
    """The attention, its weights, and the mechanism's next state."""
    weights, state = mechanism(cell_output, state=attention_state)
    context = tf.squeeze(tf.matmul(weights[:, None], mechanism.values), 1)
    if attention_layer is not None:
        context = attention_layer(tf.concat([cell_output, context], 1))
    return context, weights, state


class AttentionWrapper(RNNCell):  # type: ignore[misc]
    """A cell whose input is joined by the attention of the step before, and whose output is, or is not, the attention.

    Args:
        attention_mechanism: one, or a list of them.
        attention_layer_size: the columns of the layer of each mechanism that joins output and context; None: the context.
        cell_input_fn: joins inputs and attention; they are concatenated when None.
        attention_layer: a layer for each mechanism, instead of a size.
        attention_fn: in the place of the attention of a mechanism.
    """

    def __init__(self, cell: Any, attention_mechanism: Any, attention_layer_size: Any = None, alignment_history: bool = False,
                 cell_input_fn: Callable[[Any, Any], Any] | None = None, output_attention: bool = True,
                 initial_cell_state: Any = None, name: str | None = None, attention_layer: Any = None,
                 attention_fn: Any = None, dtype: Any = None) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype)
        self._is_multi = isinstance(attention_mechanism, list | tuple)
        self._mechanisms = tuple(attention_mechanism) if self._is_multi else (attention_mechanism,)
        if attention_layer_size is not None and attention_layer is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        if attention_layer_size is not None:
            sizes = attention_layer_size if self._is_multi else (attention_layer_size,)
            attention_layer = [Dense(size, name="attention_layer", use_bias=False, dtype=dtype) for size in sizes]
        elif attention_layer is not None:
            attention_layer = attention_layer if self._is_multi else [attention_layer]
        self._layers = list(attention_layer or [None] * len(self._mechanisms))
        if len(self._layers) != len(self._mechanisms):
            raise ValueError(f"{len(self._layers)} attention layers for {len(self._mechanisms)} attention mechanisms")
        widths = [mechanism.values.shape.as_list()[-1] if layer is None else layer.compute_output_shape(
                      [None, cell.output_size + mechanism.values.shape.as_list()[-1]]).as_list()[-1]
                  for mechanism, layer in zip(self._mechanisms, self._layers, strict=True)]  # fmt: skip
        self._cell, self._attention_size, self._history, self._output_attention, self._initial, self._attend = (
            cell, sum(widths), alignment_history, output_attention, initial_cell_state,
            attention_fn or _compute_attention)  # fmt: skip
        self._join = cell_input_fn or (lambda inputs, attention: tf.concat([inputs, attention], -1))

    def _item_or_tuple(self, values: Any) -> Any:
        values = tuple(values)
        return values if self._is_multi else values[0]

    @property
    def output_size(self) -> Any:
        return self._attention_size if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        places = self._item_or_tuple(mechanism.alignments_size for mechanism in self._mechanisms)
        return AttentionWrapperState(
            self._cell.state_size, self._attention_size, tf.TensorShape([]), places,
            places if self._history else self._item_or_tuple(() for _ in self._mechanisms),
            self._item_or_tuple(mechanism.state_size for mechanism in self._mechanisms))  # fmt: skip

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """The first state."""
        cell_state = self._cell.zero_state(batch_size, dtype) if self._initial is None else self._initial
        weights = [mechanism.initial_alignments(batch_size, dtype) for mechanism in self._mechanisms]
        history = [tf1.TensorArray(dtype, 0, dynamic_size=True, element_shape=one.shape) if self._history else ()
                   for one in weights]  # fmt: skip
        return AttentionWrapperState(
            nest.map_structure(tf.identity, cell_state), tf.zeros([batch_size, self._attention_size], dtype), tf.zeros([], tf.int32),
            self._item_or_tuple(weights), self._item_or_tuple(history),
            self._item_or_tuple(mechanism.initial_state(batch_size, dtype) for mechanism in self._mechanisms))  # fmt: skip

    def call(self, inputs: Any, state: AttentionWrapperState) -> tuple[Any, AttentionWrapperState]:
        output, cell_state = self._cell(self._join(inputs, state.attention), state.cell_state)
        states = state.attention_state if self._is_multi else (state.attention_state,)
        histories = state.alignment_history if self._is_multi else (state.alignment_history,)
        attended = [self._attend(mechanism, output, before, layer)
                    for mechanism, before, layer in zip(self._mechanisms, states, self._layers, strict=True)]  # fmt: skip
        attention = tf.concat([one[0] for one in attended], 1)
        pairs = zip(histories, attended, strict=True)
        history = [past.write(state.time, one[1]) if self._history else () for past, one in pairs]
        new = AttentionWrapperState(
            cell_state, attention, state.time + 1, self._item_or_tuple(one[1] for one in attended),
            self._item_or_tuple(history), self._item_or_tuple(one[2] for one in attended))  # fmt: skip
        return attention if self._output_attention else output, new
