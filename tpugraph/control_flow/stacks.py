"""Prepares the stacks of loop gradients for XLA, which needs their dtype and shape, and the sizes kept on them, at compile time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, shapes
from tpugraph.analysis.loop_shapes import within_loops
from tpugraph.analysis.values import known_value
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType, Shape
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import reached

_PUSHES = frozenset(op for op in ops.STACKS & ops.CONTENTS.keys() if ops.CONTENTS[op].puts is not None)
_POPS = frozenset(op for op in ops.STACKS & ops.CONTENTS.keys() if ops.CONTENTS[op].takes is not None)
_INT32 = attrs.dtype("int32")
_HANDS_ON = ops.IDENTITIES | ops.CONTROL_FLOW - ops.LOOP_COND


def replace_known_stacks(graph: Graph) -> int:
    """Replace stacks by constants where every push has the same known integers; returns how many.

    The gradient of a loop pops shapes, which XLA needs as constants, and XLA does not propagate constants through a stack.
    """
    stacks = graph.of_type("StackV2")
    if stacks and any(node.outputs is None for node in graph):
        shapes.infer(graph)
    return sum(_replace_known(graph, stack) for stack in stacks)


def _replace_known(graph: Graph, stack: Node) -> bool:
    handles = reached((stack,), lambda node: (use.node for use in node.uses() if use.node.op in _HANDS_ON))
    users = dict.fromkeys(use.node for node in handles for use in node.uses() if use.node not in handles)
    held = _held([node.inputs[1] for node in users if node.op in _PUSHES])
    single = all(isinstance(node.attr("T"), DType) for node in handles if node is not stack)
    if held is None or not single or any(node.op not in _PUSHES | _POPS for node in users):
        return False
    for node in users:
        if node.op in _PUSHES:
            graph.retype(node, "Identity", inputs=node.inputs[1:], attrs={"T": node.attr("T")})
            continue
        kind = node.attr("elem_type")
        make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
        here = make.add(
            "Identity", [node.inputs[0]], (), name="here", T=_INT32
        ).node  # in the loop or branch of the pop
        value = np.asarray(held, kind.name)
        graph.retype(node, "Const", inputs=[], attrs={"dtype": kind, "value": value}, outputs=[(kind, value.shape)])
        graph.add_control(node, here)
    graph.add_control(stack, stack.inputs[0].node)  # which puts it into the loop
    graph.retype(stack, "Const", inputs=[], attrs={"dtype": _INT32, "value": np.int32(0)}, outputs=[(_INT32, ())])
    for node in handles:
        if node is not stack:
            graph.set_attr(node, "T", _INT32)
            graph.set_outputs(node, [(_INT32, ()) for _ in node.outputs or ()])
    return True


def _held(pushed: Sequence[Tensor]) -> np.ndarray[Any, Any] | None:
    """The integers common to all pushes; None where they are unknown or differ."""
    values = [known_value(tensor) for tensor in pushed]
    first = values[0] if values else None
    if first is None or first.dtype.kind not in "iu":
        return None
    return first if all(value is not None and np.array_equal(value, first) for value in values) else None


def begin_stacks(graph: Graph) -> int:
    """Push zeros to each stack and pop them first, in graphs with conditionals; returns the number of stacks.

    XLA infers dtype and shape from the first push, and accepts no stack without them in a conditional. Stacks with elements of
    unknown shape stay unchanged.
    """
    stacks = graph.of_type("StackV2")
    if not stacks or all(switch.inputs[1].node.op in ops.LOOP_COND for switch in graph.of_type(*ops.SWITCH)):
        return 0
    known = within_loops(graph)
    return sum(_begin(graph, stack, known) for stack in stacks)


def _begin(graph: Graph, stack: Node, known: Mapping[str, list[Shape]]) -> bool:
    followers = graph.descendants([stack], data_only=True)
    push = next((node for node in followers if node.op in _PUSHES), None)
    if push is None:
        return False
    kind, shape = push.attr("T"), known[push.inputs[1].node.name][push.inputs[1].port]
    if shape is None or None in shape:
        return False
    readers = stack.uses()
    make = Builder(graph, stack.name, marks={CLUSTER_ATTR: CLUSTER}, source=stack)
    zero = make.constant(np.zeros((), kind.name), kind, name="zero", controls=[stack])
    dims = make.constant(np.asarray(shape, np.int32), name="dims", controls=[stack])
    first = make.add("Fill", [dims, zero], shape, name="first")
    pushed = make.add("StackPushV2", [stack.out(), first], shape, name="push")
    popped = make.add("StackPopV2", [stack.out()], shape, name="pop", controls=[pushed.node], elem_type=kind)
    ready = make.add("Identity", [stack.out()], (2,), name="ready", controls=[popped.node], T=DType("resource"))
    for use in readers:
        graph.set_input(use.node, use.index, ready)
    return True
