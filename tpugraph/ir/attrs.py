"""Node attributes: Python values to and from ``AttrValue`` protobufs, and TensorFlow's dtypes by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from tensorflow.core.framework import attr_value_pb2, dataset_options_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow.python.framework import tensor_util

from tpugraph import ops
from tpugraph.support.errors import GraphError

AttrValue = attr_value_pb2.AttrValue
Shape = tuple[int | None, ...] | None
"""A static shape: a tuple of dimensions (None is unknown), or None where the rank is unknown."""

_NAME_OF = {number: name.removeprefix("DT_").lower() for name, number in types_pb2.DataType.items()}
_NAME_OF[types_pb2.DT_FLOAT] = "float32"
_NAME_OF[types_pb2.DT_DOUBLE] = "float64"
_NAME_OF[types_pb2.DT_HALF] = "float16"
_NUMBER_OF = {name: number for number, name in _NAME_OF.items()}
_REF = 100  # DT_X_REF is DT_X + 100

_HELD_IN = {"float_val": "float32", "double_val": "float64", "int64_val": "int64", "bool_val": "bool", "string_val": "string",
            "int_val": "int32 int16 int8 uint16 uint8", "uint32_val": "uint32", "uint64_val": "uint64",
            "half_val": "float16 bfloat16", "scomplex_val": "complex64", "dcomplex_val": "complex128"}  # fmt: skip
VALUE_FIELDS = {_NUMBER_OF[name]: field for field, names in _HELD_IN.items() for name in names.split()}
"""The ``TensorProto`` field with the values of each dtype number."""

SIZE_OF = {name: np.dtype(name).itemsize for name in map(_NAME_OF.__getitem__, VALUE_FIELDS) if name != "string"}
"""Bytes of one element, by dtype name; dtypes without a fixed size are absent."""


@dataclass(frozen=True)
class DType:
    """A TensorFlow dtype by its short name, such as ``float32``; ``ref`` marks a TF1 reference."""

    name: str
    ref: bool = False

    @property
    def number(self) -> int:
        return int(_NUMBER_OF[self.name]) + (_REF if self.ref else 0)

    @cached_property
    def encoded(self) -> Any:
        return AttrValue(type=self.number)

    @property
    def size(self) -> int | None:
        """Bytes of one element, or None for strings, handles and variants."""
        return SIZE_OF.get(self.name)

    @property
    def is_handle(self) -> bool:
        """Whether values are references, resources or variants, which are local to a process."""
        return self.ref or self.name in ("resource", "variant")

    @property
    def floating(self) -> bool:
        """Whether values can carry a gradient."""
        return self.name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")

    def __str__(self) -> str:
        return self.name + ("_ref" if self.ref else "")


_DTYPES = {number: DType(name) for number, name in _NAME_OF.items() if number < _REF}
_DTYPES.update({number + _REF: DType(dtype.name, ref=True) for number, dtype in list(_DTYPES.items())})


NUMBERS = frozenset(number for number in _DTYPES if 0 < number < _REF)
"""TensorFlow's enumeration numbers of dtypes, without references."""


def dtype(value: int | str) -> DType:
    """The dtype of an enumeration number or of a short name; KeyError where there is none."""
    if isinstance(value, int):
        return _DTYPES[value]
    return _DTYPES[_NUMBER_OF[value.removesuffix("_ref")] + (_REF if value.endswith("_ref") else 0)]


@dataclass(frozen=True)
class Func:
    name: str


def decode(attr: Any) -> Any:
    """The Python value of an ``AttrValue``: str, int, float, bool, DType, shape, ndarray, Func or a list of them."""
    kind = attr.WhichOneof("value")
    if kind == "list":
        return _decode_list(attr.list)
    if kind == "s":
        return _text(attr.s)
    if kind == "type":
        return _DTYPES[attr.type]
    if kind == "shape":
        return decode_shape(attr.shape)
    if kind == "tensor":
        return _array(attr.tensor)
    if kind == "func":
        return Func(attr.func.name)
    return None if kind is None else getattr(attr, kind)


def in_order(options: Any) -> Any:
    """Serialized dataset options, an ``AttrValue``, made deterministic; None where they do not say otherwise."""
    found = dataset_options_pb2.Options.FromString(options.s)
    if found.WhichOneof("optional_deterministic") is None or found.deterministic:
        return None
    found.deterministic = True
    return AttrValue(s=found.SerializeToString())


_ENCODED = ("string_val", "half_val", "scomplex_val", "dcomplex_val")  # fields whose values are not single numbers

_MANY = 1 << 16
"""The number of elements from which a constant of equal values is decoded as a broadcast view, without memory."""


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """The array of a ``TensorProto``; TensorFlow's own function takes five times as long for small ones."""
    field = VALUE_FIELDS[tensor.dtype]
    values, dims = getattr(tensor, field), [d.size for d in tensor.tensor_shape.dim]
    if field not in _ENCODED:
        kind = _NAME_OF[tensor.dtype]
        if tensor.tensor_content:
            return np.frombuffer(tensor.tensor_content, kind).reshape(dims).copy()
        if not dims and len(values) == 1:
            return np.array(values[0], kind)
    if len(values) <= 1 and not tensor.tensor_content and math.prod(dims) > _MANY:
        one = tensor_pb2.TensorProto()
        one.CopyFrom(tensor)
        del one.tensor_shape.dim[:]
        return np.broadcast_to(_array(one), dims)
    if field == "string_val" and len(values) in (0, math.prod(dims)):
        return np.array(values[:] or [b""] * math.prod(dims), object).reshape(dims)
    found: np.ndarray[Any, Any] = tensor_util.MakeNdarray(tensor)
    return found


def _decode_list(values: Any) -> list[Any]:
    for kind, turn in (("s", _text), ("type", _DTYPES.__getitem__), ("shape", decode_shape), ("i", int), ("f", float)):
        items = getattr(values, kind)
        if items:
            return [turn(item) for item in items]
    if values.b:
        return list(values.b)
    if values.func:
        return [Func(f.name) for f in values.func]
    return [tensor_util.MakeNdarray(t) for t in values.tensor]


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def decode_shape(proto: Any) -> Shape:
    if proto.unknown_rank:
        return None
    return tuple(None if d.size < 0 else d.size for d in proto.dim)


def _shape_proto(shape: Shape) -> Any:
    if shape is None:
        return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
    dims = [tensor_shape_pb2.TensorShapeProto.Dim(size=-1 if d is None else d) for d in shape]
    return tensor_shape_pb2.TensorShapeProto(dim=dims)


def encode_shape(shape: Shape) -> Any:
    """The ``AttrValue`` of a shape, also of unknown rank."""
    return AttrValue(shape=_shape_proto(shape))


@lru_cache(maxsize=4096, typed=True)
def _encode_plain(value: bool | int | str) -> Any:
    """Equal attributes share one ``AttrValue``, which is never modified."""
    if isinstance(value, bool):
        return AttrValue(b=value)
    return AttrValue(i=value) if isinstance(value, int) else AttrValue(s=value.encode())


def encode(value: Any) -> Any:
    """The ``AttrValue`` of a Python value, the inverse of :func:`decode`: a tuple is a shape, an ``AttrValue`` passes through."""
    if isinstance(value, AttrValue):
        return value
    if isinstance(value, DType):
        return value.encoded
    if isinstance(value, (bool, int, str)):
        return _encode_plain(value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return AttrValue(f=value)
    if isinstance(value, bytes):
        return AttrValue(s=value)
    if isinstance(value, tuple):
        return encode_shape(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return AttrValue(tensor=tensor_proto(np.asarray(value)))
    if isinstance(value, Func):
        return AttrValue(func=attr_value_pb2.NameAttrList(name=value.name))
    if isinstance(value, list):
        return _encode_list(value)
    raise TypeError(f"no attribute holds a {type(value).__name__}: {value!r}")


def _encode_list(values: Sequence[Any]) -> Any:
    result = AttrValue(list=AttrValue.ListValue())
    if values and all(isinstance(value, DType) for value in values):
        result.list.type.extend([value.number for value in values])
        return result
    for value in values:
        item = encode_shape(None) if value is None else encode(value)
        kind = item.WhichOneof("value")
        getattr(result.list, kind).extend([getattr(item, kind)])
    return result


def tensor_proto(value: Any) -> Any:
    """A ``TensorProto`` of an array; arrays of one value are stored as one element."""
    array = np.asarray(value)
    if array.dtype == object:  # a saver's names: TensorFlow takes some microseconds for each
        texts = [text.encode() if isinstance(text, str) else text for text in array.ravel()]
        return tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING, tensor_shape=_shape_proto(array.shape), string_val=texts
        )
    proto: tensor_pb2.TensorProto = tensor_util.make_tensor_proto(array)
    return proto


OPEN = 0  # a dtype that is an attribute of the call


@dataclass(frozen=True)
class Argument:
    """An input or output of an op's definition: number of tensors and dtype, or the attributes with these ("" for none)."""

    name: str
    number_attr: str
    kinds: str
    kind: str
    fixed: int
    ref: int  # the offset of the dtype number for a reference

    @property
    def several(self) -> str:
        return self.number_attr or self.kinds

    def count(self, held: Mapping[str, Any]) -> int | None:
        """The number of tensors; None where the call decides it, KeyError where the attribute is missing."""
        if not self.several:
            return 1
        value = held[self.several]
        if value.WhichOneof("value") == "placeholder":
            return None
        return int(value.i) if self.number_attr else len(value.list.type)

    def dtypes(self, held: Mapping[str, Any]) -> list[int]:
        """The dtype number of each tensor."""
        if self.kinds:
            return list(held[self.kinds].list.type)
        kind = self.fixed or held[self.kind].type  # a placeholder holds 0, which is OPEN
        return [kind + self.ref if kind != OPEN else kind] * (self.count(held) or 0)


class Definition:
    """An ``OpDef``: inputs, outputs and encoded default attributes; cached, since protobufs are slow to read."""

    def __init__(self, op_def: Any) -> None:
        self.inputs = tuple(map(_argument, op_def.input_arg))
        self.outputs = tuple(map(_argument, op_def.output_arg))
        self.defaults = {a.name: a.default_value for a in op_def.attr if a.HasField("default_value")}

    def dtypes(self, arguments: Sequence[Argument], attributes: Mapping[str, Any]) -> list[int]:
        """The dtype number of each tensor of ``inputs`` or ``outputs``; KeyError where an attribute is missing."""
        held = {**self.defaults, **attributes}
        return [kind for argument in arguments for kind in argument.dtypes(held)]

    def names(self, arguments: Sequence[Argument], attributes: Mapping[str, Any]) -> list[tuple[str, int]]:
        """The argument name of each tensor, and the tensor's index within the argument."""
        held = {**self.defaults, **attributes}
        return [(a.name, index) for a in arguments for index in range(a.count(held) or 0)]


def _argument(argument: Any) -> Argument:
    return Argument(argument.name, argument.number_attr, argument.type_list_attr, argument.type_attr, argument.type,
                    _REF if argument.is_ref else 0)  # fmt: skip


@cache
def definition(op: str) -> Definition:
    """The definition of an op type; a GraphError where this TensorFlow does not know it."""
    found = ops.op_def(op)
    if found is None:
        raise GraphError(f"TensorFlow has no op '{op}'", fix="check the name of the op")
    return Definition(found)


def arity(op: str, attributes: Mapping[str, Any]) -> int | None:
    """The number of a node's data inputs by its op's definition and encoded attributes; None where unknown."""
    try:
        return sum(argument.count(attributes) or 0 for argument in definition(op).inputs)
    except (GraphError, KeyError):
        return None


def first_element() -> dict[str, Any]:
    """The attributes of a StridedSlice that takes element 0 of an int32 vector, with operands [0], [1], [1]."""
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"), 0)
    return {"T": dtype("int32"), "Index": dtype("int32"), "shrink_axis_mask": 1, **masks}
