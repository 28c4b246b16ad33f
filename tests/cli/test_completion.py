"""Shell completion: bash completes what is typed, and the script names every command and flag."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import Command
from tpugraph.cli.commands import COMMANDS

SECONDS = 60
"""How long a shell on a busy machine is waited for."""


@pytest.fixture
def script(command: Command) -> str:
    return str(command("completion", "bash").out)


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


@pytest.mark.needs_program("bash")
def test_a_real_shell_completes_what_is_typed(tmp_path: Path, script: str) -> None:
    (tmp_path / "my model.pb").touch()
    (tmp_path / "script").write_text(script)
    load = 'PS1=; tpugraph() { echo "<$*>"; }; source ./script'  # the command that is completed prints its arguments
    typing = Typing(["bash", "--norc", "--noprofile", "-i"], tmp_path)
    try:
        typing.type(f"{load}; echo re''ady\n", "\nready")
        for typed, run in [
            ("in\t", "inspect"),
            ("completion b\t", "completion bash"),
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


def test_every_command_and_flag_is_there(script: str) -> None:
    for command in COMMANDS.values():
        assert command.name in script
        for flag in command.flags():
            assert f"--{flag.name}" in script


def test_it_needs_no_tensorflow() -> None:
    code = (
        "import sys; from tpugraph import cli; cli.main(['completion', 'bash']); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
