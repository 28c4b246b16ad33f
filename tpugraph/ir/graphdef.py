"""The door between files and :class:`~tpugraph.ir.Graph`: GraphDef, MetaGraphDef, SavedModel, Estimator folders.

The kind of a file is told from its content, never from its name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tpugraph import ops
from tpugraph.ir import Graph, Node
from tpugraph.ir.door import Door, Wired
from tpugraph.ir.frames import check_loops
from tpugraph.ir.wiring import wire
from tpugraph.support import files
from tpugraph.support.errors import GraphError, LoadError

_COLLECTIONS = (
    "train_op",
    "losses",
    "trainable_variables",
    "variables",
    "local_variables",
    "global_step",
    "summaries",
    "queue_runners",
    "update_ops",
    "savers",
    "table_initializer",
    "init_op",
    "local_init_op",
)
_MAX_BYTES = 2**31 - 1  # the protobuf limit
NAMES_IN_A_FOLDER = ("saved_model.pb", "saved_model.pbtxt", "graph.pbtxt", "model.pb")
"""What a folder's graph is called, beside ``*.meta``; a SavedModel comes first, what Estimator writes as text last."""


@dataclass(frozen=True)
class Loaded:
    """What a path held: a protobuf of one kind and the file it was read from."""

    kind: str
    graph_def: Any
    meta: Any
    path: Path


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from a file or folder.

    Args:
        path: a GraphDef (binary or text), a MetaGraphDef, a SavedModel (file or folder), an event file, or an Estimator's
            model_dir (its newest ``.meta``, else ``graph.pbtxt``) or folder of evaluations (its newest event file).

    Raises:
        LoadError: nothing there, not a graph, or a graph that is not well formed.
    """
    loaded = sniff(Path(path))
    graph = from_graph_def(loaded.graph_def, source=str(path))
    if loaded.meta is not None:
        graph.collections = _collections(loaded.meta, str(path))
    return graph


def sniff(path: Path) -> Loaded:
    """Tell what a path holds and parse it; see :func:`load`."""
    if path.is_dir():
        return _sniff_folder(path)
    if not path.exists():
        raise LoadError(f"there is no file '{path}'", fix="check the path")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"'{path}' cannot be read: {error.strerror}", fix="check the file's permissions") from error
    if not data:
        raise LoadError(f"'{path}' is empty", fix="copy the file again")
    if _EVENTS in data[:_EVENTS_WITHIN]:
        return _from_events([path])
    found = _sniff_text(data) if _is_text(data) else _sniff_binary(data)
    if found is None:
        raise LoadError(
            f"'{path}' is {_describe(data)}",
            fix="give a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta), a SavedModel, an event file or a model_dir",
        )
    kind, message = found
    meta = message.meta_graphs[0] if kind == "SavedModel" else message if kind == "MetaGraphDef" else None
    return Loaded(kind, message if meta is None else meta.graph_def, meta, path)


def _sniff_folder(path: Path) -> Loaded:
    for name in NAMES_IN_A_FOLDER[:2]:
        if (path / name).exists():
            return sniff(path / name)
    metas = sorted(path.glob("*.meta"), key=lambda p: (p.stat().st_mtime, _step_of(p)))
    if metas:
        return sniff(metas[-1])
    for name in NAMES_IN_A_FOLDER[2:]:
        if (path / name).exists():
            return sniff(path / name)
    events = sorted(path.glob(EVENT_FILES), key=lambda p: (p.stat().st_mtime, p.name), reverse=True)
    if events:
        return _from_events(events)
    raise LoadError(
        f"the folder '{path}' holds no graph",
        fix="give a model_dir with a .meta or graph.pbtxt file, a SavedModel folder, or a file",
    )


EVENT_FILES = "*.tfevents.*"
"""The event files of a folder, such as an Estimator's folder of evaluations."""
_EVENTS, _EVENTS_WITHIN = b"brain.Event:", 64  # what the first record of an event file says


def _from_events(paths: Sequence[Path]) -> Loaded:
    """The first graph of the first event file that has one."""
    import tensorflow as tf

    for path in paths:
        try:
            for event in tf.compat.v1.train.summary_iterator(str(path)):
                graph_def = graph_pb2.GraphDef.FromString(event.graph_def)
                if graph_def.node:
                    return Loaded("event file", graph_def, None, path)
        except tf.errors.DataLossError:  # the end of a file that is still written, or was cut off
            continue
    raise LoadError(
        f"the event file '{paths[0]}' holds no graph",
        fix="give the event file of a run that wrote its graph, as Estimator.evaluate does",
    )


def _step_of(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _is_text(data: bytes) -> bool:
    head = data[:4096]
    return b"\0" not in head and not any(b < 9 for b in head)


def _sniff_text(data: bytes) -> tuple[str, Any] | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # The first field of a SavedModel, a MetaGraphDef and a GraphDef tells them apart.
    head = text.lstrip()[:200]
    kinds: list[tuple[str, Any]] = [("GraphDef", graph_pb2.GraphDef)]
    if head.startswith(("saved_model_schema_version", "meta_graphs")):
        kinds = [("SavedModel", saved_model_pb2.SavedModel)]
    elif head.startswith(("meta_info_def", "graph_def")):
        kinds = [("MetaGraphDef", meta_graph_pb2.MetaGraphDef)]
    for kind, message_type in kinds:
        message = message_type()
        try:
            text_format.Parse(text, message)
        except (text_format.ParseError, RecursionError):
            continue
        if _plausible(kind, message):
            return kind, message
    return None


def _sniff_binary(data: bytes) -> tuple[str, Any] | None:
    kinds: tuple[tuple[str, Any], ...] = (
        ("GraphDef", graph_pb2.GraphDef),
        ("MetaGraphDef", meta_graph_pb2.MetaGraphDef),
        ("SavedModel", saved_model_pb2.SavedModel),
    )
    for kind, message_type in kinds:
        message = message_type()
        try:
            message.ParseFromString(data)
        except (DecodeError, RuntimeError):
            continue
        if _plausible(kind, message):
            return kind, message
    return None


def _plausible(kind: str, message: Any) -> bool:
    if kind == "SavedModel":
        return bool(message.meta_graphs) and _plausible("MetaGraphDef", message.meta_graphs[0])
    graph_def = message.graph_def if kind == "MetaGraphDef" else message
    return bool(graph_def.node) and all(node.name and node.op for node in graph_def.node)


def _describe(data: bytes) -> str:
    """What a file that is no graph seems to be."""
    if data.startswith(b"\x89HDF"):
        return "an HDF5 file (Keras weights), not a graph"
    if data.startswith(b"PK\x03\x04"):
        return "a zip archive, not a graph"
    if _is_text(data):
        return "text, but not a graph in text form (it may be cut off)"
    return "not a graph (it may be cut off, or another kind of file)"


# --------------------------------------------------------------------------- protobuf -> Graph


def from_graph_def(graph_def: Any, *, source: str = "") -> Graph:
    """A Graph of a GraphDef, checked at the :mod:`~tpugraph.ir.door`.

    Raises:
        LoadError: something in it is not as TensorFlow defines it.
    """
    graph, wired = _read(graph_def, source)
    ordered = Door(graph_def.library, source).check(wired)
    graph.adopt(wired)
    try:
        check_loops(graph, ordered=ordered)
    except GraphError as error:
        raise LoadError(error.fault, node=error.node, origin=source, fix=error.fix) from error
    return graph


def copy(graph: Graph) -> Graph:
    """The same graph once more, for what edits it on trial; what is known of shapes and roles is not copied."""
    copied, wired = _read(to_graph_def(graph), graph.source)
    copied.adopt(wired)
    return copied


def _read(graph_def: Any, source: str) -> tuple[Graph, list[Wired]]:
    """An empty Graph with the library of a GraphDef, and the nodes that belong into it with their inputs."""
    graph = Graph()
    graph.source = source
    graph.library = graph_def.library
    graph.versions = graph_def.versions
    by_name: dict[str, Node] = {}
    texts: list[tuple[Node, Sequence[str]]] = []
    for definition in graph_def.node:
        name = definition.name
        if name in by_name:
            raise LoadError(f"two nodes have the name '{name}'", node=name, origin=source, fix="write the graph again")
        attributes = definition.attr
        node = by_name[name] = Node(
            definition.op, name, definition.device, {key: attributes[key] for key in attributes}
        )
        texts.append((node, definition.input[:]))
    return graph, list(wire(texts, by_name, source))


def _collections(meta: Any, source: str) -> dict[str, list[str]]:
    """Collections as names; protobuf entries (variables, queue runners) are given by their first name."""
    found: dict[str, list[str]] = {}
    for key, collection in meta.collection_def.items():
        if key not in _COLLECTIONS:
            continue
        try:
            names = _names_in(key, collection)
        except (DecodeError, UnicodeDecodeError) as error:
            raise LoadError(f"the collection '{key}' is damaged", origin=source, fix="write the graph again, or copy it "
                            "again") from error  # fmt: skip
        if names is not None:
            found[key] = names
    return found


def _names_in(key: str, collection: Any) -> list[str] | None:
    from tensorflow.core.framework import variable_pb2
    from tensorflow.core.protobuf import queue_runner_pb2

    kind = collection.WhichOneof("kind")
    if kind == "node_list":
        return list(collection.node_list.value)
    if kind != "bytes_list" or key == "savers":
        return None
    values = collection.bytes_list.value
    if key == "queue_runners":
        return [name for value in values for name in queue_runner_pb2.QueueRunnerDef.FromString(value).enqueue_op_name]
    return [variable_pb2.VariableDef.FromString(value).variable_name.removesuffix(":0") for value in values]


# --------------------------------------------------------------------------- Graph -> protobuf


def to_graph_def(graph: Graph) -> Any:
    """The GraphDef of a graph, nodes in graph order, control inputs last."""
    graph_def = _without_nodes(graph)
    add = graph_def.node.add
    groups: dict[int, list[str]] = {}  # the control inputs of all that wait for the same nodes
    for node in graph:
        definition = add()
        if node._written is None or ops.is_folded_away(node.op):
            _write(definition, node)
        else:
            definition.CopyFrom(node._written)
        if node.device:
            definition.device = node.device
        if node.controls:
            group = groups.get(id(node.controls))
            if group is None:
                group = groups[id(node.controls)] = [f"^{control.name}" for control in node.controls]
            definition.input.extend(group)
        for key, value in node._attrs.items():
            if key[0] == "_" and key != _TOLD_SHAPES:
                definition.attr[key].CopyFrom(value)
    return graph_def


def definitions(graph: Graph, nodes: Sequence[Node]) -> Any:
    """Some nodes as a GraphDef, as far as dtypes and shapes depend on it: without devices and control inputs."""
    graph_def = _without_nodes(graph)
    add = graph_def.node.add
    for node in nodes:
        node._written = definition = add()
        _write(definition, node)
        if ops.is_folded_away(node.op):
            _keep_from_running(definition)
    return graph_def


def without_folding(graph_def: Any) -> Any:
    """The same GraphDef, changed so that TensorFlow runs nothing of it while it imports it: for dtypes and shapes only."""
    for definition in graph_def.node:
        if ops.is_folded_away(definition.op):
            _keep_from_running(definition)
    return graph_def


def _keep_from_running(definition: Any) -> None:
    """TensorFlow runs what it calls stateless, ReadFile among it, where a shape is computed from that, but no node that asks
    for a kernel that is not there; dtypes and shapes need none.
    """
    definition.attr["_kernel"].s = b"not while the graph is imported"


_TOLD_SHAPES = "_output_shapes"


def _write(definition: Any, node: Node) -> None:
    """All of a node that dtypes and shapes depend on."""
    definition.name = node.name
    definition.op = node.op
    if node.inputs:
        definition.input.extend([f"{maker.name}:{port}" if port else maker.name for maker, port in node.inputs])
    attributes = definition.attr
    for key, value in node._attrs.items():
        if key[0] != "_" or key == _TOLD_SHAPES:
            attributes[key].CopyFrom(value)


def _without_nodes(graph: Graph) -> Any:
    graph_def = graph_pb2.GraphDef()
    if graph.library is not None:
        graph_def.library.CopyFrom(graph.library)
    if graph.versions is not None:
        graph_def.versions.CopyFrom(graph.versions)
    return graph_def


def serialize(message: Message) -> bytes:
    """The bytes of a protobuf, the same for the same content.

    Raises:
        LoadError: more than 2 GiB, which a protobuf cannot hold; the biggest constants are named.
    """
    size = message.ByteSize()
    if size > _MAX_BYTES:
        raise LoadError(
            f"the graph has {size / 2**30:.2f} GiB, more than the 2 GiB that a GraphDef can hold",
            fix="read the data from files instead of constants: " + ", ".join(biggest_constants(message)),
        )
    return message.SerializeToString(deterministic=True)


def biggest_constants(graph_def: Any, count: int = 3) -> list[str]:
    """The names of the biggest constants with their sizes."""
    constants = sorted((n for n in graph_def.node if n.op in ops.CONSTANTS), key=lambda n: -n.ByteSize())
    return [f"{n.name} ({n.ByteSize() / 2**20:.1f} MiB)" for n in constants[:count]]


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph as a binary GraphDef; the file is whole or not there."""
    files.write_atomically(Path(path), serialize(to_graph_def(graph)))


def save_meta(loaded: Loaded, path: str | os.PathLike[str]) -> None:
    """Write a graph that was read, with its collections, as a MetaGraphDef; the file is whole or not there.

    Raises:
        LoadError: the place cannot be written, or the graph has more than 2 GiB.
    """
    meta = meta_graph_pb2.MetaGraphDef(graph_def=loaded.graph_def) if loaded.meta is None else loaded.meta
    files.write_atomically(Path(path), serialize(meta))
