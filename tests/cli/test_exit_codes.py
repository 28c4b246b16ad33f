"""Exit codes: 0 yes, 1 the answer is no, 2 it could not be asked; by a signal 128 and its number (tests/cli/test_cli.py)."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import breaking
from command_line import Command
from models import corpus
from tpugraph import cli
from tpugraph.cli.commands import COMMANDS
from tpugraph.ir import graphdef
from tpugraph.runtime.session import TPUSession

IRIS = str(corpus("iris_dnn").folder / "model.pb")


def test_yes() -> None:
    for words in (["inspect", IRIS], ["check", IRIS], ["passes"], ["--help"], ["diff", IRIS, IRIS]):
        assert cli.main(words) == 0


def test_the_answer_is_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphdef.save(breaking.graph("crop"), tmp_path / "crop.pb")
    assert cli.main(["check", str(tmp_path / "crop.pb")]) == 1
    assert cli.main(["diff", IRIS, str(corpus("while_cond").folder / "model.pb")]) == 1
    honest = TPUSession.values
    monkeypatch.setattr(TPUSession, "values", lambda *asked: {name: value + 1 for name,
                                                              value in honest(*asked).items()})  # fmt: skip
    assert cli.main(["verify", IRIS, "--num_replicas=2", "--steps=1"]) == 1


def test_the_second_ctrl_c_ends_a_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              command: Command) -> None:  # fmt: skip
    ended = threading.Event()

    def endless_loop(*_: object, **__: object) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        ended.wait(60)

    monkeypatch.setattr(TPUSession, "train", endless_loop)
    began = time.monotonic()
    try:
        said = command("run", IRIS, "--steps=1", "--num_replicas=2", f"--model_dir={tmp_path / 'out'}", code=130).out
    finally:
        ended.set()
    assert time.monotonic() - began < 30
    assert "stopping at the end of this loop; once more to stop at once" in said
    assert "stopped in the middle of a loop after 0 steps; no checkpoint was written" in said


@pytest.mark.parametrize("command", list(COMMANDS))
def test_no_command_is_asked_about_what_is_not_there(command: str, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, "nothing.pb", *(["nothing.pb"] if command == "diff" else [])]) == 2
    assert list(tmp_path.iterdir()) == []
