"""Batches of data that the graph holds itself, made once instead of row by row in every step.

A pipeline ``from_tensor_slices(constants).repeat().batch(b)`` copies each row on its own, though its batches come round
again after ``lcm(rows, b)`` rows. Where one such round is small, the dataset is replaced by one whose elements are
whole batches of all cores, in the same order.

The position that a checkpoint holds counts batches of one core, so it stays right on another number of cores. The rule
depends on nothing but the input: every pipeline of this form is rewritten, any other is left as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, attrs

MOST_BYTES = 16 * 2**20
"""The biggest round of batches that is held in memory."""

_INT64 = attrs.dtype("int64")
_BOOL = attrs.dtype("bool")
_VARIANT = attrs.dtype("variant")


@dataclass(frozen=True)
class _Source:
    """Constant rows, repeated and batched."""

    components: list[np.ndarray]
    repeats: int  # -1: for ever
    size: int


def whole_batches(graph: Graph, maker: Node, cores: int) -> bool:
    """Let the dataset give the batches of all cores of a step as one element; returns whether that was possible.

    Args:
        graph: the graph.
        maker: what gives the iterator its dataset.
        cores: number of cores.
    """
    source = _source(maker.inputs[0].node)
    elements = None if source is None else _round(source)
    if source is None or elements is None:
        return False
    graph.set_input(maker, 0, _dataset(graph, maker, elements, source, cores).out())
    return True


# --------------------------------------------------------------------------- the dataset as it is


def _source(node: Node) -> _Source | None:
    while node.op in ops.SAME_ELEMENTS:
        node = node.inputs[0].node
    if node.op not in ("BatchDataset", "BatchDatasetV2"):
        return None
    size = scalar(node.inputs[1].node)
    node = node.inputs[0].node
    repeats: int | None = 1
    if node.op == "RepeatDataset":
        repeats = scalar(node.inputs[1].node)
        node = node.inputs[0].node
    if node.op != "TensorSliceDataset" or node.attr("is_files", False) or not size or repeats is None or repeats == 0:
        return None
    constants = [t.node for t in node.inputs]
    if any(constant.op != "Const" for constant in constants):
        return None
    components = [constant.attr("value") for constant in constants]
    if any(not array.shape or array.dtype == object for array in components):
        return None
    if len({len(array) for array in components}) != 1 or not len(components[0]):
        return None  # TensorFlow says what is wrong with them
    return _Source(components, repeats, size)


def scalar(node: Node) -> int | None:
    """The number that a constant is; None of any other node."""
    return int(node.attr("value").item()) if node.op == "Const" and node.attr("value").size == 1 else None


def _round(source: _Source) -> list[np.ndarray] | None:
    """The batches of one round, stacked; None where they are too many."""
    rows = len(source.components[0])
    length = math.lcm(rows, source.size)
    if source.repeats >= 0:
        length = min(length, -(-rows * source.repeats // source.size) * source.size)
    if sum(array.nbytes for array in source.components) / rows * length > MOST_BYTES:
        return None
    order = np.arange(length) % rows
    return [array[order].reshape(-1, source.size, *array.shape[1:]) for array in source.components]


# --------------------------------------------------------------------------- the dataset as it will be


def _dataset(graph: Graph, maker: Node, elements: list[np.ndarray], source: _Source, cores: int) -> Node:
    kinds = [attrs.dtype(e.dtype.name) for e in elements]
    one: list[attrs.Shape] = [e.shape[1:] for e in elements]
    inputs = [_constant(graph, maker, e).out() for e in elements]
    dataset = graph.add(
        "TensorSliceDataset",
        "tpugraph/batches",
        inputs,
        attrs={
            "Toutput_types": kinds,
            "output_shapes": one,
            "is_files": False,
            "metadata": "",
            "replicate_on_split": False,
        },
        outputs=[(_VARIANT, ())],
        source=maker,
    )
    shape = {"output_types": kinds, "output_shapes": one, "metadata": ""}
    dataset = _stage(
        graph, "RepeatDataset", "tpugraph/batches/repeat", dataset, [_constant(graph, maker, np.int64(-1))], shape
    )
    if source.repeats >= 0:
        whole = len(source.components[0]) * source.repeats // source.size
        dataset = _stage(
            graph, "TakeDataset", "tpugraph/batches/take", dataset, [_constant(graph, maker, np.int64(whole))], shape
        )
    more = [_constant(graph, maker, np.int64(cores)), _constant(graph, maker, np.bool_(True))]
    batched = shape | {"output_shapes": [(cores, *(s or ())) for s in one], "parallel_copy": False}
    return _stage(graph, "BatchDatasetV2", "tpugraph/batches/of_a_step", dataset, more, batched)


def _stage(graph: Graph, op: str, name: str, dataset: Node, more: list[Node], attributes: dict[str, object]) -> Node:
    return graph.add(
        op, name, [dataset.out(), *(node.out() for node in more)], attrs=attributes, outputs=[(_VARIANT, ())]
    )


def _constant(graph: Graph, maker: Node, value: np.ndarray | np.generic) -> Node:
    kind = attrs.dtype(value.dtype.name)
    return graph.add("Const", "tpugraph/batches/value", attrs={"dtype": kind, "value": value},
                     outputs=[(kind, value.shape)], source=maker)  # fmt: skip
