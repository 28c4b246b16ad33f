"""Damaged graphs as strategies of hypothesis, which draws them from a seed and shrinks those that fail.

A mutation takes a source of random numbers and a MetaGraphDef, which it changes in place. Four kinds: ``damage`` breaks what it
meets, by reflection over the protobufs; ``lawful`` keeps arities, dtypes and the definitions of attributes; ``op`` adds a node of
any op that TensorFlow has; ``form`` breaks files, as bytes, text or another message.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st
from tensorflow.core.framework import attr_value_pb2, graph_pb2, tensor_shape_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import tensor_util

from campaigns import damaged_bytes
from tpugraph import convert, ops
from tpugraph.ir import graphdef
from tpugraph.ir.validate import Schema
from tpugraph.support.errors import GraphError

DATA = Path(__file__).parents[2] / "tests" / "data"
BASES = tuple(
    """corpus/iris_dnn corpus/while_cond corpus/ref_variables corpus/queue_runner corpus/batch_norm corpus/linear_classifier
    families/strings_tables families/partitioned families/dynamic_while_v2 families/cond_model families/keras_lstm_v2 families/ema
    families/scanned""".split()
)
MOST_BYTES = 64 << 20
"""Where a file is cut off: copies of copies are as large as the memory that reads them."""

_INTEGERS = (0, 1, -1, 2, 3, 7, -2, 9, 20, 100, 255, 65_537, 10**6, 10**9, 2**31 - 1, -(2**31), 2**31, 2**47, 2**62, 2**63 - 1,
             -(2**63))  # fmt: skip
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("nan"), float("inf"))
_TEXTS = ("", "x", "^", ":", ":0", "nothing", "nothing:1", "^nothing", "{}:999", "{}:-1", "{}:", "{}:x", "^{}", "^{}:0", "{}:0:0",
          "{}x", " ", "a b", "_x", "/x", "x\n", "\xe4", "..", "a//b", "-", "\u202egnp", "x\0y", "%s", "{{node x}}", "<b>x</b>",
          "x" * 70_000, "../../etc/passwd", "loc:@nothing", "SAME", "NHWC", "NCHW", "ij,jk->ik", "/device:TPU:0", "/gpu:99999999999",
          "/job:a/task:-1", "/job:worker/task:3/device:CPU:1", "tpugraph/loop", "save/restore_all", "serving_default", "_class",
          "T", "N", "dtype", "shape", "_output_shapes", "_tpu_replicate", "train_op", "queue_runners")  # fmt: skip
_BYTES = (b"", b"x", b"\xff" * 40, b"\x0a\x05ab", b"\x08" + b"\xff" * 10, b"{" * 1000, b"\xe4\xff", b"a" * 5000)
_SHAPES = ((), (0,), (1,), (2,), (7,), (1, 1), (3, 4), (0, 3), (2, 1, 2), (1,) * 9)
_DTYPES = (1, 2, 3, 4, 6, 7, 9, 10, 14, 19, 20, 21)
_REF = 100  # what the number of a dtype has more where it is a reference
_UNARY = ("Identity", "Neg", "StopGradient", "ZerosLike", "Snapshot", "Square", "Invert", "LogicalNot", "StringLower",
          "CheckNumerics", "Shape", "Size", "Enter", "Exit", "NextIteration")  # fmt: skip
Mutation = Callable[[Random, Any], None]


@cache
def sound(name: str, *, converted: bool) -> Any:
    """A recorded graph as a MetaGraphDef, converted or as it is."""
    meta, folder = meta_graph_pb2.MetaGraphDef(), DATA / name
    for path in folder.glob("*.meta"):
        meta.ParseFromString(path.read_bytes())
    for path in folder.glob("model.pb.gz"):
        meta.graph_def.ParseFromString(gzip.decompress(path.read_bytes()))
    if not meta.graph_def.node:
        meta.graph_def.ParseFromString((folder / "model.pb").read_bytes())
    if converted:
        meta.ClearField("collection_def")
        graph = graphdef.from_graph_def(meta.graph_def)
        meta.graph_def.CopyFrom(convert(graph, num_replicas=2, iterations_per_loop=2).graph_def)
    return meta


# --------------------------------------------------------------------------- damage, by reflection


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def below(rng: Random, meta: Any, stop: float = 0.25) -> Any:
    """A message somewhere in a graph: mostly of a node of it or of its functions."""
    functions = meta.graph_def.library.function
    nodes = rng.choice(functions).node_def if functions and rng.random() < 0.25 else meta.graph_def.node
    message = rng.choice(nodes) if nodes and rng.random() < 0.8 else meta
    while rng.random() >= stop:
        inner = [(field, value) for field, value in message.ListFields() if field.message_type is not None]
        if not inner:
            break
        field, value = rng.choice(inner)
        if _is_map(field):
            value = [value[key] for key in sorted(value)]  # the order of a map differs between processes
        message = rng.choice(list(value)) if field.is_repeated else value
        if not isinstance(message, Message):  # of a map to names
            return meta
    return message


def damage(rng: Random, meta: Any) -> None:
    """A field of a message somewhere is cleared, doubled, moved, taken from another message, or has an extreme value."""
    message = other = below(rng, meta)
    for _ in range(40):
        found = below(rng, meta, 0.1)
        if found.DESCRIPTOR is message.DESCRIPTOR and found is not message:
            other = found
    present = [field for field, _ in message.ListFields()]
    field = rng.choice(present if present and rng.random() < 0.8 else list(message.DESCRIPTOR.fields))
    held, given = getattr(message, field.name), getattr(other, field.name)
    if rng.random() < 0.15:
        message.ClearField(field.name)
    elif _is_map(field):
        key = rng.choice([*sorted(held), *sorted(given), "whatever", ""])
        if key in held and rng.random() < 0.3:
            del held[key]
        elif isinstance(held[key], Message):
            held[key].CopyFrom(given[rng.choice(sorted(given) or [""])])
        else:
            held[key] = _scalar(rng, held[key], None)
    elif field.is_repeated:
        _damage_list(rng, held, list(given))
    elif field.message_type is not None:
        held.CopyFrom(given)
    else:
        setattr(message, field.name, _scalar(rng, held, given))


def _damage_list(rng: Random, held: Any, given: list[Any]) -> None:
    first, place = list(held), rng.randrange(len(held) or 1)
    before, behind = first[:place], first[place + 1 :]
    made = rng.choice(given or first)
    if not isinstance(made, Message):
        made = _scalar(rng, made, None)
    again = first[place : place + 1] * rng.choice((1, 1, 20, 300))
    del held[:]
    held.extend(rng.choice(([*before, *behind], before, [*first, *again], [*behind, *first[: place + 1]], [*first, made],
                            [*before, made, *behind])))  # fmt: skip


def _scalar(rng: Random, value: Any, other: Any) -> Any:
    """Another value for a field: that of another message or an odd one, which not all fields take."""
    if other is not None and rng.random() < 0.35:
        return other
    if isinstance(value, str):
        return rng.choice(_TEXTS).replace("{}", value[:99])
    if isinstance(value, bytes):
        return rng.choice((*_BYTES, value[:-1], value * 2))
    return not value if isinstance(value, bool) else rng.choice(_FLOATS if isinstance(value, float) else _INTEGERS)


def _readers(meta: Any, name: str) -> Iterator[tuple[Any, int, str]]:
    """The inputs that name a node: reader, place, and the name with a ``{}`` for the node's."""
    for node in meta.graph_def.node:
        for place, text in enumerate(node.input):
            mark, body = ("^", text[1:]) if text.startswith("^") else ("", text)
            if body.partition(":")[0] == name:
                yield node, place, f"{mark}{{}}{body[len(name) :]}"


# --------------------------------------------------------------------------- what keeps the laws


class _AnyFunction(dict[str, None]):
    """A library that has every function."""

    def __contains__(self, name: object) -> bool:
        return True


def dtypes_of(node: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dtypes that a node takes and gives; nothing where its op or attributes are unknown."""
    if ops.op_def(node.op) is None:
        return (), ()
    try:
        found = Schema(ops.op_def(node.op), _AnyFunction()).signature(
            node.attr, sum(t[:1] != "^" for t in node.input))  # fmt: skip
    except GraphError:
        return (), ()
    return found.inputs or (), found.outputs or ()


def _operand(rng: Random, meta: Any) -> tuple[Any, int, int]:
    """A node, the place of one of its inputs, and the dtype that it takes there."""
    for _ in range(50):
        node = rng.choice(meta.graph_def.node)
        wanted = dtypes_of(node)[0]
        if wanted:
            place = rng.randrange(len(wanted))
            return node, place, wanted[place]
    return meta.graph_def.node.add(name=_new_name(meta, "lost"), op="Identity", input=["nothing"]), 0, 1


def _tensors(meta: Any) -> dict[int, list[str]]:
    """The tensors of each dtype; a reference is one of its dtype, too."""
    found: dict[int, list[str]] = collections.defaultdict(list)
    for node in meta.graph_def.node:
        for port, kind in enumerate(dtypes_of(node)[1]):
            for given in {kind, kind % _REF}:
                found[given].append(f"{node.name}:{port}" if port else node.name)
    return found


def _new_name(meta: Any, like: str) -> str:
    return f"{like}_{len(meta.graph_def.node)}"


def read_another(rng: Random, meta: Any) -> None:
    """An input comes from another node that gives its dtype."""
    node, place, dtype = _operand(rng, meta)
    node.input[place] = rng.choice(_tensors(meta)[dtype] or [node.input[place]])


def wait(rng: Random, meta: Any) -> None:
    """Nodes wait for one another, in a circle or not, or for nothing that they waited for."""
    nodes = meta.graph_def.node
    chosen = rng.sample(list(nodes), k=min(rng.choice((1, 2, 3, 20)), len(nodes)))
    if rng.random() < 0.3:
        for node in chosen:
            node.input[:] = [text for text in node.input if text[:1] != "^"]
    elif rng.random() < 0.1:
        chosen[0].input.extend([f"^{node.name}" for node in nodes] * rng.choice((1, 30)))
    else:
        for node, other in zip(chosen, [*chosen[1:], rng.choice(nodes)], strict=True):
            node.input.append(f"^{other.name}")


def another_value(rng: Random, meta: Any) -> None:
    """A constant holds other numbers, at its own shape or another."""
    node = rng.choice([node for node in meta.graph_def.node if node.op == "Const"])
    held = tensor_util.MakeNdarray(node.attr["value"].tensor)
    shape = rng.choice([held.shape, held.shape, *_SHAPES]) if held.size < 10**6 else (1,)
    node.attr["value"].tensor.CopyFrom(_proto(rng, node.attr["value"].tensor.dtype, shape))
    node.attr.pop("_output_shapes", None)


def _proto(rng: Random, dtype: int, shape: tuple[int, ...]) -> Any:
    """A tensor of one number or text."""
    kind = tf.as_dtype(dtype).as_numpy_dtype
    with np.errstate(all="ignore"):
        value = (np.full(shape, rng.choice(("", "x", "a/b:c", "\n")), object) if kind is object else
                 np.full(shape, rng.choice((*_INTEGERS, *_FLOATS))).astype(kind))  # fmt: skip
    return tensor_util.make_tensor_proto(value, dtype=dtype, shape=shape)


def attribute(rng: Random, meta: Any) -> None:
    """An attribute takes another value that its definition allows."""
    node = rng.choice([node for node in meta.graph_def.node if getattr(ops.op_def(node.op), "attr", ())])
    kinds = ("type", "list(type)", "func", "tensor")
    declared = rng.choice([each for each in ops.op_def(node.op).attr if each.type not in kinds])
    draw_attribute(rng, declared, node.attr[declared.name])


def draw_attribute(rng: Random, declared: Any, value: Any) -> bool:
    """Give an attribute a value that its definition allows; False where its kind has none without a default."""
    kind = declared.type.removeprefix("list(").removesuffix(")")
    least = declared.minimum if declared.has_minimum else -(2**63)
    is_list = declared.type != kind
    value.CopyFrom(declared.default_value)
    if kind in ("func", "tensor"):
        return bool(declared.HasField("default_value"))
    choices: Any = {"int": _INTEGERS if rng.random() < 0.4 else (0, 1, 2, 3, 4), "float": _FLOATS, "bool": (False, True),
                    "string": list(declared.allowed_values.list.s) or _BYTES,
                    "type": list(declared.allowed_values.list.type) or _DTYPES,
                    "shape": [_shape(rng) for _ in range(4)]}  # fmt: skip
    drawn = [rng.choice(choices[kind]) for _ in range(max(least if is_list else 1, rng.choice((0, 1, 2, 3, 4))))]
    if kind == "int" and not is_list:
        drawn[0] = max(drawn[0], least)
    field = kind if kind in ("shape", "type") else kind[0]
    value.CopyFrom(attr_value_pb2.AttrValue(**({"list": {field: drawn}} if is_list else {field: drawn[0]})))
    return True


def _shape(rng: Random) -> Any:
    if rng.random() < 0.15:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    sizes = (-1, 0, 1, 2, 3, 2**31 - 1) if rng.random() < 0.2 else (1, 2, 3, 4)
    dims = [{"size": rng.choice(sizes)} for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 5)))]
    return tensor_shape_pb2.TensorShapeProto(dim=dims)


@cache
def _alike() -> dict[tuple[Any, ...], list[str]]:
    """Op types by what they take and give: those of one list can stand for each other."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for name in sorted(ops.records()):
        if ops.op_def(name) is not None:
            found.setdefault(_form(name), []).append(name)
    return found


def _form(op: str) -> tuple[Any, ...]:
    definition = ops.op_def(op)
    return tuple(
        tuple((a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in arguments)
        for arguments in (definition.input_arg, definition.output_arg)
    )


def another_op(rng: Random, meta: Any) -> None:
    """A node has another op that takes and gives the same: a maximum for a sum, an assignment for an addition."""
    for _ in range(20):
        node = rng.choice(meta.graph_def.node)
        alike = [] if ops.op_def(node.op) is None else [op for op in _alike().get(_form(node.op), ()) if op != node.op]
        if alike:
            node.op = rng.choice(alike)
            declared = {attr.name: attr for attr in ops.op_def(node.op).attr}
            for name in [name for name in node.attr if name[:1] != "_" and name not in declared]:
                del node.attr[name]
            for name, attr in declared.items():
                if name not in node.attr and not attr.HasField("default_value"):
                    draw_attribute(rng, attr, node.attr[name])
            return


def put_between(rng: Random, meta: Any) -> None:
    """Other nodes stand on an edge: one, or a chain of thousands."""
    node, place, dtype = _operand(rng, meta)
    op, first = rng.choice(_UNARY), _new_name(meta, "between")
    for number in range(rng.choice((1, 1, 1, 1, 3000))):
        made = meta.graph_def.node.add(name=f"{first}_{number}", op=op, input=[node.input[place]])
        made.attr["T"].type = dtype % _REF
        for name in {"Enter": ["frame_name"], "CheckNumerics": ["message"]}.get(op, ()):
            made.attr[name].s = b"x"
        node.input[place] = made.name


def double(rng: Random, meta: Any) -> None:
    """What a node is computed from is there twice, and some readers read the copy."""
    nodes, root = {node.name: node for node in meta.graph_def.node}, rng.choice(meta.graph_def.node).name
    cone, most = [root], rng.choice((1, 3, 12, 60))
    for name in cone:  # grows while it is walked
        sources = {text.lstrip("^").partition(":")[0] for text in nodes[name].input} & nodes.keys()
        cone += sorted(sources - set(cone))[: most - len(cone)]
    readers = [found for found in _readers(meta, root) if rng.random() < 0.5]
    for name in cone:
        meta.graph_def.node.add().CopyFrom(nodes[name])
        meta.graph_def.node[-1].name += "_double"
        for place, text in enumerate(nodes[name].input):
            source, colon, port = text.partition(":")
            if source.lstrip("^") in cone:
                meta.graph_def.node[-1].input[place] = f"{source}_double{colon}{port}"
    for reader, place, form in readers:
        reader.input[place] = form.replace("{}", f"{root}_double")


def cut_off(rng: Random, meta: Any) -> None:
    """An input reads a placeholder or a constant of its own."""
    node, place, dtype = _operand(rng, meta)
    if dtype < _REF:
        made = meta.graph_def.node.add(name=_new_name(meta, "cut"))
        _source(rng, made, dtype)
        node.input[place] = made.name


def _source(rng: Random, node: Any, dtype: int) -> None:
    """Make a node a tensor of a dtype: a constant, a placeholder or a variable."""
    node.op = "VariableV2" if dtype > _REF else "Placeholder"
    node.attr["dtype"].type = dtype % _REF
    if dtype in _DTYPES[:8] and rng.random() < 0.5:
        node.op = "Const"
        node.attr["value"].tensor.CopyFrom(_proto(rng, dtype, rng.choice(_SHAPES)))
    else:
        node.attr["shape"].shape.CopyFrom(_shape(rng))


# --------------------------------------------------------------------------- any op


@cache
def op_names() -> list[str]:
    """All ops that TensorFlow has a Python wrapper for."""
    return [name for name in sorted(dir(tf.raw_ops)) if name[:1] != "_" and ops.op_def(name) is not None]


def op_graph(rng: Random, op: str) -> Any:
    """A GraphDef of one node, ``n``, and its operands; empty where the attributes that were drawn go together with none."""
    definition, made = ops.op_def(op), graph_pb2.GraphDef()
    made.versions.producer = tf.version.GRAPH_DEF_VERSION
    node = made.node.add(name="n", op=op)
    counts = {argument.number_attr for argument in definition.input_arg}
    for declared in definition.attr:
        if declared.name in counts:
            node.attr[declared.name].i = max(declared.minimum, rng.choice((0, 1, 2, 3)))
        elif declared.HasField("default_value") and rng.random() < 0.4:
            node.attr[declared.name].CopyFrom(declared.default_value)
        elif not draw_attribute(rng, declared, node.attr[declared.name]):
            return graph_pb2.GraphDef()
    for argument in definition.input_arg:
        if argument.type_list_attr:
            kinds = list(node.attr[argument.type_list_attr].list.type)
        else:
            kind = (argument.type or node.attr[argument.type_attr].type) + _REF * argument.is_ref
            kinds = [kind] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
        for kind in kinds[:50]:
            node.input.append(f"i{len(node.input)}")
            _source(rng, made.node.add(name=node.input[-1]), kind)
    return made


def any_op(rng: Random, meta: Any) -> None:
    """A node of any op of TensorFlow's, that reads what is there; something reads it, or waits for it."""
    drawn, prefix = op_graph(rng, rng.choice(op_names())), _new_name(meta, "any") + "/"
    reader = rng.choice(meta.graph_def.node)
    kinds = {node.name: node.attr["dtype"].type for node in drawn.node}
    found = _tensors(meta)
    for node in drawn.node:
        made = meta.graph_def.node.add()
        made.CopyFrom(node)
        made.name = prefix + node.name
        made.input[:] = [rng.choice(found[kinds[text]]) if found[kinds[text]] and rng.random() < 0.6 else prefix + text
                         for text in node.input]  # fmt: skip
    if drawn.node:
        data = [place for place, text in enumerate(reader.input) if text[:1] != "^"]
        if data and rng.random() < 0.6:
            reader.input[rng.choice(data)] = f"{prefix}n"
        else:
            reader.input.append(f"^{prefix}n")


# --------------------------------------------------------------------------- the form of files


def damaged_text(rng: Random, text: str) -> str:
    """A text with one place damaged: lines lost, doubled or exchanged, a word put in, brackets opened."""
    lines = text.splitlines(keepends=True) or [" "]
    place, count = rng.randrange(len(lines)), rng.choice((1, 1, 10, 50))
    again, at = "".join(lines[place : place + count]), rng.randrange(len(lines[place]))
    words = ["attr { value { list { func { " * 2000, str(rng.choice((*_INTEGERS, 10**30))),
             *"{ } < > : \" ' # \\ - nan 0x 1e999 [x.y.Z] true \0 \u00e4 node attr DT_VOID".split(" ")]  # fmt: skip
    word = lines[place][:at] + rng.choice(words) + lines[place][at + rng.randrange(2) :]
    many = [again] * min(300, 1 + MOST_BYTES // len(again))
    new = rng.choice(([], [again, again], many, [word], [word], [rng.choice(lines)]))
    return "".join([*lines[:place], *new, *lines[place + count :]])[:MOST_BYTES] or " "


def file_of(rng: Random, message: Any) -> bytes:
    """The message in a file of another form than it should have."""
    data: bytes = message.SerializeToString(deterministic=True)
    kind = rng.randrange(12)
    if kind < 4:
        return damaged_bytes(rng, data)
    if kind < 9:
        text = text_format.MessageToString(message)
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            text = damaged_text(rng, text)
        whole = text.encode("utf-8", "surrogatepass")
        return (whole, whole, text.encode("utf-16", "surrogatepass"), b"\xef\xbb\xbf" + whole, whole + data)[kind - 4]
    if kind == 9:
        return data + data  # which is a message too: the nodes are there twice
    if kind == 10:
        return rng.choice((gzip.compress(data, mtime=0), b"", b"\0" + data, b"PK\x03\x04" + data[:100]))
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=rng.choice((0, 1, 2**31 - 1)))
    for _ in range(rng.choice((0, 1, 2))):
        whole_meta = isinstance(message, meta_graph_pb2.MetaGraphDef)
        saved.meta_graphs.add(**({} if whole_meta else {"graph_def": message})).MergeFrom(
            message if whole_meta else meta_graph_pb2.MetaGraphDef())  # fmt: skip
    return bytes(saved.SerializeToString(deterministic=True))


# --------------------------------------------------------------------------- mutants

MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "damage": (damage,),
    "lawful": (read_another, read_another, another_value, another_value, attribute, attribute, another_op, another_op, wait,
               put_between, double, cut_off),
    "op": (any_op,),
    "form": (damage, read_another),
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Mutant:
    """A damaged file, what it was made of, and the commands that it goes through."""

    base: str
    mutator: str
    mutations: tuple[str, ...]
    converted: bool
    commands: tuple[str, ...]
    data: bytes

    def __repr__(self) -> str:
        made_of = f"{self.base}{' converted' if self.converted else ''}"
        return f"{made_of} after {', '.join(self.mutations)} ({self.mutator}), through {' '.join(self.commands)}"


@st.composite
def mutants(draw: st.DrawFn, mutators: tuple[str, ...] = tuple(MUTATIONS), commands: tuple[str, ...] = (),
            converted: bool | None = None) -> Mutant:  # fmt: skip
    """Damaged graphs; without ``commands`` each goes through the quick ones, and now and then a slow one."""
    base, mutator = draw(st.sampled_from(BASES)), draw(st.sampled_from(mutators))
    if converted is None:
        converted = draw(st.integers(0, 9)) > 6
    quick = ("inspect",) if converted else ("inspect", "convert")
    slow = ("check", "view", "verify", "diff", *(("run",) * 6 if converted else ()))
    if not commands:
        commands = (*quick, *([draw(st.sampled_from(slow))] if draw(st.integers(0, 9)) > 8 - 2 * converted else []))
    meta, done = meta_graph_pb2.MetaGraphDef(), list[str]()
    meta.CopyFrom(sound(base, converted=converted))
    seeds = st.integers(0, 2**20)  # a mutation draws from its own, so that others can be left out
    for mutation, seed in draw(st.lists(st.tuples(st.sampled_from(MUTATIONS[mutator]), seeds),
                                        min_size=mutator != "form", max_size=6)):  # fmt: skip
        if meta.graph_def.node:
            with contextlib.suppress(ValueError, TypeError, IndexError, DecodeError):  # no file holds such a value
                mutation(Random(seed), meta)
                done.append(mutation.__name__)
    as_meta = meta.collection_def or meta.signature_def or meta.HasField("saver_def")
    message = meta if as_meta else meta.graph_def
    data = file_of(Random(draw(seeds)), message) if mutator == "form" else message.SerializeToString(deterministic=True)
    return Mutant(base, mutator, tuple(done), converted, commands, data[:MOST_BYTES])
