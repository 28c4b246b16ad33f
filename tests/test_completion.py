"""Shell completion: bash completes as it is told to, and each script names every command and flag."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tpugraph import cli
from tpugraph.cli.table import COMMANDS, SHELLS

ANSWER = 'printf "%s\\n" "${COMPREPLY[@]}"'


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(script: str, words: list[str], cwd: Path) -> list[str]:
    """What bash offers for the last of the words; ``=`` is a word of its own there."""
    listed = " ".join(f"'{word}'" for word in words)
    body = f"{script}\ncompopt() {{ :; }}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _tpugraph\n"
    done = subprocess.run(["bash", "-c", body + ANSWER], cwd=cwd, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tpugraph", "in"], ["inspect"]),
        (["tpugraph", "convert", "--num"], ["--num_replicas="]),
        (["tpugraph", "convert", "--mode", "=", "e"], ["eval"]),
        (["tpugraph", "convert", "--mode", "="], ["train", "eval", "predict"]),
        (["tpugraph", "run", "mod"], ["model.pb"]),
        (["tpugraph", "run", "--checkpoint", "=", "mod"], ["model.pb"]),
        (["tpugraph", "completion", "z"], ["zsh"]),
        (["tpugraph", "worker", "--topo"], []),
    ],
)
def test_bash(words: list[str], found: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.pb").touch()
    assert completed(script("bash", capsys), words, tmp_path) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for command in COMMANDS.values():
        assert command.name in text
        for flag in command.flags:
            assert (f"-l {flag.name}" if shell == "fish" else f"--{flag.name}") in text


def test_quotes_in_a_help_do_not_end_the_words_of_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("zsh", "fish"):  # both quote as bash does, so far as bash reads them
        for line in script(shell, capsys).splitlines():
            bare = line.replace("\\'", "")
            assert bare.count("'") % 2 == 0, line


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bsh"]) == 2
    assert "there is no completion for 'bsh'" in capsys.readouterr().err


def test_it_needs_no_tensorflow() -> None:
    code = (
        "import sys; from tpugraph import cli; cli.main(['completion', 'bash']); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
