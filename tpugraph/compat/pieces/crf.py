"""``tf.contrib.crf``: linear-chain conditional random fields over batches of sequences.

The score of a sequence of tags is the sum of its unary scores ``inputs[b, t, tag]`` and of ``transition_params[tag, next]``
for each pair of neighbours; what lies behind a sequence's length counts for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """The logarithm of each sequence's probability, and the transitions: a variable of that name where none are given."""
    if transition_params is None:
        tags = inputs.shape[2]
        transition_params = tf.compat.v1.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_sequence_score(inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The score of a sequence of tags for each row, not normalised."""
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """The sum of the unary scores of the tags of each row."""
    chosen = tf.reduce_sum(inputs * tf.one_hot(tag_indices, tf.shape(inputs)[2], dtype=inputs.dtype), 2)
    return tf.reduce_sum(chosen * _mask(tag_indices, sequence_lengths, inputs.dtype), 1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The sum of the transitions between the tags of each row."""
    transitions = tf.convert_to_tensor(transition_params)
    tags = tf.shape(transitions)[0]
    places = tf.cast(tag_indices[:, :-1], tf.int32) * tags + tf.cast(tag_indices[:, 1:], tf.int32)
    scores = tf.gather(tf.reshape(transitions, [-1]), tf.clip_by_value(places, 0, tags * tags - 1))  # padding may be -1
    return tf.reduce_sum(scores * _mask(tag_indices, sequence_lengths, transitions.dtype)[:, 1:], 1)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The logarithm of the sum over all sequences of tags, for each row."""

    def step(alphas: Any, element: tuple[Any, ...]) -> Any:
        potentials, begins, active = element
        onward = tf.reduce_logsumexp(alphas[:, :, None] + transition_params, 1)
        return tf.where(active, tf.where(begins, tf.zeros_like(alphas), onward) + potentials, alphas)

    alphas = tf.foldl(step, _by_time(inputs, sequence_lengths), initializer=tf.zeros_like(inputs[:, 0]))
    norm = tf.reduce_logsumexp(alphas, 1)
    return tf.where(tf.convert_to_tensor(sequence_lengths) > 0, norm, tf.zeros_like(norm))


def crf_multitag_sequence_score(inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The logarithm of the sum over all sequences of tags that a bitmap ``[batch, time, tags]`` allows."""
    return crf_log_norm(crf_filtered_inputs(inputs, tag_bitmap), sequence_lengths, transition_params)


def crf_filtered_inputs(inputs: Any, tag_bitmap: Any) -> Any:
    """The unary scores with minus infinity where a bitmap allows no tag."""
    return tf.where(tag_bitmap, inputs, tf.fill(tf.shape(inputs), tf.constant(-np.inf, inputs.dtype)))


def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """The sequence of tags with the highest score for each row, zeros behind its length, and this score."""

    def forward(state: tuple[Any, Any], element: tuple[Any, ...]) -> tuple[Any, Any]:
        scores, (here, begins, active) = state[0], element
        onward = scores[:, :, None] + transition_params
        best = tf.where(begins, tf.zeros_like(scores), tf.reduce_max(onward, 1)) + here
        pointers = tf.where(
            active, tf.argmax(onward, 1, output_type=tf.int32), tf.zeros_like(state[1]) + tf.range(tags)
        )
        return tf.where(active, best, scores), pointers

    tags = tf.shape(potentials)[2]
    start = tf.zeros_like(potentials[:, 0])
    elements = _by_time(potentials, sequence_length)
    scores, pointers = tf.scan(forward, elements, initializer=(start, tf.cast(start, tf.int32)))
    last = tf.argmax(scores[-1], 1, output_type=tf.int32)
    before = tf.scan(
        lambda tag, pointer: tf.gather(pointer, tag, batch_dims=1), pointers, initializer=last, reverse=True
    )
    found = tf.concat([before[1:], last[None]], 0)  # the pointers of a step are the tags of the one before
    return tf.transpose(found) * _mask(potentials, sequence_length, tf.int32), tf.reduce_max(scores[-1], 1)


def crf_constrained_decode(
    potentials: Any, tag_bitmap: Any, transition_params: Any, sequence_length: Any
) -> tuple[Any, Any]:
    """As :func:`crf_decode`, of the sequences that a bitmap allows."""
    return crf_decode(crf_filtered_inputs(potentials, tag_bitmap), transition_params, sequence_length)


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], float]:
    """The best sequence of tags of one array ``[time, tags]``, outside of any graph, and its score."""
    best, pointers = np.asarray(score[0]), []
    for here in score[1:]:
        onward = best[:, None] + transition_params
        pointers.append(onward.argmax(0))
        best = here + onward.max(0)
    found = [int(best.argmax())]
    for pointer in reversed(pointers):
        found.append(int(pointer[found[-1]]))
    return found[::-1], best.max()


def _by_time(inputs: Any, sequence_lengths: Any) -> tuple[Any, Any, Any]:
    """For each step the unary scores, whether it is the first one, and which rows it belongs to."""
    count = tf.shape(inputs)[1]
    active = tf.sequence_mask(sequence_lengths, count)
    return tf.transpose(inputs, [1, 0, 2]), tf.equal(tf.range(count), 0), tf.transpose(active)[:, :, None]


def _mask(like: Any, sequence_lengths: Any, dtype: Any) -> Any:
    return tf.sequence_mask(sequence_lengths, tf.shape(like)[1], dtype)
