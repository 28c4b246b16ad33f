"""Rows that are put into as many bins as a constant says, by what is left when their numbers are divided by another one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.partition.two_readings import constant_behind, in_doubt_alone, refusal_of

_REMAINDERS = ops.computing(np.remainder, np.fmod)
_SAME_PLACES = ops.SAME_NUMBERS | ops.SHAPED_ANEW


def refuse_bins(placing: Placing, count: int) -> None:
    """Refuse bins that are as many as a core's batch has rows, and numbers of them that go up to that: of more rows it may be more.

    Where either is known to be a number of the model, so is the other.

    Raises:
        ConversionError: it names both constants, and the flags that settle them.
    """
    d = placing.d
    for node in placing.verdicts if d.rows > 1 else ():
        for numbers, told, bins in _bins(d, node):
            divided = source_of(numbers, _SAME_PLACES).node
            by = constant_behind(divided.inputs[1]) if divided.op in _REMAINDERS else None
            if (
                by is None
                or not in_doubt_alone(d, by)
                or d.sizes.at(bins) != d.sizes.at((d.elements(by.out()) or [0])[0] or 0)
            ):
                continue
            if not d.in_doubt(bins) and not follows_batch(bins):
                continue
            names = ",".join(dict.fromkeys((constant_behind(told).name, by.name)))
            many = d.sizes.at(bins)
            raise refusal_of(
                placing, node, names, ("follow the rows", "do not"),
                f"'{node.name}' ({node.op}) has {many} bins for numbers that are what '{divided.name}' leaves when it divides by "
                f"{many}, and a core's batch has {d.rows} rows: if both follow them, they are {many * count} for the whole batch; if "
                "they are numbers of the model, they stay",
            )  # fmt: skip


def _bins(d: Dimensions, node: Node) -> Iterator[tuple[Tensor, Tensor, Size]]:
    """The numbers of bins that an op puts something into, the operand that says how many there are, and that number."""
    if node.op in ops.ONE_HOTS:
        numbers, told = node.inputs[:2]
    elif node.op in ops.UNSORTED_SEGMENTS:
        numbers, told = node.inputs[1:3]
    else:
        return
    yield from ((numbers, told, size) for size in (d.elements(told) or ())[:1] if size is not None)
