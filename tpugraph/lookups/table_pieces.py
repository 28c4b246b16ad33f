"""Lookups in a table that is partitioned into several variables, rewritten without a partition of the ids.

The plain graph partitions the ids by piece, looks each part up in its piece and stitches the rows; the sizes of the parts
depend on the data. Here every id is looked up in every piece, and the row of its own piece is selected. Each piece gets the
gradients of all ids, with index -1 where an id belongs to another piece.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import reached, source_of
from tpugraph.lookups.entries import Entries, Lists
from tpugraph.lookups.lookup_nodes import LookupNodes
from tpugraph.rewrite.row_updates import rows_of
from tpugraph.rewrite.step_nodes import remove_unread


@dataclass(frozen=True)
class PiecedLookup:
    """A lookup in a partitioned table."""

    stitch: Node
    parted: Node  # DynamicPartition of the row indices within the pieces
    order: Node  # DynamicPartition of 0, 1, 2, ..., the positions of the ids
    gathers: tuple[Node, ...]
    steps: tuple[Node, ...]  # the updates of the pieces


def pieced_lookups(graph: Graph) -> tuple[list[PiecedLookup], dict[Node, str]]:
    """The partitioned lookups that can be rewritten, and for each of the others why it cannot."""
    found: list[PiecedLookup] = []
    refused: dict[Node, str] = {}
    for stitch in graph.of_type(*ops.DYNAMIC_STITCHES):
        shape = _parts_of(stitch)
        if shape is None:
            continue
        parted, order, gathers = shape
        if not is_static(parted.inputs[0].shape):
            refused[stitch] = "the number of ids is not known"
            continue
        starts = {parted.out(port): Entries("values", (parted,)) for port in range(len(gathers))}
        starts |= {order.out(port): Entries("order", (parted,)) for port in range(len(gathers))}
        lists = Lists(graph, starts)
        steps = _steps_of(graph, lists)
        if lists.refused:
            reader, why = lists.refused[parted]
            refused[stitch] = f"'{reader.name}' {why}"
        elif steps is None:
            refused[stitch] = "an update of a piece has no dense form"
        else:
            found.append(PiecedLookup(stitch, parted, order, gathers, steps))
    return _with_known_numbers(graph, found, refused), refused


def _with_known_numbers(graph: Graph, found: list[PiecedLookup], refused: dict[Node, str]) -> list[PiecedLookup]:
    """The lookups whose updates get only index lists of known length."""
    written = dict.fromkeys(step for lookup in found for step in lookup.steps)
    numbers_of = {
        step: rows.numbers for rows in rows_of(written, ops.DENSE_WRITES, static=False) for step in rows.steps
    }
    while True:
        parted = {lookup.parted for lookup in found}
        open_steps = {step for step in written if not _known(numbers_of[step], parted)}
        kept = [lookup for lookup in found if not open_steps & set(lookup.steps)]
        refused.update(
            (lookup.stitch, "another lookup of the table has to be parted") for lookup in found if lookup not in kept
        )
        if len(kept) == len(found):
            return kept
        found = kept


def _known(numbers: Tensor, parted: Collection[Node]) -> bool:
    """Whether an index list has a known length once these lookups do not partition their ids."""
    joins = ops.CONCATS | ops.RESHAPES | ops.CASTS | ops.IDENTITIES

    def lengths_of(tensor: Tensor) -> list[Tensor]:
        node, known = tensor.node, is_static(tensor.shape) or tensor.node in parted
        places = () if known or node.op not in joins else ops.record(node.op).data_operands(len(node.inputs))
        return [node.inputs[place] for place in places]

    found = reached((numbers,), lengths_of)
    return all(is_static(t.shape) or t.node in parted or t.node.op in joins for t in found)


def _parts_of(stitch: Node) -> tuple[Node, Node, tuple[Node, ...]] | None:
    """Both DynamicPartitions, and the lookup in each piece."""
    count = len(stitch.inputs) // 2
    orders, rows = stitch.inputs[:count], stitch.inputs[count:]
    order = orders[0].node
    gathers = tuple(source_of(tensor).node for tensor in rows)
    if order.op not in ops.PARTITIONS or list(orders) != [order.out(port) for port in range(count)]:
        return None
    if order.inputs[0].node.op not in ops.RANGES or any(gather.op not in ops.LOOKUPS for gather in gathers):
        return None
    numbers = [source_of(gather.inputs[1]) for gather in gathers]
    parted = numbers[0].node
    if parted.op not in ops.PARTITIONS or numbers != [parted.out(port) for port in range(count)]:
        return None
    return (parted, order, gathers) if parted.inputs[1] == order.inputs[1] and parted is not order else None


def _steps_of(graph: Graph, lists: Lists) -> tuple[Node, ...] | None:
    """The updates that read the pieces' row indices; None where one has no dense form."""
    written = [n for n in graph.of_type(*ops.DENSE_WRITES) if ops.WRITES[n.op].rows is not None]
    dense = {step for rows in rows_of(written, ops.DENSE_WRITES, static=False) for step in rows.steps}
    found: dict[Node, None] = {}
    for tensor, entries in lists.of.items():
        for use in tensor.node.uses(tensor.port) if entries.role == "values" else ():
            unique = use.node.op in ops.UNIQUE
            readers = [u.node for u in use.node.uses(0)] if unique else [use.node]
            found.update((n, None) for n in readers if n.op in ops.WRITES)
    return tuple(found) if found.keys() <= dense else None


class JoinedLookups:
    """Rewrites lookups to read the pieces of their tables without partitioned ids."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def _builder(self, node: Node) -> LookupNodes:
        return LookupNodes(self.graph, f"{node.name}/joined", source=node)

    def join(self, lookup: PiecedLookup) -> None:
        """Rewrite one lookup; the shapes of the graph must be inferred again."""
        graph, stitch = self.graph, lookup.stitch
        make = self._builder(stitch)
        numbers, piece = lookup.parted.inputs
        deep = [-1, *[1] * (len(stitch.out().shape or ()) - 1)]
        rows: Tensor | None = None
        for port, gather in enumerate(lookup.gathers):
            number = make.const(np.int32(port))
            own = make.add("Equal", [piece, number])
            chosen = make.as_shape(own, deep)
            for use in lookup.order.uses(port):
                if use.node.op in ops.LOOKUPS:
                    self._mask(use.node, chosen)
            first, none = (make.const(np.asarray(value, numbers.dtype.name)) for value in (0, -1))
            asked = make.add("SelectV2", [own, numbers, first])
            graph.set_input(gather, 1, asked)
            given = make.add("SelectV2", [own, numbers, none])
            graph.replace_uses(lookup.parted.out(port), given)
            found = stitch.inputs[len(lookup.gathers) + port]
            rows = found if rows is None else make.add("SelectV2", [chosen, found, rows])
        assert rows is not None  # a partitioned table has pieces
        graph.replace_uses(stitch.out(), rows)
        graph.replace_control_uses(stitch, [rows.node])
        remove_unread(graph, [stitch, lookup.parted, lookup.order])

    def _mask(self, gather: Node, chosen: Tensor) -> None:
        """Gradients of all ids, zero where an id belongs to another piece."""
        make, gradients = self._builder(gather), gather.inputs[0]
        zeros = make.add("ZerosLike", [gradients])
        masked = make.add("SelectV2", [chosen, gradients, zeros])
        self.graph.replace_uses(gather.out(), masked)
        self.graph.replace_control_uses(gather, [masked.node])
        remove_unread(self.graph, [gather])
