"""Numbers of rows as the core counts them that holds the rows."""

from __future__ import annotations

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.collectives import Collectives
from tpugraph.tables.shards import Layout

FIRST, LAST = -(2**31), 2**31 - 1
"""The numbers that cores exchange."""


class OwnNumbers:
    """Makes numbers of a table's rows those of the core's own.

    Args:
        graph: the graph.
        collectives: knows the number of the core.
        layout: how the rows are dealt out.
    """

    def __init__(self, graph: Graph, collectives: Collectives, layout: Layout) -> None:
        self._graph = graph
        self._collectives = collectives
        self._layout = layout
        self._made: dict[Tensor, tuple[Tensor, Tensor]] = {}

    def of(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers within the core's shard, and which of them are its own (bool), both in the shape of the numbers.

        A row of another core gets the number of the room behind the shard's rows. What is the number of no row at all stays
        as it is: where the whole table would refuse it, so does the shard.
        """
        if numbers not in self._made:
            self._made[numbers] = self._make(numbers)
        return self._made[numbers]

    def exchanged(self, numbers: Tensor) -> Tensor:
        """Numbers as cores exchange them, in 32 bits: what is beyond these, and the number of no row, becomes the last of them."""
        if numbers.dtype != attrs.dtype("int64"):
            return numbers
        kind, shape, make = numbers.dtype, numbers.shape, self._builder(numbers)
        least = make.add("Maximum", [numbers, make.constant(FIRST, kind, name="least")], shape, name="from_least")
        return make.add("Minimum", [least, make.constant(LAST, kind, name="most")], shape, name="to_most")

    def _builder(self, numbers: Tensor) -> Builder:
        return Builder(self._graph, f"{numbers.node.name}/own", marks={CLUSTER_ATTR: CLUSTER}, source=numbers.node)

    def _make(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        kind, shape, make = numbers.dtype, numbers.shape, self._builder(numbers)
        valid = _within(make, numbers, make.constant(self._layout.rows, kind, name="rows"))
        piece = make.constant(self._layout.piece, kind, name="piece")
        core = self._collectives.cast(self._collectives.own_id(numbers), kind)
        local = make.add("Sub", [numbers, make.add("Mul", [core, piece], (), name="start")], shape, name="local")
        own = make.add("LogicalAnd", [valid, _within(make, local, piece)], shape, name="own")
        foreign = make.add("SelectV2", [valid, piece, numbers], shape, name="foreign")
        return make.add("SelectV2", [own, local, foreign], shape, name="numbers"), own


def _within(make: Builder, numbers: Tensor, end: Tensor) -> Tensor:
    """Which numbers are at least zero and below an end."""
    zero = make.constant(0, numbers.dtype, name="first")
    least = make.add("GreaterEqual", [numbers, zero], numbers.shape)
    return make.add("LogicalAnd", [least, make.add("Less", [numbers, end], numbers.shape)], numbers.shape)
