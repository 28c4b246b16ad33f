"""What a terminal shows of progress and of a program, and when garbage is collected."""

from __future__ import annotations

import gc
import io
from pathlib import Path

import pytest

import tpugraph
from tpugraph.support.garbage import without_garbage_collection
from tpugraph.support.progress import Progress

IRIS = Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn" / "model.pb"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 60 columns."""
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


def test_progress_stays_on_one_line(screen: Terminal) -> None:
    clock = iter(range(100))
    progress = Progress(screen, 1_000_000_000, clock=lambda: float(next(clock)))
    progress.update(123_456_789, 0.123456)
    assert [len(line) <= 59 for line in screen.getvalue().split("\r")] == [True, True]


def test_a_program_has_a_short_repr() -> None:
    program = tpugraph.convert(IRIS)
    nodes = len(program.graph_def.node)
    assert repr(program) == f"<Program model.pb: {nodes} nodes, global batch 32 = 8 cores x 4>"


def test_garbage_is_collected_again_behind_an_import() -> None:
    with without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_garbage_collection():
            pass
        assert not gc.isenabled()  # as it was
    finally:
        gc.enable()
