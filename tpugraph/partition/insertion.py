"""Collectives where a reader wants a value otherwise than it is, made in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.placements import (
    SUM,
    Entries,
    Partial,
    PerCore,
    Placement,
    Replicate,
    Shard,
)
from tpugraph.analysis.placing import Verdict
from tpugraph.ir import Node, Tensor, attrs
from tpugraph.partition import one_row
from tpugraph.partition.collectives import Collectives
from tpugraph.partition.conversions import Conversions
from tpugraph.partition.loss_reduction import reduction
from tpugraph.partition.whole_sizes import WholeSizes


@dataclass
class Partition(Conversions):
    """One step being partitioned; what it is made of is told by :class:`~tpugraph.partition.conversions.Conversions`."""

    # ------------------------------------------------------------------ making

    def apply(self) -> None:
        """Insert what readers want, and write sizes anew where a dimension holds the whole batch."""
        placing = self.placing
        graph = placing.graph
        self.collectives = Collectives(graph, self.count)
        self._cache: dict[tuple[Tensor, Placement], Tensor] = {}
        edits = [
            (node, index, want) for node, verdict in placing.verdicts.items() for index, want in verdict.wants.items()
        ]
        reads = {(node, index): node.inputs[index] for node, index, _ in edits}
        sizes = WholeSizes(placing, self.count)
        whole = sizes.readers()
        sizes.tell_shapes()
        self._draw_alike()
        self._average()
        reduced = {t: self._reduce(t) for t in placing.met}
        for tensor, result in reduced.items():
            source = self.made_behind.get(tensor, tensor)
            for use in source.node.uses(source.port):
                if use.node in placing.verdicts:
                    graph.set_input(use.node, use.index, result)
        for node, index, want in edits:
            tensor = reads[node, index]
            if tensor in placing.met and isinstance(want, Replicate):
                continue
            self._edit(node, index, tensor, want, reduced)
        for node, is_whole in whole.items():
            sizes.resize(node, self.collectives, whole=is_whole)

    def _draw_alike(self) -> None:
        """What all cores draw alike, and what meets rows, is what core 0 draws: each core has a stream of its own."""
        graph, placing = self.placing.graph, self.placing
        random = [n for n in placing.verdicts if n.op in ops.RANDOM]
        meeting = [n for n, v in placing.verdicts.items() if random and _meets_rows(v)]
        reaching = graph.ancestors(meeting, data_only=True)
        for node in random:
            if node not in reaching:
                continue  # it feeds what is the same everywhere, in which no core differs
            for port in node.used_ports():
                tensor = node.out(port)
                if not isinstance(placing.made(tensor), Replicate):
                    continue
                uses = tensor.node.uses(port)
                drawn = self.made_behind[tensor] = self.collectives.sum(self.collectives.first(tensor))
                self._note(tensor, "what core 0 draws")
                for use in uses:
                    graph.set_input(use.node, use.index, drawn)

    def _average(self) -> None:
        """Scale the means of each core's rows to their share of the mean of all."""
        graph = self.placing.graph
        for node, verdict in list(self.placing.verdicts.items()):
            for port in verdict.averaged:
                tensor = node.out(port)
                if isinstance(self.placing.read(node.inputs[0]), Entries):
                    self._average_entries(node)
                    continue
                if self.placing.made(tensor) != SUM:
                    continue
                uses = tensor.node.uses(port)
                share = self.made_behind[tensor] = self.collectives.scaled(tensor, 1.0 / self.count)
                for use in uses:
                    graph.set_input(use.node, use.index, share)

    def _average_entries(self, node: Node) -> None:
        """A mean of entries: the sum of each core's, divided by the number of all."""
        graph, tensor, c = self.placing.graph, node.out(), self.collectives
        uses, kind = tensor.node.uses(0), tensor.dtype
        kept = {"T": kind, "Tidx": node.inputs[1].dtype, "keep_dims": bool(node.attr("keep_dims", False))}
        total = c.add("Sum", f"{node.name}/sum", list(node.inputs), kept, kind, tensor.shape, tensor)
        size = c.add("Size", f"{node.name}/size", [node.inputs[0]], {"T": kind, "out_type": _INT32}, _INT32, (), tensor)
        own = c.add("Size", f"{node.name}/own_size", [tensor], {"T": kind, "out_type": _INT32}, _INT32, (), tensor)
        each = c.add("FloorDiv", f"{node.name}/count", [c.sum(size), own], {"T": _INT32}, _INT32, (), tensor)
        mean = c.add(
            "RealDiv", f"{node.name}/share", [total, c.cast(each, kind)], {"T": kind}, kind, tensor.shape, tensor
        )
        self.made_behind[tensor] = mean
        for use in uses:
            graph.set_input(use.node, use.index, mean)

    def _edit(self, node: Node, index: int, tensor: Tensor, want: Placement, reduced: Mapping[Tensor, Tensor]) -> None:
        graph = self.placing.graph
        if node.op in ops.MERGE and tensor.node.op in ops.NEXT_ITERATION | ops.ENTER:
            self._edit(tensor.node, 0, tensor.node.inputs[0], want, reduced)  # a Merge reads nothing else
            return
        source = reduced.get(tensor, self.made_behind.get(tensor, tensor))
        key = (tensor, want)
        if key not in self._cache:
            self._cache[key] = self._convert(node, tensor, source, want)
        graph.set_input(node, index, self._cache[key])

    def notes(self) -> list[str]:
        """What the user should know of: choices that give exactness up, and what is gathered at a cost."""
        found = []
        if self.scaling is not None:
            found.append(
                f"--loss_reduction={self.scaling} decides how cores combine: the result need not be that of the whole batch"
            )
        if self.placing.d.rows == 1:
            found.append(one_row.NOTE)
        own = sorted({p.policy for v in self.placing.verdicts.values() for p in v.outputs if isinstance(p, PerCore)})
        found += [f"{policy}: the result is not that of the whole batch" for policy in own]
        return found

    def override(self, loss: Tensor) -> None:
        """Let gradients combine as the user said: as a mean, or as a sum, of what each core makes of its own rows."""
        found, _ = reduction(self.placing, loss)
        self.forward = self.placing.graph.ancestors([loss.node], data_only=True)
        if self.scaling == "sum" and found != "sum":
            self.factor = float(self.count)
        if self.scaling == "mean" and found == "sum":
            self.factor = 1.0 / self.count


def _meets_rows(verdict: Verdict) -> bool:
    """Whether a node holds rows or parts of sums, or reads an operand otherwise than it is."""
    return bool(verdict.wants) or any(isinstance(o, Shard | Entries | Partial) for o in verdict.outputs)


_INT32 = attrs.dtype("int32")
