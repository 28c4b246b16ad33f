"""The beam search of ``tf.contrib.seq2seq``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tpugraph.compat.pieces.attention import AttentionWrapperState
from tpugraph.compat.pieces.decoding import Decoder, lookup

nest = tf.nest


class BeamSearchDecoderState(NamedTuple):
    """The beams of each row: the cell's state, log probabilities, which have ended, and their lengths."""

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any = ()


class BeamSearchDecoderOutput(NamedTuple):
    """What a step gives for each beam: its score, the id that was chosen, and the beam that it goes on from."""

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """The ids of each beam from its first to its last step, and the outputs of the steps."""

    predicted_ids: Any
    beam_search_decoder_output: Any


def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Each row of each tensor of a structure ``multiplier`` times, one copy behind the other."""

    def tiled(one: Any) -> Any:
        one = tf.convert_to_tensor(one)
        found = tf.repeat(one, multiplier, 0)
        rows = one.shape.as_list()[0]
        found.set_shape([rows and rows * multiplier, *one.shape.as_list()[1:]])
        return found

    return nest.map_structure(tiled, t)


def gather_tree(
    step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any, name: str | None = None
) -> Any:
    """The ids of each beam, traced back from its last step: ``[time, batch, beams]``, with end tokens behind the first one."""
    steps = tf.shape(step_ids)[0]
    end = tf.cast(end_token, step_ids.dtype)
    beams = tf.zeros_like(parent_ids[0]) + tf.range(tf.shape(parent_ids)[2])
    active = tf.transpose(tf.sequence_mask(max_sequence_lengths, steps))[:, :, None]

    def back(state: tuple[Any, Any], step: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        here, (ids, parents, counts) = state[0], step
        chosen = tf.where(counts, tf.gather(ids, here, batch_dims=1), end)
        return tf.where(counts, tf.gather(parents, here, batch_dims=1), here), chosen

    _, found = tf.scan(back, (step_ids, parent_ids, active), (beams, tf.zeros_like(step_ids[0])), reverse=True)
    ended = tf.cumsum(tf.cast(tf.equal(found, end), tf.int32), 0, exclusive=True) > 0
    return tf.where(ended, end, found)


def gather_tree_from_array(t: Any, parent_ids: Any, sequence_length: Any) -> Any:
    """As :func:`gather_tree`, of an array ``[time, batch, beams, ...]`` of any values."""
    beams = tf.zeros_like(parent_ids) + tf.range(tf.shape(parent_ids)[2])
    traced = gather_tree(beams, parent_ids, tf.reduce_max(sequence_length, 1), tf.shape(parent_ids)[2] + 1)
    inside = tf.transpose(tf.sequence_mask(sequence_length, tf.shape(t)[0]), [2, 0, 1])
    return tf.gather(t, tf.where(inside, traced, beams), batch_dims=2)


def _reshaped(one: Any, lead: list[int], kept: int) -> Any:
    """A tensor of rows with other dimensions in front of those from ``kept`` on; what has no rows as it is."""
    if isinstance(one, tf.TensorArray) or one.shape.rank == 0:
        return one
    rest = one.shape.as_list()[kept:]
    return tf.reshape(one, tf.concat([lead, tf.shape(one)[kept:]], 0) if None in rest else [*lead, *rest])


class BeamSearchDecoder(Decoder):
    """Keeps the ``beam_width`` best sequences of each row.

    Args:
        embedding: the table of ids, or a function of them.
        initial_state: the cell's, each row ``beam_width`` times (:func:`tile_batch`).
        length_penalty_weight: scores are divided by ``((5 + length) / 6) ** weight``.
        coverage_penalty_weight: how much a sequence that has ended is charged for positions of the memory with little attention;
            the cell must be an ``AttentionWrapper`` then.
        reorder_tensor_arrays: whether a TensorArray of the state, such as an alignment history, is traced back as the ids are.
    """

    def __init__(self, cell: Any, embedding: Any, start_tokens: Any, end_token: Any, initial_state: Any, beam_width: int,
                 output_layer: Any = None, length_penalty_weight: Any = 0.0, coverage_penalty_weight: float = 0.0,
                 reorder_tensor_arrays: bool = True) -> None:  # fmt: skip
        self._cell, self._output_layer, self._width, self._weight, self._reorder = (
            cell, output_layer, beam_width, length_penalty_weight, reorder_tensor_arrays)  # fmt: skip
        self._embedding, self._end = lookup(embedding), tf.convert_to_tensor(end_token, tf.int32)
        self._start = tf.convert_to_tensor(start_tokens, tf.int32)
        self._initial_state = nest.map_structure(self._split, initial_state)
        self._dtype = nest.flatten(initial_state)[0].dtype
        self._coverage = coverage_penalty_weight

    @property
    def batch_size(self) -> Any:
        return tf.size(self._start)

    @property
    def tracks_own_finished(self) -> bool:
        return True

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        return BeamSearchDecoderOutput(*[tf.TensorShape([self._width])] * 3)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        return BeamSearchDecoderOutput(self._dtype, tf.int32, tf.int32)

    def _split(self, one: Any) -> Any:
        """``[rows * beams, ...]`` as ``[rows, beams, ...]``."""
        return _reshaped(one, [-1, self._width], 1)

    def _merge(self, one: Any) -> Any:
        return _reshaped(one, [-1], 2)

    def initialize(self, name: str | None = None) -> tuple[Any, Any, Any]:
        rows = tf.zeros_like(self._start)
        finished = tf.one_hot(rows, self._width, on_value=False, off_value=True, dtype=tf.bool)
        start = tf.repeat(self._start[:, None], self._width, 1)
        state = BeamSearchDecoderState(
            self._initial_state,
            tf.one_hot(rows, self._width, on_value=tf.cast(0, self._dtype), off_value=tf.cast(-np.inf, self._dtype)),
            finished,
            tf.zeros_like(finished, tf.int64),
            self._attention(self._initial_state),
        )
        return finished, self._embedding(start), state

    def _attention(self, cell_state: Any) -> Any:
        """The weights of the memory's positions ``[rows, beams, positions]``; () where there is no coverage penalty."""
        if tf.get_static_value(self._coverage) == 0:
            return ()
        if not isinstance(cell_state, AttentionWrapperState):
            raise ValueError(f"coverage_penalty_weight is {self._coverage}, and the cell is no AttentionWrapper")
        weights = nest.flatten(cell_state.alignments)
        return tf.add_n(weights) / len(weights)

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> tuple[Any, Any, Any, Any]:
        cell_state = nest.map_structure(self._merge, state.cell_state)
        outputs, cell_state = self._cell(nest.map_structure(self._merge, inputs), cell_state)
        outputs = self._split(outputs if self._output_layer is None else self._output_layer(outputs))
        chances = tf.nn.log_softmax(outputs)
        ids = tf.shape(chances)[2]
        still = tf.one_hot(self._end, ids, on_value=tf.cast(0, chances.dtype), off_value=chances.dtype.min)
        chances = tf.where(state.finished[:, :, None], still, chances)  # a sequence that has ended stays as it is
        totals = state.log_probs[:, :, None] + chances
        longer = tf.one_hot(self._end, ids, on_value=tf.cast(0, tf.int64), off_value=tf.cast(1, tf.int64))
        lengths = state.lengths[:, :, None] + tf.where(state.finished[:, :, None], tf.zeros_like(longer), longer)
        penalty = ((5.0 + tf.cast(lengths, totals.dtype)) / 6.0) ** tf.cast(self._weight, totals.dtype)
        rows = tf.shape(totals)[0]
        cell_state = nest.map_structure(self._split, cell_state)
        ranked, attended = totals / penalty, self._attention(cell_state)
        if isinstance(attended, tf.Tensor):
            still = tf.cast(tf.logical_not(state.finished), attended.dtype)
            attended = state.accumulated_attention_probs + attended * still[:, :, None]
            covered = tf.where(attended > 0, tf.minimum(attended, 1), tf.ones_like(attended))  # padding gets none
            charge = tf.reduce_sum(tf.math.log(covered), 2) * (1 - still)
            ranked += (tf.cast(self._coverage, charge.dtype) * charge)[:, :, None]
        scores, places = tf.math.top_k(tf.reshape(ranked, [rows, -1]), self._width)
        words, beams = places % ids, places // ids
        cell_state, attended = nest.map_structure(lambda one: self._gather(one, beams), (cell_state, attended))
        ended = tf.gather(state.finished, beams, batch_dims=1)
        counts = tf.gather(state.lengths, beams, batch_dims=1) + tf.cast(tf.logical_not(ended), tf.int64)
        finished = tf.logical_or(ended, tf.equal(words, self._end))
        chosen = tf.gather(tf.reshape(totals, [rows, -1]), places, batch_dims=1)
        state = BeamSearchDecoderState(cell_state, chosen, finished, counts, attended)
        return BeamSearchDecoderOutput(scores, words, beams), state, self._embedding(words), finished

    @staticmethod
    def _gather(one: Any, beams: Any) -> Any:
        if isinstance(one, tf.TensorArray) or one.shape.rank == 0:
            return one
        found = tf.gather(one, beams, batch_dims=1)
        found.set_shape(one.shape)
        return found

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> tuple[Any, Any]:
        longest = tf.cast(tf.reduce_max(final_state.lengths, 1), tf.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end)
        if self._reorder:
            cell_state = nest.map_structure(
                lambda one: self._traced(one, outputs.parent_ids, final_state.lengths), final_state.cell_state
            )
            final_state = final_state._replace(cell_state=cell_state)
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _traced(self, one: Any, parents: Any, lengths: Any) -> Any:
        if not isinstance(one, tf.TensorArray):
            return one
        steps = one.stack()
        split = tf.reshape(steps, tf.concat([tf.shape(steps)[:1], [-1, self._width], tf.shape(steps)[2:]], 0))
        return gather_tree_from_array(split, parents, lengths)
