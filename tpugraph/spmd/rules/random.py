"""How random ops are partitioned."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, Placement, Replicate
from tpugraph.ir import Node
from tpugraph.spmd.placing import Placing, Verdict, rule


@rule(" ".join(ops.RANDOM))
def _random(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Every core has what core 0 draws, or draws rows of its own where nothing reads those of another core."""
    wants: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs) if not isinstance(s, Replicate)}
    rows = p.drawn.get(node)
    why = "all cores draw alike" if rows is None else "each core draws its own rows"
    return Verdict([rows or REPLICATE] * len(node.outputs or ()), wants, why=why)
