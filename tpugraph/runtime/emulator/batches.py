"""Batches of data that the graph holds itself, made once instead of row by row in every step.

A pipeline ``from_tensor_slices(constants).repeat().batch(b)`` copies each row on its own, though its batches come round
again after ``lcm(rows, b)`` rows. Where one such round is small, its batches are held, and the dataset gives their
numbers, in the same order: one gather takes the batches of all cores.

The rule depends on nothing but the input: every pipeline of this form is rewritten, any other is left as it is.
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

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")

MOST_BYTES = 16 * 2**20
"""The biggest round of batches that is held in memory."""


@dataclass(frozen=True)
class _Source:
    """Constant rows, repeated and batched."""

    components: list[np.ndarray]
    repeats: int  # -1: for ever
    size: int


def read_batches(graph: Graph, maker: Node, take: Node, cores: int) -> list[Tensor] | None:
    """Let an iterator give the numbers of the batches of a step; returns the batches of all cores, stacked, for each component.

    Args:
        graph: the graph.
        maker: what gives the iterator its dataset.
        take: the first core's read; what it returns becomes the read of all.
        cores: number of cores.
    """
    source = _source(maker.inputs[0].node)
    batches = None if source is None else _round(source)
    if source is None or batches is None:
        return None
    graph.set_input(maker, 0, _dataset(graph, maker, len(batches[0]), source, cores))
    numbers = read_numbers(graph, take, (cores,))
    return [gathered(graph, take, numbers, port, value) for port, value in enumerate(batches)]


# --------------------------------------------------------------------------- the dataset as it is


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
    if size is None or size < 1 or not repeats or found["slices"].node.attr("is_files", False):
        return None
    constants = [t.node for t in found["slices"].node.inputs]
    if any(constant.op not in ops.CONSTANTS for constant in constants):
        return None
    components = [constant.attr("value") for constant in constants]
    if any(not array.size or not array.shape or array.dtype == object for array in components):
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


def _dataset(graph: Graph, maker: Node, batches: int, source: _Source, cores: int) -> Tensor:
    """The numbers of the batches of a round, again and again, those of a step at a time."""
    make = Builder(graph, "tpugraph/batches", source=maker)

    def stage(op: str, name: str, dataset: Tensor, *more: np.generic, shape: attrs.Shape = (), **others: Any) -> Tensor:
        inputs = [dataset, *(make.constant(value, name="value") for value in more)]
        return make.add(op, inputs, (), name=name, output_types=[_INT64], output_shapes=[shape], metadata="", **others)

    numbers = Builder(graph, source=maker).add(
        "TensorSliceDataset", [make.constant(np.arange(batches), name="value")], (), name="tpugraph/batches",
        output_shapes=[()], is_files=False, metadata="", replicate_on_split=False,
    )  # fmt: skip
    dataset = stage("RepeatDataset", "repeat", numbers, np.int64(-1))
    if source.repeats >= 0:
        whole = len(source.components[0]) * source.repeats // source.size
        dataset = stage("TakeDataset", "take", dataset, np.int64(whole))
    return stage("BatchDatasetV2", "of_a_step", dataset, np.int64(cores), np.bool_(True), shape=(cores,),
                 parallel_copy=False)  # fmt: skip


# --------------------------------------------------------------------------- what is read by numbers


def read_numbers(graph: Graph, take: Node, shape: attrs.Shape) -> Node:
    """The read of the numbers of a step, int64 of this shape, where a core read its batch."""
    return graph.add("IteratorGetNext", f"{take.name}/numbers", [take.inputs[0]], controls=take.controls,
                     attrs={"output_types": [_INT64], "output_shapes": [shape]}, outputs=[(_INT64, shape)],
                     source=take)  # fmt: skip


def gathered(graph: Graph, take: Node, numbers: Node, port: int, value: np.ndarray) -> Tensor:
    """What the numbers of a step choose of a constant."""
    kind = take.output(port)[0]
    ends = []
    for array, of in ((value, kind), (np.zeros((), "int32"), _INT32)):
        held = graph.add("Const", "tpugraph/rows/held", attrs={"dtype": of, "value": array},
                         outputs=[(of, array.shape)], source=take)  # fmt: skip
        ends.append(_entered(graph, take, held))
    return graph.add("GatherV2", f"{take.name}/rows", [ends[0], numbers.out(), ends[1]],
                     attrs={"Tparams": kind, "Tindices": _INT64, "Taxis": _INT32, "batch_dims": 0},
                     outputs=[(kind, (*(numbers.out().shape or ()), *value.shape[1:]))], source=take).out()  # fmt: skip


def _entered(graph: Graph, take: Node, held: Node) -> Tensor:
    """A constant as the loop of the read sees it."""
    entry = take.inputs[0].node
    if entry.op not in ops.ENTER:
        return held.out()
    made = graph.clone_subgraph([entry], lambda name: f"{held.name}/Enter")[entry]
    kept = {key: value for key, value in made.raw_attrs.items() if key[0] != "_"}
    kind = {**kept, "T": held.attr("dtype")}
    graph.retype(made, entry.op, inputs=[held.out()], attrs=kind, outputs=[held.output(0)])
    return made.out()
