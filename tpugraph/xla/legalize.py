"""Ops for which TensorFlow's bridge to XLA starts an MLIR pipeline each, or has no kernel, put as ops that it has plain kernels for.

The pipeline takes some 11 ms of CPU time for a node, where the plain kernels take 0.3: for a graph of ten thousand nodes that
is most of the lowering. What XLA computes stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.constant_values import constant_at
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder

_INT32, _BOOL = attrs.dtype("int32"), attrs.dtype("bool")


def make_quick(graph: Graph) -> None:
    """Replace Relu, ReluGrad, BiasAddGrad and ResourceGatherNd in a cluster; a BiasAddGrad of unknown rank stays."""
    for node in graph.of_type(*_REWRITES):
        _REWRITES[node.op](graph, node)


def reduce_over_all(graph: Graph, node: Node, cores: int, keys: dict[Tensor, list[Tensor]]) -> bool:
    """Turn a CrossReplicaSum over all cores into a CollectiveReduceV2, which XLA has a plain kernel for.

    Args:
        graph: the graph.
        node: the sum.
        cores: the number of cores.
        keys: by the groups of sums, what the op is told of them: its size, and the keys of the group and the instance, which
            XLA has no use for, as all cores run one program. What is made for this sum is added.

    Returns:
        False where the sum is over groups of cores, or of a dtype that the op does not take: it stays as it is.
    """
    value, groups = node.inputs
    members = constant_at(groups)
    whole = members is not None and len(members) == 1 and sorted(members.ravel().tolist()) == list(range(cores))
    if node.attr("T").name not in _COLLECTIVE or not whole:
        return False
    if groups not in keys:
        keys[groups] = [_constant(graph, node, np.asarray(key, np.int32), groups) for key in (cores, 1, 1)]
    kinds = {"T": node.attr("T"), "merge_op": "Add", "final_op": "Id"}
    graph.retype(node, "CollectiveReduceV2", inputs=[value, *keys[groups]], attrs=kinds)
    return True


_COLLECTIVE = frozenset({"float32", "int32"})


def _relu(graph: Graph, node: Node) -> None:
    """max(x, 0)."""
    x = node.inputs[0]
    graph.retype(node, "Maximum", inputs=[x, _zero(graph, node, x)], attrs={"T": x.dtype})


def _relu_grad(graph: Graph, node: Node) -> None:
    """The gradient where the features are above 0, else 0."""
    gradient, features = node.inputs
    above = _maker(graph, node).add("Greater", [features, _zero(graph, node, features)], features.shape, name="quick")
    inputs = [above, gradient, _zero(graph, node, gradient)]
    graph.retype(node, "SelectV2", inputs=inputs, attrs={"T": gradient.dtype})


def _bias_add_grad(graph: Graph, node: Node) -> None:
    """The sum over all dimensions but that of the channels."""
    gradient = node.inputs[0]
    rank = None if gradient.shape is None else len(gradient.shape)
    if rank is None:
        return
    channels = 1 if node.attr("data_format", "NHWC") == "NCHW" else rank - 1
    axes = np.asarray([axis for axis in range(rank) if axis != channels], np.int32)
    inputs = [gradient, _constant(graph, node, axes, gradient)]
    kinds = {"T": gradient.dtype, "Tidx": _INT32, "keep_dims": False}
    graph.retype(node, "Sum", inputs=inputs, attrs=kinds)


def _gather_nd(graph: Graph, node: Node) -> None:
    """GatherNd of what the variable holds at that point."""
    handle, indices = node.inputs
    kind = node.attr("dtype")
    read = _maker(graph, node).add("ReadVariableOp", [handle], name="read", controls=node.controls, dtype=kind)
    attributes = {"Tparams": kind, "Tindices": indices.dtype}
    graph.retype(node, "GatherNd", inputs=[read, indices], attrs=attributes)


_REWRITES: dict[str, Callable[[Graph, Node], None]] = {
    "Relu": _relu,
    "ReluGrad": _relu_grad,
    "BiasAddGrad": _bias_add_grad,
    "ResourceGatherNd": _gather_nd,
}


def _zero(graph: Graph, node: Node, like: Tensor) -> Tensor:
    return _constant(graph, node, np.zeros((), tf.as_dtype(like.dtype.name).as_numpy_dtype), like)


def _constant(graph: Graph, node: Node, value: Any, beside: Tensor) -> Tensor:
    """A constant in the frame of a tensor."""
    kind = attrs.dtype(value.dtype.name)
    encoded = _encoded(kind.name, value.shape, value.tobytes())
    return _maker(graph, node).add(
        "Const", [], value.shape, name="quick", controls=[beside.node], dtype=kind, value=encoded
    )


@cache
def _encoded(kind: str, shape: tuple[int, ...], content: bytes) -> Any:
    """The attribute of a constant: there are many nodes and few values, and TensorFlow takes its time to encode one."""
    return attrs.encode(np.frombuffer(content, tf.as_dtype(kind).as_numpy_dtype).reshape(shape))


def _maker(graph: Graph, node: Node) -> Builder:
    return Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
