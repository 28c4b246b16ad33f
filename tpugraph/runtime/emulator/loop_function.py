"""The function that runs the steps of a staged loop: batches of all steps go in, stacked results come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Output, Tensor, attrs, function_library
from tpugraph.runtime.emulator.step_loop import StepLoop

_INT32 = attrs.dtype("int32")
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
