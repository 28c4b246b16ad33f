"""Every batch has the same number of rows; its true number is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import batched_input, loop_shapes, shapes, signatures
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.rewrite.folding import fold, fold_numbers
from tpugraph.spmd.analysis import refuse_uneven
from tpugraph.support.errors import ShapeError
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class PadBatches(Pass):
    """Every batch has a number of rows that the cores divide: a partial one is padded with zeros, and its true number is kept.

    A graph with static rows drops the last partial batch itself. One with an open number of rows keeps every example: its
    shapes get a full batch's rows, rounded up. Behind the end of the data the dataset goes on with empty batches.
    """

    num_replicas: int = 8

    requires = ("roles_known", "resource_variables")
    ensures = ("shapes_known",)
    gives = (PaddedBatches,)

    def run(self, graph: Graph) -> None:
        take = batched_input.take_of(graph)
        _read_predictions(graph, take)
        iterator, dataset = batched_input.dataset_of(graph, take)
        chain = list(batched_input.stages(dataset))
        batcher = chain[-1] if chain and chain[-1].op in ops.BATCHING else None
        plain_rows = rows = batched_input.rows_of(graph, take, batcher)
        whole = any(shape and shape[0] is not None for shape in take.attr("output_shapes"))
        open_shapes = [
            batched_input.with_open_rows(graph, take, i, s) for i, s in enumerate(take.attr("output_shapes"))
        ]
        if whole:
            refuse_uneven(graph, rows, self.num_replicas)
        else:  # a dimension of size 1 would be broadcast
            rows = -(-max(rows, 2) // self.num_replicas) * self.num_replicas
        shapes.infer(graph)
        fold(graph)
        fold_numbers(graph)
        go_on_empty(graph, iterator, take, dataset, open_shapes)
        for node in (iterator, take):
            graph.set_attr(node, "output_shapes", list(open_shapes))
            graph.set_attr(node, "_output_shapes", None)
        graph.set_outputs(take, list(zip(take.attr("output_types"), open_shapes, strict=True)))
        count, padded = pad(graph, take, rows)
        _infer(graph)
        texts = zero_made_of_text(graph, count, padded, rows)
        sparse = grow_sparse(graph, take, rows)
        plain = {} if whole else {**padded, **texts, **{parts[2]: parts[0].node.out(2) for parts in sparse}}
        graph.keep(PaddedBatches(rows, plain_rows, count.node.name, whole, tuple(map(str, padded)), tuple(map(str, texts)),
                                 tuple((str(i), str(v), str(s)) for i, v, s in sparse),
                                 {str(t): str(p) for t, p in plain.items()}, endless(chain)))  # fmt: skip
        _infer(graph)


def _infer(graph: Graph) -> None:
    shapes.infer(graph)
    while shapes.tell_lookups(graph) + loop_shapes.tell(graph):
        shapes.infer(graph)


def _read_predictions(graph: Graph, take: Node) -> None:
    """Give a prediction that is a part of the batch a node of its own, which reads it."""
    predictions = {name: graph.tensor(text) for name, text in graph.roles.predictions.items()}
    for name, tensor in predictions.items():
        if tensor.node is take:
            predictions[name] = add(graph, "Identity", "prediction", [tensor], {"T": tensor.dtype})
    graph.roles = replace(graph.roles, predictions={name: str(tensor) for name, tensor in predictions.items()})


NAME = "tpugraph/pad"
"""The scope of the nodes that pad."""

_INT32, _INT64, _VARIANT = (attrs.dtype(name) for name in ("int32", "int64", "variant"))


def pad(graph: Graph, take: Node, rows: int) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """Pad the dense tensors of the batch; returns the true number of rows, and the plain tensor by padded one."""
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
    """Add empty rows to sparse tensors; returns indices, values and dense shape of each."""
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
    """Make numbers of padding text zero (a table would give -1, which is no label); returns the plain tensor by new one."""
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
    """Whether an op is element-wise, or row by row, as ops on text are."""
    signature = signatures.of(node)
    return signature is not None and any((tokens or ("",))[0] == "..." for tokens in signature.outputs)


def add(graph: Graph, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    return graph.add(op, f"{NAME}/{name}", inputs, attrs=attributes).out()


def const(graph: Graph, name: str, value: np.ndarray[Any, Any], kind: attrs.DType | None = None) -> Tensor:
    kind = kind or attrs.dtype(value.dtype.name)
    return graph.add("Const", f"{NAME}/{name}", attrs={"dtype": kind, "value": value},
                     outputs=[(kind, value.shape)]).out()  # fmt: skip


def endless(chain: list[Node]) -> bool:
    """Whether the dataset repeats without end."""
    counts = [node.inputs[1].node for node in chain if node.op in ops.REPEAT_DATASETS]
    return any(count.op in ops.CONSTANTS and (count.attr("value") < 0).any() for count in counts)


def go_on_empty(graph: Graph, iterator: Node, take: Node, dataset: Node, open_shapes: list[Any]) -> None:
    """Concatenate endless empty batches to the dataset, so that no step waits for one."""
    kinds = iterator.attr("output_types")
    parts = [
        _empty_sparse(graph, take, i)
        if batched_input.is_sparse(take, i)
        else const(graph, f"empty/{i}", np.zeros([0, *(d or 0 for d in shape[1:])], _numpy(kind)), kind)
        for i, (kind, shape) in enumerate(zip(kinds, open_shapes, strict=True))
    ]
    empty = [t.shape for t in parts]
    common = {"output_types": kinds, "output_shapes": empty}
    none = _dataset_node(graph, "TensorDataset", "empty", parts, {"Toutput_types": kinds, "output_shapes": empty})
    for_ever = const(graph, "for_ever", np.asarray(-1, "int64"))
    ever = _dataset_node(graph, "RepeatDataset", "empty/repeat", [none, for_ever], common)
    shapes_after = list(open_shapes)
    attributes = {"output_types": kinds, "output_shapes": shapes_after}
    both = _dataset_node(graph, "ConcatenateDataset", "dataset", [dataset.out(), ever], attributes)
    maker = next(use.node for use in iterator.uses() if use.node.op in ops.MAKE_ITERATOR)
    graph.set_input(maker, 0, both)


def _empty_sparse(graph: Graph, take: Node, index: int) -> Tensor:
    """A serialized sparse tensor without rows."""
    unwrapped = next((use.node for use in take.uses(index)), None)
    rank, kind = (2, _INT64) if unwrapped is None else (batched_input.rank_of(unwrapped), unwrapped.attr("dtype"))
    none = [np.zeros((0, rank), "int64"), np.zeros(0, _numpy(kind)), np.zeros(rank, "int64")]
    parts = [const(graph, f"empty/{index}/{i}", part, kind if i == 1 else _INT64) for i, part in enumerate(none)]
    return graph.add("SerializeSparse", f"{NAME}/empty/{index}", parts, attrs={"T": kind, "out_type": _VARIANT},
                     outputs=[(_VARIANT, (3,))]).out()  # fmt: skip


def _numpy(kind: attrs.DType) -> Any:
    return object if kind.name == "string" else kind.name


def _dataset_node(graph: Graph, op: str, name: str, inputs: list[Tensor], attributes: dict[str, Any]) -> Tensor:
    return graph.add(op, f"{NAME}/{name}", inputs, attrs=attributes, outputs=[(_VARIANT, ())]).out()
