"""Rows of data that the graph holds itself, read by their numbers.

A pipeline such as ``from_tensor_slices(constants).shuffle(n).repeat().batch(b)`` carries each row, tensor by tensor,
through every stage. Where the stages only choose and order rows, the numbers of the rows go through them instead, and
the rows of all cores of a step are gathered from the constants in one go: the same rows in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis.trip_counts import steps_per_loop
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
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

AHEAD = 64
"""Steps whose row numbers are read ahead at least."""

MOST_AHEAD = 2**20
"""Row numbers that are read ahead at most beyond that: 8 MiB."""

_VARIANT = attrs.dtype("variant")


@dataclass(frozen=True)
class _Rows:
    """Constant rows, the stages that order them (the last one first), and how many make up a batch of one core."""

    constants: list[Node]
    stages: list[Node]
    count: int
    batch: int
    core: int


def read_by_number(graph: Graph, maker: Node, take: Node, cores: int) -> HeldRows | None:
    """Let an iterator give the row numbers of a step; returns the rows of a step.

    Args:
        graph: the graph.
        maker: what gives the iterator its dataset.
        take: the first core's read; what is returned stands for the reads of all.
        cores: number of cores.
    """
    rows = _rows(graph, maker.inputs[0].node)
    if rows is None:
        return None
    graph.set_input(maker, 0, _numbers(graph, maker, rows, cores))
    read = read_numbers(graph, take, (cores * rows.core,), endless=_endless(rows))
    shape = (cores, rows.core)
    sizes = within(graph, take, np.asarray(shape), INT64)
    numbers = graph.add("Reshape", f"{take.name}/of_cores", [read.out(), sizes], attrs={"T": INT64, "Tshape": INT64},
                        outputs=[(INT64, shape)], source=take)  # fmt: skip
    return HeldRows(read, gathered(graph, take, numbers.out(), rows.constants))


def _rows(graph: Graph, node: Node) -> _Rows | None:
    core = None
    while node.op in ops.SAME_ELEMENTS | ops.REBATCH_DATASETS or _maps_to_itself(graph, node):
        if node.op in ops.REBATCH_DATASETS:
            sizes = scalar(node.inputs[1].node)
            if core is not None or sizes is None or not scalar(node.inputs[2].node):
                return None
            core = sizes
        node = node.inputs[0].node
    batching = ops.BATCHING[node.op] if node.op in ops.BATCH_DATASETS else None
    if batching is None or batching.drop_remainder is None or not scalar(node.inputs[batching.drop_remainder].node):
        return None
    batch = scalar(node.inputs[batching.size].node)
    stages: list[Node] = []
    node = node.inputs[0].node
    while node.op in ops.CHOSEN_ELEMENTS:
        stages.append(node)
        node = node.inputs[0].node
    constants = constants_of(node) if node.op in ops.SLICE_DATASETS else None
    if constants is None or not batch:
        return None
    return _Rows(constants, stages, len(constants[0].attr("value")), batch, core or batch)


def _endless(rows: _Rows) -> bool:
    """Whether rows come again and again: they are repeated for ever, and no stage leaves any out."""
    repeats = [scalar(stage.inputs[1].node) for stage in rows.stages if stage.op in ops.REPEAT_DATASETS]
    for_ever = all(repeats) and any(count is not None and count < 0 for count in repeats)
    return for_ever and rows.count > 0 and all(stage.op in _ALL_ROWS for stage in rows.stages)


_ALL_ROWS = ops.REPEAT_DATASETS | ops.SHUFFLE_DATASETS


def _maps_to_itself(graph: Graph, node: Node) -> bool:
    """Whether a dataset is a map whose function returns its arguments; TensorFlow puts one before a rebatch."""
    if node.op not in ops.MAP_DATASETS or len(node.inputs) != 1:
        return False
    function = function_library.functions_named(graph)[node.attr("f").name]
    passed = {n.name: n.input[0] for n in function.node_def if n.op in ops.IDENTITIES}
    ends = []
    for output in function.signature.output_arg:
        source = function.ret[output.name]
        while source.partition(":")[0] in passed:
            source = passed[source.partition(":")[0]]
        ends.append(source)
    return ends == [argument.name for argument in function.signature.input_arg]


def _numbers(graph: Graph, maker: Node, rows: _Rows, cores: int) -> Tensor:
    """The dataset of row numbers, a step's at a time."""
    scalars = {"output_types": [INT64], "output_shapes": [()], "metadata": ""}
    ends = [outside(graph, maker, np.int64(value)) for value in (0, rows.count, 1)]
    dataset = graph.add("RangeDataset", "tpugraph/rows", ends, attrs={**scalars, "replicate_on_split": False},
                        outputs=[(_VARIANT, ())], source=maker)  # fmt: skip
    for stage in reversed(rows.stages):
        made = graph.clone_subgraph([stage], lambda name: f"tpugraph/rows/{name}")[stage]
        graph.set_input(made, 0, dataset.out())
        graph.set_attr(made, "output_types", [INT64])
        graph.set_attr(made, "output_shapes", [()])
        dataset = made
    step = cores * rows.core
    # Rows behind the last whole batch are never read: of batches that do not divide a step, they are dropped here.
    chunk = step if rows.batch == rows.core or step % rows.batch == 0 else rows.batch
    dataset = _sized(graph, maker, "BatchDatasetV2", dataset, np.int64(chunk), drop_remainder=chunk != step)
    # The stages do so little that measuring them costs more than they do.
    dataset = as_written(graph, maker, dataset.out(), [INT64], [(None,)], name="tpugraph/rows/as_it_is", rewrite=False)
    # The numbers of the next loop are drawn while the steps of this one run.
    loop = min(steps_per_loop(graph), MOST_AHEAD // step)
    ahead = outside(graph, maker, np.int64(max(AHEAD, loop) * step // chunk or 1))
    dataset = graph.add("PrefetchDataset", "tpugraph/rows/ahead", [dataset.out(), ahead],
                        attrs={"output_types": [INT64], "output_shapes": [(None,)], "slack_period": 0,
                               "legacy_autotune": True, "buffer_size_min": 0, "metadata": ""},
                        outputs=[(_VARIANT, ())], source=maker)  # fmt: skip
    # The cut into steps comes last: what is read ahead, which a checkpoint holds, fits any number of cores.
    return _sized(graph, maker, "RebatchDatasetV2", dataset, np.array([step], "int64"), drop_remainder=True).out()


def _sized(graph: Graph, maker: Node, op: str, dataset: Node, size: np.ndarray | np.generic, *,
           drop_remainder: bool) -> Node:  # fmt: skip
    """A dataset of the same row numbers, so many at a time."""
    ends = [outside(graph, maker, size), outside(graph, maker, np.bool_(drop_remainder))]
    extra = {"parallel_copy": False, "metadata": ""} if op in ops.BATCH_DATASETS else {}
    shape = (int(size.item()) if op in ops.REBATCH_DATASETS else None,)
    return graph.add(op, "tpugraph/rows/of_a_step", [dataset.out(), *ends],
                     attrs={"output_types": [INT64], "output_shapes": [shape], **extra},
                     outputs=[(_VARIANT, ())], source=maker)  # fmt: skip
