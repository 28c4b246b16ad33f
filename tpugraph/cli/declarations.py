"""What a command and a flag are, as data. Needs no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        name: with underscores; dashes are accepted too.
        kind: ``string``, ``integer``, ``float``, ``boolean``, ``enum``, ``list`` (comma-separated) or ``repeated``.
        default: its value when it is not given.
        help: one sentence.
        values: what an ``enum`` may be.
        short: a one-letter name.
        shown: how the value is written in the help.
        lowest: the smallest value of a number.
    """

    name: str
    kind: str
    default: Any
    help: str
    values: tuple[str, ...] = ()
    short: str | None = None
    shown: str = ""
    lowest: int | None = None


@dataclass(frozen=True)
class Command:
    """One command: what it takes and how it is explained.

    Attributes:
        name: its name, which is that of its module too unless ``module`` names another.
        takes_model: whether it takes an argument.
        summary: what it does, in a line.
        text: what it does, at length.
        examples: command lines, the simplest one first.
        flags: its flags.
        other: what a second argument is called; "" where it takes none.
        model: what the argument is called.
        tensorflow: whether it needs TensorFlow.
        module: the module below ``tpugraph.cli`` where that is not the name.
    """

    name: str
    takes_model: bool
    summary: str
    text: str
    examples: tuple[str, ...]
    flags: tuple[Flag, ...]
    other: str = ""
    model: str = "MODEL"
    tensorflow: bool = True
    module: str = ""
