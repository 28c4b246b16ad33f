"""Padding of a batch: every batch gets the same number of rows, and its true number is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tpugraph.analysis import batched_input, signatures
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.support.errors import ShapeError

NAME = "tpugraph/pad"
"""The scope of what padding adds."""

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")


def pad(graph: Graph, take: Node, rows: int) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """Pad what is read of the batch; returns the true number of rows, and by padded tensor the plain one."""
    used = [port for port in take.used_ports() if not batched_input.is_sparse(take, port)]
    readers = {port: take.uses(port) for port in used}
    dense = next(
        (port for port in [*used, *range(len(take.outputs or ()))] if not batched_input.is_sparse(take, port)), None
    )
    if dense is None:
        raise ShapeError("the batch has sparse tensors only: how many rows it has cannot be told", node=take,
                         fix="put a dense feature or the labels beside them")  # fmt: skip
    shape = add(graph, "Shape", "shape", [take.out(dense)], {"T": take.out(dense).dtype, "out_type": _INT32})
    first = [const(graph, f"rows/{n}", np.asarray([v], "int32")) for n, v in (("begin", 0), ("end", 1), ("strides", 1))]
    count = add(graph, "StridedSlice", "rows", [shape, *first], attrs.first_element())
    if not used:  # the number alone is read
        return count, {}
    full = const(graph, "full", np.asarray(rows, "int32"))
    missing = add(graph, "Sub", "missing", [full, count], {"T": _INT32})
    found = {}
    for port in used:
        padded = _padded(graph, take.out(port), missing, (rows, *(take.out(port).shape or ())[1:]))
        found[padded] = take.out(port)
        for use in readers[port]:
            graph.set_input(use.node, use.index, padded)
    return count, found


def grow_sparse(graph: Graph, take: Node, rows: int) -> list[list[Tensor]]:
    """Let sparse tensors have all rows, the last ones empty; returns indices, values and dense shape of each."""
    found: list[list[Tensor]] = []
    for node in [
        use.node for port in take.used_ports() if batched_input.is_sparse(take, port) for use in take.uses(port)
    ]:
        shape, name = node.out(2), f"sparse/{len(found)}"
        readers = node.uses(2)
        full = const(graph, f"{name}/rows", np.asarray([rows], "int64"))
        ends = [const(graph, f"{name}/{n}", np.asarray([v], "int32")) for n, v in (("begin", 1), ("size", -1))]
        rest = add(graph, "Slice", f"{name}/rest", [shape, *ends], {"T": _INT64, "Index": _INT32})
        axis = const(graph, f"{name}/axis", np.asarray(0, "int32"))
        whole = add(graph, "ConcatV2", f"{name}/shape", [full, rest, axis], {"N": 2, "T": _INT64, "Tidx": _INT32})
        for use in readers:
            graph.set_input(use.node, use.index, whole)
        found.append([node.out(0), node.out(1), whole])
    return found


def _padded(graph: Graph, tensor: Tensor, missing: Tensor, whole: tuple[Any, ...]) -> Tensor:
    index, kind = tensor.port, tensor.dtype
    behind = np.zeros((len(whole), 2), "int32")
    behind[0, 1] = 1
    where = const(graph, f"{index}/behind", behind)
    amount = add(graph, "Mul", f"{index}/amount", [where, missing], {"T": _INT32})
    longer = add(graph, "Pad", f"{index}/pad", [tensor, amount], {"T": kind, "Tpaddings": _INT32})
    target = const(graph, f"{index}/shape", np.asarray(whole, "int32"))
    return add(graph, "Reshape", f"{index}", [longer, target], {"T": kind, "Tshape": _INT32})


def zero_made_of_text(graph: Graph, count: Tensor, padded: Iterable[Tensor], rows: int) -> dict[Tensor, Tensor]:
    """Numbers made of padding text are zero too (a table would give -1, which is no label); returns by tensor the plain one."""
    texts = [t.node for t in padded if t.dtype.name == "string"]
    found = [
        node.out()
        for node in (graph.descendants(texts, data_only=True) if texts else ())
        if any(t.dtype.name == "string" and (t.shape or (0,))[0] == rows for t in node.inputs)
        and _row_by_row(node)
        and node.out().dtype.size is not None
    ]
    plain = {}
    for tensor in found:
        kind = tensor.dtype
        rank = max(len(t.shape or ()) for t in tensor.node.inputs)
        numbers = const(graph, "numbers", np.arange(rows, dtype="int32").reshape([rows, *[1] * (rank - 1)]))
        readers = tensor.node.uses(tensor.port)
        true = add(graph, "Less", "true", [numbers, count], {"T": _INT32})
        zero = const(graph, "zero", np.zeros((), kind.name), kind)
        kept = add(graph, "SelectV2", "text", [true, tensor, zero], {"T": kind})
        plain[kept] = tensor
        for use in readers:
            graph.set_input(use.node, use.index, kept)
    return plain


def _row_by_row(node: Node) -> bool:
    """Whether an op makes each element, or row, of the element in the same place, as ops on text do."""
    signature = signatures.of(node)
    return signature is not None and any((tokens or ("",))[0] == "..." for tokens in signature.outputs)


def add(graph: Graph, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    """The output of a new node of the padding."""
    return graph.add(op, f"{NAME}/{name}", inputs, attrs=attributes).out()


def const(graph: Graph, name: str, value: np.ndarray[Any, Any], kind: attrs.DType | None = None) -> Tensor:
    """A constant of the padding, of the array's dtype unless another is given."""
    kind = kind or attrs.dtype(value.dtype.name)
    return graph.add("Const", f"{NAME}/{name}", attrs={"dtype": kind, "value": value},
                     outputs=[(kind, value.shape)]).out()  # fmt: skip
