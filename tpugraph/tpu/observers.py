"""Places summaries, metrics and prints: on the device where each core can compute them, else on the host after it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from tpugraph import ops
from tpugraph.analysis import NodeSet, must_be_host, shapes
from tpugraph.analysis.step import EveryStep
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import NONE, Side, sides
from tpugraph.ir.walks import reached, source_of
from tpugraph.rewrite.step_nodes import remove_unread
from tpugraph.tpu.device_cut import Step

_MAY_NOT_RUN = "it is in a branch, which may not run"

_LIGHT = 1024
"""The largest size in bytes of a value that is sent in each step though the host could compute it from variables."""


def detach_prints(graph: Graph) -> dict[str, str]:
    """Bypass each Print, which the host runs after the device; returns those in branches, which are dropped, with the reason."""
    for node in graph.of_type("Print"):
        graph.replace_uses(node.out(), node.inputs[0])
        graph.replace_control_uses(node, [node.inputs[0].node])
        loss = graph.roles.loss
        if loss.name == node.name:
            graph.roles = replace(graph.roles, loss=type(loss)(str(node.inputs[0]), loss.reason))
        graph.note(node, "prints after the outfeed, once per loop")
    dropped = {}
    for node in [node for node in graph.of_type(*ops.PRINTS) if node in sides(graph)]:
        for waiting in node.control_uses():
            _wait_for_branch(graph, waiting, node)
        graph.note(node, f"dropped: {_MAY_NOT_RUN}")
        dropped[node.name] = _MAY_NOT_RUN
        _remove(graph, [node])
    return dropped


def _wait_for_branch(graph: Graph, waiting: Node, node: Node) -> None:
    """Remove a control edge but keep the node in its branches."""
    before = sides(graph).get(waiting, NONE)
    graph.remove_control(waiting, node)
    for side in before - sides(graph).get(waiting, NONE):
        graph.add_control(waiting, _pivot(graph, side, node))


def _pivot(graph: Graph, side: Side, near: Node) -> Node:
    """A node in the same branch as a tensor, behind a new Switch."""
    predicate, port = side
    make = Builder(graph, near.name, source=near)
    switch = make.node("Switch", [predicate, predicate], name="branch", shapes=[(), ()])
    return make.identity(switch.out(port), name="pivot").node


def _remove(graph: Graph, doomed: Collection[Node]) -> None:
    """Remove nodes and their ancestors without other readers."""
    producers = [p for node in doomed for p in node.producers()]
    graph.remove_all(doomed)
    remove_unread(graph, producers)


class Observers:
    """Places the nodes that only observe the step.

    ``dropped`` are nodes whose inputs cannot be sent, by name, with the reason; the host runs ``nodes`` after the device.
    """

    def __init__(self, graph: Graph, step: Step, device: NodeSet, cut: list[Tensor], in_front: NodeSet) -> None:
        self.in_front = in_front
        self.graph = graph
        self.step = step
        self.device = device
        self.arriving = set(cut)
        self.dropped: dict[str, str] = {}
        self.nodes: list[Node] = []
        every = graph.kept(EveryStep)
        self.every_step = frozenset(() if every is None else every.summaries)
        self.wanted = graph.ancestors(graph[name] for name in self.every_step if name in graph)
        self.of_state: NodeSet = {}
        self.of_last_step: NodeSet = {}

    def place(self) -> None:
        """Put nodes that each core can compute for its rows on the device, and send the host the inputs of the others."""
        graph, roles = self.graph, self.graph.roles
        side_of = sides(graph)
        watching = graph.ancestors(graph[f.name] for f in roles.summaries if f.name in graph)
        for node in [*(n for n in watching if n.op in ops.SUMMARIES - ops.MERGED_SUMMARIES), *self.step.observers]:
            if node in side_of and node in graph:
                self._drop(node, _MAY_NOT_RUN)
        self.step.observers = [node for node in self.step.observers if node in graph]
        roots = [graph[f.name] for f in roles.summaries if f.name in graph]
        roots += self.step.observers + graph.of_type("Print")
        placed = {**self.step.cone, **self.device, **self.in_front}
        tail = {n: None for n in graph.ancestors(roots) if n not in placed}
        self._divide(tail, roots)
        own = [n for n in tail if n.op in ops.RESOURCE_VARIABLES]  # metric variables
        host_side = graph.descendants([*own, *(n for n in tail if must_be_host(n))])
        for node in graph.topological_order(tail):
            if node in host_side or node in self.of_state or node.op in ops.RESOURCE_VARIABLES:
                continue
            if self._can_be_device(node):
                self.device[node] = None
        self.nodes = [n for n in tail if n in host_side and n not in self.device]
        for node in [n for n in tail if n not in self.device]:
            if node in graph:
                self._feed(node, tail)

    def _divide(self, tail: NodeSet, roots: list[Node]) -> None:
        """Separate summaries of variables, which the host reads after the loop, from summaries of the loop's last step."""
        graph = self.graph
        if graph.roles.mode != "train":
            return
        leaves = [n for n in tail if n.op in ops.SUMMARIES - ops.MERGED_SUMMARIES]
        of_state = {n: None for n in leaves if self._shows_state(n)}
        others = graph.ancestors([*(n for n in leaves if n not in of_state),
                                  *(n for n in roots if n.op not in ops.SUMMARIES)])  # fmt: skip
        self.of_state = {n: None for n in graph.ancestors(of_state) if n in tail and n not in others}
        self.of_last_step = {n: None for n in graph.ancestors(leaves) if n in tail and n not in self.of_state}

    def _shows_state(self, leaf: Node) -> bool:
        """Whether a summary shows variables, other than small values that the step computes too, such as a learning rate."""
        cones = {t: self._replicated_cone(t.node) for t in leaf.inputs if t.node.op not in ops.CONSTANTS}
        if leaf.name in self.every_step or None in cones.values():
            return False
        read = [t for t, cone in cones.items() if _reads(cone)]
        return bool(read) and not any(self._light_in_step(t) for t in read)

    def _light_in_step(self, tensor: Tensor) -> bool:
        size = shapes.byte_size(tensor)
        plain = source_of(tensor, ops.IDENTITIES).node.op in ops.READS
        return tensor.node in self.step.cone and not plain and size is not None and size <= _LIGHT

    def _can_be_device(self, node: Node) -> bool:
        """Whether each core can compute a node for its rows, from values of the device and constants.

        Values needed of every step are computed there even from the batch or variables alone: after the loop the host sees only
        the last step.
        """
        if must_be_host(node) or node.op in ops.CONTROL_FLOW:
            return False
        reads = node.op in ops.READS and all(control in self.device for control in node.controls)
        begins = node in self.wanted and (reads or any(t in self.arriving for t in node.inputs))
        if not begins and not any(t.node in self.device for t in node.inputs):
            return False
        return all(self._on_device(t) or self._move_to_device(t.node) for t in node.inputs)

    def _on_device(self, tensor: Tensor) -> bool:
        node = tensor.node
        return node in self.device or node.op in ops.RESOURCE_VARIABLES or tensor in self.arriving

    def _move_to_device(self, node: Node) -> bool:
        """Put a replicated node and its small cone on the device, where they have no side effects."""
        cone = reached((node,), lambda n: (p for p in n.producers() if p not in self.device))
        if len(cone) > 50 or any(ops.is_stateful(n.op) or must_be_host(n) for n in cone):
            return False
        self.device.update(dict.fromkeys(cone))
        return True

    def _feed(self, node: Node, tail: NodeSet) -> None:
        """Rewire the inputs of a host node: the device's tensors cross later, replicated nodes are copied.

        Values needed of every step, or of the last one, are computed on the device even if replicated, since the host reads
        variables before or after the loop.
        """
        for index, tensor in enumerate(node.inputs):
            producer = tensor.node
            if (producer in tail and producer not in self.device) or producer.op in ops.RESOURCE_VARIABLES:
                continue
            replicated = self._replicated_cone(producer)
            if replicated is not None and not self._reads_step_values(node, replicated):
                copies = self.graph.clone_subgraph(replicated, lambda name: f"{name}/tail")
                self.graph.set_input(node, index, copies[producer].out(tensor.port))
            elif tensor in self.arriving:
                self.graph.set_input(node, index, self._back_from_device(tensor))
            elif replicated is None and producer not in self.device:
                self._drop(node, f"it needs '{tensor}', which stays on the host in front of the device")
                return
            elif not shapes.is_static(tensor.shape):
                self._drop(node, f"it needs '{tensor}', whose shape is open")
                return
            elif replicated is not None:
                self.device.update(dict.fromkeys(replicated))
        self.graph.set_controls(node, [c for c in node.controls if c in tail and c not in self.device])

    def _reads_step_values(self, node: Node, cone: list[Node]) -> bool:
        """Whether a node reads replicated values of a step, not of variables before or after the loop."""
        return node.name in self.every_step or (node in self.of_last_step and _reads(cone))

    def _back_from_device(self, tensor: Tensor) -> Tensor:
        """An Identity on the device that sends part of the batch back through the outfeed."""
        copy = Builder(self.graph, tensor.node.name, source=tensor.node).identity(tensor, name="back")
        self.device[copy.node] = None
        return copy

    def _replicated_cone(self, node: Node) -> list[Node] | None:
        """The node and its ancestors, where they are constants and plain reads of variables; else None."""
        cone = list(self.graph.ancestors([node], data_only=True))
        made = [n for n in cone if n.op not in ops.RESOURCE_VARIABLES]
        return None if len(cone) > 50 or any(map(self._is_of_step, made)) else made

    def _is_of_step(self, node: Node) -> bool:
        """Whether a node cannot be copied to another place in the step."""
        if node in self.step.host_dependents or node.op in ops.CONTROL_FLOW or must_be_host(node):
            return True
        return bool(node.controls) if node.op in ops.READS else ops.is_stateful(node.op)

    def _drop(self, node: Node, reason: str) -> None:
        """Remove a node whose inputs cannot be sent, and its readers, from the merged summary."""
        doomed = self.graph.descendants([node])
        for merge in [n for n in doomed if n.op in ops.MERGED_SUMMARIES]:
            kept = [t for t in merge.inputs if t.node not in doomed]
            doomed.pop(merge)
            self.graph.set_inputs(merge, kept)
            self.graph.set_attr(merge, "N", len(kept))
        for gone in doomed:
            self.dropped[gone.name] = reason
            self.graph.note(gone, f"dropped: {reason}")
        _remove(self.graph, doomed)
        for gone in [node for node in self.device if node not in self.graph]:
            del self.device[gone]
        roles = self.graph.roles
        kept = [f for f in roles.summaries if f.name in self.graph and self.graph[f.name].inputs]
        self.graph.roles = replace(roles, summaries=tuple(kept))
        self.nodes = [node for node in self.nodes if node in self.graph]


def _reads(cone: Iterable[Node] | None) -> bool:
    return any(node.op in ops.READS for node in cone or ())
