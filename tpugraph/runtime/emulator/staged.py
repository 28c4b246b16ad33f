"""The whole training loop as one XLA computation on staged batches, as a TPU runs it.

Where a step is one call of a compiled function, a launch per step costs more than a small step itself. Here the loop of
the graph only reads: it puts the batches of all its steps into lists. Then one launch runs the steps, in a loop inside
the computation, and gives the results of every step, stacked, and those of the last step.

The rule: what a step returns is stacked by TensorArray writes at the loop's counter or carried to the last step, no
value of one step is read in the next, what is left of the graph's loop touches no variable that the step touches, and all
that is stacked has a static shape and is small. Otherwise the graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis.shapes import element_count
from tpugraph.control_flow.loop_lists import stack_iterations
from tpugraph.ir import Graph, Node, Output, Tensor, attrs, function_library
from tpugraph.ir.builder import Builder
from tpugraph.ir.while_loops import Carried
from tpugraph.runtime.emulator.step_loop import StepLoop, step_loop

MOST_BYTES = 128 * 2**20
"""The biggest size of all batches and results of a loop."""

_INT32 = attrs.dtype("int32")
_BOOL = attrs.dtype("bool")


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
    stacked = [*loop.staged, *_results(loop)[0]]
    if any(element_count(t.shape) is None for t in stacked) or _bytes(stacked) * steps > MOST_BYTES:
        return False
    name = _loop_function(graph, loop, steps)
    lists = _stage_all(graph, loop, steps)
    launch = _launch(graph, loop, name, lists, steps)
    _deliver(graph, loop, launch)
    return True


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum((element_count(t.shape) or 0) * (t.dtype.size or 0) for t in tensors)


# --------------------------------------------------------------------------- the computation


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
        nodes = [node for node in self.graph if node.op != "Placeholder"]
        return function_library.add_function(graph, name, nodes, self.arguments, results, {})


def _output(tensor: Tensor) -> Output:
    return tensor.dtype, tensor.shape


def _stack_of(tensor: Tensor, steps: int) -> Output:
    return tensor.dtype, (steps, *(tensor.shape or ()))


def _results(loop: StepLoop) -> tuple[list[Tensor], list[Tensor]]:
    """What is stacked, and what is wanted of the last step."""
    return [write.inputs[2] for write in loop.writes], [following.inputs[0] for following in loop.lasts]


def _loop_function(graph: Graph, loop: StepLoop, steps: int) -> str:
    """The function of (count, lists, initial values, fixed values, variables) that runs ``count`` steps."""
    every, last = _results(loop)
    body, test, whole = _Body(), _Body(), _Body()
    state: list[Output] = [(_INT32, ()), (_INT32, ()), *(_stack_of(t, steps) for t in (*loop.staged, *every)),
                           *map(_output, (*last, *loop.fixed, *loop.variables))]  # fmt: skip
    names = {
        "body": body.save(graph, "tpugraph_body", _body(loop, body, state)),
        "cond": test.save(graph, "tpugraph_more", [_more(test, state)]),
    }
    count = whole.argument(state[0])
    lists = [whole.argument(_stack_of(t, steps)) for t in loop.staged]
    rest = [whole.argument(_output(t)) for t in (*last, *loop.fixed, *loop.variables)]
    stacks = [_zeros(whole, _stack_of(t, steps)) for t in every]
    result = whole.add(
        "While",
        [whole.integers(0), count, *lists, *stacks, *rest],
        {"T": [kind for kind, _ in state], "output_shapes": [],
         **{key: attrs.Func(name) for key, name in names.items()}, "parallel_iterations": 1},
        state,
    )  # fmt: skip
    first = 2 + len(lists)
    return whole.save(graph, "tpugraph_loop", [result.out(first + i) for i in range(len(every) + len(last))])


def _more(body: _Body, state: Sequence[Output]) -> Tensor:
    index, count, *_ = [body.argument(like) for like in state]
    return body.add("Less", [index, count], {"T": _INT32}, [(_BOOL, ())]).out()


def _body(loop: StepLoop, body: _Body, state: Sequence[Output]) -> list[Tensor]:
    """One step: slice the lists, call the step, write what it returns into the stacks."""
    given = iter([body.argument(like) for like in state])
    index, count = next(given), next(given)
    every, last = _results(loop)
    lists = {tensor: next(given) for tensor in loop.staged}
    stacks = [next(given) for _ in every]
    for _ in last:
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
    return [following, count, *lists.values(), *written, *(step.out(t.port) for t in last), *fixed.values(), *variables]


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


# --------------------------------------------------------------------------- around the computation


def _stage_all(graph: Graph, loop: StepLoop, steps: int) -> list[Tensor]:
    """The stacked values of all that is staged; of rows of constants their numbers, and the rows in one go."""
    lists: dict[Tensor, Tensor] = {}
    for tensor in loop.staged:
        numbers = _numbers_of(tensor)
        source = tensor if numbers is None else numbers
        if source not in lists:
            lists[source] = _stage(graph, loop, source, steps)
        if numbers is not None:
            lists[tensor] = _gather(graph, tensor, lists[numbers], steps)
    return [lists[tensor] for tensor in loop.staged]


def _numbers_of(tensor: Tensor) -> Tensor | None:
    """The numbers by which rows of a constant are gathered; None of anything else."""
    node = tensor.node
    if node.op != "GatherV2" or node.attr("batch_dims", 0):
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
                     outputs=[_stack_of(tensor, steps)]).out()  # fmt: skip


def _stage(graph: Graph, loop: StepLoop, tensor: Tensor, steps: int) -> Tensor:
    """The values of all iterations, stacked; zeros where an iteration did not take place."""
    return stack_iterations(
        Builder(graph, "tpugraph/stage"), tensor, tensor.shape or (), frame=loop.frame, condition=loop.condition,
        number=loop.counter.switches[0].out(1), iterations=steps,
    )  # fmt: skip


def _launch(graph: Graph, loop: StepLoop, name: str, lists: list[Tensor], steps: int) -> Node:
    every, last = _results(loop)
    count = loop.counter.exits[0].out()
    values = [count, *lists, *(carried.initial for carried in loop.lasts.values()), *loop.fixed.values()]
    results = [*(_stack_of(t, steps) for t in every), *map(_output, last)]
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
                      outputs=[_output(value)])  # fmt: skip
    graph.replace_uses(value, after.out(), where=lambda use: use.node is not after and use.node not in own)
