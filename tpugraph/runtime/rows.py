"""Rows of data that the graph holds itself, read by their numbers.

A pipeline such as ``from_tensor_slices(constants).shuffle(n).repeat().batch(b)`` carries each row, tensor by tensor,
through every stage. Where the stages only choose and order rows, the numbers of the rows go through them instead, and
the rows of all cores of a step are gathered from the constants in one go: the same rows in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tpugraph import attrs
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.runtime.batches import SAME, scalar

AHEAD = 64
"""Steps whose row numbers are read ahead."""

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")
_VARIANT = attrs.dtype("variant")
_ORDER = frozenset(
    {"RepeatDataset", "ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDataset",
     "ShuffleAndRepeatDatasetV2", "TakeDataset", "SkipDataset", "ShardDataset"}
)  # fmt: skip
"""Datasets that choose and order the elements of another without looking at them."""


@dataclass(frozen=True)
class _Rows:
    """Constant rows, the stages that order them (the last one first), and how many make up a batch of one core."""

    constants: list[Node]
    stages: list[Node]
    count: int
    batch: int
    core: int


def read_by_number(graph: Graph, maker: Node, take: Node, cores: int) -> list[Tensor] | None:
    """Let an iterator give the row numbers of a step; returns the rows of all cores, stacked, for each component.

    Args:
        graph: the graph.
        maker: what gives the iterator its dataset.
        take: the first core's read; it becomes the read of all.
        cores: number of cores.
    """
    rows = _rows(maker.inputs[0].node)
    if rows is None:
        return None
    dataset = _numbers(graph, maker, rows, cores)
    graph.set_input(maker, 0, dataset)
    number = graph.add("IteratorGetNext", f"{take.name}/numbers", [take.inputs[0]], controls=take.controls,
                       attrs={"output_types": [_INT64], "output_shapes": [(cores * rows.core,)]},
                       outputs=[(_INT64, (cores * rows.core,))], source=take)  # fmt: skip
    shape = _inside(graph, number, np.array([cores, rows.core], "int32"))
    numbers = graph.add("Reshape", f"{take.name}/per_core", [number.out(), shape], attrs={"T": _INT64, "Tshape": _INT32},
                        outputs=[(_INT64, (cores, rows.core))], source=take)  # fmt: skip
    return [_gather(graph, take, number, numbers, port, constant) for port, constant in enumerate(rows.constants)]


def _rows(node: Node) -> _Rows | None:
    core = None
    while node.op in SAME or node.op == "RebatchDatasetV2":
        if node.op == "RebatchDatasetV2":
            sizes = scalar(node.inputs[1].node)
            if core is not None or sizes is None or not scalar(node.inputs[2].node):
                return None
            core = sizes
        node = node.inputs[0].node
    if node.op != "BatchDatasetV2" or not scalar(node.inputs[2].node):
        return None
    batch = scalar(node.inputs[1].node)
    stages: list[Node] = []
    node = node.inputs[0].node
    while node.op in _ORDER:
        stages.append(node)
        node = node.inputs[0].node
    if node.op != "TensorSliceDataset" or node.attr("is_files", False) or not batch:
        return None
    constants = [t.node for t in node.inputs]
    if any(c.op != "Const" or not c.attr("value").shape for c in constants):
        return None
    return _Rows(constants, stages, len(constants[0].attr("value")), batch, core or batch)


def _numbers(graph: Graph, maker: Node, rows: _Rows, cores: int) -> Tensor:
    """The dataset of row numbers, a step's at a time."""
    scalars = {"output_types": [_INT64], "output_shapes": [()], "metadata": ""}
    ends = [_outside(graph, maker, np.int64(value)) for value in (0, rows.count, 1)]
    dataset = graph.add("RangeDataset", "tpugraph/rows", ends, attrs={**scalars, "replicate_on_split": False},
                        outputs=[(_VARIANT, ())], source=maker)  # fmt: skip
    for stage in reversed(rows.stages):
        made = graph.clone_subgraph([stage], lambda name: f"tpugraph/rows/{name}")[stage]
        graph.set_input(made, 0, dataset.out())
        graph.set_attr(made, "output_types", [_INT64])
        graph.set_attr(made, "output_shapes", [()])
        dataset = made
    step, true = cores * rows.core, _outside(graph, maker, np.bool_(True))
    whole = rows.batch if rows.batch % step and rows.batch != rows.core else step
    for op, size in (("BatchDatasetV2", whole), ("RebatchDatasetV2", step)):
        if op == "RebatchDatasetV2" and whole == step:
            continue
        value = np.int64(size) if op == "BatchDatasetV2" else np.array([size], "int64")
        extra = {"parallel_copy": False, "metadata": ""} if op == "BatchDatasetV2" else {}
        dataset = graph.add(op, "tpugraph/rows/of_a_step", [dataset.out(), _outside(graph, maker, value), true],
                            attrs={"output_types": [_INT64], "output_shapes": [(size,)], **extra},
                            outputs=[(_VARIANT, ())], source=maker)  # fmt: skip
    ahead = _outside(graph, maker, np.int64(AHEAD))
    return graph.add("PrefetchDataset", "tpugraph/rows/ahead", [dataset.out(), ahead],
                     attrs={"output_types": [_INT64], "output_shapes": [(step,)], "slack_period": 0,
                            "legacy_autotune": True, "buffer_size_min": 0, "metadata": ""},
                     outputs=[(_VARIANT, ())], source=maker).out()  # fmt: skip


def _gather(graph: Graph, take: Node, number: Node, numbers: Node, port: int, constant: Node) -> Tensor:
    kind, shape = take.output(port)
    held = graph.add("Const", f"{take.name}/all_rows", controls=[number],
                     attrs={"dtype": kind, "value": constant.attr("value")},
                     outputs=[(kind, constant.attr("value").shape)], source=take).out()  # fmt: skip
    axis = _inside(graph, number, np.int32(0))
    return graph.add("GatherV2", f"{take.name}/rows", [held, numbers.out(), axis],
                     attrs={"Tparams": kind, "Tindices": _INT64, "Taxis": _INT32, "batch_dims": 0},
                     outputs=[(kind, (numbers.output(0)[1][0], *(shape or ())))], source=take).out()  # type: ignore[index] # fmt: skip


def _inside(graph: Graph, near: Node, value: np.ndarray | np.generic) -> Tensor:
    """A constant in the frame of a node."""
    kind = attrs.dtype(value.dtype.name)
    return graph.add("Const", f"{near.name}/value", controls=[near], attrs={"dtype": kind, "value": np.asarray(value)},
                     outputs=[(kind, value.shape)], source=near).out()  # fmt: skip


def _outside(graph: Graph, maker: Node, value: np.ndarray | np.generic) -> Tensor:
    kind = attrs.dtype(value.dtype.name)
    return graph.add("Const", "tpugraph/rows/value", attrs={"dtype": kind, "value": np.asarray(value)},
                     outputs=[(kind, value.shape)], source=maker).out()  # fmt: skip
