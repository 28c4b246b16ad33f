"""Checks an untrusted GraphDef against TensorFlow's op definitions, once, before TensorFlow loads it.

The rest of the compiler relies on it: each node has the attributes that its op demands, of the right kinds and in range; it
reads as many tensors as its op takes, of the right dtypes and from outputs that exist; names and device strings are valid;
constants hold what they declare; cycles are TF1 loops. The same holds in the functions of the library, none of which calls
itself. Time and memory are linear in the size of the file: a number in the file that claims more (inputs, outputs, elements)
is refused before anything is allocated for it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from typing import Any, NamedTuple

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.node import Node, Tensor
from tpugraph.support.errors import LoadError
from tpugraph.support.wording import counted

Wired = tuple[Node, tuple[Tensor, ...], tuple[Node, ...]]
"""A node with its inputs and what it waits for."""

FIX = "the file is cut off, damaged or was edited by hand: write the graph again, or copy it again"

MOST_OUTPUTS_TOGETHER = 1 << 20  # of the nodes of a file, beyond 16 for each node

_LABEL = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_>./\\-]*")
_NAMES = re.compile(r"(?:[A-Za-z0-9.][A-Za-z0-9_>./\\-]*\n)*")
_DEVICE = re.compile(
    r"(?:/job:(?:\*|[a-zA-Z][\w-]*)|/replica:(?:\*|\d{1,9})|/task:(?:\*|\d{1,9})"
    r"|/device:\*|/(?:device:)?(?:\*|[a-zA-Z]\w*):(?:\*|\d{1,9}))*/?"
)
_SHAPES = "_output_shapes"
_serialized = attr_codec.AttrValue.SerializeToString
_Taker = Callable[[dict[str, Any]], tuple[Any, ...]]
_Outputs = dict[Node, tuple[int, ...]]
_Early = tuple[Node, tuple[Tensor, ...], tuple[int, ...]]


_PORT = re.compile(r"\d{1,9}")


def wire(read: Iterable[tuple[Node, Sequence[str]]], by_name: Mapping[str, Node], source: str) -> Iterator[Wired]:
    """Each node with what it reads and waits for, from the texts of its inputs; what many nodes name alike is looked up once."""
    tensors: dict[str, Tensor] = {}
    waits: dict[tuple[str, ...], tuple[Node, ...]] = {}
    for node, texts in read:
        inputs: list[Tensor] = []
        controls: tuple[Node, ...] = ()
        for index, text in enumerate(texts):
            tensor = tensors.get(text)
            if tensor is None:
                if text.startswith("^"):
                    names = tuple(texts[index:])
                    controls = waits.get(names) or waits.setdefault(names, _waited(names, by_name, node, source))
                    break
                tensor = tensors[text] = _tensor(text, by_name, node, source)
            inputs.append(tensor)
        yield node, tuple(inputs), controls


def _tensor(text: str, by_name: Mapping[str, Node], node: Node, source: str) -> Tensor:
    producer = by_name.get(text)
    if producer is not None:
        return Tensor(producer, 0)
    base, _, port = text.rpartition(":")
    producer = _producer(by_name, base or text, node, source)
    if not _PORT.fullmatch(port):
        raise _refusal(f"the input '{text}' names no output", node, source)
    return Tensor(producer, int(port))


def _waited(names: Sequence[str], by_name: Mapping[str, Node], node: Node, source: str) -> tuple[Node, ...]:
    found: dict[Node, None] = {}
    for name in names:
        base, _, port = name.removeprefix("^").partition(":")
        found[_producer(by_name, base, node, source)] = None
        if port or name[:1] != "^":
            fault = "names an output, which a control input has not"
            if name[:1] != "^":
                fault = "stands behind a control input, where TensorFlow takes none"
            raise _refusal(f"the input '{name}' {fault}", node, source)
    return tuple(found)


def _producer(by_name: Mapping[str, Node], name: str, consumer: Node, source: str) -> Node:
    producer = by_name.get(name)
    if producer is None:
        raise _refusal(f"the input '{name}' is not in the graph", consumer, source)
    return producer


def _refusal(fault: str, node: Node, source: str) -> LoadError:
    return LoadError(fault, node=node, origin=source, fix=FIX)


class Validator:
    """Validates one graph with its ``FunctionDefLibrary``; ``source`` is the file, for messages."""

    def __init__(self, library: Any, source: str) -> None:
        self._source = source
        self._library = library
        self._functions: dict[str, Any] = {function.signature.name: function for function in library.function}
        self._schemas: dict[str, Schema | None] = {}
        self._signatures: dict[tuple[Any, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._known_shapes: set[tuple[bytes, int]] = set()
        self._constants = Constants()

    def check(self, wired: Sequence[Wired]) -> bool:
        """Check the nodes of a graph and the library; returns whether each node stands behind all that it reads and waits for."""
        nodes = [node for node, _, _ in wired]
        self._check_names(nodes)
        self._check_library()
        self._check_known({node.op: node for node in reversed(nodes)})
        outputs, early = self._check_in_order(wired)
        for node, inputs, wanted in early:
            self._check_inputs(node, inputs, wanted, outputs)
        claimed = sum(map(len, outputs.values()))
        if claimed > MOST_OUTPUTS_TOGETHER + 16 * len(nodes):
            raise LoadError(f"the nodes claim {claimed:,} outputs together", origin=self._source, fix=FIX)
        return not early

    def _check_in_order(self, wired: Sequence[Wired]) -> tuple[_Outputs, list[_Early]]:
        """Check nodes and what they read in one walk, which is all there is to do for a file that is sorted.

        Returns the dtypes of the outputs of each node, and the nodes that stand before something that they read or wait for.
        """
        outputs: _Outputs = {}
        early: list[_Early] = []
        released: set[int] = set()  # tuples of nodes that all came by: many wait for the same
        matching: set[tuple[Any, Any]] = set()
        signatures = self._signatures
        chosen: dict[tuple[str, ...], _Taker] = {}  # takes out what is compared of the attributes
        for node, inputs, controls in wired:
            held = node._attrs
            names = tuple(held)
            declared = chosen.get(names)
            if declared is None:
                declared = chosen[names] = _taker([name for name in names if name[:1] != "_" and name != "value"])
            key = (node.op, len(inputs), names, *map(_serialized, declared(held)))
            found = signatures.get(key)
            if found is None:
                found = signatures[key] = self._signature(node, len(inputs))
            wanted, made = found
            if inputs:
                try:
                    read = tuple([outputs[producer][port] for producer, port in inputs])
                except (KeyError, IndexError):
                    read = None
                if read != wanted and (read is None or (read, wanted) not in matching):
                    self._check_inputs(node, inputs, wanted, outputs)
                    matching.add((read, wanted))
                    if read is None:
                        early.append((node, inputs, wanted))
            if controls and id(controls) not in released:
                if all(map(outputs.__contains__, controls)):
                    released.add(id(controls))
                else:
                    early.append((node, inputs, wanted))
            outputs[node] = made
            if node.op in ops.CONSTANTS:
                self._check_constant(node)
            if _SHAPES in held:
                self._check_told_shapes(node, len(made))
        return outputs, early

    def _signature(self, node: Node, given: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dtypes of what a node takes and gives; nodes with the same attributes are looked at once."""
        schema = self.schema(node.op)
        assert schema is not None, "unknown ops were refused"
        try:
            found = schema.signature(node._attrs, given)
        except Mismatch as error:
            raise self._refusal(str(error), node) from error
        return found.inputs or (), found.outputs or ()

    def _check_names(self, nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        joined = "\n".join([*names, ""])
        if joined.count("\n") != len(names) or not _NAMES.fullmatch(joined):
            node = next(node for node in nodes if "\n" in node.name or not _NAMES.fullmatch(node.name + "\n"))
            raise self._refusal(f"{node.name[:100]!r} is no name of a node", node)
        for device in {node.device for node in nodes}:
            if not _DEVICE.fullmatch(device):
                node = next(node for node in nodes if node.device == device)
                raise self._refusal(f"{device[:100]!r} is no device", node)

    def _check_known(self, first_of: Mapping[str, Node]) -> None:
        unknown = sorted(op for op in first_of if self.schema(op) is None)
        if unknown:
            import tensorflow as tf

            raise LoadError(
                f"this TensorFlow ({tf.__version__}) does not know the op{'s' if len(unknown) > 1 else ''} "
                + ", ".join(unknown)[:300],
                node=first_of[unknown[0]],
                origin=self._source,
                fix="load its library with tf.load_op_library before converting, or remove it from the graph",
            )

    def schema(self, op: str) -> Schema | None:
        if op not in self._schemas:
            function = self._functions.get(op)
            definition = ops.op_def(op) if function is None else function.signature
            self._schemas[op] = None if definition is None else Schema(definition, self._functions)
        return self._schemas[op]

    def _check_told_shapes(self, node: Node, outputs: int) -> None:
        value = node._attrs[_SHAPES]
        key = (value.SerializeToString(), outputs)
        if key in self._known_shapes:
            return
        if value.WhichOneof("value") not in ("list", None) or len(value.list.shape) < outputs:
            raise self._refusal(f"the attribute '{_SHAPES}' does not hold a shape of each output ({outputs})", node)
        for fault in filter(None, map(shape_fault, value.list.shape)):
            raise self._refusal(f"the attribute '{_SHAPES}' {fault}", node)
        self._known_shapes.add(key)

    def _check_constant(self, node: Node) -> None:
        try:
            self._constants.check(node._attrs["value"].tensor, node._attrs["dtype"].type)
        except Mismatch as error:
            raise self._refusal(f"the constant '{node.name}' {error}", node) from error

    def _check_inputs(self, node: Node, inputs: Sequence[Tensor], wanted: Sequence[int], outputs: _Outputs) -> None:
        """Check each input of a node, with words; what was not come by yet is passed over."""
        for index, ((producer, port), kind) in enumerate(zip(inputs, wanted, strict=True)):
            made = outputs.get(producer)
            if made is None:
                continue
            if port >= len(made):
                raise self._refusal(f"input {index} is output {port} of '{producer.name}', which has {len(made)}", node)
            if made[port] not in (kind, kind + 100):
                raise self._refusal(f"input {index}, '{producer.name}', is {attr_codec.dtype(made[port])}, and "
                                    f"{node.op} takes {attr_codec.dtype(kind)}", node)  # fmt: skip

    def _check_library(self) -> None:
        seen: set[str] = set()
        for function in self._library.function:
            name = function.signature.name
            try:
                if name in seen:
                    raise Mismatch("there are two functions of that name")
                if not name or ops.op_def(name) is not None:
                    raise Mismatch("a function cannot have the name of an op" if name else "a function has no name")
                check_body(function, self.schema, self._constants)
            except Mismatch as error:
                raise LoadError(f"the function '{name[:100]}': {error}", origin=self._source, fix=FIX) from error
            seen.add(name)
        try:
            check_calls(self._functions, self._library.gradient)
        except Mismatch as error:
            raise LoadError(str(error), origin=self._source, fix=FIX) from error

    def _refusal(self, fault: str, node: Node) -> LoadError:
        return _refusal(fault, node, self._source)


def _taker(names: list[str]) -> _Taker:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda held: tuple([held[name] for name in names])


# --------------------------------------------------------------------------- op definitions

MOST_OUTPUTS = 1 << 16  # that an attribute may claim for one node: TensorFlow makes them all before it asks for more
MOST_DIMENSIONS = 254  # in TensorFlow
MOST_ELEMENTS = 1 << 48  # of a static shape: more than any machine holds, and no product of sizes overflows
OPEN = 0  # stands for a dtype that a function leaves open to its call

_REF = 100  # DT_X_REF is DT_X + 100
_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "shape": "shape", "tensor": "tensor",
           "func": "func"}  # fmt: skip


class Mismatch(ValueError):
    """What of a node is not as its op is defined, as a sentence without the node."""


class Signature(NamedTuple):
    """The dtypes that a node takes and gives, as TensorFlow's numbers; None where a function leaves their count open."""

    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None


class Schema:
    """The ``OpDef`` of an op type or a library function, against which nodes are held; ``functions`` are those of the library."""

    def __init__(self, definition: Any, functions: Mapping[str, Any]) -> None:
        self.definition = definition
        self._functions = functions

    def signature(self, attributes: Mapping[str, Any], given: int, *, in_body: bool = False) -> Signature:
        """The dtypes of inputs and outputs of a node with ``given`` data inputs; in a body, a call may fill in attributes."""
        for name, value in attributes.items():
            if not name:
                raise Mismatch("an attribute has no name")
            if name[:1] != "_" and name not in self._attributes and value.WhichOneof("value") is not None:
                raise Mismatch(f"{self.definition.name} has no attribute '{name}' in this TensorFlow")
            open_ = in_body and value.WhichOneof("value") == "placeholder"
            if name in self._attributes and not open_:
                self._check_attribute(self._attributes[name], value)
        held = {name: attributes.get(name, declared.default_value) for name, declared in self._attributes.items()}
        for name, declared in self._attributes.items():
            if name not in attributes and not declared.HasField("default_value"):
                raise Mismatch(f"the attribute '{name}' of {self.definition.name} is missing")
        self._check_trusted(held)
        inputs = self._dtypes(self.definition.input_arg, held, given, "inputs")
        if inputs is not None and len(inputs) != given:
            raise Mismatch(f"{self.definition.name} takes {counted(len(inputs), 'input')} here and has {given}")
        return Signature(inputs, self._dtypes(self.definition.output_arg, held, MOST_OUTPUTS, "outputs"))

    @cached_property
    def _attributes(self) -> dict[str, Any]:
        return {declared.name: declared for declared in self.definition.attr}

    def _check_attribute(self, declared: Any, value: Any) -> None:
        kind = declared.type
        if kind.startswith("list("):
            items = _list_items(kind[5:-1], value)
        else:
            items = [getattr(value, _FIELDS[kind])] if value.WhichOneof("value") == _FIELDS.get(kind) else None
        if items is None:
            held = value.WhichOneof("value") or "nothing"
            raise Mismatch(f"the attribute '{declared.name}' holds {_KIND_OF.get(held, held)}, not {kind}")
        element = kind.removeprefix("list(").removesuffix(")")
        for fault in filter(None, (self._fault(element, item) for item in items)):
            raise Mismatch(f"the attribute '{declared.name}' {fault}")
        if declared.has_minimum:
            size = items[0] if kind == "int" else len(items)
            if size < declared.minimum:
                raise Mismatch(f"the attribute '{declared.name}' is {'' if kind == 'int' else 'a list of '}{size}, less "
                               f"than {declared.minimum}")  # fmt: skip
        if declared.HasField("allowed_values"):
            allowed = getattr(declared.allowed_values.list, _FIELDS[element])
            for item in items:
                if item not in allowed:
                    raise Mismatch(f"the attribute '{declared.name}' is {_shown(element, item)}, which "
                                   f"{self.definition.name} does not take")  # fmt: skip

    def _check_trusted(self, held: Mapping[str, Any]) -> None:
        """Check the attributes that TensorFlow's own shape function takes for granted."""
        name = self.definition.name
        trusted = ops.TRUSTED.get(name)
        if trusted is None:
            return
        for attribute, most in trusted.most:
            if abs(held[attribute].i) > most:
                raise Mismatch(f"the attribute '{attribute}' is {held[attribute].i:,}; {name} takes at most {most:,}")
        for attribute, kind in trusted.never:
            if attr_codec.dtype(kind).number == held[attribute].type:
                raise Mismatch(f"the attribute '{attribute}' is {kind}, which {name} does not take")
        lists = {attribute: held[attribute].list.ListFields() for attribute in trusted.alike}
        lengths = {attribute: sum(len(items) for _, items in fields) for attribute, fields in lists.items()}
        if len(set(lengths.values())) > 1:
            told = " and ".join(f"{length} in '{attribute}'" for attribute, length in lengths.items())
            raise Mismatch(f"{name} is told of {told}, which must be as many")

    def _fault(self, kind: str, item: Any) -> str | None:
        if kind == "type":
            return None if item in attr_codec.NUMBERS else f"holds {item}, which is no dtype of a tensor"
        if kind == "shape":
            return shape_fault(item)
        if kind == "func" and item.name and item.name not in self._functions and ops.op_def(item.name) is None:
            return f"names the function '{item.name[:100]}', which is not in the graph's library"
        return None

    def _dtypes(self, arguments: Any, held: Mapping[str, Any], most: int, what: str) -> tuple[int, ...] | None:
        found: list[int] = []
        for argument in arguments:
            made = _argument_dtypes(argument, held, most, f"{self.definition.name} {what}")
            if made is None:
                return None
            found += made
        return tuple(found)


def _argument_dtypes(argument: Any, held: Mapping[str, Any], most: int, whose: str) -> list[int] | None:
    if argument.type_list_attr:
        value = held[argument.type_list_attr]
        return None if value.WhichOneof("value") == "placeholder" else list(value.list.type)
    count = 1
    if argument.number_attr:
        value = held[argument.number_attr]
        if value.WhichOneof("value") == "placeholder":
            return None
        count = value.i
        if not 0 <= count <= most:
            raise Mismatch(f"the attribute '{argument.number_attr}' claims {count:,} of {whose}; {_most(most, whose)}")
    kind = argument.type or held[argument.type_attr].type  # a placeholder holds 0, which is OPEN
    return [kind + _REF if argument.is_ref and kind != OPEN else kind] * count


def _most(most: int, whose: str) -> str:
    return f"it has {most:,}" if whose.endswith("inputs") else f"at most {most:,} can be read from a file"


_KIND_OF = {field: kind for kind, field in _FIELDS.items()}


def _list_items(kind: str, value: Any) -> list[Any] | None:
    """The items of an attribute that must be a list of a kind; None where it is something else."""
    held = value.WhichOneof("value")
    if held is None:  # an empty list, as old writers left it
        return []
    if held != "list":
        return None
    fields = [field for field, _ in value.list.ListFields()]
    own = _FIELDS[kind]
    return list(getattr(value.list, own)) if all(field.name == own for field in fields) else None


def shape_fault(shape: Any) -> str | None:
    """What is wrong with a ``TensorShapeProto``, after the words for what holds it, or None."""
    if shape.unknown_rank:
        return "is a shape of unknown rank with dimensions" if shape.dim else None
    if len(shape.dim) > MOST_DIMENSIONS:
        return f"is a shape of {len(shape.dim)} dimensions; TensorFlow has at most {MOST_DIMENSIONS}"
    count = 1
    for dim in shape.dim:
        if dim.size < -1:
            return f"is a shape with a dimension of {dim.size}"
        count *= max(dim.size, 1)
    return f"is a shape of {count:,} elements; at most {MOST_ELEMENTS:,} can be" if count > MOST_ELEMENTS else None


def tensors(definition: Any, arguments: Any, attributes: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Argument and number of the dtype of each tensor that a node with these attributes takes or gives."""
    held = {declared.name: declared.default_value for declared in definition.attr} | dict(attributes)
    return [(a.name, number) for a in arguments for number in _argument_dtypes(a, held, MOST_OUTPUTS, "") or ()]


def _shown(kind: str, item: Any) -> str:
    return str(attr_codec.dtype(item)) if kind == "type" else repr(item)[:60].removeprefix("b")


# --------------------------------------------------------------------------- constants

_VALUES = {
    "float32": "float_val", "float64": "double_val", "int32": "int_val", "uint8": "int_val", "int16": "int_val", "int8": "int_val",
    "string": "string_val", "complex64": "scomplex_val", "int64": "int64_val", "bool": "bool_val", "bfloat16": "half_val",
    "uint16": "int_val", "complex128": "dcomplex_val", "float16": "half_val", "uint32": "uint32_val", "uint64": "uint64_val",
}  # fmt: skip
"""Of the dtypes that a constant may have, the field that holds single values."""

_BY_NUMBER = {attr_codec.dtype(name).number: (attr_codec.dtype(name).size, field) for name, field in _VALUES.items()}


MOST_PADDED = 1 << 22
"""How many elements of a constant may be repetitions of its last value; where all are one floating number there is no bound
but that of shapes, since optimizers fill their slots so.
"""

MOST_PADDED_STRINGS = 1 << 16
"""The same for strings, each of which is an object."""


class Constants:
    """The checks of all constants of a graph; those of one shape share the work."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def check(self, tensor: Any, declared: int) -> None:
        """Check a ``TensorProto`` against the number of the dtype that its node declares."""
        kind = tensor.dtype
        if kind != declared:
            raise Mismatch("holds another dtype than it declares")
        size, field = _BY_NUMBER.get(kind, (None, ""))
        if not field:
            raise Mismatch(f"has the dtype {attr_codec.dtype(kind)}, which a file cannot hold")
        proto = tensor.tensor_shape
        shape = proto.SerializeToString()
        count = self._counts.get(shape)
        if count is None:
            count = self._counts[shape] = _count(proto)
        content = len(tensor.tensor_content)
        if content:
            if size is None:
                raise Mismatch(f"is damaged: it holds {content} bytes and no strings")
            if content != count * size:
                raise Mismatch(f"is damaged: it holds {content} bytes, but its shape and dtype make {count * size}")
            return
        values = len(getattr(tensor, field))
        if values < count and count - values > (MOST_PADDED_STRINGS if size is None else MOST_PADDED):
            floating = attr_codec.dtype(kind).floating and values <= 1
            if not floating:
                raise Mismatch(f"claims {count:,} elements and holds {values}")
        if values > count and values > (2 * count if "complex" in field else count):
            raise Mismatch(f"is damaged: it holds {values} values, but its shape makes {count}")


def _count(shape: Any) -> int:
    if shape.unknown_rank or any(dim.size == -1 for dim in shape.dim):
        raise Mismatch("is of an unknown shape")
    fault = shape_fault(shape)
    if fault is not None:
        raise Mismatch(fault)
    return math.prod(dim.size for dim in shape.dim)


# --------------------------------------------------------------------------- functions


@dataclass(frozen=True)
class _Made:
    """What an argument or a node of a body gives: dtypes, None where their number is open; the places of its outputs."""

    dtypes: tuple[int, ...] | None
    places: Mapping[str, int]


def check_body(function: Any, schema: Callable[[str], Schema | None], constants: Constants) -> None:
    """Check a ``FunctionDef`` as far as it can be known without a call; ``schema`` says what an op type demands."""
    made = dict(_arguments(function))
    wanted: dict[str, tuple[int, ...] | None] = {}
    for node in function.node_def:
        if node.name in made or not _LABEL.fullmatch(node.name):
            raise Mismatch(f"{node.name[:100]!r} is empty or the name of two nodes")
        made[node.name], wanted[node.name] = _checked(node, schema, constants)
    for node in function.node_def:
        data = [text for text in node.input if not text.startswith("^")]
        if any(text.startswith("^") for text in node.input[: len(data)]):
            raise Mismatch(f"the node '{node.name}' has an input behind a control input")
        found = [_dtype_of(text, made) for text in data]
        for text, have, want in zip(data, found, wanted[node.name] or (), strict=False):
            if have is not None and OPEN not in (have, want) and have not in (want, want + 100):
                raise Mismatch(f"the node '{node.name}' reads '{text}', {attr_codec.dtype(have)}, and takes "
                               f"{attr_codec.dtype(want)}")  # fmt: skip
        for text in node.input[len(data) :]:
            _look_up(text[1:], made)
    _check_results(function, made)
    _check_order(function)


def _arguments(function: Any) -> Iterator[tuple[str, _Made]]:
    names = Counter(argument.name for argument in function.signature.input_arg)
    for argument in function.signature.input_arg:
        if names[argument.name] > 1 or not _LABEL.fullmatch(argument.name):
            raise Mismatch(f"{argument.name[:100]!r} is empty or the name of two arguments")
        if argument.number_attr or argument.type_list_attr:
            yield argument.name, _Made(None, {})
            continue
        _check_dtype(function, argument)
        yield argument.name, _Made((argument.type,), {"": 0})


def _check_dtype(function: Any, argument: Any) -> None:
    declared = {attribute.name for attribute in function.signature.attr}
    if argument.type not in attr_codec.NUMBERS and argument.type_attr not in declared:
        raise Mismatch(f"the argument or result '{argument.name}' has no dtype")


def _checked(
    node: Any, schema: Callable[[str], Schema | None], constants: Constants
) -> tuple[_Made, tuple[int, ...] | None]:
    """What a node of a body gives, and the dtypes that it takes."""
    demands = schema(node.op)
    if demands is None:
        raise Mismatch(f"the node '{node.name}' is of the op '{node.op[:100]}', which this TensorFlow does not know")
    attributes = {key: node.attr[key] for key in node.attr}
    given = len([text for text in node.input if not text.startswith("^")])
    try:
        signature = demands.signature(attributes, given, in_body=True)
        if node.op in ops.CONSTANTS and attributes["value"].WhichOneof("value") == "tensor":
            constants.check(attributes["value"].tensor, attributes["dtype"].type)
    except Mismatch as error:
        raise Mismatch(f"at the node '{node.name}' ({node.op}): {error}") from error
    if signature.outputs is None:
        return _Made(None, {}), signature.inputs
    names = [name for name, _ in tensors(demands.definition, demands.definition.output_arg, attributes)]
    return _Made(signature.outputs, {name: names.index(name) for name in names}), signature.inputs


def _look_up(label: str, made: Mapping[str, _Made]) -> _Made:
    found = made.get(label)
    if found is None:
        raise Mismatch(f"'{label[:100]}' is read but not in the function")
    return found


def _dtype_of(text: str, made: Mapping[str, _Made]) -> int | None:
    """The dtype of what a body names as ``argument`` or ``node:output:number``; None where that is open."""
    label, _, rest = text.partition(":")
    found = _look_up(label, made)
    if found.dtypes is None:
        return None
    output, _, number = rest.rpartition(":") if ":" in rest or rest not in found.places else (rest, "", "0")
    if output not in found.places or not re.fullmatch(r"\d{1,9}", number or "0"):
        raise Mismatch(f"'{text[:100]}' is read, but '{label[:100]}' has no such output")
    place = found.places[output] + int(number or "0")
    if place >= len(found.dtypes):
        raise Mismatch(f"'{text[:100]}' is read, and '{label[:100]}' has {len(found.dtypes)} outputs")
    return found.dtypes[place]


def _check_results(function: Any, made: Mapping[str, _Made]) -> None:
    for result in function.signature.output_arg:
        if result.number_attr or result.type_list_attr:
            continue
        _check_dtype(function, result)
        if result.name not in function.ret:
            raise Mismatch(f"the result '{result.name[:100]}' is not computed")
        have = _dtype_of(function.ret[result.name], made)
        if have is not None and OPEN not in (have, result.type) and have not in (result.type, result.type + 100):
            raise Mismatch(f"the result '{result.name}' is {attr_codec.dtype(have)} and declared as "
                           f"{attr_codec.dtype(result.type)}")  # fmt: skip
    for label in function.signature.control_output:
        _look_up(function.control_ret.get(label, ""), made)


def _check_order(function: Any) -> None:
    """See that the nodes of a body have an order; loops as TensorFlow 1 writes them close at NextIteration."""
    ops_of = {node.name: node.op for node in function.node_def}
    producers: dict[str, set[str]] = {}
    for node in function.node_def:
        read = {text.removeprefix("^").partition(":")[0] for text in node.input}
        ends = ops.NEXT_ITERATION if node.op in ops.MERGE else ()
        producers[node.name] = {name for name in read if name in ops_of and ops_of[name] not in ends}
    cycle = _cycle(producers)
    if cycle:
        raise Mismatch(f"a cycle that is no loop leads through the node '{cycle[0]}'")


def check_calls(functions: Mapping[str, Any], gradients: Iterable[Any]) -> None:
    """See that no function calls itself, directly or by others, and that gradients belong to functions."""
    for gradient in gradients:
        for name in (gradient.function_name, gradient.gradient_func):
            if name not in functions:
                raise Mismatch(f"the gradient function '{name[:100]}' is not in the graph's library")
    cycle = _cycle({name: _called(function, functions) for name, function in functions.items()})
    if cycle:
        raise Mismatch(f"the function '{cycle[0]}' calls itself; a TPU has no recursion")


def _cycle(before: Mapping[str, Iterable[str]]) -> Sequence[str]:
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        found: Sequence[str] = error.args[1]
        return found
    return ()


def _called(function: Any, functions: Mapping[str, Any]) -> list[str]:
    found: dict[str, None] = {}
    for node in function.node_def:
        found[node.op] = None
        for value in node.attr.values():
            held = [value.func] if value.WhichOneof("value") == "func" else value.list.func
            found.update((func.name, None) for func in held)
    return [name for name in found if name in functions]


# --------------------------------------------------------------------------- ranks
# Some of TensorFlow's shape functions end the process where an operand has another rank than they expect (ops.RANKS). Only
# TensorFlow knows a rank, and only while it imports the graph. So a node stands in front of each such node, whose own shape
# function refuses the wrong rank in words. Guards are for dtypes and shapes only: no graph that is written or run has one.

_GUARD = re.compile(r"(?:r\d+/)?(.+)/rank_of_input_(\d+)_is_(.+)")


def guard(nodes: Any, definition: Any) -> None:
    """Add guards to the nodes of a GraphDef and let one of them, whose op is one of ``ops.RANKS``, wait for these."""
    operands = [text for text in definition.input if not text.startswith("^")]
    for rank in ops.RANKS[definition.op]:
        number = rank.more + (_held(definition, rank.number) if isinstance(rank.number, str) else rank.number)
        operand = rank.operand if isinstance(rank.operand, slice) else slice(rank.operand, rank.operand + 1)
        for place in range(len(operands))[operand] if rank.exact or number > 0 else ():
            made = nodes.add(input=[operands[place]])
            made.name = f"{definition.name}/rank_of_input_{place}_is_{number}{'' if rank.exact else '_or_more'}"
            made.attr["T"].CopyFrom(_dtype(definition, place))
            if rank.exact:
                made.op = "EnsureShape"
                made.attr["shape"].CopyFrom(attr_codec.encode((None,) * number))
            else:  # a new axis can stand behind as many dimensions as there are
                made.op = "Pack"
                made.attr["N"].i, made.attr["axis"].i = 1, number
            definition.input.append(f"^{made.name}")


def _held(definition: Any, name: str) -> int:
    declared = next(attr for attr in ops.op_def(definition.op).attr if attr.name == name)
    return int(definition.attr.get(name, declared.default_value).i)


def guarded_input(name: str) -> tuple[str, str] | None:
    """The node that a guard stands in front of, and what is wrong with it; None for the name of another node."""
    found = _GUARD.fullmatch(name)
    if found is None:
        return None
    node, place, wanted = found.groups()
    return node, f"input {place} has another rank than {wanted.replace('_', ' ')}"


def _dtype(definition: Any, place: int) -> Any:
    """The dtype of an operand as an attribute; in a function it may be the name of one of the function's."""
    for argument in ops.op_def(definition.op).input_arg:
        count = definition.attr[argument.number_attr].i if argument.number_attr else 1
        if place < count:
            return (
                definition.attr[argument.type_attr] if argument.type_attr else attr_codec.AttrValue(type=argument.type)
            )
        place -= count
    raise AssertionError("validation counts the inputs")
