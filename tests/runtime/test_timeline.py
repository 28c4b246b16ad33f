"""The timeline of a run: what each part did when, what bound the run, and the file that Perfetto opens."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from command_line import Command
from models import finish, rows_of, squared_error, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import Graph
from tpugraph.runtime.session import TPUSession
from tpugraph.runtime.timeline import DEVICE, INFEED, INPUT, MEASURING, OUTFEED, SAVE, Span, Timeline, union
from tpugraph.support.errors import CheckpointError

IRIS = Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn"
RUN = ("run", IRIS / "model.pb", "--num_replicas=2", "--iterations_per_loop=3")


def timeline(*spans: tuple[str, float, float, int]) -> Timeline:
    found = Timeline()
    found.spans = [Span(*span) for span in spans]
    return found


def test_what_bounds_a_run() -> None:
    found = timeline(("loop", 0.0, 10.0, 1), (INPUT, 0.0, 8.0, 1), (DEVICE, 6.0, 9.0, 1), (OUTFEED, 8.5, 9.7, 1))
    expected = {DEVICE: 0.3, SAVE: 0.0, OUTFEED: 0.07, INFEED: 0.0, INPUT: 0.6, "host": 0.03}
    assert found.shares() == pytest.approx(expected)
    assert found.bound() == "input 60 %, device 30 %, outfeed 7 %, host 3 %: bound by the input"
    found = timeline(("loop", 0.0, 90.0, 1), (DEVICE, 0.0, 90.0, 1), ("loop", 90.0, 100.0, 2), (INPUT, 90.0, 92.0, 2),
                     (DEVICE, 92.0, 95.0, 2), (MEASURING, 95.0, 100.0, 2))  # fmt: skip
    assert found.bound() == "device 60 %, input 40 %: bound by the device"
    found = timeline(("loop", 0.0, 1.0, 1), (DEVICE, 0.0, 1.0, 1), ("loop", 2.0, 4.0, 2), (DEVICE, 2.0, 4.0, 2),
                     (SAVE, 4.0, 10.0, 2), ("loop", 10.0, 99.0, 3))  # fmt: skip
    assert found.bound() == "save 75 %, device 25 %: bound by saving"
    assert Timeline().bound() == "nothing was measured: no loop has ended"
    idle = Timeline(recording=False)
    with idle.loop(), idle.span(DEVICE):
        pass
    assert idle.spans == []
    assert union([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (3.5, 4.0)], gap=0.5) == [(0.0, 4.0), (5.0, 6.0)]


def slow_input(size: int) -> Graph:
    """A small linear model whose rows cost a chain of products of matrices each."""

    def build() -> None:
        features, targets = rows_of(64, 3)

        def work(row: Any, target: Any) -> Any:
            matrix = tf.random.normal([size, size], seed=1)
            for _ in range(4):
                matrix = tf.tanh(matrix @ matrix)
            return row + 1e-9 * tf.reduce_sum(matrix), target

        data = tf.compat.v1.data.Dataset.from_tensor_slices((features, targets)).repeat().map(work)
        rows, wanted = tf.compat.v1.data.make_initializable_iterator(data.batch(8, drop_remainder=True)).get_next()
        weights = variable("weights", (3, 1))
        finish(tf.reduce_mean(squared_error(rows, wanted, weights)), tf.compat.v1.train.GradientDescentOptimizer(0.01))

    return trace(build)


@pytest.mark.parametrize("engine", ["emulator", "pjrt"])
def test_a_slow_input_bounds_the_run(engine: str) -> None:
    found = Timeline()
    program = convert(slow_input(300), num_replicas=2, iterations_per_loop=4)
    with TPUSession(program, engine=engine, timeline=found) as session:
        session.train(12)
    assert found.shares()[INPUT] > 0.6, found.shares()
    assert_trace_event_format(found.as_chrome())
    assert found.bound().endswith("bound by the input")


def test_three_parts_at_once_are_three_rows() -> None:
    found = Timeline()
    program = convert(IRIS / "model.pb", num_replicas=2, iterations_per_loop=3)
    with TPUSession(program, queues=True, timeline=found) as session:
        session.train(6)
    assert {span.part for span in found.spans} == {"loop", INFEED, DEVICE, OUTFEED}
    assert {span.loop for span in found.spans} == {1, 2}
    assert_trace_event_format(json.loads(json.dumps(found.as_chrome())))


EVENT = {"M": {"name": str, "ph": str, "pid": int, "tid": int, "args": dict},
         "X": {"name": str, "cat": str, "ph": str, "pid": int, "tid": int, "ts": float, "dur": float, "args": dict}}  # fmt: skip
"""The fields of the Trace Event Format by the phase of an event: metadata, and complete events in microseconds."""
METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "thread_sort_index": ("sort_index", int)}


def assert_trace_event_format(found: dict[str, Any]) -> None:
    """Hold a timeline against the object form of the Trace Event Format, and against what importers make of a row.

    Slices of a row must nest or lie behind each other: Perfetto's importer drops those that overlap otherwise.
    """
    assert found.keys() == {"traceEvents", "displayTimeUnit", "otherData"}
    assert found["displayTimeUnit"] in ("ms", "ns")
    ends: dict[tuple[int, int], list[float]] = {}
    for event in sorted(found["traceEvents"], key=lambda event: (event.get("ts", -1), -event.get("dur", 0))):
        form = EVENT[event["ph"]]
        assert event.keys() == form.keys(), event
        assert all(isinstance(event[key], (int, float) if kind is float else kind) for key, kind in form.items()), event
        if event["ph"] == "M":
            name, kind = METADATA[event["name"]]
            assert isinstance(event["args"][name], kind), event
            continue
        assert event["ts"] >= 0, event
        assert event["dur"] >= 0, event
        around = ends.setdefault((event["pid"], event["tid"]), [])
        while around and around[-1] <= event["ts"] + 0.1:  # times are rounded to a tenth of a microsecond
            around.pop()
        assert not around or event["ts"] + event["dur"] <= around[-1] + 0.1, event
        around.append(event["ts"] + event["dur"])


def test_the_command_line_writes_what_perfetto_opens(tmp_path: Path, command: Command) -> None:
    place = tmp_path / "trace.json"
    printed = command(*RUN, "--steps=9", f"--trace={place}", f"--model_dir={tmp_path / 'out'}", "--json")
    (line,) = [line for line in printed.err.splitlines() if line.startswith("time: ")]
    assert ": bound by " in line
    assert line.endswith(f"; wrote {place}")
    found = json.loads(place.read_text())
    assert_trace_event_format(found)
    shares = json.loads(printed.out)["shares"]
    assert found["otherData"]["shares"] == {part: pytest.approx(share, abs=1e-4) for part, share in shares.items()}
    assert sum(shares.values()) == pytest.approx(1.0)
    rows = {e["tid"]: e["args"]["name"] for e in found["traceEvents"] if e["name"] == "thread_name"}
    done = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in done} >= {"loop", INPUT, DEVICE, OUTFEED, SAVE}
    assert all(rows[event["tid"]] == event["name"] and event["pid"] == 1 for event in done)
    assert [event["args"]["loop"] for event in done if event["name"] == "loop"] == [1, 2, 3]
    assert [event["args"]["loop"] for event in done if event["name"] == SAVE] == [3]
    events = EventAccumulator(str(tmp_path / "out"))
    events.Reload()
    assert events.Tags()["run_metadata"] == ["loop to step 9"]
    devices = events.RunMetadata("loop to step 9").step_stats.dev_stats
    names = {op.node_name for device in devices for op in device.node_stats}
    assert names & {node.name for node in events.Graph().node}


def test_a_run_that_fails_still_leaves_its_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   command: Command) -> None:  # fmt: skip
    place = tmp_path / "trace.json"
    full = mock.Mock(side_effect=CheckpointError("the disk is full"))
    monkeypatch.setattr("tpugraph.runtime.session.TPUSession.save", full)
    command(*RUN, "--steps=3", f"--trace={place}", f"--model_dir={tmp_path / 'out'}", code=2)
    events = json.loads(place.read_text())["traceEvents"]
    assert [e["args"]["loop"] for e in events if (e["name"], e["ph"]) == ("loop", "X")] == [1]
