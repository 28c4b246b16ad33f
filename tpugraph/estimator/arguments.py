"""Checks of arguments; each raises an ArgumentError or ArgumentTypeError with the value that was given."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tpugraph.support.errors import ArgumentError, ArgumentTypeError


def check_int(name: str, value: Any, *, least: int, example: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        kind = type(value).__name__
        raise ArgumentTypeError(f"{name} must be int, a whole number, but is {value!r} ({kind})", fix=example or None)
    if value < least:
        bound = "must be positive" if least == 1 else f"must be at least {least}"
        raise ArgumentError(f"{name} {bound}, but is {value}", fix=example or None)
    return value


def check_number(name: str, value: Any, *, least: float = 0, above: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentError(f"{name} must be a number, but is {value!r}")
    if value < least or (above and value == least):
        raise ArgumentError(f"{name} must be {'greater than' if above else 'at least'} {least:g}, but is {value:g}")
    return value


def check_choice(name: str, value: Any, choices: Collection[Any], *, why: str = "") -> Any:
    if value not in choices:
        listed = ", ".join(str(choice) for choice in choices)
        raise ArgumentError(f"{name} is {value!r}, but must be one of {listed}{why and f' ({why})'}")
    return value


def check_type(name: str, value: Any, kind: type | tuple[type, ...], *, what: str, fix: str | None = None) -> Any:
    if not isinstance(value, kind):
        raise ArgumentTypeError(f"{name} must be {what}, but is {value!r} ({type(value).__name__})", fix=fix)
    return value


def check_each(name: str, values: Any, kind: type, *, what: str) -> tuple[Any, ...]:
    """The values of a list; none when None."""
    if values is not None and not isinstance(values, Sequence):
        raise ArgumentTypeError(f"{name} must be a list, each {what}, but is {values!r}")
    return tuple(check_type(f"{name}: each", value, kind, what=what) for value in values or ())
