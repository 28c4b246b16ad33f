"""Rows that are repeated, or picked, by a constant that may be their number: in pairs of rows it is, in copies of a row it is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeGuard

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.factored_pairs import factors_of_pairs, is_open
from tpugraph.analysis.evidence.pairs_of_rows import PAIRS, picks_by_number, repeated
from tpugraph.analysis.evidence.summed import back, leading_to_loss
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import ROWS, Size, Unknown, known
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of
from tpugraph.partition import one_row
from tpugraph.partition.two_readings import constant_behind, holder_of, refusal_of
from tpugraph.support.errors import ConversionError


@dataclass(frozen=True)
class PairsDivisor:
    """A constant that a sum over all pairs of two or three rows is divided by.

    Attributes:
        node: the division.
        constant: the name of the constant.
        number: what it holds.
        counts_rows: whether it is read as the number of the rows; otherwise as that of the pairs.
    """

    node: Node
    constant: str
    number: int
    counts_rows: bool


def divisors_of_pairs(placing: Placing) -> Iterator[PairsDivisor]:
    """Those that may count pairs, or rows, in another way than they are read, or may be numbers of the model."""
    d = placing.d
    for node in leading_to_loss(d) if d.rows in (2, 3) else ():
        by = constant_behind(node.inputs[1]) if node.op in ops.DIVISIONS and node in placing.verdicts else None
        if by is None or by.op not in ops.CONSTANTS or d.constants.choice(by.name) is not None:
            continue
        read = [None if size is None else known(size) for size in d.elements(node.inputs[1]) or ()]
        if read == [ROWS] and any(known(count) == PAIRS for count in back(d, node.inputs[0])):
            yield PairsDivisor(node, by.name, d.rows, counts_rows=True)
        elif read == [PAIRS] and d.rows == 2:
            yield PairsDivisor(node, by.name, 4, counts_rows=False)


def refuse_halved_pairs(placing: Placing) -> None:
    """Refuse a sum over all pairs of two rows that is divided by 2: of rows, of different pairs, or as each pair stands twice."""
    for divisor in divisors_of_pairs(placing) if placing.d.rows == 2 else ():
        if divisor.counts_rows:
            name = divisor.constant
            raise ConversionError(
                f"'{divisor.node.name}' ({divisor.node.op}) divides a sum over all pairs of rows by 2, and a core's batch has 2 of "
                "them: that may be their number, that of pairs of different ones, or 2 in any batch, as each pair stands there twice",
                node=divisor.node, origin=placing.graph.source,
                fix=f"--batch_constants={name}=rows or --batch_constants={name}=rows*(rows-1) if it counts these, --literals={name} "
                "if it is 2",
            )  # fmt: skip


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
