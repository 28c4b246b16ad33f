"""Tables in pieces are looked up as one."""

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
    """A lookup in a table of several variables reads every piece for every id and takes the row of the id's own piece.

    So no ids are parted, and the number of those that belong to a piece need not be known. The pieces' updates leave out what is
    numbered -1, which is another piece's; dense-rows makes them dense.
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
