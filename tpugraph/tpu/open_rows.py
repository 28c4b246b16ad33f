"""Tensors with an open number of rows on their way to the device: padded to their bound, with their number of rows beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor, attrs

_INT32 = attrs.dtype("int32")


def open_index(crossing: list[Tensor], tensor: Tensor) -> int:
    """The place of a tensor among those with an open number of rows."""
    return [t for t in crossing if not is_static(t.shape)].index(tensor)


def pad_open(graph: Graph, crossing: list[Tensor]) -> list[Tensor]:
    """The tensors to send: open ones padded to their bound, then the number of rows of each open one."""
    sent, counts = [], []
    for tensor in crossing:
        if is_static(tensor.shape):
            sent.append(tensor)
            continue
        padded, count = _pad(graph, tensor)
        sent.append(padded)
        counts.append(count)
    return sent + counts


def _host(
    graph: Graph,
    op: str,
    name: str,
    inputs: list[Tensor],
    attributes: dict[str, Any],
    kind: attrs.DType,
    shape: attrs.Shape,
    source: Node,
) -> Tensor:
    return graph.add(
        op,
        f"{source.name}/{name}",
        inputs,
        attrs=attributes,
        device=HOST_DEVICE,
        outputs=[(kind, shape)],
        source=source,
    ).out()


def _const(graph: Graph, name: str, value: Any, source: Node) -> Tensor:
    array = np.asarray(value, "int32")
    return _host(graph, "Const", name, [], {"dtype": _INT32, "value": array}, _INT32, array.shape, source)


def _pad(graph: Graph, tensor: Tensor) -> tuple[Tensor, Tensor]:
    source, bound = tensor.node, bounded_shape(tensor)
    rank = len(bound or ())
    shape = _host(
        graph, "Shape", "infeed/shape", [tensor], {"T": tensor.dtype, "out_type": _INT32}, _INT32, (rank,), source
    )
    target = _const(graph, "infeed/bound", bound, source)
    missing = _host(graph, "Sub", "infeed/missing", [target, shape], {"T": _INT32}, _INT32, (rank,), source)
    zeros = _const(graph, "infeed/zeros", np.zeros(rank), source)
    padding = _host(
        graph, "Pack", "infeed/padding", [zeros, missing], {"N": 2, "T": _INT32, "axis": 1}, _INT32, (rank, 2), source
    )
    padded = _host(
        graph,
        "Pad",
        "infeed/padded",
        [tensor, padding],
        {"T": tensor.dtype, "Tpaddings": _INT32},
        tensor.dtype,
        bound,
        source,
    )
    ends = [_const(graph, f"infeed/{n}", [v], source) for n, v in (("b", 0), ("e", 1), ("s", 1))]
    return padded, _host(
        graph, "StridedSlice", "infeed/rows", [shape, *ends], attrs.first_element(), _INT32, (), source
    )


def open_again(graph: Graph, arrived: Tensor, count: Tensor, original: Tensor) -> Tensor:
    """On the device: the arrived tensor with its true number of rows."""
    source = original.node
    axis = graph.add(
        "Const",
        f"{source.name}/axis",
        source=source,
        outputs=[(_INT32, ())],
        attrs={"dtype": _INT32, "value": np.int32(0), CLUSTER_ATTR: CLUSTER},
    )
    return graph.add(
        "XlaSetDynamicDimensionSize",
        f"{source.name}/dynamic",
        [arrived, axis.out(), count],
        attrs={"T": arrived.dtype, CLUSTER_ATTR: CLUSTER},
        outputs=[(original.dtype, original.shape)],
        source=source,
    ).out()
