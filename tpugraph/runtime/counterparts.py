"""What of a ``tf.Graph`` only a TPU runs, once more in the same graph, on emulated cores."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis.sides_of_step import NodeSet
from tpugraph.ir import Graph, Node, Tensor, graphdef
from tpugraph.ir.loops import frames, frames_around
from tpugraph.runtime.emulator import free_graphs

SCOPE = "tpugraph_cores"
"""Below this scope the nodes are named that run in the place of TPU ops."""

_TPU_OPS = ops.TPU_SYSTEM | free_graphs.FEEDS | frozenset(free_graphs.SERVED)
_held: weakref.WeakKeyDictionary[Any, Counterparts] = weakref.WeakKeyDictionary()


class Counterparts:
    """The emulated counterparts of the ops of one graph: of those that only a TPU runs, and of all that depends on them.

    They are added to the graph itself, so that a session has one set of variables, queues and iterators for both. What
    depends on no TPU op has no counterpart.

    Args:
        graph: the ``tf.Graph``.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = weakref.ref(graph)
        self._lock = threading.Lock()
        self._version = self._looked_at = self._seen = 0
        self._needed = False
        self._of: dict[str, Any] = {}

    def needed(self) -> bool:
        """Whether the graph has ops that only a TPU runs, as far as it is made."""
        graph = self._graph()
        with self._lock:
            if graph is not None and not self._needed and graph.version != self._looked_at:
                operations = graph.get_operations()
                self._needed = any(op.type in _TPU_OPS for op in operations[self._seen :])
                self._seen, self._looked_at = len(operations), graph.version
            return self._needed

    def update(self) -> None:
        """Take over what the graph was given since the last time.

        Raises:
            RunError: something in it is not emulated.
        """
        graph = self._graph()
        with self._lock:
            if graph is not None and graph.version != self._version:
                self._add(graph)
                self._version = graph.version

    def of(self, element: Any) -> Any | None:
        """The counterpart of a ``tf.Tensor`` or ``tf.Operation``; None where it has none."""
        operation = getattr(element, "op", element)
        found = self._of.get(operation.name)
        if found is None or element is operation:
            return found
        return found.outputs[element.value_index]

    def _add(self, graph: Any) -> None:
        whole = graphdef.from_graph_def(graph.as_graph_def(), source="the program's graph")
        own = {node.name for node in whole}
        moved = {node.name for node in depending(whole, free_graphs.tpu_nodes(whole))}
        if len(moved) == len(moved & self._of.keys()):
            return
        free_graphs.lower_parts(whole)
        made = [node for node in whole if node.name in moved or node.name not in own]
        new = [node for node in made if node.name not in self._of]
        for enter in set(new).intersection(whole.of_type(*ops.ENTER)):
            whole.set_attr(enter, "frame_name", f"{SCOPE}/{enter.attr('frame_name')}")
        self._import(graph, whole, new)

    def _import(self, graph: Any, lowered: Graph, new: list[Node]) -> None:
        chosen, names, finalized = set(new), [node.name for node in new], graph.finalized
        if finalized:
            graph._unsafe_unfinalize()
        try:
            with graph.as_default(), tf.control_dependencies(None), tf.compat.v1.device(None), tf.name_scope(""):
                given = {_text(t): self._tensor(graph, t) for n in new for t in n.inputs if t.node not in chosen}
                given |= {f"^{c.name}": self._signal(graph, c) for n in new for c in n.controls if c not in chosen}
                found = tf.graph_util.import_graph_def(graphdef.part(lowered, new), given, names, name=SCOPE)
        finally:
            if finalized:
                graph.finalize()
        self._of.update(zip(names, found, strict=True))

    def _tensor(self, graph: Any, tensor: Tensor) -> Any:
        return self._operation(graph, tensor.node).outputs[tensor.port]

    def _signal(self, graph: Any, node: Node) -> Any:
        """A tensor that is there when the op of a node has run."""
        operation = self._operation(graph, node)
        if operation.outputs:
            return operation.outputs[0]
        with tf.control_dependencies([operation]):
            return tf.constant(0, name=f"{SCOPE}/after")

    def _operation(self, graph: Any, node: Node) -> Any:
        found = self._of.get(node.name)
        return graph.get_operation_by_name(node.name) if found is None else found


def counterparts_of(graph: Any) -> Counterparts:
    """The counterparts of a ``tf.Graph``; one and the same object for all sessions on it."""
    return _held.setdefault(graph, Counterparts(graph))


def depending(graph: Graph, nodes: Iterable[Node]) -> NodeSet:
    """The nodes and all that depends on them; of a loop of TensorFlow 1, of which something does, the whole."""
    frame_of, around = frames(graph), frames_around(graph)
    found: NodeSet = graph.descendants(nodes)
    while True:
        touched = {frame_of[node] for node in found} - {""}
        touched |= {around[frame] for frame in touched} - {""}
        loops = [node for node, frame in frame_of.items() if frame in touched and node not in found]
        if not loops:
            return found
        found = graph.descendants([*found, *loops])


def _text(tensor: Tensor) -> str:
    return f"{tensor.node.name}:{tensor.port}"
