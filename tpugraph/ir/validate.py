"""Checks an untrusted GraphDef against TensorFlow's op definitions, once, before TensorFlow loads it.

The rest of the compiler relies on it: each node has the attributes that its op requires, of the right kinds and in range; it
reads the right number of tensors, of the right dtypes and from existing outputs; names and device strings are valid; constants
match their declared dtypes and shapes; cycles are TF1 loops. The same holds in library functions, and none is recursive. Time
and memory are linear in the size of the file: a number in the file that claims more (inputs, outputs, elements) is refused
before anything is allocated for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from typing import Any, NamedTuple

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import OPEN
from tpugraph.ir.function_library import calls, wire_body
from tpugraph.ir.graph import Graph
from tpugraph.ir.node import Node, Tensor, Wired
from tpugraph.support.errors import GraphError
from tpugraph.support.wording import counted

FIX = "the file is cut off, damaged or was edited by hand: write the graph again, or copy it again"

MOST_OUTPUTS_TOGETHER = 1 << 20  # outputs of all nodes of a file, beyond 16 per node

_NAMES = re.compile(r"(?:[A-Za-z0-9.][A-Za-z0-9_>./\\-]*\n)*")
_DEVICE = re.compile(
    r"(?:/job:(?:\*|[a-zA-Z][\w-]*)|/replica:(?:\*|\d{1,9})|/task:(?:\*|\d{1,9})"
    r"|/device:\*|/(?:device:)?(?:\*|[a-zA-Z]\w*):(?:\*|\d{1,9}))*/?"
)
_SHAPES = "_output_shapes"
_serialized = attr_codec.AttrValue.SerializeToString
_Taker = Callable[[dict[str, Any]], tuple[Any, ...]]
Kinds = tuple[int, ...] | None
"""Dtype numbers of tensors; None where their count is an open attribute of a function."""
_Outputs = dict[Node, Kinds]
_Early = tuple[Node, tuple[Tensor, ...], Kinds]


_PORT = re.compile(r"\d{1,9}")


def wire(read: Iterable[tuple[Node, Sequence[str]]], by_name: Mapping[str, Node]) -> Iterator[Wired]:
    """Each node with its data and control inputs, parsed from their texts; equal texts are parsed once."""
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
                    controls = waits.get(names) or waits.setdefault(names, _waited(names, by_name, node))
                    break
                tensor = tensors[text] = _tensor(text, by_name, node)
            inputs.append(tensor)
        yield node, tuple(inputs), controls


def _tensor(text: str, by_name: Mapping[str, Node], node: Node) -> Tensor:
    producer = by_name.get(text)
    if producer is not None:
        return Tensor(producer, 0)
    base, _, port = text.rpartition(":")
    producer = _producer(by_name, base or text, node)
    if not _PORT.fullmatch(port):
        raise GraphError(f"the input '{text}' names no output", node=node)
    return Tensor(producer, int(port))


def _waited(names: Sequence[str], by_name: Mapping[str, Node], node: Node) -> tuple[Node, ...]:
    found: dict[Node, None] = {}
    for name in names:
        base, _, port = name.removeprefix("^").partition(":")
        found[_producer(by_name, base, node)] = None
        if port or name[:1] != "^":
            fault = "names an output, which a control input has not"
            if name[:1] != "^":
                fault = "stands behind a control input, where TensorFlow takes none"
            raise GraphError(f"the input '{name}' {fault}", node=node)
    return tuple(found)


def _producer(by_name: Mapping[str, Node], name: str, consumer: Node) -> Node:
    producer = by_name.get(name)
    if producer is None:
        raise GraphError(f"the input '{name}' is not in the graph", node=consumer)
    return producer


class Validator:
    """Validates one graph with its ``FunctionDefLibrary``; raises a GraphError."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions: dict[str, Any] = {function.signature.name: function for function in library.function}
        self._schemas: dict[str, Schema | None] = {}
        self._signatures: tuple[dict[tuple[Any, ...], Signature], ...] = ({}, {})  # of nodes, and of those in functions
        self._known_shapes: set[tuple[bytes, int]] = set()
        self._constants = Constants()

    def check(self, wired: Sequence[Wired]) -> bool:
        """Check the nodes of a graph and the library; returns whether the nodes are in topological order."""
        nodes = [node for node, _, _ in wired]
        self._check_names(nodes)
        self._check_library()
        self._check_known({node.op: node for node in reversed(nodes)})
        outputs, early = self._check_in_order(wired)
        for node, inputs, wanted in early:
            self._check_inputs(node, inputs, wanted, outputs)
        claimed = sum(map(len, filter(None, outputs.values())))
        if claimed > MOST_OUTPUTS_TOGETHER + 16 * len(nodes):
            raise GraphError(f"the nodes claim {claimed:,} outputs together")
        return not early

    def _check_in_order(self, wired: Sequence[Wired], given: _Outputs | None = None) -> tuple[_Outputs, list[_Early]]:
        """Check nodes and their inputs in one pass, which suffices for a file in topological order.

        Returns the dtypes of the outputs of each node, and the nodes that precede one of their inputs.
        With ``given``, the nodes are those of a function with these arguments.
        """
        in_body, outputs = given is not None, given or {}
        early: list[_Early] = []
        released: set[int] = set()  # tuples of visited nodes: many nodes share control inputs
        matching: set[tuple[Any, Any]] = set()
        signatures = self._signatures[in_body]
        chosen: dict[tuple[str, ...], _Taker] = {}  # extracts the compared attributes
        try:
            for node, inputs, controls in wired:
                held = node._attrs
                names = tuple(held)
                declared = chosen.get(names)
                if declared is None:
                    declared = chosen[names] = _taker([name for name in names if name[:1] != "_" and name != "value"])
                key = (node.op, len(inputs), names, *map(_serialized, declared(held)))
                found = signatures.get(key)
                if found is None:
                    schema = self.schema(node.op)
                    assert schema is not None, "unknown ops were refused"
                    found = signatures[key] = schema.signature(held, len(inputs), in_body=in_body)
                wanted, made = found
                if inputs:
                    try:
                        read = tuple([outputs[producer][port] for producer, port in inputs])  # type: ignore[index]
                    except (KeyError, IndexError, TypeError):
                        read = None  # an input comes later, is missing or has an open dtype
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
                if _SHAPES in held and not in_body:
                    self._check_told_shapes(node, len(made or ()))
        except GraphError as error:
            error.node = error.node or str(node)
            raise
        return outputs, early

    def _check_names(self, nodes: Sequence[Node]) -> None:
        names = [node.name for node in nodes]
        joined = "\n".join([*names, ""])
        if joined.count("\n") != len(names) or not _NAMES.fullmatch(joined):
            node = next(node for node in nodes if "\n" in node.name or not _NAMES.fullmatch(node.name + "\n"))
            raise GraphError(f"{node.name[:100]!r} is no name of a node", node=node)
        for device in {node.device for node in nodes}:
            if not _DEVICE.fullmatch(device):
                node = next(node for node in nodes if node.device == device)
                raise GraphError(f"{device[:100]!r} is no device", node=node)

    def _check_known(self, first_of: Mapping[str, Node]) -> None:
        unknown = sorted(op for op in first_of if self.schema(op) is None)
        if unknown:
            import tensorflow as tf

            raise GraphError(
                f"this TensorFlow ({tf.__version__}) does not know the op{'s' if len(unknown) > 1 else ''} "
                + ", ".join(unknown)[:300],
                node=first_of[unknown[0]],
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
            raise GraphError(f"the attribute '{_SHAPES}' does not hold a shape of each output ({outputs})", node=node)
        for fault in filter(None, map(shape_fault, value.list.shape)):
            raise GraphError(f"the attribute '{_SHAPES}' {fault}", node=node)
        self._known_shapes.add(key)

    def _check_constant(self, node: Node) -> None:
        value = node._attrs["value"]
        fault = (
            None
            if value.WhichOneof("value") == "placeholder"
            else self._constants.fault(value.tensor, node._attrs["dtype"].type)
        )
        if fault is not None:
            raise GraphError(f"the constant '{node.name}' {fault}", node=node)

    def _check_inputs(self, node: Node, inputs: Sequence[Tensor], wanted: Kinds, outputs: _Outputs) -> None:
        """Check each input of a node, with an error message; inputs that come later are skipped."""
        for index, ((producer, port), kind) in enumerate(zip(inputs, wanted or (), strict=wanted is not None)):
            made = outputs.get(producer)
            if made is None:
                continue
            if port >= len(made):
                raise GraphError(
                    f"input {index} is output {port} of '{producer.name}', which has {len(made)}", node=node
                )
            if OPEN not in (made[port], kind) and made[port] not in (kind, kind + 100):
                raise GraphError(f"input {index}, '{producer.name}', is {attr_codec.dtype(made[port])}, and "
                                 f"{node.op} takes {attr_codec.dtype(kind)}", node=node)  # fmt: skip

    def _check_library(self) -> None:
        seen: set[str] = set()
        for function in self._library.function:
            name = function.signature.name
            try:
                if name in seen:
                    raise GraphError("there are two functions of that name")
                if not name or ops.op_def(name) is not None:
                    raise GraphError("a function cannot have the name of an op" if name else "a function has no name")
                self._check_body(function)
            except GraphError as error:
                error.fault = f"the function '{name[:100]}': {error.fault}"
                raise
            seen.add(name)
        _check_calls(self._functions, self._library.gradient)

    def _check_body(self, function: Any) -> None:
        """Check a ``FunctionDef`` as far as possible without a call."""
        takes, gives = ([_kinds(function, argument) for argument in some]
                        for some in (function.signature.input_arg, function.signature.output_arg))  # fmt: skip
        body = wire_body(function, self._functions)
        made = body.nodes[len(body.arguments) :]
        self._check_known({node.op: node for node, _, _ in reversed(made)})
        outputs, early = self._check_in_order(made, dict(zip(body.arguments, takes, strict=True)))
        for node, inputs, wanted in early:
            self._check_inputs(node, inputs, wanted, outputs)
        for result, tensor, wanted in zip(function.signature.output_arg, body.results, gives, strict=True):
            self._check_inputs(Node("the result", result.name, "", {}), (tensor,), wanted, outputs)
        if early:
            graph = Graph()
            graph.adopt(body.nodes)
            graph.topological_order()


def _taker(names: list[str]) -> _Taker:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda held: tuple([held[name] for name in names])


# --------------------------------------------------------------------------- op definitions

MOST_OUTPUTS = 1 << 16  # of one node by its attributes: TensorFlow allocates them first
MOST_DIMENSIONS = 254  # in TensorFlow
MOST_ELEMENTS = 1 << 48  # of a static shape: above any machine's memory, and no product of sizes overflows

_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "shape": "shape", "tensor": "tensor",
           "func": "func"}  # fmt: skip


class Signature(NamedTuple):
    """The input and output dtypes of a node."""

    inputs: Kinds
    outputs: Kinds


class Schema:
    """The ``OpDef`` of an op type or a library function, to check nodes against; ``functions`` are the library's."""

    def __init__(self, definition: Any, functions: Mapping[str, Any]) -> None:
        self.definition = definition
        self._operands = attr_codec.Definition(definition)
        self._functions = functions

    def signature(self, attributes: Mapping[str, Any], given: int, *, in_body: bool = False) -> Signature:
        """The input and output dtypes of a node with ``given`` data inputs; in a body, attributes may be open."""
        for name, value in attributes.items():
            if not name:
                raise GraphError("an attribute has no name")
            if name[:1] != "_" and name not in self._attributes and value.WhichOneof("value") is not None:
                raise GraphError(f"{self.definition.name} has no attribute '{name}' in this TensorFlow")
            open_ = in_body and value.WhichOneof("value") == "placeholder"
            if name in self._attributes and not open_:
                self._check_attribute(self._attributes[name], value)
        held = {name: attributes.get(name, declared.default_value) for name, declared in self._attributes.items()}
        for name, declared in self._attributes.items():
            if name not in attributes and not declared.HasField("default_value"):
                raise GraphError(f"the attribute '{name}' of {self.definition.name} is missing")
        self._check_trusted(held)
        operands, op = self._operands, self.definition.name
        for arguments, most, what in ((operands.inputs, given, "inputs"), (operands.outputs, MOST_OUTPUTS, "outputs")):
            for name in (argument.number_attr for argument in arguments if argument.number_attr):
                if not 0 <= held[name].i <= most:
                    most_said = f"it has {most:,}" if what == "inputs" else f"at most {most:,} can be read from a file"
                    raise GraphError(f"the attribute '{name}' claims {held[name].i:,} of {op} {what}; {most_said}")
        inputs, outputs = (
            None if None in [one.count(held) for one in arguments] else tuple(operands.dtypes(arguments, attributes))
            for arguments in (operands.inputs, operands.outputs)
        )
        if inputs is not None and len(inputs) != given:
            raise GraphError(f"{op} takes {counted(len(inputs), 'input')} here and has {given}")
        return Signature(inputs, outputs)

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
            raise GraphError(f"the attribute '{declared.name}' holds {_KIND_OF.get(held, held)}, not {kind}")
        element = kind.removeprefix("list(").removesuffix(")")
        for fault in filter(None, (self._fault(element, item) for item in items)):
            raise GraphError(f"the attribute '{declared.name}' {fault}")
        if declared.has_minimum:
            size = items[0] if kind == "int" else len(items)
            if size < declared.minimum:
                raise GraphError(f"the attribute '{declared.name}' is {'' if kind == 'int' else 'a list of '}{size}, less "
                               f"than {declared.minimum}")  # fmt: skip
        if declared.HasField("allowed_values"):
            allowed = getattr(declared.allowed_values.list, _FIELDS[element])
            for item in items:
                if item not in allowed:
                    raise GraphError(f"the attribute '{declared.name}' is {_shown(element, item)}, which "
                                   f"{self.definition.name} does not take")  # fmt: skip

    def _check_trusted(self, held: Mapping[str, Any]) -> None:
        """Check the preconditions on attributes that TensorFlow's shape function does not check."""
        name = self.definition.name
        trusted = ops.TRUSTED.get(name)
        if trusted is None:
            return
        for attribute, most in trusted.most:
            if abs(held[attribute].i) > most:
                raise GraphError(f"the attribute '{attribute}' is {held[attribute].i:,}; {name} takes at most {most:,}")
        for attribute, kind in trusted.never:
            if attr_codec.dtype(kind).number == held[attribute].type:
                raise GraphError(f"the attribute '{attribute}' is {kind}, which {name} does not take")
        lists = {attribute: held[attribute].list.ListFields() for attribute in trusted.alike}
        lengths = {attribute: sum(len(items) for _, items in fields) for attribute, fields in lists.items()}
        if len(set(lengths.values())) > 1:
            told = " and ".join(f"{length} in '{attribute}'" for attribute, length in lengths.items())
            raise GraphError(f"{name} has {told}: they must be equal in number")

    def _fault(self, kind: str, item: Any) -> str | None:
        if kind == "type":
            return None if item in attr_codec.NUMBERS else f"holds {item}, which is no dtype of a tensor"
        if kind == "shape":
            return shape_fault(item)
        if kind == "func" and item.name and item.name not in self._functions and ops.op_def(item.name) is None:
            return f"names the function '{item.name[:100]}', which is not in the graph's library"
        return None


_KIND_OF = {field: kind for kind, field in _FIELDS.items()}


def _list_items(kind: str, value: Any) -> list[Any] | None:
    """The items of an attribute that must be a list of a kind; None for another kind."""
    held = value.WhichOneof("value")
    if held is None:  # an empty list, as old versions write it
        return []
    if held != "list":
        return None
    fields = [field for field, _ in value.list.ListFields()]
    own = _FIELDS[kind]
    return list(getattr(value.list, own)) if all(field.name == own for field in fields) else None


def shape_fault(shape: Any) -> str | None:
    """The fault of a ``TensorShapeProto``, as the end of a sentence, or None."""
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


def _shown(kind: str, item: Any) -> str:
    return str(attr_codec.dtype(item)) if kind == "type" else repr(item)[:60].removeprefix("b")


# --------------------------------------------------------------------------- constants

MOST_PADDED = 1 << 22
"""How many elements of a constant may be repetitions of its last value; where all are one floating number there is no bound
but that of shapes, since optimizers fill their slots so.
"""

MOST_PADDED_STRINGS = 1 << 16
"""The same for strings, where each is an object."""


class Constants:
    """The checks of all constants of a graph; equal shapes are checked once."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def fault(self, tensor: Any, declared: int) -> str | None:
        """The fault of a ``TensorProto`` with a declared dtype number, as the end of a sentence, or None."""
        kind = tensor.dtype
        if kind != declared:
            return "holds another dtype than it declares"
        field = attr_codec.VALUE_FIELDS.get(kind)
        if field is None:
            return f"has the dtype {attr_codec.dtype(kind)}, which a file cannot hold"
        size = attr_codec.dtype(kind).size
        proto = tensor.tensor_shape
        shape = proto.SerializeToString()
        if shape not in self._counts:
            if proto.unknown_rank or any(dim.size == -1 for dim in proto.dim):
                return "is of an unknown shape"
            fault = shape_fault(proto)
            if fault is not None:
                return fault
            self._counts[shape] = math.prod(dim.size for dim in proto.dim)
        count = self._counts[shape]
        content = len(tensor.tensor_content)
        if content:
            if size is None:
                return f"is damaged: it holds {content} bytes and no strings"
            if content != count * size:
                return f"is damaged: it holds {content} bytes, but its shape and dtype make {count * size}"
            return None
        values = len(getattr(tensor, field))
        if values < count and count - values > (MOST_PADDED_STRINGS if size is None else MOST_PADDED):
            floating = attr_codec.dtype(kind).floating and values <= 1
            if not floating:
                return f"claims {count:,} elements and holds {values}"
        if values > count and values > (2 * count if "complex" in field else count):
            return f"is damaged: it holds {values} values, but its shape makes {count}"
        return None


# --------------------------------------------------------------------------- functions


def _kinds(function: Any, argument: Any) -> Kinds:
    """The dtype of a function's argument or result; None where it is a list of tensors."""
    if argument.number_attr or argument.type_list_attr:
        return None
    declared = {attribute.name for attribute in function.signature.attr}
    if argument.type not in attr_codec.NUMBERS and argument.type_attr not in declared:
        raise GraphError(f"the argument or result '{argument.name}' has no dtype")
    return (argument.type,)


def _check_calls(functions: Mapping[str, Any], gradients: Iterable[Any]) -> None:
    """Check that no function is recursive, and that gradients belong to functions."""
    for gradient in gradients:
        for name in (gradient.function_name, gradient.gradient_func):
            if name not in functions:
                raise GraphError(f"the gradient function '{name[:100]}' is not in the graph's library")
    try:
        TopologicalSorter({name: dict.fromkeys(calls(found)) for name, found in functions.items()}).prepare()
    except CycleError as error:
        raise GraphError(f"the function '{error.args[1][0]}' calls itself; a TPU has no recursion") from error


# --------------------------------------------------------------------------- ranks
# Some of TensorFlow's shape functions end the process where an operand has another rank than they expect (ops.RANKS). Only
# TensorFlow knows a rank, and only while it imports the graph. So a node stands in front of each such node, whose own shape
# function refuses the wrong rank in words. Guards are for dtypes and shapes only: no graph that is written or run has one.

_GUARD = re.compile(r"(?:r\d+/)?(.+)/rank_of_input_(\d+)_is_(.+)")


def guard(nodes: Any, definition: Any) -> None:
    """Add guards to the nodes of a GraphDef and let one of them, whose op is one of ``ops.RANKS``, wait for these."""
    operands = [text for text in definition.input if not text.startswith("^")]
    found = attr_codec.definition(definition.op)
    kinds, held = found.dtypes(found.inputs, definition.attr), {**found.defaults, **definition.attr}
    for rank in ops.RANKS[definition.op]:
        number = rank.more + (held[rank.number].i if isinstance(rank.number, str) else rank.number)
        operand = rank.operand if isinstance(rank.operand, slice) else slice(rank.operand, rank.operand + 1)
        for place in range(len(operands))[operand] if rank.exact or number > 0 else ():
            made = nodes.add(input=[operands[place]])
            made.name = f"{definition.name}/rank_of_input_{place}_is_{number}{'' if rank.exact else '_or_more'}"
            made.attr["T"].type = kinds[place]
            if rank.exact:
                made.op = "EnsureShape"
                made.attr["shape"].CopyFrom(attr_codec.encode((None,) * number))
            else:  # a new axis can stand behind as many dimensions as there are
                made.op = "Pack"
                made.attr["N"].i, made.attr["axis"].i = 1, number
            definition.input.append(f"^{made.name}")


def guarded_input(name: str) -> tuple[str, str] | None:
    """The node that a guard stands in front of, and what is wrong with it; None for the name of another node."""
    found = _GUARD.fullmatch(name)
    if found is None:
        return None
    node, place, wanted = found.groups()
    return node, f"input {place} has another rank than {wanted.replace('_', ' ')}"
