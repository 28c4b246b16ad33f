"""What a terminal shows: lines folded to its width, long names shortened in the middle, colours that can be switched off."""

from __future__ import annotations

import contextlib
import gc
import io
import re
from pathlib import Path

import pytest

import tpugraph
from tpugraph import cli
from tpugraph.cli.console import Console
from tpugraph.support import terminal
from tpugraph.support.garbage import without_garbage_collection
from tpugraph.support.progress import Progress

IRIS = Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn" / "model.pb"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 60 columns."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


def run(screen: Terminal, *words: str) -> int:
    """Run a command on a terminal."""
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        return cli.main(words)


def test_what_is_no_terminal_gets_lines_as_they_are() -> None:
    line = "note        " + "word " * 100
    assert terminal.shown(line, io.StringIO()) == line


def test_a_labelled_line_is_folded_under_its_text() -> None:
    assert terminal.fitted("loss        the loss that was found by structure, not by name", 40) == (
        "loss        the loss that was found by\n            structure, not by name"
    )
    assert terminal.fitted("short", 40) == "short"
    assert terminal.fitted("a b\nc d", 40) == "a b\nc d"


@pytest.mark.parametrize(
    ("name", "most", "short"),
    [
        ("dense/kernel", 20, "dense/kernel"),
        (
            "gradients/model/layer_0/attention/self/query/MatMul_grad/MatMul_1",
            40,
            "gradients/model/.../MatMul_grad/MatMul_1",
        ),
        ("a" * 30, 11, "aaaa...aaaa"),
        ("scope/" + "b" * 30, 15, "scope/...bbbbbb"),
    ],
)
def test_a_long_name_is_shortened_in_the_middle(name: str, most: int, short: str) -> None:
    assert terminal.shortened(name, most) == short
    assert len(short) <= most


def test_every_line_of_a_command_fits_the_terminal(screen: Terminal) -> None:
    assert run(screen, "inspect", str(IRIS)) == 0
    lines = COLOUR.sub("", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= 60
    assert "gradients/dense/MatMul_grad/MatMul_1: the sum over the" in " ".join(lines)


def test_an_error_has_colours_and_none_with_no_color(screen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(screen, "inspekt") == 2
    assert screen.getvalue().startswith("\x1b[1;31merror:\x1b[0m 'inspekt' is no command\n  \x1b[32mfix\x1b[0m")
    screen.truncate(0)
    screen.seek(0)
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(screen, "inspekt") == 2
    assert "\x1b" not in screen.getvalue()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    with contextlib.redirect_stdout(screen):
        Console().say("note: a line")
    assert "\x1b" not in screen.getvalue()


def test_a_script_for_a_shell_is_printed_as_it_is(screen: Terminal) -> None:
    assert run(screen, "completion", "bash") == 0
    assert max(map(len, screen.getvalue().splitlines())) > 60


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
