"""Changes to graphs that keep TensorFlow's laws: right attributes, arities and dtypes, at the wrong place or with the wrong values.

Such a graph passes the door, and what is wrong with it is met by the compiler, by TensorFlow's shape functions or by the
step. Each mutation changes a MetaGraphDef in place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from tensorflow.core.framework import attr_value_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.framework import tensor_util

from tpugraph import ops
from tpugraph.ir.op_schemas import Mismatch, Schema
from tpugraph.support.errors import LoadError

Mutation = Callable[[random.Random, Any], None]

_REF = 100
_NUMBERS = (0, 1, -1, 2, 3, 5, 17, 1000, 2**31 - 1, -(2**31), 0.5, -2.5, 1e30, float("nan"), float("inf"))
_SHAPES = ((), (0,), (1,), (2,), (7,), (1, 1), (3, 4), (0, 3), (2, 1, 2), (1,) * 9)
_DEVICES = ("", "/device:CPU:0", "/job:worker/task:3/device:CPU:1", "/device:TPU:5", "/device:GPU:0", "/job:tpu_worker")
_UNARY = ("Identity", "Neg", "StopGradient", "ZerosLike", "Snapshot", "Abs", "Square", "Tanh", "Invert", "LogicalNot",
          "StringLower", "PreventGradient", "CheckNumerics", "Shape", "Rank", "Size", "Enter", "Exit", "NextIteration")  # fmt: skip


class _AnyFunction(dict[str, None]):
    """A library that has every function."""

    def __contains__(self, name: object) -> bool:
        return True


@cache
def _schema(op: str) -> Schema | None:
    definition = ops.op_def(op)
    return None if definition is None else Schema(definition, _AnyFunction())


class _Outputs:
    """The dtypes of what nodes take and give, as their ops define them."""

    def of(self, node: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Inputs and outputs of a node; nothing where its op or attributes are unknown."""
        schema = _schema(node.op)
        if schema is None:
            return (), ()
        try:
            given = sum(not text.startswith("^") for text in node.input)
            found = schema.signature(node.attr, given)
        except (Mismatch, LoadError):
            return (), ()
        return found.inputs or (), found.outputs or ()

    def tensors(self, meta: Any, dtype: int) -> list[str]:
        """All outputs of a dtype."""
        return [f"{node.name}:{port}" if port else node.name for node in meta.graph_def.node
                for port, kind in enumerate(self.of(node)[1]) if kind % _REF == dtype % _REF and kind >= dtype]  # fmt: skip


def _reader(rng: random.Random, meta: Any) -> tuple[Any, int, int] | None:
    """A node, the number of one of its inputs, and the dtype that it takes there."""
    known = _Outputs()
    for _ in range(30):
        node = rng.choice(meta.graph_def.node)
        wanted = known.of(node)[0]
        if wanted:
            place = rng.randrange(len(wanted))
            return node, place, wanted[place]
    return None


def _named(rng: random.Random, meta: Any, like: str) -> str:
    taken = {node.name for node in meta.graph_def.node}
    name = f"{like}_{rng.randrange(10**6)}"
    return name if name not in taken else f"{name}x"


# --------------------------------------------------------------------------- edges


def read_another(rng: random.Random, meta: Any) -> None:
    found = _reader(rng, meta)
    if found is not None:
        node, place, dtype = found
        alike = _Outputs().tensors(meta, dtype)
        node.input[place] = rng.choice(alike or [node.input[place]])


def exchange_readers(rng: random.Random, meta: Any) -> None:
    """Two nodes read each other's inputs of one dtype."""
    one, other = _reader(rng, meta), _reader(rng, meta)
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
    shape = rng.choice([held.shape, held.shape, *_SHAPES]) if held.size < 10**6 else (1,)
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
        for size in rng.choice(_SHAPES):
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


# --------------------------------------------------------------------------- nodes


@lru_cache(maxsize=1)
def _kin() -> dict[tuple[Any, ...], list[str]]:
    """Op types by what they take and give: those of one list can stand for each other."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name in sorted(ops.records()):
        definition = ops.op_def(name)
        if definition is not None:
            found.setdefault(_form(definition), []).append(name)
    return found


def _form(definition: Any) -> tuple[Any, ...]:
    def told(arguments: Any) -> tuple[Any, ...]:
        return tuple((a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in arguments)

    return told(definition.input_arg), told(definition.output_arg)


def another_op(rng: random.Random, meta: Any) -> None:
    """A node has another op that takes and gives the same: a maximum for a sum, an assignment for an addition."""
    for _ in range(20):
        node = rng.choice(meta.graph_def.node)
        definition = ops.op_def(node.op)
        kin = [] if definition is None else [op for op in _kin().get(_form(definition), ()) if op != node.op]
        if kin:
            node.op = rng.choice(kin)
            _fit_attributes(node)
            return


def _fit_attributes(node: Any) -> None:
    declared = {attr.name: attr for attr in ops.op_def(node.op).attr}
    for name in sorted(node.attr):
        if name[:1] != "_" and name not in declared:
            del node.attr[name]
    for name, attr in declared.items():
        if name not in node.attr and not attr.HasField("default_value"):
            value = node.attr[name]
            if attr.type == "type":
                value.type = 1
            elif attr.type == "int":
                value.i = max(1, attr.minimum)
            elif attr.type == "shape":
                value.shape.unknown_rank = True
            elif attr.type == "string":
                value.s = next(iter(attr.allowed_values.list.s), b"x")
            elif attr.type == "bool":
                value.b = False


def put_between(rng: random.Random, meta: Any) -> None:
    """Another node stands on an edge."""
    found = _reader(rng, meta)
    if found is None:
        return
    node, place, dtype = found
    made = meta.graph_def.node.add(name=_named(rng, meta, "between"), op=rng.choice(_UNARY), device=node.device)
    made.input.append(node.input[place])
    made.attr["T"].type = dtype % _REF
    if made.op == "Enter":
        made.attr["frame_name"].s = b"frame"
    elif made.op == "CheckNumerics":
        made.attr["message"].s = b""
    node.input[place] = made.name


def double(rng: random.Random, meta: Any) -> None:
    """What a node is computed from is there twice, and some readers read the copy."""
    nodes = {node.name: node for node in meta.graph_def.node}
    root = rng.choice(meta.graph_def.node)
    cone = list(_behind(nodes, root, rng.choice([1, 3, 12, 60])))
    suffix = f"_double{rng.randrange(1000)}"
    copied = {node.name for node in cone}
    for node in cone:
        made = meta.graph_def.node.add()
        made.CopyFrom(node)
        made.name += suffix
        for place, text in enumerate(made.input):
            mark, body = ("^", text[1:]) if text.startswith("^") else ("", text)
            name, colon, port = body.partition(":")
            if name in copied:
                made.input[place] = f"{mark}{name}{suffix}{colon}{port}"
    for node in list(nodes.values()):
        for place, text in enumerate(node.input):
            if text == root.name and rng.random() < 0.5:
                node.input[place] = root.name + suffix


def _behind(nodes: dict[str, Any], root: Any, most: int) -> Iterator[Any]:
    queue, seen = [root], {root.name}
    while queue and most:
        node = queue.pop(0)
        most -= 1
        yield node
        for text in node.input:
            name = text.lstrip("^").partition(":")[0]
            if name in nodes and name not in seen:
                seen.add(name)
                queue.append(nodes[name])


def cut_off(rng: random.Random, meta: Any) -> None:
    """What an input reads is a placeholder or a constant of its own."""
    found = _reader(rng, meta)
    if found is None or found[2] >= _REF:
        return
    node, place, dtype = found
    made = meta.graph_def.node.add(name=_named(rng, meta, "cut"), op=rng.choice(["Placeholder", "Const"]))
    made.attr["dtype"].type = dtype
    if made.op == "Placeholder":
        made.attr["shape"].shape.unknown_rank = True
    else:
        try:
            made.attr["value"].tensor.CopyFrom(
                tensor_util.make_tensor_proto(0 if dtype != 7 else "", dtype, rng.choice(_SHAPES))
            )
        except (TypeError, ValueError):  # no NumPy values of this dtype
            made.op = "Placeholder"
            del made.attr["value"]
            made.attr["shape"].shape.unknown_rank = True
    node.input[place] = made.name


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
        (key, node) for node in meta.graph_def.node for key in node.attr if key[:1] == "_" and key != "_output_shapes"
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
    changed = meta_graph_pb2.MetaGraphDef()
    changed.CopyFrom(meta)
    for number in range(rng.choice([1, 1, 2, 3, 6])):
        own = random.Random(f"{seed}/{number}")
        mutation = own.choice(MUTATIONS)
        if number not in without:
            mutation(own, changed)
    message = changed if changed.collection_def else changed.graph_def
    data: bytes = message.SerializeToString(deterministic=True)
    return data
