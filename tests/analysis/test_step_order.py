"""``--step_order``: what comes first where a graph leaves it to chance, against the same step with explicit control dependencies."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from closeness import assert_close
from models import batches, linear, rows_of, saved, squared_error, tf1, trace, variable
from tpugraph import cli, convert
from tpugraph.analysis import races
from tpugraph.analysis.step import OrderedRaces
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import UsageError
from tpugraph.testing import verification
from tpugraph.testing.plain_run import PlainRun

STEPS = 4
ORDERS = ("reads_first", "writes_first")
Rate = Callable[[Any], Any]


def smooth(step: Any) -> Any:
    return 0.1 / (1.0 + tf.cast(step, tf.float32))


def in_branches(step: Any) -> Any:
    return tf1.cond(
        tf.less(step, 2), lambda: 0.2 * tf.cast(step + 1, tf.float32), lambda: 0.02 * tf.cast(step, tf.float32)
    )


def by_hand(rate: Rate, explicit: str | None = None) -> None:
    """A step as BERT's optimizer makes one: no order between the rate and the counter, or an explicit one."""
    features, targets, weights = linear(4)
    loss = tf.reduce_mean(squared_error(features, targets, weights))
    tf1.summary.scalar("loss", loss)
    step = tf1.train.get_or_create_global_step()
    gradient = tf.gradients(loss, weights)[0]

    def counted() -> Any:
        return tf1.assign(step, step + 1, name="add_one")

    if explicit == "writes_first":
        count = counted()
        with tf.control_dependencies([count]):
            updated = tf1.assign(weights, weights - rate(step.read_value()) * gradient)
    else:
        updated = tf1.assign(weights, weights - rate(step) * gradient)
        with tf.control_dependencies([updated] if explicit else []):
            count = counted()
    tf.group(updated, count, name="train")


def trained(graph: Graph, order: str, cores: int = 2) -> list[float]:
    program = convert(graph, num_replicas=cores, iterations_per_loop=2, step_order=order)
    with TPUSession(program) as session:
        return session.train(STEPS)


def plain(graph: Graph) -> list[float]:
    run = PlainRun(graph)
    try:
        return [loss for loss, _ in islice(run.steps({}), STEPS)]
    finally:
        run.close()


@pytest.mark.parametrize("rate", [smooth, in_branches])
@pytest.mark.parametrize("resource", [False, True])
def test_each_order_is_that_of_the_step_with_control_dependencies(rate: Rate, resource: bool) -> None:
    expected = {order: plain(trace(lambda order=order: by_hand(rate, order), resource=resource)) for order in ORDERS}
    assert expected["reads_first"] != pytest.approx(expected["writes_first"], rel=1e-3)
    for order in ORDERS:
        found = trained(trace(lambda: by_hand(rate), resource=resource), order)
        assert_close(found, expected[order], relative=1e-6)


def test_without_a_choice_reads_come_first_and_the_report_says_so() -> None:
    program = convert(trace(lambda: by_hand(smooth)), num_replicas=2)
    said = program.report["step_order"]
    assert said["order"] == "reads_first"
    assert {(race["write"], race["variable"], race["first"]) for race in said["races"]} == {
        ("add_one", "global_step", "read")
    }
    words = "reads 'global_step' before or after 'add_one' writes it: reads come first (--step_order=writes_first takes the other"
    assert words in program.summary()
    program = convert(trace(lambda: by_hand(smooth, "reads_first")), num_replicas=2,
                      step_order="writes_first")  # fmt: skip
    assert program.report["step_order"] == {"order": "writes_first", "races": [], "said": []}


def beside_each_other(explicit: bool = False) -> None:
    """Two optimizers by hand, as of a GAN: the loss of each reads what both train; in no order, or one after the other."""
    features, targets = batches(rows_of(96, 3), 4)
    first, second = variable("first", (3,)), variable("second", (3,))
    step = tf1.train.get_or_create_global_step()

    def distance(one: Any, other: Any) -> Any:
        return tf.reduce_mean(tf.square(tf.linalg.matvec(features, one + 0.5 * other) - targets))

    loss = distance(first, second)
    tf1.summary.scalar("loss", loss)
    updates = [tf1.assign(first, first - 0.3 * tf.gradients(loss, first)[0], name="first_update")]
    with tf.control_dependencies(updates if explicit else []):
        one, other = (first.read_value(), second.read_value()) if explicit else (first, second)
        updates.append(tf1.assign(second, second - 0.3 * tf.gradients(distance(one, other), other)[0], name="then"))
    tf.group(*updates, tf1.assign_add(step, 1), name="train")


@pytest.mark.parametrize("resource", [False, True])
def test_of_two_that_wait_for_each_other_one_write_comes_first_and_a_note_says_so(resource: bool) -> None:
    graph = trace(beside_each_other, resource=resource)
    found = trained(graph, "writes_first")
    assert_close(found, plain(trace(lambda: beside_each_other(explicit=True), resource=resource)), relative=1e-6)
    kept = graph.kept(OrderedRaces)
    assert kept is not None
    by_first = {(race.variable, race.first) for race in kept.races}
    assert by_first == {("first", "write"), ("second", "read")}
    said = races.sentences(kept)
    assert "reads come first (writes cannot come first here: in a loop, or each of two waits for the other)" in said[0]
    assert "writes come first (--step_order=reads_first takes the other order)" in said[1]


def in_a_loop() -> None:
    features, targets, weights = linear(4)
    step = tf1.train.get_or_create_global_step()
    body = lambda i, total: (i + 1, total + tf.cast(step, tf.float32))  # noqa: E731
    _, total = tf1.while_loop(lambda i, _: i < 3, body, [tf.constant(0), tf.constant(0.0)])
    loss = tf.reduce_mean(squared_error(features, targets, weights)) + total
    tf1.summary.scalar("loss", loss)
    updated = tf1.assign(weights, weights - 0.1 * tf.gradients(loss, weights)[0])
    tf.group(updated, tf1.assign_add(step, 1), name="train")


def test_a_read_in_a_loop_stays_first() -> None:
    first, second = (trained(trace(in_a_loop), order) for order in ORDERS)
    assert first == second
    program = convert(trace(in_a_loop), num_replicas=2, step_order="writes_first")
    assert {race["first"] for race in program.report["step_order"]["races"]} == {"read"}


def test_verify_compares_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    path = saved(trace(lambda: by_hand(smooth)), tmp_path)
    for order, words in (("reads_first", "reads come first"), ("writes_first", "writes come first")):
        found = verification.verify(str(path), STEPS, ConvertOptions(num_replicas=1, step_order=order))
        assert found.ok, found.comparisons
        assert any(words in note for note in found.notes)


def test_the_command_line_chooses_and_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(trace(lambda: by_hand(smooth)), tmp_path)
    options = ["--num_replicas=2", "--step_order=writes_first"]
    assert cli.main(["convert", str(path), "--dry_run", *options]) == 0
    assert "writes it: writes come first (--step_order=reads_first takes the other order)" in capsys.readouterr().out
    told = [f"--steps={STEPS}", "--iterations_per_loop=2", f"--losses={tmp_path / 'losses'}"]
    assert cli.main(["run", str(path), *told, *options]) == 0
    assert "writes come first" in capsys.readouterr().out
    losses = [json.loads(line)["loss"] for line in (tmp_path / "losses").read_text().splitlines()]
    assert_close(losses, plain(trace(lambda: by_hand(smooth, "writes_first"))), relative=1e-6)


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError, match="'any' is no step_order"):
        ConvertOptions(step_order="any")
