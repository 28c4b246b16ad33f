"""Which values of an evaluation or prediction keep the rows of the batch apart, so that the padding can be cut off behind them.

The placement analysis is run with one core for each row: what is sharded then along the rows makes each of its entries of one
row of the batch alone, and what the rows would be combined for mixes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet
from tpugraph.analysis.placements import Entries, Held, Placement, Replicate, Shard
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.spmd import factors
from tpugraph.spmd import rules as _rules  # registers the rules
from tpugraph.spmd.levels import level
from tpugraph.spmd.placing import Placing, Verdict
from tpugraph.tpu.padded_batch import Batch

_ = _rules


@dataclass(frozen=True)
class Blame:
    """Why a node reads rows together: the first node on the way that does, and the reason in words."""

    node: Node
    reason: str


class OwnRows:
    """The analysis of one step.

    Args:
        graph: the graph, with static shapes at the padded batch.
        batch: the padded batch.
        step: the nodes of the step.
        host: those that the host runs whatever they compute.
    """

    def __init__(self, graph: Graph, batch: Batch, step: Iterable[Node], host: Iterable[Node]) -> None:
        self.graph = graph
        before = graph.ancestors([t.node for t in batch.parts])
        made = {t.node: None for t in batch.placements}
        order = analysis.loop_order(graph, {n: None for n in step if n not in before})
        self.placing = Placing(graph, order, batch.rows, batch.placements)
        self.placing.solve()
        self.behind = graph.descendants(made, data_only=True)
        self._frame_of = analysis.frames(graph)
        self._counted = self._made_of_sizes()
        free = (
            {}
            if batch.whole
            else {n: v for n, v in self.placing.verdicts.items() if n in self.behind and n not in made}
        )
        self._asking = {n: None for n, v in free.items() if self._asks(n, v)}
        self._mixed = self._spread([*host, *self._asking])

    def rows(self, tensor: Tensor) -> Shard | Entries | None:
        """Where a tensor holds rows, each made of the same row of the batch alone; else None."""
        placement = self.placing.read(tensor)
        return placement if isinstance(placement, Shard | Entries) and tensor.node not in self._mixed else None

    def give_to_host(self, nodes: Iterable[Node]) -> None:
        """Let the host run more nodes."""
        self._mixed = self._spread([*self._mixed, *nodes])

    def mixes(self, node: Node) -> bool:
        """Whether the host runs a node on the plain batch: it reads rows together, or what is made of that."""
        return node in self._mixed

    def beside(self, node: Node) -> list[Node]:
        """The nodes that use the same containers as a node."""
        keys = {p.key for p in map(self.placing.read, node.inputs) if isinstance(p, Held)}
        return [other for key in keys for other in self.placing.users(key) if other is not node]

    def blame(self, node: Node) -> Blame:
        """The first node on the way to a node that reads rows together, or of the loop around it."""
        seen = {node}
        while before := [t.node for t in node.inputs if t.node in self._mixed and t.node not in seen]:
            node = before[0]
            seen.add(node)
        if node not in self._asking:
            node = next((n for n in self._asking if self._frame_of[n] == self._frame_of[node]), node)
        verdict = self.placing.verdicts.get(node)
        unknown = verdict is not None and verdict.why.endswith("has no partition rule")
        return Blame(
            node,
            "may combine rows of the batch (nothing is known of this op)" if unknown else "combines rows of the batch",
        )

    # ------------------------------------------------------------------ what reads rows together

    def _made_of_sizes(self) -> dict[Tensor, None]:
        """What is the same for all rows, and made of the number of rows."""
        found: dict[Tensor, None] = {}
        stack = [n.out(port) for n in self.placing.verdicts if n.op in ops.SHAPE_OF - ops.RANKS_OF
                 for port, t in enumerate(n.inputs) if isinstance(self.placing.read(t), Shard | Entries)]  # fmt: skip
        while stack:
            tensor = stack.pop()
            if tensor in found or isinstance(self.placing.read(tensor), Shard):
                continue
            found[tensor] = None
            for node in dict.fromkeys(use.node for use in tensor.node.uses(tensor.port)):
                stack += [node.out(port) for port in range(len(node.outputs or ())) if node in self.placing.verdicts]
        return found

    def _asks(self, node: Node, verdict: Verdict) -> bool:
        """Whether a node reads rows together, or makes rows of their number."""
        decides = node.inputs[-1:] if node.op in ops.SWITCH | ops.LOOP_COND else ()
        if any(t in self._counted for t in decides):
            return True
        if (
            verdict.averaged
            or verdict.cuts
            or not all(isinstance(p, Shard | Entries | Replicate | Held) for p in verdict.outputs)
        ):
            return True
        if any(not self._alike(node.inputs[i], want) for i, want in verdict.wants.items()):
            return True
        if not any(isinstance(p, Shard | Entries) for p in verdict.outputs):
            return False
        told = {*ops.record(node.op).size_operands(len(node.inputs)), *verdict.wants}
        counts = any(t in self._counted for i, t in enumerate(node.inputs) if i not in told)
        return counts or node.op in ops.RANDOM or self._told_a_number(node, verdict)

    def _alike(self, tensor: Tensor, want: Placement) -> bool:
        """Whether what is read by rows is as long as the batch, whatever that is, and the same in every row."""
        whole = isinstance(self.placing.read(tensor), Replicate)
        return whole and isinstance(want, Shard) and tensor in self._counted and level(tensor) is not None

    def _told_a_number(self, node: Node, verdict: Verdict) -> bool:
        """Whether a constant says how many rows a node makes."""
        index, made = ops.record(node.op).shaped_by, verdict.outputs[0]
        if index is None or not isinstance(made, Shard) or node.inputs[index] in self._counted:
            return False
        sizes = factors.integers(node.inputs[index])
        return sizes is not None and made.axis < len(sizes) and sizes[made.axis] >= 0

    def _spread(self, mixing: list[Node]) -> NodeSet:
        """What is made of values of the whole batch; a loop that holds one is run in one place, as a whole."""
        while True:
            found = self.graph.descendants(mixing, data_only=True)
            loops = {self._frame_of[n] for n in found} - {""}
            more = [
                n for n in self.placing.verdicts if self._frame_of[n] in loops and n in self.behind and n not in found
            ]
            mixing += [n for n in more if n.op not in ops.CONSTANTS]
            if all(n.op in ops.CONSTANTS for n in more):
                return found
