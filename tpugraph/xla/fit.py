"""Ways to lay a step on a mesh: what is tried, one measure after another, until the step fits a core."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from tpugraph import ops
from tpugraph.ir import Graph
from tpugraph.ir.walks import variable_of
from tpugraph.xla.mesh import DATA, most_dividing, optimizer_variables
from tpugraph.xla.module import HELD, Module, Value

MODEL = "model"
"""The axis along which variables are sharded."""

_WHOLE, _OPTIMIZER, _TABLES = "every device holds all variables", "optimizer sharded", "tables by rows"
_ALONG_MODEL = {f"variables along {MODEL} on {count} devices": count for count in (2, 4, 8)}

MEASURES = (_WHOLE, _OPTIMIZER, _TABLES, *_ALONG_MODEL)
"""How variables may lie, the one with the fewest collectives first; each goes on from those before it that took less memory."""

_LARGE = 1 / 1000
"""The share of the bytes of all variables from which a variable is worth sharding."""


@dataclass(frozen=True)
class Way:
    """One way: what it is in words, and the flags of a command line that takes it."""

    what: str
    mesh: str
    shard: tuple[str, ...] = ()
    shard_optimizer: str = ""

    @property
    def flags(self) -> str:
        told = [f"--mesh={self.mesh}", *(f"--shard='{rule}'" for rule in self.shard)]
        return " ".join([*told, *([f"--shard_optimizer={self.shard_optimizer}"] if self.shard_optimizer else [])])


def way(measures: Collection[str], module: Module, tables: Collection[str], devices: int, rows: int) -> Way | None:
    """The way that takes some measures, of those along ``model`` the last one; None where that one shards nothing more.

    Args:
        measures: some of ``MEASURES``, in their order.
        module: the step, lowered for one core.
        tables: the variables whose rows the step reads by number.
        devices: how many there are.
        rows: of the batch, which the devices along ``data`` divide.
    """
    along = [measure for measure in measures if measure in _ALONG_MODEL]
    count = _ALONG_MODEL[along[-1]] if along else 1
    data = devices // count if along else most_dividing(rows, devices)
    slots = optimizer_variables(module)
    if (along and (devices % count or rows % data)) or (_OPTIMIZER in measures and not slots):
        return None
    if data == 1 and not along and {_OPTIMIZER, _TABLES} & set(measures):
        return None  # there is nothing to shard along
    held = [value for value in module.arguments if value.kind in HELD and value.name not in slots]
    least = sum(value.bytes for value in held) * _LARGE
    large = [value for value in held if value.bytes >= least and value.shape]
    of_rows = [value for value in large if value.name in tables]
    others = [value for value in large if value not in of_rows and len(value.shape) > 1]
    axes = {DATA: data} if _TABLES in measures else {}
    axes |= {MODEL: count} if along else {}
    by_rows = _rules(held, of_rows, partial(_first, "+".join(axes), math.prod(axes.values()))) if axes else ()
    columns = _rules(held, others, partial(_largest, MODEL, count)) if along else ()
    if axes and not columns and (not by_rows or len(axes) > 1):
        return None
    taken = [measure for measure in measures if measure not in (_WHOLE, *along[:-1])]
    mesh = f"{DATA}:{data}" + (f",{MODEL}:{count}" if along else "")
    return Way(", ".join(taken) or _WHOLE, mesh, (*by_rows, *columns),
               DATA if _OPTIMIZER in measures else "")  # fmt: skip


def tables_of(graph: Graph) -> list[str]:
    """The names of the variables whose rows a TPU graph reads by number."""
    through = ops.SAME_VARIABLE | ops.READS | ops.IDENTITIES
    read = (variable_of(node.inputs[0], through) for node in graph.of_type(*ops.GATHERS, *ops.LOOKUPS))
    return list(dict.fromkeys(variable.name for variable in read if variable is not None))


def _first(axes: str, count: int, value: Value) -> tuple[str, ...]:
    """The first dimension that the devices divide, of a table its rows."""
    return _along(axes, value, next((d for d, size in enumerate(value.shape) if size % count == 0), None))


def _largest(axes: str, count: int, value: Value) -> tuple[str, ...]:
    """The largest dimension that the devices divide: between two layers that widen and narrow nothing is combined."""
    fits = [d for d, size in enumerate(value.shape) if size % count == 0]
    return _along(axes, value, max(fits, key=lambda d: (value.shape[d], d), default=None))


def _along(axes: str, value: Value, dimension: int | None) -> tuple[str, ...]:
    return () if dimension is None else tuple(axes if d == dimension else "-" for d in range(len(value.shape)))


def _rules(held: list[Value], chosen: list[Value], spec_of: Callable[[Value], tuple[str, ...]]) -> tuple[str, ...]:
    """One rule for all variables that are sharded alike; a number in a name stands for any where no other variable is meant."""
    specs = {value: spec for value in chosen if (spec := spec_of(value))}
    patterns: dict[tuple[str, ...], dict[str, None]] = {}
    for value, spec in specs.items():
        any_number = re.sub(r"\d+", r"\\d+", re.escape(value.name))
        alike = all(specs.get(other) == spec for other in held if re.fullmatch(any_number, other.name))
        patterns.setdefault(spec, {})[any_number if alike else re.escape(value.name)] = None
    return tuple(f"{'|'.join(names)}={','.join(spec)}" for spec, names in patterns.items())
