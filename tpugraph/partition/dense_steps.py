"""Updates of rows of a variable as updates of the whole variable, which leave the other rows as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Graph, Node, Output, Tensor, attrs
from tpugraph.ir.attrs import DType

_INT32, _BOOL = attrs.dtype("int32"), attrs.dtype("bool")

ALL_DENSE = {
    "ResourceScatterAdd": "AssignAddVariableOp",
    "ResourceScatterSub": "AssignSubVariableOp",
    **ops.DENSE_STEPS,
}
"""The dense update that does to the rows it is given what one of rows does."""

DENSE = {op: dense for op, dense in ALL_DENSE.items() if ops.WRITES[op].additive}
"""Those that leave rows of zeros as they are."""


def added_up(graph: Graph, name: str, rows: Tensor, numbers: Tensor, shape: tuple[int, ...], *, source: Node,
             controls: Sequence[Node] = ()) -> Tensor:  # fmt: skip
    """Rows added up by their number, in a tensor of the variable's shape.

    Args:
        graph: the graph.
        name: the scope of the nodes that are made.
        rows: the rows, [n, ...].
        numbers: which row of the variable each is, int32 or int64 [n].
        shape: the shape of the variable.
        source: the node for which they are made.
        controls: what the number of rows waits for, so that it is in the loop or branch of the update.
    """
    count = graph.add("Const", f"{name}/rows", controls=controls, source=source, outputs=[(_INT32, ())],
                      attrs={"dtype": _INT32, "value": np.asarray(shape[0], "int32"), CLUSTER_ATTR: CLUSTER})  # fmt: skip
    kinds: dict[str, DType | str] = {"T": rows.dtype, "Tindices": numbers.dtype, "Tnumsegments": _INT32}
    return graph.add("UnsortedSegmentSum", f"{name}/dense", [rows, numbers, count.out()], source=source,
                     attrs={**kinds, CLUSTER_ATTR: CLUSTER}, outputs=[(rows.dtype, shape)]).out()  # fmt: skip


def make_dense(graph: Graph, step: Node, value: Tensor, numbers: Tensor, shape: tuple[int, ...]) -> None:
    """Let an update of rows be the dense one of the whole variable.

    Args:
        graph: the graph.
        step: the update.
        value: the gradient in the variable's shape.
        numbers: which rows of the variable have a gradient; an optimizer that moves rows of zeros moves no other ones.
        shape: the shape of the variables.
    """
    fact, dense = ops.WRITES[step.op], ALL_DENSE[step.op]
    inputs = [value if i == fact.value else t for i, t in enumerate(step.inputs) if i != fact.rows]
    if fact.kind == "scatter":
        graph.retype(step, dense, inputs=inputs, attrs={"dtype": value.dtype})
        return
    kept = {name: step.attr(name) for name in ops.attr_names(dense) if step.has_attr(name)}
    if step.op not in DENSE:
        _keep_untouched(graph, step, _touched(graph, step, numbers, shape), value.dtype, shape)
    graph.retype(step, dense, inputs=inputs, attrs=kept)


def _touched(graph: Graph, step: Node, numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Which rows of the variable have a gradient, bool with a dimension for each of the variable's."""
    count = numbers.shape
    small = numbers
    if numbers.dtype != _INT32:
        small = _add(graph, step, "Cast", [numbers], (_INT32, count), SrcT=numbers.dtype, DstT=_INT32, Truncate=False)
    ones = _add(graph, step, "OnesLike", [small], (_INT32, count), T=_INT32)
    total = added_up(graph, f"{step.name}/touched", ones, numbers, shape[:1], source=step, controls=[numbers.node])
    zero, deep = (_const(graph, step, value, numbers.node) for value in (np.int32(0), [-1, *[1] * (len(shape) - 1)]))
    found = _add(graph, step, "Greater", [total, zero], (_BOOL, shape[:1]), T=_INT32)
    return _add(
        graph, step, "Reshape", [found, deep], (_BOOL, (shape[0], *[1] * (len(shape) - 1))), T=_BOOL, Tshape=_INT32
    )


def _keep_untouched(graph: Graph, step: Node, touched: Tensor, kind: DType, shape: tuple[int, ...]) -> None:
    """Give the rows without a gradient, of the variable and of the optimizer's own, what they held before the step."""
    waiting, assigned = step.control_uses(), []
    for index in ops.WRITES[step.op].variables:
        handle = step.inputs[index]
        before = _add(graph, step, "ReadVariableOp", [handle], (kind, shape), dtype=kind)
        graph.set_controls(before.node, step.controls)
        graph.add_control(step, before.node)
        after = _add(graph, step, "ReadVariableOp", [handle], (kind, shape), dtype=kind)
        graph.add_control(after.node, step)
        chosen = _add(graph, step, "SelectV2", [touched, after, before], (kind, shape), T=kind)
        attributes = {"dtype": kind, CLUSTER_ATTR: CLUSTER}
        assigned.append(graph.add("AssignVariableOp", f"{step.name}/touched", [handle, chosen], attrs=attributes, outputs=[],
                                  source=step))  # fmt: skip
    graph.swap_controls(waiting, lambda control: (*assigned, step) if control is step else (control,))


def _const(graph: Graph, step: Node, value: Any, beside: Node) -> Tensor:
    array = np.asarray(value, np.int32)
    made = _add(graph, step, "Const", [], (_INT32, array.shape), dtype=_INT32, value=array)
    graph.add_control(made.node, beside)
    return made


def _add(graph: Graph, step: Node, op: str, inputs: Sequence[Tensor], output: Output, **kinds: Any) -> Tensor:
    marked = {**kinds, CLUSTER_ATTR: CLUSTER}
    return graph.add(op, f"{step.name}/touched", inputs, attrs=marked, outputs=[output], source=step).out()
