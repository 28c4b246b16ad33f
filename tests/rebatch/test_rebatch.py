"""Another batch of the plain graph: recorded graphs train as TensorFlow 1.15 did at 8 times the batch; the rest is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from sampling import part

import tpugraph
from models import CORPUS, FAMILIES, GOLDEN, as_test, batches, corpus, family, finish, folders, rows_of, trace, variable
from tpugraph import cli, roles, testing
from tpugraph.analysis import shapes
from tpugraph.compiler.conversion import another_batch
from tpugraph.ir import Graph, graphdef
from tpugraph.rebatch import Rebatched
from tpugraph.support.errors import TpuGraphError

tf1 = tf.compat.v1

RELATIVE, ABSOLUTE = 1e-3, 1e-5  # TensorFlow 1.15 sums 8 times the batch in another order
CHAOTIC = {
    "batch_norm",
    "mnist_cnn_no_dropout",
}  # small differences of a batch norm and a CNN grow: their losses are compared
OTHER = {"gan_estimator", "queue_runner"}  # three train ops; its recording is that of the plain batch
CORPORA = [(corpus, name) for name in folders(CORPUS, "global8") if name not in OTHER]
RECORDED = CORPORA + [(family, name) for name in folders(FAMILIES, "global8") if name not in OTHER]


def _rebatched(graph: Graph, rows: int, **names: Any) -> Rebatched:
    graph.roles = graph.roles or roles.find(graph)
    return another_batch(graph, rows, **names)


def _rows(model: Any) -> int:
    found = _rebatched(model.graph(), 1024)
    return found.before


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(("of", "name"), part(RECORDED, 2), ids=lambda value: value if isinstance(value, str) else "")
def test_eight_times_the_batch_trains_as_recorded(
    of: Callable[[str], Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = of(name)
    monkeypatch.chdir(model.folder)
    graph, wanted = model.graph(), model.recorded("global8")
    _rebatched(graph, 8 * _rows(model))
    found = testing.run_plain(graph, steps=len(wanted.losses), checkpoint=model.checkpoint)
    if name in CHAOTIC:
        np.testing.assert_allclose(found.losses, wanted.losses, rtol=RELATIVE)
    else:
        testing.assert_same_training(found, wanted, relative=RELATIVE, absolute=ABSOLUTE)


@pytest.mark.parametrize(
    ("of", "name"), [(corpus, "iris_dnn"), (family, "scanned"), (family, "multi_head"), (family, "slim_model")]
)
def test_the_constants_that_change_are_these(of: Callable[[str], Any], name: str) -> None:
    model = of(name)
    said = "\n".join(_rebatched(model.graph(), 8 * _rows(model)).lines()) + "\n"
    assert said == (GOLDEN / "rebatch" / f"{name}.txt").read_text()


# --------------------------------------------------------------------------- small graphs


def _linear(
    rows: int, loss: Callable[[Any, Any], Any], *, make: Callable[..., Any] = batches, rate: Any = 0.1
) -> Callable[[], Any]:
    def build() -> None:
        features, targets = make(rows_of(96, 3), rows)
        found = tf.identity(loss(tf.matmul(features, variable("w", (3, 1)))[:, 0], targets), name="loss")
        tf1.train.GradientDescentOptimizer(rate).minimize(found, tf1.train.get_or_create_global_step())

    return build


def _squares(made: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.square(made - targets))


def _assert_rebatched(
    build: Callable[[int], Callable[[], Any]], before: int, rows: int, *, functional: bool = False, **names: Any
) -> Rebatched:
    """The graph of ``before`` rows that is given another number trains as the one that is traced with it."""
    graph = trace(build(before), functional=functional, resource=functional)
    said = _rebatched(graph, rows, **names)
    plain = testing.run_plain(trace(build(rows), functional=functional, resource=functional), steps=3)
    testing.assert_same_training(testing.run_plain(graph, steps=3), plain, relative=1e-5, absolute=1e-6)
    return said


def follows(before: int, rows: int, *, rate: float = 0.1, make: Callable[..., Any] = batches, **names: Any) -> Any:
    """A test of a loss of ``made``, ``targets`` and the number of rows: another number follows in it."""

    def check(loss: Callable[..., Any]) -> None:
        def build(b: int) -> Callable[[], Any]:
            return _linear(b, lambda made, targets: loss(made, targets, b), rate=rate, make=make)

        functional = getattr(loss, "keywords", {}).get("functional", False)
        _assert_rebatched(build, before, rows, functional=functional, **names)

    return as_test(check, "made", "targets", "rows")


def _open_batches(arrays: Any, rows: int) -> Any:
    return batches(arrays, rows, drop_remainder=False)


def _mapped(arrays: Any, rows: int) -> Any:
    """A function behind the batch that says its rows: its batches are put together anew."""
    data = tf1.data.Dataset.from_tensor_slices(arrays).batch(rows, drop_remainder=True).repeat()
    data = data.map(lambda x, y: (tf.reshape(x, [rows, 3]), tf.reshape(y, [rows])))
    return tf1.data.make_initializable_iterator(data).get_next()


@pytest.mark.parametrize(("before", "rows"), [(4, 12), (12, 4), (8, 12)])
@pytest.mark.parametrize("make", [batches, _mapped])
def test_rows_come_in_their_order(make: Callable[..., Any], before: int, rows: int) -> None:
    _assert_rebatched(lambda b: _linear(b, _squares, make=make), before, rows)


def test_a_queue_hands_out_more_examples() -> None:
    graph = corpus("queue_runner").graph()
    assert _rebatched(graph, 48).inputs == ("'batch' batches 48 rows in place of 16",)
    shapes.infer(graph)
    assert {shape[0] for _, shape in graph["batch"].outputs} == {48}


def test_pairs_of_rows_follow_in_both_dimensions() -> None:
    def loss(made: Any, targets: Any) -> Any:
        scores = made[:, None] * made[None, :] + tf.eye(int(made.shape[0]))
        return tf.reduce_mean(tf.square(scores - targets[:, None])) + tf.reduce_sum(made) / float(made.shape[0])

    said = _assert_rebatched(lambda b: _linear(b, loss), 4, 12)
    assert any("divides a sum over rows" in words for words in said.constants.values())


@follows(4, 12)
def test_numbers_of_rows_and_ones_for_each_are_made_longer(made: Any, targets: Any, rows: int) -> Any:
    weights = np.ones(rows, np.float32)
    errors = tf.square(made - targets) * weights * np.arange(rows).astype(np.float32)
    return tf.reduce_sum(errors) / tf.reduce_sum(weights)


def test_a_number_that_python_made_of_the_rows_stays_and_is_listed() -> None:
    def rated(rows: int) -> Callable[[], Any]:
        def loss(made: Any, targets: Any) -> Any:
            seen = tf.cast(tf1.train.get_or_create_global_step() * rows, tf.float32)
            return _squares(made, targets) / (1 + 0.01 * seen)

        return _linear(rows, loss)

    graph = trace(rated(8))
    (left,) = [name for name in _rebatched(graph, 24).left if "(8)" in name]
    name = left.partition(" ")[0]
    assert _rebatched(trace(rated(8)), 24, literals=[name]).left == ()
    assert f"{name}" in _rebatched(trace(rated(8)), 24, batch_constants=[name]).constants


@pytest.mark.parametrize("of", [lambda b: b, lambda b: b - 1, lambda b: b * (b - 1), lambda b: 1 / (b - 1), np.log])
@follows(8, 12, rate=0.001, batch_constants=["made"])
def test_a_number_that_is_named_is_made_of_the_rows_anew(made: Any, targets: Any, rows: int, of: Any) -> Any:
    return _squares(made, targets) * tf.constant(of(rows), tf.float32, name="made")


# --------------------------------------------------------------------------- refusals


def _grouped(made: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.reduce_max(tf.reshape(made - targets, [2, 4]), axis=1))


def _halved(made: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.square(made[:4] - targets[4:]))


def _rolled(made: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.roll(made, 4, 0) - targets))


def _one_for_each(made: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.square(made - targets) * variable("weights", (8,)))


def _constant_for_each(made: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.square(made - targets) * np.linspace(0, 1, 8, dtype=np.float32) ** 2)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (_grouped, ["regrouped by constants", "--batch_constants="]),
        (_halved, ["strided_slice", "batch size"]),
        (_rolled, ["Roll/shift", "batch size"]),
        (_one_for_each, ["row by row, which has 8 rows", "trace the graph"]),
        (_constant_for_each, ["row by row, which has 8 rows", "trace the graph"]),
    ],
)
def test_what_may_be_another_number_is_refused(loss: Callable[[Any, Any], Any], words: list[str]) -> None:
    testing.assert_raises_block(_rebatched, trace(_linear(8, loss)), 24, words=words, max_length=1200)


def test_all_constants_that_may_follow_are_asked_for_at_once() -> None:
    """The words of the fix, followed, are enough."""
    with pytest.raises(TpuGraphError) as caught:
        _rebatched(trace(_linear(8, _halved)), 24)
    names = re.search(r"--batch_constants=([^ ]+) for", caught.value.fix or "")
    assert names is not None
    assert names[1].count(",") == 1
    said = _rebatched(trace(_linear(8, _halved)), 24, batch_constants=names[1].split(","))
    assert set(said.constants) >= set(names[1].split(","))


def test_groups_follow_as_the_user_says() -> None:
    def grouped(rows: int) -> Callable[[], Any]:
        def loss(made: Any, targets: Any) -> Any:
            groups = tf.reshape(made - targets, tf.constant([rows // 4, 4], name="groups"))
            return tf.reduce_mean(tf.square(groups - tf.reduce_mean(groups, axis=1, keepdims=True)))

        return _linear(rows, loss)

    with pytest.raises(TpuGraphError):
        _rebatched(trace(grouped(8)), 24)
    said = _assert_rebatched(grouped, 8, 24, batch_constants=["groups:0"])
    assert "groups" in said.constants
    assert next(iter(said.regrouped.values())) == "rows regrouped: [2, 4] becomes [6, 4]"


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("fold", [tf1.foldr, tf1.foldl])
@follows(8, 24, rate=0.01)
def test_loops_from_the_last_row_on_follow(made: Any, targets: Any, rows: int, fold: Any, first: bool) -> Any:
    start = None if first else tf.constant(0.1)
    found = fold(lambda state, error: 0.8 * state + error, made - targets, initializer=start)
    return tf.square(tf.reshape(found, []))


@pytest.mark.parametrize("functional", [False, True])
@follows(8, 24)
def test_loops_over_rows_follow_with_their_lists_and_gradients(
    made: Any, targets: Any, rows: int, functional: bool
) -> Any:
    errors = tf.map_fn(lambda row: tf.square(row[0] - row[1]), (made, targets), fn_output_signature=tf.float32)
    return tf.reduce_sum(tf.reshape(errors, [-1]), 0) / tf.cast(rows, tf.float32)


@follows(8, 24)
def test_a_shape_that_is_ensured_follows(made: Any, targets: Any, rows: int) -> Any:
    return _squares(tf.ensure_shape(made, made.shape), tf.ensure_shape(targets, [None]))


@follows(8, 24)
def test_what_a_sampler_makes_of_the_rows_follows(made: Any, targets: Any, rows: int) -> Any:
    kinds = tf.cast(tf.abs(targets) * 3, tf.int64)[:, None]
    drawn = tf.random.log_uniform_candidate_sampler(kinds, 1, 5, True, 40, seed=3)
    return _squares(made * drawn.true_expected_count[:, 0], targets)


def test_numbers_of_an_open_batch_are_listed_and_follow_where_they_are_named() -> None:
    def opened(rows: int) -> Callable[[], Any]:
        def loss(made: Any, targets: Any) -> Any:
            return tf.reduce_sum(tf.square(made - targets)) / tf.constant(rows, tf.float32, name="counted")

        return _linear(rows, loss, make=_open_batches)

    assert "counted (8)" in _rebatched(trace(opened(8)), 24).left
    _assert_rebatched(opened, 8, 24, batch_constants=["counted"])


def test_what_one_row_and_names_that_are_not_there_give() -> None:
    testing.assert_raises_block(_rebatched, trace(_linear(1, _squares)), 8, max_length=800,
                                words=["one row", "trace the graph"])  # fmt: skip
    opened = trace(_linear(1, _squares, make=_open_batches))
    assert _rebatched(opened, 8).constants == {}
    testing.assert_raises_block(_rebatched, trace(_linear(8, _squares)), 24, literals=["nothing"], max_length=800,
                                words=["no constant"])  # fmt: skip


def test_rows_that_a_dataset_behind_the_batch_leaves_out_are_refused_and_not_in_the_model() -> None:
    def masked(*, in_model: bool) -> Callable[[], Any]:
        def some(made: Any) -> Any:
            return tf.boolean_mask(made, made[:, 0] > 0)

        def build() -> Any:
            data = tf1.data.Dataset.from_tensor_slices(np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32))
            data = data.repeat().batch(16, drop_remainder=True)
            made = tf1.data.make_initializable_iterator(data if in_model else data.map(some)).get_next()
            loss = tf.reduce_mean(tf.square((some(made) if in_model else made) @ variable("w", (3, 1))))
            return finish(loss, tf1.train.GradientDescentOptimizer(0.1))

        return build

    words = ["MapDataset", "in the model, after the iterator"]
    testing.assert_raises_block(_rebatched, trace(masked(in_model=False)), 32, words=words, max_length=800)
    assert _rebatched(trace(masked(in_model=True)), 32).rows == 32


# --------------------------------------------------------------------------- the command line


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, place = corpus("iris_dnn"), tmp_path / "iris_256.pb"
    assert cli.main(["rebatch", str(model.folder / "model.pb"), "--global_batch=256", "-o", str(place)]) == 0
    said = capsys.readouterr().out
    assert "batch of 256 rows in place of 32" in said
    assert "divides a sum over rows by as many elements as were summed" in said
    losses = testing.run_plain(place, steps=6, checkpoint=model.checkpoint).losses
    np.testing.assert_allclose(losses, model.losses("global8")[:6], rtol=RELATIVE)
    assert cli.main(["rebatch", str(place), "--global_batch=32", "-o", str(tmp_path / "iris_32.pb")]) == 0
    losses = testing.run_plain(tmp_path / "iris_32.pb", steps=6, checkpoint=model.checkpoint).losses
    np.testing.assert_allclose(losses, model.losses("plain")[:6], rtol=RELATIVE)
    before, place = CORPUS / "iris_dnn" / "model.ckpt-0.meta", tmp_path / "iris_256.meta"
    assert cli.main(["rebatch", str(before), "--global_batch=256", "-o", str(place)]) == 0
    assert graphdef.sniff(place).kind == "MetaGraphDef"
    assert graphdef.load(place).collections == graphdef.load(before).collections
    with tf.Graph().as_default():
        tf1.train.import_meta_graph(str(place))
        assert tf1.trainable_variables()


def test_convert_and_verify_take_the_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    arguments = [str(CORPUS / "iris_dnn" / "model.pb"), "--global_batch=256", f"--report={report}"]
    assert cli.main(["convert", *arguments, "-o", str(tmp_path / "out.pb")]) == 0
    assert "global batch 256 = 8 cores x 32" in capsys.readouterr().out
    assert "batch of 256 rows in place of 32" in json.loads(report.read_text())["notes"]
    kept = [str(tmp_path / "out.pb"), "--global_batch=256", "-o", str(tmp_path / "again.pb")]
    assert cli.main(["rebatch", *kept]) == 0  # of the plain graph that the converted one keeps
    assert "batch of 256 rows in place of 32" in capsys.readouterr().out
    assert cli.main(["verify", str(CORPUS / "iris_dnn" / "model.pb"), "--global_batch=64", "--steps=2"]) == 0
    assert "global batch 64 = 8 cores x 8" in capsys.readouterr().out
    with pytest.raises(tpugraph.TpuGraphError, match="global_batch"):
        tpugraph.ConvertOptions(global_batch=-1)
    assert cli.main(["rebatch", str(CORPUS / "iris_dnn" / "model.pb")]) == 2


def test_an_iterator_that_has_to_be_started_now_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tf.Graph().as_default():
        data = tf1.data.Dataset.from_tensor_slices(rows_of(96, 3)).repeat().batch(16)
        features, targets = tf1.data.make_one_shot_iterator(data).get_next()
        loss = _squares(tf.matmul(features, variable("w", (3, 1)))[:, 0], targets)
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))
        tf1.train.export_meta_graph(str(tmp_path / "model.meta"))
    place = tmp_path / "out.meta"
    assert cli.main(["rebatch", str(tmp_path / "model.meta"), "--global_batch=32", f"--output={place}"]) == 0
    assert "run 'OneShotIterator/make' before the first step" in capsys.readouterr().out
    assert len(testing.run_plain(place, steps=2).losses) == 2
