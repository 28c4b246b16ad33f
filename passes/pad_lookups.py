"""Pads the id lists of embedding lookups to a fixed length."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.shapes import is_static
from tpugraph.analysis.step import PaddedLookups
from tpugraph.ir import Graph, Node
from tpugraph.ir.builder import Builder
from tpugraph.lookups.padded_lists import PaddedLists
from tpugraph.lookups.sparse_columns import bounds_of, sparse_lists
from tpugraph.rewrite.folding import fold
from tpugraph.rewrite.step_nodes import remove_unread
from tpugraph.support.wording import counted
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class PadLookups(Pass):
    """A lookup of id lists reads ids [rows, max_ids], padded by the host; the device gathers and masks.

    The sparse ops stay on the host. The bound of ids per row follows from shapes, or is ``max_ids`` where it does not. A table row
    without an id is neither read nor updated.
    """

    max_ids: int = 0

    requires = ("shapes_known",)
    ensures = ("shapes_known",)
    gives = (PaddedLookups,)

    def run(self, graph: Graph) -> None:
        lists = sparse_lists(graph)
        bounds = bounds_of(graph, lists, self.max_ids)
        for fill, (reader, why) in lists.refused.items():
            graph.note(fill, f"not padded: '{reader.name}' {why}")
        if not bounds:
            return
        readers = [node.name for node in graph.descendants(bounds, data_only=True)]
        padded = PaddedLists(graph, lists, bounds)
        padded.run()
        for fill, bound in bounds.items():
            graph.set_attr(fill, "_output_shapes", [(None, 2), (None,), (bound.rows,), (None,)])
            graph.note(fill, f"padded: room for {counted(bound.most, 'id')} in each row")
        shapes.infer(graph)
        _settle(graph, [graph[name] for name in readers if name in graph])
        fold(graph)
        by_flag = tuple(fill.name for fill, bound in bounds.items() if bound.by_flag)
        graph.keep(PaddedLookups({fill.name: bound.most for fill, bound in bounds.items()}, by_flag))


def _settle(graph: Graph, nodes: list[Node]) -> None:
    """Make the target of a reshape static where it changes only the dimensions of a row.

    A lookup's final reshape takes its target from the sparse tensor's shape, which only the host knows at run time.
    """
    for node in nodes:
        before, after = (node.inputs[0].shape, node.out().shape) if node.op in ops.RESHAPES else (None, None)
        wanted = node.inputs[-1].node if node.inputs else node
        if not after or not before or not is_static(after) or before[0] != after[0] or wanted.op in ops.CONSTANTS:
            continue
        shape = Builder(graph, node.name, source=node).constant([-1, *after[1:]], node.inputs[1].dtype, name="shape")
        graph.set_input(node, 1, shape)
        remove_unread(graph, [wanted])
