"""Damage that others than the other mutators would think of: strange ops, claims, names, functions, collections and files.

Each mutation changes a MetaGraphDef in place; the last one changes what the file is.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from google.protobuf import text_format
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from campaigns import op_sweep
from campaigns.drawing import Mutation, mutated
from campaigns.surroundings_mutations import (
    SIZES,
    damage_dataset,
    damage_library,
    strange_collection,
    strange_saver,
    strange_signature,
)

_NAMES = ("tpugraph/loop", "tpugraph/step", "tpugraph/infeed", "ConfigureDistributedTPU", "tpugraph", "save/restore_all", "CON", "..",
          "a//b", "a/", "A", "\u00e4\u00f6", "\u202egnp", "x\x00y", "\ud7ff", "\U0001f600", "-x", "node {", "%s", "{{node x}}",
          "$(x)", "<b>x</b>", "x" * 70_000)  # fmt: skip
MOST = 5
"""The most mutations of one mutant, for shrinking."""


def _bodies(meta: Any) -> list[Any]:
    return [meta.graph_def, *meta.graph_def.library.function]


def _nodes(rng: random.Random, meta: Any) -> Any:
    """The nodes of the graph or, as often, of a function."""
    functions = meta.graph_def.library.function
    found = rng.choice(functions).node_def if functions and rng.random() < 0.5 else ()
    return found or meta.graph_def.node


# --------------------------------------------------------------------------- ops and values


@cache
def _ops() -> list[str]:
    return op_sweep.names()


def any_op(rng: random.Random, meta: Any) -> None:
    """A node of any op of TensorFlow's, that reads what is there; something reads it, or waits for it."""
    drawn = op_sweep.graph_of(rng.choice(_ops()), str(rng.random()))
    if drawn is None:
        return
    nodes = meta.graph_def.node
    by_dtype: dict[int, list[str]] = {}
    for node in nodes:
        kind = node.attr["T"].type if "T" in node.attr else node.attr["dtype"].type if "dtype" in node.attr else 0
        by_dtype.setdefault(kind, []).append(node.name)
    prefix = f"strange{rng.randrange(10**6)}/"
    reader = rng.choice(nodes)
    for made in drawn.node:
        added = nodes.add()
        added.CopyFrom(made)
        added.name = prefix + made.name
        for place, text in enumerate(made.input):
            operand = next(node for node in drawn.node if node.name == text)
            alike = by_dtype.get(operand.attr["dtype"].type)
            added.input[place] = rng.choice(alike) if alike and rng.random() < 0.6 else prefix + text
    data = [place for place, text in enumerate(reader.input) if not text.startswith("^")]
    if data and rng.random() < 0.6:
        reader.input[rng.choice(data)] = f"{prefix}n"
    else:
        reader.input.append(f"^{prefix}n")


def claim(rng: random.Random, meta: Any) -> None:
    """A shape or a constant claims more than there is."""
    for _ in range(50):
        node = rng.choice(_nodes(rng, meta))
        values = [node.attr[key] for key in sorted(node.attr)]  # the order of a map's values differs between processes
        shapes = [value.shape for value in values if value.HasField("shape")]
        shapes += [shape for value in values for shape in value.list.shape]
        shapes += [value.tensor.tensor_shape for value in values if value.HasField("tensor")]
        if shapes:
            shape = rng.choice(shapes)
            if shape.dim and rng.random() < 0.7:
                rng.choice(shape.dim).size = rng.choice(SIZES)
            else:
                shape.dim.add(size=rng.choice(SIZES))
            return


def number(rng: random.Random, meta: Any) -> None:
    """An integer constant, such as a size of a batch, a number of repetitions or an axis, is another one."""
    constants = [node for body in _bodies(meta) for node in getattr(body, "node", None) or getattr(body, "node_def", ())
                 if node.op == "Const" and node.attr["dtype"].type in (3, 9)]  # fmt: skip
    if constants:
        tensor = rng.choice(constants).attr["value"].tensor
        size = 8 if tensor.dtype == 9 else 4
        value = rng.choice([number for number in SIZES if -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1])
        if tensor.tensor_content:
            held = bytearray(tensor.tensor_content)
            place = rng.randrange(len(held) // size) * size
            held[place : place + size] = value.to_bytes(size, "little", signed=True)
            tensor.tensor_content = bytes(held)
        elif tensor.int_val:
            tensor.int_val[0] = value
        elif tensor.int64_val:
            tensor.int64_val[0] = value


def exchange_ops(rng: random.Random, meta: Any) -> None:
    """Two nodes exchange their ops and keep their attributes."""
    one, other = rng.choice(_nodes(rng, meta)), rng.choice(_nodes(rng, meta))
    one.op, other.op = other.op, one.op


def dtype_out_of_range(rng: random.Random, meta: Any) -> None:
    for _ in range(50):
        node = rng.choice(_nodes(rng, meta))
        kinds = [key for key in sorted(node.attr) if node.attr[key].WhichOneof("value") == "type"]
        if kinds:
            node.attr[rng.choice(kinds)].type = rng.choice([0, 24, 31, 99, 100, 101, 120, 200, 2**31 - 1, -1])
            return


def deep(rng: random.Random, meta: Any) -> None:
    """Functions as attributes of functions as attributes, nearly as deep as protobuf reads."""
    value = rng.choice(_nodes(rng, meta)).attr[rng.choice(["f", "body", "_class", "T"])]
    for _ in range(rng.choice([2, 10, 20])):
        value.func.name = "x"
        value = value.func.attr["f"]
    value.s = b"x"


# --------------------------------------------------------------------------- names and edges


def strange_name(rng: random.Random, meta: Any) -> None:
    """A node has a name that means something to tools, and all that read it call it so."""
    node = rng.choice(meta.graph_def.node)
    old, new = node.name, rng.choice(_NAMES)
    for other in meta.graph_def.node:
        for place, text in enumerate(other.input):
            mark, body = ("^", text[1:]) if text.startswith("^") else ("", text)
            name, colon, port = body.partition(":")
            if name == old:
                other.input[place] = f"{mark}{new}{colon}{port}"
    node.name = new


def wait_in_a_circle(rng: random.Random, meta: Any) -> None:
    chosen = rng.sample(list(meta.graph_def.node), k=min(rng.choice([1, 2, 3, 20]), len(meta.graph_def.node)))
    for node, other in zip(chosen, [*chosen[1:], chosen[0]], strict=True):
        node.input.append(f"^{other.name}")


def many_waits(rng: random.Random, meta: Any) -> None:
    """One node waits for all nodes before it, many times over."""
    nodes = meta.graph_def.node
    place = rng.randrange(len(nodes))
    nodes[place].input.extend([f"^{node.name}" for node in nodes[:place]] * rng.choice([1, 30]))


MUTATIONS: Sequence[Mutation] = (
    any_op, any_op, any_op, claim, claim, number, number, exchange_ops, dtype_out_of_range, deep, strange_name, strange_name,
    wait_in_a_circle, many_waits, damage_library, damage_library, damage_dataset, damage_dataset, strange_collection,
    strange_collection, strange_saver, strange_signature,
)  # fmt: skip


def _file(rng: random.Random, message: Any) -> bytes:
    """The message in a file of another form than it should have."""
    data: bytes = message.SerializeToString(deterministic=True)
    kind = rng.randrange(9)
    if kind < 4:
        text = text_format.MessageToString(message)
        return (
            text.encode("utf-16"),
            b"\xef\xbb\xbf" + text.encode(),
            text.replace("\n", "\r\n").encode(),
            text.encode() + data,
        )[kind]
    if kind == 4:
        return data + data  # which is a message too: the nodes are there twice
    if kind == 5:
        return gzip.compress(data, mtime=0)
    if kind == 6:
        return (
            rng.choice([b"", b"\x00", b"\n", b"\x1f\x8b", b"PK\x03\x04"]) + data[: rng.choice([0, 0, 100, len(data)])]
        )
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=rng.choice([0, 1, 2**31 - 1]))
    for _ in range(rng.choice([0, 1, 2])):
        if isinstance(message, meta_graph_pb2.MetaGraphDef):
            saved.meta_graphs.add().CopyFrom(message)
        else:
            saved.meta_graphs.add().graph_def.CopyFrom(message)
    whole: bytes = saved.SerializeToString(deterministic=True)
    return whole


def mutant(meta: Any, seed: str, *, without: frozenset[int] = frozenset()) -> bytes:
    """The file of a strange graph; see :func:`mutations.mutant`."""
    rng = random.Random(seed)
    count = rng.choice([1, 1, 1, 2, 4])
    strange = mutated(meta, seed, count, MUTATIONS, without)
    as_meta = strange.collection_def or strange.signature_def or strange.HasField("saver_def")
    message = strange if as_meta else strange.graph_def
    if rng.random() < 0.08 and count not in without:
        return _file(rng, message)
    data: bytes = message.SerializeToString(deterministic=True)
    return data
