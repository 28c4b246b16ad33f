"""Rows that are repeated, or picked, by a constant that may be their number: in pairs of rows it is, in copies of a row it is not."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeGuard

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.factored_pairs import factors_of_pairs, is_open
from tpugraph.analysis.evidence.pairs_of_rows import picks_by_number, repeated
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, known
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of
from tpugraph.partition import one_row
from tpugraph.partition.two_readings import holder_of, refusal_of
from tpugraph.support.errors import ConversionError


def refuse_pairs(placing: Placing, count: int) -> None:
    """Refuse a constant that repeats rows, or picks them, and may be their number: nothing says that it is, or that it is not."""
    d = placing.d
    forward = leading_to_loss(d)
    nodes = [node for node in placing.verdicts if node in forward]
    if d.rows == 1:
        _refuse_one_row(placing, nodes)
    for node in nodes if d.rows > 1 else ():
        for size in repeated(d, node):
            name = holder_of(d, node.inputs[1], size).name if _in_doubt(size, d) else None
            if name is None or d.constants.choice(name) is not None:
                continue
            number = d.sizes.at(size)  # type: ignore[arg-type]
            raise refusal_of(
                placing, node, name, ("is the number of rows", "is not"),
                f"'{node.name}' ({node.op}) repeats rows {number} times, and a core's batch has {d.rows} rows: if '{name}' is "
                f"their number, it is {number * count} for the whole batch; if it is a number of the model, it stays {number}",
            )  # fmt: skip
    _refuse_factors(placing, nodes)


def _refuse_factors(placing: Placing, nodes: list[Node]) -> None:
    """Refuse what is left of all pairs of rows where it is reshaped to two numbers, and one of them may be one of the model."""
    d = placing.d
    for node in nodes:
        shape = source_of(node.inputs[1]).node if node.op in ops.RESHAPES else None
        if shape is None or -1 in (fixed(shape.out()) or [-1]) or d.constants.choice(shape.name) is not None:
            continue
        for pair in pairwise(d.dims(node.out()) or ()):
            before = [*pairwise(d.dims(node.inputs[0]) or ())]
            found = next(filter(None, (factors_of_pairs(d, whole, pair) for whole in (*before, pair))), [])
            sure = any(isinstance(known(size), int) and not is_open(d, size) for size in pair)
            if sure or not found or found == [tuple(map(known, pair))]:
                continue
            words = ", or ".join(f"{first} and {second}" for first, second in found)
            raise ConversionError(
                f"'{node.name}' reshapes what is left of all pairs of rows to {[d.sizes.at(size) for size in pair]}: these are "
                f"{words} for b rows, of which a core's batch has {d.rows}", node=node, origin=placing.graph.source,
                fix=f"compute the numbers of '{shape.name}' that follow the rows from tf.shape of a feature",
            )  # fmt: skip


def _in_doubt(size: Size | None, d: Dimensions) -> TypeGuard[Unknown]:
    """Whether a number that may be one of rows was read as one of the model because nothing else was said of it."""
    if not isinstance(size, Unknown) or size.value < 1 or size.value % d.rows:
        return False
    return d.in_doubt(size) or size.root() in d.sizes.presumed


def _refuse_one_row(placing: Placing, nodes: list[Node]) -> None:
    """Refuse one row that is repeated once, or picked by places of which there is one: of more rows there may be more."""
    d, origin = placing.d, placing.graph.source
    if not d.sums_left_out:
        return
    for node in nodes:
        times = repeated(d, node)
        if times and all(map(_is_open, times)):
            raise one_row.refusal("it is repeated once, as each of several rows might be as often", node, origin)
    for found in picks_by_number(d):
        if d.sizes.at(found.rows) == 1 and _is_open(found.count):
            raise one_row.refusal("it is picked by its place among one", found.node, origin)


def _is_open(size: Size | None) -> bool:
    """Whether a 1 is written in the graph that may be the number of rows, and was read as one of the model."""
    return isinstance(size, Unknown) and size.value == 1 and known(size) == 1
