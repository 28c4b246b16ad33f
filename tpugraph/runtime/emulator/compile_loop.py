"""Small dense steps as one XLA computation, and the loop around them with it.

The executor spends one to two microseconds per op, whatever its size; a small model on N cores is N times hundreds of tiny ops.
The device part of a step becomes one function that XLA fuses where one loop does everything, its steps are so many that
compiling pays, every device op is in :data:`tpugraph.ops.FUSED` (no random op, no convolution, no control flow, no assertion),
every shape is static, what XLA must know at compile time is constant, and all values together are small.

A launch per step still costs more than a small step. So the loop moves into the computation as well, where what a step returns
is written to TensorArrays at the loop's counter or read from the last step alone, no step reads a value of the one before, and
nothing else in the loop touches the step's variables. The graph's loop then only stages the batches of all steps, and one
launch runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, in_cluster
from tpugraph.analysis.shapes import element_count
from tpugraph.control_flow.loop_lists import stack_iterations
from tpugraph.ir import Graph, Node, Output, Tensor, attrs, function_library, is_back_edge
from tpugraph.ir.builder import Builder
from tpugraph.ir.loops import Carried
from tpugraph.ir.loops import carried as carried_by
from tpugraph.ir.pattern import anything, match, number, op
from tpugraph.ir.walks import reached, source_of
from tpugraph.runtime.emulator.copies import Copies
from tpugraph.runtime.emulator.stack_cores import stack

_INT32 = attrs.dtype("int32")
_PUT_IN = {op: held.puts for op, held in ops.CONTENTS.items() if held.index is not None and not held.value}
"""Ops that put an element into an array at a place, and which operand is the element."""


@dataclass
class StepLoop:
    """What the rewrite needs to know of the loop.

    Attributes:
        call: the launch of one step.
        frame: the loop.
        condition: the loop's LoopCond.
        counter: the number of the iteration, carried from 0.
        staged: what a step reads that differs from step to step.
        fixed: what it reads that does not, by its value outside the loop.
        variables: the handles that it reads, outside the loop.
        writes: TensorArray writes of results, with the flow that the loop carries for each.
        lasts: carried results of which nothing but the last is read, by NextIteration.
    """

    call: Node
    frame: str
    condition: Node
    counter: Carried
    staged: list[Tensor]
    fixed: dict[Tensor, Tensor]
    variables: list[Tensor]
    writes: dict[Node, Carried] = field(default_factory=dict)
    lasts: dict[Node, Carried] = field(default_factory=dict)


def step_loop(graph: Graph, call: Node) -> StepLoop | None:
    """The loop around ``call``, or None where its steps cannot be told apart from the rest of it."""
    frame_of = analysis.frames(graph)
    frame = frame_of[call]
    loops = [found for merge in graph.of_type(*ops.MERGE)
             if frame_of[merge] == frame and (found := carried_by(merge)) is not None]  # fmt: skip
    carried = {found.closing: found for found in loops if len(found.switches) == 1}
    counter = next((c for c in carried.values() if _counts(c)), None)
    if counter is None:
        return None
    reads = [t for t in call.inputs if t.dtype.name != "resource"]
    fixed = {t: t.node.inputs[0] for t in reads if t.node.op in ops.ENTER}
    handles = [t for t in call.inputs if t.dtype.name == "resource"]
    if any(t.node.op not in ops.ENTER for t in handles) or _touched_elsewhere(handles, call):
        return None
    loop = StepLoop(
        call, frame, counter.switches[0].inputs[1].node, counter, [t for t in reads if t not in fixed], fixed,
        [t.node.inputs[0] for t in handles],
    )  # fmt: skip
    for use in call.uses():
        flow = _flow_of(use.node, use.index, carried)
        if flow is not None:
            loop.writes[use.node] = flow
        elif use.node in carried and not any(node.consumers() for node in carried[use.node].inside):
            loop.lasts[use.node] = carried[use.node]
        else:
            return None
    return loop


_PLUS_ONE = op(("Add", "AddV2"), anything("before"), number(1))


def _counts(carried: Carried) -> bool:
    """Whether the value is 0, 1, 2 and so on, and leaves the loop."""
    following = match(_PLUS_ONE, carried.following)
    return (
        bool(carried.exits)
        and carried.merge.out().dtype == _INT32
        and _integer(carried.initial) == 0
        and bool(following)
        and following["before"].node in carried.inside
    )


def _integer(tensor: Tensor) -> int | None:
    return int(tensor.node.attr("value")) if tensor.node.op in ops.CONSTANTS and tensor.shape == () else None


def _flow_of(node: Node, index: int, carried: dict[Node, Carried]) -> Carried | None:
    """The flow of a TensorArray that takes this as the element of the iteration's own number, and that nothing reads."""
    if index != _PUT_IN.get(node.op) or node.inputs[0].node.op not in ops.ENTER:
        return None
    _, number, _, flow = (t.node for t in node.inputs)
    following = node.consumers()[0]
    found = carried.get(following)
    alone = (
        found is not None and node.consumers() == [following] and flow in found.inside and flow.consumers() == [node]
    )
    counts = any(number in c.inside for c in carried.values() if _counts(c))
    return found if alone and counts else None


def _touched_elsewhere(handles: Sequence[Tensor], call: Node) -> bool:
    """Whether another op of the loop uses one of these variables."""
    for handle in handles:
        entries = [use.node for use in handle.node.inputs[0].node.uses(handle.node.inputs[0].port)
                   if use.node.op in ops.ENTER and use.node.attr("frame_name") == handle.node.attr("frame_name")]  # fmt: skip
        if any(use.node is not call for entry in entries for use in entry.uses()):
            return True
    return False


_BOOL = attrs.dtype("bool")


class _Body:
    """A function body in the making, in a graph of its own."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.arguments: list[Tensor] = []

    def argument(self, like: Output) -> Tensor:
        """One more argument of this dtype and shape."""
        kind, shape = like
        node = self.graph.add("Placeholder", "argument", attrs={"dtype": kind, "shape": shape}, outputs=[like])
        self.arguments.append(node.out())
        return node.out()

    def add(self, op: str, inputs: Sequence[Tensor], attributes: dict[str, Any], outputs: Sequence[Output]) -> Node:
        """One more node."""
        return self.graph.add(op, op, inputs, attrs=attributes, outputs=outputs)

    def integers(self, value: Any) -> Tensor:
        """An int32 constant."""
        array = np.asarray(value, "int32")
        return self.add("Const", [], {"dtype": _INT32, "value": array}, [(_INT32, array.shape)]).out()

    def save(self, graph: Graph, name: str, results: Sequence[Tensor]) -> str:
        """Add the function to the library of ``graph``."""
        nodes = [node for node in self.graph if node.op not in ops.PLACEHOLDERS]
        return function_library.add_function(graph, name, nodes, self.arguments, results, {})


def output_of(tensor: Tensor) -> Output:
    """Dtype and shape of a tensor."""
    return tensor.dtype, tensor.shape


def stack_of(tensor: Tensor, steps: int) -> Output:
    """Dtype and shape of the values of a tensor in all steps, stacked."""
    return tensor.dtype, (steps, *(tensor.shape or ()))


def results_of(loop: StepLoop) -> tuple[list[Tensor], list[Tensor]]:
    """What is stacked, and what is wanted of the last step."""
    return [write.inputs[2] for write in loop.writes], [following.inputs[0] for following in loop.lasts]


def loop_function(graph: Graph, loop: StepLoop, steps: int) -> str:
    """The function of (count, lists, initial values, fixed values, variables) that runs ``count`` steps."""
    every, last = results_of(loop)
    kept = _vectors(last)
    body, test, whole = _Body(), _Body(), _Body()
    state: list[Output] = [(_INT32, ()), (_INT32, ()), *(stack_of(t, steps) for t in (*loop.staged, *every)),
                           *map(_like, kept), *map(output_of, (*loop.fixed, *loop.variables))]  # fmt: skip
    names = {
        "body": body.save(graph, "tpugraph_body", _body(loop, body, state)),
        "cond": test.save(graph, "tpugraph_more", [_more(test, state)]),
    }
    count = whole.argument(state[0])
    lists = [whole.argument(stack_of(t, steps)) for t in loop.staged]
    initial = {t: whole.argument(output_of(t)) for t in last}
    rest = [whole.argument(output_of(t)) for t in (*loop.fixed, *loop.variables)]
    stacks = [_zeros(whole, stack_of(t, steps)) for t in every]
    vectors = [_packed(whole, [initial[t] for t in group]) for group in kept]
    result = whole.add(
        "While",
        [whole.integers(0), count, *lists, *stacks, *vectors, *rest],
        {"T": [kind for kind, _ in state], "output_shapes": [],
         **{key: attrs.Func(name) for key, name in names.items()}, "parallel_iterations": 1},
        state,
    )  # fmt: skip
    first = 2 + len(lists)
    found = [result.out(first + i) for i in range(len(every) + len(kept))]
    of_last = {t: value for group, whole_value in zip(kept, found[len(every):], strict=True)
               for t, value in zip(group, _unpacked(whole, whole_value, len(group)), strict=True)}  # fmt: skip
    return whole.save(graph, "tpugraph_loop", [*found[: len(every)], *(of_last[t] for t in last)])


def _vectors(last: Sequence[Tensor]) -> list[list[Tensor]]:
    """What is wanted of the last step; scalars of one dtype are carried as one vector, because XLA spends as much on each value."""
    scalars: dict[str, list[Tensor]] = {}
    for tensor in last:
        if tensor.shape == ():
            scalars.setdefault(tensor.dtype.name, []).append(tensor)
    return [*([t] for t in last if t.shape != ()), *scalars.values()]


def _like(group: Sequence[Tensor]) -> Output:
    kind, shape = output_of(group[0])
    return (kind, shape) if len(group) == 1 else (kind, (len(group),))


def _packed(body: _Body, values: Sequence[Tensor]) -> Tensor:
    if len(values) == 1:
        return values[0]
    kind, count = values[0].dtype, len(values)
    return body.add("Pack", values, {"N": count, "T": kind, "axis": 0}, [(kind, (count,))]).out()


def _unpacked(body: _Body, value: Tensor, count: int) -> list[Tensor]:
    if count == 1:
        return [value]
    made = body.add("Unpack", [value], {"num": count, "T": value.dtype, "axis": 0}, [(value.dtype, ())] * count)
    return [made.out(port) for port in range(count)]


def _more(body: _Body, state: Sequence[Output]) -> Tensor:
    index, count, *_ = [body.argument(like) for like in state]
    return body.add("Less", [index, count], {"T": _INT32}, [(_BOOL, ())]).out()


def _body(loop: StepLoop, body: _Body, state: Sequence[Output]) -> list[Tensor]:
    """One step: slice the lists, call the step, write what it returns into the stacks."""
    given = iter([body.argument(like) for like in state])
    index, count = next(given), next(given)
    every, last = results_of(loop)
    kept = _vectors(last)
    lists = {tensor: next(given) for tensor in loop.staged}
    stacks = [next(given) for _ in every]
    for _ in kept:
        next(given)
    fixed = {tensor: next(given) for tensor in loop.fixed}
    variables = list(given)
    values = iter(variables)
    reads = [next(values) if t.dtype.name == "resource" else fixed[t] if t in fixed else _element(body, lists[t], index)
             for t in loop.call.inputs]  # fmt: skip
    outputs = [loop.call.output(port) for port in range(len(loop.call.outputs or ()))]
    step = body.add(
        "StatefulPartitionedCall",
        reads,
        {"Tin": [t.dtype for t in reads], "Tout": [kind for kind, _ in outputs],
         "f": attrs.Func(loop.call.attr("function").name), "config": "", "config_proto": "", "executor_type": ""},
        outputs,
    )  # fmt: skip
    following = body.add("AddV2", [index, body.integers(1)], {"T": _INT32}, [(_INT32, ())]).out()
    written = [_write(body, stack, index, step.out(t.port)) for stack, t in zip(stacks, every, strict=True)]
    vectors = [_packed(body, [step.out(t.port) for t in group]) for group in kept]
    return [following, count, *lists.values(), *written, *vectors, *fixed.values(), *variables]


def _element(body: _Body, stack: Tensor, index: Tensor) -> Tensor:
    kinds = {"Tparams": stack.dtype, "Tindices": _INT32, "Taxis": _INT32, "batch_dims": 0}
    return body.add("GatherV2", [stack, index, body.integers(0)], kinds, [(stack.dtype, (stack.shape or ())[1:])]).out()


def _write(body: _Body, stack: Tensor, index: Tensor, value: Tensor) -> Tensor:
    kind, shape = stack.dtype, stack.shape or ()
    row = body.add("ExpandDims", [value, body.integers(0)], {"T": kind, "Tdim": _INT32}, [(kind, (1, *shape[1:]))])
    start = [index, *(body.integers(0) for _ in shape[1:])]
    at = body.add("Pack", start, {"N": len(start), "T": _INT32, "axis": 0}, [(_INT32, (len(start),))])
    attributes = {"T": kind, "Tindices": _INT32}
    return body.add("XlaDynamicUpdateSlice", [stack, row.out(), at.out()], attributes, [(kind, shape)]).out()


def _zeros(body: _Body, like: Output) -> Tensor:
    kind, shape = like
    zero = body.add("Const", [], {"dtype": kind, "value": np.zeros((), kind.name)}, [(kind, ())]).out()
    return body.add("Fill", [body.integers(shape), zero], {"T": kind, "index_type": _INT32}, [like]).out()


MOST_BYTES = 128 * 2**20
"""The biggest size of all batches and results of a loop."""


def stage_loop(graph: Graph, call: Node, steps: int) -> bool:
    """Move the steps of the loop around ``call`` into one computation; returns whether the rule allows it.

    Args:
        graph: the lowered graph.
        call: the XlaLaunch of one step.
        steps: the most steps that a loop has.
    """
    loop = step_loop(graph, call)
    if loop is None:
        return False
    stacked = [*loop.staged, *results_of(loop)[0]]
    if any(element_count(t.shape) is None for t in stacked) or _bytes(stacked) * steps > MOST_BYTES:
        return False
    name = loop_function(graph, loop, steps)
    lists = _stage_all(graph, loop, steps)
    launch = _launch(graph, loop, name, lists, steps)
    _deliver(graph, loop, launch)
    return True


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum((element_count(t.shape) or 0) * (t.dtype.size or 0) for t in tensors)


# --------------------------------------------------------------------------- around the computation


def _stage_all(graph: Graph, loop: StepLoop, steps: int) -> list[Tensor]:
    """The stacked values of all that is staged; of rows of constants their numbers, and the rows in one go."""
    lists: dict[Tensor, Tensor] = {}
    for tensor in loop.staged:
        numbers = numbers_of(tensor)
        source = tensor if numbers is None else numbers
        if source not in lists:
            lists[source] = _stage(graph, loop, source, steps)
        if numbers is not None:
            lists[tensor] = _gather(graph, tensor, lists[numbers], steps)
    return [lists[tensor] for tensor in loop.staged]


def numbers_of(tensor: Tensor) -> Tensor | None:
    """The numbers by which rows of a constant are gathered; None of anything else."""
    node = tensor.node
    if node.op not in ops.PICKS or ops.record(node.op).axis is None or node.attr("batch_dims", 0):
        return None
    held = [_outside(node.inputs[index]).node for index in (0, 2)]
    if any(constant.op not in ops.CONSTANTS for constant in held):
        return None
    return node.inputs[1] if int(held[1].attr("value")) == 0 else None


def _outside(tensor: Tensor) -> Tensor:
    return tensor.node.inputs[0] if tensor.node.op in ops.ENTER else tensor


def _gather(graph: Graph, tensor: Tensor, numbers: Tensor, steps: int) -> Tensor:
    node = tensor.node
    inputs = [_outside(node.inputs[0]), numbers, _outside(node.inputs[2])]
    return graph.add("GatherV2", "tpugraph/stage/rows", inputs, attrs=node.raw_attrs,
                     outputs=[stack_of(tensor, steps)]).out()  # fmt: skip


def _stage(graph: Graph, loop: StepLoop, tensor: Tensor, steps: int) -> Tensor:
    """The values of all iterations, stacked; zeros where an iteration did not take place."""
    return stack_iterations(
        Builder(graph, "tpugraph/stage"), tensor, tensor.shape or (), frame=loop.frame, condition=loop.condition,
        number=loop.counter.switches[0].out(1), iterations=steps,
    )  # fmt: skip


def _launch(graph: Graph, loop: StepLoop, name: str, lists: list[Tensor], steps: int) -> Node:
    every, last = results_of(loop)
    count = loop.counter.exits[0].out()
    values = [count, *lists, *(carried.initial for carried in loop.lasts.values()), *loop.fixed.values()]
    results = [*(stack_of(t, steps) for t in every), *map(output_of, last)]
    return graph.add(
        "XlaLaunch",
        "tpugraph/steps",
        [*values, *loop.variables],
        attrs={"Tconstants": [], "Targs": [t.dtype for t in values], "Nresources": len(loop.variables),
               "Tresults": [kind for kind, _ in results], "function": attrs.Func(name)},
        outputs=results,
    )  # fmt: skip


def _deliver(graph: Graph, loop: StepLoop, launch: Node) -> None:
    """Let the readers of the loop's results read the computation's; what else leaves the loop waits for it."""
    own = graph.ancestors([launch])
    frame_of = analysis.frames(graph)
    gone: list[Node] = [loop.call, *loop.writes]
    for port, (write, flow) in enumerate(loop.writes.items()):
        _replace_carried(graph, flow, _write_all(graph, loop, write, flow, launch.out(port)), gone)
    for port, last in enumerate(loop.lasts.values(), len(loop.writes)):
        _replace_carried(graph, last, launch.out(port), gone)
    for leave in graph.of_type(*ops.EXIT):
        if frame_of.get(leave) == loop.frame and leave not in gone:
            _let_wait(graph, leave, launch, own)
    graph.replace_control_uses(loop.call, [])
    graph.remove_all(gone)
    graph.remove_all([node for node in graph.of_type(*ops.ENTER)
                      if node.attr("frame_name") == loop.frame and not node.consumers()])  # fmt: skip


def _replace_carried(graph: Graph, carried: Carried, value: Tensor, gone: list[Node]) -> None:
    for leave in carried.exits:
        graph.replace_uses(leave.out(), value)
        graph.replace_control_uses(leave, [value.node])
    gone += [carried.merge, *carried.switches, carried.closing, *carried.inside, *carried.exits]


def _write_all(graph: Graph, loop: StepLoop, write: Node, flow: Carried, stack: Tensor) -> Tensor:
    """The flow of the TensorArray after the values of all iterations are written."""
    shape = stack.shape or ()
    count, make = loop.counter.exits[0].out(), Builder(graph, "tpugraph/stage")
    all_of = [make.constant(np.int32(-1)) for _ in shape[1:]]
    size = make.add("Pack", [count, *all_of], (len(shape),), axis=0)
    zeros = make.constant(np.zeros(len(shape), "int32"))
    values = make.add("Slice", [stack, zeros, size], (None, *shape[1:]))
    indices = make.add("Range", [make.constant(np.int32(0)), count, make.constant(np.int32(1))], (None,))
    array = write.inputs[0].node.inputs[0]
    return make.add("TensorArrayScatterV3", [array, indices, values, flow.initial], flow.merge.out().shape)


def _let_wait(graph: Graph, leave: Node, launch: Node, own: analysis.NodeSet) -> None:
    """Let what reads this value of the loop, except what leads to the computation, wait for the computation."""
    value = leave.out()
    graph.replace_control_uses(leave, [launch])
    if all(use.node in own for use in leave.uses()):
        return
    after = graph.add("Identity", "tpugraph/stage/after", [value], attrs={"T": value.dtype}, controls=[launch],
                      outputs=[output_of(value)])  # fmt: skip
    graph.replace_uses(value, after.out(), where=lambda use: use.node is not after and use.node not in own)


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
