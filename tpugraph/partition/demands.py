"""What readers ask for otherwise than it is, solved together with the placements until none asks for more."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.analysis.placements import ONCE, Entries, Partial, Replicate
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Node, Tensor
from tpugraph.partition.reduction_places import cheapest
from tpugraph.support.errors import ConversionError


@dataclass
class Demands:
    """The demands of one step.

    Attributes:
        placing: the analysis.
        asking: of partial values that are read whole, the first node that does.
    """

    placing: Placing
    asking: dict[Tensor, Node] = field(default_factory=dict)

    def solve(self) -> None:
        """Find placements and the tensors that are reduced, until no reader asks for more."""
        placing = self.placing
        placing.solve()
        for _ in range(12):
            if self._pin():
                placing.solve()
                continue
            placing.met = {t: None for t in placing.met if isinstance(placing.made(t), Partial)}
            asked = self._asked()
            if not asked:
                return
            placing.meet(cheapest(placing, asked))
        raise ConversionError("the placements of the step do not settle", origin=placing.graph.source)

    def _asked(self) -> list[Tensor]:
        """The partial sums and extremes that a reader wants whole."""
        found: dict[Tensor, None] = {}
        for node, verdict in self.placing.verdicts.items():
            for index, want in verdict.wants.items():
                tensor = node.inputs[index]
                if isinstance(want, Replicate) and isinstance(self.placing.read(tensor), Partial):
                    found[tensor] = None
                    self.asking.setdefault(tensor, node)
        return list(found)

    def _pin(self) -> bool:
        """What is asked of distinct entries is asked of what they are made from, so that each stays there once."""
        new = False
        for node, verdict in list(self.placing.verdicts.items()):
            for index, want in verdict.wants.items():
                if isinstance(want, Replicate) and isinstance(self.placing.read(node.inputs[index]), Entries):
                    maker = finds_distinct(self.placing, node.inputs[index])
                    if maker is not None and maker not in self.placing.pinned:
                        self.placing.pinned.add(maker)
                        new = True
        return new


def finds_distinct(placing: Placing, tensor: Tensor) -> Node | None:
    """The node that finds the distinct values to which entries, or their number, belong; None where they are others."""
    pending, seen = [tensor], {tensor}
    while pending:
        entries = pending.pop()
        if placing.made(entries) not in _OF_DISTINCT:
            continue
        if entries.node.op in ops.UNIQUE:
            return entries.node
        pending += [t for t in entries.node.inputs if t not in seen]
        seen.update(entries.node.inputs)
    return None


_OF_DISTINCT = (*map(Entries, ONCE), Entries("shape"))
