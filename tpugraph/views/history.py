"""The history of a conversion: what each pass did to each node, told from the graph itself before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpugraph.analysis import cluster_nodes, shapes
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.text import format_output, format_value
from tpugraph.spmd.explain import Explanation
from tpugraph.views.view_data import Lives, NodeView, Port, Stage, Transfer, Version, ViewData

_State = tuple[str | None, str | None, tuple[Tensor, ...] | None, tuple[Node, ...] | None, Mapping[str, Any]]
_HIDDEN = frozenset({"_output_shapes"})
_CHANNELS = (("infeed", "InfeedEnqueueTuple", "InfeedDequeueTuple"),
             ("outfeed", "OutfeedEnqueueTuple", "OutfeedDequeueTuple"))  # fmt: skip


class History:
    """Watches a graph while passes rewrite it, and draws the view of it."""

    def __init__(self, title: str = "") -> None:
        self.view = ViewData(title)
        self._number: dict[Node, int] = {}
        self._state: dict[Node, _State] = {}
        self._notes = 0

    def record(self, graph: Graph, name: str, *, summary: str = "", seconds: float = 0.0) -> None:
        """The graph after a pass, or as it was read, with what is true after it and how long it took."""
        at = len(self.view.stages)
        nodes = list(graph)
        new = [node for node in nodes if node not in self._state]
        gone = self._state.keys() - dict.fromkeys(nodes).keys()
        for node in new:
            self._number[node] = len(self.view.nodes)
            self.view.nodes.append(NodeView(node.name, at, made_by=node.made_by, origin=node.origin))
        for node in gone:
            self.view.nodes[self._number[node]].died = at
            del self._state[node]
        changed = sum([self._look(node, at) for node in nodes]) - len(new)
        self._tell_sides(graph)
        notes = [(note.node, note.text) for note in graph.notes[self._notes :]]
        self._notes = len(graph.notes)
        self.view.stages.append(
            Stage(name, summary, len(nodes), len(new) if at else 0, len(gone), changed, seconds, notes)
        )

    def place(self, found: Explanation) -> None:
        """Where the values of the step live, and why, as the partition found it."""
        placing = found.placing
        for node in dict.fromkeys([*(tensor.node for tensor in placing.seeds), *placing.order]):
            if node in self._number:
                tensors = [tensor for tensor in map(node.out, node.used_ports()) if found.kind(tensor)]
                self.view.nodes[self._number[node]].lives = [self._lives(found, tensor) for tensor in tensors]

    def finish(self, graph: Graph) -> ViewData:
        """The view, with what is known of the graph at the end; may be asked again after more passes."""
        self.view.transfers = []
        for node, number in self._number.items():
            view = self.view.nodes[number]
            view.outputs = [format_output(output) for output in node.outputs or ()]
            view.bytes = [shapes.byte_size(node.out(port)) for port in range(len(node.outputs or ()))]
        for node in [node for node in graph.of_type("CrossReplicaSum") if node.outputs]:
            self.view.nodes[self._number[node]].collective = shapes.byte_size(node.out())
        for kind, sends, receives in _CHANNELS:
            self._transfers(graph, kind, sends, receives)
        return self.view

    # ------------------------------------------------------------------ one node

    def _look(self, node: Node, at: int) -> bool:
        """Whether a node has changed; the change becomes a version."""
        held = self._state.get(node, (None, None, None, None, {}))
        state = self._state[node] = (node.op, node.device, node.inputs, node.controls, node.raw_attrs)
        (op, device, inputs, controls, before), after = held, node.raw_attrs
        if after is before and state[:4] == held[:4]:
            return False
        version = Version(
            at,
            op=None if op == node.op else node.op,
            device=None if device == node.device else node.device,
            inputs=None if inputs == node.inputs else list(map(self._port, node.inputs)),
            controls=None if controls == node.controls else [self._number[control] for control in node.controls],
            attrs={
                key: format_value(node.attr(key)) if key in after else None
                for key in sorted(before.keys() | after.keys())
                if key not in _HIDDEN and before.get(key) != after.get(key)
            },
        )
        if version == Version(at):
            return False
        self.view.nodes[self._number[node]].versions.append(version)
        return True

    def _port(self, tensor: Tensor) -> Port:
        return (self._number[tensor.node], tensor.port)

    def _lives(self, found: Explanation, tensor: Tensor) -> Lives:
        reason = found.reason(tensor)
        deciding = [self._port(t) for t in found.deciding(tensor) if t.node in self._number]
        return Lives(tensor.port, found.kind(tensor), reason.placement, reason.because, deciding, list(reason.collectives),
                     tensor in found.placing.seeds)  # fmt: skip

    # ------------------------------------------------------------------ host and device

    def _tell_sides(self, graph: Graph) -> None:
        device = cluster_nodes(graph)
        for node in self._state if device else ():
            self.view.nodes[self._number[node]].side = "device" if node in device else "host"

    def _transfers(self, graph: Graph, kind: str, sends: str, receives: str) -> None:
        """The transfers of a channel; an outfeed has its shapes at the receiving end, an infeed at both."""
        targets = graph.of_type(receives)
        for source in graph.of_type(sends):
            for target in targets:
                described = target if target.outputs else source
                sizes = [shapes.byte_size(target.out(port)) for port in range(len(described.outputs or ()))]
                size = None if None in sizes or not sizes else sum(s or 0 for s in sizes)
                self.view.transfers.append(Transfer(self._number[source], self._number[target], kind, size))
