"""TPU ops in any ``tf.Session``, on emulated cores: each is lowered to ops of the same graph that run in its place."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.client.session import BaseSession

from tpugraph import ops
from tpugraph.analysis.sides_of_step import CLUSTER_ATTR, NodeSet
from tpugraph.ir import Graph, Node, Tensor, graphdef
from tpugraph.ir.loops import frames, frames_around
from tpugraph.runtime.emulator import lower_any_cluster
from tpugraph.support.errors import RunError

SCOPE = "tpugraph_cores"
"""Below this scope the nodes are named that run in the place of TPU ops."""

_TPU_OPS = ops.TPU_SYSTEM | lower_any_cluster.FEEDS | frozenset(lower_any_cluster.SERVED)
_held: weakref.WeakKeyDictionary[Any, Counterparts] = weakref.WeakKeyDictionary()


def refuse_replica_ids(operations: Iterable[Any]) -> None:
    """Refuse ops that ask for the number of a core outside of what cores run: TensorFlow would end the process.

    Raises:
        RunError: there is one; the node is named.
    """
    for operation in operations:
        if operation.type in ops.REPLICA_IDS and CLUSTER_ATTR not in operation.node_def.attr:
            raise RunError(
                f"{operation.type} is the number of a core, and this runs on none",
                node=f"{operation.name} ({operation.type})",
                fix="ask params for 'context', or use_tpu, before xla.replica_id() is called",
            )


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
                refuse_replica_ids(operations[self._seen :])
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
        moved = {node.name for node in depending(whole, lower_any_cluster.tpu_nodes(whole))}
        if len(moved) == len(moved & self._of.keys()):
            return
        lower_any_cluster.lower_parts(whole)
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


tf1 = tf.compat.v1


class _OnCores:
    """The base of TensorFlow's sessions that puts counterparts in the place of what only a TPU runs."""

    graph: Any
    _config: Any
    _target: Any
    _with_tpu: bool | None = None
    _has_run = False

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None,
            run_metadata: Any = None) -> Any:  # fmt: skip
        """As ``tf.Session.run``.

        Raises:
            RunError: a TPU op that is not emulated, or the first one of a graph that this session has run without.
        """
        held = self._counterparts()
        self._has_run = True
        if held is not None:
            fetches = _in_structure(fetches, partial(_instead, self.graph, held))
            feed_dict = _fed(self.graph, held, feed_dict)
        return super().run(fetches, feed_dict, options, run_metadata)  # type: ignore[misc]

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] | None = None,
                      accept_options: bool = False) -> Callable[..., Any]:  # fmt: skip
        """As ``tf.Session.make_callable``."""
        if self._counterparts() is None:
            return super().make_callable(fetches, feed_list, accept_options)  # type: ignore[misc, no-any-return]
        keys = list(feed_list or ())

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            return self.run(fetches, dict(zip(keys, values, strict=True)), options, run_metadata)

        return call

    def _counterparts(self) -> Counterparts | None:
        """Those of the graph; None where it has none, or where there is a TPU."""
        held = counterparts_of(self.graph)
        if self._with_tpu or not held.needed():
            return None
        if self._with_tpu is None:
            self._with_tpu = any(device.device_type.startswith("TPU") for device in self.list_devices())  # type: ignore[attr-defined]
            if self._with_tpu:
                return None
        self._place_what_runs()
        held.update()
        return held

    def _place_what_runs(self) -> None:
        """See that TensorFlow looks for kernels of what is run, and not of the whole graph with its TPU ops.

        It optimises nothing then, so that sessions are made without. TensorFlow asks for it when a session is made: one in
        which nothing has run is made anew.
        """
        if self._config.graph_options.place_pruned_graph:
            return
        if self._has_run:
            raise RunError("the graph was given its first TPU op after this session had run without",
                           fix="make the graph before the first run, or the session with "
                               "config.graph_options.place_pruned_graph = True")  # fmt: skip
        config = tf1.ConfigProto()
        config.CopyFrom(self._config)
        config.graph_options.place_pruned_graph = True
        BaseSession.__del__(self)  # what was made and not used
        BaseSession.__init__(self, self._target, self.graph, config)


def emulate_tpu_ops() -> None:
    """From now on every ``tf.compat.v1.Session`` of this process runs TPU ops on emulated cores, whoever opens it.

    All other ops run as ever, and on a master with TPUs all do.
    """
    for kind in (tf1.Session, tf1.InteractiveSession):
        if not issubclass(kind, _OnCores):
            kind.__bases__ = (_OnCores, *kind.__bases__)


def _in_structure(fetches: Any, replace: Callable[[Any], Any]) -> Any:
    """Fetches with each replaced; the keys of a dict, which hooks are in a monitored session, need no order as in tf.nest."""
    if isinstance(fetches, dict):
        found = copy(fetches)  # of its own type, which the result has too
        found.update({key: _in_structure(value, replace) for key, value in fetches.items()})
        return found
    if type(fetches) in (list, tuple):
        return type(fetches)(_in_structure(value, replace) for value in fetches)
    return tf.nest.map_structure(replace, fetches, expand_composites=True)


def _instead(graph: Any, held: Counterparts, fetch: Any) -> Any:
    """What is run for a fetch, feed or name of one."""
    try:
        element = graph.as_graph_element(fetch)
    except (KeyError, TypeError, ValueError):  # TensorFlow says so in its own words
        return fetch
    found = held.of(element)
    return fetch if found is None else found


def _fed(graph: Any, held: Counterparts, feed: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """A feed dict that feeds a tensor and what stands for it."""
    given = dict(feed or {})
    return given | {found: value for key, value in given.items() if (found := _instead(graph, held, key)) is not key}
