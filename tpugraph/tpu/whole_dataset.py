"""A dataset behind whose end empty batches follow, so that no step waits for one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import batched_input
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.tpu.padding import NAME, const

_INT64 = attrs.dtype("int64")
_VARIANT = attrs.dtype("variant")


def endless(chain: list[Node]) -> bool:
    """Whether the dataset repeats its elements for ever."""
    counts = [node.inputs[1].node for node in chain if node.op in ops.REPEAT_DATASETS]
    return any(count.op in ops.CONSTANTS and (count.attr("value") < 0).any() for count in counts)


def go_on_empty(graph: Graph, iterator: Node, take: Node, dataset: Node, open_shapes: list[Any]) -> None:
    """Behind the dataset come batches without rows, for ever."""
    kinds = iterator.attr("output_types")
    parts = [
        _empty_sparse(graph, take, i)
        if batched_input.is_sparse(take, i)
        else const(graph, f"empty/{i}", np.zeros([0, *(d or 0 for d in shape[1:])], _numpy(kind)), kind)
        for i, (kind, shape) in enumerate(zip(kinds, open_shapes, strict=True))
    ]
    empty = [t.shape for t in parts]
    common = {"output_types": kinds, "output_shapes": empty}
    none = _dataset_node(graph, "TensorDataset", "empty", parts, {"Toutput_types": kinds, "output_shapes": empty})
    for_ever = const(graph, "for_ever", np.asarray(-1, "int64"))
    ever = _dataset_node(graph, "RepeatDataset", "empty/repeat", [none, for_ever], common)
    shapes_after = list(open_shapes)
    attributes = {"output_types": kinds, "output_shapes": shapes_after}
    both = _dataset_node(graph, "ConcatenateDataset", "dataset", [dataset.out(), ever], attributes)
    maker = next(use.node for use in iterator.uses() if use.node.op in ops.MAKE_ITERATOR)
    graph.set_input(maker, 0, both)


def _empty_sparse(graph: Graph, take: Node, index: int) -> Tensor:
    """A sparse tensor without rows, wrapped as the dataset wraps those of the batches."""
    unwrapped = next((use.node for use in take.uses(index)), None)
    rank, kind = (2, _INT64) if unwrapped is None else (batched_input.rank_of(unwrapped), unwrapped.attr("dtype"))
    none = [np.zeros((0, rank), "int64"), np.zeros(0, _numpy(kind)), np.zeros(rank, "int64")]
    parts = [const(graph, f"empty/{index}/{i}", part, kind if i == 1 else _INT64) for i, part in enumerate(none)]
    return graph.add("SerializeSparse", f"{NAME}/empty/{index}", parts, attrs={"T": kind, "out_type": _VARIANT},
                     outputs=[(_VARIANT, (3,))]).out()  # fmt: skip


def _numpy(kind: attrs.DType) -> Any:
    return object if kind.name == "string" else kind.name


def _dataset_node(graph: Graph, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    return graph.add(op, f"{NAME}/{name}", inputs, attrs=attributes, outputs=[(_VARIANT, ())]).out()
