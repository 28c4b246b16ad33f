"""Evidence of loops that take the rows one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import unsettled
from tpugraph.analysis.sizes import Size, follows_batch
from tpugraph.ir import Tensor


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
                held = d.containers.get(d.handles.get(node.inputs[0], node.inputs[0]))
                if held is not None and held.length is not None:
                    yield held.length
            elif node.op in ops.IDENTITIES | ops.SWITCH:
                stack.append(node)
