"""Rows that are put into as many bins as a constant says, by numbers that go up with the rows or with a constant that may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeGuard

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import root, summed
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, follows_batch, known
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of
from tpugraph.partition import one_row
from tpugraph.partition.two_readings import constant_behind, in_doubt_alone, refuse_first
from tpugraph.support.errors import ConversionError

_REMAINDERS = ops.computing(np.remainder, np.fmod)
_ORDERS = ops.computing(np.less, np.less_equal, np.greater, np.greater_equal)
_BOUNDED = ops.CASTS | ops.IDENTITIES | ops.computing(np.maximum, np.minimum)
_SAME_PLACES = ops.SAME_NUMBERS | ops.SHAPED_ANEW
_KEEPING = (
    _SAME_PLACES | ops.IDENTITIES | ops.TRANSPOSES | ops.SLICES | ops.PICKS | ops.SUMS | ops.PACKS | ops.CONCATS
    | ops.SPREADS | ops.computing(np.add, np.subtract, np.multiply, np.maximum, np.minimum)
)  # fmt: skip
"""Ops whose numbers go as far as those of their operands do, or further."""


def refuse_bins(placing: Placing, count: int) -> None:
    """Refuse bins that are as many as a core's batch has rows, and numbers of them that go up to that: of more rows it may be more.

    Where either is known to be a number of the model, so is the other. Numbers that count rows go up with these by themselves.

    Raises:
        ConversionError: it names both constants, and the flags that settle them.
    """
    if placing.d.rows > 1:
        refuse_first(placing, _compared(placing, count), ("follows the rows", "does not"))
    refuse_first(placing, _counted(placing, count), ("follows the rows", "does not"))
    if placing.d.rows > 1:
        refuse_first(placing, _left_by_divisions(placing, count), ("follow the rows", "do not"))


def refuse_bins_for_rows(placing: Placing, count: int) -> None:
    """Refuse bins that are met by rows of the batch, one each, where data and numbers of a core's batch say how many there are.

    Raises:
        ConversionError: it names those numbers, and the flags that settle them.
    """
    d = placing.d
    met = {root(size) for size, rows, _ in d.sizes.beside_open if follows_batch(rows)}
    for node in placing.verdicts:
        told = ops.BINS[node.op].told if node.op in ops.BINS else None
        bins = 0 if told is None else (d.dims(node.out()) or (0,))[-1]
        one = d.rows == 1 and root(bins) in d.defaulted and d.sizes.at(bins) == 1
        if told is None or not (one or follows_batch(bins) or root(bins) in met):
            continue
        near = reached([node.inputs[told]], lambda tensor: tensor.node.inputs if tensor.node.op in _BOUNDED else ())
        of_rows = any(size is not None and follows_batch(size) for tensor in near for size in d.elements(tensor) or ())
        if of_rows and not one:
            continue
        if d.rows == 1:
            raise one_row.refusal("there is a bin for each row, or as many as data say", node, placing.graph.source)
        names = ",".join(tensor.node.name for tensor in near if tensor.node.op in ops.CONSTANTS
                         and any(size is not None and d.sizes.at(size) == d.rows for size in d.elements(tensor) or ()))  # fmt: skip
        computed = "tf.math.bincount with minlength=tf.shape(x)[0] and maxlength=tf.shape(x)[0]"
        raise ConversionError(
            f"'{node.name}' ({node.op}) makes as many bins as '{node.inputs[told]}' says when a step runs, and rows of the batch "
            f"meet them, one each: nothing says that there are {d.rows * count} for the whole batch",
            node=node, origin=placing.graph.source,
            fix=f"--batch_constants={names} if it is the number of rows, or {computed}" if names else computed,
        )  # fmt: skip


def _left_by_divisions(placing: Placing, count: int) -> Iterator[tuple[Node, str, str]]:
    """Bins for the remainders of a division by as many as there are bins: where, the constants, and what is in doubt."""
    d = placing.d
    for node, numbers, told, bins in _bins(placing):
        divided = source_of(numbers, _SAME_PLACES).node
        by = constant_behind(divided.inputs[1]) if divided.op in _REMAINDERS else None
        if by is None or not in_doubt_alone(d, by) or not (d.in_doubt(bins) or follows_batch(bins)):
            continue
        divisor, many = (d.elements(by.out()) or [None])[0], d.sizes.at(bins)
        if divisor is None or d.sizes.at(divisor) != many:
            continue
        yield node, ",".join(dict.fromkeys((constant_behind(told).name, by.name))), (
            f"'{node.name}' ({node.op}) has {many} bins for numbers that are what '{divided.name}' leaves when it divides by "
            f"{many}, and a core's batch has {d.rows} rows: if both follow them, they are {many * count} for the whole batch; if "
            "they are numbers of the model, they stay"
        )  # fmt: skip


def _counted(placing: Placing, count: int) -> Iterator[tuple[Node, str, str]]:
    """A fixed number of bins for numbers that count rows: experts have slots for some rows, or for a share of them."""
    d = placing.d
    for node, numbers, told, bins in _bins(placing):
        name, many = constant_behind(told).name, d.sizes.at(bins)
        if not _is_open(bins, d) or d.constants.choice(name) is not None:
            continue
        if (d.rows > 1 and _made_of(d, numbers, _counts)) or (d.in_doubt(bins) and _made_of(d, numbers, _numbers)):
            yield node, name, (
                f"'{node.name}' ({node.op}) has {many} bins for numbers that count rows, of which a core's batch has {d.rows}: if "
                f"'{name}' follows them, there are {many * count} bins for the whole batch; if it is a number of the model, there "
                f"are {many}"
            )  # fmt: skip


def _compared(placing: Placing, count: int) -> Iterator[tuple[Node, str, str]]:
    """Numbers that places among the rows are compared with: experts take rows up to a share of them, or up to a number."""
    d = placing.d
    for node in placing.verdicts:
        for places, told in (node.inputs, node.inputs[::-1]) if node.op in _ORDERS else ():
            name, size = constant_behind(told).name, (d.elements(told) or [None])[0]
            if size is None or not _is_open(size, d) or d.constants.choice(name) is not None:
                continue
            if _made_of(d, places, _places):
                many = d.sizes.at(size)
                yield node, name, (
                    f"'{node.name}' ({node.op}) compares places among the rows of the batch with {many}, and a core's batch has "
                    f"{d.rows} rows: if '{name}' follows them, it is {many * count} for the whole batch; if it is a number of the "
                    "model, it stays"
                )  # fmt: skip


def _is_open(size: Size, d: Dimensions) -> TypeGuard[Unknown]:
    """Whether nothing says what a number of several bins is, or nothing but that what is made of it is of the batch."""
    if not isinstance(size, Unknown) or size.value < 2:
        return False
    return known(size) is None or size.root() in d.defaulted or size.root() in d.sizes.presumed


def _made_of(d: Dimensions, numbers: Tensor, of: Callable[[Dimensions, Tensor], bool]) -> bool:
    """Whether numbers are made of some that go further of more rows."""
    near = reached(
        [numbers], lambda tensor: tensor.node.inputs if tensor.node.op in _KEEPING and not of(d, tensor) else ()
    )
    return any(of(d, tensor) for tensor in near)


def _numbers(d: Dimensions, tensor: Tensor) -> bool:
    """Whether elements are the numbers of the rows: of a batch of graphs, each has nodes of its own numbers."""
    return tensor.node.op in ops.RANGES and any(map(follows_batch, d.dims(tensor) or ()))


def _places(d: Dimensions, tensor: Tensor) -> bool:
    """Whether elements are sums up to each row."""
    return tensor.node.op in ops.RUNNING_SUMS and _counts(d, tensor)


def _counts(d: Dimensions, tensor: Tensor) -> bool:
    """Whether elements are sums over rows, or sums up to each row: elements of rows are added up along the batch."""
    node = tensor.node
    if node.op not in ops.RUNNING_SUMS:
        return node.op in ops.SUMS and summed(d, tensor) is not None
    dims, axis = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    return bool(dims) and bool(axis) and follows_batch(dims[axis[0]])  # type: ignore[index]


def _bins(placing: Placing) -> Iterator[tuple[Node, Tensor, Tensor, Size]]:
    """What puts something into bins, the numbers of these, the operand that says how many there are, and that number."""
    for node in placing.verdicts:
        if node.op in ops.ONE_HOTS:
            numbers, told = node.inputs[:2]
        elif node.op in ops.UNSORTED_SEGMENTS:
            numbers, told = node.inputs[1:3]
        else:
            continue
        size = next(iter(placing.d.elements(told) or ()), None)
        if size is not None:
            yield node, numbers, told, size
