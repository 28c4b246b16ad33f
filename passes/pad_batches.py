"""Every batch of a core has the same number of rows; its true number is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import batched_input, shapes, signatures
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import ShapeError
from tpugraph.tpu.pipeline import Pass

_INT32 = attrs.dtype("int32")
_INT64 = attrs.dtype("int64")
_VARIANT = attrs.dtype("variant")
_NAME = "tpugraph/pad"


@dataclass(frozen=True)
class PadBatches(Pass):
    """Every batch has the same number of rows: a partial one is padded with zeros, and its true number of rows is kept.

    The last partial batch is not dropped, and behind the end of the data the dataset goes on with empty batches, so
    that cores without rows have a batch of nothing but padding.
    """

    requires = ("roles_known", "resource_variables")
    ensures = ("shapes_known",)
    gives = (PaddedBatches,)

    def run(self, graph: Graph) -> None:
        take = batched_input.take_of(graph)
        _read_predictions(graph, take)
        iterator, dataset = batched_input.dataset_of(graph, take)
        chain = list(batched_input.stages(dataset))
        batcher = chain[-1] if chain and chain[-1].op in ops.BATCHING else None
        rows = batched_input.rows_of(graph, take, batcher)
        baked = any(shape and shape[0] is not None for shape in take.attr("output_shapes"))
        noted = _keep_remainder(graph, chain, batcher)
        open_shapes = [
            batched_input.with_open_rows(graph, take, index, shape)
            for index, shape in enumerate(take.attr("output_shapes"))
        ]
        _go_on_empty(graph, iterator, take, dataset, open_shapes)
        for node in (iterator, take):
            graph.set_attr(node, "output_shapes", list(open_shapes))
            graph.set_attr(node, "_output_shapes", None)
        graph.set_outputs(take, list(zip(take.attr("output_types"), open_shapes, strict=True)))
        count, padded = _pad(graph, take, rows)
        shapes.infer(graph)
        if shapes.tell_lookups(graph):
            shapes.infer(graph)
        _zero_made_of_text(graph, count, padded, rows)
        grown = _grow_sparse(graph, take, rows)
        sparse = [(str(indices), str(values), str(shape)) for indices, values, shape in grown]
        graph.keep(
            PaddedBatches(
                rows, count.node.name, baked, tuple(map(str, padded)), tuple(sparse), _endless(chain), tuple(noted)
            )
        )
        shapes.infer(graph)


def _read_predictions(graph: Graph, take: Node) -> None:
    """A part of the batch that is handed out as it is counts as read."""
    predictions = {name: graph.tensor(text) for name, text in graph.roles.predictions.items()}
    for name, tensor in predictions.items():
        if tensor.node is take:
            predictions[name] = _maker(graph).identity(tensor, name="prediction")
    graph.roles = replace(graph.roles, predictions={name: str(tensor) for name, tensor in predictions.items()})


# --------------------------------------------------------------------------- the dataset as it becomes


def _keep_remainder(graph: Graph, chain: list[Node], batcher: Node | None) -> list[str]:
    """Let the dataset keep its last partial batch; returns what to tell."""
    operand = None if batcher is None else ops.BATCHING[batcher.op][1]
    if batcher is None or operand is None:
        return []
    drop = batcher.inputs[operand]
    if drop.node.op in ops.CONSTANTS and not drop.node.attr("value").item():
        return []
    if any(node.has_attr("f") or node.op in ops.BATCHING for node in chain[:-1]):
        note = f"{batcher.name}: drops the last partial batch, since a function behind it expects full ones"
        graph.note(batcher, note)
        return [note]
    keep = _maker(graph).constant(np.asarray(False), name="keep_remainder")
    graph.set_input(batcher, operand % len(batcher.inputs), keep)
    for node in chain:
        opened = [attrs.encode((None, *s[1:]) if s else s) for s in node.attr("output_shapes")]
        graph.set_attr(node, "output_shapes", opened)
    note = f"{batcher.name}: the last partial batch is kept, so that every example counts"
    graph.note(batcher, note)
    return [note]


def _endless(chain: list[Node]) -> bool:
    counts = [node.inputs[1].node for node in chain if node.op == "RepeatDataset"]
    return any(count.op in ops.CONSTANTS and int(count.attr("value").item()) < 0 for count in counts)


def _go_on_empty(graph: Graph, iterator: Node, take: Node, dataset: Node, open_shapes: list[Any]) -> None:
    """Behind the dataset come batches without rows, for ever."""
    kinds, make = iterator.attr("output_types"), _maker(graph)
    parts = [
        _empty_sparse(graph, take, i)
        if batched_input.is_sparse(take, i)
        else make.constant(np.zeros([0, *(d or 0 for d in shape[1:])], _numpy(kind)), kind, name=f"empty/{i}")
        for i, (kind, shape) in enumerate(zip(kinds, open_shapes, strict=True))
    ]
    empty = [t.shape for t in parts]
    none = make.add("TensorDataset", parts, (), name="empty", output_shapes=empty)
    ever = make.add("RepeatDataset", [none, make.constant(np.int64(-1), name="for_ever")], (), name="empty/repeat",
                    output_types=kinds, output_shapes=empty)  # fmt: skip
    both = make.add("ConcatenateDataset", [dataset.out(), ever], (), name="dataset", output_types=kinds,
                    output_shapes=list(open_shapes))  # fmt: skip
    maker = next(use.node for use in iterator.uses() if use.node.op in ops.MAKE_ITERATOR)
    graph.set_input(maker, 0, both)


def _empty_sparse(graph: Graph, take: Node, index: int) -> Tensor:
    """A sparse tensor without rows, wrapped as the dataset wraps those of the batches."""
    unwrapped = next((use.node for use in take.uses(index)), None)
    rank, kind = (2, _INT64) if unwrapped is None else (batched_input.rank_of(unwrapped), unwrapped.attr("dtype"))
    none = [np.zeros((0, rank), "int64"), np.zeros(0, _numpy(kind)), np.zeros(rank, "int64")]
    make = _maker(graph)
    parts = [make.constant(part, kind if i == 1 else _INT64, name=f"empty/{index}/{i}") for i, part in enumerate(none)]
    return make.add("SerializeSparse", parts, (3,), name=f"empty/{index}", out_type=_VARIANT)


def _numpy(kind: attrs.DType) -> Any:
    return object if kind.name == "string" else kind.name


# --------------------------------------------------------------------------- padding


def _pad(graph: Graph, take: Node, rows: int) -> tuple[Tensor, list[Tensor]]:
    """Pad what is read of the batch; returns the true number of rows and the padded tensors."""
    used = [port for port in take.used_ports() if not batched_input.is_sparse(take, port)]
    readers = {port: take.uses(port) for port in used}
    dense = next(
        (port for port in [*used, *range(len(take.outputs or ()))] if not batched_input.is_sparse(take, port)), None
    )
    if dense is None:
        raise ShapeError("the batch has sparse tensors only: how many rows it has cannot be told", node=take,
                         fix="put a dense feature or the labels beside them")  # fmt: skip
    make = _maker(graph)
    shape = make.add("Shape", [take.out(dense)], name="shape", out_type=_INT32)
    first = [
        make.constant(np.asarray([v], "int32"), name=f"rows/{n}") for n, v in (("begin", 0), ("end", 1), ("strides", 1))
    ]
    count = make.add("StridedSlice", [shape, *first], name="rows", **attrs.first_element())
    full = make.constant(np.asarray(rows, "int32"), name="full")
    missing = make.add("Sub", [full, count], name="missing")
    found = []
    for port in used:
        found.append(_padded(graph, take.out(port), missing, (rows, *(take.out(port).shape or ())[1:])))
        for use in readers[port]:
            graph.set_input(use.node, use.index, found[-1])
    return count, found


def _grow_sparse(graph: Graph, take: Node, rows: int) -> list[list[Tensor]]:
    """Let sparse tensors have all rows, the last ones empty; returns indices, values and dense shape of each."""
    make, found = _maker(graph), list[list[Tensor]]()
    for node in [
        use.node for port in take.used_ports() if batched_input.is_sparse(take, port) for use in take.uses(port)
    ]:
        shape, name = node.out(2), f"sparse/{len(found)}"
        readers = node.uses(2)
        full = make.constant(np.asarray([rows], "int64"), name=f"{name}/rows")
        ends = [make.constant(np.asarray([v], "int32"), name=f"{name}/{n}") for n, v in (("begin", 1), ("size", -1))]
        rest = make.add("Slice", [shape, *ends], name=f"{name}/rest")
        axis = make.constant(np.asarray(0, "int32"), name=f"{name}/axis")
        whole = make.add("ConcatV2", [full, rest, axis], name=f"{name}/shape")
        for use in readers:
            graph.set_input(use.node, use.index, whole)
        found.append([node.out(0), node.out(1), whole])
    return found


def _padded(graph: Graph, tensor: Tensor, missing: Tensor, whole: tuple[Any, ...]) -> Tensor:
    make, index = _maker(graph), tensor.port
    behind = np.zeros((len(whole), 2), "int32")
    behind[0, 1] = 1
    where = make.constant(behind, name=f"{index}/behind")
    amount = make.add("Mul", [where, missing], name=f"{index}/amount")
    longer = make.add("Pad", [tensor, amount], name=f"{index}/pad")
    target = make.constant(np.asarray(whole, "int32"), name=f"{index}/shape")
    return make.add("Reshape", [longer, target], name=f"{index}")


def _zero_made_of_text(graph: Graph, count: Tensor, padded: list[Tensor], rows: int) -> int:
    """Numbers made of padding text are zero too (a table would give -1, which is no label); returns how many."""
    texts = [t.node for t in padded if t.dtype.name == "string"]
    found = [
        node.out()
        for node in (graph.descendants(texts, data_only=True) if texts else ())
        if any(t.dtype.name == "string" and (t.shape or (0,))[0] == rows for t in node.inputs)
        and _row_by_row(node)
        and node.out().dtype.size is not None
    ]
    make = _maker(graph)
    for tensor in found:
        kind = tensor.dtype
        rank = max(len(t.shape or ()) for t in tensor.node.inputs)
        numbers = make.constant(np.arange(rows, dtype="int32").reshape([rows, *[1] * (rank - 1)]), name="numbers")
        readers = tensor.node.uses(tensor.port)
        true = make.add("Less", [numbers, count], name="true")
        zero = make.constant(np.zeros((), kind.name), kind, name="zero")
        kept = make.add("SelectV2", [true, tensor, zero], name="text")
        for use in readers:
            graph.set_input(use.node, use.index, kept)
        padded.append(true)  # keeps the rows apart like the batch itself
    return len(found)


def _row_by_row(node: Node) -> bool:
    """Whether an op makes each element, or row, of the element in the same place, as ops on text do."""
    signature = signatures.of(node)
    return signature is not None and any((tokens or ("",))[0] == "..." for tokens in signature.outputs)


def _maker(graph: Graph) -> Builder:
    return Builder(graph, _NAME)
