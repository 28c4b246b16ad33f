"""Datasets that slice constants of the graph: the pipeline yields row numbers, and one gather takes the rows of all cores.

``from_tensor_slices(constants).shuffle(n).repeat().batch(b)`` carries each row, tensor by tensor, through every stage. Where
the stages only select and order rows, int64 numbers go through them instead. Without a shuffle the dataset only counts, a step
at a time, and its position is the number of rows read, whatever the batch and the number of cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis.trip_counts import steps_per_loop
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library
from tpugraph.ir.builder import Builder
from tpugraph.ir.pattern import behind, either, match, number, op
from tpugraph.runtime.pipelines import as_written

INT64 = attrs.dtype("int64")
_INT32 = attrs.dtype("int32")
_SCOPE = "tpugraph/rows"

AHEAD = 64
"""Steps whose row numbers are read ahead at least."""

MOST_AHEAD = 2**20
"""Row numbers that are read ahead at most beyond that: 8 MiB."""

# --------------------------------------------------------------------------- rows in order


@dataclass(frozen=True)
class HeldRows:
    """The batches of a step, of rows that the graph holds.

    Attributes:
        read: the node that reads what tells the numbers of the rows.
        rows: of each component the rows of all cores, [cores, rows of a core, ...].
    """

    read: Node
    rows: list[Tensor]


def scalar(node: Node) -> int | None:
    """The number that a constant is; None of any other node."""
    return int(node.attr("value").item()) if node.op in ops.CONSTANTS and node.attr("value").size == 1 else None


def constants_of(slices: Node) -> list[Node] | None:
    """The constants whose rows a dataset of slices gives; None where it gives others."""
    found = [tensor.node for tensor in slices.inputs]
    held = all(node.op in ops.CONSTANTS and node.attr("value").shape for node in found)
    return found if held and not slices.attr("is_files", False) else None


def read_numbers(graph: Graph, take: Node, shape: attrs.Shape, *, endless: bool) -> Node:
    """The read of numbers of this shape, int64, where a core read its batch.

    Where they never end nobody has to ask, and the executor reads them itself: they are not worth another thread.
    """
    op = "IteratorGetNextSync" if endless else "IteratorGetNext"
    return Builder(graph, source=take).node(op, [take.inputs[0]], name=f"{take.name}/numbers", shapes=[shape],
                                            controls=take.controls, **_numbers(shape))  # fmt: skip


def _numbers(shape: attrs.Shape) -> dict[str, Any]:
    """What datasets and reads say of elements that are numbers of rows."""
    return {"output_types": [INT64], "output_shapes": [shape]}


def gathered(graph: Graph, take: Node, numbers: Tensor, constants: list[Node]) -> list[Tensor]:
    """The rows of each component that the numbers of a step choose of its constant."""
    make, found = Builder(graph, take.name, source=take), []
    for port, held in enumerate(constants):
        value = held.attr("value")
        rows = within(graph, take, value, take.output(port)[0])
        axis = within(graph, take, np.zeros((), "int32"), _INT32)
        shape = (*(numbers.shape or ()), *value.shape[1:])
        found.append(make.add("GatherV2", [rows, numbers, axis], shape, name="rows", batch_dims=0))
    return found


def outside(graph: Graph, maker: Node, value: np.ndarray | np.generic) -> Tensor:
    """A constant outside of the loop, for a dataset."""
    return Builder(graph, _SCOPE, source=maker).constant(value, name="value")


def within(graph: Graph, take: Node, value: np.ndarray, kind: attrs.DType) -> Tensor:
    """A constant as the loop of the read sees it."""
    held = Builder(graph, _SCOPE, source=take).add("Const", [], value.shape, name="held", dtype=kind, value=value).node
    entry = take.inputs[0].node
    if entry.op not in ops.ENTER:
        return held.out()
    made = graph.clone_subgraph([entry], lambda name: f"{held.name}/Enter")[entry]
    kept = {key: given for key, given in made.raw_attrs.items() if key[0] != "_"}
    graph.retype(made, entry.op, inputs=[held.out()], attrs={**kept, "T": kind}, outputs=[held.output(0)])
    return made.out()


# --------------------------------------------------------------------------- shuffled rows


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
    graph.set_input(maker, 0, _shuffled(graph, maker, rows, cores))
    read = read_numbers(graph, take, (cores * rows.core,), endless=_endless(rows))
    shape = (cores, rows.core)
    sizes = within(graph, take, np.asarray(shape), INT64)
    numbers = Builder(graph, take.name, source=take).add("Reshape", [read.out(), sizes], shape, name="of_cores")
    return HeldRows(read, gathered(graph, take, numbers, rows.constants))


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


def _shuffled(graph: Graph, maker: Node, rows: _Rows, cores: int) -> Tensor:
    """The dataset of row numbers, a step's at a time."""
    dataset = _range(graph, maker, 0, rows.count, 1)
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
    dataset = Builder(graph, _SCOPE, source=maker).node(
        "PrefetchDataset", [dataset.out(), ahead], name="ahead", shapes=[()], slack_period=0, legacy_autotune=True,
        buffer_size_min=0, metadata="", **_numbers((None,)),
    )  # fmt: skip
    # The cut into steps comes last: what is read ahead, which a checkpoint holds, fits any number of cores.
    return _sized(graph, maker, "RebatchDatasetV2", dataset, np.array([step], "int64"), drop_remainder=True).out()


def _sized(graph: Graph, maker: Node, op: str, dataset: Node, size: np.ndarray | np.generic, *,
           drop_remainder: bool) -> Node:  # fmt: skip
    """A dataset of the same row numbers, so many at a time."""
    ends = [outside(graph, maker, size), outside(graph, maker, np.bool_(drop_remainder))]
    extra: dict[str, Any] = {"parallel_copy": False, "metadata": ""} if op in ops.BATCH_DATASETS else {}
    shape = (int(size.item()) if op in ops.REBATCH_DATASETS else None,)
    return Builder(graph, _SCOPE, source=maker).node(op, [dataset.out(), *ends], name="of_a_step", shapes=[()],
                                                     **extra, **_numbers(shape))  # fmt: skip


def _range(graph: Graph, maker: Node, *ends: int) -> Node:
    """A dataset that counts from the first number to the second by the third."""
    return Builder(graph, source=maker).node(
        "RangeDataset", [outside(graph, maker, np.int64(end)) for end in ends], name=_SCOPE, shapes=[()], metadata="",
        replicate_on_split=False, **_numbers(()),
    )  # fmt: skip


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

    The arguments are those of :func:`read_by_number`.
    """
    source = _source(maker.inputs[0].node)
    if source is None:
        return None
    graph.set_input(maker, 0, _dataset(graph, maker, source, cores))
    read = read_numbers(graph, take, (), endless=source.total == ENDLESS)
    numbers = _counted(graph, take, read, source, cores)
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
    counted = _range(graph, maker, 0, max(source.total - step + 1, 0), step)
    # Nothing may count ahead, as tf.data would let it: where the next step begins depends on the number of cores.
    return as_written(graph, maker, counted.out(), [INT64], [()], name="tpugraph/rows/as_it_is", rewrite=False).out()


def _counted(graph: Graph, take: Node, read: Node, source: _Source, cores: int) -> Tensor:
    """The numbers of the rows of a step, [cores, rows of a core]."""
    shape = (cores, source.batch)
    rows = len(source.constants[0].attr("value"))
    ahead = within(graph, take, np.arange(cores * source.batch).reshape(shape), INT64)
    make, around = Builder(graph, take.name, source=take), within(graph, take, np.array(rows), INT64)
    counted = make.add("AddV2", [read.out(), ahead], shape, name="counted")
    return make.add("FloorMod", [counted, around], shape, name="around")
