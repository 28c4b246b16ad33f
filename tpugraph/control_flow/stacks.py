"""The stacks of loop gradients as XLA takes them into conditionals: it must know what a stack holds before that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.loop_shapes import within_loops
from tpugraph.ir import Graph, Node, attrs
from tpugraph.ir.attrs import Shape

_INT32, _RESOURCE = attrs.dtype("int32"), attrs.dtype("resource")
_ON_DEVICE = {CLUSTER_ATTR: CLUSTER}


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
    push = next((node for node in followers if node.op == "StackPushV2"), None)
    if push is None:
        return False
    kind, shape = push.attr("T"), known[push.inputs[1].node.name][push.inputs[1].port]
    if shape is None or None in shape:
        return False
    readers = stack.uses()
    zero = graph.add("Const", f"{stack.name}/zero", attrs={"dtype": kind, "value": np.zeros((), kind.name), **_ON_DEVICE},
                     controls=[stack], outputs=[(kind, ())], source=stack)  # fmt: skip
    dims = graph.add("Const", f"{stack.name}/dims", attrs={"dtype": _INT32, "value": np.asarray(shape, np.int32), **_ON_DEVICE},
                     controls=[stack], outputs=[(_INT32, (len(shape),))], source=stack)  # fmt: skip
    first = graph.add("Fill", f"{stack.name}/first", [dims.out(), zero.out()], outputs=[(kind, shape)], source=stack,
                      attrs={"T": kind, "index_type": _INT32, **_ON_DEVICE})  # fmt: skip
    pushed = graph.add("StackPushV2", f"{stack.name}/push", [stack.out(), first.out()], outputs=[(kind, shape)],
                       attrs={"T": kind, **_ON_DEVICE}, source=stack)  # fmt: skip
    popped = graph.add("StackPopV2", f"{stack.name}/pop", [stack.out()], outputs=[(kind, shape)], controls=[pushed],
                       attrs={"elem_type": kind, **_ON_DEVICE}, source=stack)  # fmt: skip
    ready = graph.add("Identity", f"{stack.name}/ready", [stack.out()], outputs=[(_RESOURCE, ())], controls=[popped],
                      attrs={"T": _RESOURCE, **_ON_DEVICE}, source=stack)  # fmt: skip
    for use in readers:
        graph.set_input(use.node, use.index, ready.out())
    return True
