"""The attention of ``tf.contrib.seq2seq``: mechanisms that score a memory, and the cell that reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_keras.api._v1.keras.__internal__.legacy.layers import Dense
from tf_keras.api._v1.keras.__internal__.legacy.rnn_cell import RNNCell

tf1 = tf.compat.v1


def hardmax(logits: Any, name: str | None = None) -> Any:
    """The largest element of the last dimension, one-hot."""
    return tf.one_hot(tf.argmax(logits, -1), logits.shape[-1] or tf.shape(logits)[-1], dtype=logits.dtype)


def safe_cumprod(x: Any, *words: Any, **named: Any) -> Any:
    """A cumulative product by logarithms, whose gradient is finite where a factor is zero."""
    positive = tf.clip_by_value(x, np.finfo(x.dtype.as_numpy_dtype).tiny, 1)
    return tf.exp(tf.cumsum(tf.math.log(positive), *words, **named))


def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> Any:
    """The probability that attention moves on to each position of the memory and stops there (Raffel and others, 2017).

    Args:
        p_choose_i: the probability to stop at each position, ``[batch, positions]``.
        previous_attention: that of the step before, of the same shape.
        mode: ``recursive`` and ``parallel`` compute the expectation, the second one with cumulative products;
            ``hard`` takes probabilities of zero or one.
    """
    if mode == "hard":
        still = p_choose_i * tf.cumsum(previous_attention, 1)
        return still * tf.math.cumprod(1 - still, 1, exclusive=True)
    if mode == "parallel":
        passed = safe_cumprod(1 - p_choose_i, axis=1, exclusive=True)
        return p_choose_i * passed * tf.cumsum(previous_attention / tf.clip_by_value(passed, 1e-10, 1.0), 1)
    if mode != "recursive":
        raise ValueError("mode must be 'recursive', 'parallel', or 'hard'.")
    shifted = tf.concat([tf.ones_like(p_choose_i[:, :1]), 1 - p_choose_i[:, :-1]], 1)
    reached = tf.scan(lambda before, one: one[0] * before + one[1],
                      (tf.transpose(shifted), tf.transpose(previous_attention)),
                      initializer=tf.zeros_like(p_choose_i[:, 0]))  # fmt: skip
    return p_choose_i * tf.transpose(reached)


class AttentionMechanism:
    """Scores the positions of a memory for a query."""

    alignments_size: Any
    state_size: Any


class _BaseAttentionMechanism(AttentionMechanism):
    """Holds a memory ``[batch, positions, columns]`` and its keys; the memory is zero behind each row's length."""

    def __init__(self, query_layer: Any, memory: Any, probability_fn: Callable[[Any, Any], Any],
                 memory_sequence_length: Any = None, memory_layer: Any = None, check_inner_dims_defined: bool = True,
                 score_mask_value: Any = None, custom_key_value_fn: Any = None, name: str | None = None) -> None:  # fmt: skip
        memory = tf.convert_to_tensor(memory)
        self.query_layer, self.memory_layer, self._probability = query_layer, memory_layer, probability_fn
        self._mask = None
        if memory_sequence_length is not None:
            self._mask = tf.sequence_mask(memory_sequence_length, tf.shape(memory)[1])
            memory *= tf.cast(self._mask, memory.dtype)[:, :, None]
        self._masked_score = -np.inf if score_mask_value is None else score_mask_value
        self.values = memory
        self.keys = memory if memory_layer is None else memory_layer(memory)
        if custom_key_value_fn is not None:
            self.keys, self.values = custom_key_value_fn(self.keys, self.values)

    def probability_fn(self, score: Any, state: Any) -> Any:
        """The weights of scores, those behind a row's length masked."""
        if self._mask is not None:
            score = tf.where(self._mask, score, tf.cast(self._masked_score, score.dtype))
        return self._probability(score, state)

    @property
    def batch_size(self) -> Any:
        return self.keys.shape.as_list()[0] or tf.shape(self.keys)[0]

    @property
    def alignments_size(self) -> Any:
        return self.keys.shape.as_list()[1] or tf.shape(self.keys)[1]

    state_size = alignments_size

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        return tf.zeros([batch_size, self.alignments_size], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        return self.initial_alignments(batch_size, dtype)


def _softmax(probability_fn: Any) -> Callable[[Any, Any], Any]:
    make = tf.nn.softmax if probability_fn is None else probability_fn
    return lambda score, _: make(score)


def _luong_score(query: Any, keys: Any, scale: Any) -> Any:
    """The products of a query and the keys."""
    if query.shape.as_list()[-1] != keys.shape.as_list()[-1]:
        raise ValueError(f"Incompatible or unknown inner dimensions between query and keys: {query.shape}, {keys.shape}. "
                         "Perhaps you need to set num_units to the keys' dimension.")  # fmt: skip
    score = tf.squeeze(tf.matmul(query[:, None], keys, transpose_b=True), 1)
    if scale is True:
        scale = tf1.get_variable("attention_g", [], query.dtype, initializer=tf1.ones_initializer())
    return score if scale is None or scale is False else scale * score


def _bahdanau_score(processed_query: Any, keys: Any, normalize: Any) -> Any:
    """The score by a layer of one unit over query and keys; ``normalize`` gives it a unit weight vector and a gain."""
    units, dtype = keys.shape.as_list()[2], processed_query.dtype
    weights = tf1.get_variable("attention_v", [units], dtype)
    total = keys + processed_query[:, None]
    if normalize:
        gain = tf1.get_variable("attention_g", [], dtype, initializer=tf1.constant_initializer(units**-0.5))
        total += tf1.get_variable("attention_b", [units], dtype, initializer=tf1.zeros_initializer())
        weights = gain * weights * tf.math.rsqrt(tf.reduce_sum(tf.square(weights)))
    return tf.reduce_sum(weights * tf.tanh(total), 2)


class LuongAttention(_BaseAttentionMechanism):
    """Attention by products (Luong and others, 2015); ``scale`` multiplies them by a variable."""

    def __init__(self, num_units: int, memory: Any, memory_sequence_length: Any = None, scale: bool = False,
                 probability_fn: Any = None, score_mask_value: Any = None, dtype: Any = None, custom_key_value_fn: Any = None,
                 name: str = "LuongAttention") -> None:  # fmt: skip
        layer = Dense(num_units, name="memory_layer", use_bias=False, dtype=dtype or tf.float32)
        super().__init__(None, memory, _softmax(probability_fn), memory_sequence_length, layer,
                         score_mask_value=score_mask_value, custom_key_value_fn=custom_key_value_fn)  # fmt: skip
        self._scale = scale

    _scope = "luong_attention"

    def _score(self, query: Any) -> Any:
        return _luong_score(query, self.keys, self._scale)

    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        with tf1.variable_scope(None, self._scope, [query]):
            weights = self.probability_fn(self._score(query), state)
        return weights, weights


class BahdanauAttention(LuongAttention):
    """Attention by a layer of ``num_units`` over query and memory (Bahdanau and others, 2014)."""

    def __init__(self, num_units: int, memory: Any, memory_sequence_length: Any = None, normalize: bool = False,
                 probability_fn: Any = None, score_mask_value: Any = None, dtype: Any = None, custom_key_value_fn: Any = None,
                 name: str = "BahdanauAttention") -> None:  # fmt: skip
        super().__init__(num_units, memory, memory_sequence_length, False, probability_fn, score_mask_value, dtype,
                         custom_key_value_fn)  # fmt: skip
        self.query_layer = Dense(num_units, name="query_layer", use_bias=False, dtype=dtype or tf.float32)
        self._num_units, self._normalize = num_units, normalize

    _scope = "bahdanau_attention"

    def _score(self, query: Any) -> Any:
        return _bahdanau_score(self.query_layer(query), self.keys, self._normalize)


class _Monotonic:
    """Weights that move in one direction over the memory; noise on the scores drives them to zero or one."""

    def _make_monotonic(self, noise: float, seed: int | None, bias: float, mode: str) -> None:
        def weights(score: Any, before: Any) -> Any:
            start = tf1.constant_initializer(bias)
            score += tf1.get_variable("attention_score_bias", [], score.dtype, initializer=start)
            if noise > 0:
                score += noise * tf.random.normal(tf.shape(score), dtype=score.dtype, seed=seed)
            stop = tf.cast(score > 0, score.dtype) if mode == "hard" else tf.sigmoid(score)
            return monotonic_attention(stop, before, mode)

        self._probability = weights

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """All weight is on the first position."""
        return tf.one_hot(tf.zeros([batch_size], tf.int32), self.alignments_size, dtype=dtype)  # type: ignore[attr-defined]


class LuongMonotonicAttention(_Monotonic, LuongAttention):
    """:func:`monotonic_attention` with scores by products."""

    _scope = "luong_monotonic_attention"

    def __init__(self, num_units: int, memory: Any, memory_sequence_length: Any = None, scale: bool = False,
                 score_mask_value: Any = None, sigmoid_noise: float = 0.0, sigmoid_noise_seed: int | None = None,
                 score_bias_init: float = 0.0, mode: str = "parallel", dtype: Any = None,
                 name: str = "LuongMonotonicAttention") -> None:  # fmt: skip
        LuongAttention.__init__(self, num_units, memory, memory_sequence_length, scale, None, score_mask_value, dtype)
        self._make_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)


class BahdanauMonotonicAttention(_Monotonic, BahdanauAttention):
    """:func:`monotonic_attention` with scores by a layer."""

    _scope = "bahdanau_monotonic_attention"

    def __init__(self, num_units: int, memory: Any, memory_sequence_length: Any = None, normalize: bool = False,
                 score_mask_value: Any = None, sigmoid_noise: float = 0.0, sigmoid_noise_seed: int | None = None,
                 score_bias_init: float = 0.0, mode: str = "parallel", dtype: Any = None,
                 name: str = "BahdanauMonotonicAttention") -> None:  # fmt: skip
        BahdanauAttention.__init__(
            self, num_units, memory, memory_sequence_length, normalize, None, score_mask_value, dtype
        )
        self._make_monotonic(sigmoid_noise, sigmoid_noise_seed, score_bias_init, mode)


# --------------------------------------------------------------------------- the cell


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
        self._attention_size = 0
        for mechanism, layer in zip(self._mechanisms, self._layers, strict=True):
            columns = mechanism.values.shape.as_list()[-1]
            if layer is not None:
                columns = layer.compute_output_shape([None, cell.output_size + columns]).as_list()[-1]
            self._attention_size += columns
        self._cell = cell
        self._history = alignment_history
        self._output_attention = output_attention
        self._initial = initial_cell_state
        self._attend = attention_fn or _compute_attention
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
            tf.nest.map_structure(tf.identity, cell_state), tf.zeros([batch_size, self._attention_size], dtype),
            tf.zeros([], tf.int32), self._item_or_tuple(weights), self._item_or_tuple(history),
            self._item_or_tuple(mechanism.initial_state(batch_size, dtype) for mechanism in self._mechanisms))  # fmt: skip

    def call(self, inputs: Any, state: AttentionWrapperState) -> tuple[Any, AttentionWrapperState]:
        output, cell_state = self._cell(self._join(inputs, state.attention), state.cell_state)
        states = state.attention_state if self._is_multi else (state.attention_state,)
        histories = state.alignment_history if self._is_multi else (state.alignment_history,)
        attended = [self._attend(mechanism, output, before, layer)
                    for mechanism, before, layer in zip(self._mechanisms, states, self._layers, strict=True)]  # fmt: skip
        contexts, weights, next_states = zip(*attended, strict=True)
        attention = tf.concat(contexts, 1)
        if self._history:
            histories = [past.write(state.time, one) for past, one in zip(histories, weights, strict=True)]
        new = AttentionWrapperState(
            cell_state, attention, state.time + 1, self._item_or_tuple(weights), self._item_or_tuple(histories),
            self._item_or_tuple(next_states))  # fmt: skip
        return attention if self._output_attention else output, new
