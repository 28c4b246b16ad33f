"""The host side of the outfeed where padding is cut off: the rows of the plain batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph, Tensor
from tpugraph.ir.builder import Builder


class GatheredRows:
    """Unpads what the outfeed hands over: the tail's inputs at the rows of the plain batch.

    Args:
        graph: the graph.
        count: how many rows the plain batch has, as it arrives.
    """

    def __init__(self, graph: Graph, count: Tensor) -> None:
        self.graph = graph
        self._sizes: dict[tuple[int, int], Tensor] = {}
        self._make = Builder(graph, "tpugraph/rows", device=HOST_DEVICE)
        self._count = self._make.add("Reshape", [count, self._constant(np.zeros(0))], (), name="rows")
        self._some = self._make.add("Greater", [self._count, self._constant(0)], (), name="any")
        self.total = self._if_any(self._count)
        self._pivot = self._make.add("Identity", [self.total], (), name="pivot").node
        add_results(graph, rows=str(self._count), some=str(self._some), pivot=self._pivot.name)

    def plain(self, tensor: Tensor, times: int) -> Tensor:
        """A tensor sliced to the plain batch, with ``times`` entries for each row (not sliced where 0), in a step that has rows."""
        if times:
            shape = tensor.shape or ()
            begin, size = self._constant(np.zeros(len(shape))), self._size(len(shape), times)
            tensor = self._make.add("Slice", [tensor, begin, size], (None, *shape[1:]), name="plain")
        return self._if_any(tensor)

    def guard_writes(self) -> None:
        """Nothing is written in a step without rows."""
        frame_of = analysis.frames(self.graph)
        device = analysis.in_cluster
        step = self.graph.ancestors(self.graph[name] for name in self.graph.roles.roots)
        for node in step:
            if node.op in ops.WRITES and not device(node) and not frame_of[node]:
                self.graph.add_control(node, self._pivot)

    def _size(self, rank: int, times: int) -> Tensor:
        """The size operand of that slice: the true rows in dimension 0, -1 elsewhere."""
        if (rank, times) not in self._sizes:
            factors, rest = np.zeros(rank), np.full(rank, -1)
            factors[0], rest[0] = times, 0
            scaled = self._make.add("Mul", [self._count, self._constant(factors)], (rank,), name="times")
            self._sizes[rank, times] = self._make.add("AddV2", [scaled, self._constant(rest)], (rank,), name="size")
        return self._sizes[rank, times]

    def _if_any(self, tensor: Tensor) -> Tensor:
        shapes = (tensor.shape, tensor.shape)
        return self._make.node("Switch", [tensor, self._some], name="if_any", shapes=shapes).out(1)

    def _constant(self, value: Any) -> Tensor:
        return self._make.constant(np.asarray(value, "int32"))
