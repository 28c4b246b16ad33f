"""Every op of TensorFlow's with attributes, operands and ranks at random: none may end the process, hang or take all memory.

    PYTHONPATH=tools python -m campaigns.op_sweep --draws=30 --seed=1

A graph of one node and its operands goes through the door and TensorFlow's shape functions, as it does in every command. Right
are shapes, and a refusal in one block. The work is done in a process of its own; where that dies, its next one goes on behind
the op that it died of.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import tensor_util

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import graphdef
from tpugraph.support.errors import TpuGraphError

SECONDS, MOST_MEMORY = 10, 8 << 30
_INTEGERS = (0, 1, -1, 2, 3, 7, -2, -5, 255, 65_537, 10**6, 10**9, 2**31 - 1, -(2**31), 2**62, -(2**63))
_FLOATS = (0.0, 1.0, -1.0, float("nan"), float("inf"), 1e30)
_TEXTS = (b"", b"x", b"a,b->c", b"NHWC", b"NCHW", b"ij,jk->ik", b"...a,...b->...", b"\xff")
_DTYPES = (1, 2, 3, 4, 6, 7, 9, 10, 14, 19, 20, 21)
_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type"}
_REF = 100


def names() -> list[str]:
    """All ops that TensorFlow has a Python wrapper for."""
    return [name for name in sorted(dir(tf.raw_ops)) if not name.startswith("_") and ops.op_def(name) is not None]


# --------------------------------------------------------------------------- graphs of one op


def _draw_shape(draw: random.Random, shape: Any) -> None:
    if draw.random() < 0.15:
        shape.unknown_rank = True
        return
    shape.SetInParent()
    for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4, 5))):
        wide = draw.random() < 0.2
        shape.dim.add(size=draw.choice((-1, 0, 1, 2, 3, 4, 2**31 - 1) if wide else (1, 2, 3)))


def _value(draw: random.Random, declared: Any, kind: str) -> Any:
    if kind == "int":
        found = draw.choice(_INTEGERS if draw.random() < 0.5 else (0, 1, 2, 3, 4))
        return max(found, declared.minimum) if declared.has_minimum and declared.type == "int" else found
    if kind == "float":
        return draw.choice(_FLOATS)
    if kind == "bool":
        return draw.random() < 0.5
    if kind == "string":
        return draw.choice(list(declared.allowed_values.list.s) or _TEXTS)
    return draw.choice(list(declared.allowed_values.list.type) or _DTYPES)


def _draw_attribute(draw: random.Random, declared: Any, made: Any) -> bool:
    """Give an attribute a value; False where its kind has none here."""
    kind = declared.type.removeprefix("list(").removesuffix(")")
    if kind in ("func", "tensor"):
        made.CopyFrom(declared.default_value)
        return bool(declared.HasField("default_value"))
    if not declared.type.startswith("list("):
        if kind == "shape":
            _draw_shape(draw, made.shape)
        else:
            setattr(made, _FIELDS[kind], _value(draw, declared, kind))
        return True
    made.list.SetInParent()
    for _ in range(max(declared.minimum if declared.has_minimum else 0, draw.choice((0, 1, 2, 3, 4)))):
        if kind == "shape":
            _draw_shape(draw, made.list.shape.add())
        else:
            getattr(made.list, _FIELDS[kind]).append(_value(draw, declared, kind))
    return True


def _operand(draw: random.Random, node: Any, kind: int) -> None:
    """Make a node a tensor of a dtype: a constant, a placeholder or a variable."""
    if kind > _REF:
        node.op = "VariableV2"
    elif kind in (1, 2, 3, 4, 6, 7, 9, 10) and draw.random() < 0.5:
        node.op = "Const"
        shape = draw.choice(((), (), (1,), (2,), (3,), (4,), (0,), (2, 2)))
        count = int(np.prod(shape))
        numbers = [draw.choice(_INTEGERS if draw.random() < 0.4 else (0, 1, 2, 3, -1)) for _ in range(count)]
        with np.errstate(all="ignore"):
            held = (
                np.array([b"a"] * count, object)
                if kind == 7
                else np.array(numbers, "int64").astype(tf.as_dtype(kind).as_numpy_dtype)
            )
        node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(held.reshape(shape), kind, shape))
    else:
        node.op = "Placeholder"
    node.attr["dtype"].type = kind % _REF
    if node.op != "Const":
        _draw_shape(draw, node.attr["shape"].shape)


def graph_of(op: str, seed: str) -> Any:
    """A GraphDef of one node and its operands, or None where the attributes go together with none. One seed gives the same."""
    draw, definition, made = random.Random(seed), ops.op_def(op), graph_pb2.GraphDef()
    made.versions.producer = tf.version.GRAPH_DEF_VERSION
    node = made.node.add(name="n", op=op)
    counts = {argument.number_attr for argument in definition.input_arg}
    for declared in definition.attr:
        if declared.name in counts:
            node.attr[declared.name].i = max(declared.minimum, draw.choice((0, 1, 2, 3)))
        elif declared.HasField("default_value") and draw.random() < 0.4:
            node.attr[declared.name].CopyFrom(declared.default_value)
        elif not _draw_attribute(draw, declared, node.attr[declared.name]):
            return None
    kinds = [kind for argument in definition.input_arg for kind in _kinds(argument, node.attr)]
    if len(kinds) > 50:
        return None
    for number, kind in enumerate(kinds):
        _operand(draw, made.node.add(name=f"i{number}"), kind)
        node.input.append(f"i{number}")
    return made


def _kinds(argument: Any, attributes: Any) -> list[int]:
    if argument.type_list_attr:
        return list(attributes[argument.type_list_attr].list.type)
    count = attributes[argument.number_attr].i if argument.number_attr else 1
    kind = argument.type or attributes[argument.type_attr].type
    return [kind + _REF if argument.is_ref else kind] * count


def answer(graph_def: Any) -> str:
    """``shapes`` or ``refused``: what becomes of a graph at the door and in TensorFlow's shape functions."""
    try:
        shapes.infer(graphdef.from_graph_def(graph_def))
    except TpuGraphError as error:
        error.block()
        return "refused"
    return "shapes"


# --------------------------------------------------------------------------- the campaign


def _work(asked: argparse.Namespace, chosen: list[str], first: int, at: Path) -> None:
    """Do the ops from one on; notes where it stands, and its counts at the end."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    met = Counter[str]()
    with at.open("w", buffering=1) as file:
        for number in range(first, len(chosen)):
            for drawn in range(asked.draws):
                graph_def = graph_of(chosen[number], f"{asked.seed}/{chosen[number]}/{drawn}")
                if graph_def is not None:
                    file.write(f"{number} {drawn} {met['shapes']} {met['refused']}\n")
                    signal.alarm(SECONDS)
                    met[answer(graph_def)] += 1
                    signal.alarm(0)
        file.write(f"{len(chosen)} 0 {met['shapes']} {met['refused']}\n")


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Every op with attributes, operands and ranks at random.")
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="these ops, with commas between")
    asked = parser.parse_args()
    chosen = asked.only.split(",") if asked.only else names()
    first, met, began = 0, Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        at = Path(place, "at")
        while first < len(chosen):
            child = os.fork()
            if child == 0:
                try:
                    _work(asked, chosen, first, at)
                    os._exit(0)
                except BaseException as error:  # whatever went past the errors of tpugraph is a failure
                    print(f"{type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
                    os._exit(70)
            status = os.waitpid(child, 0)[1]
            number, drawn, *counts = map(int, at.read_text().splitlines()[-1].split())
            met.update(dict(zip(("shapes", "refused"), counts, strict=True)))
            if status:
                met["wrong"] += 1
                print(f"{chosen[number]}, draw {drawn}: the process ended with status {status}", flush=True)
            first = number + 1
    print(f"{len(chosen):,} ops in {time.monotonic() - began:.0f} s: "
          + ", ".join(f"{count:,} {what}" for what, count in sorted(met.items())))  # fmt: skip
    return 1 if met["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
