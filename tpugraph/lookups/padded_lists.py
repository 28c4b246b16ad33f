"""Pads lists of entries to a fixed length per row: the host pads, the device reads dense tensors.

The host sends ids [rows, most], with -1 as padding. The device replaces padding by the row's first id, so that it reads only
table rows that the plain step reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.lookups.entries import Lists, Role, is_for_update
from tpugraph.lookups.lookup_nodes import LookupNodes
from tpugraph.rewrite.step_nodes import ends_of, remove_unread
from tpugraph.support.errors import RunError

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class Bound:
    """The size of a padded list: rows of the batch, entries per row, and whether that limit came from a flag."""

    rows: int
    most: int
    by_flag: bool


@dataclass(frozen=True)
class _Padded:
    """A list as the device reads it, [rows * most], and a mask of its entries, bool [rows, most]."""

    flat: Tensor
    present: Tensor


class PaddedLists:
    """Pads the lists of a graph to the bounds of their SparseFillEmptyRows, and rewrites the readers."""

    def __init__(self, graph: Graph, lists: Lists, bounds: Mapping[Node, Bound]) -> None:
        self.graph = graph
        self.bounds = bounds
        order = graph.topological_order(graph.descendants(bounds, data_only=True))
        self._ends = ends_of(order)
        self._steps = [_Step.of(node, lists, bounds) for node in order]
        self._shares: dict[tuple[Node, DType, str, int], Tensor] = {}

    def run(self) -> None:
        """Rewrite the graph; its shapes must be inferred again."""
        counted = {step.fill for step in self._steps if step.fill is not None}
        self._made = {fill: self._pad(fill, bound, ids=fill in counted) for fill, bound in self.bounds.items()}
        for step in self._steps:
            rewrite = _REWRITES.get(step.node.op)
            if rewrite is not None and step.roles:
                rewrite(self, step)
        for fill, made in self._made.items():
            self.graph.replace_uses(fill.out(1), made.flat, where=lambda use: use.node.op not in ops.RAGGED_TO_DENSE)
        remove_unread(self.graph, [step.node for step in self._steps], keep=self._ends)

    def _builder(self, node: Node) -> LookupNodes:
        return LookupNodes(self.graph, f"{node.name}/padded", source=node)

    def _pad(self, fill: Node, bound: Bound, *, ids: bool) -> _Padded:
        make, kind = self._builder(fill), fill.out(1).dtype
        padding = np.asarray(-1 if ids else 0, kind.name)
        dense = self._dense(fill, bound, make.const(padding))
        if not ids:
            return _Padded(make.as_shape(dense, [-1]), dense)
        small = make.as_dtype(dense, _INT32)
        there = make.add("GreaterEqual", [small, make.const(np.int32(0))])
        filled = make.add("SelectV2", [there, small, make.first_column(small, shrink_axis_mask=0)])
        return _Padded(make.as_dtype(make.as_shape(filled, [-1]), kind), there)

    def _dense(self, fill: Node, bound: Bound, padding: Tensor) -> Tensor:
        """The entries of each row, left-aligned, [rows, most], on the host."""
        make = self._builder(fill)
        rows = make.first_column(fill.out(0), shrink_axis_mask=2)
        shape = make.const(np.asarray([bound.rows, bound.most], np.int64))
        count = make.const(np.int64(bound.rows))
        operands = [shape, fill.out(1), padding, count, rows]
        dense = make.add("RaggedTensorToTensor", operands, row_partition_types=[b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"])
        self.graph.add_control(dense.node, self._checked(fill, rows, count, bound))
        return dense

    def _checked(self, fill: Node, rows: Tensor, count: Tensor, bound: Bound) -> Node:
        """An assertion that no row has more entries than the bound."""
        make = self._builder(fill)
        ones = make.add("OnesLike", [rows])
        entries = make.add("UnsortedSegmentSum", [ones, rows, count])
        longest = make.add("Max", [entries, make.const(np.asarray([0], np.int32))], keep_dims=False)
        fits = make.add("LessEqual", [longest, make.const(np.int64(bound.most))])
        text = f"{_TOO_MANY} {fill.origin or fill.name}, which has room for {bound.most}:"
        return make.node("Assert", [fits, make.const(np.asarray(text, object)), longest], summarize=3)

    def skip(self, step: _Step) -> None:
        """Replace the node by its first operand, which is the list."""
        self._replace(step.node, step.node.inputs[0])

    def unique(self, step: _Step) -> None:
        """Give each entry a row of its own; the update finds equal ids."""
        if not is_for_update(step.node):
            self.graph.replace_uses(step.node.out(0), step.node.inputs[0])

    def gather(self, step: _Step) -> None:
        """A gather by entry, from values per distinct id or per row of the batch."""
        if step.roles.get(1) == "places":
            self.skip(step)
        elif step.roles.get(1) == "segments":
            self._replace(step.node, self._spread(step, step.node.inputs[0], "Sum"))

    def sum_gradients(self, step: _Step) -> None:
        """Replace gradients per distinct id by gradients per entry."""
        if step.roles.get(1) == "places":
            self.skip(step)

    def reduce(self, step: _Step) -> None:
        """A sum, or a mean, over the entries of each row."""
        node = step.node
        make, how = self._builder(node), node.op.rpartition("Segment")[2]
        rows, kind = node.inputs[0], node.out().dtype
        if node.op.startswith("Sparse") and step.roles[1] == "values":
            rows = make.add("GatherV2", [rows, node.inputs[1], make.const(np.int32(0))], batch_dims=0)
        width = [int(size or 0) for size in (node.inputs[0].shape or ())[1:]]
        deep = make.as_shape(rows, [-1, self._most(step), *width])
        parts = make.add("Mul", [deep, self._share(step, kind, how, len(width))])
        self._replace(node, make.add("Sum", [parts, make.const(np.asarray([1], np.int32))], keep_dims=False))

    def gradient(self, step: _Step) -> None:
        """The gradient of each entry: its share of its row's gradient."""
        make, node = self._builder(step.node), step.node
        spread = self._spread(step, node.inputs[0], node.op.removeprefix("SparseSegment").partition("Grad")[0])
        sparse, by_entry = len(node.outputs or ()) == 2, step.roles[1] == "values"
        if sparse and by_entry:
            self.graph.replace_uses(node.out(1), make.as_dtype(node.inputs[1], node.out(1).dtype))
        elif by_entry:
            spread = make.add("UnsortedSegmentSum", [spread, *node.inputs[1::2]])
        self._replace(node, spread)

    def _spread(self, step: _Step, values: Tensor, how: str) -> Tensor:
        """Give each entry the value of its row, times its weight in the row."""
        make = self._builder(step.node)
        width = [int(size or 0) for size in (values.shape or ())[1:]]
        once = make.as_shape(values, [-1, 1, *width])
        deep = make.add("Mul", [once, self._share(step, values.dtype, how, len(width))])
        return make.as_shape(deep, [-1, *width])

    def _share(self, step: _Step, kind: DType, how: str, width: int) -> Tensor:
        """The weight of each entry in its row, [rows, most, 1, ...] with a 1 for each dimension of ``width``."""
        fill = step.fill
        assert fill is not None  # values per row of the batch have segments
        if (fill, kind, how, width) in self._shares:
            return self._shares[fill, kind, how, width]
        make = self._builder(fill)
        share = make.as_dtype(self._made[fill].present, kind)
        if how != "Sum":
            count = make.add("Sum", [share, make.const(np.asarray([1], np.int32))], keep_dims=True)
            if how == "SqrtN":
                count = make.add("Sqrt", [count])
            share = make.add("RealDiv", [share, count])
        made = make.as_shape(share, [-1, self._most(step), *[1] * width])
        self._shares[fill, kind, how, width] = made
        return made

    def _most(self, step: _Step) -> int:
        assert step.fill is not None  # as above
        return self.bounds[step.fill].most

    def _replace(self, node: Node, made: Tensor) -> None:
        self.graph.replace_uses(node.out(), made)
        self.graph.replace_control_uses(node, [made.node])


_TOO_MANY = "a row has more ids than the padding of"
_TOO_MANY_TEXT = re.compile(_TOO_MANY + r" (?P<node>[^ ,]+), which has room for (?P<room>\d+):\]? *\[?(?P<longest>\d+)")


NO_IDS = "a row of the batch has no entry in"
_NO_IDS_TEXT = re.compile(NO_IDS + r" (?P<node>[^ ,]+):")


def ids_of_a_row(message: str) -> RunError | None:
    """The error for a row with too many ids, or with none, where a message of TensorFlow reports one."""
    none = _NO_IDS_TEXT.search(message)
    if none is not None:
        return RunError(f"a row of the batch has no id in '{none['node']}'", node=none["node"],
                        fix="look up with tf.nn.safe_embedding_lookup_sparse, which takes rows without ids")  # fmt: skip
    said = _TOO_MANY_TEXT.search(message)
    if said is None:
        return None
    return RunError(
        f"a row has {said['longest']} ids for '{said['node']}', and rows are padded to {said['room']}",
        node=said["node"],
        fix=f"convert with --max_ids={said['longest']}, or more where other rows are longer",
    )


@dataclass(frozen=True)
class _Step:
    """A node that may read lists: the roles of its operands, by index, and the list that it reduces row by row."""

    node: Node
    roles: Mapping[int, Role]
    fill: Node | None

    @staticmethod
    def of(node: Node, lists: Lists, bounds: Mapping[Node, Bound]) -> _Step:
        """Record the node before anything is rewritten."""
        held = {i: lists.of[t] for i, t in enumerate(node.inputs) if t in lists.of}
        padded = {i: entries for i, entries in held.items() if any(fill in bounds for fill in entries.makers)}
        segments = (entries.makers[0] for entries in padded.values() if entries.role == "segments")
        return _Step(node, {i: entries.role for i, entries in padded.items()}, next(segments, None))


_REWRITES: dict[str, Callable[[PaddedLists, _Step], None]] = {
    **dict.fromkeys(ops.UNIQUE, PaddedLists.unique),
    **dict.fromkeys(ops.PICKS, PaddedLists.gather),
    **dict.fromkeys((*ops.SPARSE_SEGMENTS, "SegmentSum"), PaddedLists.reduce),
    **dict.fromkeys(ops.ALL_SEGMENT_GRADS, PaddedLists.gradient),
    **dict.fromkeys(ops.UNSORTED_SUMS, PaddedLists.sum_gradients),
}
