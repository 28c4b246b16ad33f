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
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.pattern import behind, either, match, number, op

MOST_BYTES = 16 * 2**20
"""The biggest round of batches that is held in memory."""


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


_SLICES = op("TensorSliceDataset", name="slices")
_BATCHED_SLICES = behind(
    ops.SAME_ELEMENTS,
    op(
        ("BatchDataset", "BatchDatasetV2"),
        either(op("RepeatDataset", _SLICES, number(name="repeats")), _SLICES),
        number(name="size"),
    ),
)


def _source(node: Node) -> _Source | None:
    found = match(_BATCHED_SLICES, node.out())
    size = scalar(found["size"].node) if found else None
    repeats = scalar(found["repeats"].node) if "repeats" in found.bound else 1
    if size is None or size < 1 or not repeats or found["slices"].node.attr("is_files", False):
        return None
    constants = [t.node for t in found["slices"].node.inputs]
    if any(constant.op not in ops.CONSTANTS for constant in constants):
        return None
    components = [constant.attr("value") for constant in constants]
    if any(not array.shape or array.dtype == object for array in components):
        return None
    if len({len(array) for array in components}) != 1 or not len(components[0]):
        return None  # TensorFlow says what is wrong with them
    return _Source(components, repeats, size)


def scalar(node: Node) -> int | None:
    """The number that a constant is; None of any other node."""
    return int(node.attr("value").item()) if node.op in ops.CONSTANTS and node.attr("value").size == 1 else None


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
    make = Builder(graph, "tpugraph/batches", source=maker)

    def stage(op: str, name: str, dataset: Tensor, *more: np.generic, **attributes: Any) -> Tensor:
        inputs = [dataset, *(make.constant(value, name="value") for value in more)]
        return make.add(op, inputs, (), name=name, output_types=kinds, metadata="", **attributes)

    rounds = Builder(graph, source=maker).add(
        "TensorSliceDataset", [make.constant(e, name="value") for e in elements], (), name="tpugraph/batches",
        output_shapes=one, is_files=False, metadata="", replicate_on_split=False,
    )  # fmt: skip
    dataset = stage("RepeatDataset", "repeat", rounds, np.int64(-1), output_shapes=one)
    if source.repeats >= 0:
        whole = len(source.components[0]) * source.repeats // source.size
        dataset = stage("TakeDataset", "take", dataset, np.int64(whole), output_shapes=one)
    shapes = [(cores, *(s or ())) for s in one]
    return stage("BatchDatasetV2", "of_a_step", dataset, np.int64(cores), np.bool_(True), output_shapes=shapes,
                 parallel_copy=False).node  # fmt: skip
