"""Shapes of which data tell a part, where a node needs those of the whole batch, or those of this core."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph.analysis.bounds import shape_of
from tpugraph.analysis.placements import Replicate, Shard, Sized
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Known, Poly, at, depends_on_data, known
from tpugraph.ir import Node, Tensor
from tpugraph.partition.collectives import Collectives


def scale(placing: Placing, node: Node, index: int, wanted: Sequence[int], collectives: Collectives) -> None:
    """Have numbers of rows counted as a node needs them, in a shape that no constant can be written for.

    Args:
        placing: the solved analysis.
        node: the node.
        index: its operand that is the shape.
        wanted: the shape that it needs, -1 where data tell it.
        collectives: makes the nodes.
    """
    operand = node.inputs[index]
    held, elements = placing.read(operand), placing.d.elements(operand)
    if elements is None or len(elements) != len(wanted) or not isinstance(held, Sized | Replicate):
        return
    own = own_numbers(placing, operand) if isinstance(held, Sized) else [False] * len(elements)
    if own is None:
        return
    rows = [placing.d.rows * (1 if here else collectives.count) for here in own]
    numbers = [0 if one is None else at(placing.final(one), many) for one, many in zip(elements, rows, strict=True)]
    grow = [0 < has < number for has, number in zip(numbers, wanted, strict=True)]
    kept = [has // number if 0 < number < has else 1 for has, number in zip(numbers, wanted, strict=True)]
    if isinstance(held, Sized) and any(grow):
        placing.graph.set_input(node, index, collectives.sizes_of_all(operand, grow))
    elif max(kept) > 1:
        placing.graph.set_input(node, index, collectives.divided(operand, kept))


def told_of(placing: Placing, sizes: Tensor) -> list[Known]:
    """The numbers of a vector of sizes of which data tell some; -1 for each of these."""
    elements = placing.d.elements(sizes) or ()
    return [-1 if depends_on_data(size) else placing.final(size) for size in elements]


def own_numbers(placing: Placing, sizes: Tensor) -> list[bool] | None:
    """Which numbers of a vector of sizes count this core's rows; None where several follow the batch, and nothing tells them apart.

    Of the shape of pairs of rows it is the one along which a core has its own; the other is that of all.
    """
    elements = [None if size is None else known(size) for size in placing.d.elements(sizes) or ()]
    follows = [isinstance(size, Poly) for size in elements]
    if any(isinstance(size, Poly) and (len(size.c) != 2 or size.c[0]) for size in elements):
        return None
    if sum(follows) < 2:
        return follows
    source = shape_of(sizes)
    rows = placing.read(source) if source is not None else None
    return [place == rows.axis for place in range(len(follows))] if isinstance(rows, Shard) else None
