"""Updates of rows of a variable as updates of the whole variable, which leave the other rows as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder

_INT32 = attrs.dtype("int32")

DENSE = {op: dense for op, dense in ops.DENSE_WRITES.items() if ops.WRITES[op].additive}
"""Dense writes that leave rows of zeros as they are."""


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
    make = Builder(graph, name, marks={CLUSTER_ATTR: CLUSTER}, source=source)
    count = make.constant(np.asarray(shape[0], "int32"), name="rows", controls=controls)
    return make.add("UnsortedSegmentSum", [rows, numbers, count], shape, name="dense")


def make_dense(graph: Graph, step: Node, value: Tensor, numbers: Tensor, shape: tuple[int, ...]) -> None:
    """Let an update of rows be the dense one of the whole variable.

    Args:
        graph: the graph.
        step: the update.
        value: the gradient in the variable's shape.
        numbers: which rows of the variable have a gradient; an optimizer that moves rows of zeros moves no other ones.
        shape: the shape of the variables.
    """
    fact, dense = ops.WRITES[step.op], ops.DENSE_WRITES[step.op]
    inputs = [value if i == fact.value else t for i, t in enumerate(step.inputs) if i != fact.rows]
    if fact.kind == "scatter":
        graph.retype(step, dense, inputs=inputs, attrs={"dtype": value.dtype})
        return
    kept = {name: step.attr(name) for name in ops.attr_names(dense) if step.has_attr(name)}
    if not fact.additive:
        _keep_untouched(graph, step, _touched(graph, step, numbers, shape), value.dtype, shape)
    graph.retype(step, dense, inputs=inputs, attrs=kept)


def _touched(graph: Graph, step: Node, numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Which rows of the variable have a gradient, bool with a dimension for each of the variable's."""
    make, count = _maker(graph, step), numbers.shape
    small = numbers if numbers.dtype == _INT32 else make.cast(numbers, _INT32)
    ones = make.add("OnesLike", [small], count)
    total = added_up(graph, f"{step.name}/touched", ones, numbers, shape[:1], source=step, controls=[numbers.node])
    zero = make.constant(np.int32(0), _INT32, controls=[numbers.node])
    found = make.add("Greater", [total, zero], shape[:1])
    wide = (shape[0], *[1] * (len(shape) - 1))
    target = make.constant([-1, *wide[1:]], _INT32, controls=[numbers.node])
    return make.add("Reshape", [found, target], wide)


def _keep_untouched(graph: Graph, step: Node, touched: Tensor, kind: DType, shape: tuple[int, ...]) -> None:
    """Give the rows without a gradient, of the variable and of the optimizer's own, what they held before the step."""
    make, waiting, assigned = _maker(graph, step), step.control_uses(), []
    for index in ops.WRITES[step.op].variables:
        handle = step.inputs[index]
        before = make.add("ReadVariableOp", [handle], shape, dtype=kind, controls=step.controls)
        graph.add_control(step, before.node)
        after = make.add("ReadVariableOp", [handle], shape, dtype=kind, controls=[step])
        chosen = make.add("SelectV2", [touched, after, before], shape)
        assigned.append(make.node("AssignVariableOp", [handle, chosen]))
    graph.swap_controls(waiting, lambda control: (*assigned, step) if control is step else (control,))


def _maker(graph: Graph, step: Node) -> Builder:
    return Builder(graph, f"{step.name}/touched", marks={CLUSTER_ATTR: CLUSTER}, source=step)
