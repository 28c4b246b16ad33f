"""The protocol of engines: a session asks nothing else of what runs its steps, so that one of another kind can take the place."""

from pathlib import Path
from typing import Any

import pytest

from models import CORPUS
from tpugraph.compiler import convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import engines, session
from tpugraph.runtime.emulator import emulation
from tpugraph.runtime.engine import Engine, Trained, TrainingLoop
from tpugraph.support.errors import RunError
from tpugraph.tpu.program import Program

IRIS = CORPUS / "iris_dnn"


class Scripted(Engine):
    """Gives losses by the number of the step, in loops of four steps at most, and says what it was asked."""

    def __init__(self, graph: Graph, ends_at: int) -> None:
        super().__init__(["scripted"])
        emulation.lower(graph)
        self.ends_at = ends_at
        self.asked: list[Any] = []

    def report(self) -> dict[str, Any]:
        return {"ends_at": self.ends_at}

    def available(self, steps: int) -> int:
        return min(steps, 4)

    def train(self, loop: TrainingLoop) -> Trained:
        self.asked.append(loop)
        left = max(self.ends_at - loop.trained, 0)
        losses = [float(loop.trained + step) for step in range(min(loop.steps, left))]
        return Trained(losses, b"curves" if loop.summaries else None)

    def flush_variables(self, fetch: Any = None) -> None:
        self.asked.append(fetch)

    def variables_changed(self) -> None:
        self.asked.append("variables changed")

    def input_changed(self) -> None:
        self.asked.append("input changed")

    def close(self) -> None:
        self.asked.append("closed")


@pytest.fixture(scope="module")
def program() -> Program:
    return convert(graphdef.load(IRIS / "model.pb"), num_replicas=2, iterations_per_loop=5)


@pytest.fixture
def scripted(program: Program, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose engine is scripted; its data end behind step 9."""
    monkeypatch.setattr(engines, "create", lambda graph, chosen, place, **options: (chosen, Scripted(graph, ends_at=9)))
    with session.TPUSession(program) as opened:
        yield opened


def test_a_session_trains_by_what_the_engine_gives(scripted: session.TPUSession) -> None:
    engine = scripted.engine
    assert isinstance(engine, Scripted)
    assert (scripted.report["ends_at"], scripted.notes) == (9, ["scripted"])
    scripted.restore(IRIS / "model.ckpt-0")
    seen: list[list[float]] = []
    assert scripted.train(12, on_loop=lambda step, losses: seen.append(losses)) == [float(i) for i in range(9)]
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    loops = [asked for asked in engine.asked if isinstance(asked, TrainingLoop)]
    assert [(loop.steps, loop.following, loop.trained) for loop in loops] == [(4, 5, 0), (4, 4, 4), (4, 0, 8)]
    assert scripted.notes[-1] == "the data ended after 9 steps"


def test_an_engine_hears_of_what_changes_outside_of_it(scripted: session.TPUSession, tmp_path: Path) -> None:
    engine = scripted.engine
    assert isinstance(engine, Scripted)
    scripted.restore(IRIS / "model.ckpt-0")
    assert [asked for asked in engine.asked if str(asked).endswith("changed")] == ["input changed", "variables changed"]
    engine.asked.clear()
    scripted.save(tmp_path / "model.ckpt")
    assert engine.asked == ["tpugraph/global_step:0", None]  # the step for the name, then every variable
    scripted.initialize()
    assert engine.asked[-2:] == ["input changed", "variables changed"]
    scripted.close()
    assert engine.asked[-1] == "closed"
    with pytest.raises(RunError, match="the session is closed"):
        scripted.train(1)
