"""Damage to the attributes of nodes: dropped, exchanged, of another kind, with values that nobody expects."""

from __future__ import annotations

import random
from typing import Any

from tensorflow.core.framework import attr_value_pb2

from campaigns.drawing import any_node, node_with

INTEGERS = (0, 1, -1, 2, 3, 7, 255, 65_537, 10**6, 10**9, 2**31 - 1, -(2**31), 2**62, -(2**63))
TEXTS = (
    b"",
    b"x",
    b"\xe4\xff",
    b"^",
    b":",
    b"a" * 5000,
    b"../../etc/passwd",
    b"loc:@nothing",
    b"SAME",
    b"NHWC",
    b"\n",
    b"0",
)


def drop_attribute(rng: random.Random, meta: Any) -> None:
    node = node_with(rng, meta, lambda node: len(node.attr))
    if node.attr:
        del node.attr[rng.choice(sorted(node.attr))]


def change_attribute(rng: random.Random, meta: Any) -> None:
    node = node_with(rng, meta, lambda node: len(node.attr))
    if node.attr:
        _change(rng, node.attr[rng.choice(sorted(node.attr))])


def swap_attribute(rng: random.Random, meta: Any) -> None:
    one, other = (node_with(rng, meta, lambda node: len(node.attr)) for _ in range(2))
    if one.attr and other.attr:
        held = attr_value_pb2.AttrValue()
        held.CopyFrom(other.attr[rng.choice(sorted(other.attr))])
        one.attr[rng.choice(sorted(one.attr))].CopyFrom(held)


def add_attribute(rng: random.Random, meta: Any) -> None:
    key = rng.choice(
        ["T", "N", "dtype", "shape", "_output_shapes", "_class", "_tpu_replicate", "whatever", "frame_name", ""]
    )
    value = any_node(rng, meta).attr[key]
    value.i = 1
    _change(rng, value)


def _change(rng: random.Random, value: Any) -> None:
    kind = value.WhichOneof("value")
    if kind is None or rng.random() < 0.15:
        _any_kind(rng, value)
    elif kind == "i":
        value.i = rng.choice(INTEGERS)
    elif kind == "b":
        value.b = not value.b
    elif kind == "s":
        value.s = rng.choice(TEXTS)
    elif kind == "f":
        value.f = rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e30])
    elif kind == "type":
        value.type = rng.choice([*range(24), 99, 101, 103, 107, 120, 121])
    elif kind == "shape":
        _change_shape(rng, value.shape)
    elif kind == "tensor":
        _change_tensor(rng, value.tensor)
    elif kind == "func":
        value.func.name = rng.choice(["", "nothing", "Identity", value.func.name + "x"])
    elif kind == "list":
        _change_list(rng, value.list)


def _any_kind(rng: random.Random, value: Any) -> None:
    kind = rng.choice(["i", "b", "s", "f", "type", "shape", "list", "none"])
    value.Clear()
    if kind == "shape":
        value.shape.dim.add(size=rng.choice(INTEGERS))
    elif kind == "list":
        value.list.i.append(rng.choice(INTEGERS))
    elif kind != "none":
        setattr(
            value,
            kind,
            {"i": rng.choice(INTEGERS), "b": True, "s": rng.choice(TEXTS), "f": 1.5, "type": rng.randrange(24)}[kind],
        )


def _change_shape(rng: random.Random, shape: Any) -> None:
    choice = rng.randrange(5)
    if choice == 0:
        shape.unknown_rank = not shape.unknown_rank
    elif choice == 1:
        for _ in range(rng.choice([1, 2, 300])):
            shape.dim.add(size=rng.choice(INTEGERS))
    elif choice == 2 or not shape.dim:
        shape.ClearField("dim")
    elif choice == 3:
        del shape.dim[rng.randrange(len(shape.dim))]
    else:
        rng.choice(shape.dim).size = rng.choice(INTEGERS)


def _change_tensor(rng: random.Random, tensor: Any) -> None:
    choice = rng.randrange(6)
    if choice == 0:
        _change_shape(rng, tensor.tensor_shape)
    elif choice == 1:
        tensor.dtype = rng.randrange(24)
    elif choice == 2:
        tensor.tensor_content = tensor.tensor_content[:-1] or rng.choice(TEXTS)
    elif choice == 3:
        tensor.int_val.append(rng.choice([0, 1, -1, 7, 2**31 - 1, -(2**31)]))
    elif choice == 4:
        for field, _ in tensor.ListFields():
            if field.name.endswith("_val"):
                tensor.ClearField(field.name)
    elif tensor.string_val:
        tensor.string_val[rng.randrange(len(tensor.string_val))] = rng.choice(TEXTS)
    elif tensor.tensor_content:
        content = bytearray(tensor.tensor_content)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        tensor.tensor_content = bytes(content)


def _change_list(rng: random.Random, values: Any) -> None:
    fields = [field.name for field, _ in values.ListFields()]
    if not fields:
        values.s.append(rng.choice(TEXTS))
        return
    held = getattr(values, rng.choice(fields))
    choice = rng.randrange(3)
    if choice == 0:
        del held[rng.randrange(len(held)) :]
    elif choice == 1:
        held.extend(list(held) * rng.choice([1, 1, 20]))
    elif fields[0] == "shape":
        _change_shape(rng, rng.choice(values.shape))
    elif fields[0] == "type":
        values.type[rng.randrange(len(values.type))] = rng.randrange(24)
    elif fields[0] == "i":
        values.i[rng.randrange(len(values.i))] = rng.choice(INTEGERS)
    elif fields[0] == "s":
        values.s[rng.randrange(len(values.s))] = rng.choice(TEXTS)
