"""What ops tie together that put the places of a block in front of the rows of a batch, or back into the space they are from.

A dilated convolution is one without holes on the elements of an image that are so many places apart: on a batch for each place
of a block, one after the other.
"""

from __future__ import annotations

import math

from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_rules.size_arithmetic import difference, product, total
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size, Unknown
from tpugraph.ir import Node


def block_of(node: Node) -> list[int] | None:
    """The sizes of the block of such an op, which divide the dimensions behind the first; None where they are not known."""
    if node.has_attr("block_size"):
        return [int(node.attr("block_size"))] * 2
    return fixed(node.inputs[1])


@rule("SpaceToBatch SpaceToBatchND")
def _space_to_batch(d: Dimensions, node: Node) -> None:
    dims, block, edges = d.dims(node.inputs[0]), block_of(node), _edges(d, node)
    if dims is None or block is None:
        d.fresh(node.out())
        return
    batches = product(d, [math.prod(block), dims[0]])
    if edges is None:
        _in_space_of_its_own(d, node, batches)
        return
    space = [_part(d, total(d, [size, *edge]), by) for size, by, edge in zip(dims[1:], block, edges, strict=False)]
    d.set(node.out(), (batches, *space, *dims[len(block) + 1 :]))


@rule("BatchToSpace BatchToSpaceND")
def _batch_to_space(d: Dimensions, node: Node) -> None:
    dims, block, edges = d.dims(node.inputs[0]), block_of(node), _edges(d, node)
    if dims is None or block is None:
        d.fresh(node.out())
        return
    batch = _part(d, dims[0], math.prod(block))
    if edges is None:
        _in_space_of_its_own(d, node, batch)
        return
    space = [
        difference(d, product(d, [size, by]), sum(edge)) for size, by, edge in zip(dims[1:], block, edges, strict=False)
    ]
    d.set(node.out(), (batch, *space, *dims[len(block) + 1 :]))


def _in_space_of_its_own(d: Dimensions, node: Node, batch: Size) -> None:
    """Say how many rows an output has of whose space it is computed how large it is."""
    made = d.fresh(node.out())
    if made:
        d.sizes.tie(made[0], batch)


def _edges(d: Dimensions, node: Node) -> list[tuple[int, int]] | None:
    """What is added at both ends of each dimension of the space, or cut off; None where it is computed."""
    numbers = d.numbers(node.inputs[-1])
    return None if numbers is None else list(zip(numbers[::2], numbers[1::2], strict=True))


def _part(d: Dimensions, size: Size, by: int) -> Size:
    """A size that is a whole number of times as large as another one: that one."""
    if isinstance(size, int) or by == 1:
        return size // by if isinstance(size, int) and size >= 0 else size
    value = d.sizes.at(size)
    part = Unknown(value // by if value >= 0 else -1)
    d.sizes.product([size], [part, by])
    return part
