"""The numbers of the elements of containers: those that a graph writes down, and those that a loop counts down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.trip_counts import steps_of
from tpugraph.ir import Node, Tensor
from tpugraph.ir.pattern import anything, match, op
from tpugraph.ir.walks import source_of
from tpugraph.ir.while_loops import carried

_HANDED_ON = ops.IDENTITIES | ops.CASTS | ops.ENTER
_ADDED = op(ops.computing(np.add), anything("number"), anything("by"))
_LESS = op(ops.computing(np.subtract), anything("number"), anything("by"))
_INDICES = {op: held.index for op, held in ops.CONTENTS.items() if held.index is not None}


@dataclass(frozen=True)
class ElementNumber:
    """What says which element of a container is put in or taken out.

    Attributes:
        handle: the container, as the op has it that puts the element in or takes it out.
        first: the number; of a counter the one that it begins with, outside of the loop.
        counter: what carries the number from one iteration to the next, where a loop counts it down; else None.
        beside: how much larger the number is than that.
    """

    handle: Tensor
    first: Tensor
    counter: Node | None = None
    beside: int = 0


def element_numbers(nodes: Iterable[Node]) -> list[ElementNumber]:
    """The numbers of elements that are constants, or that loops count down one by one."""
    found = []
    for node in nodes:
        index = _INDICES.get(node.op)
        number = source_of(node.inputs[index], _HANDED_ON) if index is not None else None
        if number is None:
            continue
        if fixed(number) is not None:
            found.append(ElementNumber(node.inputs[0], number))
            continue
        number, beside = _apart(number)
        counter = source_of(number, _HANDED_ON | ops.SWITCH).node
        loop = carried(counter)
        if loop is not None and steps_of(counter.out()) == -1:
            found.append(ElementNumber(node.inputs[0], source_of(loop.initial, _HANDED_ON), counter, beside))
    return found


def _apart(number: Tensor) -> tuple[Tensor, int]:
    """A number that a constant is added to, or subtracted from, and what that adds."""
    for pattern, sign in ((_ADDED, 1), (_LESS, -1)):
        found = match(pattern, number)
        by = fixed(found["by"]) if found else None
        if found and by is not None and len(by) == 1:
            return found["number"], sign * by[0]
    return number, 0
