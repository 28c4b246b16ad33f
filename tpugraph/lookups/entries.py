"""Finds the values with one element per entry of a sparse tensor, and whether every reader accepts a padded list.

The ids of a sparse column are one list whose length depends on the data. A list of fixed length, with padding entries in each
row, gives the same result where the padding has no effect: reductions over a row's entries skip it, and its gradients are
zeros, added to the table row of the row's first entry. That row is looked up anyway, so an optimizer that updates only rows
that were looked up updates no other row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.shapes import element_count, is_static
from tpugraph.analysis.values import integers
from tpugraph.ir import Graph, Node, Tensor


class Lists:
    """Lists of entries, and the values derived from them.

    ``refused``: for the producer of each list that cannot be padded, the reader that does not accept padding, and why.
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
        """The producers of lists that can be padded, grouped by lists that one op combines."""
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
"""Ops that concatenate lists: these may have different lengths in a row."""


Role = Literal["indices", "values", "gradients", "places", "update_places", "order", "segments", "size"]
"""How a value relates to a list of entries.

``indices``: coordinates of the entries. ``values``: one element per entry, such as its id, weight or table row.
``gradients``: the same, where only the sum by id matters. ``places``: the index of each entry's id among the distinct ids of
a lookup; ``update_places``: of an update. ``order``: the index of each entry in a longer list. ``segments``: the row of the
batch of each entry. ``size``: the number of entries.
"""


@dataclass(frozen=True)
class Entries:
    """A value's :data:`Role` for the lists that ``makers`` produce."""

    role: Role
    makers: tuple[Node, ...]


Given = Mapping[int, Entries]
"""The operands of a node that are related to lists, by index."""


class Refused(Exception):
    """A node does not process a list entry by entry."""


def follow(node: Node, given: Given) -> list[Role | None]:
    """The roles of a node's outputs, where it processes lists entry by entry."""
    roles = {index: entries.role for index, entries in given.items()}
    if set(roles.values()) == {"size"}:
        return _of_size(node, roles)
    found = _FOLLOW.get(node.op, _element_by_element)(node, roles)
    if found is None:
        raise Refused(f"{node.op} does not process entries independently")
    return found


Roles = dict[int, Role]
Outcome = list[Role | None] | None
_ONE_EACH = frozenset({"values", "gradients", "segments"})
_PRODUCTS = ops.computing(np.multiply) | ops.reducing("prod")
_SIZES = ops.SAME_NUMBERS | ops.SLICES | ops.PACKS | ops.CONCATS | ops.RESHAPING | ops.PICKS | _PRODUCTS
"""Ops that compute sizes from sizes."""


def _of_size(node: Node, roles: Roles) -> list[Role | None]:
    """List sizes may only shape tensors: arithmetic on them would count the padding."""
    if node.op in ops.BROADCAST_AXES:
        return ["size", "size"]
    if node.op in ops.RANGES and roles.keys() == {1}:
        return ["values"]
    record, count = ops.record(node.op), len(node.inputs)
    if roles.keys() <= {*record.constant_operands(count), *record.size_operands(count)}:
        return [None] * len(node.outputs or ())
    whole = all(kind.name in ("int32", "int64") for kind, _ in node.outputs or ())
    if node.op in ops.SHAPE_OF:
        return [None]
    if node.op in _SIZES and whole:
        return ["size"] * len(node.outputs or ())
    raise Refused("computes with the number of entries")


def _element_by_element(node: Node, roles: Roles) -> Outcome:
    signature = signatures.of(node)
    if signature is None or node.op not in ops.ELEMENTWISE | ops.IDENTITIES or not {*roles.values()} <= _ONE_EACH:
        return [roles[0]] if node.op in ops.SAME_NUMBERS and set(roles) == {0} else None
    rank = max(len(node.inputs[i].shape or ()) for i in roles)
    if any(not _broadcasts(t, rank) for i, t in enumerate(node.inputs) if i not in roles):
        return None
    if "segments" in roles.values():
        return ["segments"] if node.op in ops.SAME_NUMBERS else None
    derived = {index for index, role in roles.items() if role == "gradients"}
    if derived and not any(derived <= together for together in signature.linear):
        raise Refused(f"{node.op} is not linear in the gradient")
    return ["gradients" if derived else "values"]


def _broadcasts(tensor: Tensor, rank: int) -> bool:
    """Whether a tensor is broadcast over the entries."""
    shape = tensor.shape
    return shape is not None and (len(shape) < rank or shape[0] == 1)


def _unique(node: Node, roles: Roles) -> Outcome:
    if roles[0] != "values":
        return None
    return [None, "update_places"] if is_for_update(node) else ["values", "places"]


def is_for_update(unique: Node) -> bool:
    """Whether a Unique serves to sum gradients by id, not to look ids up."""
    adds_up = all(use.node.op in ops.UNSORTED_SUMS for use in unique.uses(1))
    return adds_up and any(use.node.op in ops.WRITES for use in unique.uses(0))


def _column(node: Node, roles: Roles) -> Outcome:
    """The first coordinate of an entry is its row of the batch."""
    return ["segments"] if roles == {0: "indices"} and is_row_of_entries(node) else None


def is_row_of_entries(node: Node) -> bool:
    """Whether a slice takes the first coordinate of each entry, its row of the batch."""
    begin, end, strides = (integers(t) for t in node.inputs[1:4])
    masks = node.attr("begin_mask", 0) & 1, node.attr("end_mask", 0) & 1, node.attr("shrink_axis_mask", 0)
    return masks == (1, 1, 2) and strides == [1, 1] and begin is not None and end is not None and begin[1] == 0


def _gather(node: Node, roles: Roles) -> Outcome:
    table, numbers = roles.get(0), roles.get(1)
    axis = ops.record(node.op).axis
    along = (axis is None or integers(node.inputs[axis]) == [0]) and not node.attr("batch_dims", 0)
    if not along or numbers in (None, "gradients", "update_places", "indices", "size"):
        return None
    if numbers in ("segments", "order"):
        return ["gradients"] if table is None else None
    if table is None:
        return ["values"] if numbers == "values" else None
    return [table] if table in ("values", "gradients") else None


def _sparse_segments(node: Node, roles: Roles) -> Outcome:
    wanted: tuple[Roles, ...] = ({0: "values", 1: "places", 2: "segments"}, {1: "values", 2: "segments"})
    return [None] if roles in wanted and is_static((node.inputs[0].shape or (None,))[1:]) else None


def _segments(node: Node, roles: Roles) -> Outcome:
    """A sum over the entries of each row."""
    fits = roles.get(0) in ("values", "gradients") and roles.get(1) == "segments"
    return [None] if fits and is_static((node.inputs[0].shape or (None,))[1:]) else None


def _segment_gradients(node: Node, roles: Roles) -> Outcome:
    if 0 in roles or roles.get(1) not in ("places", "values") or roles.get(2) != "segments":
        return None
    if not is_static((node.inputs[0].shape or (None,))[1:]):
        return None
    if len(node.outputs or ()) == 2:
        return ["gradients", roles[1]]
    return ["gradients" if roles[1] == "places" else None]


def _added_up(node: Node, roles: Roles) -> Outcome:
    if roles.get(0) != "gradients" or roles.get(1) not in ("places", "update_places", "values"):
        return None
    return ["gradients" if roles[1] == "places" else None]


def _reshape(node: Node, roles: Roles) -> Outcome:
    """Entries keep their order if the number of elements per entry does not change."""
    before, after = node.inputs[0].shape, node.out().shape
    if roles.get(0) not in ("values", "gradients", "segments", "places") or roles.get(1, "size") != "size":
        return None
    if 1 in roles and node.inputs[1].node.op in ops.SHAPE_OF:
        return [roles[0]]  # a gradient is reshaped to its forward value
    width = element_count((before or (None,) * 2)[1:])
    return [roles[0]] if width is not None and after and width == element_count(after[1:]) else None


def _expanded(node: Node, roles: Roles) -> Outcome:
    """ExpandDims may not insert a dimension before that of the entries."""
    fits = roles.keys() == {0} and roles[0] in ("values", "gradients") and integers(node.inputs[1]) not in (None, [0])
    return [roles[0]] if fits else None


def _summed(node: Node, roles: Roles) -> Outcome:
    """A reduction within each entry, or over a broadcast dimension; never over entries."""
    axes = integers(node.inputs[1])
    fits = roles.get(1) == "size" if axes is None else all(axis > 0 for axis in axes)
    return [roles[0]] if fits and roles.get(0) in ("values", "gradients") else None


def _joined(node: Node, roles: Roles) -> Outcome:
    if integers(node.inputs[-1]) != [0] or not {*roles.values()} <= {"values", "gradients"}:
        return None
    return ["gradients" if "gradients" in roles.values() else "values"]


def _scattered(node: Node, roles: Roles) -> Outcome:
    """Repeated row indices: an update adds their values up; an assignment gets equal values."""
    fact = ops.WRITES[node.op]
    if fact.kind != "scatter" or fact.rows is None:
        return None
    if fact.additive:
        return [] if roles == {fact.rows: "values", fact.value: "gradients"} else None
    fits = fact.idempotent and roles == {fact.rows: "values", fact.value: "values"}
    return [] if fits and _follows(node.inputs[fact.value], node.inputs[fact.rows]) else None


def _follows(tensor: Tensor, numbers: Tensor) -> bool:
    """Whether each element depends only on an index, on values looked up by it, and on values common to all."""
    waiting, seen = [tensor], {tensor}
    while waiting:
        made = waiting.pop()
        node = made.node
        looked_up = node.op in ops.LOOKUPS and node.inputs[1] == numbers and node.inputs[0] not in seen
        if made == numbers or looked_up or made.shape == ():
            continue
        if node.op not in ops.ELEMENTWISE | ops.IDENTITIES:
            return False
        waiting.extend(t for t in node.inputs if t not in seen)
        seen.update(node.inputs)
    return True


def _partitioned(node: Node, roles: Roles) -> Outcome:
    """DynamicPartition of entries by id, or the DynamicStitch that reverses it."""
    half = len(node.inputs) // 2
    if roles == {i: "order" if i < half else "values" for i in range(2 * half)}:
        return [None]
    whole = len(roles) == len(node.inputs) and set(roles.values()) == {"values"}
    return ["values"] * len(node.outputs or ()) if whole else None


def _sized(node: Node, roles: Roles) -> Outcome:
    return ["size"] * len(node.outputs or ())


_FOLLOW: dict[str, Callable[[Node, Roles], Outcome]] = {
    **dict.fromkeys(ops.UNIQUE, _unique),
    **dict.fromkeys(ops.STRIDED_SLICES, _column),
    **dict.fromkeys(ops.LOOKUPS, _gather),
    **dict.fromkeys(ops.SPARSE_SEGMENTS, _sparse_segments),
    "SegmentSum": _segments,
    **dict.fromkeys(ops.ALL_SEGMENT_GRADS, _segment_gradients),
    **dict.fromkeys(ops.UNSORTED_SUMS, _added_up),
    **dict.fromkeys(ops.RESHAPES, _reshape),
    **dict.fromkeys(ops.EXPANSIONS, _expanded),
    **dict.fromkeys(ops.SUMS, _summed),
    "ConcatV2": _joined,
    **dict.fromkeys(ops.WRITES, _scattered),
    **dict.fromkeys(ops.PARTITIONS | ops.DYNAMIC_STITCHES, _partitioned),
    **dict.fromkeys(ops.SHAPE_OF, _sized),
}
