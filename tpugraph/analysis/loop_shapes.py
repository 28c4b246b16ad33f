"""Shapes of loop variables, TensorArrays and TensorLists that TensorFlow's own inference leaves unknown."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.values import integers
from tpugraph.ir import Graph, Node, Tensor, graphdef
from tpugraph.ir.attrs import Shape
from tpugraph.ir.loops import carried
from tpugraph.ir.walks import readers, source_of

_HANDS_ON = ops.IDENTITIES | ops.SWITCH | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION
"""Ops that forward a list; a Merge forwards one of several."""

_TAKES_OUT = {op: held.takes for op, held in ops.LIST_CONTENTS.items() if held.takes is not None}
"""Ops that read elements of a list, and their output with the element."""

_OF_ARRAYS = {op: held for op, held in ops.CONTENTS.items() if op not in ops.LIST_CONTENTS}
"""What ops do to TensorArrays and stacks, which are resources."""


def infer(graph: Graph) -> None:
    """Infer shapes, and put those that follow for loops and containers into ``_output_shapes``, to the fixpoint.

    A loop variable whose initial shape equals the one at the end of an iteration has it in all iterations. An element read
    from a list or array has the shape of the written ones, where that is unique. A table lookup has one value per key.
    """
    shapes.infer(graph)
    while told := {**_looked_up(graph), **_values(graph), **_elements(graph), **_of_arrays(graph)}:
        for tensor, shape in told.items():
            known = [held for _, held in tensor.node.outputs or ()]
            known[tensor.port] = shape
            graph.set_attr(tensor.node, "_output_shapes", known)
        shapes.infer(graph)


def _looked_up(graph: Graph) -> dict[Tensor, Shape]:
    found = {node.out(): node.inputs[1].shape for node in graph.of_type("LookupTableFindV2", "LookupTableFind")}
    return {tensor: shape for tensor, shape in found.items() if tensor.shape is None and shape is not None}


def _values(graph: Graph) -> dict[Tensor, Shape]:
    """Loop variables: the shape at the end of an iteration may depend on that at its beginning, so both are found together."""
    loops = filter(None, map(carried, graph.of_type(*ops.MERGE)))
    loose = [loop for loop in loops if not shapes.is_static(loop.merge.out().shape)]
    if all(loop.initial.shape is None for loop in loose):
        return {}
    known = within_loops(graph)
    told = {loop.merge.out(): known[loop.merge.name][0] for loop in loose}
    return {tensor: shape for tensor, shape in told.items() if shape is not None and shape != tensor.shape}


def _elements(graph: Graph) -> dict[Tensor, Shape]:
    found: dict[Tensor, Shape] = {}
    for node in graph.of_type(*_TAKES_OUT):
        taken = node.out(_TAKES_OUT[node.op])
        shape = None if shapes.is_static(taken.shape) else _element(node.inputs[0])
        if shape is not None and ops.LIST_CONTENTS[node.op].stacked:
            number = int(node.attr("num_elements", -1))
            length = None if number < 0 else number
            shape = (taken.shape[0] if taken.shape else length, *shape)
        if shape is not None and shape != taken.shape:
            found[taken] = shape
    return found


def _element(source: Tensor) -> Shape:
    """The unique shape of all elements written to a list on any path to ``source``, or None."""
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


def _of_arrays(graph: Graph) -> dict[Tensor, Shape]:
    """The shapes of elements that are read from TensorArrays."""
    found: dict[Tensor, Shape] = {}
    takes = [op for op, held in _OF_ARRAYS.items() if held.takes is not None]
    for node in graph.of_type(*takes):
        taken = node.out(_OF_ARRAYS[node.op].takes or 0)
        # a gradient has the shape of its value
        array = source_of(node.inputs[0], _HANDS_ON | ops.CONTAINER_GRADIENTS).node
        if shapes.is_static(taken.shape) or array.op not in ops.CONTAINERS:
            continue
        given = {shape for user in readers(array, through=_HANDS_ON) for shape in _put(user)}
        shape = next(iter(given)) if len(given) == 1 else None
        held = _OF_ARRAYS[node.op]
        if shape is not None and (held.stacked or (held.joined and shape)):
            whole = held.joined and shape[0] is not None and not array.attr("dynamic_size", False)
            count = integers(array.inputs[0]) if whole else None
            first = taken.shape[0] if taken.shape else None
            if count:
                first = count[0] * (shape[0] or 0)
            places = taken.node.inputs[1].shape if held.stacked and not held.joined else None
            first = places[0] if first is None and places else first
            shape = (first, *shape[held.joined :])
        if shape is not None and shape != taken.shape:
            found[taken] = shape
    return found


def _put(user: Node) -> Iterator[Shape]:
    held = _OF_ARRAYS.get(user.op)
    if held is not None and held.puts is not None:
        shape = user.inputs[held.puts].shape
        if shape and held.stacked:
            yield shape[1:]
        elif shape and held.lengths is not None:
            lengths = set(integers(user.inputs[held.lengths]) or [])
            yield (lengths.pop() if len(lengths) == 1 else None, *shape[1:])
        else:
            yield shape


def within_loops(graph: Graph) -> dict[str, list[Shape]]:
    """The output shapes of each node by name, inside loops too; the graph is not changed.

    A loop variable starts with its initial shape; each dimension that differs at the end of an iteration becomes unknown, to
    the fixpoint. Variables without a known rank are left to TensorFlow.
    """
    merges = [merge.name for merge in graph.of_type(*ops.MERGE) if carried(merge) is not None and not merge.uses(1)]
    kept = tried = _initial(graph, merges)
    while True:
        once = graphdef.copy(graph)
        loops = {name: loop for name in kept if (loop := carried(once[name])) is not None}
        for name, loop in loops.items():
            told = {"dtype": loop.merge.attr("T"), "shape": kept[name]}
            once.retype(loop.merge, "PlaceholderWithDefault", inputs=[loop.initial], attrs=told)
        shapes.infer(once)
        if inner := _initial(once, [name for name in merges if name not in tried]):
            kept, tried = kept | inner, tried | inner
            continue
        ends = {name: _common(kept[name], loop.closing.out().shape) for name, loop in loops.items()}
        if ends == kept:
            return {node.name: [shape for _, shape in node.outputs or ()] for node in once}
        kept = {name: shape for name, shape in ends.items() if shape is not None}


def _initial(graph: Graph, merges: list[str]) -> dict[str, Shape]:
    """The initial shapes of loop variables, where known; an inner loop's may follow from the outer one's."""
    loops = {name: carried(graph[name]) for name in merges}
    return {name: loop.initial.shape for name, loop in loops.items() if loop and loop.initial.shape is not None}


def _common(a: Shape, b: Shape) -> Shape:
    """The common dimensions of two shapes of equal rank, the others unknown; None for shapes of different rank."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(size if size == other else None for size, other in zip(a, b, strict=True))
