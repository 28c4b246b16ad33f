"""Partition rules of random ops."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, Placement, Replicate, Shard
from tpugraph.analysis.signatures import WHOLE
from tpugraph.ir import Node, Tensor
from tpugraph.spmd import factors
from tpugraph.spmd.placing import Placing, Verdict, rule, whole
from tpugraph.spmd.rules.signature import size_of


@rule(" ".join(ops.RANDOM))
def _random(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Every core uses core 0's draw, or draws its own rows where no reader needs those of another core."""
    rows = p.drawn.get(node)
    why = "all cores draw alike" if rows is None else "each core draws its own rows"
    return Verdict([rows or REPLICATE] * len(node.outputs or ()), whole(inputs), why=why)


_DRAWS = ops.DRAWS & ops.RANDOM
"""Random ops with one stream per core whose operand is the output's shape."""


def rows_drawn(p: Placing) -> dict[Node, Shard]:
    """By random op, the shard that all its readers want; ops with a replicated reader are left out.

    With ``random=plain`` there are none: every core draws the plain graph's numbers.
    """
    if p.policies.get("random") == "plain":
        return {}
    found: dict[Node, Shard] = {}
    for node, verdict in p.verdicts.items():
        for index, want in verdict.wants.items():
            if isinstance(want, Shard) and isinstance(p.read(node.inputs[index]), Replicate):
                found |= {n: s for n, s in _behind(p, node.inputs[index], want) if n not in p.drawn}
    return found


def _behind(p: Placing, tensor: Tensor, rows: Shard) -> Iterator[tuple[Node, Shard]]:
    """The random ops from which a replicated value is computed elementwise, with the shard wanted of each."""
    pending, seen = [(tensor, rows)], {tensor}
    for value, wanted in pending:  # grows while it is walked
        node = value.node
        if node in p.flow.position and node.op in _DRAWS:
            yield node, wanted
            continue
        signature = factors.signature(node) if node.inputs and not node.op.startswith("TensorArray") else None
        if signature is None or value.port >= len(signature.outputs) or value in p.seeds:
            continue
        letters = signature.outputs[value.port]
        letter = letters[wanted.axis] if letters and wanted.axis < len(letters) else WHOLE
        for operand, named in zip(node.inputs, signature.inputs, strict=True):
            if named and letter in named and letter != WHOLE and operand not in seen:
                axis = named.index(letter)
                if size_of(operand, axis) != 1 and isinstance(p.read(operand), Replicate):
                    seen.add(operand)
                    pending.append((operand, wanted.at(axis)))
