"""Summaries of variables: as they are after the loop, whatever runs it, beside those of the loop's last step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import estimators
from models import finish, linear, squared_error, trace
from tpugraph import cli
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.session import TPUSession
from tpugraph.tpu.program import Program

tf1 = tf.compat.v1
LOOP, RATE = 3, 0.05
SGD = tf1.train.GradientDescentOptimizer


def watched() -> None:
    """A linear model that shows its weights, what it makes of them, and what the step makes of its counter."""
    features, targets, weights = linear(4)
    step = tf1.train.get_or_create_global_step()
    rate = tf1.train.exponential_decay(RATE, step, 10, 0.5)
    tf1.summary.histogram("weights", weights)
    tf1.summary.scalar("length", tf.norm(weights))
    tf1.summary.scalar("rate", rate)
    loss = tf.reduce_mean(squared_error(features, targets, weights))
    tf1.summary.text("both", tf.strings.join([tf.as_string(tf.reduce_sum(weights)), tf.as_string(loss)], ","))
    finish(loss, SGD(rate))


@pytest.fixture(scope="module")
def program() -> Program:
    return convert(trace(watched), num_replicas=2, iterations_per_loop=LOOP)


def shown(serialized: bytes) -> dict[str, Any]:
    """The values of summaries by tag, a histogram as its sum."""
    found = {}
    for value in tf1.Summary.FromString(serialized).value:
        kind = value.WhichOneof("value")
        found[value.tag] = (value.histo.sum if kind == "histo" else value.simple_value if kind == "simple_value"
                            else tf.make_ndarray(value.tensor).item())  # fmt: skip
    return found


@pytest.mark.parametrize("options", [{}, {"queues": True}, {"engine": "pjrt"}], ids=["loop", "queues", "pjrt"])
def test_each_shows_what_it_is_at_its_step(program: Program, options: dict[str, Any]) -> None:
    seen: dict[int, dict[str, Any]] = {}
    weights: dict[int, np.ndarray] = {}
    with TPUSession(program, **options) as session:
        session.initialize()
        weights[0] = session.value("w")
        losses = []
        for _ in range(2 * LOOP):  # one by one, for the weights before the last step of a loop
            losses += session.train(1)
            weights[len(losses)] = session.value("w")
        session.initialize()
        assert session.train(2 * LOOP, on_summary=lambda step, data: seen.update({step: shown(data)})) == pytest.approx(
            losses, rel=1e-5
        )
    assert sorted(seen) == [LOOP, 2 * LOOP]
    for step, found in seen.items():
        assert found["weights"] == pytest.approx(weights[step].sum(), rel=1e-5)
        assert found["length"] == pytest.approx(np.linalg.norm(weights[step]), rel=1e-5)
        assert found["loss"] == pytest.approx(losses[step - 1], rel=1e-5)
        assert found["rate"] == pytest.approx(RATE * 0.5 ** ((step - 1) / 10), rel=1e-5)
        both = [float(word) for word in found["both"].decode().split(",")]
        assert both == pytest.approx([weights[step - 1].sum(), losses[step - 1]], rel=1e-4, abs=1e-5)


def test_the_command_line_writes_them(program: Program, tmp_path: Path) -> None:
    program.save(tmp_path / "model.pb")
    out = tmp_path / "out"
    assert cli.main(["run", str(tmp_path / "model.pb"), f"--model_dir={out}", f"--steps={2 * LOOP}"]) == 0
    lengths = {step: value for step, tag, value in estimators.scalars_in(out) if tag == "length"}
    weights = tf.train.load_variable(str(out), "w")
    assert sorted(lengths) == [LOOP, 2 * LOOP]
    assert lengths[2 * LOOP] == pytest.approx(np.linalg.norm(weights), rel=1e-5)


def test_an_estimator_writes_them(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        spec = estimators.linear_fn(features, labels, mode, params)
        tf1.summary.scalar("length", tf.norm(tf1.trainable_variables()[0]))
        return spec

    trained = estimators.estimator(tmp_path, model_fn, save_summary_steps=4).train(estimators.input_fn, max_steps=8)
    lengths = {step: value for step, tag, value in estimators.scalars_in(tmp_path) if tag == "length"}
    assert lengths == {step: pytest.approx(np.linalg.norm(estimators.by_hand(step)[1]), rel=1e-4) for step in (4, 8)}
    assert lengths[8] == pytest.approx(np.linalg.norm(trained.get_variable_value("w")), rel=1e-5)


def test_a_graph_without_other_summaries() -> None:
    def alone() -> None:
        features, targets, weights = linear(4)
        tf1.summary.histogram("weights", weights)
        loss = tf.reduce_mean(squared_error(features, targets, weights))
        SGD(RATE).minimize(loss, tf1.train.get_or_create_global_step(), name="train")

    seen: list[dict[str, Any]] = []
    program = convert(trace(alone), num_replicas=2, iterations_per_loop=LOOP)
    names = {node.name for node in graphdef.from_graph_def(program.graph_def)}
    assert ("tpugraph/summaries" in names, "tpugraph/state_summaries" in names) == (False, True)
    with TPUSession(program) as session:
        session.train(LOOP, on_summary=lambda _, data: seen.append(shown(data)))
        assert seen == [{"weights": pytest.approx(session.value("w").sum(), rel=1e-5)}]
