"""Decomposes fused batch norms, so that the cores combine two small statistics instead of rows."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.ir import Graph
from tpugraph.rewrite.batch_norm_parts import BatchNormParts, channels_of
from tpugraph.rewrite.collectives import Collectives
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class BatchNorm(Pass):
    """With batch_norm=global each fused batch norm in training is decomposed, in the order of TensorFlow's kernel.

    The partition then sees means and sums over the batch, and only these are summed over the cores: mean and variance forward,
    two sums backward, each one value per channel. In inference the op is row by row and stays.
    """

    num_replicas: int = 8
    batch_norm: str = "global"

    requires = ("placed", "shapes_known")
    ensures = ("placed", "shapes_known")

    def run(self, graph: Graph) -> None:
        if self.batch_norm != "global" or self.num_replicas == 1:
            return
        device = analysis.cluster_nodes(graph)
        training = [
            n for n in graph.of_type(*ops.BATCH_NORMS, *ops.BATCH_NORM_GRADIENTS) if n.attr("is_training", True)
        ]
        fused = {n: None for n in training if n in device and channels_of(n) is not None}
        # output 5 is what cuDNN keeps for its own gradient
        taken = [n for n in fused if all(use.node in fused for use in n.uses(5))]
        parts = BatchNormParts(Collectives(graph, self.num_replicas))
        for kinds, take_apart in ((ops.BATCH_NORMS, parts.forward), (ops.BATCH_NORM_GRADIENTS, parts.gradient)):
            for node in [n for n in taken if n.op in kinds]:
                take_apart(node)
                graph.note(node, "decomposed: the cores combine its statistics over the batch")
        graph.remove_all(taken)
