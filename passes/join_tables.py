"""Rewrites lookups in partitioned tables."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph.analysis import shapes
from tpugraph.analysis.step import JoinedTables
from tpugraph.ir import Graph
from tpugraph.lookups.table_pieces import JoinedLookups, pieced_lookups
from tpugraph.rewrite.folding import fold
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class JoinTables(Pass):
    """A lookup in a partitioned table gathers every id from every piece and selects the row of the id's own piece.

    So ids are not partitioned, and the data-dependent sizes of the partitions are not needed. Updates of a piece skip index -1, an
    id of another piece; dense-rows makes them dense.
    """

    requires = ("shapes_known",)
    ensures = ("shapes_known",)
    gives = (JoinedTables,)

    def run(self, graph: Graph) -> None:
        found, refused = pieced_lookups(graph)
        for stitch, why in refused.items():
            graph.note(stitch, f"its table stays in pieces: {why}")
        if not found:
            return
        joined = JoinedLookups(graph)
        pieces = {lookup.stitch.name: len(lookup.gathers) for lookup in found}
        for lookup in found:
            graph.note(lookup.stitch, f"its table of {len(lookup.gathers)} pieces is looked up as one")
            joined.join(lookup)
        shapes.infer(graph)
        fold(graph)
        steps = dict.fromkeys(step.name for lookup in found for step in lookup.steps)
        graph.keep(JoinedTables(pieces, tuple(steps)))
