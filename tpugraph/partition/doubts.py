"""Constants that may or may not be numbers of rows, and of which the result depends: refused, with the flags that settle them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.evidence.summed import back
from tpugraph.analysis.placements import Partial
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, Size, Unknown, follows_batch, known
from tpugraph.analysis.state import written_variables
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.partition import one_row
from tpugraph.partition.numbered_constants import refuse_own_rows
from tpugraph.partition.one_over_rows import refuse_factors
from tpugraph.partition.row_by_row import refuse_row_by_row
from tpugraph.support.errors import ConversionError

_BOUNDS = {**dict.fromkeys(ops.SLICES, (1, 2)), "TopKV2": (1,)}
"""Ops that take some rows of a batch, and the operands that say which."""


@dataclass(frozen=True)
class _Bound:
    """One number that says which rows of the batch an op takes.

    Attributes:
        node: the op.
        operand: the operand that holds the number.
        place: its place there.
        rows: the size of the dimension that rows are taken of.
    """

    node: Node
    operand: Tensor
    place: int
    rows: Poly


def _bounds(placing: Placing) -> Iterator[_Bound]:
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
                    yield _Bound(node, node.inputs[operand], place, size)


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


def refuse_doubts(placing: Placing, count: int) -> None:
    """Refuse a constant that may or may not be a number of rows, where a variable would be given another value.

    Raises:
        ConversionError: it names the constant, what it decides, and the flags that settle it.
    """
    _refuse_one_row(placing)
    refuse_own_rows(placing)
    refuse_row_by_row(placing)
    _refuse_regrouped(placing)
    _refuse_bounds(placing)
    _refuse_beside_shares(placing)
    _refuse_divisors(placing, count)
    refuse_factors(placing, count)
    _refuse_counters(placing, count)


def _refuse_counters(placing: Placing, count: int) -> None:
    """Refuse a constant that is added to a variable and may count rows; the step counter is known to count none."""
    d, graph = placing.d, placing.graph
    step = None if graph.roles.step is None else graph.get(graph.roles.step.name)
    for node in placing.verdicts:
        fact = ops.WRITES.get(node.op)
        if fact is None or not fact.additive or fact.rows is not None or step in written_variables(node):
            continue
        elements = d.elements(node.inputs[fact.value])
        one = elements[0] if elements and len(elements) == 1 else None
        if not d.in_doubt(one):
            continue
        name = constant_behind(node.inputs[fact.value]).name
        raise _refusal(
            placing, node, name, ("counts rows", "does not"),
            f"'{node.name}' adds {one.value} to a variable, and a core's batch has {d.rows} rows: if '{name}' counts rows, "
            f"the whole batch has {one.value * count} of them; if it is a number of the model, it stays {one.value}",
        )  # fmt: skip


def _refuse_divisors(placing: Placing, count: int) -> None:
    """Refuse a sum over the batch that is divided by a constant that may be several times the rows, as twice their number."""
    d = placing.d
    for node in placing.verdicts:
        if node.op not in ops.DIVISIONS or not isinstance(placing.made(node.inputs[0]), Partial):
            continue
        elements, behind = d.elements(node.inputs[1]), constant_behind(node.inputs[1])
        one = elements[0] if elements and len(elements) == 1 else None
        if (
            behind.op not in ops.CONSTANTS
            or d.constants.choice(behind.name) is not None
            or not isinstance(one, Unknown)
        ):
            continue
        counts = [size for size in back(d, node.inputs[0]) if follows_batch(size)]
        if (
            not isinstance(known(one), Poly)
            and one.value > 2
            and any(one.value == d.sizes.at(size) - 1 for size in counts)
        ):
            raise _one_less(placing, node, behind.name, one.value)
        if not d.in_doubt(one) or one.value <= d.rows or not counts:
            continue
        raise _refusal(
            placing, node, behind.name, ("grows with the batch", "does not"),
            f"'{node.name}' divides a sum over the batch by {one.value}, which is {one.value // d.rows} times the {d.rows} rows "
            f"of a core's batch: if '{behind.name}' follows them, the whole batch has {one.value * count}; if it is a number of "
            f"the model, it stays {one.value}",
        )  # fmt: skip


def _one_less(placing: Placing, node: Node, name: str, number: int) -> ConversionError:
    """The error of a sum that is divided by one less than the number of what is summed."""
    return ConversionError(
        f"'{node.name}' divides a sum over the batch by {number}, one less than the number of elements that are summed: whether "
        f"'{name}' follows the {placing.d.rows} rows of a core's batch, or is a number of the model, nothing says",
        node=node, origin=placing.graph.source,
        fix=f"divide by tf.cast(tf.shape(x)[0] - 1, tf.float32) if it follows them, --literals={name} if it is a number of the model",
    )  # fmt: skip


def _refuse_one_row(placing: Placing) -> None:
    """Refuse a graph of one row in which numbers contradict each other, or a gradient has rows where its op says that none are."""
    d, origin = placing.d, placing.graph.source
    if not d.sums_left_out:
        return
    for node, one, other in d.sizes.conflicts:
        follows = isinstance(one, Poly) or isinstance(other, Poly)
        if follows and isinstance(node, Node) and node.outputs and not node.out().dtype.floating:
            what = f"a number is {one} by what it is computed of, and {other} by what reads it"
            raise one_row.refusal(what, node, origin, d.rows)
    for node in d.untold:
        what = "of the gradient of a sum or a mean nothing says whether that is over the row"
        raise one_row.refusal(what, node, origin, d.rows)
    for node in (node for node in placing.verdicts if node.op in ops.SLICE_GRADIENTS):
        if one_row.of_new_dimensions(d, node):
            what = "the gradient of pairs of rows leaves out a sum over one of the two"
            raise one_row.refusal(what, node, origin, d.rows)


def _refuse_regrouped(placing: Placing) -> None:
    """Refuse rows that are reshaped to numbers none of which holds them: a share of the rows may be among these."""
    d = placing.d
    for node, one, other in d.sizes.conflicts if d.rows > 1 else ():
        if (
            not isinstance(node, Node)
            or node.op not in ops.RESHAPES
            or isinstance(one, Poly) == isinstance(other, Poly)
        ):
            continue
        shape = source_of(node.inputs[1]).node
        if shape.op not in ops.CONSTANTS:
            continue
        numbers = ", ".join(map(str, constant(shape).ravel().tolist()))
        raise ConversionError(
            f"'{node.name}' reshapes rows to [{numbers}]: which of these numbers follows the {d.rows} rows of a core's batch, "
            "nothing says", node=node, origin=placing.graph.source,
            fix=f"write -1 in '{shape.name}' for the one that does, or compute it from tf.shape of a feature",
        )  # fmt: skip


def _refusal(placing: Placing, node: Node, name: str, readings: tuple[str, str], fault: str) -> ConversionError:
    """The error of a constant with two readings, and the flags that choose one."""
    return ConversionError(
        fault, node=node, origin=placing.graph.source,
        fix=f"--batch_constants={name} if it {readings[0]}, --literals={name} if it {readings[1]}",
    )  # fmt: skip


def _refuse_bounds(placing: Placing) -> None:
    """Refuse a number of rows that is computed from a constant of which nothing says whether it follows the batch."""
    d = placing.d
    for bound in _bounds(placing):
        elements = d.elements(bound.operand) or ()
        size = elements[bound.place] if bound.place < len(elements) else None
        name = _origin(placing, bound, size) if size is None or _in_doubt(placing, bound, size) else None
        if name is not None and (size is not None or _is_doubtful(placing, name)):
            raise _refusal(
                placing, bound.node, name, ("is the size of the batch", "is not"),
                f"'{bound.node.name}' ({bound.node.op}) takes rows of the batch up to a number made of '{name}', which is "
                f"{d.rows}, as many as a core's batch has rows: if it is that, it grows with the whole batch",
            )  # fmt: skip


def _is_doubtful(placing: Placing, name: str) -> bool:
    """Whether nothing says that a constant with one number holds the rows, or that it does not."""
    d = placing.d
    elements = d.elements(placing.graph[name].out())
    return d.rows > 1 and bool(elements) and d.in_doubt(elements[0])  # type: ignore[index]


def _origin(placing: Placing, bound: _Bound, size: Size | None) -> str | None:
    """The constant that a number is made of, by name."""
    if isinstance(size, Unknown) and isinstance(size.origin, tuple):
        return str(size.origin[0].node.name)
    return next((n.name for n in placing.graph.ancestors([bound.operand.node], data_only=True)
                 if n.op in ops.CONSTANTS and constant(n).size == 1 and constant(n).item() == placing.d.rows), None)  # fmt: skip


def _refuse_beside_shares(placing: Placing) -> None:
    """Refuse a number that is said to be a share of the rows in one constant, and that others hold of which nothing is said."""
    others = placing.d.beside_shares()
    if not others:
        return
    shares, rows = placing.d.constants.shares, placing.d.rows
    name, number = next(iter(others.items()))
    said = [held for value, held in shares.items() if value in others.values()]
    raise ConversionError(
        f"'{name}' is {number} as '{shares[number]}', which --batch_constants says to be a share of the {rows} rows of a "
        "core's batch: gradients hold the sizes of the forward step once more, and nothing says whether this is one",
        node=name, origin=placing.graph.source,
        fix=f"--batch_constants={','.join([*said, *others])} without those that are numbers of the model: these to --literals",
    )  # fmt: skip


def literal_bounds(placing: Placing) -> list[str]:
    """What the user should know of: rows of the batch taken up to a constant that may be a share of them.

    A constant that is smaller than the rows is read as a number of the model, as the graph says nothing else.
    """
    d = placing.d
    found: dict[str, str] = {}
    for bound in _bounds(placing) if d.rows > 1 else ():
        behind, node = constant_behind(bound.operand), bound.node
        if behind.op not in ops.CONSTANTS or d.constants.choice(behind.name) is not None:
            continue
        numbers = constant(behind).ravel().tolist()
        number = numbers[bound.place] if bound.place < len(numbers) else 0
        least = 1 if node.op in ops.TOP_K else 2  # a slice from the second row on takes no share of them
        if least <= number < bound.rows.at(d.rows) and not bound.rows.c[0]:
            found[behind.name] = (
                f"'{node.name}' ({node.op}) takes {number} of the {bound.rows.at(d.rows)} rows of a core's batch: read as a "
                f"number of the model; --batch_constants={behind.name} if it grows with the batch, "
                f"--literals={behind.name} if it does not"
            )
    return list(found.values())


def _in_doubt(placing: Placing, bound: _Bound, size: Size | None) -> bool:
    """Whether a number was taken for one of the model for want of evidence, and may follow the batch."""
    d = placing.d
    if d.rows == 1:  # the largest of one row, or one row sorted
        written = isinstance(size, Unknown) and isinstance(size.origin, tuple)
        return d.sums_left_out and bound.node.op in ops.TOP_K and written and known(size) == 1  # type: ignore[arg-type]
    if not isinstance(size, Unknown) or isinstance(known(size), Poly) or size.value < 1:
        return False
    return size.origin is None or (size.root() in d.defaulted and size.value % d.rows == 0)


def constant_behind(tensor: Tensor) -> Node:
    """The constant that a number is cast from, or the node that makes the number."""
    return source_of(tensor, ops.IDENTITIES | ops.ENTER | ops.CASTS).node
