"""Shell completion: bash, zsh and fish complete what is typed, and each script names every command and flag."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tpugraph import cli
from tpugraph.cli.commands import COMMANDS, SHELLS

SETUP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'PS1=; tpugraph() {{ echo "<$*>"; }}; source {script}'),
    "zsh": (["zsh", "-f", "-i"], 'PS1=; autoload -U compinit; compinit -D -u; '
            'tpugraph() {{ print -r -- "<$*>"; }}; source {script}'),
}  # fmt: skip
"""How a shell is started, and the line by which it loads the script; the command that is completed prints its arguments."""

SECONDS = 60
"""How long a shell on a busy machine is waited for."""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


class Typing:
    """A shell at a terminal of its own, which takes keys."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.terminal, other = pty.openpty()
        self.shell = subprocess.Popen(["setsid", "--ctty", *command], stdin=other, stdout=other, stderr=other, cwd=folder,
                                      env={**os.environ, "TERM": "dumb", "HOME": str(folder)})  # fmt: skip
        os.close(other)
        self.said = ""

    def type(self, keys: str, until: str) -> str:
        """Type, and give what stands on the screen from then until something does."""
        at = len(self.said)
        os.write(self.terminal, keys.encode())
        end = time.monotonic() + SECONDS
        while not re.search(until, self.said[at:]):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.terminal], [], [], left)[0]:
                pytest.fail(f"no {until} after {keys!r}: {self.said[at:]!r}")
            self.said += os.read(self.terminal, 65536).decode(errors="replace")
        return self.said[at:]

    def close(self) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.terminal)


@pytest.mark.parametrize("shell", [pytest.param(name, marks=pytest.mark.needs_program(name)) for name in SETUP])
def test_a_real_shell_completes_what_is_typed(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my model.pb").touch()
    (tmp_path / "script").write_text(script(shell, capsys))
    command, load = SETUP[shell]
    typing = Typing(command, tmp_path)
    try:
        typing.type(f"{load.format(script='./script')}; echo re''ady\n", "\nready")
        for typed, run in [
            ("in\t", "inspect"),
            ("completion z\t", "completion zsh"),
            ("convert --num\t8", "convert --num_replicas=8"),
            ("convert --mode=e\t", "convert --mode=eval"),
            ("view --for\th\t", "view --format=html"),
            ("run my\t", "run my model.pb"),
            ("run --checkpoint=my\t", "run --checkpoint=my model.pb"),
        ]:
            said = typing.type(f"tpugraph {typed}\n", "<.*>")
            assert f"<{run}>" in said, said
    finally:
        typing.close()


@pytest.mark.needs_program("fish")
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my model.pb").touch()
    (tmp_path / "script").write_text(script("fish", capsys))
    asked = ["in", "completion z", "convert --num", "convert --mode=e", "view --format ht", "run my"]
    lines = "; ".join(f"complete -C 'tpugraph {line}'" for line in asked)
    done = subprocess.run(["fish", "--no-config", "-c", f"source script; {lines}"], cwd=tmp_path, capture_output=True,
                          text=True, check=True, env={**os.environ, "HOME": str(tmp_path)}, timeout=SECONDS)  # fmt: skip
    found = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["inspect", "zsh", "--num_replicas", "--mode=eval", "html", "my model.pb"]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for command in COMMANDS.values():
        assert command.name in text
        for flag in command.flags():
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
