"""Partition rules of fused batch norms that were not decomposed."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, SUM, PerCore, Placement, Shard
from tpugraph.ir import Node
from tpugraph.spmd.placing import Placing, Verdict, rule, whole

PER_CORE = PerCore("--batch_norm=per_core")


@rule(" ".join(ops.BATCH_NORMS))
def _batch_norm(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    count, own = len(node.outputs or ()), p.policies.get("batch_norm") == "per_core"
    training = node.attr("is_training", True)
    if not isinstance(inputs[0], Shard) or inputs[0].axis != 0 or (training and not own):
        return p.replicate_operands(node, inputs, "normalises by statistics of the whole batch")
    made: Placement = PER_CORE if training else REPLICATE
    return Verdict([inputs[0], *[made] * (count - 1)], whole(inputs, 0), why="normalises by its own rows")


@rule(" ".join(ops.BATCH_NORM_GRADIENTS))
def _batch_norm_gradient(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    count, own = len(node.outputs or ()), p.policies.get("batch_norm") == "per_core"
    rows = next((s for s in inputs[:2] if isinstance(s, Shard)), None)
    if rows is None or rows.axis != 0 or (node.attr("is_training", True) and not own):
        return p.replicate_operands(node, inputs, "normalises by statistics of the whole batch")
    wants = {0: rows, 1: rows} | whole(inputs, 0, 1, *(i for i, s in enumerate(inputs) if isinstance(s, PerCore)))
    return Verdict([rows, SUM, SUM, *[REPLICATE] * (count - 3)], wants, why="normalises by its own rows")
