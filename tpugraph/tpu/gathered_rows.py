"""The host side of the outfeed where padding is cut off: the true rows of all cores, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.control_flow.loops import add_results
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.tpu.host_epilogue import TIMES

_INT32 = attrs.dtype("int32")
_BOOL = attrs.dtype("bool")


class GatheredRows:
    """The host side of the outfeed: of each tensor what arrives from each core, the number of rows first."""

    def __init__(self, graph: Graph, arriving: list[list[Tensor]]) -> None:
        self.graph = graph
        self.counts = arriving[0]
        self.arriving = arriving
        self._sizes: dict[tuple[int, int, int], Tensor] = {}
        total = self._total()
        some = self._add("Greater", "any", [total, self._constant(0)], {"T": _INT32}, (_BOOL, ()))
        self.some = some
        self.total = self._if_any(total)
        self.pivot = self._add("Identity", "pivot", [self.total], {"T": _INT32}, (_INT32, ())).node
        add_results(graph, rows=str(total), some=str(some), pivot=self.pivot.name)

    def gathered(self, index: int, what: Node) -> Tensor:
        """The true rows of all cores; for index 0 how many they are."""
        if index == 0:
            return self.total
        times, kind = what.attr(TIMES), what.out().dtype
        parts = [self._true_rows(core, index, times) for core in range(len(self.counts))]
        whole = parts[0]
        if len(parts) > 1:
            attributes = {"N": len(parts), "T": kind, "Tidx": _INT32}
            whole = self._add(
                "ConcatV2", f"concat/{index}", [*parts, self._constant(0)], attributes, (kind, what.out().shape)
            )
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
            whole = self._add("AddN", "sum", counts, {"N": len(counts), "T": _INT32}, (_INT32, (1,)))
        scalar = self._constant(np.zeros(0))
        return self._add("Reshape", "rows", [whole, scalar], {"T": _INT32, "Tshape": _INT32}, (_INT32, ()))

    def _true_rows(self, core: int, index: int, times: int) -> Tensor:
        tensor = self.arriving[index][core]
        kind, shape = tensor.dtype, tensor.shape or ()
        begin = self._constant(np.zeros(len(shape)))
        size = self._size(core, len(shape), times)
        cut = (None, *shape[1:])
        return self._add(
            "Slice", f"core_{core}/{index}", [tensor, begin, size], {"T": kind, "Index": _INT32}, (kind, cut)
        )

    def _size(self, core: int, rank: int, times: int) -> Tensor:
        """The size of a slice that has a core's true rows and all else."""
        if (core, rank, times) not in self._sizes:
            size = self.counts[core]
            if times != 1:
                size = self._add(
                    "Mul", f"core_{core}/times", [size, self._constant(times)], {"T": _INT32}, (_INT32, (1,))
                )
            if rank > 1:
                rest, axis = self._constant(np.full(rank - 1, -1)), self._constant(0)
                attributes = {"N": 2, "T": _INT32, "Tidx": _INT32}
                size = self._add("ConcatV2", f"core_{core}/size", [size, rest, axis], attributes, (_INT32, (rank,)))
            self._sizes[core, rank, times] = size
        return self._sizes[core, rank, times]

    def _if_any(self, tensor: Tensor) -> Tensor:
        output = (tensor.dtype, tensor.shape)
        return self._add("Switch", "if_any", [tensor, self.some], {"T": tensor.dtype}, output, output).node.out(1)

    def _constant(self, value: Any) -> Tensor:
        array = np.asarray(value, "int32")
        return self._add("Const", "const", [], {"dtype": _INT32, "value": array}, (_INT32, array.shape))

    def _add(self, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any], *outputs: Output) -> Tensor:
        name = f"tpugraph/rows/{name}"
        return self.graph.add(op, name, inputs, attrs=attributes, device=HOST_DEVICE, outputs=list(outputs)).out()
