"""The reading of loops that take rows one by one, and of their lists."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis.placements import Held
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of
from tpugraph.rebatch.following import Following
from tpugraph.spmd import factors
from tpugraph.spmd.rules.signature import size_of


def loop_limits(f: Following) -> None:
    """A loop that takes rows one by one and ends at their number makes an iteration for each, and so many elements of lists."""
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
                taken.add(frames[node])  # the gradient of a loop has as many iterations as that
            for limit in limits if frames.get(node) in taken else ():
                if limit.op in ops.CONSTANTS and limit not in f.changes and factors.integers(limit.out()) == [f.rows]:
                    f.change(limit, "the limit of a loop that takes rows one by one")
            for start in _starts(node) if frames.get(node) in taken else ():
                _follow_place(f, start, "where a loop begins that takes rows one by one from the last one on")
        within = node.name in f.lists or taken.intersection(entered.get(node, ()))
        length = _LENGTHS.get(node.op)
        if length is not None and within and factors.integers(node.inputs[length]) == [f.rows]:
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
    """The TensorArray, stack or list that a node reads or writes; of a gradient array the forward one."""
    handle = f.layers[0].read(node.out() if out else node.inputs[0])
    return "" if not isinstance(handle, Held) else handle.of or handle.key


def _follow_place(f: Following, node: Node, why: str) -> None:
    """Let the number of rows, or that of the last row or the one before it, follow."""
    number = factors.integers(node.out()) if node.op in ops.CONSTANTS and node not in f.changes else None
    for less in range(3):
        if number == [f.rows - less]:
            f.change(node, why, formula=lambda rows, less=less: rows - less)  # type: ignore[misc]


_BOTH_OR_EITHER = ops.computing(np.logical_and, np.logical_or)
_HANDED_ON = ops.IDENTITIES | ops.ENTER | ops.CASTS


def _compared(cond: Node) -> Iterator[Node]:
    """What the condition of a loop compares, behind what hands it on."""
    stack = [cond.inputs[0].node]
    for node in stack:  # grows while it is walked
        if ops.record(node.op).ordering is not None:
            yield from (source_of(tensor, _HANDED_ON).node for tensor in node.inputs)
        elif node.op in ops.TRUTHS | ops.IDENTITIES | _BOTH_OR_EITHER:
            stack += [t.node for t in node.inputs]


def _starts(cond: Node) -> Iterator[Node]:
    """What a loop's counters begin with."""
    for node in _compared(cond):
        if node.op in ops.MERGE:
            yield from (source_of(t, _HANDED_ON).node for t in node.inputs if t.node.op in ops.ENTER)
