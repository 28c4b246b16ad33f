"""The stacks of loop gradients as XLA takes them into conditionals: it must know what a stack holds before that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.loop_shapes import within_loops
from tpugraph.ir import Graph, Node
from tpugraph.ir.attrs import DType, Shape
from tpugraph.ir.builder import Builder

_PUSHES = frozenset(op for op in ops.STACKS & ops.CONTENTS.keys() if ops.CONTENTS[op].puts is not None)


def begin_stacks(graph: Graph) -> int:
    """Push to each stack and pop again before anything else does, where there are conditionals; returns how many.

    XLA learns from the first push what a stack holds, and takes no stack into a conditional that it knows nothing of. A
    stack whose elements have an open shape stays as it is.

    Raises:
        GraphError: TensorFlow refuses the graph.
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
