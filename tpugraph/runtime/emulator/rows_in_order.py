"""Rows of data that the graph holds itself and that are read in their order, counted instead of carried.

A pipeline ``from_tensor_slices(constants).repeat().batch(b)`` copies each row on its own, though which rows a step reads
is plain: those behind the rows before it. So the dataset only counts, a step at a time, and one gather takes the rows of all
cores. Its position is the number of rows that were read, whatever the batch and the number of cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.pattern import behind, either, match, number, op
from tpugraph.runtime.emulator.rows_of_constants import (
    INT64,
    HeldRows,
    constants_of,
    gathered,
    outside,
    read_numbers,
    scalar,
    within,
)
from tpugraph.runtime.pipelines import as_written

ENDLESS = 2**62
"""Rows of data that repeat without an end."""


@dataclass(frozen=True)
class _Source:
    """Constant rows, how many are read in all, and how many make up a batch of one core."""

    constants: list[Node]
    total: int
    batch: int


def read_in_order(graph: Graph, maker: Node, take: Node, cores: int) -> HeldRows | None:
    """Let an iterator count the rows that were read; returns the rows of a step.

    Args:
        graph: the graph.
        maker: what gives the iterator its dataset.
        take: the first core's read; what is returned stands for the reads of all.
        cores: number of cores.
    """
    source = _source(maker.inputs[0].node)
    if source is None:
        return None
    graph.set_input(maker, 0, _dataset(graph, maker, source, cores))
    read = read_numbers(graph, take, (), endless=source.total == ENDLESS)
    numbers = _numbers(graph, take, read, source, cores)
    return HeldRows(read, gathered(graph, take, numbers, source.constants))


_SLICES = op(ops.SLICE_DATASETS, name="slices")
_BATCHED_SLICES = behind(
    ops.SAME_ELEMENTS,
    op(
        ops.BATCH_DATASETS,
        either(op(ops.REPEAT_DATASETS, _SLICES, number(name="repeats")), _SLICES),
        number(name="size"),
    ),
)


def _source(node: Node) -> _Source | None:
    found = match(_BATCHED_SLICES, node.out())
    size = scalar(found["size"].node) if found else None
    repeats = scalar(found["repeats"].node) if "repeats" in found.bound else 1
    constants = constants_of(found["slices"].node) if found else None
    if size is None or size < 1 or not repeats or constants is None:
        return None
    counts = {len(constant.attr("value")) for constant in constants}
    if len(counts) != 1 or 0 in counts:
        return None  # TensorFlow says what is wrong with them
    rows = counts.pop()
    return _Source(constants, rows * repeats if repeats > 0 else ENDLESS, size)


def _dataset(graph: Graph, maker: Node, source: _Source, cores: int) -> Tensor:
    """The number of the first row of each step, as long as there are rows for all of it."""
    step = cores * source.batch
    ends = [outside(graph, maker, np.int64(value)) for value in (0, max(source.total - step + 1, 0), step)]
    counted = graph.add("RangeDataset", "tpugraph/rows", ends, outputs=[(attrs.dtype("variant"), ())], source=maker,
                        attrs={"output_types": [INT64], "output_shapes": [()], "metadata": "",
                               "replicate_on_split": False})  # fmt: skip
    # Nothing may count ahead, as tf.data would let it: where the next step begins depends on the number of cores.
    return as_written(graph, maker, counted.out(), [INT64], [()], name="tpugraph/rows/as_it_is", rewrite=False).out()


def _numbers(graph: Graph, take: Node, read: Node, source: _Source, cores: int) -> Tensor:
    """The numbers of the rows of a step, [cores, rows of a core]."""
    shape = (cores, source.batch)
    rows = len(source.constants[0].attr("value"))
    ahead = within(graph, take, np.arange(cores * source.batch).reshape(shape), INT64)
    counted = graph.add("AddV2", f"{take.name}/counted", [read.out(), ahead], attrs={"T": INT64}, outputs=[(INT64, shape)],
                        source=take)  # fmt: skip
    around = within(graph, take, np.array(rows), INT64)
    return graph.add("FloorMod", f"{take.name}/around", [counted.out(), around], attrs={"T": INT64},
                     outputs=[(INT64, shape)], source=take).out()  # fmt: skip
