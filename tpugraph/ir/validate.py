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
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
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

_DEVICE = re.compile(
    r"(?:/job:(?:\*|[a-zA-Z][\w-]*)|/replica:(?:\*|\d{1,9})|/task:(?:\*|\d{1,9})"
    r"|/device:\*|/(?:device:)?(?:\*|[a-zA-Z]\w*):(?:\*|\d{1,9}))*/?"
)
_serialized = attr_codec.AttrValue.SerializeToString
Kinds = tuple[int, ...] | None
"""Dtype numbers of tensors; None where their count is an open attribute of a function."""
_Outputs = dict[Node, Kinds]


class Signature(NamedTuple):
    inputs: Kinds
    outputs: Kinds


class Validator:
    """Validates one graph with its ``FunctionDefLibrary``; raises a GraphError."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions: dict[str, Any] = {function.signature.name: function for function in library.function}
        self._schemas: dict[str, Schema | None] = {}
        self._signatures: dict[tuple[Any, ...], Signature] = {}

    def check(self, wired: Sequence[Wired]) -> None:
        """Check the nodes of a graph and the library, but for cycles of the graph."""
        self._check_library()
        outputs = self._check_nodes(wired)
        claimed = sum(map(len, filter(None, outputs.values())))
        if claimed > MOST_OUTPUTS_TOGETHER + 16 * len(wired):
            raise GraphError(f"the nodes claim {claimed:,} outputs together")

    def _check_nodes(self, wired: Sequence[Wired], arguments: _Outputs | None = None) -> _Outputs:
        """Check nodes; returns the dtypes of their outputs. Those of a function body need the dtypes of its ``arguments``."""
        self._check_known({node.op: node for node, _, _ in reversed(wired)})
        outputs: _Outputs = {} if arguments is None else arguments
        wanted: list[Kinds] = []
        try:
            for node, inputs, _ in wired:
                if node.name[0] == "_" and arguments is None:  # only functions have such names
                    raise GraphError(f"{node.name[:100]!r} is no name of a node")
                if node.device and not _DEVICE.fullmatch(node.device):
                    raise GraphError(f"{node.device[:100]!r} is no device")
                takes, outputs[node] = self._signature(node, len(inputs), in_body=arguments is not None)
                wanted.append(takes)
                if node.op in ops.CONSTANTS and node._attrs["value"].WhichOneof("value") != "placeholder":
                    fault = constant_fault(node._attrs["value"].tensor, node._attrs["dtype"].type)
                    if fault is not None:
                        raise GraphError(f"the constant '{node.name}' {fault}")
            for (node, inputs, _), kinds in zip(wired, wanted, strict=True):
                _check_inputs(node.op, inputs, kinds, outputs)
        except GraphError as error:
            error.node = error.node or str(node)
            raise
        return outputs

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

    def _signature(self, node: Node, given: int, *, in_body: bool) -> Signature:
        """The signature of a node, which is checked once for all nodes with equal attributes, but for the value of a constant."""
        held = node._attrs
        public = [(name, _serialized(value)) for name, value in held.items() if name != "value" and name[:1] != "_"]
        key = (node.op, given, in_body, *held, *public)
        found = self._signatures.get(key)
        if found is None:
            schema = self.schema(node.op)
            assert schema is not None, "unknown ops were refused"
            found = self._signatures[key] = schema.signature(held, given, in_body=in_body)
        return found

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
        takes = [_kinds(function, argument) for argument in function.signature.input_arg]
        gives = [_kinds(function, result) for result in function.signature.output_arg]
        body = wire_body(function, self._functions)
        nodes = body.nodes[len(body.arguments) :]
        outputs = self._check_nodes(nodes, dict(zip(body.arguments, takes, strict=True)))
        for result, tensor, wanted in zip(function.signature.output_arg, body.results, gives, strict=True):
            _check_inputs(f"the result '{result.name}'", (tensor,), wanted, outputs)
        graph = Graph()
        graph.adopt(body.nodes)
        graph.topological_order()


def _check_inputs(reader: str, inputs: Sequence[Tensor], wanted: Kinds, outputs: _Outputs) -> None:
    for index, ((producer, port), kind) in enumerate(zip(inputs, wanted or (), strict=wanted is not None)):
        made = outputs[producer]
        if made is None:
            continue
        if port >= len(made):
            raise GraphError(f"input {index} is output {port} of '{producer.name}', which has {len(made)}")
        if made[port] != kind and OPEN not in (made[port], kind) and made[port] != kind + 100:
            raise GraphError(f"input {index}, '{producer.name}', is {attr_codec.dtype(made[port])}, and "
                             f"{reader} takes {attr_codec.dtype(kind)}")  # fmt: skip


# --------------------------------------------------------------------------- op definitions

MOST_OUTPUTS = 1 << 16  # of one node by its attributes: TensorFlow allocates them first
MOST_DIMENSIONS = 254  # in TensorFlow
MOST_ELEMENTS = 1 << 48  # of a static shape: above any machine's memory, and no product of sizes overflows

_FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "shape": "shape", "tensor": "tensor",
           "func": "func"}  # fmt: skip
_KIND_OF = {field: kind for kind, field in _FIELDS.items()} | {None: "nothing"}


class Schema:
    """The ``OpDef`` of an op type or a library function, to check nodes against; ``functions`` are the library's."""

    def __init__(self, definition: Any, functions: Mapping[str, Any]) -> None:
        self.definition = definition
        self._operands = attr_codec.Definition(definition)
        self._functions = functions

    def signature(self, attributes: Mapping[str, Any], given: int, *, in_body: bool = False) -> Signature:
        """The input and output dtypes of a node with ``given`` data inputs; in a body, attributes may be open."""
        op, operands = self.definition.name, self._operands
        for name, value in attributes.items():
            if not name:
                raise GraphError("an attribute has no name")
            held_as = value.WhichOneof("value")
            if name in self._attributes:
                if not (in_body and held_as == "placeholder"):
                    self._check_attribute(self._attributes[name], value)
            elif name[0] != "_" and held_as is not None:
                raise GraphError(f"{op} has no attribute '{name}' in this TensorFlow")
        held = {**operands.defaults, **attributes}
        for name in self._attributes:
            if name not in held:
                raise GraphError(f"the attribute '{name}' of {op} is missing")
        self._check_trusted(held)
        for arguments, most, what in ((operands.inputs, given, "inputs"), (operands.outputs, MOST_OUTPUTS, "outputs")):
            for name in (argument.number_attr for argument in arguments if argument.number_attr):
                if not 0 <= held[name].i <= most:
                    most_said = f"it has {most:,}" if what == "inputs" else f"at most {most:,} can be read from a file"
                    raise GraphError(f"the attribute '{name}' claims {held[name].i:,} {what} of {op}; {most_said}")
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
        kind, name, held_as = declared.type, declared.name, value.WhichOneof("value")
        listed, element = kind.startswith("list("), kind.removeprefix("list(").removesuffix(")")
        field = _FIELDS[element]
        if listed:  # old versions write an empty list as nothing
            right = held_as in ("list", None) and all(one.name == field for one, _ in value.list.ListFields())
        else:
            right = held_as == field
        if not right:
            raise GraphError(f"the attribute '{name}' holds {_KIND_OF.get(held_as, held_as)}, not {kind}")
        items = getattr(value.list, field) if listed else [getattr(value, field)]
        for item in items:
            if (fault := self._fault(element, item)) is not None:
                raise GraphError(f"the attribute '{name}' {fault}")
        size = items[0] if kind == "int" else len(items)
        if declared.has_minimum and size < declared.minimum:
            raise GraphError(
                f"the attribute '{name}' is {'a list of ' if listed else ''}{size}, less than {declared.minimum}"
            )
        if declared.HasField("allowed_values"):
            allowed = getattr(declared.allowed_values.list, field)
            for item in items:
                if item not in allowed:
                    shown = attr_codec.dtype(item) if element == "type" else repr(item)[:60].removeprefix("b")
                    raise GraphError(f"the attribute '{name}' is {shown}, which {self.definition.name} does not take")

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


# --------------------------------------------------------------------------- constants

MOST_PADDED = 1 << 22
"""How many elements of a constant may be repetitions of its last value; where all are one floating number there is no bound
but that of shapes, since optimizers fill their slots so.
"""

MOST_PADDED_STRINGS = 1 << 16
"""The same for strings, where each is an object."""


def constant_fault(tensor: Any, declared: int) -> str | None:
    """The fault of a ``TensorProto`` with a declared dtype number, as the end of a sentence, or None."""
    if tensor.dtype != declared:
        return "holds another dtype than it declares"
    kind, field = attr_codec.dtype(declared), attr_codec.VALUE_FIELDS.get(declared)
    if field is None:
        return f"has the dtype {kind}, which a file cannot hold"
    shape = tensor.tensor_shape
    if shape.unknown_rank or any(dim.size == -1 for dim in shape.dim):
        return "is of an unknown shape"
    fault = shape_fault(shape)
    if fault is not None:
        return fault
    count = math.prod(dim.size for dim in shape.dim)
    values, content = len(getattr(tensor, field)), len(tensor.tensor_content)
    if content:
        if kind.size is None:
            return f"is damaged: it holds {content} bytes and no strings"
        if content != count * kind.size:
            return f"is damaged: it holds {content} bytes, but its shape and dtype make {count * kind.size}"
        return None
    most_padded = MOST_PADDED if kind.size else MOST_PADDED_STRINGS
    one_number = kind.floating and values <= 1
    if count - values > most_padded and not one_number:
        return f"claims {count:,} elements and holds {values}"
    if values > (2 * count if "complex" in field else count):
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
        if not rank.exact and number <= 0:  # every rank will do
            continue
        chosen = rank.operand if isinstance(rank.operand, slice) else slice(rank.operand, rank.operand + 1)
        for place in range(len(operands))[chosen]:
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
