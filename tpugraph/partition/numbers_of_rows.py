"""Constants in arithmetic that may be numbers of rows: what is added to variables, and what divides or multiplies."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence import one_less
from tpugraph.analysis.evidence.readings import number_in
from tpugraph.analysis.evidence.summed import LINEAR, back, leading_to_loss
from tpugraph.analysis.placements import Partial
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, follows_batch
from tpugraph.analysis.state import additions, written_variables
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached
from tpugraph.partition.two_readings import constant_behind, in_doubt_of, refusal_of

_SQUARES = ops.computing(np.square)


def refuse_counters(placing: Placing, count: int) -> None:
    """Refuse a constant that is added to a variable and may count rows; the step counter is known to count none."""
    d, graph = placing.d, placing.graph
    step = None if graph.roles.step is None else graph.get(graph.roles.step.name)
    for node in placing.verdicts:
        fact = ops.WRITES.get(node.op)
        if fact is None or fact.rows is not None or step in written_variables(node):
            continue
        for tensor in additions(node):
            name, number = next(in_doubt_of(d, tensor), (None, 0))
            if name is not None:
                raise refusal_of(
                    placing, node, name, ("counts rows", "does not"),
                    f"'{node.name}' adds {number} to a variable, and a core's batch has {d.rows} rows: if '{name}' counts rows, "
                    f"the whole batch has {number * count} of them; if it is a number of the model, it stays {number}",
                )  # fmt: skip


def refuse_divisors(placing: Placing, count: int) -> None:
    """Refuse a sum over the batch that is divided by a constant that may be several times the rows, as twice their number."""
    d = placing.d
    for node in placing.verdicts:
        if node.op not in ops.DIVISIONS or not isinstance(placing.made(node.inputs[0]), Partial):
            continue
        one, behind = _number(d, node.inputs[1]), constant_behind(node.inputs[1])
        if (
            behind.op not in ops.CONSTANTS
            or d.constants.choice(behind.name) is not None
            or not isinstance(one, Unknown)
        ):
            continue
        counts = [size for size in back(d, node.inputs[0]) if follows_batch(size)]
        if not d.in_doubt(one) or one.value <= d.rows or not counts:
            continue
        raise refusal_of(
            placing, node, behind.name, ("grows with the batch", "does not"),
            f"'{node.name}' divides a sum over the batch by {one.value}, which is {one.value // d.rows} times the {d.rows} rows "
            f"of a core's batch: if '{behind.name}' follows them, the whole batch has {one.value * count}; if it is a number of "
            f"the model, it stays {one.value}", one.value,
        )  # fmt: skip


def _number(d: Dimensions, tensor: Tensor) -> Size | None:
    """The one number that a tensor holds; None where it holds several, or nothing is known of it."""
    elements = d.elements(tensor)
    return elements[0] if elements and len(elements) == 1 else None


def refuse_one_less(placing: Placing, count: int) -> None:
    """Refuse a sum over the batch that is divided by one less than the number of what is summed, or by as many as are pairs."""
    for less in one_less(placing.d):
        name, reading = less.constant.name, less.reading
        if placing.d.constants.choice(name) is None and less.node in placing.verdicts:
            raise refusal_of(
                placing, less.node, name, ("follows the rows", "does not"),
                f"'{less.node.name}' divides a sum over the batch by {less.number}, {reading}, the number of what is summed, and a "
                f"core's batch has {placing.d.rows} rows: if '{name}' follows them, it is {reading.words.format(reading.of * count)} "
                "for the whole batch; if it is a number of the model, it stays", less.number,
                likely="rows*(rows-1)" if reading.counts_pairs else "rows-1",
            )  # fmt: skip


def refuse_multiplied_means(placing: Placing, count: int) -> None:
    """Refuse a mean over the batch that is multiplied by exactly as many as it is of, as a sum is written sometimes."""
    d = placing.d
    for node in placing.verdicts if d.rows > 1 else ():
        for number, other in _factors(node):
            one, behind = _number(d, number), constant_behind(number)
            if behind.op not in ops.CONSTANTS or not d.in_doubt(one) or d.constants.choice(behind.name) is not None:
                continue
            if one.value not in _counted_by_means(d, other) or _is_of_a_square(d, node, behind, other):
                continue
            raise refusal_of(
                placing, node, behind.name, ("counts what the mean is of", "does not"),
                f"'{node.name}' multiplies a mean over the batch by {one.value}, and a core's batch has {d.rows} rows: if "
                f"'{behind.name}' counts rows or elements, it is {one.value * count} for the whole batch; if it is a number of the "
                f"model, it stays {one.value}",
            )  # fmt: skip


def _factors(node: Node) -> Iterator[tuple[Tensor, Tensor]]:
    """Each operand of a product, with the other one."""
    if node.op in ops.SCALINGS:
        first, second = node.inputs
        yield from ((first, second), (second, first))


def _is_of_a_square(d: Dimensions, node: Node, number: Node, other: Tensor) -> bool:
    """Whether a product is two times what is squared on the way to the loss, as the gradient of the square has it."""
    forward = leading_to_loss(d)
    if number_in(number) != 2 or number in forward or node in forward:
        return False
    squared = any(use.node in forward and use.node.op in _SQUARES for use in other.node.uses())
    return squared and all(use.node.op in ops.SCALINGS for use in node.uses())


def _counted_by_means(d: Dimensions, tensor: Tensor) -> set[int]:
    """The rows of a core's batch, and the elements, of the means over the batch that a tensor is one of, or is a sum with."""
    if d.axes(tensor):
        return set()
    near = reached([tensor.node], lambda at: (t.node for t in at.inputs) if at.op in LINEAR - ops.ADD_N else ())
    found: set[int] = set()
    for at in near:
        dims = d.dims(at.inputs[0]) if at.op in ops.MEANS else None
        if dims and any(map(follows_batch, dims)) and not d.axes(at.out()):
            left = math.prod(map(d.sizes.at, d.dims(at.out()) or ()))
            found |= {d.rows, math.prod(map(d.sizes.at, dims)) // left}
    return found
