"""Numbers of batches of one row that may be that row or a 1 of the model: where rows are taken, moved or divided by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant, fixed, made_of_values
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss, root
from tpugraph.analysis.placements import Partial, Replicate
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import ROWS, follows_batch, known
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached
from tpugraph.partition.numbers_met import are_shares
from tpugraph.partition.two_readings import constant_behind, refuse_first

_AT_LEAST = ops.computing(np.maximum)
_SUBTRACTIONS = ops.computing(np.subtract)
_HANDED_ON = ops.ELEMENTWISE | ops.CASTS | ops.IDENTITIES | ops.ENTER | ops.SHAPED_ANEW | ops.PACKS


def refuse_ones(placing: Placing) -> None:
    """Refuse a 1 of which nothing says whether it is the one row of a core's batch, where the result depends on it.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    if placing.d.rows != 1:
        return
    for found in (_parts_of_tables, _counted):
        refuse_first(placing, map(_told, found(placing)), ("is the number of rows", "is not"))
    for found, likely in ((_quotients, ""), (_squares, ""), (_products, ""), (_differences, "1/")):
        refuse_first(placing, map(_told, found(placing)), ("is made of the rows", "is not"), 1, likely)


def _told(found: tuple[Node, str, str]) -> tuple[Node, str, str]:
    node, names, what = found
    name = names.partition(",")[0]
    return node, names, (
        f"'{node.name}' ({node.op}) {what} '{name}', which is 1: a core's batch has one row, and if it is made of that, "
        "it is another one for the whole batch; if it is a number of the model, it stays"
    )  # fmt: skip


def one_that_bounds(d: Dimensions, operand: Tensor) -> str | None:
    """The constant that is 1, by name, which a number is computed of that only the data tell, as the smaller of two.

    A number that is no less than the rows takes all of them: a 1 that another is at least is none of these. What is computed of a
    number that is known to follow the rows is told by that.
    """

    def behind(node: Node) -> Iterator[Node]:
        if node.op in _HANDED_ON:
            left_out = ops.CONSTANTS if node.op in _AT_LEAST else ()
            yield from (t.node for t in node.inputs if t.node.op not in left_out)

    made_of = reached([operand.node], behind)
    if any(size is not None and follows_batch(size) for node in made_of for size in d.elements(node.out()) or ()):
        return None
    found = [node.name for node in made_of if is_open_one(d, node)]
    return found[-1] if found else None  # what is added last is seldom the rows


def is_open_one(d: Dimensions, node: Node) -> bool:
    """Whether a constant is a 1 that is not settled: by flags, or by what it is known to be the shape of."""
    if node.op not in ops.CONSTANTS or node.made_by is not None or d.constants.is_named(node.name):
        return False
    value, elements = constant(node), d.elements(node.out())
    one = elements[0] if elements and len(elements) == 1 else None
    alone = value.size == 1 and value.dtype.kind in "iuf" and value.item() == 1
    return alone and node.name not in d.constants.shape_of and not (one is not None and follows_batch(one))


def _parts_of_tables(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """What has one place that is put beside rows: a slice of what has no rows, or numbers of places; as many may be meant as rows."""
    d = placing.d
    taken: dict[tuple[Tensor, int], tuple[Node, str, str]] = {}  # by tensors, and dimensions counted from their end
    for node in placing.verdicts:
        if not node.outputs:
            continue
        if node.op in ops.SLICES and not d.axes(node.inputs[0]):
            taken.update({(node.out(), place): (node, name, "takes") for place, name in _single_places(d, node)})
        if node.op in ops.RANGES and is_open_one(d, constant_behind(node.inputs[1])) and _is_open(d, node.out(), 1):
            taken[node.out(), 1] = node, constant_behind(node.inputs[1]).name, "numbers"
        if taken and node.op in ops.STRIDED_SLICES | ops.SHAPED_ANEW:
            taken.update({(node.out(), made): taken[node.inputs[0], place] for place, made in _kept_places(d, node)
                          if (node.inputs[0], place) in taken})  # fmt: skip
        signature = d.signature(node) if taken else None
        if signature is None or not signature.elementwise:
            continue
        for tensor in node.inputs:
            for place, made in enumerate(reversed(d.dims(node.out()) or ()), 1):
                found = taken.get((tensor, place))
                if found is not None and follows_batch(made):
                    what = (
                        f"{found[2]} one place that '{node.name}' ({node.op}) puts beside the rows, and is bounded by"
                    )
                    yield found[0], found[1], what
                elif found is not None:
                    taken[node.out(), place] = found


def _is_open(d: Dimensions, tensor: Tensor, place: int) -> bool:
    """Whether nothing says what a dimension, counted from the end, is of."""
    dims = d.dims(tensor) or ()
    return place <= len(dims) and d.in_doubt(dims[-place])


def _kept_places(d: Dimensions, node: Node) -> Iterator[tuple[int, int]]:
    """The dimensions in doubt that what is shaped anew has still, counted from the end, with where it has them."""
    dims, made = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
    for place, size in enumerate(reversed(dims), 1):
        if d.in_doubt(size):
            yield from ((place, at) for at, other in enumerate(reversed(made), 1) if root(other) is root(size))


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

    So are constants with as many places as there are rows: a matrix that averages these.
    """
    made_of_rows = _made_of_rows(placing)
    for node, name in _by_one(placing, ops.DIVISIONS):
        if _holds_whole(placing, node.inputs[0], made_of_rows):
            yield node, name, "divides a value of the whole batch by"
        elif _is_fixed(placing, node.inputs[0]):
            yield node, name, "divides what has a place for each row, whatever the input is, by"


def _squares(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Values of the whole batch that are no sums any more, as the square of one, divided by the row: that may be its square."""
    made_of_rows, forward, d = _made_of_rows(placing), leading_to_loss(placing.d), placing.d
    for node in placing.verdicts:
        if node.op not in ops.DIVISIONS or node not in forward:
            continue
        whole, behind = node.inputs[0], constant_behind(node.inputs[1])
        of_user = behind.op in ops.CONSTANTS and behind.made_by is None and not d.constants.is_named(behind.name)
        if not of_user or behind.name in d.constants.shape_of:
            continue
        if not isinstance(placing.made(whole), Replicate) or not _holds_whole(placing, whole, made_of_rows):
            continue
        if any(size is not None and known(size) == ROWS for size in d.elements(node.inputs[1]) or ()):
            yield node, behind.name, "divides what is no sum over the batch any more by"


def scaled_by_one(placing: Placing) -> Iterator[str]:
    """The constants, by name, that are 1 and multiply values of the whole batch which the loss is made of: they may be the row."""
    made_of_rows, forward = _made_of_rows(placing), leading_to_loss(placing.d)
    for node in placing.verdicts:
        if node.op in ops.SCALINGS and node in forward and node.out().dtype.floating:
            for number, other in (node.inputs, node.inputs[::-1]):
                behind = constant_behind(number)
                if is_open_one(placing.d, behind) and _holds_whole(placing, other, made_of_rows):
                    yield behind.name


def _differences(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Constants with as many places as there are rows of which one is taken: a matrix that centres these."""
    for node, name in _by_one(placing, _SUBTRACTIONS):
        if _is_fixed(placing, node.inputs[0]):
            yield node, name, "takes from what has a place for each row, whatever the input is,"


def _by_one(placing: Placing, kinds: frozenset[str]) -> Iterator[tuple[Node, str]]:
    """The nodes of some kinds that the loss is made of and whose second operand is a 1, with the constant by name."""
    forward = leading_to_loss(placing.d)
    for node in placing.verdicts:
        if node.op in kinds and node in forward and node.out().dtype.floating:
            behind = constant_behind(node.inputs[1])
            if is_open_one(placing.d, behind):
                yield node, behind.name


def _is_fixed(placing: Placing, tensor: Tensor) -> bool:
    """Whether what has a place for each row is made of constants alone."""
    return bool(placing.d.axes(tensor)) and tensor.node not in made_of_values(placing.graph)


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
            if is_open_one(d, behind) and are_shares(placing, other):
                yield node, behind.name, "multiplies what each row is of all rows by"


def _counted(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """Sums of ones of which there is one: TensorFlow folds what is like the row to that, and hardly a model adds up one number."""
    d, forward = placing.d, leading_to_loss(placing.d)
    for node in placing.verdicts:
        if node.op not in ops.SUMS or node not in forward or d.level(node.inputs[0]) != 1:
            continue
        behind = constant_behind(node.inputs[0])
        sizes, axes = d.dims(node.inputs[0]) or (), d.numbers(node.inputs[1]) or []
        counts = d.elements(node.out()) or ()
        if behind.op not in ops.CONSTANTS or d.constants.is_named(behind.name) or behind.made_by is not None:
            continue
        if any(d.in_doubt(sizes[axis]) for axis in axes) and not any(
            size is not None and follows_batch(size) for size in counts
        ):
            yield node, behind.name, "adds up"
