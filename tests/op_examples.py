"""An example of each op type, with which the claims of its record are held against TensorFlow."""

import ast
import functools
import inspect
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.signatures import WHOLE
from tpugraph.ir import graphdef
from tpugraph.ops.record import WORDS, Call, Op, Signature
from tpugraph.spmd import factors

EXAMPLES = Path(__file__).parent / "data" / "op_examples.txt"
"""Its first lines explain the notation."""


@dataclass(frozen=True)
class Case:
    """One example of an op type: its operands as text, and its attributes."""

    record: Op
    operands: tuple[str, ...]
    attrs: dict[str, Any]
    round: int = 0

    @functools.cached_property
    def definition(self) -> Any:
        return ops.op_def(self.record.name)

    @functools.cached_property
    def places(self) -> list[Any]:
        """The definition of each operand; those of a list share one."""
        lists = [bool(arg.number_attr or arg.type_list_attr) for arg in self.definition.input_arg]
        length = (len(self.operands) - lists.count(False)) // max(lists.count(True), 1)
        return [
            arg
            for arg, many in zip(self.definition.input_arg, lists, strict=True)
            for _ in range(length if many else 1)
        ]

    @functools.cached_property
    def call(self) -> Call:
        """What rules are told of the example."""
        values = {
            attr.name: _python(attr.default_value) for attr in self.definition.attr if attr.HasField("default_value")
        }
        values |= {arg.type_attr: tf.as_dtype(self.dtype(i)) for i, arg in enumerate(self.places) if arg.type_attr}
        values |= self.attrs
        return Call(
            lambda name, default: values.get(name, default), tuple(self.value(i).ndim for i in range(len(self.places)))
        )

    def signature(self) -> Signature | None:
        """The signature of the record for this example, of words too; leading dimensions are upper-case letters."""
        if self.record.dims in WORDS:
            return self._signature_by_values()
        found = self.record.signature(self.call)
        if found is not None:
            found = Signature(*(tuple(re.sub("[A-Z]", "*", dims) for dims in side) for side in found))
        if found is None:
            return None
        extra = [
            rank - len(dims.replace("...", ""))
            for rank, dims in zip(self.call.ranks, found.operands, strict=True)
            if "..." in dims
        ]
        names = "STUVWXYZ"

        def expanded(dims: str, count: int) -> str:
            return dims.replace("...", names[len(names) - count :])

        operands = iter(extra)
        return Signature(
            tuple(expanded(dims, next(operands)) if "..." in dims else dims for dims in found.operands),
            tuple(expanded(dims, max(extra, default=0)) for dims in found.outputs),
        )

    def _signature_by_values(self) -> Signature | None:
        """The signature that the values of operands and the shapes tell, in the letters of the example."""
        with tf.Graph().as_default() as made:
            self.apply([tf.constant(value) for value in self.values()])
        graph = graphdef.from_graph_def(made.as_graph_def())
        shapes.infer(graph)
        (node,) = graph.of_type(self.record.name)
        found = factors.signature(node)
        if found is None:
            return None
        kept = {factor for named in found.outputs for factor in named or ()}
        letters = {
            factor: letter if factor in kept or found.reduce_op else "*"
            for index, named in enumerate(found.inputs)
            for factor, letter in zip(named or (), self.shape(index), strict=bool(named))
        } | {WHOLE: "*"}
        sides = (found.inputs, found.outputs)
        return Signature(*(
            tuple("-" if named is None else "".join(letters[factor] for factor in named) for named in side)
            for side in sides
        ))  # fmt: skip

    # ----------------------------------------------------------------------- operands

    def shape(self, index: int) -> str:
        return re.sub(r"[<+%^#@~].*|_|=.*", "", self.operands[index])

    def dtype(self, index: int) -> Any:
        """The dtype of an operand: the given one, or the first that the op takes and that suits the example."""
        arg, text = self.places[index], self.operands[index]
        given = self.attrs.get(arg.type_attr)
        if given is not None:
            return given.as_numpy_dtype
        if arg.type:
            return tf.as_dtype(arg.type).as_numpy_dtype
        allowed: list[int] = []
        if arg.type_attr:
            (attr,) = (attr for attr in self.definition.attr if attr.name == arg.type_attr)
            allowed = list(attr.allowed_values.list.type)
            same = [i for i, other in enumerate(self.places) if other.type_attr == arg.type_attr]
            text = next((self.operands[i] for i in same if not self.operands[i].startswith("=")), text)
        wished = [tf.float32, tf.float64, tf.complex64]
        if "<" in text or "[" in text or re.fullmatch(r"=[-0-9]+", text) or ("#" in text and index):
            wished = [tf.int32, tf.int64, tf.uint8, tf.bool]
        if "~" in text:
            wished = [tf.string]
        return next(
            d for d in [*wished, tf.int32, tf.int64, tf.bool, tf.string] if not allowed or int(d) in allowed
        ).as_numpy_dtype

    def value(self, index: int, sizes: dict[str, int] | None = None) -> np.ndarray[Any, Any]:
        """An operand; ``sizes`` matters for those that are vectors of sizes."""
        text, dtype = self.operands[index], self.dtype(index)
        if text.startswith("["):
            return np.asarray([(sizes or {}).get(c, size(c, self.round)) for c in text[1:-1]], dtype)
        if text.startswith("="):
            return np.asarray(ast.literal_eval(text[1:]), dtype)
        return self.random(index, 0)

    def random(self, index: int, seed: int) -> np.ndarray[Any, Any]:
        """Numbers that are the same whenever they are asked for."""
        text, dtype, shape = (
            self.operands[index],
            np.dtype(self.dtype(index)),
            tuple(size(c, self.round) for c in self.shape(index)),
        )
        rng = np.random.default_rng([zlib.crc32(self.record.name.encode()), index, seed])
        if dtype.kind == "O":
            return rng.integers(1000, 9999, shape).astype("S4").astype(object)
        if "<" in text:
            return rng.integers(0, int(text.partition("<")[2]), shape).astype(dtype)
        if "#" in text:
            return np.sort(rng.integers(0, shape[0], shape), 0).astype(dtype)
        if dtype.kind in "biu":
            return rng.integers(0, 2 if dtype.kind == "b" else 5, shape).astype(dtype)
        made = rng.normal(size=shape)
        if "+" in text or "^" in text:
            made = np.abs(made) + (0.2 if "+" in text else 1.2)
        if "%" in text:
            made = rng.uniform(0.1, 0.9, shape)
        if "@" in text:
            made = made @ np.swapaxes(made, -1, -2) + np.eye(shape[-1])
        return np.asarray(made + 1j * rng.normal(size=shape) if dtype.kind == "c" and "@" not in text else made).astype(
            dtype
        )

    def values(self) -> list[np.ndarray[Any, Any]]:
        return [self.value(i) for i in range(len(self.places))]

    # ----------------------------------------------------------------------- running

    def run(self, operands: list[Any]) -> list[Any]:
        return [np.asarray(t) for t in tf.nest.flatten(self.apply(operands))]

    @property
    def compiled(self) -> bool:
        """Whether only XLA has the op: with channels first."""
        return self.attrs.get("data_format") == "NCHW"

    def apply(self, operands: list[Any]) -> Any:
        if self.compiled and not tf.inside_function():
            return tf.function(lambda: self.apply(operands), jit_compile=True)()
        function = getattr(tf.raw_ops, self.record.name)
        names = inspect.signature(function).parameters
        arguments: dict[str, Any] = {}
        for arg, value in zip(self.places, operands, strict=True):
            if arg.number_attr or arg.type_list_attr:
                arguments.setdefault(arg.name, []).append(value)
            else:
                arguments[arg.name] = value
        for attr in self.definition.attr:
            if attr.name in self.attrs or not attr.HasField("default_value"):
                arguments[attr.name] = self.attrs.get(attr.name, _UNSET.get(attr.type))
        for arg in self.places:
            for inferred in (arg.type_attr, arg.number_attr, arg.type_list_attr):
                arguments.pop(inferred, None)
        unsaid = [a.name for a in self.definition.attr if arguments.get(a.name, "") is None and a.type not in _UNSET]
        assert not unsaid, (
            f"{self.record.name} has no default of '{unsaid[0]}': a line in tests/data/op_examples.txt gives one"
        )
        others = iter([name for name in names if name not in arguments and name != "name"])  # renamed, in order
        return function(**{name if name in names else next(others): value for name, value in arguments.items()})


_UNSET = {"type": tf.float32, "shape": None}
"""Values of attributes that an example leaves open though they have no default."""


def size(character: str, number: int) -> int:
    """The size of a dimension: a digit says it; a letter has another size in each round."""
    return int(character) if character.isdigit() else (4, 2, 6)[(ord(character) + number) % 3]


def cases(name: str) -> list[Case]:
    """The examples of an op type; where none is written, one made of its signature."""
    record = ops.record(name)
    if name in _written():
        return [
            Case(record, tuple(_split(text.partition(";")[0], ",")), _attributes(text.partition(";")[2]))
            for text in _written()[name]
        ]
    if not isinstance(record.dims, str) or "-" in record.dims.replace("->", ""):
        return []
    count = len(ops.op_def(name).input_arg)
    dims = ",".join(["..."] * count) if record.dims == "elementwise" else record.dims.partition("->")[0]
    dims = re.sub("[A-Z]", lambda capital: "34"[ord(capital[0]) % 2], dims.replace("...", "pq").replace("*", "3"))
    return [Case(record, tuple(part.strip() for part in dims.split(",")), {})]


@functools.cache
def _written() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in EXAMPLES.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in " #":
            names, _, examples = line.partition(": ")
            for name in names.split():
                found[name] = [*found.get(name, ()), *_split(examples, "|")]
    return found


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no brackets and no quotes."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "'"
        depth += (character in "[(") - (character in "])")
        if character == separator and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _attributes(text: str) -> dict[str, Any]:
    return eval(f"dict({text})", {"tf": tf})  # an example of ours


def _python(value: Any) -> Any:
    """The default value of an attribute as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "list":
        return next((list(getattr(value.list, field.name)) for field, _ in value.list.ListFields()), [])
    found = getattr(value, kind)
    return {"s": lambda: found.decode(), "type": lambda: tf.as_dtype(found)}.get(kind, lambda: found)()
