"""What TensorFlow's definition of an op, or the signature of a library function, demands of a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any, NamedTuple

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec

MOST_OUTPUTS = 1 << 16
"""How many outputs an attribute may claim for one node: TensorFlow makes them all before it asks for more."""

MOST_DIMENSIONS = 254
"""The highest rank of a tensor in TensorFlow."""

MOST_ELEMENTS = 1 << 48
"""How many elements a static shape may have: more than any machine holds, and no product of sizes overflows."""

OPEN = 0
"""Stands for a dtype that a function leaves open to its call."""

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
    """The definition of one op type, against which the attributes of nodes are held.

    Args:
        definition: an ``OpDef``: of TensorFlow's registry, or the signature of a library function.
        functions: the names of the functions in the library.
    """

    def __init__(self, definition: Any, functions: Mapping[str, Any]) -> None:
        self.definition = definition
        self._functions = functions

    def signature(self, attributes: Mapping[str, Any], given: int, *, in_body: bool = False) -> Signature:
        """The dtypes of inputs and outputs of a node.

        Args:
            attributes: the node's ``AttrValue`` protobufs by name.
            given: the number of data inputs that the node has.
            in_body: whether the node stands in a function, whose call may fill in attributes.

        Raises:
            Mismatch: an attribute is missing, of another kind or out of range, or the node has too few or too many inputs.
        """
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
            raise Mismatch(f"{self.definition.name} takes {_counted(len(inputs))} here and has {given}")
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
        lengths = {attribute: _length(held[attribute].list) for attribute in trusted.alike}
        if len(set(lengths.values())) > 1:
            told = " and ".join(f"{length} in '{attribute}'" for attribute, length in lengths.items())
            raise Mismatch(f"{name} is told of {told}, which must be as many")

    def _fault(self, kind: str, item: Any) -> str | None:
        if kind == "type":
            return None if item in DTYPES else f"holds {item}, which is no dtype of a tensor"
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
    """The dtypes of one argument of an op; None where a function leaves their number open."""
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


DTYPES = frozenset(attr_codec.dtype_numbers())
"""TensorFlow's numbers of the dtypes that a tensor can have."""

_KIND_OF = {field: kind for kind, field in _FIELDS.items()}


@cache
def _list_field(kind: str) -> str:
    return _FIELDS[kind]


def _list_items(kind: str, value: Any) -> list[Any] | None:
    """The items of an attribute that must be a list of a kind; None where it is something else."""
    held = value.WhichOneof("value")
    if held is None:  # an empty list, as old writers left it
        return []
    if held != "list":
        return None
    fields = [field for field, _ in value.list.ListFields()]
    own = _list_field(kind)
    return list(getattr(value.list, own)) if all(field.name == own for field in fields) else None


def _length(values: Any) -> int:
    return sum(len(held) for _, held in values.ListFields())


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


def dtypes(definition: Any, arguments: Any, attributes: Mapping[str, Any]) -> list[int]:
    """TensorFlow's numbers of the dtypes that arguments of a definition have in a node with these attributes."""
    held = _held(definition, attributes)
    return [number for argument in arguments for number in _argument_dtypes(argument, held, MOST_OUTPUTS, "") or ()]


def _held(definition: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a node with the defaults of its definition."""
    return {declared.name: declared.default_value for declared in definition.attr} | dict(attributes)


def output_places(definition: Any, attributes: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The name of each output argument of an op, and the number of its first tensor."""
    place = 0
    held = _held(definition, attributes)
    for argument in definition.output_arg:
        yield argument.name, place
        place += len(_argument_dtypes(argument, held, MOST_OUTPUTS, "outputs") or ())


def _counted(count: int) -> str:
    return f"{count:,} input{'' if count == 1 else 's'}"


def _shown(kind: str, item: Any) -> str:
    return str(attr_codec.dtype(item)) if kind == "type" else repr(item)[:60].removeprefix("b")
