"""TPU ops in any ``tf.Session``, on emulated cores: each is lowered to ops of the same graph that run in its place.

:func:`~tpugraph.runtime.emulator.emulation.lower` takes the one form of a whole training or evaluation, and makes one loop of
it. Here each cluster is lowered by itself, and infeed and outfeed are queues by the number of the core: a graph may have several
clusters, feeds in runs of their own, and served calls.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client.session import BaseSession
from tensorflow.python.tpu import device_assignment, topology

from tpugraph import ops
from tpugraph.analysis import in_cluster, shapes
from tpugraph.analysis.sides_of_step import CLUSTER_ATTR, NodeSet, cluster_nodes
from tpugraph.analysis.varying_values import varying_on
from tpugraph.control_flow import inlining
from tpugraph.control_flow.lower_functional import replace_call
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library, graphdef
from tpugraph.ir.attrs import DType
from tpugraph.ir.loops import frames, frames_around
from tpugraph.runtime.emulator.copies import clear_places, copy_per_core, lower_boundary, lower_sums, lower_system
from tpugraph.runtime.emulator.infeed_outfeed import duplicate, use_queue
from tpugraph.support.errors import RunError

# --------------------------------------------------------------------------- the mesh of cores

CORES_OF_A_HOST = 8
_REPLICAS = {1: (1, 1, 1, 1), 2: (1, 1, 1, 2), 4: (1, 2, 1, 2), 8: (2, 2, 1, 2)}
"""By its number of cores the part of the mesh that a replica takes; a larger one takes whole hosts."""


def assignment(num_replicas: int, cores_per_replica: int) -> Any:
    """Where the cores of each replica lie, a ``tf.tpu.experimental.DeviceAssignment``."""
    mesh = topology_of(-(-num_replicas * cores_per_replica // CORES_OF_A_HOST))
    part = _REPLICAS.get(cores_per_replica) or (2, cores_per_replica // 4, 1, 2)
    return device_assignment.device_assignment(mesh, list(part), num_replicas=num_replicas)


def topology_of(hosts: int) -> Any:
    """The mesh of so many hosts, a ``tf.tpu.experimental.Topology``."""
    cores = [(x, y, 0, core) for y in range(2 * hosts) for x in range(2) for core in range(2)]
    places = np.asarray(cores, np.int32).reshape(hosts, CORES_OF_A_HOST, 4)
    return topology.Topology(mesh_shape=np.asarray((2, 2 * hosts, 1, 2), np.int32), device_coordinates=places)


# --------------------------------------------------------------------------- lowering

_GIVEN: dict[str, Callable[[Node], tuple[list[DType], Sequence[Tensor]]]] = {
    "TPUPartitionedCall": lambda node: (node.attr("Tin"), node.inputs[:-1]),  # without the number of a core
    "BatchFunction": lambda node: ([*node.attr("Tin"), *node.attr("Tcaptured")], node.inputs),
}
"""What the function of such a call is given: the dtypes, and the tensors."""

SERVED = tuple(_GIVEN)  # calls of functions that an exported model makes on a TPU, and for batches of requests

_TUPLE_OF = {
    "InfeedEnqueue": "InfeedEnqueueTuple", "InfeedDequeue": "InfeedDequeueTuple",
    "OutfeedEnqueue": "OutfeedEnqueueTuple", "OutfeedDequeue": "OutfeedDequeueTuple",
}  # fmt: skip
FEEDS = frozenset({*_TUPLE_OF, *_TUPLE_OF.values()})  # ops that put values into the feeds of a core or take them out

_MOST_FED = 64  # elements of an infeed: a program may feed several steps before it runs one
_CORE_OF_DEVICE = re.compile(r"TPU:(\d+)")


def tpu_nodes(graph: Graph) -> list[Node]:
    """The nodes that only a TPU runs: of clusters, their ends, the feeds, the system, and calls of functions with such nodes."""
    return [*graph.of_type(*ops.TPU_SYSTEM, *_TUPLE_OF), *cluster_nodes(graph), *_calls_on_tpu(graph)]


def lower_parts(graph: Graph) -> None:
    """Turn the TPU ops of a graph into ops that any TensorFlow runs, in place."""
    while calls := _calls_on_tpu(graph):  # requests are computed one by one, not in batches
        for node in calls:
            _inline_call(graph, node)
    shapes.infer(graph)
    _as_tuples(graph)
    for metadata in graph.of_type("TPUReplicateMetadata"):
        _lower_cluster(graph, metadata)
    for node in graph.of_type("InfeedEnqueueTuple", "OutfeedDequeueTuple"):
        use_queue(graph, node, _core(node), most=_MOST_FED)
    mesh = np.asarray(topology_of(1).serialized(), dtype=object)
    for node in graph.of_type("TPUOrdinalSelector"):
        graph.retype(node, "Const", attrs={"dtype": attrs.dtype("int32"), "value": np.zeros(1, "int32")})
    configured = [node.name for node in graph.of_type("ConfigureDistributedTPU")]
    lower_system(graph)
    for name in configured:
        graph.set_attr(graph[name], "value", mesh)
    clear_places(graph)


# --------------------------------------------------------------------------- calls


def _calls_on_tpu(graph: Graph) -> list[Node]:
    """The nodes that call functions with TPU ops in themselves or in what they call."""

    def holds_tpu_ops(node: Node) -> bool:
        functions = function_library.used_by(graph, [node]).values()
        return any(made.op in ops.TPU_SYSTEM | FEEDS for function in functions for made in function.node_def)

    return [*filter(holds_tpu_ops, graph.of_type(*SERVED, *ops.CALLS, *function_library.functions_named(graph)))]


def _inline_call(graph: Graph, node: Node) -> None:
    known, cluster = set(graph), node.attr(CLUSTER_ATTR, None)
    _as_plain_call(graph, node)
    calls = inlining.calls_of(graph, [node])
    reader, replaced = inlining.hold(graph, calls[0]), []
    while calls:
        call = calls.pop()
        calls += replace_call(graph, call)
        replaced.append(call.node)
    inlining.keep_name(graph, node, reader)
    graph.remove_all(replaced[1:])
    for made in [n for n in graph if n not in known]:
        if cluster is not None:
            graph.set_attr(made, CLUSTER_ATTR, cluster)
        elif in_cluster(made):  # each call has a cluster of its own
            graph.set_attr(made, CLUSTER_ATTR, f"{node.name}/{made.attr(CLUSTER_ATTR)}")


def _as_plain_call(graph: Graph, node: Node) -> None:
    """Let one of the SERVED be a call of its function and nothing more; any other node stays."""
    given = _GIVEN.get(node.op)
    if given is None:
        return
    kinds, inputs = given(node)
    attributes = {"Tin": kinds, "Tout": node.attr("Tout"), "f": node.attr("f")}
    graph.retype(node, "StatefulPartitionedCall", inputs=inputs, attrs=attributes)


# --------------------------------------------------------------------------- clusters


def _lower_cluster(graph: Graph, metadata: Node) -> None:
    if metadata.attr("num_cores_per_replica", 1) != 1:
        raise RunError("a replica that spans several cores is not emulated", node=metadata,
                       fix="leave device_assignment and num_cores_per_replica away")  # fmt: skip
    name = metadata.attr(CLUSTER_ATTR)
    cluster: NodeSet = {node: None for node in graph if in_cluster(node) and node.attr(CLUSTER_ATTR) == name}
    inputs = [n for n in graph.of_type("TPUReplicatedInput") if any(reader in cluster for reader in n.consumers())]
    outputs = [node for node in graph.of_type("TPUReplicatedOutput") if node.inputs[0].node in cluster]
    sums = [node for node in graph.of_type("CrossReplicaSum") if node in cluster]
    feeds = [node for node in graph.of_type("InfeedDequeueTuple", "OutfeedEnqueueTuple") if node in cluster]
    copies = copy_per_core(graph, varying_on(graph, cluster), metadata.attr("num_replicas"))
    for node in feeds:
        own = copies.varies(node)  # what all cores have alike is sent by each
        sent = copies.nodes(node) if own else [node, *(duplicate(graph, node) for _ in range(copies.count - 1))]
        for core, each in enumerate(sent):
            use_queue(graph, each, core, most=_MOST_FED)
    lower_sums(graph, copies, sums)
    lower_boundary(graph, copies, inputs, outputs)


# --------------------------------------------------------------------------- infeed and outfeed


def _core(node: Node) -> int:
    """The core whose feed a host's node serves: its number, else that of the device it is put on."""
    ordinal = int(node.attr("device_ordinal", -1))
    if ordinal >= 0:
        return ordinal
    placed = _CORE_OF_DEVICE.search(node.device)
    return int(placed.group(1)) if placed else 0


def _as_tuples(graph: Graph) -> None:
    """Feeds of one tensor become feeds of a tuple of one."""
    for node in graph.of_type(*_TUPLE_OF):
        given = {"dtypes": [node.attr("dtype")]}
        if node.has_attr("device_ordinal"):
            given["device_ordinal"] = node.attr("device_ordinal")
        graph.retype(node, _TUPLE_OF[node.op], attrs=given)


SCOPE = "tpugraph_cores"  # below this scope the nodes are named that run in the place of TPU ops
_TPU_OPS = ops.TPU_SYSTEM | FEEDS | frozenset(SERVED)
# of a graph, for all sessions on it
_held: weakref.WeakKeyDictionary[Any, EmulatedOps] = weakref.WeakKeyDictionary()


def refuse_replica_ids(operations: Iterable[Any]) -> None:
    """Refuse ops that ask for the number of a core outside of what cores run: TensorFlow would end the process."""
    for operation in operations:
        if operation.type in ops.REPLICA_IDS and CLUSTER_ATTR not in operation.node_def.attr:
            raise RunError(f"{operation.type} is the number of a core, and this runs on none",
                           node=f"{operation.name} ({operation.type})",
                           fix="ask params for 'context', or use_tpu, before xla.replica_id() is called")  # fmt: skip


class EmulatedOps:
    """The emulated ops of one graph: of those that only a TPU runs, and of all that depends on them.

    They are added to the graph itself, so that a session has one set of variables, queues and iterators for both. What
    depends on no TPU op has no emulated op.
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
        """Take over what the graph was given since the last time."""
        graph = self._graph()
        with self._lock:
            if graph is not None and graph.version != self._version:
                self._add(graph)
                self._version = graph.version

    def of(self, element: Any) -> Any | None:
        """The emulated op of a ``tf.Tensor`` or ``tf.Operation``; None where it has none."""
        operation = getattr(element, "op", element)
        found = self._of.get(operation.name)
        if found is None or element is operation:
            return found
        return found.outputs[element.value_index]

    def _add(self, graph: Any) -> None:
        whole = graphdef.from_graph_def(graph.as_graph_def(), source="the program's graph")
        own = {node.name for node in whole}
        moved = {node.name for node in depending(whole, tpu_nodes(whole))}
        if len(moved) == len(moved & self._of.keys()):
            return
        lower_parts(whole)
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
                given = {str(t): self._tensor(graph, t) for n in new for t in n.inputs if t.node not in chosen}
                given |= {f"^{c.name}": self._signal(graph, c) for n in new for c in n.controls if c not in chosen}
                found = tf.graph_util.import_graph_def(graphdef.to_graph_def(lowered, new), given, names, name=SCOPE)
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


tf1 = tf.compat.v1


class _EmulatingSession:
    """The base of TensorFlow's sessions that puts emulated ops in the place of what only a TPU runs."""

    graph: Any
    _config: Any
    _target: Any
    _with_tpu: bool | None = None
    _has_run = False

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None, options: Any = None,
            run_metadata: Any = None) -> Any:  # fmt: skip
        held = self._emulated_ops()
        self._has_run = True
        if held is not None:
            fetches = _map_fetches(fetches, partial(_replacement, self.graph, held))
            feed_dict = _replaced_feed(self.graph, held, feed_dict)
        return super().run(fetches, feed_dict, options, run_metadata)  # type: ignore[misc]

    def make_callable(self, fetches: Any, feed_list: Sequence[Any] | None = None,
                      accept_options: bool = False) -> Callable[..., Any]:  # fmt: skip
        if self._emulated_ops() is None:
            return super().make_callable(fetches, feed_list, accept_options)  # type: ignore[misc, no-any-return]
        keys = list(feed_list or ())

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            return self.run(fetches, dict(zip(keys, values, strict=True)), options, run_metadata)

        return call

    def _emulated_ops(self) -> EmulatedOps | None:
        """Those of the graph; None where it has none, or where there is a TPU."""
        held = _held.setdefault(self.graph, EmulatedOps(self.graph))
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
        if not issubclass(kind, _EmulatingSession):
            kind.__bases__ = (_EmulatingSession, *kind.__bases__)


def _map_fetches(fetches: Any, replace: Callable[[Any], Any]) -> Any:
    """Fetches with each replaced; the keys of a dict, which hooks are in a monitored session, need no order as in tf.nest."""
    if isinstance(fetches, dict):
        found = copy(fetches)  # of its own type, which the result has too
        found.update({key: _map_fetches(value, replace) for key, value in fetches.items()})
        return found
    if type(fetches) in (list, tuple):
        return type(fetches)(_map_fetches(value, replace) for value in fetches)
    return tf.nest.map_structure(replace, fetches, expand_composites=True)


def _replacement(graph: Any, held: EmulatedOps, fetch: Any) -> Any:
    """What is run for a fetch, feed or name of one."""
    try:
        element = graph.as_graph_element(fetch)
    except (KeyError, TypeError, ValueError):  # TensorFlow says so in its own words
        return fetch
    found = held.of(element)
    return fetch if found is None else found


def _replaced_feed(graph: Any, held: EmulatedOps, feed: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """A feed dict that feeds a tensor and what stands for it."""
    given = dict(feed or {})
    return given | {
        found: value for key, value in given.items() if (found := _replacement(graph, held, key)) is not key
    }
