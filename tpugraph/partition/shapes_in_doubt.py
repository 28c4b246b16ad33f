"""Numbers out of a shape that tensors with a batch have, and others, too: whose it is, a constant does not say."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import back, leading_to_loss
from tpugraph.analysis.placements import Sized
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.partition.two_readings import refusal_of


def refuse_coincident_shapes(placing: Placing, count: int) -> None:
    """Refuse a number out of such a shape where a value of the loss is computed with it, and nothing else says what it is.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    d = placing.d
    for constant in d.untold.shapes:
        for node, number in _met(placing, constant):
            raise refusal_of(
                placing, node, constant.name, ("is the shape of rows", "is not"),
                f"'{node.name}' ({node.op}) computes with {number}, out of the shape '{constant.name}': a tensor with the {d.rows} "
                f"rows of a core's batch has that shape, and one without, too: if it is that of the rows, {number} is "
                f"{number * count} for the whole batch; if it is not, it stays",
            )  # fmt: skip


def _met(placing: Placing, constant: Node) -> Iterator[tuple[Node, int]]:
    """The nodes of the loss that compute with a number out of a shape, with that number."""
    d, forward = placing.d, leading_to_loss(placing.d)
    values = placing.graph.descendants(placing.graph.of_type(*ops.INPUTS, *ops.VARIABLES), data_only=True)
    stack, seen = [constant.out()], {constant.out()}
    while stack:
        tensor = stack.pop()
        for use in tensor.node.uses():
            node = use.node
            if node not in forward or node not in placing.verdicts or node.inputs[use.index] != tensor:
                continue
            made = node.out()
            if isinstance(placing.made(made), Sized):
                if made not in seen:
                    seen.add(made)
                    stack.append(made)
            elif node.op in ops.ELEMENTWISE and made.dtype.floating and node in values:
                yield from ((node, number) for number in _of_rows(d, tensor) if not _counts(d, node, use.index, number))


def _of_rows(d: Dimensions, tensor: Tensor) -> list[int]:
    """The one number that a tensor holds, if it follows the batch."""
    elements = d.elements(tensor) or ()
    return [d.sizes.at(size) for size in elements if size is not None and len(elements) == 1 and follows_batch(size)]


def _counts(d: Dimensions, node: Node, index: int, number: int) -> bool:
    """Whether a sum over as many rows or elements of the batch is divided by a number: it is their number."""
    if node.op not in ops.DIVISIONS or index != 1:
        return False
    return any(follows_batch(count) and d.sizes.at(count) == number for count in back(d, node.inputs[0]))
