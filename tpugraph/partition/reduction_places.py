"""Where partial sums are reduced: at the cheapest tensors on the way from where they arise to who asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from tpugraph import analysis, ops
from tpugraph.analysis import minimum_cut
from tpugraph.analysis.placements import SUM, Entries, Held, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Node, Tensor

IN_A_LOOP = 1000
"""How many times a collective in a loop is taken to run, for its cost: how often it does is not known."""


def cheapest(placing: Placing, asked: list[Tensor]) -> list[Tensor]:
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
    return cost * (IN_A_LOOP if inside else 1) * (IN_A_LOOP if backwards else 1)
