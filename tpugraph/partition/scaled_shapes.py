"""Shapes of which data tell a part, where a node needs those of the whole batch, or those of this core."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph.analysis.placements import Replicate, Sized
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Known, at, depends_on_data
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
    rows = placing.d.rows * (1 if isinstance(held, Sized) else collectives.count)
    numbers = [0 if one is None else at(placing.final(one), rows) for one in elements]
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
