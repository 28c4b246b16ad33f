"""Evidence of divisions by the number of elements or rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import (
    FARTHEST,
    LINEAR,
    ahead,
    averaged,
    back,
    final,
    leading_to_loss,
    spread,
    spread_value,
    unsettled,
)
from tpugraph.analysis.size_relations import STATED
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown, add, follows_batch, known
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of, variable_of


def divided_safely(d: Dimensions) -> None:
    """What divides a sum over the batch by exactly as many elements, guarded against zero, is their number.

    Means of ``tf.losses`` are made so; nobody guards a division by a number of the model, which is never zero.
    """
    divided(d, safely=True)


def divided(d: Dimensions, *, safely: bool = False) -> None:
    """What divides a sum over the batch, or what is spread over it, by exactly as many elements or rows, is their number.

    Where the same constant divides single rows or means of the loss as well, it is a number of the model. A mean's gradient
    divides what it spread directly in front of it; what depends on that divides rows by it in gradients of the gradient, and
    says nothing.

    Args:
        d: the dimensions.
        safely: whether only the divisors count of which a division is guarded against zero.
    """
    guarded = {divisor for node, divisor in _divisions(d) if node.op in ops.GUARDED_DIVISIONS}
    forward = leading_to_loss(d)
    of_loss: dict[Unknown, Node] = {divisor: node for node, divisor in _divisions(d) if node in forward}
    found: dict[Unknown, Size | None] = {}
    tiled: dict[Unknown, dict[Node, Size]] = {}
    single: dict[Unknown, list[Node]] = {}
    for node, divisor in _divisions(d):
        if _waits(d, node.inputs[0]):
            continue
        spread_to = _tiled(d, node.inputs[0])
        if spread_to is not None and follows_batch(spread_to) and d.sizes.at(spread_to) == divisor.value:
            tiled.setdefault(divisor, {})[node] = spread_to
        if found.get(divisor, divisor) is None:
            single[divisor] += [node] if d.axes(node.inputs[0]) and node not in tiled.get(divisor, ()) else []
            continue
        counts = [] if _keeps_rows(d, node.inputs[0]) else [c for c in _counts(d, node) if follows_batch(c)]
        rows = [ROWS] if counts and not (divisor.origin is None and any(map(_of_pairs, counts))) else []
        count = next((c for c in (*counts, *rows) if d.sizes.at(c) == divisor.value), None)
        if count is None and divisor.origin is None:  # computed, as the number of rows less one
            less = (add(final(d, c), -1) for c in counts)
            count = next((c for c in less if d.sizes.at(c) == divisor.value > 1), None)
        if count is not None:
            found[divisor] = count
        elif divisor in of_loss and node not in forward:
            continue  # a gradient divides what comes back to the quotient by the same number
        elif d.axes(node.inputs[0]) or divides_a_mean(d, node):
            found[divisor], single[divisor] = None, [node]
    for divisor, by in tiled.items():
        if found.get(divisor, divisor) is not None:
            continue
        behind = d.graph.descendants([node.inputs[0].node for node in by], data_only=True)
        if all(node in behind for node in single[divisor]):
            found[divisor] = next(iter(by.values()))
    _settle(d, {divisor: size for divisor, size in found.items() if not safely or divisor in guarded}, of_loss, guarded)


def _settle(
    d: Dimensions, found: Mapping[Unknown, Size | None], of_loss: Mapping[Unknown, Node], guarded: Collection[Unknown]
) -> None:
    """Settle divisors that are numbers of rows; the report has those that the loss is divided by with no guard against zero."""
    for divisor, size in found.items():
        if size is None or known(divisor) is not None:
            continue
        d.sizes.tie(divisor, size)
        d.reasons[divisor] = f"it divides what was summed or spread over {divisor.value} elements or rows of the batch"
        if divisor in of_loss and divisor not in guarded:
            d.untold.divisions[of_loss[divisor]] = None


def divided_by_sums(d: Dimensions) -> None:
    """What a sum over the batch divides, and what is exactly as many as the elements or rows that are summed, is their number.

    Weights of classes are made so: the rows over how many of them a class has.
    """
    for node in d.order if d.rows > 1 else ():
        elements = d.elements(node.inputs[0]) if node.op in ops.DIVISIONS else None
        one = unsettled(elements[0]) if elements and len(elements) == 1 else None
        if one is None or one.value < d.rows or d.axes(node.inputs[1]):
            continue
        counts = [c for c in back(d, unguarded(node.inputs[1])) if follows_batch(c)]
        count = next((c for c in (*counts, *([ROWS] if counts else [])) if d.sizes.at(c) == one.value), None)
        if count is not None:
            d.sizes.tie(one, count)
            d.reasons[one] = f"a sum over {one.value} elements or rows of the batch divides it"


def _of_pairs(size: Size) -> bool:
    """Whether a size grows with the square of the rows: what divides it is computed of them twice, of two rows n * (n - 1) is two."""
    found = known(size)
    return isinstance(found, Poly) and len(found.c) > 2


def unguarded(tensor: Tensor) -> Tensor:
    """What a divisor is where it is no less than a number that guards the division against zero."""
    while tensor.node.op in ops.computing(np.maximum):
        given = [t for t in tensor.node.inputs if source_of(t, ops.IDENTITIES | ops.CASTS).node.op not in ops.CONSTANTS]
        if len(given) != 1:
            break
        tensor = given[0]
    return tensor


def divided_before_sums(d: Dimensions) -> Iterator[tuple[Node, Node]]:
    """The divisions of rows by a number of the model that is exactly as many as are summed next, on the way to the loss.

    ``sum(losses / rows)`` looks like ``sum(losses / classes)`` where there are as many classes.

    Yields:
        The division and its constant.
    """
    forward = leading_to_loss(d) if d.rows > 1 else {}
    for node in d.order:
        if node in forward and node.op in ops.DIVISIONS and d.axes(node.inputs[0]):
            number, by = _literal(d, node.inputs[1])
            counts = [c for c in ahead(d, node, forward) if follows_batch(c)]
            if any(d.sizes.at(c) == number for c in counts):
                yield node, by


def multiplied_before_means(d: Dimensions) -> Iterator[tuple[Node, Node]]:
    """The products of rows and a number of the model that is exactly as many as a mean is of, on the way to the loss.

    ``mean(losses * rows)``, a sum, looks like ``mean(losses * weight)``.

    Yields:
        The product and its constant.
    """
    forward = leading_to_loss(d) if d.rows > 1 else {}
    for node in d.order:
        if node not in forward or node.op not in ops.SCALINGS:
            continue
        for tensor, other in (node.inputs, node.inputs[::-1]):
            number, by = _literal(d, tensor)
            if number is not None and d.axes(other):
                counts = [c for c in ahead(d, node, forward, averaged) if follows_batch(c)]
                if any(d.sizes.at(c) == number for c in (*counts, *([ROWS] if counts else []))):
                    yield node, by


def _literal(d: Dimensions, tensor: Tensor) -> tuple[int | None, Node]:
    """The number that a constant holds, which is read as one of the model though no flag says so; None of others."""
    elements, by = d.elements(tensor), source_of(tensor).node
    one = elements[0] if elements and len(elements) == 1 and by.op in ops.CONSTANTS else None
    number = None if one is None or d.constants.choice(by.name) is not None else known(one)
    return number if isinstance(number, int) else None, by


def divides_a_mean(d: Dimensions, node: Node) -> bool:
    """Whether a mean over the batch is divided: its gradient is spread over the rows, and what divides that is no number of them."""
    behind = reached([node.inputs[0].node], lambda at: (t.node for t in at.inputs) if at.op in LINEAR else ())
    return any(at.op in ops.MEANS and any(map(follows_batch, d.dims(at.inputs[0]) or ())) for at in behind)


def open_divisors(d: Dimensions) -> list[Unknown]:
    """The numbers that something is divided by and of which nothing is known yet."""
    return [divisor for _, divisor in _divisions(d)]


def _divisions(d: Dimensions) -> Iterator[tuple[Node, Unknown]]:
    """The divisions by a number of which nothing is known yet, with the number."""
    for node in d.order:
        elements = d.elements(node.inputs[1]) if node.op in ops.DIVISIONS and len(node.inputs) == 2 else None
        divisor = unsettled(elements[0]) if elements and len(elements) == 1 else None
        if divisor is not None and divisor.value >= 1 and not _is_computed_of_rows(d, divisor):
            yield node, divisor


def _is_computed_of_rows(d: Dimensions, size: Unknown) -> bool:
    """Whether a size waits for all that it is computed of, a part of which follows the batch."""
    computed = (relation for relation in d.sizes.pending if relation[0] not in STATED)
    return any(left[0] is size and any(map(follows_batch, right)) for _, left, right, _ in computed)


def _tiled(d: Dimensions, numerator: Tensor) -> Size | None:
    """How many elements one was spread to directly in front of a division."""
    return spread_value(d, source_of(numerator).node)


def _waits(d: Dimensions, numerator: Tensor) -> bool:
    """Whether one is spread directly in front of a division along what may be rows, of which nothing is known yet."""
    tile = source_of(numerator).node if d.rows > 1 else None
    opened = map(unsettled, d.dims(tile.out()) or ()) if tile is not None and tile.op in ops.SPREADS else ()
    return any(one is not None and one.value > 1 and one.value % d.rows == 0 for one in opened)


def _keeps_rows(d: Dimensions, numerator: Tensor) -> bool:
    """Whether a tile directly in front of a division, of a batch of one row, is known to spread over none."""
    tile = source_of(numerator).node if d.ones else None
    if tile is None or tile.op not in ops.TILES or spread(d, tile) is not None:
        return False
    return all(known(size) is not None for t in (tile.inputs[0], tile.out()) for size in d.dims(t) or ())


def _counts(d: Dimensions, division: Node) -> Iterator[Size]:
    """The numbers of elements that the numerator was summed or spread over, or that the quotient is spread over."""
    yield from back(d, division.inputs[0])
    if all(d.sizes.at(s) == 1 for s in d.dims(division.out()) or ()):
        yield from _ahead(d, division)


def _ahead(d: Dimensions, start: Node) -> Iterator[Size]:
    stack, seen = [start], {start}
    while stack and len(seen) < FARTHEST:
        for use in stack.pop().uses():
            node = use.node
            if node in seen or node not in d.nodes:
                continue
            seen.add(node)
            count = spread_value(d, node)
            if count is not None:
                yield count
                d.sizes.propagate()
            elif node.op in LINEAR:
                stack.append(node)


def divided_counts(d: Dimensions) -> None:
    """A variable that sums of rows are added to is divided by one that their number is added to."""
    added = {}
    for node in d.order:
        fact = ops.WRITES.get(node.op)
        variable = variable_of(node.inputs[fact.variables[0]]) if fact is not None and fact.additive else None
        if fact is not None and variable is not None:
            added[variable] = node.inputs[fact.value]
    for node in d.order if added else ():
        if node.op not in ops.DIVISIONS:
            continue
        total, count = (added.get(_read_from(t)) for t in node.inputs[:2])  # type: ignore[arg-type]
        elements = None if count is None else d.elements(count)
        one = unsettled(elements[0]) if elements and len(elements) == 1 else None
        if total is None or one is None:
            continue
        for size in back(d, total):
            if follows_batch(size) and d.sizes.at(size) == one.value:
                d.sizes.tie(one, size)
                d.reasons[one] = "the sum of as many rows is divided by it"
                break


_GUARDED = ops.IDENTITIES | ops.CASTS | ops.computing(np.maximum) | ops.SWITCH | ops.MERGE


def _read_from(tensor: Tensor) -> Node | None:
    """The variable whose value a tensor is, guarded against zero perhaps."""
    node = source_of(tensor, _GUARDED).node
    return variable_of(node.inputs[0]) if node.op in ops.READS else None
