"""``tf.contrib.crf``, ``rnn`` and ``seq2seq``: what they compute is what is written out by hand."""

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as real

import tpugraph.compat.v1 as tf
from models import GOLDEN

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")

R, S, CRF = tf.contrib.rnn, tf.contrib.seq2seq, tf.contrib.crf
random = np.random.RandomState(0)


@pytest.fixture(autouse=True)
def graph() -> Any:
    with real.Graph().as_default() as made:
        yield made


def value(fetches: Any, **variables: Any) -> Any:
    """What a fetch is, with variables set to arrays: each to the longest key that ends its name, with "__" for a slash."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
            keys = [key for key in variables if f"/{variable.op.name}".endswith(f"/{key.replace('__', '/')}")]
            if keys:
                variable.load(variables[max(keys, key=len)], session)
        return session.run(fetches)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# --------------------------------------------------------------------------- crf

SCORES = random.randn(3, 4, 3).astype(np.float32)
MOVES = random.randn(3, 3).astype(np.float32)
LENGTHS = [2, 4, 1]


def score(row: int, tags: tuple[int, ...]) -> float:
    return float(
        sum(SCORES[row, time, tag] for time, tag in enumerate(tags))
        + sum(MOVES[one, other] for one, other in itertools.pairwise(tags))
    )


def test_the_likelihood_of_tags_and_the_best_ones() -> None:
    """Of each row all sequences of tags are tried; a tag behind the length counts for nothing, whatever it is."""
    tags = random.randint(0, 3, (3, 4))
    tags[0, 2:] = -1
    likelihood, _ = CRF.crf_log_likelihood(tf.constant(SCORES), tf.constant(tags), tf.constant(LENGTHS),
                                           tf.constant(MOVES))  # fmt: skip
    decoded, best = CRF.crf_decode(tf.constant(SCORES), tf.constant(MOVES), tf.constant(LENGTHS))
    slopes = tf.gradients(tf.reduce_sum(likelihood), tf.constant(0.0))
    assert slopes == [None]
    likelihoods, decoded, best = value([likelihood, decoded, best])
    for row, length in enumerate(LENGTHS):
        every = {found: score(row, found) for found in itertools.product(range(3), repeat=length)}
        total = np.log(np.sum(np.exp(list(every.values()))))
        assert likelihoods[row] == pytest.approx(every[tuple(tags[row, :length])] - total, rel=1e-5)
        assert best[row] == pytest.approx(max(every.values()), rel=1e-5)
        assert tuple(decoded[row, :length]) == max(every, key=every.__getitem__)
        assert not decoded[row, length:].any()
        assert CRF.viterbi_decode(SCORES[row, :length], MOVES)[0] == list(decoded[row, :length])


def test_tags_that_a_bitmap_allows() -> None:
    allowed = np.ones([3, 4, 3], bool)
    allowed[:, 0, 0] = False
    found = CRF.crf_multitag_sequence_score(tf.constant(SCORES), tf.constant(allowed), tf.constant(LENGTHS),
                                            tf.constant(MOVES))  # fmt: skip
    decoded, _ = CRF.crf_constrained_decode(tf.constant(SCORES), tf.constant(allowed), tf.constant(MOVES),
                                            tf.constant(LENGTHS))  # fmt: skip
    found, decoded = value([found, decoded])
    for row, length in enumerate(LENGTHS):
        every = [tags for tags in itertools.product(range(3), repeat=length) if tags[0] != 0]
        assert found[row] == pytest.approx(np.log(sum(np.exp(score(row, tags)) for tags in every)), rel=1e-5)
        assert tuple(decoded[row, :length]) == max(every, key=lambda tags: score(row, tags))
    CRF.crf_log_likelihood(tf.constant(SCORES), tf.zeros([3, 4], tf.int32), tf.constant(LENGTHS))
    assert [(v.op.name, v.shape.as_list()) for v in tf.trainable_variables()] == [("transitions", [3, 3])]


# --------------------------------------------------------------------------- rnn

STEPS = random.randn(5, 2, 3).astype(np.float32)


def reversed_steps(x: Any, lengths: list[int]) -> Any:
    return tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


@pytest.mark.parametrize("kind", ["fused", "reversed", "block", "dynamic block"])
def test_block_cells_are_lstms(kind: str) -> None:
    """TensorFlow has the plain cell, whose variables have the same names; a reversed one runs from each row's last step."""
    lengths, x = [5, 3], tf.constant(STEPS)
    cell: Any = R.LSTMBlockFusedCell(4)
    if kind == "reversed":
        cell = R.TimeReversedFusedRNN(cell)
    elif kind.endswith("block"):
        cell = R.FusedRNNCellAdaptor(R.LSTMBlockCell(4), use_dynamic_rnn=kind.startswith("dynamic"))
    found = cell(x, dtype=tf.float32, sequence_length=tf.constant(lengths))
    turned = reversed_steps(x, lengths) if kind == "reversed" else x
    outputs, state = tf.nn.dynamic_rnn(
        R.BasicLSTMCell(4, name="plain"), turned, lengths, time_major=True, dtype=tf.float32
    )
    wanted = reversed_steps(outputs, lengths) if kind == "reversed" else outputs, state
    kernel, bias = random.randn(7, 16).astype(np.float32) * 0.5, random.randn(16).astype(np.float32) * 0.1
    close(*value([found, wanted], kernel=kernel, bias=bias))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_gradients_of_block_cells_are_those_of_plain_cells(kind: str) -> None:
    pair = (R.LSTMBlockCell, R.BasicLSTMCell) if kind == "lstm" else (R.GRUBlockCellV2, R.GRUCell)
    found = []
    for number, cell in enumerate(pair):
        with tf.variable_scope(f"cell_{number}", initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=3)):
            outputs, _ = tf.nn.dynamic_rnn(cell(4), tf.constant(STEPS), dtype=tf.float32)
        found.append([outputs, *tf.gradients(tf.reduce_sum(outputs**2), tf.trainable_variables(f"cell_{number}"))])
    close(*value(found))


def close(found: Any, wanted: Any) -> None:
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


X, C, H = (random.randn(2, size).astype(np.float32) for size in (3, 4, 4))
TIME = np.float32([[0.6], [7.25]])
GIVEN = {"period": [2, 4, 8, 5], "phase": [0, 0.5, 1, 1.5], "ratio_on": [0.5] * 4}
CELLS: dict[str, tuple[Any, int]] = {
    "UGRNN": (lambda: R.UGRNNCell(4), 0),
    "norm": (lambda: R.LayerNormBasicLSTMCell(4), 4),
    "peepholes, clips and a projection": (
        lambda: R.LayerNormLSTMCell(4, use_peepholes=True, cell_clip=0.5, num_proj=2, proj_clip=0.3), 2),
    "coupled gates, peepholes and norm": (
        lambda: R.CoupledInputForgetGateLSTMCell(4, use_peepholes=True, layer_norm=True), 4),
    "of a search over architectures": (lambda: R.NASCell(4, num_proj=2), 2),
    "SRU": (lambda: R.SRUCell(4), 0),
    "phased": (lambda: R.PhasedLSTMCell(4), 4),
    "IndRNN": (lambda: R.IndRNNCell(4), 0),
    "IndyLSTM": (lambda: R.IndyLSTMCell(4), 4),
    "IndyGRU": (lambda: R.IndyGRUCell(4), 0),
}  # fmt: skip
"""Cells, and how many values of the output are a part of their state beside the memory."""


@pytest.mark.parametrize("name", CELLS)
def test_a_step_of_each_cell_is_the_recorded_one(name: str) -> None:
    """Recorded when each agreed within 1e-5 with its equations, written out in NumPy."""
    make, size = CELLS[name]
    x = tf.constant(X)
    state = R.LSTMStateTuple(tf.constant(C), tf.constant(H[:, :size])) if size else tf.constant(H)
    made = make()((tf.constant(TIME), x) if name == "phased" else x, state)
    weights = {}
    for variable in tf.global_variables():
        shape, key = variable.shape.as_list(), variable.op.name.partition("/")[2]
        values = np.cos(1.7 * np.arange(1, np.prod(shape) + 1) + len(key)).reshape(shape)
        weights[key.replace("/", "__")] = np.float32(GIVEN.get(key.rpartition("/")[2], values))
    recorded = dict(line.split(": ") for line in (GOLDEN / "cells" / "steps.txt").read_text().splitlines())
    found = np.concatenate([np.ravel(part) for part in tf.nest.flatten(value(made, **weights))])
    np.testing.assert_allclose(found, np.float64(recorded[name].split()), atol=2e-5)


def test_the_period_of_a_phased_lstm_is_drawn() -> None:
    R.PhasedLSTMCell(4)((tf.constant(TIME), tf.constant(X)), R.LSTMStateTuple(tf.constant(C), tf.constant(H)))
    first = value(next(v for v in tf.global_variables() if v.op.name.endswith("/period")))
    assert (first >= 1).all()
    assert (first <= 1000).all()


@pytest.mark.parametrize(("dimensions", "kind"), [(1, "Conv1DLSTMCell"), (2, "Conv2DLSTMCell"), (3, "Conv3DLSTMCell")])
def test_convolutional_cells(dimensions: int, kind: str) -> None:
    """With kernels of one pixel, an LSTM of each pixel; with a skip connection, the input behind its output."""
    space = [2, 3, 2][:dimensions]
    x, c, h = (random.randn(2, *space, size).astype(np.float32) for size in (3, 4, 7))
    kernel = random.randn(10, 16).astype(np.float32)
    cell = getattr(R, kind)(input_shape=[*space, 3], output_channels=4, kernel_shape=[1] * dimensions,
                            skip_connection=True)  # fmt: skip
    i, j, f, o = np.split(np.concatenate([x, h], -1) @ kernel, 4, -1)
    memory = c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    output = np.tanh(memory) * sigmoid(o)
    output = np.concatenate([output, x], -1)
    made = cell(tf.constant(x), R.LSTMStateTuple(tf.constant(c), tf.constant(h)))
    close(value(made, kernel=kernel.reshape([1] * dimensions + [10, 16])), [output, memory, output])
    assert cell.output_size.as_list() == [*space, 7]


def test_other_cells_run_in_loops_and_have_gradients() -> None:
    images = tf.constant(random.randn(2, 3, 5, 2).astype(np.float32))
    times = tf.constant(random.rand(2, 5, 1).astype(np.float32))
    x = tf.constant(STEPS.transpose(1, 0, 2))
    for cell, inputs in ((R.NASCell(4), x), (R.SRUCell(4), x), (R.IndyGRUCell(4), x), (R.PhasedLSTMCell(4), (times, x)),
                         (R.LayerNormLSTMCell(4, layer_norm=True), x), (R.Conv1DLSTMCell(input_shape=[5, 2], output_channels=3,
                                                                                      kernel_shape=[3]), images)):  # fmt: skip
        name = type(cell).__name__
        outputs, _ = tf.nn.dynamic_rnn(cell, inputs, dtype=tf.float32, scope=name)
        assert None not in tf.gradients(outputs, tf.trainable_variables(name)), name
        value(outputs)


def test_wrappers_of_cells() -> None:
    x = tf.constant(STEPS.transpose(1, 0, 2))
    wrapped = {
        "attention": (R.AttentionCellWrapper(R.GRUCell(4), 3), 4),
        "highway": (R.HighwayWrapper(R.GRUCell(3)), 3),
        "input": (R.InputProjectionWrapper(R.GRUCell(4), 2), 4),
        "output": (R.OutputProjectionWrapper(R.GRUCell(4), 2), 2),
    }
    for name, (cell, columns) in wrapped.items():
        outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, scope=name)
        assert outputs.shape.as_list() == [2, 5, columns]
        assert None not in tf.gradients(outputs, tf.trainable_variables(name))
    names = {v.op.name.partition("/")[2].partition("/")[2] for v in tf.trainable_variables("attention")}
    assert {"attention/attn_w", "attention/attn_v", "attn_output_projection/kernel", "kernel"} <= names
    words, _ = tf.nn.dynamic_rnn(R.EmbeddingWrapper(R.GRUCell(4), 9, 2), tf.ones([2, 5, 1], tf.int32), dtype=tf.float32)
    assert words.shape.as_list() == [2, 5, 4]
    with pytest.raises(AttributeError, match=r"GridLSTMCell is not there: [^\n]*\n[^\n]*\n[^\n]*RNNCell"):
        R.GridLSTMCell(4)


def test_layers_of_both_directions() -> None:
    cells = [[R.GRUCell(4), R.GRUCell(2)] for _ in range(2)]
    outputs, forward, backward = R.stack_bidirectional_dynamic_rnn(
        *cells, tf.constant(STEPS.transpose(1, 0, 2)), dtype=tf.float32, sequence_length=tf.constant([5, 3])
    )
    assert outputs.shape.as_list() == [2, 5, 4]
    assert [state.shape.as_list() for state in (*forward, *backward)] == [[2, 4], [2, 2]] * 2
    found, last, first = value([outputs, forward[1], backward[1]])
    np.testing.assert_allclose(found[0, 4, :2], last[0], atol=1e-6)
    np.testing.assert_allclose(found[1, 2, :2], last[1], atol=1e-6)
    np.testing.assert_allclose(found[:, 0, 2:], first, atol=1e-6)
    assert not found[1, 3:].any()


# --------------------------------------------------------------------------- seq2seq

TABLE = random.randn(5, 5).astype(np.float32)
"""Of each token the logits of the next one; token 4 ends a sequence."""


class Chain(tf.nn.rnn_cell.RNNCell):  # type: ignore[misc]
    """A cell that gives its input, and counts in its state how often it was called."""

    state_size = output_size = 5

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        return inputs, state + 1


def test_a_decoder_reads_what_it_is_given() -> None:
    inputs = random.randn(2, 4, 5).astype(np.float32)
    helper = S.TrainingHelper(tf.constant(inputs), tf.constant([4, 2]))
    made = S.BasicDecoder(Chain(), helper, tf.zeros([2, 5]))
    outputs, state, lengths = S.dynamic_decode(made, impute_finished=True)
    assert outputs.rnn_output.shape.as_list() == [2, None, 5]
    found, ids, state, lengths = value([outputs.rnn_output, outputs.sample_id, state, lengths])
    inputs[1, 2:] = 0
    np.testing.assert_array_equal(found, inputs)
    np.testing.assert_array_equal(ids[0], inputs[0].argmax(1))
    assert list(lengths) == [4, 2]
    assert list(state[:, 0]) == [4, 2]


def greedy(token: int, limit: int) -> list[int]:
    found: list[int] = []
    while len(found) < limit and (not found or found[-1] != 4):
        found.append(token := int(TABLE[token].argmax()))
    return found


def test_a_decoder_reads_what_it_said() -> None:
    helper = S.GreedyEmbeddingHelper(tf.constant(TABLE), tf.constant([0, 1, 2]), 4)
    outputs, _, lengths = S.dynamic_decode(S.BasicDecoder(Chain(), helper, tf.zeros([3, 5])), maximum_iterations=6)
    ids, lengths = value([outputs.sample_id, lengths])
    for row in range(3):
        wanted = greedy(row, 6)
        assert list(ids[row][: len(wanted)]) == wanted
        assert lengths[row] == len(wanted)


def chance(tokens: tuple[int, ...], start: int) -> float:
    logs = TABLE - np.log(np.exp(TABLE).sum(1, keepdims=True))
    return float(sum(logs[one, other] for one, other in itertools.pairwise((start, *tokens))))


def test_beams_are_the_best_of_all_sequences() -> None:
    """With room for all prefixes the beams are what a search through all sequences of three tokens finds."""
    start = S.tile_batch(tf.zeros([2, 5]), 125)
    made = S.BeamSearchDecoder(Chain(), tf.constant(TABLE), tf.constant([0, 3]), 4, start, 125)
    outputs, state, _ = S.dynamic_decode(made, maximum_iterations=3)
    ids, chances, lengths = value([outputs.predicted_ids, state.log_probs, state.lengths])
    every = [tokens for count in (1, 2, 3) for tokens in itertools.product(range(5), repeat=count)
             if 4 not in tokens[:-1] and (count == 3 or tokens[-1] == 4)]  # fmt: skip
    for row, first in enumerate((0, 3)):
        best = sorted(every, key=lambda tokens, first=first: -chance(tokens, first))  # type: ignore[misc]
        for beam in range(5):
            assert chances[row, beam] == pytest.approx(chance(best[beam], first), rel=1e-5)
            found = tuple(ids[row, : lengths[row, beam], beam])
            assert found in every
            assert chance(found, first) == pytest.approx(chances[row, beam], rel=1e-5)


def test_a_coverage_penalty_charges_ended_sequences_for_places_without_attention() -> None:
    memory = S.tile_batch(tf.constant(MEMORY[:1]), 2)
    cell = S.AttentionWrapper(R.GRUCell(4), S.LuongAttention(4, memory), 5)
    seen = np.array(
        [[[0.2, 0.5, 0.0], [0.1, 0.3, 2.0]]], np.float32
    )  # of each beam and place; the second beam has ended

    def step(weight: float) -> Any:
        made = S.BeamSearchDecoder(cell, tf.constant(TABLE), tf.constant([0]), 4, cell.zero_state(2, tf.float32), 2,
                                   coverage_penalty_weight=weight)  # fmt: skip
        _, inputs, state = made.initialize()
        state = state._replace(log_probs=tf.constant([[-5.0, -1.0]]), finished=tf.constant([[False, True]]),
                               lengths=tf.constant([[1, 1]], tf.int64))  # fmt: skip
        if weight:
            state = state._replace(accumulated_attention_probs=tf.constant(seen))
        outputs, state, _, _ = made.step(tf.constant(1), inputs, state)
        return [outputs.scores, outputs.parent_ids, state.accumulated_attention_probs]

    with tf.variable_scope("decoder", reuse=tf.AUTO_REUSE):
        steps = [step(weight) for weight in (0.0, 0.5, 100.0)]
    (free, _, _), (charged, from_, attended), (_, away, _) = value(steps)
    assert free[0, 0] == pytest.approx(-1.0)
    assert charged[0, 0] == pytest.approx(-1.0 + 0.5 * np.log([0.1, 0.3]).sum(), rel=1e-5)
    assert from_.tolist() == [[1, 0]]
    np.testing.assert_allclose(attended[0, 0], seen[0, 1], rtol=1e-6)
    assert (attended[0, 1] - seen[0, 0]).sum() == pytest.approx(1, rel=1e-5)
    assert away.tolist() == [[0, 0]]
    with pytest.raises(ValueError, match="no AttentionWrapper"):
        S.BeamSearchDecoder(Chain(), tf.constant(TABLE), tf.constant([0]), 4, tf.zeros([3, 5]), 3,
                            coverage_penalty_weight=1.0).initialize()  # fmt: skip


def test_beams_are_traced_back() -> None:
    """Beam 0 of the last step came from beam 1, which came from beam 0; behind an end token all is end tokens."""
    ids = np.array([[[1, 2]], [[3, 9]], [[5, 6]]], np.int32)
    parents = np.array([[[0, 0]], [[1, 0]], [[1, 0]]], np.int32)
    found = value(S.gather_tree(tf.constant(ids), tf.constant(parents), tf.constant([3]), 9))
    assert found[:, 0, 0].tolist() == [1, 9, 9]
    assert found[:, 0, 1].tolist() == [2, 3, 6]
    short = value(S.gather_tree(tf.constant(ids), tf.constant(parents), tf.constant([2]), 9))
    assert short[:, 0].tolist() == [[2, 1], [3, 9], [9, 9]]


MEMORY = random.randn(2, 3, 4).astype(np.float32)
QUERY = random.randn(2, 4).astype(np.float32)


@pytest.mark.parametrize("kind", ["Luong", "Bahdanau"])
def test_attention_scores_a_memory(kind: str) -> None:
    mechanism = getattr(S, f"{kind}Attention")(4, tf.constant(MEMORY), tf.constant([3, 2]))
    weights, _ = mechanism(tf.constant(QUERY), mechanism.initial_state(2, tf.float32))
    kernel, vector = random.randn(4, 4).astype(np.float32), random.randn(4).astype(np.float32)
    found = value(weights, kernel=kernel, attention_v=vector)
    memory = MEMORY.copy()
    memory[1, 2] = 0
    keys, query = memory @ kernel, QUERY @ kernel
    scores = np.einsum("bk,btk->bt", QUERY, keys) if kind == "Luong" else np.tanh(keys + query[:, None]) @ vector
    powers = np.exp(scores) * [[1, 1, 1], [1, 1, 0]]
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("mode", ["recursive", "parallel"])
def test_monotonic_attention_is_an_expectation(mode: str) -> None:
    """From each place where it was, attention stops at the first place on whose coin shows heads."""
    stop, before = random.rand(2, 4).astype(np.float32), random.rand(2, 4).astype(np.float32)
    before /= before.sum(1, keepdims=True)
    wanted = np.zeros([2, 4])
    for row, start, end in itertools.product(range(2), range(4), range(4)):
        if start <= end:
            wanted[row, end] += before[row, start] * np.prod(1 - stop[row, start:end]) * stop[row, end]
    found = value(S.monotonic_attention(tf.constant(stop), tf.constant(before), mode))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["LuongMonotonic", "BahdanauMonotonic", "two"])
def test_a_cell_with_attention_decodes_and_trains(kind: str) -> None:
    make = [S.LuongAttention, S.BahdanauAttention] if kind == "two" else [getattr(S, f"{kind}Attention")]
    mechanisms = [one(4, tf.constant(MEMORY), tf.constant([3, 2])) for one in make]
    several = kind == "two"
    cell = S.AttentionWrapper(R.GRUCell(4), mechanisms if several else mechanisms[0], [3, 3] if several else 3,
                              alignment_history=True)  # fmt: skip
    helper = S.TrainingHelper(tf.constant(random.randn(2, 5, 2).astype(np.float32)), tf.constant([5, 4]))
    made = S.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32), tf.layers.Dense(6))
    outputs, state, _ = S.dynamic_decode(made)
    loss = S.sequence_loss(outputs.rnn_output, tf.zeros([2, 5], tf.int32), tf.sequence_mask([5, 4], 5, tf.float32))
    gradients = tf.gradients(loss, tf.trainable_variables())
    assert all(gradient is not None for gradient in gradients)
    history = state.alignment_history[0] if several else state.alignment_history
    weights, slopes = value([history.stack(), gradients])
    assert weights.shape == (5, 2, 3)
    assert not weights[:, 1, 2].any()
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert {v.op.name for v in tf.trainable_variables()} >= {
        "memory_layer/kernel", "decoder/attention_wrapper/attention_layer/kernel",
        "decoder/attention_wrapper/gru_cell/gates/bias"}  # fmt: skip


def test_the_state_of_beams_with_attention_is_reordered() -> None:
    memory, lengths = S.tile_batch(tf.constant(MEMORY), 2), S.tile_batch(tf.constant([3, 2]), 2)
    cell = S.AttentionWrapper(R.GRUCell(4), S.LuongAttention(4, memory, lengths), 5, alignment_history=True)
    table = tf.constant(random.randn(5, 5).astype(np.float32))
    made = S.BeamSearchDecoder(cell, table, tf.constant([0, 1]), 4, cell.zero_state(4, tf.float32), 2)
    outputs, state, _ = S.dynamic_decode(made, maximum_iterations=3)
    ids, history = value([outputs.predicted_ids, state.cell_state.alignment_history])
    assert ids.shape[::2] == (2, 2)
    assert history.shape[1:] == (2, 2, 3)


def test_a_sequence_s_loss() -> None:
    logits, targets = random.randn(2, 3, 4).astype(np.float32), random.randint(0, 4, (2, 3))
    weights = np.array([[1, 1, 0], [2, 0, 0]], np.float32)
    entropy = np.log(np.exp(logits).sum(2)) - np.take_along_axis(logits, targets[:, :, None], 2)[:, :, 0]
    weighted = entropy * weights

    def loss(**how: bool) -> Any:
        return value(S.sequence_loss(tf.constant(logits), tf.constant(targets), tf.constant(weights), **how))

    np.testing.assert_allclose(loss(), weighted.sum() / weights.sum(), rtol=1e-5)
    by_time = loss(average_across_timesteps=False)
    np.testing.assert_allclose(by_time, weighted.sum(0) / (weights.sum(0) + 1e-12), rtol=1e-5)
    np.testing.assert_allclose(
        loss(average_across_batch=False), weighted.sum(1) / (weights.sum(1) + 1e-12), rtol=1e-5)  # fmt: skip
    none = {"average_across_timesteps": False, "average_across_batch": False}
    np.testing.assert_allclose(loss(**none), weighted, rtol=1e-5)
    summed = loss(sum_over_timesteps=True, sum_over_batch=True, **none)
    np.testing.assert_allclose(summed, weighted.sum() / 3, rtol=1e-5)


def test_scheduled_sampling_reads_outputs_with_a_probability() -> None:
    inputs = random.randn(2, 4, 5).astype(np.float32)
    for probability, given in ((0.0, True), (1.0, False)):
        helper = S.ScheduledOutputTrainingHelper(tf.constant(inputs), tf.constant([4, 4]), probability)
        outputs = S.dynamic_decode(S.BasicDecoder(Chain(), helper, tf.zeros([2, 5])))[0]
        wanted = inputs if given else np.repeat(inputs[:, :1], 4, 1)
        np.testing.assert_array_equal(value(outputs.rnn_output), wanted)
        table = tf.constant(TABLE)
        helper = S.ScheduledEmbeddingTrainingHelper(tf.constant(inputs), tf.constant([4, 4]), table, probability)
        outputs = S.dynamic_decode(S.BasicDecoder(Chain(), helper, tf.zeros([2, 5])))[0]
        found = value([outputs.rnn_output, outputs.sample_id])
        assert (found[1] == -1).all() if given else (found[1] >= 0).all()
        rows = found[1][:, :-1]
        np.testing.assert_array_equal(found[0][:, 1:], inputs[:, 1:] if given else TABLE[rows])


def test_other_helpers() -> None:
    ids = lambda outputs: tf.argmax(outputs, -1, output_type=tf.int32)  # noqa: E731
    inference = S.InferenceHelper(ids, [], tf.int32, tf.constant(TABLE[:2]), lambda chosen: tf.equal(chosen, 4),
                                  lambda chosen: tf.gather(TABLE, chosen))  # fmt: skip
    custom = S.CustomHelper(lambda: (tf.zeros([2], tf.bool), tf.constant(TABLE[:2])), lambda time, outputs,
                            state: ids(outputs), lambda time, outputs, state,
                            sample_ids: (tf.equal(sample_ids, 4), tf.gather(TABLE, sample_ids), state))  # fmt: skip
    drawn = S.SampleEmbeddingHelper(tf.constant(TABLE), tf.constant([0, 1]), 4, softmax_temperature=1e-4)
    for helper in (inference, custom, drawn):
        outputs = S.dynamic_decode(S.BasicDecoder(Chain(), helper, tf.zeros([2, 5])), maximum_iterations=4)[0]
        found = value(outputs.sample_id)
        for row in range(2):
            wanted = greedy(row, 4)
            assert list(found[row][: len(wanted)]) == wanted
