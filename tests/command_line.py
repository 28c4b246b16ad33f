"""The command line, run in this process."""

import json
from typing import Any

import pytest

from tpugraph import cli


class Command:
    """Runs commands, and gives what each printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> Any:
        """``out`` and ``err`` of a command that ends with a code."""
        self._capsys.readouterr()
        assert cli.main(list(map(str, words))) == code
        return self._capsys.readouterr()

    def refused(self, *words: object) -> str:
        """The error of a command that is refused."""
        return str(self(*words, code=2).err)

    def json(self, *words: object) -> Any:
        """The object that a command prints with --json."""
        return json.loads(self(*words, "--json").out)
