"""Damage to graphs, as files get it: by hand, by a half-done tool, by a bad disk. Each mutation changes a MetaGraphDef in place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tensorflow.core.framework import node_def_pb2

from campaigns.attribute_mutations import add_attribute, change_attribute, drop_attribute, swap_attribute
from campaigns.drawing import Mutation, any_node, mutated, node_with, nodes_of

INPUTS = (
    "",
    "^",
    ":",
    ":0",
    "nothing",
    "nothing:1",
    "^nothing",
    "{}:999",
    "{}:-1",
    "{}:",
    "{}:x",
    "^{}:0",
    "{}:0:0",
    "{}^",
)
DEVICES = (
    "/device:TPU:0",
    "/cpu:0",
    "cpu",
    "/job:a/task:-1",
    "/gpu:99999999999",
    "\xe4",
    "/job:worker/replica:0/task:0",
)
NAMES = ("", " ", "a b", "_x", "/x", "x\n", "\xe4", "x:0", "^x", "x" * 3000, "-")
OPS = tuple(
    """Identity NoOp Const Merge Switch Enter Exit NextIteration LoopCond While StatefulPartitionedCall VariableV2 VarHandleOp
    ReadVariableOp AssignVariableOp Placeholder IteratorGetNext MapDataset Reshape TPUReplicateMetadata AddN Pack ConcatV2 Sum Mean
    MatMul NoSuchOp RestoreV2 SaveV2 _Arg""".split()
)

# --------------------------------------------------------------------------- nodes


def delete_node(rng: random.Random, meta: Any) -> None:
    nodes = nodes_of(rng, meta)
    if nodes:
        del nodes[rng.randrange(len(nodes))]


def duplicate_node(rng: random.Random, meta: Any) -> None:
    nodes = nodes_of(rng, meta)
    if nodes:
        copy = nodes.add()
        copy.CopyFrom(nodes[rng.randrange(len(nodes) - 1)] if len(nodes) > 1 else nodes[0])
        copy.name += rng.choice(["", "_again"])


def rename_node(rng: random.Random, meta: Any) -> None:
    node = any_node(rng, meta)
    try:
        node.name = rng.choice([*NAMES, any_node(rng, meta).name])
    except ValueError:  # protobuf takes no such text
        node.name = "x" * 10


def change_op(rng: random.Random, meta: Any) -> None:
    any_node(rng, meta).op = rng.choice([*OPS, *[any_node(rng, meta).op for _ in range(len(OPS))]])


def change_device(rng: random.Random, meta: Any) -> None:
    any_node(rng, meta).device = rng.choice(DEVICES)


def shuffle_nodes(rng: random.Random, meta: Any) -> None:
    nodes = nodes_of(rng, meta)
    held = [node_def_pb2.NodeDef.FromString(node.SerializeToString()) for node in nodes]
    rng.shuffle(held)
    del nodes[:]
    nodes.extend(held)


def become(rng: random.Random, meta: Any) -> None:
    """A node becomes another one of the same op, inputs and all, under its own name."""
    one = any_node(rng, meta)
    other = node_with(rng, meta, lambda node: node.op == one.op and node.name != one.name)
    name = one.name
    one.CopyFrom(other)
    one.name = name


# --------------------------------------------------------------------------- edges


def _node_that_reads(rng: random.Random, meta: Any) -> Any:
    node = node_with(rng, meta, lambda node: len(node.input))
    if not node.input:
        node.input.append("nothing")
    return node


def damage_input(rng: random.Random, meta: Any) -> None:
    node = _node_that_reads(rng, meta)
    node.input[rng.randrange(len(node.input))] = rng.choice(INPUTS).replace("{}", node.input[0])


def lead_elsewhere(rng: random.Random, meta: Any) -> None:
    node, other = _node_that_reads(rng, meta), any_node(rng, meta)
    node.input[rng.randrange(len(node.input))] = other.name + rng.choice(["", "", "", ":1", ":0"])


def lead_to_the_like(rng: random.Random, meta: Any) -> None:
    """An input comes from another node of the op that made it: dtypes agree, and little else."""
    node = _node_that_reads(rng, meta)
    place = rng.randrange(len(node.input))
    ops = {other.name: other.op for other in meta.graph_def.node}
    wanted = ops.get(node.input[place].partition(":")[0])
    alike = [name for name, op in ops.items() if op == wanted]
    if alike:
        node.input[place] = rng.choice(alike)


def swap_inputs(rng: random.Random, meta: Any) -> None:
    node = _node_that_reads(rng, meta)
    held = list(node.input)
    rng.shuffle(held)
    del node.input[:]
    node.input.extend(held)


def drop_input(rng: random.Random, meta: Any) -> None:
    node = _node_that_reads(rng, meta)
    del node.input[rng.randrange(len(node.input))]


def add_input(rng: random.Random, meta: Any) -> None:
    node = any_node(rng, meta)
    node.input.insert(rng.randrange(len(node.input) + 1), any_node(rng, meta).name)


def add_control(rng: random.Random, meta: Any) -> None:
    any_node(rng, meta).input.append("^" + any_node(rng, meta).name)


def read_itself(rng: random.Random, meta: Any) -> None:
    node = _node_that_reads(rng, meta)
    node.input[rng.randrange(len(node.input))] = node.name


def bypass(rng: random.Random, meta: Any) -> None:
    """The readers of a node read its first input instead."""
    node = _node_that_reads(rng, meta)
    for other in meta.graph_def.node:
        for place, text in enumerate(other.input):
            if text == node.name:
                other.input[place] = node.input[0]


# --------------------------------------------------------------------------- what is around the nodes


def change_function(rng: random.Random, meta: Any) -> None:
    functions = meta.graph_def.library.function
    if not functions:
        return lead_elsewhere(rng, meta)
    function = rng.choice(functions)
    choice = rng.randrange(7)
    if choice == 0:
        functions.remove(function)
    elif choice == 1:
        function.signature.name = rng.choice(["", "Identity", "other", rng.choice(functions).signature.name])
    elif choice == 2 and function.ret:
        function.ret[rng.choice(sorted(function.ret))] = rng.choice(["", "nothing:0", "nothing", "x:y:z"])
    elif choice == 3 and function.signature.input_arg:
        rng.choice(function.signature.input_arg).type = rng.randrange(24)
    elif choice == 4 and function.signature.output_arg:
        del function.signature.output_arg[rng.randrange(len(function.signature.output_arg))]
    elif choice == 5:
        functions.add().CopyFrom(function)
    else:
        node = function.node_def.add(name="again", op=function.signature.name)
        node.input.extend(argument.name for argument in function.signature.input_arg)
    return None


def change_collection(rng: random.Random, meta: Any) -> None:
    if not meta.collection_def:
        return drop_attribute(rng, meta)
    held = meta.collection_def[rng.choice(sorted(meta.collection_def))]
    for values in (held.node_list.value, held.bytes_list.value):
        if values:
            place = rng.randrange(len(values))
            values[place] = rng.choice([values[place][:-1], values[place] * 2, values[0][:0]])
    return None


def change_versions(rng: random.Random, meta: Any) -> None:
    field = rng.choice(["producer", "min_consumer"])
    setattr(meta.graph_def.versions, field, rng.choice([0, 1, 20, 10**6, -1, 2**31 - 1]))


MUTATIONS: Sequence[Mutation] = (
    drop_attribute, change_attribute, change_attribute, change_attribute, swap_attribute, add_attribute, delete_node, duplicate_node,
    rename_node, change_op, change_device, shuffle_nodes, become, damage_input, lead_elsewhere, lead_elsewhere, lead_to_the_like,
    lead_to_the_like, swap_inputs, drop_input, add_input, add_control, read_itself, bypass, change_function, change_collection,
    change_versions,
)  # fmt: skip


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    """A file with bits turned, a part cut out or its end cut off."""
    damaged = bytearray(data)
    choice = rng.randrange(4)
    if choice == 0:
        del damaged[rng.randrange(len(damaged)) :]
    elif choice == 1:
        start = rng.randrange(len(damaged))
        del damaged[start : start + rng.randrange(1, 100)]
    else:
        for _ in range(rng.choice([1, 1, 3, 30])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def mutant(meta: Any, seed: str, *, without: frozenset[int] = frozenset()) -> bytes:
    """A damaged file of a graph: a MetaGraphDef where it has collections, else a GraphDef.

    Args:
        meta: the sound graph; it stays as it is.
        seed: what to draw from; the same seed gives the same file.
        without: the numbers of mutations to leave out, as shrinking does.
    """
    rng = random.Random(seed)
    count = rng.choice([1, 1, 1, 2, 3, 6])
    damaged = mutated(meta, seed, count, MUTATIONS, without)
    message = damaged if damaged.collection_def else damaged.graph_def
    data: bytes = message.SerializeToString(deterministic=True)
    return damage_bytes(rng, data) if rng.random() < 0.08 and count not in without else data


MOST = 7
"""The most parts that a mutant is made of, for shrinking: up to 6 mutations and damage to the bytes."""
