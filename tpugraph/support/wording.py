"""Words of reports and errors that depend on numbers."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural: ``1 step``, ``2,000 steps``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_of(names: Sequence[str]) -> str:
    """The first of some names and how many others there are: ``'w'``, ``'w' and 3 more``."""
    return f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
