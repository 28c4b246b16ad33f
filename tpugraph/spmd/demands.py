"""Chooses where partial values are reduced: a minimum cut between their producers and the readers that need them whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpugraph import analysis, ops
from tpugraph.analysis.min_cut import minimum_cut
from tpugraph.analysis.placements import SUM, Entries, Held, Partial, Replicate, Shard
from tpugraph.ir import Node, Tensor
from tpugraph.spmd.placing import Placing
from tpugraph.spmd.rules.random import rows_drawn
from tpugraph.support.errors import ConversionError

_IN_A_LOOP = 1000
"""The assumed trip count of a loop, for the cost of a collective in it."""
_ROUNDS = 24


@dataclass
class Demands:
    """Solves the placements together with the reductions that readers demand.

    ``asking`` has, for each partial value that is read whole, the first such reader, and the reason in words.
    """

    placing: Placing
    asking: dict[Tensor, tuple[Node, str]] = field(default_factory=dict)

    def solve(self) -> None:
        """Solve placements and reductions alternately, until no reader demands a further reduction."""
        placing = self.placing
        placing.solve()
        for _ in range(_ROUNDS):
            if drawn := rows_drawn(placing):
                placing.drawn |= drawn
                placing.solve()
                continue
            placing.reduced = {t: None for t in placing.reduced if isinstance(placing.made(t), Partial)}
            wanted = self._wanted_whole()
            if not wanted:
                return
            placing.reduce_at(self._cheapest(wanted))
        raise ConversionError("the placements of the step reach no fixpoint", origin=placing.graph.source)

    def _wanted_whole(self) -> list[Tensor]:
        found: dict[Tensor, None] = {}
        for node, verdict in self.placing.verdicts.items():
            for index, want in verdict.wants.items():
                tensor = node.inputs[index]
                if isinstance(want, Replicate | Shard) and isinstance(self.placing.read(tensor), Partial):
                    found[tensor] = None
                    self.asking.setdefault(tensor, (node, verdict.why))
        return list(found)

    def _cheapest(self, wanted: list[Tensor]) -> list[Tensor]:
        placing = self.placing
        extremes = [t for t in wanted if placing.read(t) != SUM]
        sums = [t for t in wanted if placing.read(t) == SUM]
        region: dict[Tensor, None] = dict.fromkeys(sums)
        edges: list[tuple[Tensor, Tensor]] = []
        sources: dict[Tensor, None] = {}
        for tensor in (stack := list(sums)):  # grows while it is walked
            before = [t for t in tensor.node.inputs if placing.read(t) == SUM]
            if not before or self._arises(tensor):
                sources[tensor] = None
            for other in before:
                edges.append((other, tensor))
                if other not in region:
                    region[other] = None
                    stack.append(other)
        frames = analysis.frames(placing.graph)
        found = minimum_cut(edges, {t: _cost(t, frames) for t in region}, list(sources), sums)
        return extremes + (sums if found is None else found[1])

    def _arises(self, tensor: Tensor) -> bool:
        """Whether a tensor is the origin of a partial sum: a sum over rows, or an element of a container."""
        inputs = [self.placing.read(t) for t in tensor.node.inputs]
        return any(isinstance(s, Shard | Entries | Held) for s in inputs)


def _cost(tensor: Tensor, frames: Mapping[Node, str]) -> int:
    size = math.prod(dim or 1 for dim in tensor.shape or ())
    inside = frames.get(tensor.node) and tensor.node.op not in ops.EXIT
    backwards = tensor.node.op in ops.MERGE | ops.NEXT_ITERATION | ops.ENTER | ops.SWITCH
    cost = 16 * size * (tensor.dtype.size or 4) + 1
    return cost * (_IN_A_LOOP if inside else 1) * (_IN_A_LOOP if backwards else 1)
