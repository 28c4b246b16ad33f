"""The outfeed loop of evaluation and prediction: metrics are updated step by step, losses and predictions collected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE, NodeSet, in_cluster
from tpugraph.analysis.state import written_variables
from tpugraph.analysis.step import Results
from tpugraph.control_flow.loops import Loop, add_results
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import variable_of

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")


def collect_in_loop(graph: Graph, limit: Tensor) -> None:
    """Put the host's part behind the outfeed into its loop.

    Adds to :class:`~tpugraph.analysis.step.Results`: ``counts`` (steps and examples of the loop, int64 [2]), ``losses``
    (one per step, where there is a loss) and ``prediction/NAME`` (the rows of all steps).
    """
    roles, results = graph.roles, graph.result(Results)
    rows, some, pivot = graph.tensor(results["rows"]), graph.tensor(results["some"]), graph[results["pivot"]]
    arriving = graph.of_type(*ops.OUTFEEDS)
    body = _body(graph, [rows.node, some.node, pivot, *arriving])
    _free_values(graph, dict.fromkeys(body))
    stacks = _stacks(graph)
    loop = Loop(graph, "tpugraph/outfeed/while", limit, device=HOST_DEVICE)
    make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE)
    step_index, step = loop.carry(make.constant(np.int32(0)))
    seen_index, seen = loop.carry(make.constant(np.int64(0)))
    loop.enclose(body)
    made: list[Node] = []

    def add(op: str, name: str, inputs: list[Tensor], *, after: Iterable[Node] = (), **attributes: Any) -> Tensor:
        several = [(), ()] if op in ops.SWITCH | ops.MERGE else [()]
        made.append(make.node(op, inputs, name=name, shapes=several, controls=after, **attributes))
        return made[-1].out()

    one = add("Cast", "step", [some], DstT=_INT32, Truncate=False)
    more = add("Cast", "examples", [rows], DstT=_INT64, Truncate=False)
    loop.update(seen_index, add("AddV2", "seen", [seen, more]))
    flows = {}
    for name, stack in stacks.items():
        index, flow = loop.carry(stack.array.out(1))
        flows[name] = index
        held = loop.enter(stack.array.out(0))
        written = add("TensorArrayWriteV3", f"{stack.name}/write", [held, step, stack.value, flow], after=[pivot])
        kept = add("Switch", f"{stack.name}/none", [flow, some])
        loop.update(index, add("Merge", f"{stack.name}/flow", [kept, written]))
    updated = add("Identity", "updated", [pivot.out()], after=[graph[f.name] for f in roles.updates])
    none = add("Switch", "none", [rows, some])
    done = add("Merge", "done", [none, updated])
    loop.update(step_index, add("AddV2", "steps", [step, one], after=[done.node, *arriving]))
    loop.enclose(made)
    exits = loop.close()
    counts = str(_counts(graph, exits[step_index], exits[seen_index]))
    read = {n: s.read(exits[flows[n]], exits[step_index], joined=n != "losses") for n, s in stacks.items()}
    add_results(graph, counts=counts, **{name: str(tensor) for name, tensor in read.items()})


def _stacks(graph: Graph) -> dict[str, _Stack]:
    """The lists of what the steps give, by the name of the result: losses, where there are some, and predictions."""
    roles = graph.roles
    stacks: dict[str, _Stack] = {}
    if roles.loss.name:
        stacks["losses"] = _Stack(graph, "losses", _scalar(graph, graph.tensor(roles.loss.name)))
    for name, text in roles.predictions.items():
        stacks[f"prediction/{name}"] = _Stack(graph, f"predictions/{len(stacks)}", graph.tensor(text))
    return stacks


def _body(graph: Graph, always: list[Node]) -> list[Node]:
    """What runs in every step: what depends on the outfeed, on variables that the step writes, or is random."""
    roles = graph.roles
    cone = graph.ancestors([*(graph[name] for name in roles.roots), *always])
    host = [n for n in cone if not in_cluster(n)]
    written = {v for n in host for v in written_variables(n)}
    starts = [n for n in host if n.op in ops.RANDOM | ops.OUTFEEDS | ops.DEQUEUES or n.op in ops.WRITES]
    starts += [n for n in host if n.op in ops.READS | ops.GATHERS and variable_of(n.inputs[0]) in written]
    moving = graph.descendants(starts)
    found: NodeSet = {n: None for n in host if n in moving}
    frame_of = analysis.frames(graph)
    touched = {frame_of[n] for n in found} - {""}
    found.update((n, None) for n in host if frame_of[n] in touched)
    return list(found)


def _free_values(graph: Graph, body: NodeSet) -> None:
    """Values of metrics are read behind the loop: what they share with the step is made once more for them."""
    ends = [graph.tensor(name).node for name in graph.roles.values.values()]
    asked = graph.ancestors(ends, data_only=True)
    shared = [node for node in asked if node in body]
    copies = graph.clone_subgraph(shared, lambda name: f"{name}/behind")
    for copy in copies.values():
        graph.set_controls(copy, [])
    for node in asked:
        for index, tensor in enumerate(node.inputs if node not in body else ()):
            if tensor.node in copies:
                graph.set_input(node, index, copies[tensor.node].out(tensor.port))
    read = {name: graph.tensor(text) for name, text in graph.roles.values.items()}
    behind = {name: copies[t.node].out(t.port) if t.node in copies else t for name, t in read.items()}
    graph.roles = replace(graph.roles, values={name: str(tensor) for name, tensor in behind.items()})


def _scalar(graph: Graph, loss: Tensor) -> Tensor:
    if loss.shape is None:  # loops leave the rank open; a loss is one number
        graph.set_outputs(loss.node, [(loss.dtype, ())])
    return loss


class _Stack:
    """A list of what the steps give."""

    def __init__(self, graph: Graph, name: str, value: Tensor) -> None:
        self.graph = graph
        self.name = name
        self.value = value
        self.shape = None if value.shape is None else (None, *value.shape[1:]) if value.shape else ()
        self.make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE)
        self.array = self.make.node(
            "TensorArrayV3", [self.make.constant(np.int32(0))], name=name, shapes=[(2,), ()], dtype=value.dtype,
            element_shape=attrs.encode(self.shape), dynamic_size=True, clear_after_read=True,
            identical_element_shapes=False, tensor_array_name="",
        )  # fmt: skip

    def read(self, flow: Tensor, count: Tensor, *, joined: bool) -> Tensor:
        """The list as one tensor: elements joined at dimension 0, or stacked."""
        kind, handle = self.value.dtype, self.array.out(0)
        if joined:
            rest = None if self.shape is None else self.shape[1:]
            joins = self.make.node("TensorArrayConcatV3", [handle, flow], shapes=[self.shape, (None,)], dtype=kind,
                                   name=f"{self.name}/concat", element_shape_except0=attrs.encode(rest))  # fmt: skip
            return joins.out()
        ends = [self.make.constant(np.int32(value)) for value in (0, 1)]
        indices = self.make.add("Range", [ends[0], count, ends[1]], (None,), name=f"{self.name}/indices")
        return self.make.add("TensorArrayGatherV3", [handle, indices, flow], (None,), name=f"{self.name}/gather", dtype=kind,
                             element_shape=attrs.encode(()))  # fmt: skip


def _counts(graph: Graph, steps: Tensor, examples: Tensor) -> Tensor:
    make = Builder(graph, "tpugraph/outfeed", device=HOST_DEVICE)
    wide = make.cast(steps, _INT64, name="steps/wide")
    return make.add("Pack", [wide, examples], (2,), name="counts", axis=0)
