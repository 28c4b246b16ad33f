"""Small dense steps as one XLA computation.

The executor spends one to two microseconds per op, whatever its size; a small model on N cores is N times hundreds of
tiny ops. Where the whole device part of a step can be compiled, it becomes one function that XLA fuses.

The rule: one loop does everything, its steps are so many that compiling pays, every device op of the step is in
:data:`tpugraph.ops.FUSED` (no random op, no convolution, no control flow, no assertion), every shape is static, what XLA wants to
know at compile time is made of constants alone, and all values together are small. Otherwise the graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, in_cluster
from tpugraph.analysis.shapes import element_count
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library, is_back_edge
from tpugraph.ir.walks import reached, source_of
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.runtime.emulator.stacked import stack
from tpugraph.runtime.emulator.staged import numbers_of, stage_loop

FEWEST_STEPS = 100
"""Compiling takes about a second; below so many steps per loop it does not pay."""

MOST_ELEMENTS = 2_000_000
"""Beyond this, the ops are big enough for the executor, which runs several at a time."""


def compile_step(graph: Graph, copies: Copies, steps_per_loop: int) -> tuple[int, bool]:
    """Put the step of the fused loop into one XLA computation where the rule above allows.

    Returns:
        The number of its ops, 0 where the graph stays as it is; and whether the whole loop is inside the computation.
    """
    if steps_per_loop < FEWEST_STEPS:
        return 0, False
    frame_of = analysis.frames(graph)
    frames = {frame_of[node] for node in graph if in_cluster(node)} - {""}
    if len(frames) != 1:
        return 0, False
    chosen = _choose(graph, frame_of, frames.pop())
    if not chosen or not _small(chosen) or not _constants_known(chosen):
        return 0, False
    chosen = stack(graph, copies, chosen, ops.FUSED)
    return len(chosen), stage_loop(graph, _replace(graph, chosen), steps_per_loop)


# --------------------------------------------------------------------------- what to compile


def _choose(graph: Graph, frame_of: dict[Node, str], frame: str) -> NodeSet:
    """The largest set of ops of the body that nothing outside is between; empty where it misses an op of the device."""
    phase: dict[Node, int] = {}  # of body nodes: how often what leads to them left the compiled ops
    fits: NodeSet = {}
    conditional: NodeSet = {}
    required: list[Node] = []
    numbers = _row_numbers(graph)
    for node in graph.topological_order():
        if not frame_of[node]:
            continue
        starts = node.op in ops.SWITCH and node.inputs[1].node.op in ops.LOOP_COND and frame_of[node] == frame
        before = [p for p in node.producers() if p in phase and not is_back_edge(p, node)]
        if not starts and not before:
            continue  # the loop's condition
        if not starts and node.op not in ops.MERGE and (node.op in ops.SWITCH or any(p in conditional for p in before)):
            conditional[node] = None
        highest = max((phase[p] for p in before), default=-1)
        if frame_of[node] == frame and node not in conditional and node not in numbers and _compiles(node):
            fits[node] = None
            phase[node] = max([0, *(phase[p] + (p not in fits) for p in before)])
        else:
            phase[node] = highest
        if in_cluster(node) and node.op not in ops.CONTROL_FLOW and node.op not in ops.CONSTANTS and not _carries(node):
            required.append(node)
    sizes: dict[int, int] = {}
    for node in fits:
        sizes[phase[node]] = sizes.get(phase[node], 0) + 1
    if not sizes:
        return {}
    best = max(sizes, key=lambda p: sizes[p])
    chosen = {node: None for node in fits if phase[node] == best}
    for node in [
        node for node in chosen if node.op in ops.CONSTANTS and not any(c in chosen for c in node.consumers())
    ]:
        del chosen[node]  # the loop's own, not the step's
    return chosen if all(node in chosen for node in required) else {}


def _row_numbers(graph: Graph) -> NodeSet:
    """What makes numbers of rows of what was read, for rows that the graph holds: a part of the read, none of the step."""
    ends = [
        found.node
        for node in graph.of_type(*ops.PICKS)
        if not in_cluster(node) and (found := numbers_of(node.out())) is not None
    ]
    reads = ops.UNWRAPS | ops.GET_NEXT
    return reached(ends, lambda node: () if node.op in reads else (tensor.node for tensor in node.inputs))


def _carries(node: Node) -> bool:
    """Whether the node is part of the loop: it hands a carried value from or to the next step."""
    if any(t.node.op in ops.SWITCH and t.node.inputs[1].node.op in ops.LOOP_COND for t in node.inputs):
        return True
    return bool(node.uses()) and all(use.node.op in ops.NEXT_ITERATION for use in node.uses())


def _compiles(node: Node) -> bool:
    if node.op not in ops.FUSED or node.outputs is None:
        return False
    if node.op in ops.BROADCAST_AXES:
        return True  # made of constants alone, which is checked
    known = all(kind.name in attrs.SIZE_OF and element_count(shape) is not None for kind, shape in node.outputs)
    return known and all(t.dtype.name == "resource" or t.dtype.name in attrs.SIZE_OF for t in node.inputs)


def _small(chosen: NodeSet) -> bool:
    return sum(element_count(shape) or 0 for node in chosen for _, shape in node.outputs or ()) <= MOST_ELEMENTS


def _constants_known(chosen: NodeSet) -> bool:
    """Whether every operand that XLA needs at compile time is made of constants (or of shapes, which are static)."""
    known: dict[Node, bool] = {}

    def is_known(tensor: Tensor) -> bool:
        if _constant_behind(tensor) is not None:
            return True
        stack = [tensor.node]
        while stack:
            node = stack[-1]
            if node in known:
                stack.pop()
            elif node not in chosen or node.op in ops.READS or node.op in ops.WRITES:
                known[node] = _constant_behind(node.out()) is not None
            elif node.op in ops.SHAPE_OF or node.op in ops.CONSTANTS:
                known[node] = True
            else:
                unknown = [t.node for t in node.inputs if t.node not in known]
                if unknown:
                    stack.extend(unknown)
                    continue
                known[node] = all(known[t.node] for t in node.inputs)
        return known[tensor.node]

    return all(is_known(node.inputs[index]) for node in chosen for index in _constant_operands(node))


def _constant_operands(node: Node) -> tuple[int, ...]:
    """The operands that must be constants; slices that move, which XLA takes too, are left to the executor."""
    record, count = ops.record(node.op), len(node.inputs)
    return record.size_operands(count) if node.op in ops.SLICES else record.constant_operands(count)


def _constant_behind(tensor: Tensor) -> Node | None:
    """The constant outside the loop that enters it here, such as the number of a core."""
    if tensor.node.op not in ops.ENTER:
        return None
    source = source_of(tensor.node.inputs[0]).node
    return source if source.op in ops.CONSTANTS else None


# --------------------------------------------------------------------------- the rewrite


def _replace(graph: Graph, chosen: NodeSet) -> Node:
    """Move the chosen nodes into a function and call it in their place; returns the call."""
    reads = dict.fromkeys(t for node in chosen for t in node.inputs if t.node not in chosen)
    constants = {t: constant for t in reads if (constant := _constant_behind(t)) is not None}
    values = [t for t in reads if t not in constants and t.dtype.name != "resource"]
    variables = [t for t in reads if t.dtype.name == "resource"]
    results = [node.out(port) for node in chosen for port in node.used_ports()
               if any(use.node not in chosen for use in node.uses(port))]  # fmt: skip
    waits = dict.fromkeys(c for node in chosen for c in node.controls if c not in chosen)
    name = function_library.add_function(
        graph, "tpugraph_step", [*constants.values(), *chosen], [*values, *variables], results,
        {t: constant.out() for t, constant in constants.items()},
    )  # fmt: skip
    call = graph.add(
        "XlaLaunch",
        "tpugraph/step",
        [*values, *variables],
        controls=waits,
        attrs={"Tconstants": [], "Targs": [t.dtype for t in values], "Nresources": len(variables),
               "Tresults": [t.dtype for t in results], "function": attrs.Func(name)},
        outputs=[(t.dtype, t.shape) for t in results],
    )  # fmt: skip
    for port, tensor in enumerate(results):
        graph.replace_uses(tensor, call.out(port), where=lambda use: use.node not in chosen)
    _wait_for(graph, chosen, call)
    graph.remove_all(chosen)
    return call


def _wait_for(graph: Graph, chosen: NodeSet, call: Node) -> None:
    waiting: Iterable[Node] = dict.fromkeys(w for node in chosen for w in node.control_uses() if w not in chosen)
    for node in waiting:
        graph.set_controls(node, [*(c for c in node.controls if c not in chosen), call])
