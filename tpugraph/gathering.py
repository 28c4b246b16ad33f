"""Rows of all cores on every core: each writes its own into an array of zeros, and the arrays are summed."""

from __future__ import annotations

import numpy as np

from tpugraph import attrs
from tpugraph.attrs import DType
from tpugraph.bounds import bounded_shape
from tpugraph.errors import ConversionError
from tpugraph.ir import Node, Tensor
from tpugraph.replicas import Replicas
from tpugraph.shapes import is_static

_INT32 = attrs.dtype("int32")


def all_gather(replicas: Replicas, tensor: Tensor) -> Tensor:
    """The rows of all cores, in the order of the cores.

    Every core writes its rows into its own place of a zero array and the arrays are summed. Where the number of
    rows is open, they are padded to its upper bound, and the padding is taken out behind the sum.

    Raises:
        ConversionError: the number of rows has no known bound.
    """
    if replicas.count == 1:
        narrow = _INT32 if tensor.dtype.name == "int64" else tensor.dtype
        return replicas.cast(replicas.all_sum(replicas.cast(tensor, narrow)), tensor.dtype)
    if is_static(tensor.shape):
        return _gather_static(replicas, tensor)
    return _gather_bounded(replicas, tensor)


def _gather_static(replicas: Replicas, tensor: Tensor) -> Tensor:
    kind, source = tensor.dtype, tensor.node
    shape = [int(d or 0) for d in tensor.shape or ()]
    narrow = attrs.dtype("int32") if kind.name == "int64" else kind
    rows = replicas.cast(tensor, narrow)
    wide = replicas.reshape(rows, [1, *shape])
    spread = replicas.add(
        "Mul",
        f"{source.name}/spread",
        [wide, replicas.mask(narrow, len(shape), source)],
        {"T": narrow},
        narrow,
        (replicas.count, *shape),
        source,
    )
    summed = replicas.all_sum(spread)
    flat = replicas.reshape(summed, [replicas.count * shape[0], *shape[1:]])
    return replicas.cast(flat, kind)


def _gather_bounded(replicas: Replicas, tensor: Tensor) -> Tensor:
    kind, source = tensor.dtype, tensor.node
    bound = bounded_shape(tensor)
    if not is_static(bound) or not bound:
        raise ConversionError(
            f"the number of rows of '{tensor}' has no known upper bound",
            node=source,
            fix="give the sparse input a fixed number of values per batch",
        )
    count = _row_count(replicas, tensor)
    padded = _pad(replicas, tensor, count, bound)
    every = _gather_static(replicas, padded)
    counts = _gather_static(replicas, replicas.reshape(count, [1]))
    return _compress(replicas, every, counts, int(bound[0] or 0), kind, source)


def _row_count(replicas: Replicas, tensor: Tensor) -> Tensor:
    source = tensor.node
    shape = replicas.add(
        "Shape",
        f"{source.name}/shape",
        [tensor],
        {"T": tensor.dtype, "out_type": _INT32},
        _INT32,
        (len(tensor.shape or ()),),
        source,
    )
    ends = [
        replicas.constant(f"{source.name}/rows/{n}", [v], _INT32, source) for n, v in (("b", 0), ("e", 1), ("s", 1))
    ]
    return replicas.add(
        "StridedSlice", f"{source.name}/rows", [shape, *ends], attrs.first_element(), _INT32, (), source
    )


def _pad(replicas: Replicas, tensor: Tensor, count: Tensor, bound: tuple[int | None, ...]) -> Tensor:
    source = tensor.node
    total = replicas.constant(f"{source.name}/bound", bound[0], _INT32, source)
    missing = replicas.add("Sub", f"{source.name}/missing", [total, count], {"T": _INT32}, _INT32, (), source)
    zero = replicas.constant(f"{source.name}/zero", 0, _INT32, source)
    first = replicas.add(
        "Pack", f"{source.name}/padding/0", [zero, missing], {"N": 2, "T": _INT32, "axis": 0}, _INT32, (2,), source
    )
    rest = [replicas.constant(f"{source.name}/padding/{i}", [0, 0], _INT32, source) for i in range(1, len(bound))]
    padding = replicas.add(
        "Pack",
        f"{source.name}/padding",
        [first, *rest],
        {"N": len(bound), "T": _INT32, "axis": 0},
        _INT32,
        (len(bound), 2),
        source,
    )
    return replicas.add(
        "Pad",
        f"{source.name}/padded",
        [tensor, padding],
        {"T": tensor.dtype, "Tpaddings": _INT32},
        tensor.dtype,
        bound,
        source,
    )


def _compress(replicas: Replicas, every: Tensor, counts: Tensor, bound: int, kind: DType, source: Node) -> Tensor:
    """Keep the rows that are no padding."""
    places = replicas.constant(f"{source.name}/places", np.arange(bound)[None, :], _INT32, source)
    column = replicas.reshape(counts, [replicas.count, 1])
    used = replicas.add(
        "Less",
        f"{source.name}/used",
        [places, column],
        {"T": _INT32},
        attrs.dtype("bool"),
        (replicas.count, bound),
        source,
    )
    flat = replicas.reshape(used, [replicas.count * bound])
    int64 = attrs.dtype("int64")
    where = replicas.add("Where", f"{source.name}/where", [flat], {"T": flat.dtype}, int64, (None, 1), source)
    return replicas.add(
        "GatherNd",
        f"{source.name}/gathered",
        [every, where],
        {"Tparams": kind, "Tindices": int64},
        kind,
        (None, *(every.shape or ())[1:]),
        source,
    )
