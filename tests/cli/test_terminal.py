"""What a terminal shows of progress, and when garbage is collected."""

import gc
import io

import pytest

from tpugraph.support.process import without_garbage_collection
from tpugraph.support.progress import Progress


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setenv("COLUMNS", "60")
    made = io.StringIO()
    made.isatty = lambda: True
    return made


def test_progress_stays_on_one_line(screen: io.StringIO) -> None:
    clock = iter(range(100))
    progress = Progress(screen, 1_000_000_000, clock=lambda: float(next(clock)))
    progress.update(123_456_789, 0.123456)
    assert [len(line) <= 59 for line in screen.getvalue().split("\r")] == [True, True]


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
