"""Reads a model's file or folder: a GraphDef, a MetaGraphDef, a SavedModel or event files, detected from the content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, types_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tpugraph.support.errors import LoadError

NAMES_IN_A_FOLDER = (("saved_model.pb", "saved_model.pbtxt"), ("graph.pbtxt", "model.pb"))
"""The files of a folder's graph, by precedence: SavedModel, ``*.meta``, Estimator's text file."""

EVENT_FILES = "*.tfevents.*"
"""The event files of a folder, such as an Estimator's folder of evaluations."""

_EVENTS, _EVENTS_WITHIN = b"brain.Event:", 64  # in the first record of an event file

_COLLECTIONS = ("train_op", "losses", "trainable_variables", "local_variables", "global_step")


@dataclass(frozen=True)
class Loaded:
    """The content of a path: a GraphDef, MetaGraphDef (then ``meta``), SavedModel or event file."""

    kind: str
    graph_def: Any
    meta: Any
    path: Path
    data: bytes = b""  # the bytes of the file; empty for event files
    plain: bytes = b""  # the plain graph's file that a converted graph contains
    options: dict[str, Any] = field(default_factory=dict)  # the conversion's options that are not the defaults


def sniff(path: Path) -> Loaded:
    """Detect the kind of a path's content and parse it; see :func:`tpugraph.ir.graphdef.load`."""
    if path.is_dir():
        return _sniff_folder(path)
    if not path.exists():
        raise LoadError(f"there is no file '{path}'", fix="check the path")
    if path.is_char_device() or path.is_block_device():
        raise LoadError(f"'{path}' is a device, which may have no end", fix="give a file or a folder")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"'{path}' cannot be read: {error.strerror}", fix="check the file's permissions") from error
    if not data:
        raise LoadError(f"'{path}' is empty", fix="copy the file again")
    if _EVENTS in data[:_EVENTS_WITHIN]:
        return _from_events([path])
    return parse(data, path)


def parse(data: bytes, path: Path) -> Loaded:
    """Detect the kind of a file's bytes and parse them; a LoadError where they are no graph."""
    found = _parsed(data)
    if found is None:
        raise LoadError(
            f"'{path}' is {_describe(data)}",
            fix="give a GraphDef (.pb, .pbtxt), a MetaGraphDef (.meta), a SavedModel, an event file or a model_dir",
        )
    kind, message = found
    meta = None
    if kind == "SavedModel":
        meta = message.meta_graphs[0]
    elif kind == "MetaGraphDef":
        meta = message
    graph_def = message if meta is None else meta.graph_def
    return Loaded(kind, graph_def, meta, path, data, *_unpacked(graph_def, path))


_PLAIN = "tpugraph/plain_graph"


def embedded_plain(plain: bytes, options: Mapping[str, Any]) -> bytes:
    """A serialized GraphDef of one constant with the plain file, and the options of the conversion, if any.

    Appended to a converted file, protobuf parsing merges the two.
    """
    if not plain:
        return b""
    kept = graph_pb2.GraphDef()
    node = kept.node.add(name=_PLAIN, op="Const")
    node.attr["dtype"].type = types_pb2.DT_STRING
    node.attr["value"].tensor.dtype = types_pb2.DT_STRING
    node.attr["value"].tensor.string_val.append(plain)
    if options:
        node.attr["value"].tensor.string_val.append(json.dumps(options, sort_keys=True).encode())
    return bytes(kept.SerializeToString(deterministic=True))


def _unpacked(graph_def: Any, path: Path) -> tuple[bytes, dict[str, Any]]:
    """Extract the plain graph from a converted one, and the options of the conversion."""
    if not graph_def.node or graph_def.node[-1].name != _PLAIN:
        return b"", {}
    try:
        plain, *options = graph_def.node[-1].attr["value"].tensor.string_val[:]
        found = dict(json.loads(options[0])) if options else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise LoadError(f"the plain graph in '{path}' is damaged", node=_PLAIN, fix="convert it again") from error
    del graph_def.node[-1]
    return bytes(plain), found


def _sniff_folder(path: Path) -> Loaded:
    metas = sorted(path.glob("*.meta"), key=lambda p: (p.stat().st_mtime, _step_of(p)))
    first, last = ([path / name for name in names if (path / name).exists()] for names in NAMES_IN_A_FOLDER)
    for found in (*first, *metas[-1:], *last):
        return sniff(found)
    events = sorted(path.glob(EVENT_FILES), key=lambda p: (p.stat().st_mtime, p.name), reverse=True)
    if events:
        return _from_events(events)
    raise LoadError(f"the folder '{path}' holds no graph",
                    fix="give a model_dir with a .meta or graph.pbtxt file, a SavedModel folder, or a file")  # fmt: skip


def _from_events(paths: Sequence[Path]) -> Loaded:
    """The first graph of the first event file that has one."""
    import tensorflow as tf

    for path in paths:
        try:
            for event in tf.compat.v1.train.summary_iterator(str(path)):
                graph_def = graph_pb2.GraphDef.FromString(event.graph_def)
                if graph_def.node:
                    return Loaded("event file", graph_def, None, path)
        except tf.errors.DataLossError:  # the end of a file that is being written, or was truncated
            continue
    raise LoadError(f"the event file '{paths[0]}' holds no graph",
                    fix="give the event file of a run that wrote its graph, as Estimator.evaluate does")  # fmt: skip


def _step_of(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _is_text(data: bytes) -> bool:
    head = data[:4096]
    return b"\0" not in head and not any(b < 9 for b in head)


_KINDS = {
    "GraphDef": graph_pb2.GraphDef,
    "MetaGraphDef": meta_graph_pb2.MetaGraphDef,
    "SavedModel": saved_model_pb2.SavedModel,
}


def _parsed(data: bytes) -> tuple[str, Any] | None:
    """The kind of a serialized message, binary or text, and the message."""
    text = _is_text(data)
    for kind, of_kind in _KINDS.items():  # the first field of a text identifies the kind
        message = of_kind()
        try:
            text_format.Parse(data, message) if text else message.ParseFromString(data)
        except (DecodeError, text_format.ParseError, UnicodeDecodeError, RuntimeError):
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
    if data.startswith(b"\x89HDF"):
        return "an HDF5 file (Keras weights), not a graph"
    if data.startswith(b"PK\x03\x04"):
        return "a zip archive, not a graph"
    if data.startswith(b"\x1f\x8b"):
        return "compressed by gzip: unpack it with gunzip"
    if _is_text(data):
        return "text, but not a graph in text form (it may be cut off)"
    return "not a graph (it may be cut off, or another kind of file)"


def collections_of(meta: Any, source: str) -> dict[str, list[str]]:
    """The collections that roles are found by, as names of nodes or tensors."""
    found: dict[str, list[str]] = {}
    for key in filter(meta.collection_def.__contains__, _COLLECTIONS):
        held = meta.collection_def[key]
        variables = map(variable_pb2.VariableDef.FromString, held.bytes_list.value)
        try:
            found[key] = [*held.node_list.value, *(one.variable_name.removesuffix(":0") for one in variables)]
        except (DecodeError, UnicodeDecodeError) as error:
            raise LoadError(f"the collection '{key}' is damaged", origin=source, fix="write the graph again, or copy it "
                            "again") from error  # fmt: skip
    return found


DEFAULT = "serving_default"
"""The default signature."""


@dataclass(frozen=True)
class Signature:
    """The input and output tensors by name; "" for one that is not dense."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def signatures_of(meta: Any) -> dict[str, Signature]:
    """The signatures of a MetaGraphDef by name, without TensorFlow's internal ones."""
    return {
        name: Signature(
            *({key: held.name for key, held in sorted(ends.items())} for ends in (found.inputs, found.outputs))
        )
        for name, found in sorted(meta.signature_def.items())
        if not name.startswith("__")
    }
