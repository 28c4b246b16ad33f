"""Trip counts: of the training loop, and upper bounds for TF1 loops of the model, which size the stacks of their gradients.

The gradient of a loop keeps forward values on stacks, which TensorFlow grows dynamically. A compiler for static shapes needs
their size: the largest trip count, read from the loop's condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis.dataflow import Answer, ask
from tpugraph.analysis.values import known_scalar
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.loops import carried, frame_chain, frames_around
from tpugraph.ir.pattern import anything, handed_on, match, op
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ConversionError


class UnboundedLoop(ConversionError):
    """A loop without a known bound whose gradient keeps values: no TPU compiler accepts it."""


NESTED = (
    "the gradient of a loop within a loop keeps stacks on a stack, which no compiler for static shapes takes",
    "unroll the inner loop, or compute it without tf.while_loop",
)
"""Fault and fix for a nested loop whose gradient needs values of the inner loop."""

_INT32 = attrs.dtype("int32")
_PASSES_ON = ops.IDENTITIES | ops.ENTER | ops.CASTS


def steps_per_loop(graph: Graph) -> int:
    """The initial trip count of the training loop; 0 where the graph has none."""
    first = graph.get("tpugraph/iterations_per_loop/Initializer")
    return 0 if first is None or first.op not in ops.CONSTANTS else int(first.attr("value"))


_GROWING = {op: held for op, held in ops.CONTENTS.items() if held.grows}
_SIZE = {op: held.length for op, held in _GROWING.items() if held.length is not None}
"""The ops that make stacks and lists for gradients of loops, and the operand that is their size."""

_PUSHES = {op for op, held in _GROWING.items() if held.puts is not None}
_LIST_OUTPUTS = {op for op, held in _GROWING.items() if held.value and held.takes is not None}
"""Ops that output an element besides the list, which is their first output."""

_SAME_LIST = ops.IDENTITIES | ops.CONTROL_FLOW | {op for op in _GROWING.keys() - _SIZE.keys() if _GROWING[op].value}
"""Ops that forward the list in their first operand; a Merge forwards any operand."""


def bound_stacks(graph: Graph) -> int:
    """Set the size of every stack and list that a loop pushes to, from its trip count; returns their number.

    Nested loops push to the same stack before anything is popped, so their trip counts multiply.
    """
    if not graph.of_type(*_SIZE):
        return 0
    frame_of = analysis.frames(graph)
    around = frames_around(graph)
    conditions = {frame_of[node]: node for node in graph.of_type(*ops.LOOP_COND)}
    sized = 0
    for stack in graph.of_type(*_SIZE):
        if stack.op in ops.STACKS and stack.attr("elem_type").name == "resource":
            fault, fix = NESTED
            raise UnboundedLoop(fault, node=stack, fix=fix)
        size = known_scalar(stack.inputs[_SIZE[stack.op]])
        pushes = [frame_of[node] for node in _pushes(graph, stack)]
        if not pushes or (size is not None and size >= 0):
            continue
        most = 1
        for name in dict.fromkeys(pushes):
            chain = frame_chain(around, name)
            loops = chain[: chain.index(frame_of[stack] if frame_of[stack] in chain else "")]
            most = max(most, math.prod(_bound(loop, conditions[loop]) for loop in loops))
        value = graph.add(
            "Const", f"{stack.name}/size", attrs={"dtype": _INT32, "value": np.int32(most)},
            controls=[stack.inputs[_SIZE[stack.op]].node], outputs=[(_INT32, ())], source=stack,
        )  # fmt: skip
        graph.set_input(stack, _SIZE[stack.op], value.out())
        sized += 1
    return sized


def _pushes(graph: Graph, stack: Node) -> list[Node]:
    """The nodes that push to a stack, which is a resource, or to a list, which is a value."""
    sharing = graph.descendants([stack], data_only=True) if stack.op in ops.STACKS else reached((stack,), _same_list)
    return [node for node in sharing if node.op in _PUSHES]


def _same_list(node: Node) -> Iterator[Node]:
    """The readers of a list that forward it, longer or shorter."""
    for use in node.uses(0 if node.op in _LIST_OUTPUTS else None):
        if use.node.op in _SAME_LIST and (use.index == 0 or use.node.op in ops.MERGE):
            yield use.node


def _bound(loop: str, condition: Node) -> int:
    most = most_iterations(condition)
    if most == math.inf:
        raise UnboundedLoop(
            f"the loop '{loop}' has a gradient, but its number of iterations has no known bound",
            node=condition, fix="give tf.while_loop maximum_iterations, or compare its counter with a constant",
        )  # fmt: skip
    return int(most)


def most_iterations(condition: Node) -> float:
    """The largest trip count of the loop with this LoopCond; infinity where none is known."""
    most = math.inf  # a conjunction ends with the first comparison that fails
    for node in comparisons(condition, ops.IDENTITIES | _BOTH):
        small, large, inclusive = ops.ORDERINGS[node.op]
        lower, upper = node.inputs[small], node.inputs[large]
        up = steps_of(lower) is not None
        bound = _counted(lower, upper, inclusive, up=True) if up else _counted(upper, lower, inclusive, up=False)
        most = min(most, bound)
    return most


def comparisons(condition: Node, through: Container[str]) -> list[Node]:
    """The comparisons that the condition of a loop combines by ops of the types ``through``."""
    parts = reached((condition.inputs[0].node,), lambda n: [t.node for t in n.inputs] if n.op in through else ())
    return [node for node in parts if node.op in ops.ORDERINGS]


def _counted(counter: Tensor, limit: Tensor, inclusive: int, *, up: bool) -> float:
    step, loop = steps_of(counter), carried(counter.node)
    if step is None or loop is None or step * (1 if up else -1) <= 0:
        return math.inf
    last, start = interval(limit)[up], interval(loop.initial)[not up]
    if math.isinf(last) or math.isinf(start):
        return math.inf
    distance = (last - start if up else start - last) + inclusive
    return max(0, math.ceil(distance / abs(step)))


_BOTH = ops.computing(np.logical_and)
_SUBTRACTIONS = ops.computing(np.subtract)
_STEP = handed_on(op(ops.computing(np.add, np.subtract), anything("before"), anything("step"), name="following"))


def steps_of(counter: Tensor) -> float | None:
    """The increment of a loop counter."""
    loop = carried(counter.node)
    if loop is None:
        return None
    found = match(_STEP, loop.following)
    step = known_scalar(found["step"]) if found and loop.holds(found["before"]) else None
    return -step if step is not None and found["following"].node.op in _SUBTRACTIONS else step


def interval(tensor: Tensor) -> tuple[float, float]:
    """The bounds of an integer scalar by constant propagation, infinite where there are none."""
    found: tuple[float, float] = ask(_interval, tensor)
    return found


def _interval(tensor: Tensor) -> Answer:
    known, put_together = known_scalar(tensor), _PUT_TOGETHER.get(tensor.node.op)
    if known is not None or put_together is None:
        return _ANY if known is None else (known, known)
    bounds = []
    for operand in tensor.node.inputs:
        bounds.append((yield _interval, operand) or _ANY)
    return tuple(map(put_together, zip(*bounds, strict=True)))


_ANY = (-math.inf, math.inf)
_PUT_TOGETHER: dict[str, Callable[[tuple[float, ...]], float]] = {
    **dict.fromkeys(_PASSES_ON, min),  # of one operand
    **dict.fromkeys(ops.computing(np.minimum), min),
    **dict.fromkeys(ops.computing(np.maximum), max),
    **dict.fromkeys(ops.computing(np.add), sum),
}
