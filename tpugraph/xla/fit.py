"""Ways to lay a step on a mesh, the one with the fewest collectives first: what is tried until the step fits a core."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tpugraph import ops
from tpugraph.ir import Graph
from tpugraph.ir.walks import variable_of
from tpugraph.xla.mesh import DATA, Layout, optimizer_variables
from tpugraph.xla.module import HELD, Module, Value

MODEL = "model"
"""The axis along which variables are sharded."""

_LARGE = 1 / 200
"""The share of the bytes of all variables from which a variable is worth sharding."""


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        what: in words.
        flags: of a command line.
        layout: what these flags say.
    """

    what: str
    flags: tuple[str, ...]
    layout: Layout


def ways(module: Module, tables: Sequence[str], devices: int) -> Iterator[Way]:
    """The ways for so many devices: replicated variables, then more and more of them sharded.

    Args:
        module: the step, lowered for one core.
        tables: the variables whose rows the step reads by number.
        devices: how many there are.
    """
    yield _way("every device holds all variables", f"{DATA}:{devices}")
    yield _way("optimizer sharded", f"{DATA}:{devices}", optimizer=DATA)
    slots = optimizer_variables(module)
    held = [value for value in module.arguments if value.kind in HELD and value.name not in slots]
    of_rows = [value for value in held if value.name in tables and value.shape]
    least = sum(value.bytes for value in held) * _LARGE
    large = [value for value in held if value not in of_rows and len(value.shape) > 1 and value.bytes >= least]
    by_rows = _rules(held, [value for value in of_rows if value.shape[0] % devices == 0], lambda value: (DATA,))
    if by_rows:
        yield _way("and tables by rows", f"{DATA}:{devices}", by_rows, DATA)
    for count in (2, 4, 8):
        rows = _rules(held, [value for value in of_rows if value.shape[0] % count == 0], lambda value: (MODEL,))
        columns = _rules(held, large, partial(_along_model, count))
        if devices % count == 0 and (rows or columns):
            what = f"and variables along {MODEL} on {count} devices"
            yield _way(what, f"{DATA}:{devices // count},{MODEL}:{count}", (*rows, *columns), DATA)


def tables_of(graph: Graph) -> list[str]:
    """The names of the variables whose rows a TPU graph reads by number."""
    read = (variable_of(node.inputs[0]) for node in graph.of_type(*ops.GATHERS, *ops.LOOKUPS))
    return list(dict.fromkeys(variable.name for variable in read if variable is not None))


def _way(what: str, mesh: str, rules: Iterable[str] = (), optimizer: str = "") -> Way:
    flags = [f"--mesh={mesh}", *(f"--shard='{rule}'" for rule in rules)]
    return Way(
        what, (*flags, *([f"--shard_optimizer={optimizer}"] if optimizer else [])), Layout.parse(mesh, rules, optimizer)
    )


def _along_model(count: int, value: Value) -> tuple[str, ...]:
    """The last dimension that the devices divide."""
    fits = [d for d, size in enumerate(value.shape) if size % count == 0]
    return tuple(MODEL if d == max(fits) else "-" for d in range(len(value.shape))) if fits else ()


def _rules(held: list[Value], chosen: list[Value], spec_of: Callable[[Value], tuple[str, ...]]) -> tuple[str, ...]:
    """One rule for all variables that are sharded alike; a number in a name stands for any where no other variable is meant."""
    specs = {value: spec for value in chosen if (spec := spec_of(value))}
    patterns: dict[tuple[str, ...], dict[str, None]] = {}
    for value, spec in specs.items():
        any_number = re.sub(r"\d+", r"\\d+", re.escape(value.name))
        alike = all(specs.get(other) == spec for other in held if re.fullmatch(any_number, other.name))
        patterns.setdefault(spec, {})[any_number if alike else re.escape(value.name)] = None
    return tuple(f"{'|'.join(names)}={','.join(spec)}" for spec, names in patterns.items())
