"""Ways to lay a step on a mesh, the one with the fewest collectives first: what is tried until the step fits a core."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial

from tpugraph import ops
from tpugraph.ir import Graph
from tpugraph.ir.walks import variable_of
from tpugraph.xla.mesh import DATA, most_dividing, optimizer_variables
from tpugraph.xla.module import HELD, Module, Value

MODEL = "model"
"""The axis along which variables are sharded."""

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


def ways(module: Module, tables: Sequence[str], devices: int, rows: int) -> Generator[Way, bool, None]:
    """The ways for so many devices: replicated variables, then more and more of them sharded.

    Send whether a way takes less memory than all before it: the later ways leave out what does not.

    Args:
        module: the step, lowered for one core.
        tables: the variables whose rows the step reads by number.
        devices: how many there are.
        rows: of the batch, which the devices along ``data`` divide.
    """
    some = most_dividing(rows, devices)
    mesh = f"{DATA}:{some}"
    yield Way("every device holds all variables", mesh)
    optimizer = DATA if (yield Way("optimizer sharded", mesh, (), DATA)) else ""
    slots = optimizer_variables(module)
    held = [value for value in module.arguments if value.kind in HELD and value.name not in slots]
    least = sum(value.bytes for value in held) * _LARGE
    large = [value for value in held if value.bytes >= least and value.shape]
    of_rows = [value for value in large if value.name in tables]
    others = [value for value in large if value not in of_rows and len(value.shape) > 1]
    rules = _rules(held, of_rows, partial(_first, DATA, some))
    kept = ["optimizer sharded"] if optimizer else []
    by_rows = bool(rules) and (yield Way(", ".join([*kept, "tables by rows"]), mesh, rules, optimizer))
    kept += ["tables by rows"] if by_rows else []
    for count in (2, 4, 8):
        axes, pieces = (f"{DATA}+{MODEL}", devices) if by_rows else (MODEL, count)
        columns = _rules(held, others, partial(_largest, MODEL, count))
        rules = (*_rules(held, of_rows, partial(_first, axes, pieces)), *columns)
        if devices % count == 0 and rows % (devices // count) == 0 and (columns or (rules and not by_rows)):
            what = f"variables along {MODEL} on {count} devices"
            yield Way(", ".join([*kept, what]), f"{DATA}:{devices // count},{MODEL}:{count}", rules, optimizer)


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
