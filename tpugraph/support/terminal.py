"""What a terminal shows of a line: folded to its width, long names shortened in the middle, colour where it helps."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from typing import TextIO

_LABEL = re.compile(r"(?P<label>\s*\S+(?: \S+)?\s{2,})(?=\S)")
_COLOURS = {"error": "1;31", "note": "33", "fix": "32", "node": "36", "from": "2"}
_LEAST = 40
"""Columns below which nothing is folded."""


def shown(text: str, stream: TextIO) -> str:
    """Readable lines as a stream shows them: as they are, or where it is a terminal folded, and in colour where it takes any."""
    folded = fitted(text, width(stream))
    return painted(folded) if coloured(stream) else folded


def width(stream: TextIO) -> int | None:
    """The columns of the terminal that a stream is; None where it is none."""
    return max(shutil.get_terminal_size().columns, _LEAST) if stream.isatty() else None


def coloured(stream: TextIO) -> bool:
    """Whether a stream takes colours: it is a terminal that is not dumb, and NO_COLOR is empty."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fitted(text: str, columns: int | None) -> str:
    """Lines folded to so many columns, with what follows under where the text of a line begins; as they are when None."""
    return (
        text if columns is None else "\n".join(line for whole in text.split("\n") for line in _folded(whole, columns))
    )


def _folded(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    label = _LABEL.match(line)
    indent = label.end() if label else len(line) - len(line.lstrip()) + 2
    indent = indent if indent < columns // 2 else 2
    room = columns - indent
    words = " ".join(shortened(word, room) for word in line.split(" "))
    return textwrap.wrap(words, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
                         drop_whitespace=True) or [line]  # fmt: skip


def shortened(name: str, most: int) -> str:
    """A name of at most so many characters: scopes in its middle give way to dots, then letters do."""
    if len(name) <= most or most < 5:
        return name
    scopes = name.split("/")
    while len(scopes) > 2:
        del scopes[len(scopes) // 2]
        short = "/".join([*scopes[: (len(scopes) + 1) // 2], "...", *scopes[(len(scopes) + 1) // 2 :]])
        if len(short) <= most:
            return short
    half = (most - 3) // 2
    return f"{name[: most - 3 - half]}...{name[len(name) - half :]}"


def painted(text: str) -> str:
    """Lines of a report or an error with colours for the word that each begins with, where it is one of a few."""
    return "\n".join(map(_painted, text.split("\n")))


def _painted(line: str) -> str:
    found = re.match(r"(\s*)(\w+)(:?)", line)
    colour = _COLOURS.get(found[2]) if found else None
    if found is None or colour is None or not (found[3] or found[1]):
        return line
    return f"{found[1]}\x1b[{colour}m{found[2]}{found[3]}\x1b[0m{line[found.end() :]}"
