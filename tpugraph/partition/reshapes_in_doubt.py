"""Reshapes of rows to written numbers of which nothing says which follows the batch: what is refused, and what the report says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, depends_on_data, follows_batch
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of
from tpugraph.partition.two_readings import refusal_of
from tpugraph.support.errors import ConversionError


def refuse_reshapes(placing: Placing, count: int) -> None:
    """Refuse a reshape of rows of which nothing says where they are then, in the order in which that is found.

    Raises:
        ConversionError: it names the constant that holds the shape, and what settles it.
    """
    _refuse_beside_left_open(placing, count)
    _refuse_regrouped(placing)
    _refuse_views_beside_rows(placing)
    _refuse_entries_by_rows(placing, count)


def _written(placing: Placing) -> Iterator[tuple[Node, Node, list[int]]]:
    """The reshapes of the forward step to a shape that a constant holds, and that no flag speaks of: node, constant, numbers."""
    d, forward = placing.d, leading_to_loss(placing.d)
    for node in d.of_type(ops.RESHAPES) if d.rows > 1 else ():
        shape, wanted = source_of(node.inputs[1]).node, fixed(node.inputs[1])
        if node in forward and node in placing.verdicts and wanted and d.constants.choice(shape.name) is None:
            yield node, shape, wanted


def _refuse_views_beside_rows(placing: Placing) -> None:
    """Refuse views one behind the other that are reshaped to as many twice: ``[2, 2, width]`` of two views of two rows.

    One of the numbers counts the views then, and nothing says which.
    """
    d = placing.d
    for node, shape, wanted in _written(placing):
        if wanted[:2] != [d.rows, d.rows]:
            continue
        views, made = placing.read(node.inputs[0]), d.dims(node.out())
        in_front = made is not None and follows_batch(made[0])  # views would be there, as they were
        if in_front and isinstance(views, Shard) and (views.axis, views.outer, views.inner) == (0, d.rows, 1):
            raise _which_follows(placing, node, shape)


def _refuse_entries_by_rows(placing: Placing, count: int) -> None:
    """Refuse entries of which data say how many there are, reshaped to ``[rows, -1]``: pairs without those of a row with itself."""
    d = placing.d
    for node, shape, wanted in _written(placing):
        if wanted[0] != d.rows or -1 not in wanted:
            continue
        sizes, made = d.dims(node.inputs[0]) or (), d.dims(node.out())
        settled = made is not None and follows_batch(made[0])
        if not settled and any(map(depends_on_data, sizes)):
            raise refusal_of(
                placing, node, shape.name, ("follows the rows", "does not"),
                f"'{node.name}' reshapes to {wanted} as many elements as data say, and a core's batch has {d.rows} rows: if "
                f"{d.rows} is their number, it is {d.rows * count} for the whole batch; if it is a number of the model, it stays",
            )  # fmt: skip


def _refuse_regrouped(placing: Placing) -> None:
    """Refuse rows that are reshaped to numbers none of which holds them: a share of the rows may be among these."""
    d = placing.d
    reshapes = dict.fromkeys(d.of_type(ops.RESHAPES))
    for node, one, other in d.sizes.conflicts if d.rows > 1 else ():
        if node not in reshapes or isinstance(one, Poly) == isinstance(other, Poly):
            continue
        shape = source_of(node.inputs[1]).node
        if fixed(shape.out()) is not None:
            raise _which_follows(placing, node, shape)


def _which_follows(placing: Placing, node: Node, shape: Node) -> ConversionError:
    numbers = ", ".join(map(str, fixed(shape.out()) or ()))
    return ConversionError(
        f"'{node.name}' reshapes rows to [{numbers}]: which of these numbers follows the {placing.d.rows} rows of a core's batch, "
        "nothing says", node=node, origin=placing.graph.source,
        fix=f"write -1 in '{shape.name}' for the one that does, or compute it from tf.shape of a feature",
    )  # fmt: skip


def _refuse_beside_left_open(placing: Placing, count: int) -> None:
    """Refuse a reshape of rows to a dimension that is left open and to a number that may be all of the rows, or half of them.

    So ``[-1, 3, width]`` of three rows makes groups of three of any batch, or one group of all its rows.
    """
    d = placing.d
    for node, shape, wanted in _written(placing):
        if len(wanted) < 2 or -1 not in wanted[:2] or not d.axes(node.inputs[0]):
            continue
        number = wanted[1 - wanted.index(-1)]
        half = _is_half(placing, node, wanted)
        grouped = node in d.untold.parted or _groups_all(placing, node, wanted)
        if not (half or grouped):
            continue
        raise refusal_of(
            placing, node, shape.name, ("follows the rows", "does not"),
            f"'{node.name}' reshapes rows to {wanted}, and a core's batch has {d.rows} rows: if {number} is "
            f"{_reading(d.rows, number)}, it is {number * count} for the whole batch; if it is a number of the "
            "model, it stays",
        )  # fmt: skip


def _keeps_rows_apart(placing: Placing, node: Node, wanted: list[int]) -> bool:
    """Whether a reshape to a number behind a dimension that is left open takes each row apart by itself."""
    d, rows = placing.d, placing.read(node.inputs[0])
    dims = d.dims(node.inputs[0]) or ()
    if wanted[0] != -1 or not isinstance(rows, Shard):
        return False
    return math.prod(d.sizes.at(size) for size in dims[rows.axis + 1 :]) * rows.inner % wanted[1] == 0


def _is_half(placing: Placing, node: Node, wanted: list[int]) -> bool:
    """Whether a number beside the dimension that is left open is half of the rows, which the graph knew when it was built."""
    d = placing.d
    half = len(wanted) == 2 and 2 * max(wanted) == d.rows > 2
    return half and not d.constants.opened and not _keeps_rows_apart(placing, node, wanted)


def _reading(rows: int, number: int) -> str:
    """What a number is of the rows, in words."""
    if number < rows:
        return "half of them"
    return "their number" if number == rows else f"{number // rows} times their number"


def _groups_all(placing: Placing, node: Node, wanted: list[int]) -> bool:
    """Whether a reshape only makes one group of all rows of a core's batch: ``[-1, rows, ...]``, or ``[rows, -1]`` of a vector."""
    d, place = placing.d, wanted.index(-1)
    before, made = ([d.sizes.at(size) for size in d.dims(t) or ()] for t in (node.inputs[0], node.out()))
    if before != [d.rows, *wanted[2:]] or not made or made[place] != 1:
        return False
    return place == 0 or (d.rows > 2 == len(wanted))  # [rows, 1] of two rows is a column of them more often


def literal_reshapes(placing: Placing) -> list[str]:
    """What the user should know of: of two rows, a reshape to [2, 1] keeps the rows, and may as well be one to two halves of them.

    One to [-1, 2] may make a pair of each two rows.
    """
    d, found = placing.d, []
    for node in d.of_type(ops.RESHAPES) if d.rows == 2 else ():
        shape = source_of(node.inputs[1]).node if node in placing.verdicts and d.axes(node.out()) else None
        numbers = fixed(shape.out()) if shape is not None else None
        if shape is None or not numbers or d.constants.choice(shape.name) is not None:
            continue
        sizes = [d.sizes.at(size) for size in d.dims(node.out()) or ()]
        paired = (-1, 2) in pairwise(numbers) and len(sizes) == len(numbers) and sizes[numbers.index(-1)] == 1
        if shape.name not in d.constants.shape_of and (paired or (2, 1) in pairwise(numbers)):
            found.append(
                f"'{node.name}' reshapes the two rows of a core's batch to {numbers}: the 2 is read as the rows, and would be a "
                "number of the model if the 1 were half of the rows; a graph with more rows a core tells the two apart"
            )
    return found
