"""Rows of a batch that are taken up to a number: all of them, a share of them, or as many as the model says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown, depends_on_data, known
from tpugraph.ir import Node, Tensor
from tpugraph.partition.ones_in_doubt import one_that_bounds
from tpugraph.partition.two_readings import constant_behind, refuse_first
from tpugraph.support.errors import ConversionError

_BOUNDS = {**dict.fromkeys(ops.SLICES, (1, 2)), "TopKV2": (1,)}
"""Ops that take some rows of a batch, and the operands that say which."""


@dataclass(frozen=True)
class Bound:
    """One number that says which rows of the batch an op takes.

    Attributes:
        node: the op.
        operand: the operand that holds the number.
        place: its place there.
        rows: the size of the dimension that rows are taken of.
        role: whether it is where they ``begin`` or ``end``, or the ``count`` of the largest.
    """

    node: Node
    operand: Tensor
    place: int
    rows: Poly
    role: str


def bounds_of(placing: Placing) -> Iterator[Bound]:
    """The numbers that say which rows of the batch are taken."""
    for node in placing.verdicts:
        operands = _BOUNDS.get(node.op)
        dims = placing.dims(node.inputs[0]) if operands is not None else None
        if operands is None or not dims:
            continue
        for operand in operands:
            for place, axis in _axes(node, operand, len(dims)):
                size = dims[axis]
                if isinstance(size, Poly):
                    role = "count" if node.op in ops.TOP_K else "begin" if operand == 1 else "end"
                    yield Bound(node, node.inputs[operand], place, size, role)


def _bounds_of_lists(placing: Placing) -> Iterator[Bound]:
    """The numbers that say how many of the largest are taken of a list as long as data say, as of the rows that a mask leaves."""
    for node in placing.d.of_type(ops.TOP_K):
        dims = placing.d.dims(node.inputs[0]) if node in placing.verdicts else None
        if dims and depends_on_data(dims[-1]):
            yield Bound(node, node.inputs[1], 0, ROWS, "count")


def _axes(node: Node, operand: int, rank: int) -> Iterator[tuple[int, int]]:
    """Each place of an operand whose number counts, with the dimension that it bounds."""
    if node.op in ops.TOP_K:
        yield 0, rank - 1
    elif node.op in ops.PLAIN_SLICES:
        yield from ((axis, axis) for axis in range(rank))
    else:
        mask = int(node.attr("begin_mask" if operand == 1 else "end_mask", 0))
        for axis, made, place in places(node, rank):
            if axis is not None and made is not None and place >= 0 and not mask >> place & 1:
                yield place, axis


def refuse_bounds(placing: Placing) -> None:
    """Refuse a number of rows that is computed from a constant of which nothing says whether it follows the batch."""
    refuse_first(placing, _made_bounds(placing), ("is the size of the batch", "is not"))


def _made_bounds(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """The bounds of rows that are made of constants in doubt: where, the constant, and what it bounds."""
    d = placing.d
    for bound in (*bounds_of(placing), *_bounds_of_lists(placing)):
        elements = d.elements(bound.operand) or ()
        size = elements[bound.place] if bound.place < len(elements) else None
        name = _origin(placing, bound, size) if size is None or _in_doubt(placing, bound, size) else None
        if name is not None and (d.rows == 1 or size is not None or _is_doubtful(placing, name)):
            held = [int(v) for v in constant(placing.graph[name]).ravel() if v and not v % d.rows]
            number = next((v for v in held if size is None or d.sizes.at(size) == v), held[0] if held else d.rows)
            times = "" if number == d.rows else f"{number // d.rows} times "
            yield bound.node, name, (
                f"'{bound.node.name}' ({bound.node.op}) takes rows of the batch up to a number made of '{name}', which is "
                f"{number}, {times}as many as a core's batch has rows: if it is that, it grows with the whole batch"
            )  # fmt: skip


def refuse_places_beside_rows(placing: Placing) -> None:
    """Refuse a number of which nothing says whether it follows the batch, where it bounds what has as many places as rows.

    So does a slice of a table from the fourth place to the eighth, for four rows: it may begin behind as many places as rows.
    """
    if placing.d.rows > 1:
        refuse_first(placing, _places_beside_rows(placing), ("is the size of the batch", "is not"))


def _places_beside_rows(placing: Placing) -> Iterator[tuple[Node, str, str]]:
    """The bounds of as many places as rows that are in doubt: where, the constant, and what it bounds."""
    d = placing.d
    for node in placing.verdicts:
        whole = d.dims(node.inputs[0]) if node.op in ops.SLICES and d.axes(node.out()) else None
        if not whole or d.axes(node.inputs[0]):
            continue
        for index in (1, 2):
            operand = node.inputs[index]
            elements = d.elements(operand) or ()
            for place, axis in _axes(node, index, len(whole)):
                size = elements[place] if place < len(elements) else None
                if d.in_doubt(size) and size.value != d.sizes.at(whole[axis]):
                    name = constant_behind(operand).name
                    yield node, name, (
                        f"'{node.name}' ({node.op}) takes as many places as there are rows, and '{name}', which is {size.value}, "
                        f"bounds them: a core's batch has {d.rows} rows, and if it counts them, it grows with the whole batch"
                    )  # fmt: skip


def refuse_pads(placing: Placing, count: int) -> None:
    """Refuse a number of places that are put beside rows of the batch, where it may be that of the rows itself.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    rows = placing.d.rows
    found = (
        (node, name := constant_behind(node.inputs[1]).name,
         f"'{node.name}' ({node.op}) puts {size.value} places beside rows of the batch, and a core's batch has {rows} of them: if "
         f"'{name}' counts these, there are {size.value * count} for the whole batch; if it is a number of the model, there are "
         f"{size.value}")
        for node, size, followed in _pads(placing) if followed
    )  # fmt: skip
    refuse_first(placing, found, ("counts rows", "does not"))


def _pads(placing: Placing) -> Iterator[tuple[Node, Unknown, bool]]:
    """Where dimensions are padded by a number in doubt: the node, the number, and whether a dimension with the batch is."""
    d = placing.d
    for node in placing.verdicts if d.rows > 1 else ():
        amounts = d.elements(node.inputs[1]) if node.op in ops.PADS else None
        if not amounts or d.constants.choice(constant_behind(node.inputs[1]).name) is not None:
            continue
        axes = {*d.axes(node.inputs[0]), *d.axes(node.out())}
        yield from ((node, size, place // 2 in axes) for place, size in enumerate(amounts) if d.in_doubt(size))


def refuse_rolls(placing: Placing) -> None:
    """Refuse a number of places by which something without a batch is rolled, where it may be that of the rows that are put there.

    Raises:
        ConversionError: it names the constant.
    """
    d = placing.d
    for node in placing.verdicts:
        if node.op not in ops.ROLLS or d.axes(node.inputs[0]):
            continue
        behind = constant_behind(node.inputs[1])
        if behind.op not in ops.CONSTANTS or d.constants.is_named(behind.name):
            continue
        shifts = [
            number
            for number in constant(behind).ravel().tolist()
            if number and not number % d.rows and (d.rows > 1 or abs(number) == 1)
        ]
        beside = [use.node for use in node.uses() if any(map(d.axes, (*use.node.inputs, use.node.out())))]
        if shifts and beside:
            raise ConversionError(
                f"'{node.name}' ({node.op}) moves what is no batch by {shifts[0]} places, '{beside[0].name}' ({beside[0].op}) puts "
                f"it beside rows of the batch, and a core's batch has {d.rows} of them: if '{behind.name}' counts these, it grows "
                "with the whole batch; if it is a number of the model, it does not", node=node, origin=placing.graph.source,
                fix=f"tf.shape(x)[0] in its place if it counts rows, --literals={behind.name} if it does not",
            )  # fmt: skip


def _is_doubtful(placing: Placing, name: str) -> bool:
    """Whether nothing says that a constant with one number holds the rows, or that it does not."""
    d = placing.d
    elements = d.elements(placing.graph[name].out())
    return bool(elements) and d.in_doubt(elements[0])  # type: ignore[index]


def _origin(placing: Placing, bound: Bound, size: Size | None) -> str | None:
    """The constant that a number is made of, by name."""
    d = placing.d
    if isinstance(size, Unknown) and isinstance(size.origin, tuple):
        return str(size.origin[0].node.name)
    if d.rows == 1:
        parts = bound.operand.node.inputs if bound.operand.node.op in ops.PACKS else ()
        return one_that_bounds(d, parts[bound.place] if bound.place < len(parts) else bound.operand)
    made_of = [n for n in placing.graph.ancestors([bound.operand.node], data_only=True)
               if n.op in ops.CONSTANTS and constant(n).size == 1]  # fmt: skip
    numbers = (bound.rows.at(d.rows), d.rows)  # of all that is bounded, or of the rows
    alike = next((n.name for number in numbers for n in made_of if constant(n).item() == number), None)
    several = (
        n.name for n in made_of if d.constants.choice(n.name) is None and _counts_rows(constant(n).item(), d.rows)
    )
    return alike or next(several, None)


def _counts_rows(number: float, rows: int) -> bool:
    """Whether a number is several times the rows, as the number of entries is."""
    return number > 0 and number % rows == 0


def trained(placing: Placing) -> dict[Node, None]:
    """The nodes that the loss is made of, or what is written to a variable in the end."""
    writes = [node for node in placing.verdicts if node.op in ops.WRITES]
    return {**leading_to_loss(placing.d), **placing.graph.ancestors(writes, data_only=True)}


def literal_pads(placing: Placing) -> list[str]:
    """What the user should know of: rows of the batch padded by a number that may be theirs."""
    found = {
        (name := constant_behind(node.inputs[1]).name): f"'{node.name}' ({node.op}) pads by {size.value}, and a core's batch has "
        f"{placing.d.rows} rows: read as a number of the model; --batch_constants={name} if it counts rows, --literals={name} if "
        "it does not"
        for node, size, _ in _pads(placing)
    }  # fmt: skip
    return list(found.values())


def _in_doubt(placing: Placing, bound: Bound, size: Size | None) -> bool:
    """Whether a number was taken for one of the model for want of evidence, and may follow the batch."""
    d = placing.d
    if d.rows == 1:  # the largest of one row, one row sorted, or what a share of one row makes
        return d.sums_left_out and bound.node.op in ops.TOP_K and isinstance(size, Unknown) and known(size) == 1
    if not isinstance(size, Unknown) or isinstance(known(size), Poly) or size.value < 1:
        return False
    return size.origin is None or (size.root() in d.defaulted and size.value % d.rows == 0)
