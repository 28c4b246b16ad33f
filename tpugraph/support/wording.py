"""Words of reports and errors that depend on numbers."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural: ``1 step``, ``2,000 steps``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
