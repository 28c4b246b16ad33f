"""``tf.contrib.seq2seq``: decoders that run step by step, the helpers that say what their steps read, and a loss of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.ops.rnn import _transpose_batch_time as transpose_batch_time

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
    with tf1.variable_scope(scope, "decoder"):
        finished, inputs, state = decoder.initialize(**kwargs)
        shapes = nest.map_structure(tf.TensorShape, decoder.output_size)
        zeros = nest.map_structure(
            lambda shape, dtype: tf.zeros([decoder.batch_size, *shape.as_list()], dtype), shapes, decoder.output_dtype
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
            return time + 1, arrays, new, inputs, done, lengths

        _, arrays, state, _, _, lengths = tf1.while_loop(
            lambda time, arrays, state, inputs, finished, lengths: tf.logical_not(tf.reduce_all(finished)),
            body, (tf.constant(0), arrays, state, inputs, finished, tf.zeros_like(finished, tf.int32)),
            parallel_iterations=parallel_iterations, swap_memory=swap_memory, maximum_iterations=maximum_iterations)  # fmt: skip
        outputs = nest.map_structure(lambda array: array.stack(), arrays)
        with suppress(NotImplementedError):  # of a decoder whose outputs are those of its steps
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = nest.map_structure(transpose_batch_time, outputs)
    return outputs, state, lengths


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


# --------------------------------------------------------------------------- what the steps read


class Helper:
    """Says what the steps of a :class:`BasicDecoder` read."""

    batch_size: Any
    sample_ids_shape: Any = tf.TensorShape([])
    sample_ids_dtype: Any = tf.int32

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        """Which rows have finished before the first step, and its inputs."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """What is chosen by a step's outputs; the most likely ids here."""
        return tf.argmax(outputs, -1, output_type=tf.int32)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        """Which rows have finished, the inputs of the next step, and its state."""
        raise NotImplementedError


class CustomHelper(Helper):
    """A helper of three functions: ``initialize_fn()``, ``sample_fn`` and ``next_inputs_fn`` with the helper's arguments."""

    def __init__(self, initialize_fn: Callable[[], Any], sample_fn: Callable[..., Any], next_inputs_fn: Callable[..., Any],
                 sample_ids_shape: Any = None, sample_ids_dtype: Any = None) -> None:  # fmt: skip
        self._initialize, self._sample, self._next = initialize_fn, sample_fn, next_inputs_fn
        self.sample_ids_shape = tf.TensorShape(sample_ids_shape or [])
        self.sample_ids_dtype = sample_ids_dtype or tf.int32

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        finished, inputs = self._initialize()
        self.batch_size = tf.size(finished)
        return finished, inputs

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample(time=time, outputs=outputs, state=state)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        return self._next(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class TrainingHelper(Helper):
    """Reads the given inputs ``[batch, time, ...]``, step by step, whatever the outputs are."""

    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        inputs = nest.map_structure(tf.convert_to_tensor, inputs)
        if not time_major:
            inputs = nest.map_structure(transpose_batch_time, inputs)
        self.inputs, self.sequence_length = inputs, tf.convert_to_tensor(sequence_length, name="sequence_length")
        self._last = tf.shape(nest.flatten(inputs)[0])[0] - 1
        self._steps = nest.map_structure(
            lambda one: tf.TensorArray(one.dtype, self._last + 1, element_shape=one.shape[1:], clear_after_read=False).unstack(one),
            inputs)  # fmt: skip

    @property
    def batch_size(self) -> Any:
        return tf.size(self.sequence_length)

    def _read(self, time: Any) -> Any:
        return nest.map_structure(lambda steps: steps.read(tf.minimum(time, self._last)), self._steps)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return tf.equal(self.sequence_length, 0), self._read(0)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        return time + 1 >= tf.cast(self.sequence_length, tf.int32), self._read(time + 1), state


def _draw(logits: Any, seed: int | None) -> Any:
    return tf.random.categorical(logits, 1, dtype=tf.int32, seed=seed)[:, 0]


def lookup(embedding: Any) -> Callable[[Any], Any]:
    """What finds the rows of ids: ``embedding`` itself, if it is a function, else a lookup in it."""
    return embedding if callable(embedding) else lambda ids: tf1.nn.embedding_lookup(embedding, ids)


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """Reads what was drawn from the outputs instead of the given inputs, with a probability (Bengio and others, 2015)."""

    def __init__(self, inputs: Any, sequence_length: Any, embedding: Any, sampling_probability: Any,
                 time_major: bool = False, seed: int | None = None, scheduling_seed: int | None = None,
                 name: str | None = None) -> None:  # fmt: skip
        super().__init__(inputs, sequence_length, time_major)
        self._embedding, self._probability = lookup(embedding), sampling_probability
        self._seeds = seed, scheduling_seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        drawn = _draw(outputs, self._seeds[0])
        return tf.where(tf.random.uniform(tf.shape(drawn), seed=self._seeds[1]) < self._probability, drawn, -1)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        finished, given, state = super().next_inputs(time, outputs, state, sample_ids)
        return finished, choose(sample_ids >= 0, self._embedding(tf.maximum(sample_ids, 0)), given), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """Reads the outputs themselves, or what a function makes of them, instead of the inputs, with a probability."""

    sample_ids_dtype = tf.bool

    def __init__(self, inputs: Any, sequence_length: Any, sampling_probability: Any, time_major: bool = False,
                 seed: int | None = None, next_inputs_fn: Callable[[Any], Any] | None = None, auxiliary_inputs: Any = None,
                 name: str | None = None) -> None:  # fmt: skip
        self._auxiliary = auxiliary_inputs is not None
        super().__init__((inputs, auxiliary_inputs) if self._auxiliary else (inputs,), sequence_length, time_major)
        self._probability, self._seed, self._make = sampling_probability, seed, next_inputs_fn or tf.identity

    def _joined(self, parts: tuple[Any, ...]) -> Any:
        return tf.concat(parts, -1) if self._auxiliary else parts[0]

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        finished, parts = super().initialize()
        return finished, self._joined(parts)

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return tf.random.uniform([self.batch_size], seed=self._seed) < self._probability

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        finished, (given, *auxiliary), state = super().next_inputs(time, outputs, state, sample_ids)
        return finished, self._joined((choose(sample_ids, self._make(outputs), given), *auxiliary)), state


class GreedyEmbeddingHelper(Helper):
    """Reads the embedding (a table, or a function of ids) of the most likely id of the step before."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding, self._end = lookup(embedding), end_token
        self._start = tf.convert_to_tensor(start_tokens, tf.int32)
        self.batch_size = tf.size(self._start)

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return tf.zeros_like(self._start, tf.bool), self._embedding(self._start)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        return tf.equal(sample_ids, self._end), self._embedding(sample_ids), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Reads the embedding of an id that is drawn from the outputs of the step before."""

    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any, softmax_temperature: Any = None,
                 seed: int | None = None) -> None:  # fmt: skip
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return _draw(outputs if self._temperature is None else outputs / self._temperature, self._seed)


class InferenceHelper(Helper):
    """Samples with one function from the last step's outputs, and reads the next inputs that another computes from the sample."""

    def __init__(self, sample_fn: Callable[[Any], Any], sample_shape: Any, sample_dtype: Any, start_inputs: Any,
                 end_fn: Callable[[Any], Any], next_inputs_fn: Callable[[Any], Any] | None = None) -> None:  # fmt: skip
        self._sample, self._end, self._make = sample_fn, end_fn, next_inputs_fn or tf.identity
        self.sample_ids_shape, self.sample_ids_dtype = tf.TensorShape(sample_shape), sample_dtype
        self._start = tf.convert_to_tensor(start_inputs)
        self.batch_size = tf.shape(self._start)[0]

    def initialize(self, name: str | None = None) -> tuple[Any, Any]:
        return tf.zeros([self.batch_size], tf.bool), self._start

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        return self._sample(outputs)

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: Any = None) -> Any:
        return self._end(sample_ids), self._make(sample_ids), state


def sequence_loss(
    logits: Any, targets: Any, weights: Any, average_across_timesteps: bool = True, average_across_batch: bool = True,
    sum_over_timesteps: bool = False, sum_over_batch: bool = False, softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The weighted cross-entropy of ``logits [batch, time, classes]``, averaged or summed over the dimensions that are asked for.

    An average divides by the weights, and a sum over both by how many of them are not zero, as TensorFlow 1.15 did.
    """
    if (average_across_timesteps and sum_over_timesteps) or (average_across_batch and sum_over_batch):
        raise ValueError("an average and a sum over the same dimension cannot be asked for together")
    loss = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
    with tf1.name_scope(name, "sequence_loss"):
        entropy = loss(labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, tf.shape(logits)[2]]))
        losses = tf.reshape(entropy, tf.shape(weights)) * weights
        if sum_over_timesteps and sum_over_batch:
            return tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(tf.math.count_nonzero(weights), losses.dtype))
        axes = [axis for axis, averaged in enumerate((average_across_batch, average_across_timesteps)) if averaged]
        if axes:
            losses, weights = tf.reduce_sum(losses, axes), tf.reduce_sum(weights, axes)
            losses /= weights + 1e-12
        for axis, summed in ((1, sum_over_timesteps), (0, sum_over_batch)):
            if summed:
                losses, weights = (tf.reduce_sum(one, min(axis, one.shape.rank - 1)) for one in (losses, weights))
                losses = tf.math.divide_no_nan(losses, weights)
        return losses
