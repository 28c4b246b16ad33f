"""The curves of ``tpugraph run``: event files as TensorBoard reads them, and the graph beside the checkpoints."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from command_line import Command
from tpugraph import cli
from tpugraph.cli.curves import Curves
from tpugraph.ir import graphdef

IRIS = Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn"
FLAGS = ("--num_replicas=2", "--iterations_per_loop=3")


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def curve(events: EventAccumulator, tag: str) -> dict[int, float]:
    return {point.step: point.value for point in events.Scalars(tag)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of 6 and 3 steps into one folder: ``out``, with ``losses.jsonl`` beside it."""
    folder = tmp_path_factory.mktemp("curves")
    common = ["run", str(IRIS / "model.pb"), f"--model_dir={folder / 'out'}", f"--losses={folder / 'losses.jsonl'}"]
    assert cli.main([*common, *FLAGS, "--steps=6"]) == 0
    assert cli.main([*common, *FLAGS, "--steps=3"]) == 0
    return folder


def test_tensorboard_shows_losses_rates_summaries_and_the_graph(trained: Path, command: Command) -> None:
    events = read(trained / "out")
    lines = map(json.loads, (trained / "losses.jsonl").read_text().splitlines())
    losses = {line["step"]: line["loss"] for line in lines}
    assert curve(events, "loss") == {step: pytest.approx(losses[step]) for step in (3, 6, 9)}
    assert set(events.Tags()["scalars"]) >= {"loss", "global_step/sec", "examples/sec", "accuracy"}
    steps, rows = curve(events, "global_step/sec"), curve(events, "examples/sec")
    assert {step: rows[step] / steps[step] for step in steps} == {step: pytest.approx(32) for step in (3, 6, 9)}
    assert any(node.op == "TPUReplicateMetadata" for node in read(trained / "out").Graph().node)
    assert "model.meta: MetaGraphDef, a plain graph" in command("inspect", trained / "out").out
    given = graphdef.sniff(IRIS / "model.pb").graph_def
    assert graphdef.sniff(trained / "out").graph_def == given


def test_runs_of_one_second_are_read_in_their_order(tmp_path: Path) -> None:
    graph_def = graphdef.sniff(IRIS / "model.pb").graph_def
    for step in range(12):
        curves = Curves(str(tmp_path), str(IRIS / "model.pb"), graph_def, None, step)
        curves.loop(step + 1, [float(step)])
        curves.close()
    assert curve(read(tmp_path), "loss") == {step + 1: step for step in range(12)}


def test_the_graph_of_an_estimator_in_its_own_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "graph.pbtxt").write_text("node {name: 'theirs' op: 'NoOp'}")
    assert cli.main(["run", str(IRIS / "model.pb"), f"--model_dir={tmp_path}", *FLAGS, "--steps=3"]) == 0
    assert not (tmp_path / "model.meta").exists()


def test_a_graph_without_summaries_still_has_a_curve_of_its_loss(tmp_path: Path) -> None:
    clock = iter([0.0, 2.0, 3.0])
    curves = Curves(str(tmp_path), str(IRIS / "model.pb"), graphdef.sniff(IRIS / "model.pb").graph_def, None, 10,
                    clock=lambda: next(clock))  # fmt: skip
    curves.loop(14, [0.5, 0.25, 0.125, 0.5])
    curves.loop(18, [0.75] * 4)
    curves.close()
    events = read(tmp_path)
    assert curve(events, "loss") == {14: 0.5, 18: 0.75}
    assert curve(events, "global_step/sec") == {14: 2.0, 18: 4.0}
    assert "examples/sec" not in events.Tags()["scalars"]
