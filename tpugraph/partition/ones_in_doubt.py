"""Numbers of batches of one row that may be that row or a 1 of the model: where rows are taken, moved or divided by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant, constant_at, fixed
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import back, leading_to_loss
from tpugraph.analysis.placements import Partial, Replicate, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import follows_batch, known
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of
from tpugraph.partition.two_readings import constant_behind, refuse_first

_AT_LEAST = ops.computing(np.maximum)
_SAME = ops.SAME_NUMBERS | ops.IDENTITIES | ops.SHAPED_ANEW
_HANDED_ON = ops.ELEMENTWISE | ops.CASTS | ops.IDENTITIES | ops.ENTER | ops.SHAPED_ANEW | ops.PACKS


def refuse_ones(placing: Placing) -> None:
    """Refuse a 1 of which nothing says whether it is the one row of a core's batch, where the result depends on it.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    if placing.d.rows == 1:
        refuse_first(placing, map(_told, _ones(placing)), ("is the number of rows", "is not"))


def _ones(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Where the result depends on such a 1, the constant, or several, by name, and what is done there with the first of them."""
    yield from _parts_of_tables(placing)
    yield from _quotients(placing)
    yield from _products(placing)
    yield from _counted(placing)


def _told(found: tuple[Node, str, str]) -> tuple[Node, str, str]:
    node, names, what = found
    name = names.partition(",")[0]
    return node, names, (
        f"'{node.name}' ({node.op}) {what} '{name}', which is 1: a core's batch has one row, and if it counts that, it grows "
        "with the whole batch; if it is a number of the model, it does not"
    )  # fmt: skip


def one_that_bounds(d: Dimensions, operand: Tensor) -> str | None:
    """The constant that is 1, by name, which a number is computed of that only the data tell, as the smaller of two.

    A number that is no less than the rows takes all of them: a 1 that another is at least is none of these.
    """

    def behind(node: Node) -> Iterator[Node]:
        if node.op in _HANDED_ON:
            left_out = ops.CONSTANTS if node.op in _AT_LEAST else ()
            yield from (t.node for t in node.inputs if t.node.op not in left_out)

    return next((node.name for node in reached([operand.node], behind) if is_open_one(d, node)), None)


def is_open_one(d: Dimensions, node: Node) -> bool:
    """Whether a constant is a 1 that is not settled: by flags, or by what it is known to be the shape of."""
    if node.op not in ops.CONSTANTS or node.made_by is not None or d.constants.is_named(node.name):
        return False
    value, elements = constant(node), d.elements(node.out())
    one = elements[0] if elements and len(elements) == 1 else None
    alone = value.size == 1 and value.dtype.kind in "iuf" and value.item() == 1
    return alone and node.name not in d.constants.shape_of and not (one is not None and follows_batch(one))


def _parts_of_tables(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Slices of one place of what has no rows that are put beside rows: as many places may be meant as there are rows."""
    d = placing.d
    taken: dict[tuple[Tensor, int], tuple[Node, str]] = {}  # by tensors, and dimensions counted from their end
    for node in placing.verdicts:
        if not node.outputs:
            continue
        if node.op in ops.SLICES and not d.axes(node.inputs[0]):
            taken.update({(node.out(), place): (node, name) for place, name in _single_places(d, node)})
        signature = d.signature(node) if taken else None
        if signature is None or not signature.elementwise:
            continue
        for tensor in node.inputs:
            for place, made in enumerate(reversed(d.dims(node.out()) or ()), 1):
                found = taken.get((tensor, place))
                if found is not None and follows_batch(made):
                    yield (
                        *found,
                        f"takes one place that '{node.name}' ({node.op}) puts beside the rows, and is bounded by",
                    )
                elif found is not None:
                    taken[node.out(), place] = found


def _single_places(d: Dimensions, node: Node) -> Iterator[tuple[int, str]]:
    """The dimensions of one place that a slice takes of several, counted from the end, each with the constant that bounds it."""
    whole, part = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
    plain = node.op in ops.PLAIN_SLICES
    found = [(a, a, a) for a in range(len(whole))] if plain else places(node, len(whole))
    for axis, target, place in found:
        if axis is None or target is None or place < 0 or target >= len(part):
            continue
        bounds = [n for n in (constant_behind(node.inputs[i]) for i in (2, 1)) if n.op in ops.CONSTANTS]
        if any(n.made_by is not None or d.constants.is_named(n.name) for n in bounds):
            continue
        one = known(part[target]) == 1 and d.sizes.at(whole[axis]) > 1
        if one and bounds and all(fixed(t) is not None for t in node.inputs[1:3]):
            yield len(part) - target, ",".join([bounds[0].name, *_held_by_gradients(d, node, bounds[0])])


def _held_by_gradients(d: Dimensions, node: Node, bound: Node) -> Iterator[str]:
    """The constants, by name, with which the gradients of a slice say once more how far it goes."""
    numbers = [fixed(tensor) for tensor in node.inputs[1:3]]
    for other in d.order:
        if other.op in ops.SLICE_GRADIENTS and [fixed(tensor) for tensor in other.inputs[1:3]] == numbers:
            held = [constant_behind(tensor) for tensor in other.inputs[1:3]]
            yield from {n.name: None for n in held if n is not bound and fixed(n.out()) == fixed(bound.out())}


def _quotients(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Values of the whole batch that the loss is made of and that are divided by one, as hardly any model says it.

    So are constants with as many places as there are rows: what weighs these, to their mean.
    """
    d, forward, made_of_rows = placing.d, leading_to_loss(placing.d), _made_of_rows(placing)
    for node in placing.verdicts:
        if node.op not in ops.DIVISIONS or node not in forward or not node.out().dtype.floating:
            continue
        behind, divided = constant_behind(node.inputs[1]), node.inputs[0]
        if not is_open_one(d, behind):
            continue
        if _holds_whole(placing, divided, made_of_rows):
            yield node, behind.name, "divides a value of the whole batch by"
        elif constant_at(divided) is not None and d.axes(node.out()):
            yield node, behind.name, "divides what has a place for each row by"


def _made_of_rows(placing: Placing) -> Mapping[Node, None]:
    """What rows of the batch lead to."""
    d = placing.d
    return placing.graph.descendants([n for n in placing.verdicts if any(map(d.axes, n.inputs))], data_only=True)


def _holds_whole(placing: Placing, tensor: Tensor, made_of_rows: Mapping[Node, None]) -> bool:
    """Whether a value was made of all rows of the batch."""
    placement = placing.made(tensor)
    return isinstance(placement, Partial) or (
        isinstance(placement, Replicate) and tensor.node in made_of_rows and not placing.d.elements(tensor)
    )


def _products(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Shares of rows in the whole batch that the loss is made of and that are multiplied by one: weights, whose mean is one then."""
    d, forward = placing.d, leading_to_loss(placing.d)
    for node in placing.verdicts:
        if node.op not in ops.SCALINGS or node not in forward or not node.out().dtype.floating:
            continue
        for number, other in (node.inputs, node.inputs[::-1]):
            behind = constant_behind(number)
            if is_open_one(d, behind) and _are_shares(placing, source_of(other, _SAME).node):
                yield node, behind.name, "multiplies what each row is of all rows by"


def _are_shares(placing: Placing, node: Node) -> bool:
    """Whether rows are divided by a sum over all of them, or computed with all of them as those of a softmax are."""
    d = placing.d
    if node not in placing.verdicts or not d.axes(node.out()):
        return False
    if node.op in ops.DIVISIONS:
        by = node.inputs[1]
        return bool(d.axes(node.inputs[0])) and not d.axes(by) and any(map(follows_batch, back(d, by)))
    wants = placing.verdicts[node].wants
    return any(
        isinstance(want, Replicate) and isinstance(placing.read(node.inputs[i]), Shard) for i, want in wants.items()
    )


def _counted(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Sums of ones of which there is one: TensorFlow folds what is like the row to that, and hardly a model adds up one number."""
    d, forward = placing.d, leading_to_loss(placing.d)
    for node in placing.verdicts:
        if node.op not in ops.SUMS or node not in forward or d.level(node.inputs[0]) != 1:
            continue
        behind = constant_behind(node.inputs[0])
        sizes, axes = d.dims(node.inputs[0]) or (), fixed(node.inputs[1]) or []
        counts = d.elements(node.out()) or ()
        if behind.op not in ops.CONSTANTS or d.constants.is_named(behind.name) or behind.made_by is not None:
            continue
        if any(d.in_doubt(sizes[axis]) for axis in axes) and not any(
            size is not None and follows_batch(size) for size in counts
        ):
            yield node, behind.name, "adds up"
