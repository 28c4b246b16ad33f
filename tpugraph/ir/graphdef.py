"""Converts between files and :class:`~tpugraph.ir.Graph`: GraphDef, MetaGraphDef, SavedModel, Estimator folders.

The kind of a file is detected from its content, never from its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tpugraph import ops
from tpugraph.ir import Graph, Node
from tpugraph.ir.loops import check_loops
from tpugraph.ir.model_files import Loaded, collections_of, embedded_plain, signatures_of
from tpugraph.ir.model_files import sniff as sniff
from tpugraph.ir.node import PLACE, Wired, assign, wire
from tpugraph.ir.validate import FIX, Validator, guard
from tpugraph.support import files
from tpugraph.support.errors import GraphError, LoadError

_MAX_BYTES = 2**31 - 1  # the protobuf limit


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a graph from a file or folder.

    Args:
        path: a GraphDef (binary or text), a MetaGraphDef, a SavedModel (file or folder), an event file, or an Estimator's
            model_dir (its newest ``.meta``, else ``graph.pbtxt``) or folder of evaluations (its newest event file).

    Raises:
        LoadError: no file, no graph, or a malformed graph.
    """
    return from_loaded(sniff(Path(path)), source=str(path))


def from_loaded(loaded: Loaded, *, source: str) -> Graph:
    """The Graph of a loaded file; a LoadError where it is malformed."""
    graph = from_graph_def(loaded.graph_def, source=source)
    if loaded.meta is not None:
        graph.collections = collections_of(loaded.meta, source)
        graph.signatures = signatures_of(loaded.meta)
    return graph


def from_graph_def(graph_def: Any, *, source: str = "") -> Graph:
    """The Graph of a GraphDef, checked by :mod:`~tpugraph.ir.validate`."""
    try:
        graph, wired = _read(graph_def, source)
        Validator(graph_def.library).check(wired)
        graph.adopt(wired)
        check_loops(graph)
    except GraphError as error:
        raise LoadError(error.fault, node=error.node, origin=source, fix=error.fix or FIX) from error
    return graph


def copy(graph: Graph, edit: Callable[[Any], None] = lambda graph_def: None) -> Graph:
    """A copy of the graph for tentative edits, without shapes and roles; ``edit`` may change its GraphDef first."""
    graph_def = to_graph_def(graph)
    edit(graph_def)
    copied, wired = _read(graph_def, graph.source)
    copied.adopt(wired)
    copied.collections = dict(graph.collections)
    return copied


def _read(graph_def: Any, source: str) -> tuple[Graph, list[Wired]]:
    """An empty Graph with the library of a GraphDef, and the nodes to add."""
    graph = Graph()
    graph.source = source
    graph.library = graph_def.library
    graph.versions = graph_def.versions
    texts = [
        (Node(definition.op, definition.name, definition.device, dict(definition.attr)), definition.input[:])
        for definition in graph_def.node
    ]
    return graph, wire(texts)


def to_graph_def(graph: Graph, nodes: Iterable[Node] | None = None) -> Any:
    """The GraphDef of a graph, or of some nodes with their inputs by name; nodes in graph order, control inputs last."""
    graph_def = _without_nodes(graph)
    add = graph_def.node.add
    groups: dict[int, list[str]] = {}  # shared by nodes with equal control inputs
    for node in graph if nodes is None else sorted(nodes, key=PLACE):
        definition = add()
        if node._definition is None or node in graph._stale or ops.is_folded_away(node.op) or node.op in ops.RANKS:
            _write(definition, node)
        else:
            definition.CopyFrom(node._definition)
        if node.device:
            definition.device = node.device
        if node.controls:
            group = groups.get(id(node.controls))
            if group is None:
                group = groups[id(node.controls)] = [f"^{control.name}" for control in node.controls]
            definition.input.extend(group)
        for key, value in node._attrs.items():
            if key[0] == "_" and key != "_output_shapes":
                definition.attr[key].CopyFrom(value)
    return graph_def


def definitions(graph: Graph, nodes: Iterable[Node]) -> Any:
    """Some nodes as a GraphDef for shape inference, without devices and control inputs.

    At import TensorFlow folds stateless ops, including ReadFile, where shapes depend on them, but not an op that requests a missing
    kernel; shape inference needs no kernel. Guards stand in front of ops whose shape functions abort.
    """
    graph_def = _without_nodes(graph)
    for node in nodes:
        definition = graph_def.node.add()
        _write(definition, node)
        assign(node, "_definition", definition)
        if ops.is_folded_away(node.op):  # to_graph_def writes these anew
            definition.attr["_kernel"].s = b"not while the graph is imported"
        if node.op in ops.RANKS:
            guard(graph_def.node, definition)
    return graph_def


def _write(definition: Any, node: Node) -> None:
    """The parts of a node that affect dtypes and shapes."""
    definition.name = node.name
    definition.op = node.op
    if node.inputs:
        definition.input.extend([f"{maker.name}:{port}" if port else maker.name for maker, port in node.inputs])
    attributes = definition.attr
    for key, value in node._attrs.items():
        if key[0] != "_" or key == "_output_shapes":
            attributes[key].CopyFrom(value)


def _without_nodes(graph: Graph) -> Any:
    graph_def = graph_pb2.GraphDef()
    if graph.library is not None:
        graph_def.library.CopyFrom(graph.library)
    if graph.versions is not None:
        graph_def.versions.CopyFrom(graph.versions)
    return graph_def


def serialize(message: Message) -> bytes:
    """The deterministic serialization of a protobuf; above 2 GiB a LoadError names the largest constants."""
    data = message.SerializeToString(deterministic=True)
    if len(data) > _MAX_BYTES:
        constants = sorted((n for n in message.node if n.op in ops.CONSTANTS), key=lambda n: -n.ByteSize())  # type: ignore[attr-defined]
        named = ", ".join(f"{n.name} ({n.ByteSize() / 2**20:.1f} MiB)" for n in constants[:3])
        raise LoadError(f"the graph has {len(data) / 2**30:.2f} GiB, more than the 2 GiB that a GraphDef can hold",
                        fix=f"read the data from files instead of constants: {named}")  # fmt: skip
    return data


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph as a binary GraphDef, atomically."""
    files.write_atomically(Path(path), serialize(to_graph_def(graph)))


def save_meta(loaded: Loaded, path: str | os.PathLike[str], graph_def: Any = None) -> None:
    """Write a loaded graph, or a rewritten one, with its collections as a MetaGraphDef, atomically."""
    meta = meta_graph_pb2.MetaGraphDef()
    if loaded.meta is not None:
        meta.CopyFrom(loaded.meta)
    meta.graph_def.CopyFrom(loaded.graph_def if graph_def is None else graph_def)
    meta.graph_def.MergeFromString(embedded_plain(loaded.plain, loaded.options))
    files.write_atomically(Path(path), serialize(meta))
