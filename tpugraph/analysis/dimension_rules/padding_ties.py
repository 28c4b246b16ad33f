"""What ops that pad tie together, and what numbers dimensions are padded by."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant_at, fixed
from tpugraph.analysis.dimension_facts import Elements
from tpugraph.analysis.dimension_rules.size_arithmetic import total
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of


@rule("Pad PadV2 MirrorPad")
def _pad(d: Dimensions, node: Node) -> None:
    dims, amounts = d.dims(node.inputs[0]), paddings(d, node.inputs[1])
    d.tie(
        d.dims(node.inputs[1]), None if dims is None else (len(dims), 2)
    )  # how many dimensions there are is no number of rows
    if dims is None or amounts is None or None in amounts or len(amounts) != 2 * len(dims):
        d.fresh(node.out())
        return
    pairs = [amounts[2 * i : 2 * i + 2] for i in range(len(dims))]
    d.set(node.out(), [s if pair == [0, 0] else total(d, [s, *pair]) for s, pair in zip(dims, pairs, strict=True)])  # type: ignore[list-item]


def paddings(d: Dimensions, tensor: Tensor) -> Elements | None:
    """The numbers that dimensions are padded by, two for each, one dimension after the other."""
    found: list[Size | None] = []
    rest = [tensor]
    while rest:
        part = rest.pop()
        written, below = _written(d, part), _put_below(d, part)
        if written is None and not below:
            return None
        found += written or ()
        rest += below[::-1] if written is None else []
    return found


def _written(d: Dimensions, tensor: Tensor) -> Elements | None:
    """The numbers of paddings that are known, or written in a constant."""
    found = d.elements(tensor)
    if found is None and fixed(tensor) is not None:
        behind = source_of(tensor, ops.IDENTITIES | ops.ENTER)
        d.set_elements(behind, d.constants.paddings(behind.node))
        found = d.elements(behind) or fixed(tensor)  # type: ignore[assignment]
    return found


def _put_below(d: Dimensions, tensor: Tensor) -> list[Tensor]:
    """The paddings of some dimensions, and those of others that are put below them."""
    node = source_of(tensor, ops.IDENTITIES | ops.ENTER).node
    record = ops.record(node.op)
    if node.op not in ops.CONCATS or d.numbers(node.inputs[record.axis or 0]) != [0]:
        return []
    return [node.inputs[index] for index in record.data_operands(len(node.inputs))]


def part_of_matrix(d: Dimensions, source: Tensor, begin: Elements, size: Elements) -> Elements | None:
    """What a slice takes of a matrix of whole numbers that is written in the graph, as the gradient of a pad does; else None."""
    value = constant_at(source)
    pads = any(use.node.op in ops.PADS and use.index == 1 for use in source.node.uses())
    numbers = paddings(d, source) if pads else None
    if numbers is not None:
        value = np.array(numbers, object).reshape(-1, 2)
    if value is None or value.ndim != 2 or value.dtype.kind not in "iO" or None in (*begin, *size):
        return None
    first, count = ([d.sizes.at(number) for number in numbers] for numbers in (begin, size))  # type: ignore[arg-type]
    ends = (None if many == -1 else start + many for start, many in zip(first, count, strict=True))
    return list(value[tuple(map(slice, first, ends))].ravel().tolist())


@rule("MirrorPadGrad")
def _pad_grad(d: Dimensions, node: Node) -> None:
    dims, amounts = d.dims(node.inputs[0]), fixed(node.inputs[1])
    if dims is None or amounts is None:
        d.fresh(node.out())
        return
    d.set(node.out(), [total(d, [s, -amounts[2 * i] - amounts[2 * i + 1]]) if amounts[2 * i] + amounts[2 * i + 1] else s
                       for i, s in enumerate(dims)])  # fmt: skip
