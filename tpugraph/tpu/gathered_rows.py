"""The host side of the outfeed where padding is cut off: the true rows of all cores, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.tpu.host_epilogue import TIMES


class GatheredRows:
    """The host side of the outfeed: of each tensor what arrives from each core, the number of rows first."""

    def __init__(self, graph: Graph, arriving: list[list[Tensor]]) -> None:
        self.graph = graph
        self.counts = arriving[0]
        self.arriving = arriving
        self._sizes: dict[tuple[int, int, int], Tensor] = {}
        self._make = Builder(graph, "tpugraph/rows", device=HOST_DEVICE)
        total = self._total()
        some = self._make.add("Greater", [total, self._constant(0)], (), name="any")
        self.some = some
        self.total = self._if_any(total)
        self.pivot = self._make.add("Identity", [self.total], (), name="pivot").node
        add_results(graph, rows=str(total), some=str(some), pivot=self.pivot.name)

    def gathered(self, index: int, what: Node) -> Tensor:
        """The true rows of all cores; for index 0 how many they are."""
        if index == 0:
            return self.total
        parts = [self._true_rows(core, index, what.attr(TIMES)) for core in range(len(self.counts))]
        whole = parts[0]
        if len(parts) > 1:
            shape = what.out().shape
            whole = self._make.add("ConcatV2", [*parts, self._constant(0)], shape, name=f"concat/{index}")
        return self._if_any(whole)

    def guard_writes(self) -> None:
        """Nothing is written in a step without rows."""
        frame_of = analysis.frames(self.graph)
        device = analysis.in_cluster
        step = self.graph.ancestors(self.graph[name] for name in self.graph.roles.roots)
        for node in step:
            if node.op in ops.WRITES and not device(node) and not frame_of[node]:
                self.graph.add_control(node, self.pivot)

    def _total(self) -> Tensor:
        counts = self.counts
        whole = counts[0]
        if len(counts) > 1:
            whole = self._make.add("AddN", counts, (1,), name="sum")
        return self._make.add("Reshape", [whole, self._constant(np.zeros(0))], (), name="rows")

    def _true_rows(self, core: int, index: int, times: int) -> Tensor:
        tensor = self.arriving[index][core]
        shape = tensor.shape or ()
        begin = self._constant(np.zeros(len(shape)))
        size = self._size(core, len(shape), times)
        return self._make.add("Slice", [tensor, begin, size], (None, *shape[1:]), name=f"core_{core}/{index}")

    def _size(self, core: int, rank: int, times: int) -> Tensor:
        """The size of a slice that has a core's true rows and all else."""
        if (core, rank, times) not in self._sizes:
            size = self.counts[core]
            if times != 1:
                size = self._make.add("Mul", [size, self._constant(times)], (1,), name=f"core_{core}/times")
            if rank > 1:
                rest, axis = self._constant(np.full(rank - 1, -1)), self._constant(0)
                size = self._make.add("ConcatV2", [size, rest, axis], (rank,), name=f"core_{core}/size")
            self._sizes[core, rank, times] = size
        return self._sizes[core, rank, times]

    def _if_any(self, tensor: Tensor) -> Tensor:
        shapes = (tensor.shape, tensor.shape)
        return self._make.node("Switch", [tensor, self.some], name="if_any", shapes=shapes).out(1)

    def _constant(self, value: Any) -> Tensor:
        return self._make.constant(np.asarray(value, "int32"))
