"""Other nodes that keep TensorFlow's laws: of another op that takes and gives the same, between others, doubled, cut off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from tensorflow.python.framework import tensor_util

from tpugraph import ops
from tpugraph.ir.op_schemas import Mismatch, Schema
from tpugraph.support.errors import LoadError

REF = 100
"""What the number of a dtype has more where it is a reference."""
SHAPES = ((), (0,), (1,), (2,), (7,), (1, 1), (3, 4), (0, 3), (2, 1, 2), (1,) * 9)
_UNARY = ("Identity", "Neg", "StopGradient", "ZerosLike", "Snapshot", "Abs", "Square", "Tanh", "Invert", "LogicalNot",
          "StringLower", "PreventGradient", "CheckNumerics", "Shape", "Rank", "Size", "Enter", "Exit", "NextIteration")  # fmt: skip


class _AnyFunction(dict[str, None]):
    """A library that has every function."""

    def __contains__(self, name: object) -> bool:
        return True


@cache
def schema_of(op: str) -> Schema | None:
    """How the inputs and outputs of an op follow from its attributes; None of an unknown op."""
    definition = ops.op_def(op)
    return None if definition is None else Schema(definition, _AnyFunction())


class Outputs:
    """The dtypes of what nodes take and give, as their ops define them."""

    def of(self, node: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Inputs and outputs of a node; nothing where its op or attributes are unknown."""
        schema = schema_of(node.op)
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
                for port, kind in enumerate(self.of(node)[1]) if kind % REF == dtype % REF and kind >= dtype]  # fmt: skip


def any_operand(rng: random.Random, meta: Any) -> tuple[Any, int, int] | None:
    """A node, the number of one of its inputs, and the dtype that it takes there."""
    known = Outputs()
    for _ in range(30):
        node = rng.choice(meta.graph_def.node)
        wanted = known.of(node)[0]
        if wanted:
            place = rng.randrange(len(wanted))
            return node, place, wanted[place]
    return None


def name_like(rng: random.Random, meta: Any, like: str) -> str:
    """A name for a new node."""
    taken = {node.name for node in meta.graph_def.node}
    name = f"{like}_{rng.randrange(10**6)}"
    return name if name not in taken else f"{name}x"


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
    found = any_operand(rng, meta)
    if found is None:
        return
    node, place, dtype = found
    made = meta.graph_def.node.add(name=name_like(rng, meta, "between"), op=rng.choice(_UNARY), device=node.device)
    made.input.append(node.input[place])
    made.attr["T"].type = dtype % REF
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
    found = any_operand(rng, meta)
    if found is None or found[2] >= REF:
        return
    node, place, dtype = found
    made = meta.graph_def.node.add(name=name_like(rng, meta, "cut"), op=rng.choice(["Placeholder", "Const"]))
    made.attr["dtype"].type = dtype
    if made.op == "Placeholder":
        made.attr["shape"].shape.unknown_rank = True
    else:
        try:
            made.attr["value"].tensor.CopyFrom(
                tensor_util.make_tensor_proto(0 if dtype != 7 else "", dtype, rng.choice(SHAPES))
            )
        except (TypeError, ValueError):  # no NumPy values of this dtype
            made.op = "Placeholder"
            del made.attr["value"]
            made.attr["shape"].shape.unknown_rank = True
    node.input[place] = made.name
