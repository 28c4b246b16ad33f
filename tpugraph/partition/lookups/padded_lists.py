"""Lists of entries padded to a fixed length in each row: made by the host, read by the device as dense tensors.

The host hands over [rows, most] ids, with -1 behind the last one of a row. On the device the first id of the row takes the
place of these, so that every number is a row of the table that the plain step reads as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.partition.lookups.entry_lists import Lists
from tpugraph.partition.lookups.entry_rules import Role, is_for_update
from tpugraph.partition.unread import ends_of, remove_unread
from tpugraph.support.errors import RunError

_INT32, _INT64, _BOOL = attrs.dtype("int32"), attrs.dtype("int64"), attrs.dtype("bool")


@dataclass(frozen=True)
class Bound:
    """The size of a padded list.

    Attributes:
        rows: how many rows a batch has.
        most: how many entries a row has at most.
        by_flag: whether a flag says so, and no shape.
    """

    rows: int
    most: int
    by_flag: bool


@dataclass(frozen=True)
class _Padded:
    """What has been made of a list: as the device reads it, [rows * most], and which entries there are, bool [rows, most]."""

    flat: Tensor
    present: Tensor


class PaddedLists:
    """Pads lists of a graph, and lets what reads them read the padded ones.

    Args:
        graph: the graph, with shapes.
        lists: the lists and what is made of them.
        bounds: the size of each list to pad, by the SparseFillEmptyRows that made it.
    """

    def __init__(self, graph: Graph, lists: Lists, bounds: Mapping[Node, Bound]) -> None:
        self.graph = graph
        self.bounds = bounds
        self.literals: list[str] = []
        """The constants that were made: numbers of the model, whatever the batch."""
        order = graph.topological_order(graph.descendants(bounds, data_only=True))
        self._ends = ends_of(order)
        self._steps = [_Step.of(node, lists, bounds) for node in order]
        self._shares: dict[tuple[Node, DType, str, int], Tensor] = {}

    def run(self) -> None:
        """Rewrite the graph; its shapes are to be inferred anew."""
        counted = {step.fill for step in self._steps if step.fill is not None}
        self._made = {fill: self._pad(fill, bound, ids=fill in counted) for fill, bound in self.bounds.items()}
        for step in self._steps:
            rewrite = _REWRITES.get(step.node.op)
            if rewrite is not None and step.roles:
                rewrite(self, step)
        for fill, made in self._made.items():
            self.graph.replace_uses(fill.out(1), made.flat, where=lambda use: use.node.op not in ops.RAGGED_TO_DENSE)
        remove_unread(self.graph, [step.node for step in self._steps], keep=self._ends)

    # ------------------------------------------------------------------ the list

    def _pad(self, fill: Node, bound: Bound, *, ids: bool) -> _Padded:
        kind = fill.out(1).dtype
        padding = np.asarray(-1 if ids else 0, kind.name)
        dense = self._dense(fill, bound, self._const(fill, padding))
        if not ids:
            return _Padded(self._flat(fill, dense, kind), dense)
        small = self._convert(fill, dense, kind, _INT32)
        zero, present = self._const(fill, np.int32(0)), (_BOOL, None)
        there = self._add(fill, "GreaterEqual", [small, zero], present, T=_INT32)
        ends = [self._const(fill, np.asarray(value, np.int32)) for value in ([0, 0], [0, 1], [1, 1])]
        masks = {"begin_mask": 1, "end_mask": 1, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
        first = self._add(fill, "StridedSlice", [small, *ends], (_INT32, None), T=_INT32, Index=_INT32, **masks)
        filled = self._add(fill, "SelectV2", [there, small, first], (_INT32, None), T=_INT32)
        return _Padded(self._convert(fill, self._flat(fill, filled, _INT32), _INT32, kind), there)

    def _dense(self, fill: Node, bound: Bound, padding: Tensor) -> Tensor:
        """The entries of each row from the left, [rows, most], on the host."""
        kind = fill.out(1).dtype
        ends = [self._const(fill, np.asarray(value, np.int32)) for value in ([0, 0], [0, 1], [1, 1])]
        masks = {"begin_mask": 1, "end_mask": 1, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 2}
        rows = self._add(fill, "StridedSlice", [fill.out(0), *ends], (_INT64, None), T=_INT64, Index=_INT32, **masks)
        shape = self._const(fill, np.asarray([bound.rows, bound.most], np.int64))
        count = self._const(fill, np.int64(bound.rows))
        kinds = {"T": kind, "Tindex": _INT64, "Tshape": _INT64, "num_row_partition_tensors": 2,
                 "row_partition_types": [b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"]}  # fmt: skip
        dense = self._add(
            fill, "RaggedTensorToTensor", [shape, fill.out(1), padding, count, rows], (kind, None), **kinds
        )
        self.graph.add_control(dense.node, self._checked(fill, rows, count, bound))
        return dense

    def _checked(self, fill: Node, rows: Tensor, count: Tensor, bound: Bound) -> Node:
        """Fails where a row has more entries than there is room for."""
        ones = self._add(fill, "OnesLike", [rows], (_INT64, None), T=_INT64)
        kinds = {"T": _INT64, "Tindices": _INT64, "Tnumsegments": _INT64}
        entries = self._add(fill, "UnsortedSegmentSum", [ones, rows, count], (_INT64, None), **kinds)
        axes = self._const(fill, np.asarray([0], np.int32))
        longest = self._add(fill, "Max", [entries, axes], (_INT64, None), T=_INT64, Tidx=_INT32, keep_dims=False)
        most = self._const(fill, np.int64(bound.most))
        fits = self._add(fill, "LessEqual", [longest, most], (_BOOL, None), T=_INT64)
        text = self._const(fill, np.asarray(f"{_TOO_MANY} {fill.name}, which has room for {bound.most}:", object))
        told = {"T": [attrs.dtype("string"), _INT64], "summarize": 3}
        return self.graph.add(
            "Assert", f"{fill.name}/padded/Assert", [fits, text, longest], attrs=told, outputs=[], source=fill
        )

    # ------------------------------------------------------------------ what reads it

    def skip(self, step: _Step) -> None:
        """The first operand is the list already."""
        self._replace(step.node, step.node.inputs[0])

    def unique(self, step: _Step) -> None:
        """Each entry has a row of its own; which rows are the same is for the update to find out."""
        if not is_for_update(step.node):
            self.graph.replace_uses(step.node.out(0), step.node.inputs[0])

    def gather(self, step: _Step) -> None:
        """A row for each entry: of what is there for each distinct id, or of what is there for each row of the batch."""
        if step.roles.get(1) == "places":
            self.skip(step)
        elif step.roles.get(1) == "segments":
            self._replace(step.node, self._spread(step, step.node.inputs[0], "Sum"))

    def added_up(self, step: _Step) -> None:
        """Gradients of distinct ids are those of the entries."""
        if step.roles.get(1) == "places":
            self.skip(step)

    def reduce(self, step: _Step) -> None:
        """A sum, or a mean, over the entries of each row."""
        node, how = step.node, step.node.op.rpartition("Segment")[2]
        rows, kind = node.inputs[0], node.out().dtype
        if node.op.startswith("Sparse") and step.roles[1] == "values":
            numbers = node.inputs[1]
            axis = self._const(node, np.int32(0))
            kinds = {"Tparams": kind, "Tindices": numbers.dtype, "Taxis": _INT32, "batch_dims": 0}
            rows = self._add(node, "GatherV2", [rows, numbers, axis], (kind, None), **kinds)
        width = [int(size or 0) for size in (node.inputs[0].shape or ())[1:]]
        deep = self._reshape(node, rows, [-1, self._most(step), *width])
        parts = self._add(node, "Mul", [deep, self._share(step, kind, how, len(width))], (kind, None), T=kind)
        axes = self._const(node, np.asarray([1], np.int32))
        self._replace(node, self._add(node, "Sum", [parts, axes], (kind, None), T=kind, Tidx=_INT32, keep_dims=False))

    def gradient(self, step: _Step) -> None:
        """The gradient of each entry is its share of that of its row."""
        node = step.node
        spread = self._spread(step, node.inputs[0], node.op.removeprefix("SparseSegment").partition("Grad")[0])
        if len(node.outputs or ()) == 2:
            if step.roles[1] == "values":
                self.graph.replace_uses(
                    node.out(1), self._convert(node, node.inputs[1], node.inputs[1].dtype, node.out(1).dtype)
                )
            self._replace(node, spread)
            return
        if step.roles[1] == "places":
            self._replace(node, spread)
            return
        kinds = {"T": spread.dtype, "Tindices": node.inputs[1].dtype, "Tnumsegments": node.inputs[3].dtype}
        self._replace(
            node, self._add(node, "UnsortedSegmentSum", [spread, *node.inputs[1::2]], (spread.dtype, None), **kinds)
        )

    def _spread(self, step: _Step, values: Tensor, how: str) -> Tensor:
        node, kind = step.node, values.dtype
        width = [int(size or 0) for size in (values.shape or ())[1:]]
        once = self._reshape(node, values, [-1, 1, *width])
        deep = self._add(node, "Mul", [once, self._share(step, kind, how, len(width))], (kind, None), T=kind)
        return self._reshape(node, deep, [-1, *width])

    def _share(self, step: _Step, kind: DType, how: str, width: int) -> Tensor:
        """What each entry counts for in its row, [rows, most] and as many ones as its width has dimensions."""
        fill = step.fill
        assert fill is not None  # what has rows of the batch has segments
        if (fill, kind, how, width) in self._shares:
            return self._shares[fill, kind, how, width]
        share = self._convert(fill, self._made[fill].present, _BOOL, kind)
        if how != "Sum":
            axes = self._const(fill, np.asarray([1], np.int32))
            count = self._add(fill, "Sum", [share, axes], (kind, None), T=kind, Tidx=_INT32, keep_dims=True)
            if how == "SqrtN":
                count = self._add(fill, "Sqrt", [count], (kind, None), T=kind)
            share = self._add(fill, "RealDiv", [share, count], (kind, None), T=kind)
        made = self._reshape(fill, share, [-1, self._most(step), *[1] * width])
        self._shares[fill, kind, how, width] = made
        return made

    def _most(self, step: _Step) -> int:
        assert step.fill is not None  # as above
        return self.bounds[step.fill].most

    # ------------------------------------------------------------------ nodes

    def _replace(self, node: Node, made: Tensor) -> None:
        self.graph.replace_uses(node.out(), made)
        self.graph.replace_control_uses(node, [made.node])

    def _flat(self, source: Node, tensor: Tensor, kind: DType) -> Tensor:
        return self._reshape(source, tensor, [-1])

    def _convert(self, source: Node, tensor: Tensor, before: DType, after: DType) -> Tensor:
        if before == after:
            return tensor
        return self._add(source, "Cast", [tensor], (after, None), SrcT=before, DstT=after, Truncate=False)

    def _reshape(self, source: Node, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        wanted = self._const(source, np.asarray(shape, np.int32))
        return self._add(source, "Reshape", [tensor, wanted], (tensor.dtype, None), T=tensor.dtype, Tshape=_INT32)

    def _const(self, source: Node, value: Any) -> Tensor:
        kind = attrs.dtype("string" if value.dtype == object else value.dtype.name)
        made = self._add(source, "Const", [], (kind, value.shape), dtype=kind, value=value)
        self.literals.append(made.node.name)
        return made

    def _add(self, source: Node, op: str, inputs: Sequence[Tensor], output: Output, **kinds: Any) -> Tensor:
        return self.graph.add(
            op, f"{source.name}/padded/{op}", inputs, attrs=kinds, outputs=[output], source=source
        ).out()


_TOO_MANY = "a row has more ids than the padding of"
_SAID = re.compile(_TOO_MANY + r" (?P<node>[^ ,]+), which has room for (?P<room>\d+):\]? *\[?(?P<longest>\d+)")


def too_many_ids(message: str) -> RunError | None:
    """The error for a row that has more ids than it was padded to, where a message of TensorFlow tells of one."""
    said = _SAID.search(message)
    if said is None:
        return None
    return RunError(
        f"a row has {said['longest']} ids for '{said['node']}', and rows are padded to {said['room']}",
        node=said["node"],
        fix=f"convert with --max_ids={said['longest']}, or more where other rows are longer",
    )


@dataclass(frozen=True)
class _Step:
    """A node that may read lists.

    Attributes:
        node: the node.
        roles: what its operands are to the lists that are padded, by number.
        fill: the list whose entries it takes row by row, if it does.
    """

    node: Node
    roles: Mapping[int, Role]
    fill: Node | None

    @staticmethod
    def of(node: Node, lists: Lists, bounds: Mapping[Node, Bound]) -> _Step:
        """Noted down before anything is rewritten."""
        held = {i: lists.of[t] for i, t in enumerate(node.inputs) if t in lists.of}
        padded = {i: entries for i, entries in held.items() if any(fill in bounds for fill in entries.makers)}
        segments = (entries.makers[0] for entries in padded.values() if entries.role == "segments")
        return _Step(node, {i: entries.role for i, entries in padded.items()}, next(segments, None))


_REWRITES: dict[str, Callable[[PaddedLists, _Step], None]] = {
    **dict.fromkeys(ops.UNIQUE, PaddedLists.unique),
    **dict.fromkeys(ops.PICKS, PaddedLists.gather),
    **dict.fromkeys((*ops.SEGMENTS, "SegmentSum"), PaddedLists.reduce),
    **dict.fromkeys(ops.ALL_SEGMENT_GRADS, PaddedLists.gradient),
    **dict.fromkeys(ops.UNSORTED_SUMS, PaddedLists.added_up),
}
