"""Batches of data that the graph holds itself, made once instead of row by row in every step.

A pipeline ``from_tensor_slices(constants).repeat().batch(b)`` copies each row on its own, though its batches come round
again after ``lcm(rows, b)`` rows. Where one such round is small, the dataset is replaced by one whose elements are
whole batches, in the same order, and the cores' reads of one step become a single read.

The position that a checkpoint holds counts batches of one core, so it stays right on another number of cores. The rule
depends on nothing but the input: every pipeline of this form is rewritten, any other is left as it is.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from tpugraph import attrs, ops
from tpugraph.ir import Graph, Node
from tpugraph.shapes import is_static

MOST_BYTES = 16 * 2**20
"""The biggest round of batches that is held in memory."""

_INT64 = attrs.dtype("int64")
_BOOL = attrs.dtype("bool")
_VARIANT = attrs.dtype("variant")
_SAME = frozenset(
    {"PrefetchDataset", "ModelDataset", "OptimizeDataset", "OptimizeDatasetV2", "OptionsDataset", "MaxIntraOpParallelismDataset",
     "PrivateThreadPoolDataset", "AssertCardinalityDataset"}
)  # fmt: skip
"""Datasets that hand on the elements of another as they are."""


@dataclass(frozen=True)
class _Source:
    """Constant rows, repeated and batched."""

    components: list[np.ndarray]
    repeats: int  # -1: for ever
    size: int


def take_whole_batches(graph: Graph, takes: list[Node]) -> bool:
    """Rewrite the dataset that these reads of one step share, in order; returns whether that was possible."""
    iterators = {_iterator(take) for take in takes}
    iterator = iterators.pop()
    if iterators or iterator is None or not all(is_static(shape) for shape in takes[0].attr("output_shapes")):
        return False
    makers = [use.node for use in iterator.uses() if use.node.op in ops.MAKE_ITERATOR]
    if len(makers) != 1 or not _in_order(takes) or _other_reads(iterator, takes):
        return False
    source = _source(makers[0].inputs[0].node)
    if source is None:
        return False
    elements = _round(source)
    if elements is None:
        return False
    dataset = _dataset(graph, makers[0], elements, source, len(takes))
    graph.set_input(makers[0], 0, dataset.out())
    _read_once(graph, iterator, takes, [(len(takes), *e.shape[1:]) for e in elements])
    return True


def _iterator(take: Node) -> Node | None:
    node = take.inputs[0].node
    while node.op in ops.ENTER | ops.IDENTITIES:
        node = node.inputs[0].node
    return node if node.op in ops.ITERATORS else None


def _in_order(takes: list[Node]) -> bool:
    """Whether each read waits for the one before."""
    return all(before in after.controls for before, after in itertools.pairwise(takes))


def _other_reads(iterator: Node, takes: list[Node]) -> bool:
    stack = [iterator]
    while stack:
        for use in stack.pop().uses():
            if use.node.op in ops.GET_NEXT and use.node not in takes:
                return True
            if use.node.op in ops.ENTER | ops.IDENTITIES:
                stack.append(use.node)
    return False


# --------------------------------------------------------------------------- the dataset as it is


def _source(node: Node) -> _Source | None:
    while node.op in _SAME:
        node = node.inputs[0].node
    if node.op not in ("BatchDataset", "BatchDatasetV2"):
        return None
    size = _scalar(node.inputs[1].node)
    node = node.inputs[0].node
    repeats: int | None = 1
    if node.op == "RepeatDataset":
        repeats = _scalar(node.inputs[1].node)
        node = node.inputs[0].node
    if node.op != "TensorSliceDataset" or node.attr("is_files", False) or not size or repeats is None or repeats == 0:
        return None
    constants = [t.node for t in node.inputs]
    if any(constant.op != "Const" for constant in constants):
        return None
    components = [constant.attr("value") for constant in constants]
    if any(not array.shape or array.dtype == object for array in components) or not len(components[0]):
        return None
    return _Source(components, repeats, size)


def _scalar(node: Node) -> int | None:
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


def _read_once(graph: Graph, iterator: Node, takes: list[Node], shapes: list[attrs.Shape]) -> None:
    """Let the first read take the batches of all cores."""
    first, cores = takes[0], len(takes)
    graph.set_attr(iterator, "output_shapes", shapes)
    before = first.outputs or []
    pieces = []
    for port, (kind, shape) in enumerate(before):
        piece = graph.add("Unpack", f"{first.name}/core", [first.out(port)], attrs={"T": kind, "num": cores, "axis": 0},
                          outputs=[(kind, shape)] * cores, source=first)  # fmt: skip
        pieces.append(piece)
    for core, take in enumerate(takes):
        for port, piece in enumerate(pieces):
            graph.replace_uses(take.out(port), piece.out(core), where=lambda use: use.node not in pieces)
    for take in takes[1:]:
        graph.replace_control_uses(take, [first])
    graph.remove_all(takes[1:])
    graph.set_attr(first, "output_shapes", shapes)
    graph.set_outputs(first, [(kind, shape) for (kind, _), shape in zip(before, shapes, strict=True)])
