"""How each gradient grows with the batch, read from where backpropagation spreads a loss over its rows.

A step may train on several losses. Backpropagation of a sum over the batch hands each row the same number; that of a
mean divides it by the size of the batch. Both are visible in the graph, whatever the loss is called and whether or not
anything else reads it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tpugraph import ops
from tpugraph.analysis import NodeSet
from tpugraph.constants import evaluate, is_read_from_shapes
from tpugraph.degrees import doubt_of
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.shapes import element_count


class Adjoints:
    """The kinds of loss (``mean`` or ``sum``) that each value of backpropagation comes from.

    Args:
        graph: the graph, with shapes.
        varying: the replica-varying nodes.
        forward: the nodes that the loss is computed from.
        upstream: the nodes that the raw gradients are computed from.
        batch: rows of one core's batch, or None where unknown.
        rescaled: where the traced batch was split over the cores, the constants that were re-derived for it; a division
            by any other number is one by the size of the global batch, and says nothing of one core's.
    """

    def __init__(
        self,
        graph: Graph,
        varying: NodeSet,
        forward: NodeSet,
        upstream: NodeSet,
        batch: int | None,
        *,
        rescaled: Collection[str] | None = None,
    ) -> None:
        self.graph = graph
        self.batch = batch
        self.rescaled = rescaled
        self.forward = forward
        self.doubts: dict[str, None] = {}
        self.kinds: dict[Node, frozenset[str]] = {}
        self.divisors: dict[Node, frozenset[Tensor]] = {}
        self.bent: dict[Node, None] = {}
        self._seeds: dict[Tensor, str | None] = {}
        if batch is None or batch < 2:
            return
        nothing: frozenset[Any] = frozenset()
        uniform = ops.READS | ops.VARIABLES
        for node in graph.topological_order(n for n in upstream if n in varying and n not in forward):
            kinds, divisors = nothing, nothing
            for tensor in node.inputs:
                producer = tensor.node
                if producer in varying:
                    if producer in self.kinds:
                        kinds |= self.kinds[producer]
                    if producer in self.divisors:
                        divisors |= self.divisors[producer]
                elif producer.op in uniform or producer in forward or not tensor.dtype.floating:
                    continue  # a weight: what comes back meets it on its way
                elif kind := self._seed(tensor):
                    kinds |= {kind}
            if node.op in ops.DIVISIONS and _divides_a_seed(node, varying):
                divisors |= {node.inputs[1]}
            if kinds:
                self.kinds[node] = kinds
            if "mean" in kinds and self._bends(node):
                self.bent[node] = None
            if divisors:
                self.divisors[node] = divisors

    def kind(self, tensor: Tensor) -> str | None:
        """``mean`` or ``sum`` where that is certain."""
        found = self.kinds.get(tensor.node, frozenset())
        return next(iter(found)) if len(found) == 1 else None

    def _bends(self, node: Node) -> bool:
        """Whether a node of backpropagation is not linear in what comes back, as where a custom gradient clips it."""
        operands = [t for t in node.inputs if t.node in self.kinds]
        return bool(operands) and (node.op in ops.NOT_LINEAR or (node.op == "Mul" and len(operands) > 1))

    def _seed(self, tensor: Tensor) -> str | None:
        if tensor not in self._seeds:
            self._seeds[tensor] = self._kind(tensor)
        return self._seeds[tensor]

    def _kind(self, tensor: Tensor) -> str | None:
        """What a uniform value that enters backpropagation says of its loss; None where it spreads over no rows."""
        divisions: dict[float, Tensor] = {}
        weights: set[float] = set()  # those of them that multiply: any weight is one over something
        spread, averaged, doubtful, terms = False, False, False, 0.0
        while (behind := self._behind(tensor.node)) is not None:
            node, (tensor, number, named) = tensor.node, behind
            if named is not None:
                divisions[number] = named
                weights |= {number} if node.op == "Mul" else set()
            if node.op not in ops.SPREADS:
                continue
            ratio = (element_count(node.out().shape) or 0) / (element_count(tensor.shape) or 1)
            if not self._spreads_rows(node, tensor):
                divisions.pop(ratio, None)  # the mean over another dimension
                continue
            known = ratio in divisions and divisions[ratio].node in self.forward  # the loss itself divides its rows
            averaged |= ratio in divisions and not known
            doubtful |= known or any(self._may_count(d, ratio if d in weights else 0) for d in divisions if d != ratio)
            spread, terms, divisions = True, ratio, {}
        if tensor.node.op != "Const" or not spread or not tensor.node.attr("value").all():
            return None  # zeros stand for a branch that was not taken
        whole = next((d for d in divisions if self._may_count(d, terms if d in weights else 0)), None)
        if whole is not None and not averaged:  # a loss that was divided as a whole
            self._doubt(divisions[whole], whole)
        if averaged or whole is not None:
            return "mean"
        return None if doubtful else "sum"

    def _doubt(self, number: Tensor, value: float) -> None:
        """A literal of another loss is taken for the batch size because it equals it."""
        literal = number.node not in self.forward and not is_read_from_shapes(self.graph, number)
        if literal and self.rescaled is None:
            self.doubts[doubt_of(number, value, self.batch)] = None

    def _behind(self, node: Node) -> tuple[Tensor, float, Tensor | None] | None:
        """What a node of the way back to the loss reads, and the number that it divides this by; None at the end."""
        if node.op == "Mul" or node.op in ops.DIVISIONS:
            place = 1 if node.op != "Mul" or element_count(node.inputs[1].shape) == 1 else 0
            value = evaluate(self.graph, node.inputs[place])
            if value is None or value.size != 1 or not value.all():
                return None
            number = float(value.reshape(())) if self._follows_batch(node.inputs[place]) else 1.0
            return node.inputs[1 - place], 1 / number if node.op == "Mul" else number, node.inputs[place]
        if node.op in ops.LINEAR_OPERAND:
            return node.inputs[ops.LINEAR_OPERAND[node.op]], 1.0, None
        linear = node.op in ops.LINEAR_IN_ALL and len(node.inputs) == 1 and node.inputs[0].dtype.floating
        return (node.inputs[0], 1.0, None) if linear else None

    def _follows_batch(self, number: Tensor) -> bool:
        """Whether a number was written for the batch of one core."""
        return self.rescaled is None or any(n.name in self.rescaled for n in self.graph.ancestors([number.node]))

    def _spreads_rows(self, node: Node, source: Tensor) -> bool:
        """Whether a node makes rows of the batch of what has none."""
        out, before = node.out().shape, source.shape
        if not out or None in out or before is None or not self.batch or (out[0] or 0) % self.batch:
            return False
        return not (len(before) == len(out) and before[0] == out[0])

    def _may_count(self, value: float, terms: float = 0) -> bool:
        """Whether a number is whole batches of rows and, where that is given, a part of so many terms."""
        ratio = value / (self.batch or 1)
        return ratio >= 1 and abs(ratio - round(ratio)) < 1e-6 and round(terms) % round(value) == 0


def _divides_a_seed(node: Node, varying: NodeSet) -> bool:
    """Whether backpropagation of a loss that the batch divides begins here."""
    above, below = node.inputs
    single = element_count(above.shape) == 1 and element_count(below.shape) == 1
    return single and above.node not in varying and below.node in varying
