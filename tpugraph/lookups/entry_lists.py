"""Which values hold one element for each entry of a sparse tensor, and whether all that reads them can read a padded list.

A sparse column is looked up entry by entry: the ids of all rows stand in one list, whose length the data decide. A list of
fixed length, with some entries more in each row, does as well where these change nothing: what a row makes of its entries
leaves them out, and a gradient has zeros for them, which are added to a row of the table that the row's first entry names
anyway. So an optimizer that touches only rows that were looked up touches no other row.
"""

from __future__ import annotations

from collections.abc import Mapping

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.lookups.entry_rules import Entries, Given, Refused, follow


class Lists:
    """Lists of entries, and what is made of them.

    Args:
        graph: the graph, with shapes.
        starts: what is known of tensors to begin with.

    Attributes:
        of: what each tensor is.
        refused: why entries cannot be added to a list, by the node that made it: the node that reads it otherwise, and what
            that is.
    """

    def __init__(self, graph: Graph, starts: Mapping[Tensor, Entries]) -> None:
        self.of = dict(starts)
        self.refused: dict[Node, tuple[Node, str]] = {}
        makers = [maker for entries in starts.values() for maker in entries.makers]
        self._joined = {maker: maker for maker in makers}
        for node in graph.topological_order(graph.descendants(makers, data_only=True)):
            given = {i: self.of[t] for i, t in enumerate(node.inputs) if t in self.of}
            if given:
                self._visit(node, given)

    def groups(self) -> list[list[Node]]:
        """The nodes that make lists which can all have more entries, those together whose entries meet."""
        groups: dict[Node, list[Node]] = {}
        for maker in self._joined:
            groups.setdefault(self._group(maker), []).append(maker)
        return [group for group in groups.values() if not any(maker in self.refused for maker in group)]

    def _group(self, maker: Node) -> Node:
        while self._joined[maker] is not maker:
            maker = self._joined[maker]
        return maker

    def _visit(self, node: Node, given: Given) -> None:
        makers = list(dict.fromkeys(maker for entries in given.values() for maker in entries.makers))
        if node.op not in _APART:
            for maker in makers[1:]:
                self._joined[self._group(maker)] = self._group(makers[0])
        try:
            made = follow(node, given)
        except Refused as refusal:
            for maker in makers:
                self.refused.setdefault(maker, (node, str(refusal)))
            return
        for port, role in enumerate(made):
            if role is not None:
                self.of[node.out(port)] = Entries(role, tuple(makers))


_APART = ops.CONCATS | ops.UNSORTED_SUMS | ops.UNIQUE | ops.WRITES.keys()
"""Ops that take lists one behind the other, so that these need not have the same length in each row."""
