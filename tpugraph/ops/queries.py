"""Queries over the records of all op types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tpugraph.ops import (
    arithmetic,
    container,
    control_flow,
    convolution,
    gather,
    host,
    input,
    loss,
    matrix,
    normalisation,
    random,
    reduction,
    shape,
    sparse,
    string,
    tpu,
    variable,
)
from tpugraph.ops.record import Op, Role, records

PAGES = (arithmetic, container, control_flow, convolution, gather, host, input, loss, matrix, normalisation, random,
         reduction, shape, sparse, string, tpu, variable)  # fmt: skip
"""The pages; importing them makes the records."""

_T = TypeVar("_T")


def having(holds: Callable[[Op], bool]) -> frozenset[str]:
    """The op types whose record satisfies a condition."""
    return frozenset(name for name, record in records().items() if holds(record))


def with_role(*roles: Role) -> frozenset[str]:
    """The op types with one of the roles."""
    return having(lambda record: record.role in roles)


def facts_by_op(fact: Callable[[Op], _T | None]) -> dict[str, _T]:
    """A fact of each op type whose record has it."""
    found = {name: fact(record) for name, record in records().items()}
    return {name: value for name, value in found.items() if value is not None}


def computing(*functions: Callable[..., Any]) -> frozenset[str]:
    """The op types that compute one of some functions of NumPy, element by element."""
    return having(lambda record: record.computes in functions)


def reducing(*reduce_ops: str) -> frozenset[str]:
    """The reductions over the dimensions that operand 1 names that join elements in one of some ways."""
    return having(lambda record: record.dims == "reduce" and record.reduce_op in reduce_ops)
