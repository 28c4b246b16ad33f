"""Readings: rules that guess that a constant beside rows depends on the batch size. Each guess is listed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis.placements import SUM, Entries, Held, Shard
from tpugraph.analysis.trip_counts import comparisons
from tpugraph.analysis.values import constant, data_dependent, integers, known_vector
from tpugraph.ir import Node, Tensor
from tpugraph.ir.attrs import Shape
from tpugraph.ir.walks import source_of
from tpugraph.rebatch.following import Following
from tpugraph.spmd import factors
from tpugraph.spmd.placing import Placing
from tpugraph.spmd.rules.signature import size_of

_SAME_NUMBER = ops.IDENTITIES | ops.CASTS | ops.ENTER | ops.SWITCH | ops.RESHAPES
_SCALED = ops.computing(np.multiply)
_DIVIDED = ops.DIVISIONS
Counts = dict[int, int]
"""Element counts, each with the number of its dimensions that follow the batch."""


def read(following: Following) -> None:
    """Mark the constants that the readings find as following the batch."""
    for reading in READINGS:
        reading(following)


def divided(f: Following) -> None:
    """A divisor of a sum over rows is its element count; a divisor of a value repeated for all rows is the number of rows."""
    for count, why in (
        (_summed, "divides a sum over rows by as many elements as were summed"),
        (_repeated, "the factor of a mean's gradient: what it divides is repeated as often"),
    ):
        for node in f.order:
            if node.op in _DIVIDED | _SCALED and len(node.inputs) == 2:
                for part in (0, 1) if node.op in _SCALED else (0,):
                    counts, summed = count(f, node.inputs[part])
                    if counts:
                        _count_in(f, node.inputs[1 - part], counts, summed, why, divides=node.op in _DIVIDED)


def _summed(f: Following, tensor: Tensor) -> tuple[Counts, list[Tensor]]:
    """The element counts of a sum over rows, and its operand."""
    for layer in f.layers:
        if layer.made(tensor) == SUM:
            return _sum_after(f, layer, tensor)
    return {}, []


def _sum_after(f: Following, layer: Placing, tensor: Tensor) -> tuple[Counts, list[Tensor]]:
    later, seen = 1, {tensor}
    while True:
        node = tensor.node
        if node.op in ops.MEANS:
            return {}, []
        rows = [t for t in node.inputs if isinstance(layer.read(t), Shard)]
        if rows:
            return _reduced(f, node, tensor, rows, later)
        if node.op in ops.SUMS:
            later *= _elements(node.inputs[0].shape) // _elements(tensor.shape)
        before = [t for t in node.inputs if layer.read(t) == SUM and t not in seen]
        if not before:
            return {}, []
        tensor = before[0]
        seen.add(tensor)


def _reduced(f: Following, node: Node, out: Tensor, rows: list[Tensor], later: int) -> tuple[Counts, list[Tensor]]:
    signature = factors.signature(node)
    if signature is None:
        return {}, []
    kept = signature.outputs[out.port] or ()
    for tensor, letters in zip(node.inputs, signature.inputs, strict=True):
        if tensor not in rows or letters is None:
            continue
        gone = [axis for axis, letter in enumerate(letters) if letter not in kept]
        sizes = [(tensor.shape or ())[axis] or 0 for axis in gone]
        follow = [size for axis, size in zip(gone, sizes, strict=True) if axis in f.axes.get(tensor, ())]
        if follow:
            return dict.fromkeys((math.prod(follow), math.prod(sizes), math.prod(sizes) * later), len(follow)), rows
    return {}, []


def _repeated(f: Following, tensor: Tensor) -> tuple[Counts, list[Tensor]]:
    """How often a value is repeated that is broadcast to all rows."""
    tensor = source_of(tensor, _SAME_NUMBER - ops.RESHAPES)
    node, shape = tensor.node, tensor.shape
    if node.op not in ops.FILLS | ops.TILES | ops.BROADCASTS or shape is None or None in shape:
        return {}, []
    before = () if node.op in ops.FILLS else node.inputs[0].shape or ()
    ones = [1] * (len(shape) - len(before)) + list(before)
    follow = [shape[axis] or 0 for axis in f.axes.get(tensor, ()) if ones[axis] == 1]
    if not follow:
        return {}, []
    return dict.fromkeys((math.prod(follow), _elements(shape) // _elements(before)), len(follow)), []


def _elements(shape: Shape) -> int:
    return math.prod(size or 1 for size in shape or ())


def _count_in(f: Following, tensor: Tensor, counts: Counts, summed: list[Tensor], why: str, *, divides: bool) -> None:
    """Mark the element count that a divisor, or a factor, is computed from."""
    counted, seen, stack = False, {tensor}, [(tensor, divides)]
    made = data_dependent(f.graph)
    while stack:
        tensor, divides = stack.pop()
        node = tensor.node
        if node.op in ops.CONSTANTS:
            if not (counted and any(use.node in made for use in node.uses())):
                _is_count(f, node, counts, why, divides=divides)
            continue
        if node.op in ops.SUMS and node.inputs[0].node not in made:
            _ones(f, node.inputs[0], summed, why)
            counted, new = True, [(node.inputs[0], divides)]
        elif node.op in _DIVIDED and not divides and node.inputs[0].node.op in ops.CONSTANTS:
            new = [(node.inputs[1], True)]
        elif node.op in _SAME_NUMBER or (divides and node not in made and node.op in ops.ELEMENTWISE):
            new = [(t, divides) for t in node.inputs]
        elif divides and node.op in ops.ELEMENTWISE and node.op.startswith("Select"):
            new = [(t, divides) for t in node.inputs[1:]]
        else:
            continue
        stack += [item for item in new if item[0] not in seen]
        seen.update(t for t, _ in new)


def _is_count(f: Following, node: Node, counts: Counts, why: str, *, divides: bool) -> None:
    value = constant(node)
    if node in f.changes or value.dtype.kind not in "iuf" or value.size != 1 or not value.item():
        return
    number = float(value.item()) if divides else 1.0 / float(value.item())
    power = next((p for count, p in counts.items() if count > 1 and math.isclose(number, count, rel_tol=1e-6)), 0)
    if power:
        f.change(node, why, power=power if divides else -power)


def _ones(f: Following, tensor: Tensor, summed: list[Tensor], why: str) -> None:
    """In ``reduce_sum(ones)``, ones with one element per row count the rows."""
    like = next((t for t in summed if t.shape == tensor.shape), None)
    for axis in sorted(f.axes.get(like, ())) if like is not None else ():
        f.lift(tensor, axis, f"{why}: it makes ones that are counted")


def counters(f: Following) -> None:
    """A metric's count: a constant added to a variable that divides another, to which as many elements are added."""
    why = "counts in a variable the elements that are summed in another"

    def variable(tensor: Tensor) -> Node:
        return source_of(tensor, _PARTS_OF_COUNT).node

    added = {variable(n.inputs[0]): n.inputs[1] for n in f.order if n.op in ops.ASSIGN_ADDS}
    for node in f.order:
        if node.op in _DIVIDED:
            total, count = (added.get(variable(tensor)) for tensor in node.inputs[:2])
            counts, summed = ({}, []) if total is None or count is None else _summed(f, total)
            if count is not None and counts:
                _count_in(f, count, counts, summed, why, divides=True)


_PARTS_OF_COUNT = ops.READS | ops.IDENTITIES | ops.CASTS | ops.ELEMENTWISE | ops.ASSIGN_ADDS


def whole_shapes(f: Following) -> None:
    """A vector equal to the whole shape of a tensor with rows is that shape: beside a sparse tensor, or in shape arithmetic."""
    shapes = {tuple(t.shape or ()): axes for t, axes in f.axes.items()}
    for node in f.order:
        shape = known_vector(node.out()) if node.op in ops.CONSTANTS and len(node.out().shape or ()) < 2 else None
        if shape and any(_in_arithmetic(f, use.node, use.index, len(shape)) for use in node.uses()):
            _follow_shape(f, node.out(), shapes.get(tuple(shape), ()) if node.out().shape else (0,))
        if ops.record(node.op).family == "sparse" and any(_has_rows(f, t) for t in node.inputs):
            for tensor in node.inputs:
                if (
                    tensor.dtype.name in ("int32", "int64")
                    and len(tensor.shape or ()) == 1
                    and not _has_rows(f, tensor)
                ):
                    _follow_shape(f, tensor, shapes.get(tuple(known_vector(tensor) or ()), ()))


def _follow_shape(f: Following, tensor: Tensor, axes: Iterable[int]) -> None:
    for axis in axes:
        f.follow_size(tensor, axis, "the whole shape of a tensor with rows")


def _has_rows(f: Following, tensor: Tensor) -> bool:
    return bool(f.axes.get(tensor)) or isinstance(f.layers[0].read(tensor), Entries)


def _in_arithmetic(f: Following, node: Node, index: int, rank: int) -> bool:
    """Whether shape arithmetic reads a vector: slices, concatenations, or an op with a shape that follows."""
    if node.op in ops.CASTS | ops.IDENTITIES:
        return any(_in_arithmetic(f, use.node, use.index, rank) for use in node.uses())
    if node.op in ops.BROADCAST_AXES | _EQUAL:
        plain, other = known_vector(node.inputs[1 - index]), known_vector(f.in_twin(node.inputs[1 - index]))
        return plain != other and (node.op in ops.BROADCAST_AXES or plain == known_vector(node.inputs[index]))
    pieces = ops.SLICES | ops.CONCATS if rank > 1 else ops.SLICES
    return (
        bool(node.inputs[index].shape)
        and node.op in pieces
        and index in ops.record(node.op).data_operands(len(node.inputs))
    )


_EQUAL = ops.computing(np.equal, np.not_equal)


def reshapes_back(f: Following) -> None:
    """A reshape of regrouped rows to the whole shape of a tensor with rows restores that shape."""
    shapes = {tuple(t.shape or ()): axes for t, axes in f.axes.items()}
    for node in f.gathers():
        shape = node.out().shape if node.op in ops.RESHAPES else None
        if shape and not f.axes.get(node.out()) and (axes := shapes.get(tuple(shape))):
            for axis in axes:
                f.force(node.out(), axis)


def loop_limits(f: Following) -> None:
    """A loop that takes rows one by one and ends at their number has one iteration, and one list element, per row."""
    frames, taken = analysis.frames(f.graph), set()
    for node in f.gathers():
        if node.op in _UNSTACKS:
            f.lists[_key(f, node, out=node.op in ops.LIST_CONTENTS)] = None
        elif node in frames and node.op in ops.SLICES | ops.LOOKUPS:
            taken.add(frames[node])
    entered = {node: [use.node.attr("frame_name") for use in node.uses() if use.node.op in ops.ENTER] for node in f.order
               if node.op in _LENGTHS or node.op in _UNSTACKS}  # fmt: skip
    taken |= {name for node, names in entered.items() if node.name in f.lists for name in names}
    for node in f.order:
        if node.op in ops.LOOP_COND:
            limits = [found for found in _compared(node) if found.op in ops.CONSTANTS | ops.EXIT]
            if any(limit.op in ops.EXIT and frames.get(limit.inputs[0].node) in taken for limit in limits):
                taken.add(frames[node])  # the gradient of a loop has the loop's trip count
            for limit in limits if frames.get(node) in taken else ():
                if limit.op in ops.CONSTANTS and limit not in f.changes and integers(limit.out()) == [f.rows]:
                    f.change(limit, "the limit of a loop that takes rows one by one")
            for start in _starts(node) if frames.get(node) in taken else ():
                _follow_place(f, start, "where a loop begins that takes rows one by one from the last one on")
        within = node.name in f.lists or taken.intersection(entered.get(node, ()))
        length = _LENGTHS.get(node.op)
        if length is not None and within and integers(node.inputs[length]) == [f.rows]:
            f.lists[node.name] = None
            f.follow_size(node.inputs[length], 0, "the length of a list with an element for each row")
        if node.op in _UNSTACKS and (within or _key(f, node) in f.lists):
            value = node.inputs[ops.CONTENTS[node.op].puts or 0]
            if size_of(value, 0) == f.rows:
                f.lift(value, 0, "a list with an element for each row is made of it")
        if node.op in _INDEXED and _key(f, node) in f.lists:
            f.lift(node.inputs[1], 0, "the places of a list with an element for each row")
        if node.op in _PLACES and _key(f, node) in f.lists:
            _follow_place(f, node.inputs[_PLACES[node.op]].node, "the last element of a list with one for each row")
        if node.op in _STACKS and _key(f, node) in f.lists:
            f.force(node.out(), 0)


_LENGTHS = {op: held.length for op, held in ops.CONTENTS.items() if held.length is not None}
_AT_ONCE = {op: held for op, held in ops.CONTENTS.items() if held.stacked}
_UNSTACKS = frozenset(op for op, held in _AT_ONCE.items() if held.puts is not None)
_STACKS = frozenset(op for op, held in _AT_ONCE.items() if held.takes is not None)
_PLACES = {op: held.index for op, held in ops.CONTENTS.items() if held.index is not None}
_INDEXED = frozenset(op for op, held in _AT_ONCE.items() if not held.value)


def _key(f: Following, node: Node, *, out: bool = False) -> str:
    """The TensorArray, stack or list that a node accesses; for a gradient array the forward one."""
    handle = f.layers[0].read(node.out() if out else node.inputs[0])
    return "" if not isinstance(handle, Held) else handle.of or handle.key


def _follow_place(f: Following, node: Node, why: str) -> None:
    """Mark the number of rows, or the index of the last row or of the one before it."""
    number = integers(node.out()) if node.op in ops.CONSTANTS and node not in f.changes else None
    for less in range(3):
        if number == [f.rows - less]:
            f.change(node, why, formula=lambda rows, less=less: rows - less)  # type: ignore[misc]


_BOTH_OR_EITHER = ops.computing(np.logical_and, np.logical_or)
_HANDED_ON = ops.IDENTITIES | ops.ENTER | ops.CASTS


def _compared(cond: Node) -> Iterator[Node]:
    """The nodes whose values the condition of a loop compares."""
    for node in comparisons(cond, ops.TRUTHS | ops.IDENTITIES | _BOTH_OR_EITHER):
        yield from (source_of(tensor, _HANDED_ON).node for tensor in node.inputs)


def _starts(cond: Node) -> Iterator[Node]:
    """The initial values of a loop's counters."""
    for node in _compared(cond):
        if node.op in ops.MERGE:
            yield from (source_of(t, _HANDED_ON).node for t in node.inputs if t.node.op in ops.ENTER)


READINGS = (divided, counters, whole_shapes, reshapes_back, loop_limits)
"""The readings, in the order in which they are made."""
