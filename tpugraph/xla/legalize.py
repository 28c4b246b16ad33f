"""Legalizes the cluster for TensorFlow's bridge: rewrites ops without a kernel there, or with a slow one.

Slow kernels start an MLIR pipeline per node, 11 ms of CPU time where a plain kernel takes 0.3. XLA computes the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.values import constant_at
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.pattern import Match, Rule, anything, apply, op, when
from tpugraph.ir.walks import source_of
from tpugraph.rewrite.row_updates import added_up, make_rows_dense, rows_of
from tpugraph.rewrite.row_updates import make_dense as make_step_dense
from tpugraph.xla.bridge import Refused
from tpugraph.xla.cut_cluster import Cluster

_INT32, _FLOAT32 = attrs.dtype("int32"), attrs.dtype("float32")


def make_quick(graph: Graph) -> None:
    """Replace Relu, ReluGrad, BiasAddGrad and ResourceGatherNd by ops with plain kernels."""
    apply(graph, _QUICK)


REDUCED = frozenset({"float16", "bfloat16", "float32", "int32", "uint32"})
"""The dtypes of the bridge's all-reduce; halves are reduced as float32."""

_HALVES = frozenset({"float16", "bfloat16"})
_COLLECTIVE = frozenset({"float32", "int32"})


def reduce_over_all(graph: Graph, cores: int) -> int:
    """Replace each CrossReplicaSum by an all-reduce; returns their number."""
    nodes = graph.of_type("CrossReplicaSum")
    keys: dict[Tensor, list[Tensor]] = {}
    for node in nodes:
        kind = node.attr("T")
        if cores == 1:
            graph.retype(node, "Identity", inputs=node.inputs[:1], attrs={"T": kind})
            continue
        if kind.name not in REDUCED:
            raise Refused(
                f"XLA has no all-reduce of {kind}", "dtype",
                node=node.name, origin=graph.source, fix=f"cast it to one of {', '.join(sorted(REDUCED))}",
            )  # fmt: skip
        total = _widened(graph, node) if kind.name in _HALVES else node
        if not _to_collective(graph, total, cores, keys):
            attributes = {"T": total.attr("T"), "reduce_op": "Add", "mode": "CrossReplica"}
            graph.retype(total, "XlaAllReduce", attrs=attributes)
    return len(nodes) if cores > 1 else 0


def _to_collective(graph: Graph, node: Node, cores: int, keys: dict[Tensor, list[Tensor]]) -> bool:
    """Replace a sum over all cores by a CollectiveReduceV2, which has a plain kernel; False for groups and other dtypes.

    ``keys`` holds the size and the two keys of the op by the groups of the sum; XLA ignores the keys.
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


def _widened(graph: Graph, node: Node) -> Node:
    """Sum halves as float32 and cast the sum back; returns the sum.

    The bridge sums halves as float32 anyway, and then writes an all-reduce of two dtypes, which no compiler accepts.
    """
    value, groups = node.inputs
    half, output = node.attr("T"), (_FLOAT32, value.shape)
    wide = graph.add("Cast", f"{node.name}/wide", [value], outputs=[output], source=node,
                     attrs={"SrcT": half, "DstT": _FLOAT32, "Truncate": False, CLUSTER_ATTR: CLUSTER})  # fmt: skip
    total = graph.add("CrossReplicaSum", f"{node.name}/sum", [wide.out(), groups], outputs=[output], source=node,
                      attrs={"T": _FLOAT32, CLUSTER_ATTR: CLUSTER})  # fmt: skip
    graph.retype(node, "Cast", inputs=[total.out()], attrs={"SrcT": _FLOAT32, "DstT": half, "Truncate": False})
    return total


def _relu(graph: Graph, node: Node, found: Match) -> None:
    x = found["x"]
    graph.retype(node, "Maximum", inputs=[x, _zero(graph, node, x)], attrs={"T": x.dtype})


def _relu_grad(graph: Graph, node: Node, found: Match) -> None:
    gradient, features = found["gradient"], found["features"]
    above = _maker(graph, node).add("Greater", [features, _zero(graph, node, features)], features.shape, name="quick")
    inputs = [above, gradient, _zero(graph, node, gradient)]
    graph.retype(node, "SelectV2", inputs=inputs, attrs={"T": gradient.dtype})


def _bias_add_grad(graph: Graph, node: Node, found: Match) -> None:
    gradient = found["gradient"]
    rank = len(gradient.shape or ())
    channels = 1 if node.attr("data_format", "NHWC") == "NCHW" else rank - 1
    axes = np.asarray([axis for axis in range(rank) if axis != channels], np.int32)
    inputs = [gradient, _constant(graph, node, axes, gradient)]
    kinds = {"T": gradient.dtype, "Tidx": _INT32, "keep_dims": False}
    graph.retype(node, "Sum", inputs=inputs, attrs=kinds)


def _gather_nd(graph: Graph, node: Node, found: Match) -> None:
    kind = node.attr("dtype")
    read = _maker(graph, node).add("ReadVariableOp", [found["handle"]], name="read", controls=node.controls, dtype=kind)
    attributes = {"Tparams": kind, "Tindices": found["indices"].dtype}
    graph.retype(node, "GatherNd", inputs=[read, found["indices"]], attrs=attributes)


_RANKED = when(anything("gradient"), lambda tensor: tensor.shape is not None, "tensor of known rank")
_QUICK = [
    Rule(op("Relu", anything("x")), _relu),
    Rule(op("ReluGrad", anything("gradient"), anything("features")), _relu_grad),
    Rule(op("BiasAddGrad", _RANKED), _bias_add_grad),
    Rule(op("ResourceGatherNd", anything("handle"), anything("indices")), _gather_nd),
]


def _zero(graph: Graph, node: Node, like: Tensor) -> Tensor:
    return _constant(graph, node, np.zeros((), tf.as_dtype(like.dtype.name).as_numpy_dtype), like)


def _constant(graph: Graph, node: Node, value: Any, beside: Tensor) -> Tensor:
    """A constant in the frame of a tensor."""
    kind = attrs.dtype(value.dtype.name)
    encoded = _encoded(kind.name, value.shape, value.tobytes())
    return _maker(graph, node).add(
        "Const", [], value.shape, name="quick", controls=[beside.node], dtype=kind, value=encoded
    )


@cache  # few distinct values, and a slow encoder
def _encoded(kind: str, shape: tuple[int, ...], content: bytes) -> Any:
    return attrs.encode(np.frombuffer(content, tf.as_dtype(kind).as_numpy_dtype).reshape(shape))


def _maker(graph: Graph, node: Node) -> Builder:
    return Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)


# --------------------------------------------------------------------------- sparse optimizer steps


def make_dense(found: Cluster, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    """Replace sparse optimizer steps, for which XLA has no kernel, by dense ones; returns their number.

    Where an optimizer changes a row even for a zero gradient (Momentum, Ftrl), rows without a gradient keep their value. ``shapes``
    has dtype and shape of each variable, by name.
    """
    graph, made = found.graph, 0

    def shape_of(step: Node) -> tuple[int, ...]:
        every = {shapes[_variable_of(step.inputs[i])][1] for i in ops.WRITES[step.op].variables}
        return every.pop() if len(every) == 1 else ()

    steps = [node for node in graph.of_type(*ops.DENSE_WRITES) if ops.WRITES[node.op].rows is not None]
    for rows in list(rows_of(steps, ops.DENSE_WRITES, shape_of)):
        if rows.unique is not None:
            make_rows_dense(graph, rows, in_loop=True)
            made += len(rows.steps)
    for node in graph.of_type(*ops.DENSE_STEPS):
        fact, shape = ops.WRITES[node.op], shapes[_variable_of(node.inputs[0])][1]
        assert fact.rows is not None  # a sparse step
        values, numbers = node.inputs[fact.value], node.inputs[fact.rows]
        total = added_up(graph, node.name, values, numbers, shape, source=node, controls=[numbers.node])
        make_step_dense(graph, node, total, numbers, shape)
        made += 1
    return made


def _variable_of(handle: Tensor) -> str:
    node = source_of(handle, ops.HANDLE_ALIASES).node
    return node.origin or node.name
