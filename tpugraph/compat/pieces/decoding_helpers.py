"""The helpers of ``tf.contrib.seq2seq``, which say what the steps of a decoder read, and its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpugraph.compat.pieces.decoding import choose

tf1 = tf.compat.v1
nest = tf.nest


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
            inputs = nest.map_structure(lambda one: tf.transpose(one, [1, 0, *range(2, one.shape.rank)]), inputs)
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
