"""Tensors with an open number of rows on their way to the device: padded to their bound, with their number of rows beside them."""

from __future__ import annotations

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, HOST_DEVICE
from tpugraph.analysis.bounds import bounded_shape
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Tensor, attrs
from tpugraph.ir.builder import Builder

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


def _pad(graph: Graph, tensor: Tensor) -> tuple[Tensor, Tensor]:
    source, bound = tensor.node, bounded_shape(tensor)
    rank = len(bound or ())
    make = Builder(graph, f"{source.name}/infeed", device=HOST_DEVICE, source=source)
    shape = make.add("Shape", [tensor], (rank,), name="shape", out_type=_INT32)
    target = make.constant(np.asarray(bound, "int32"), name="bound")
    missing = make.add("Sub", [target, shape], (rank,), name="missing")
    zeros = make.constant(np.zeros(rank, "int32"), name="zeros")
    padding = make.add("Pack", [zeros, missing], (rank, 2), name="padding", axis=1)
    padded = make.add("Pad", [tensor, padding], bound, name="padded")
    ends = [make.constant(np.asarray([v], "int32"), name=n) for n, v in (("b", 0), ("e", 1), ("s", 1))]
    return padded, make.add("StridedSlice", [shape, *ends], (), name="rows", **attrs.first_element())


def open_again(graph: Graph, arrived: Tensor, count: Tensor, original: Tensor) -> Tensor:
    """On the device: the arrived tensor with its true number of rows."""
    source = original.node
    make = Builder(graph, source.name, marks={CLUSTER_ATTR: CLUSTER}, source=source)
    axis = make.constant(np.int32(0), name="axis")
    return make.add("XlaSetDynamicDimensionSize", [arrived, axis, count], original.shape, name="dynamic")
