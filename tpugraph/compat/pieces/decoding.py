"""``tf.contrib.seq2seq``: decoders that run step by step, and what runs them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import tensorflow as tf

tf1 = tf.compat.v1
nest = tf.nest


class BasicDecoderOutput(NamedTuple):
    """What a step of a :class:`BasicDecoder` gives."""

    rnn_output: Any
    sample_id: Any


class Decoder:
    """What :func:`dynamic_decode` runs; a class that derives from it says what a step is."""

    batch_size: Any
    output_size: Any
    output_dtype: Any

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        """Which rows have finished before the first step, its inputs, and its state."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        """The outputs of a step, the state and inputs of the next one, and which rows have finished."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        """What is made of the outputs of all steps."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether rows may be finished in one step and not in the next, as beams that are sorted anew."""
        return False


def dynamic_decode(
    decoder: Any, output_time_major: bool = False, impute_finished: bool = False, maximum_iterations: Any = None,
    parallel_iterations: int = 32, swap_memory: bool = False, scope: Any = None, **kwargs: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Run a decoder until every row has finished; the outputs of all steps, the last state, and the length of each row.

    Args:
        impute_finished: whether a row that has finished keeps its state and gives zeros.
        kwargs: of ``decoder.initialize``.
    """
    limit = None if maximum_iterations is None else tf.convert_to_tensor(maximum_iterations, tf.int32)
    with tf1.variable_scope(scope, "decoder"):
        finished, inputs, state = decoder.initialize(**kwargs)
        if limit is not None:
            finished = tf.logical_or(finished, limit <= 0)
        shapes = nest.map_structure(tf.TensorShape, decoder.output_size)
        zeros = nest.map_structure(
            lambda shape, dtype: _zeros(decoder.batch_size, shape, dtype), shapes, decoder.output_dtype
        )
        rows = tf.get_static_value(tf.convert_to_tensor(decoder.batch_size))
        arrays = nest.map_structure(
            lambda dtype, shape: tf1.TensorArray(
                dtype, 0, dynamic_size=True, element_shape=tf.TensorShape([rows]).concatenate(shape)),
            decoder.output_dtype, shapes)  # fmt: skip

        def body(time: Any, arrays: Any, state: Any, inputs: Any, finished: Any, lengths: Any) -> tuple[Any, ...]:
            outputs, new, inputs, done = decoder.step(time, inputs, state)
            nest.assert_same_structure(state, new)
            if decoder.tracks_own_finished:
                own = getattr(new, "lengths", None)
                lengths = tf.where(finished, lengths, time + 1) if own is None else tf.cast(own, tf.int32)
            else:
                lengths, done = tf.where(finished, lengths, time + 1), tf.logical_or(done, finished)
            if impute_finished:
                outputs = nest.map_structure(lambda one, zero: choose(finished, zero, one), outputs, zeros)
                new = nest.map_structure(lambda one, old: choose(finished, old, one), new, state)
            nest.assert_same_structure(arrays, outputs)
            arrays = nest.map_structure(lambda array, one: array.write(time, one), arrays, outputs)
            if limit is not None:
                done = tf.logical_or(done, time + 1 >= limit)
            return time + 1, arrays, new, inputs, done, lengths

        _, arrays, state, _, _, lengths = tf1.while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            body, (tf.constant(0), arrays, state, inputs, finished, tf.zeros_like(finished, tf.int32)),
            parallel_iterations=parallel_iterations, swap_memory=swap_memory)  # fmt: skip
        outputs = nest.map_structure(lambda array: array.stack(), arrays)
        with suppress(NotImplementedError):  # of a decoder whose outputs are those of its steps
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = nest.map_structure(lambda one: tf.transpose(one, [1, 0, *range(2, one.shape.rank)]), outputs)
    return outputs, state, lengths


def _zeros(rows: Any, shape: Any, dtype: Any) -> Any:
    return tf.zeros([rows, *tf.TensorShape(shape).as_list()], dtype)


def choose(finished: Any, old: Any, new: Any) -> Any:
    """The old value for the rows that have finished; what has no rows is new."""
    if isinstance(new, tf.TensorArray) or new.shape.rank == 0:
        return new
    chosen = tf.where(tf.reshape(finished, [-1] + [1] * (new.shape.rank - 1)), old, new)
    chosen.set_shape(new.shape)
    return chosen


class BasicDecoder(Decoder):
    """Runs a cell on what a :class:`Helper` gives it; ``output_layer`` is one for the cell's outputs, or None."""

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        return self._helper.batch_size

    @property
    def output_size(self) -> BasicDecoderOutput:
        size = self._cell.output_size
        if self._output_layer is not None:
            whole = nest.map_structure(lambda one: tf.TensorShape([None]).concatenate(one), size)
            size = self._output_layer.compute_output_shape(whole)[1:]
        return BasicDecoderOutput(size, self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        dtype = nest.flatten(self._initial_state)[0].dtype
        rnn = nest.map_structure(lambda _: dtype, self._cell.output_size)
        return BasicDecoderOutput(rnn, self._helper.sample_ids_dtype)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        return *self._helper.initialize(), self._initial_state

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        with tf1.name_scope(name, "BasicDecoderStep"):
            outputs, state = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=state)
            finished, inputs, state = self._helper.next_inputs(time=time, outputs=outputs, state=state, sample_ids=ids)
        return BasicDecoderOutput(outputs, ids), state, inputs, finished
