"""``tf.contrib.crf``: linear-chain conditional random fields over batches of sequences.

The score of a sequence of tags is the sum of its unary scores ``inputs[b, t, tag]`` and of ``transition_params[tag, next]``
for each pair of neighbours; padding behind a sequence's length is ignored.
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
    alphas = _forward(inputs, sequence_lengths, transition_params, tf.reduce_logsumexp)[-1]
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
    scores = _forward(potentials, sequence_length, transition_params, tf.reduce_max)
    last = tf.argmax(scores[-1], 1, output_type=tf.int32)
    onward = tf.transpose(transition_params)

    def back(tags: Any, element: tuple[Any, Any]) -> Any:
        before, active = element
        return tf.where(active, tf.argmax(before + tf.gather(onward, tags), 1, output_type=tf.int32), tags)

    # of each step the scores of the one before; the first step has none, and its result is dropped
    elements = tf.roll(scores, 1, 0), tf.transpose(_mask(potentials, sequence_length, tf.bool))
    found = tf.concat([tf.scan(back, elements, initializer=last, reverse=True)[1:], last[None]], 0)
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


def _forward(inputs: Any, sequence_lengths: Any, transitions: Any, total: Any) -> Any:
    """Of each step and tag the scores of the sequences up to there, combined by ``total``: ``[time, batch, tags]``."""

    def step(scores: Any, element: tuple[Any, Any, Any]) -> Any:
        here, first, active = element
        onward = total(scores[:, :, None] + transitions, 1)
        return tf.where(active, tf.where(first, tf.zeros_like(scores), onward) + here, scores)

    first = tf.equal(tf.range(tf.shape(inputs)[1]), 0)
    active = tf.transpose(_mask(inputs, sequence_lengths, tf.bool))[:, :, None]
    return tf.scan(step, (tf.transpose(inputs, [1, 0, 2]), first, active), initializer=tf.zeros_like(inputs[:, 0]))


def _mask(like: Any, sequence_lengths: Any, dtype: Any) -> Any:
    return tf.sequence_mask(sequence_lengths, tf.shape(like)[1], dtype)
