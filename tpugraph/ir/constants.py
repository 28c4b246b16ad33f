"""Constants at the door: a ``TensorProto`` holds one dtype, a closed shape, and content of that size."""

from __future__ import annotations

import math
from typing import Any

from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.op_schemas import Mismatch, shape_fault

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
        """Check one constant.

        Args:
            tensor: its ``TensorProto``.
            declared: the number of the dtype that its node declares.

        Raises:
            Mismatch: it holds something else than it declares, or more or less.
        """
        kind = tensor.dtype
        if kind != declared:
            raise Mismatch("holds another dtype than it declares")
        size, field = _BY_NUMBER.get(kind, (None, ""))
        if not field:
            raise Mismatch(f"is of the dtype {attr_codec.dtype(kind)}, of which a file holds no values")
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
    """The number of elements of a constant's shape."""
    if shape.unknown_rank or any(dim.size == -1 for dim in shape.dim):
        raise Mismatch("is of an open shape")
    fault = shape_fault(shape)
    if fault is not None:
        raise Mismatch(fault)
    return math.prod(dim.size for dim in shape.dim)
