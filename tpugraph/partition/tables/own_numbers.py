"""Numbers of rows as the core counts them that holds the rows."""

from __future__ import annotations

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Graph, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.partition.collectives import Collectives
from tpugraph.partition.tables.shards import Layout


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

        A row of another core gets the number of the room behind the shard's rows. What is the number of no row at all is -1:
        where the whole table would refuse it, so does the shard.
        """
        if numbers not in self._made:
            self._made[numbers] = self._make(numbers)
        return self._made[numbers]

    def _make(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        layout, kind, shape = self._layout, numbers.dtype, numbers.shape
        make = Builder(self._graph, f"{numbers.node.name}/own", marks={CLUSTER_ATTR: CLUSTER}, source=numbers.node)
        zero, none = make.constant(0, kind, name="first"), make.constant(-1, kind, name="none")
        piece = make.constant(layout.piece, kind, name="piece")
        core = self._collectives.cast(self._collectives.own_id(numbers), kind)
        start = make.add("Mul", [core, piece], (), name="start")

        def within(value: Tensor, end: Tensor) -> Tensor:
            least = make.add("GreaterEqual", [value, zero], shape)
            return make.add("LogicalAnd", [least, make.add("Less", [value, end], shape)], shape)

        valid = within(numbers, make.constant(np.asarray(layout.rows), kind, name="rows"))
        known = make.add("SelectV2", [valid, numbers, none], shape, name="known")
        local = make.add("Sub", [known, start], shape, name="local")
        own = within(local, piece)
        foreign = make.add("SelectV2", [valid, piece, none], shape, name="foreign")
        return make.add("SelectV2", [own, local, foreign], shape, name="numbers"), own
