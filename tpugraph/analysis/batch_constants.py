"""Constants of a graph that was traced with a fixed number of rows: what a second trace tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph.analysis.constant_values import constant_at
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.sizes import Poly
from tpugraph.analysis.step import SecondTrace
from tpugraph.ir import Graph, Node, Tensor


@dataclass(frozen=True)
class Told:
    """What a second trace tells; nothing where there was none.

    Attributes:
        elements: of vectors and numbers that grow with the batch, which elements do, and how.
        dims: of constants that grow with the batch, which dimensions do.
        same: the names of the constants that do not depend on the batch.
        others: the constants that depend on the batch in another way.
    """

    elements: Mapping[Tensor, Elements] = field(default_factory=dict)
    dims: Mapping[Tensor, Dims] = field(default_factory=dict)
    same: frozenset[str] = frozenset()
    others: frozenset[Tensor] = frozenset()

    def holds(self) -> list[Tensor]:
        """The constants that depend on the batch."""
        return [*self.dims, *self.others]

    def knows(self, node: Node) -> bool:
        """Whether the second trace has the constant."""
        return node.name in self.same or node.out() in self.dims or node.out() in self.others


def told(graph: Graph, rows: int, nodes: Iterable[Node]) -> Told:
    """What a second trace tells of the constants among ``nodes``.

    Args:
        graph: the graph; without a :class:`~tpugraph.analysis.step.SecondTrace` nothing is told.
        rows: the rows of a core's batch in the first trace.
        nodes: the nodes.
    """
    second = graph.kept(SecondTrace)
    at_twice = second.constants if second is not None else {}
    elements: dict[Tensor, Elements] = {}
    dims: dict[Tensor, Dims] = {}
    same, others = set(), set()
    for node in (n for n in nodes if n.outputs and n.name in at_twice):
        value, twice = constant_at(node.out()), at_twice[node.name]
        if value is None:
            continue
        numbers = None if twice is None else _growing(value, twice, rows)
        axis = None if twice is None or numbers is not None else _growing_axis(value, twice, rows)
        if twice is None:
            same.add(node.name)
        elif numbers is not None:
            elements[node.out()] = numbers
            dims[node.out()] = value.shape
        elif axis is not None:
            dims[node.out()] = tuple(Poly((0, d // rows)) if a == axis else d for a, d in enumerate(value.shape))
        else:
            others.add(node.out())
    return Told(elements, dims, frozenset(same), frozenset(others))


_Array = np.ndarray[Any, Any]


def _growing(value: _Array, twice: _Array, rows: int) -> Elements | None:
    """The elements of a small vector of numbers, each a multiple of the rows or a number of the model; else None."""
    if value.shape != twice.shape or value.ndim > 1 or value.dtype.kind not in "iuf":
        return None
    found: Elements = []
    for now, then in zip(value.ravel().tolist(), twice.ravel().tolist(), strict=True):
        if now != then and (now <= 0 or then != 2 * now or now % rows):
            return None
        found.append(Poly((0, int(now) // rows)) if now != then else int(now) if now == int(now) else None)
    return found


def _growing_axis(value: _Array, twice: _Array, rows: int) -> int | None:
    """The one dimension along which a constant whose elements are all alike grows with the rows; else None."""
    grown = [axis for axis, (a, b) in enumerate(zip(value.shape, twice.shape, strict=False)) if a != b]
    if value.ndim != twice.ndim or len(grown) != 1 or not value.size or not (twice == value.flat[0]).all():
        return None
    size = value.shape[grown[0]]
    alike = bool((value == value.flat[0]).all()) and twice.shape[grown[0]] == 2 * size
    return grown[0] if alike and not size % rows else None
