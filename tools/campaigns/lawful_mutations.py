"""Changes to graphs that keep TensorFlow's laws: right attributes, arities and dtypes, at the wrong place or with the wrong values.

Such a graph passes the door, and what is wrong with it is met by the compiler, by TensorFlow's shape functions or by the
step. Each mutation changes a MetaGraphDef in place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import tensor_util

from campaigns.drawing import Mutation, mutated
from campaigns.lawful_nodes import (
    SHAPES,
    Outputs,
    another_op,
    any_operand,
    cut_off,
    double,
    put_between,
)
from tpugraph import ops

_NUMBERS = (0, 1, -1, 2, 3, 5, 17, 1000, 2**31 - 1, -(2**31), 0.5, -2.5, 1e30, float("nan"), float("inf"))
_DEVICES = ("", "/device:CPU:0", "/job:worker/task:3/device:CPU:1", "/device:TPU:5", "/device:GPU:0", "/job:tpu_worker")


# --------------------------------------------------------------------------- edges


def read_another(rng: random.Random, meta: Any) -> None:
    found = any_operand(rng, meta)
    if found is not None:
        node, place, dtype = found
        alike = Outputs().tensors(meta, dtype)
        node.input[place] = rng.choice(alike or [node.input[place]])


def exchange_readers(rng: random.Random, meta: Any) -> None:
    """Two nodes read each other's inputs of one dtype."""
    one, other = any_operand(rng, meta), any_operand(rng, meta)
    if one and other and one[2] == other[2]:
        held = one[0].input[one[1]]
        one[0].input[one[1]] = other[0].input[other[1]]
        other[0].input[other[1]] = held


def wait_for(rng: random.Random, meta: Any) -> None:
    nodes = meta.graph_def.node
    rng.choice(nodes).input.append(f"^{rng.choice(nodes).name}")


def wait_for_nothing(rng: random.Random, meta: Any) -> None:
    for node in rng.sample(list(meta.graph_def.node), k=min(20, len(meta.graph_def.node))):
        kept = [text for text in node.input if not text.startswith("^")]
        del node.input[:]
        node.input.extend(kept)


# --------------------------------------------------------------------------- values


def another_value(rng: random.Random, meta: Any) -> None:
    constants = [node for node in meta.graph_def.node if node.op == "Const"]
    if not constants:
        return
    node = rng.choice(constants)
    try:
        held = tensor_util.MakeNdarray(node.attr["value"].tensor)
    except (TypeError, ValueError):
        return
    shape = rng.choice([held.shape, held.shape, *SHAPES]) if held.size < 10**6 else (1,)
    with np.errstate(all="ignore"):
        value = (np.full(shape, rng.choice(["", "x", "a/b:c", "\n", "nothing"]), object) if held.dtype == object
                 else np.full(shape, rng.choice(_NUMBERS)).astype(held.dtype))  # fmt: skip
    proto = tensor_util.make_tensor_proto(value, dtype=node.attr["value"].tensor.dtype, shape=shape)
    node.attr["value"].tensor.CopyFrom(proto)
    node.attr["_output_shapes"].Clear()
    del node.attr["_output_shapes"]


def lawful_attribute(rng: random.Random, meta: Any) -> None:
    """An attribute takes another value that its definition allows."""
    for _ in range(20):
        node = rng.choice(meta.graph_def.node)
        declared = [attr for attr in getattr(ops.op_def(node.op), "attr", ()) if attr.name in node.attr]
        choices = [attr for attr in declared if attr.type in ("bool", "int", "string", "shape", "float", "list(int)")]
        if choices:
            attr = rng.choice(choices)
            _set_lawfully(rng, attr, node.attr[attr.name])
            return


def _set_lawfully(rng: random.Random, declared: Any, value: Any) -> None:
    allowed = declared.allowed_values.list.s
    if declared.type == "bool":
        value.b = not value.b
    elif declared.type == "int":
        value.i = max(declared.minimum if declared.has_minimum else -3, rng.choice([-3, -1, 0, 1, 2, 5, 100]))
    elif declared.type == "float":
        value.f = rng.choice([0.0, 1.0, -1.0, 1e-30, 1e30, float("nan")])
    elif declared.type == "string":
        value.s = rng.choice(list(allowed) or [b"", b"other", b"x;y", value.s + value.s])
    elif declared.type == "shape":
        value.shape.CopyFrom(attr_value_pb2.AttrValue().shape)
        for size in rng.choice(SHAPES):
            value.shape.dim.add(size=rng.choice([size, -1]))
        value.shape.unknown_rank = not value.shape.dim and rng.random() < 0.5
    else:
        held = list(value.list.i)
        value.list.i[:] = [rng.choice([number, -number, 0, 7]) for number in held]


def forget_shapes(rng: random.Random, meta: Any) -> None:
    """What is declared of shapes is open, of all nodes or of one."""
    nodes = meta.graph_def.node
    for node in rng.choice([nodes, [rng.choice(nodes)]]):
        for key in ("_output_shapes", "output_shapes"):
            if key in node.attr and (key == "_output_shapes" or rng.random() < 0.5):
                for shape in node.attr[key].list.shape:
                    shape.Clear()
                    shape.unknown_rank = True


# --------------------------------------------------------------------------- names and places


def share_a_name(rng: random.Random, meta: Any) -> None:
    """Two resources have one name."""
    named = [node for node in meta.graph_def.node if "shared_name" in node.attr]
    if len(named) > 1:
        one, other = rng.sample(named, 2)
        one.attr["shared_name"].s = rng.choice([other.attr["shared_name"].s or other.name.encode(), b"", b"x"])


def move_to_device(rng: random.Random, meta: Any) -> None:
    for node in rng.sample(list(meta.graph_def.node), k=min(rng.choice([1, 5, 500]), len(meta.graph_def.node))):
        node.device = rng.choice(_DEVICES)


def mark(rng: random.Random, meta: Any) -> None:
    """A node carries marks of another's place: of a cluster, of a colocation."""
    marked = [
        (key, node)
        for node in meta.graph_def.node
        for key in sorted(node.attr)
        if key[:1] == "_" and key != "_output_shapes"
    ]
    if marked:
        key, node = rng.choice(marked)
        rng.choice(meta.graph_def.node).attr[key].CopyFrom(node.attr[key])


MUTATIONS: Sequence[Mutation] = (
    read_another, read_another, read_another, exchange_readers, wait_for, wait_for_nothing, another_value, another_value,
    another_value, lawful_attribute, lawful_attribute,
    forget_shapes, another_op, another_op, another_op, put_between, put_between, double, cut_off,
    share_a_name, move_to_device, mark,
)  # fmt: skip

MOST = 6
"""The most mutations of one mutant, for shrinking."""


def mutant(meta: Any, seed: str, *, without: frozenset[int] = frozenset()) -> bytes:
    """The file of a changed graph; see :func:`mutations.mutant`."""
    rng = random.Random(seed)
    changed = mutated(meta, seed, rng.choice([1, 1, 2, 3, 6]), MUTATIONS, without)
    message = changed if changed.collection_def else changed.graph_def
    data: bytes = message.SerializeToString(deterministic=True)
    return data
