"""Strange damage to what is around the nodes: functions, datasets that call them, collections, and the rest of a MetaGraphDef."""

from __future__ import annotations

import random
from typing import Any

SIZES = (0, 1, -1, -2, 2**15, 2**20, 2**31 - 1, 2**31, 2**40, 2**47, 2**62, 2**63 - 1, -(2**63))
_GARBAGE = (
    b"",
    b"\x00",
    b"\xff" * 40,
    b"\x0a\x05ab",
    b"\x08" + b"\xff" * 10,
    b"{" * 1000,
    bytes(range(256)),
    "\u00e4".encode("utf-16"),
)


def _bodies(meta: Any) -> list[Any]:
    return [meta.graph_def, *meta.graph_def.library.function]


# --------------------------------------------------------------------------- functions


def damage_library(rng: random.Random, meta: Any) -> None:
    library = meta.graph_def.library
    functions = library.function
    if not functions:
        functions.add().signature.name = rng.choice(["f", "", "Identity"])
        return
    one, other = rng.choice(functions), rng.choice(functions)
    kind = rng.randrange(8)
    if kind == 0:  # a body of another
        held = list(other.node_def)
        del one.node_def[:]
        one.node_def.extend(held)
    elif kind == 1:
        functions.add().CopyFrom(one)
        functions[-1].signature.CopyFrom(other.signature)
    elif kind == 2:
        library.gradient.add(
            function_name=one.signature.name, gradient_func=rng.choice([other.signature.name, "", "nothing"])
        )
    elif kind == 3 and one.node_def:
        rng.choice(one.node_def).op = other.signature.name
    elif kind == 4:
        one.ret.clear()
    elif kind == 5:
        one.signature.input_arg.add(name=rng.choice(["x", "", "0"]), type_attr="T", number_attr=rng.choice(["N", ""]))
    elif kind == 6:
        one.attr["_noinline"].i = 3
        one.control_ret["x"] = rng.choice(["", "nothing"])
        one.signature.control_output.append("x")
    else:
        one.arg_attr[rng.choice([0, 1, 10**6, 2**32 - 1])].attr["_output_shapes"].list.i.append(3)


def damage_dataset(rng: random.Random, meta: Any) -> None:
    """A dataset is told of another function, other elements or other captured tensors."""
    names = [function.signature.name for function in meta.graph_def.library.function]
    found = [node for body in _bodies(meta) for node in getattr(body, "node", None) or getattr(body, "node_def", ())
             if "output_types" in node.attr]  # fmt: skip
    if not found:
        return
    node = rng.choice(found)
    kind = rng.randrange(4)
    if kind == 0 and "f" in node.attr and names:
        node.attr["f"].func.name = rng.choice(names)
    elif kind == 1:
        kinds = node.attr["output_types"].list.type
        kinds.append(rng.choice([1, 7, 20, 21])) if rng.random() < 0.5 or not kinds else kinds.pop()
    elif kind == 2:
        for shape in node.attr["output_shapes"].list.shape:
            shape.dim.add(size=rng.choice(SIZES))
    else:
        node.attr["f"].func.attr["Targuments"].list.type.append(1)


# --------------------------------------------------------------------------- collections, and the rest of a MetaGraphDef


def strange_collection(rng: random.Random, meta: Any) -> None:
    names = ("train_op", "losses", "queue_runners", "trainable_variables", "savers", "tpu_embedding", "")
    known = [*sorted(meta.collection_def), *names]
    held = meta.collection_def[rng.choice(known)]
    kind = rng.choice(["node_list", "bytes_list", "int64_list", "float_list", "any_list", "none"])
    held.Clear()
    if kind == "node_list":
        held.node_list.value.extend(
            rng.sample(["nothing:0", "", ":", "^x", "\u00e4", meta.graph_def.node[0].name] * 3, k=3)
        )
    elif kind == "bytes_list":
        held.bytes_list.value.extend(rng.choice(_GARBAGE) for _ in range(rng.choice([1, 3, 1000])))
    elif kind == "any_list":
        held.any_list.value.add(type_url="x.y/Z", value=b"\xff")
    elif kind != "none":
        getattr(held, kind).value.extend([0, 1])


def strange_saver(rng: random.Random, meta: Any) -> None:
    saver = meta.saver_def
    name = rng.choice(["filename_tensor_name", "save_tensor_name", "restore_op_name"])
    setattr(saver, name, rng.choice(["", "nothing:0", ":", "^x", meta.graph_def.node[0].name, "x" * 5000]))
    saver.version = rng.choice([0, 1, 2])
    saver.max_to_keep = rng.choice([0, -1, 2**31 - 1])


def strange_signature(rng: random.Random, meta: Any) -> None:
    signature = meta.signature_def[rng.choice(["serving_default", "train", "", "\u00e4"])]
    signature.method_name = rng.choice(["", "x", "tensorflow/serving/predict", "tensorflow/supervised/training"])
    for side in (signature.inputs, signature.outputs):
        side[rng.choice(["x", "", "loss"])].name = rng.choice(
            ["", "nothing:0", ":9", meta.graph_def.node[-1].name, "a:b:c"]
        )
        side["sparse"].coo_sparse.values_tensor_name = "nothing"
    meta.asset_file_def.add(filename="../../etc/passwd").tensor_info.name = "nothing:0"
    meta.meta_info_def.tags.append("train")
