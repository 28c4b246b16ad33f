"""Words of reports and errors that depend on numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural: ``1 step``, ``2,000 steps``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_few(texts: Sequence[str], most: int) -> str:
    """The first of some texts and how many others there are: ``a, b``, ``a, b and 3 more``."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def first_of(names: Sequence[str]) -> str:
    """The first of some names and how many others there are: ``'w'``, ``'w' and 3 more``."""
    return first_few([f"'{name}'" for name in names], 1)


_NAMES_AND_NUMBERS = re.compile(r"'[^']*'|\S*/\S*|\d[\d,.]*")


def folded(lines: Iterable[str], most: int = 3) -> list[str]:
    """Lines, with runs of more than ``most`` that differ only in names and numbers folded into one with a count."""
    made = []
    for _, group in groupby(lines, lambda line: _NAMES_AND_NUMBERS.sub("#", line)):
        alike = list(group)
        made += alike if len(alike) <= most else [f"{alike[0]} (and {len(alike) - 1} more like it)"]
    return made
