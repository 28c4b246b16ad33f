"""What readers ask for otherwise than it is, solved together with the placements until none asks for more.

Partial sums are reduced at the cheapest tensors on the way from where they arise to who asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpugraph import analysis, ops
from tpugraph.analysis import minimum_cut
from tpugraph.analysis.placements import ONCE, SUM, Entries, Held, Partial, Replicate, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Node, Tensor
from tpugraph.support.errors import ConversionError

_IN_A_LOOP = 1000
"""How many times a collective in a loop is taken to run, for its cost: how often it does is not known."""


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
            placing.meet(_cheapest(placing, asked))
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


# --------------------------------------------------------------------------- where sums are reduced


def _cheapest(placing: Placing, asked: list[Tensor]) -> list[Tensor]:
    """Where partial sums are reduced: of all ways to meet every demand, the one with the fewest bytes."""
    extremes = [t for t in asked if placing.read(t) != SUM]
    sums = [t for t in asked if placing.read(t) == SUM]
    region: dict[Tensor, None] = dict.fromkeys(sums)
    edges: list[tuple[Tensor, Tensor]] = []
    sources: dict[Tensor, None] = {}
    stack = list(sums)
    while stack:
        tensor = stack.pop()
        before = [t for t in tensor.node.inputs if placing.read(t) == SUM]
        if not before or _starts(placing, tensor):
            sources[tensor] = None
        for other in before:
            edges.append((other, tensor))
            if other not in region:
                region[other] = None
                stack.append(other)
    frame_of = analysis.frames(placing.graph)
    capacity = {t: _cost(t, frame_of) for t in region}
    found = minimum_cut(edges, capacity, list(sources), sums)
    return extremes + (sums if found is None else found[1])


def _starts(placing: Placing, tensor: Tensor) -> bool:
    """Whether a partial sum arises at a tensor, from rows, or where a container hands it out."""
    verdict = placing.verdicts.get(tensor.node)
    inputs = [placing.read(t) for t in tensor.node.inputs]
    return verdict is None or any(isinstance(s, Shard | Entries | Held) for s in inputs)


def _cost(tensor: Tensor, frame_of: Mapping[Node, str]) -> int:
    shape = tensor.shape
    size = 1
    for d in shape or ():
        size *= d or 1
    inside = frame_of.get(tensor.node) and tensor.node.op not in ops.EXIT
    backwards = tensor.node.op in ops.MERGE | ops.NEXT_ITERATION | ops.ENTER | ops.SWITCH
    cost = 16 * size * (tensor.dtype.size or 4) + 1
    return cost * (_IN_A_LOOP if inside else 1) * (_IN_A_LOOP if backwards else 1)
