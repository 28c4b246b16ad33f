"""What a tensor can be with regard to the rows of a batch, and the table of rules that say so of each op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpugraph.ir import Node, Tensor
from tpugraph.known_values import known_value


@dataclass(frozen=True)
class Rows:
    """Rows are kept apart: dimension ``axis`` has ``outer * batch * inner`` entries, row-major."""

    axis: int
    outer: int = 1
    inner: int = 1


@dataclass(frozen=True)
class Sizes:
    """Whole numbers made of shapes: of each element how many times the number of rows it is, None where it is not.

    An element is ``WITHIN`` where what is in the rows decides it, as the longest row of a sparse tensor.
    """

    times: tuple[int | None, ...]


@dataclass(frozen=True)
class Entries:
    """Entries of rows, as of a sparse tensor: dimension 0 goes through them, and a row may have any number.

    Attributes:
        origin: what found them, and what chose among them since; only entries of one origin stand side by side.
        role: ``values``; ``rows``, indices whose column 0 is the row; ``distinct`` values of all entries and the
            ``places`` of the entries among them; ``chosen``, numbers of some entries.
        full: whether every row has an entry.
    """

    origin: tuple[str, ...]
    role: str
    full: bool = False


@dataclass(frozen=True)
class Batch:
    """The batch of one core.

    Attributes:
        rows: its rows.
        baked: whether constants of the graph may hold that number (a static batch).
        settled: names of the constants of which it is known whether they do: those that do have a state that says so.
    """

    rows: int
    baked: bool = False
    settled: frozenset[str] = frozenset()


UNIFORM = "uniform"
MIXED = "mixed"
WITHIN = -1
State = Rows | Sizes | Entries | str

Rule = Callable[[Node, Sequence[State], Batch], list[State]]
RULES: dict[str, Rule] = {}
"""The rule of each op that has one of its own."""


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of some ops."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(types, rule))
        return rule

    return register


def value_of(tensor: Tensor) -> list[int] | None:
    """The whole numbers of a tensor that constants alone decide, else None."""
    value = known_value(tensor)
    return None if value is None or value.dtype.kind not in "iu" else [int(v) for v in value.ravel()]


def rank_of(tensor: Tensor) -> int:
    """The number of dimensions."""
    return len(tensor.shape or ())


def is_level(tensor: Tensor, axis: int) -> bool:
    """Whether a uniform tensor has one value for all rows; ``axis`` counts from the end."""
    shape = tensor.shape
    if shape is None or -axis > len(shape) or shape[axis] == 1:
        return shape is not None
    if tensor.node.op == "Fill":
        return True
    value = tensor.node.attr("value") if tensor.node.op == "Const" else None
    return value is not None and bool((value == value.take([0], axis)).all())


def is_flow(tensor: Tensor) -> bool:
    """Whether the tensor orders the accesses to a TensorArray; its state is that of an element."""
    return tensor.shape == () and tensor.dtype.name == "float32"
