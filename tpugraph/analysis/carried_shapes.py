"""Shapes of what loops carry, in values and in TensorLists, where TensorFlow's own inference leaves them open."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.attrs import Shape
from tpugraph.ir.while_loops import carried

_HANDS_ON = ops.IDENTITIES | ops.SWITCH | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION
"""Ops whose output is the list that they are given; a Merge has several."""

_TAKES_OUT = {op: held.takes for op, held in ops.LIST_CONTENTS.items() if held.takes is not None}
"""Ops that take elements out of a list, and the output that has them."""


def tell(graph: Graph) -> int:
    """Say in ``_output_shapes`` what follows from the shapes that are known.

    A value that comes into a loop with the shape that it has at the end of an iteration has it in all of them. What is
    taken out of a list has the shape of what is put in, where that is one.

    Returns:
        How many nodes were told something new; the shapes of the graph are then to be inferred again.
    """
    told = {**_values(graph), **_elements(graph)}
    for tensor, shape in told.items():
        known = [held for _, held in tensor.node.outputs or ()]
        known[tensor.port] = shape
        graph.set_attr(tensor.node, "_output_shapes", known)
    return len(told)


def _values(graph: Graph) -> dict[Tensor, Shape]:
    found: dict[Tensor, Shape] = {}
    for merge in graph.of_type(*ops.MERGE):
        loop = carried(merge)
        if loop is None or shapes.is_static(merge.out().shape):
            continue
        shape = loop.initial.shape
        if shapes.is_static(shape) and loop.closing.out().shape == shape:
            found[merge.out()] = shape
    return found


def _elements(graph: Graph) -> dict[Tensor, Shape]:
    found: dict[Tensor, Shape] = {}
    for node in graph.of_type(*_TAKES_OUT):
        taken = node.out(_TAKES_OUT[node.op])
        shape = None if shapes.is_static(taken.shape) else _element(node.inputs[0])
        if shape is not None and ops.LIST_CONTENTS[node.op].stacked:
            number = int(node.attr("num_elements", -1))
            shape = (taken.shape[0] if taken.shape else number if number >= 0 else None, *shape)
        if shape is not None and shape != taken.shape:
            found[taken] = shape
    return found


def _element(source: Tensor) -> Shape:
    """The one shape of all that is put into a list on any way to ``source``, or None."""
    found: set[Shape] = set()
    seen: set[Node] = set()
    stack = [source.node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        held = ops.LIST_CONTENTS.get(node.op)
        if held is not None and held.shape is not None:
            size = node.inputs[held.shape].node
            if size.op in ops.CONSTANTS and size.attr("value").ndim and (size.attr("value") >= 0).all():
                found.add(tuple(int(d) for d in size.attr("value")))
        elif held is not None and held.puts is not None and held.stacked:
            whole = node.inputs[held.puts].shape
            found.add(whole[1:] if whole else None)
        elif held is not None:
            if held.puts is not None:
                found.add(node.inputs[held.puts].shape)
            stack.append(node.inputs[0].node)
        elif node.op in ops.MERGE:
            stack += [tensor.node for tensor in node.inputs]
        elif node.op in _HANDS_ON:
            stack.append(node.inputs[0].node)
        else:
            return None
    element = next(iter(found)) if len(found) == 1 else None
    return element if shapes.is_static(element) else None
