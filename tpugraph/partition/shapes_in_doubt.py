"""Numbers out of a shape that tensors with a batch have, and others, too: whose it is, a constant does not say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.constant_values import made_of_values
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import back, leading_to_loss
from tpugraph.analysis.placements import Sized
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.partition.two_readings import refusal_of


@dataclass(frozen=True)
class _Met:
    """Where a value of the loss is computed with a number out of such a shape.

    Attributes:
        constant: the shape.
        node: the node that computes with the number.
        number: that number.
        counts: whether it divides a sum over as many rows, or another number is computed of it first: it is read as the rows.
    """

    constant: Node
    node: Node
    number: int
    counts: bool


def refuse_coincident_shapes(placing: Placing, count: int) -> None:
    """Refuse a number out of such a shape where a value of the loss is computed with it, and nothing else says what it is.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    d = placing.d
    for met in _all_met(placing):
        if not met.counts:
            raise refusal_of(
                placing, met.node, met.constant.name, ("is the shape of rows", "is not"),
                f"'{met.node.name}' ({met.node.op}) computes with {met.number}, out of the shape '{met.constant.name}': a tensor "
                f"with the {d.rows} rows of a core's batch has that shape, and one without, too: if it is that of the rows, "
                f"{met.number} is {met.number * count} for the whole batch; if it is not, it stays",
            )  # fmt: skip


def literal_shapes(placing: Placing) -> list[str]:
    """What the user should know of: numbers out of such shapes that are read as numbers of the rows, as they count rows."""
    found = {
        met.constant.name: f"'{met.node.name}' ({met.node.op}) computes with {met.number}, out of the shape '{met.constant.name}', "
        f"which tensors have as well that have the rows elsewhere, or none: read as the {placing.d.rows} rows of a core's batch; "
        f"--literals={met.constant.name} if it is a number of the model"
        for met in _all_met(placing) if met.counts
    }  # fmt: skip
    return list(found.values())


def _all_met(placing: Placing) -> Iterator[_Met]:
    for constant in placing.d.untold.shapes:
        yield from _met(placing, constant)


def _met(placing: Placing, constant: Node) -> Iterator[_Met]:
    """Where the loss is computed with a number out of a shape."""
    d, forward = placing.d, leading_to_loss(placing.d)
    values = made_of_values(placing.graph)
    stack, seen = [(constant.out(), 0)], {constant.out()}
    while stack:
        tensor, number = stack.pop()
        for use in tensor.node.uses():
            node = use.node
            if node not in forward or node not in placing.verdicts or node.inputs[use.index] != tensor:
                continue
            made, computes = node.out(), node.op in ops.ELEMENTWISE
            if isinstance(placing.made(made), Sized) or (computes and node not in values):
                if made not in seen:
                    seen.add(made)
                    stack.append((made, next(iter(_of_rows(d, made)), number)))
            elif computes and made.dtype.floating and node in values and number:
                counts = not _of_rows(d, tensor) or _counts(d, node, use.index, number)
                yield _Met(constant, node, number, counts)


def _of_rows(d: Dimensions, tensor: Tensor) -> list[int]:
    """The one number that a tensor holds, if it follows the batch."""
    elements = d.elements(tensor) or ()
    return [d.sizes.at(size) for size in elements if size is not None and len(elements) == 1 and follows_batch(size)]


def _counts(d: Dimensions, node: Node, index: int, number: int) -> bool:
    """Whether a sum over as many rows or elements of the batch is divided by a number: it is their number."""
    if node.op not in ops.DIVISIONS or index != 1:
        return False
    return any(follows_batch(count) and d.sizes.at(count) == number for count in back(d, node.inputs[0]))
