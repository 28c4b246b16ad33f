"""Evidence of loops that take the rows one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimension_facts import Container
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.element_numbers import ElementNumber
from tpugraph.analysis.evidence.summed import unsettled
from tpugraph.analysis.sizes import Size, follows_batch
from tpugraph.ir import Node, Tensor


def container_of(d: Dimensions, handle: Tensor) -> Container | None:
    """What is known of the container of a handle."""
    return d.containers.get(d.handles.get(handle, handle))


def loop_limits(d: Dimensions) -> None:
    """A loop that takes the elements of a container one after the other has as many iterations as it has elements."""
    for node in d.order:
        if node.op not in ops.ORDERINGS or not any(u.node.op in _CONDITIONS for u in node.uses()):
            continue
        for counter, limit in (node.inputs, tuple(reversed(node.inputs))):
            elements = d.elements(limit)
            one = unsettled(elements[0]) if elements else None
            if counter.node.op not in ops.MERGE or not elements or elements[0] is None:
                continue
            if one is None:
                for length in _lengths(d, counter):
                    if (
                        follows_batch(elements[0])
                        and unsettled(length)
                        and d.sizes.at(length) == d.sizes.at(elements[0])
                    ):
                        d.sizes.tie(length, elements[0])
                continue
            lengths = list(_lengths(d, counter))
            for length in lengths:
                if follows_batch(length) and d.sizes.at(length) == one.value:
                    d.sizes.tie(one, length)
                    d.reasons[one] = "the loop takes the rows of the batch one after the other"

    for node in d.order:  # tf.while_loop counts to maximum_iterations beside the condition of the model
        if node.op in _BOTH and all(t.node.op in _LESS for t in node.inputs):
            first, second = (d.elements(t.node.inputs[1]) for t in node.inputs)
            if first and second and None not in (first[0], second[0]) and d.sizes.at(first[0]) == d.sizes.at(second[0]):  # type: ignore[arg-type]
                d.sizes.tie(first[0], second[0])  # type: ignore[arg-type]


def counted_down(d: Dimensions) -> None:
    """A loop that takes the elements of a container one after the other down to the first begins with the last one.

    Or with the one before, if the last one is taken outside of the loop.
    """
    lengths = dict(_counts_down(d))
    counted: list[Container] = []
    for number in d.numbered:
        held, length = container_of(d, number.handle), lengths.get(number.counter)  # type: ignore[arg-type]
        if held is None or held.length is None or length is None:
            continue
        if unsettled(held.length) and d.sizes.at(held.length) == d.sizes.at(length):
            d.sizes.tie(held.length, length)
        counted.append(held)
    for number in d.numbered if counted else ():
        held = container_of(d, number.handle)
        if number.counter is None and held in counted and held is not None and held.length is not None:
            _settle(d, number, d.sizes.at(held.length) - 1, held.length)
    # tf.while_loop counts to maximum_iterations beside the condition of the model
    for node in d.order if lengths else ():
        for test, other in (node.inputs, node.inputs[::-1]) if node.op in _BOTH else ():
            found = (lengths[t.node] for t in other.node.inputs if t.node in lengths)
            length = next(found, None) if test.node.op in _LESS else None
            elements = d.elements(test.node.inputs[1]) if length is not None else None
            one = unsettled(elements[0]) if elements else None
            if one is not None and length is not None and one.value == d.sizes.at(length):
                d.sizes.tie(one, length)
                d.reasons[one] = "the loop takes the rows of the batch one after the other"


def _counts_down(d: Dimensions) -> Iterator[tuple[Node, Size]]:
    """The counters of loops that go down through the rows, of which the first number is settled, with how many rows there are."""
    for number in d.numbered:
        held, elements = container_of(d, number.handle), d.elements(number.first)
        length = held.length if held is not None else None
        if number.counter is None or length is None or not follows_batch(length) or not elements or elements[0] is None:
            continue
        taken = d.sizes.at(elements[0]) + number.beside
        left = d.sizes.at(length) - 1 - taken
        if left == 0 or (left == 1 and _takes(d, held, taken + 1)):
            _settle(d, number, taken - number.beside, length)
            yield number.counter, length


def _takes(d: Dimensions, held: Container | None, place: int) -> bool:
    """Whether some op outside of loops takes the element of a container that has a certain number."""
    outside = (n for n in d.numbered if n.counter is None and container_of(d, n.handle) is held)
    found = (d.elements(number.first) for number in outside)
    return any(elements and elements[0] is not None and d.sizes.at(elements[0]) == place for elements in found)


def _settle(d: Dimensions, number: ElementNumber, value: int, length: Size) -> None:
    """A number of so much is so many less than the length."""
    elements = d.elements(number.first)
    one = unsettled(elements[0]) if elements else None
    if one is not None and one.value == value:
        d.sizes.sum([length], [one, d.sizes.at(length) - value])
        d.reasons[one] = "the loop takes the rows of the batch from the last one to the first"


_BOTH = ops.computing(np.logical_and)
_LESS = ops.computing(np.less)
_CONDITIONS = ops.LOOP_COND | _BOTH
_ELEMENT_NUMBERS = {op: held.index for op, held in ops.CONTENTS.items() if held.index is not None}


def _lengths(d: Dimensions, counter: Tensor) -> Iterator[Size]:
    """The lengths of the containers that a counter indexes."""
    stack, seen = [counter.node], {counter.node}
    while stack:
        for use in stack.pop().uses():
            node = use.node
            if node in seen:
                continue
            seen.add(node)
            if use.index == _ELEMENT_NUMBERS.get(node.op):
                held = container_of(d, node.inputs[0])
                if held is not None and held.length is not None:
                    yield held.length
            elif node.op in ops.IDENTITIES | ops.SWITCH:
                stack.append(node)
