"""Pads batches of evaluation and prediction to a fixed number of rows, and keeps the true number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import batched_input, loop_shapes, shapes, signatures
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Node, Tensor, Use, attrs
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.folding import fold, fold_numbers
from tpugraph.spmd.analysis import refuse_uneven
from tpugraph.support.errors import ShapeError
from tpugraph.tpu.pipeline import Pass

_INT32, _INT64, _VARIANT = (attrs.dtype(name) for name in ("int32", "int64", "variant"))
_SCOPE = "tpugraph/pad"


@dataclass(frozen=True)
class PadBatches(Pass):
    """Every batch has a number of rows that the cores divide: partial ones are zero-padded, and the true number is kept.

    A graph with a static batch size drops the last partial batch itself. One with an unknown batch size keeps every example: its
    shapes get a full batch's rows, rounded up. After the end of the data the dataset continues with empty batches.
    """

    num_replicas: int = 8

    requires = ("roles_known", "resource_variables")
    ensures = ("shapes_known",)
    gives = (PaddedBatches,)

    def run(self, graph: Graph) -> None:
        take = batched_input.take_of(graph)
        _read_predictions(graph, take)
        iterator, dataset = batched_input.dataset_of(take)
        chain = list(batched_input.stages(dataset))
        batcher = chain[-1] if chain and chain[-1].op in ops.BATCHING else None
        rows = batched_input.rows_of(take, batcher)
        whole = any(shape and shape[0] is not None for shape in take.attr("output_shapes"))
        open_shapes = [batched_input.with_open_rows(take, i, s) for i, s in enumerate(take.attr("output_shapes"))]
        if whole:
            refuse_uneven(graph, rows, self.num_replicas)
        else:  # a dimension of size 1 would be broadcast
            rows = -(-max(rows, 2) // self.num_replicas) * self.num_replicas
        shapes.infer(graph)
        fold(graph)
        fold_numbers(graph)
        make = Builder(graph, _SCOPE)
        append_empty_batches(make, iterator, take, dataset, open_shapes)
        for node in (iterator, take):
            graph.set_attr(node, "output_shapes", list(open_shapes))
            graph.set_attr(node, "_output_shapes", None)
        graph.set_outputs(take, list(zip(take.attr("output_types"), open_shapes, strict=True)))
        count, padded = pad(make, take, rows)
        loop_shapes.infer(graph)
        texts = zero_padding_strings(make, count, padded, rows)
        sparse = grow_sparse(make, take, rows)
        plain = {} if whole else {**padded, **texts, **{parts[2]: parts[0].node.out(2) for parts in sparse}}
        graph.keep(PaddedBatches(rows, count.node.name, whole, tuple(map(str, padded)), tuple(map(str, texts)),
                                 tuple((str(i), str(v), str(s)) for i, v, s in sparse),
                                 {str(t): str(p) for t, p in plain.items()}, endless(chain)))  # fmt: skip
        loop_shapes.infer(graph)


def _read_predictions(graph: Graph, take: Node) -> None:
    """Give a prediction that is a tensor of the batch an Identity of its own."""
    predictions = {name: graph.tensor(text) for name, text in graph.roles.predictions.items()}
    for name, tensor in predictions.items():
        if tensor.node is take:
            predictions[name] = Builder(graph, _SCOPE).identity(tensor, name="prediction")
    graph.roles = replace(graph.roles, predictions={name: str(tensor) for name, tensor in predictions.items()})


def pad(make: Builder, take: Node, rows: int) -> tuple[Tensor, dict[Tensor, Tensor]]:
    """Pad the dense tensors of the batch; returns the true number of rows, and the unpadded tensor for each padded one."""
    used = [port for port in take.used_ports() if not batched_input.is_sparse(take, port)]
    readers = {port: take.uses(port) for port in used}
    dense = next(
        (port for port in [*used, *range(len(take.outputs or ()))] if not batched_input.is_sparse(take, port)), None
    )
    if dense is None:
        raise ShapeError("the batch has sparse tensors only, so its number of rows is unknown", node=take,
                         fix="put a dense feature or the labels beside them")  # fmt: skip
    shape = make.add("Shape", [take.out(dense)], name="shape", out_type=_INT32)
    first = [make.constant([v], _INT32, name=f"rows/{n}") for n, v in (("begin", 0), ("end", 1), ("strides", 1))]
    count = make.add("StridedSlice", [shape, *first], name="rows", **attrs.first_element())
    if not used:  # only the number of rows is used
        return count, {}
    missing = make.add("Sub", [make.constant(rows, _INT32, name="full"), count], name="missing")
    found = {}
    for port in used:
        padded = _padded(make, take.out(port), missing, (rows, *(take.out(port).shape or ())[1:]))
        found[padded] = take.out(port)
        _read(make.graph, readers[port], padded)
    return count, found


def _read(graph: Graph, uses: Iterable[Use], tensor: Tensor) -> None:
    for use in uses:
        graph.set_input(use.node, use.index, tensor)


def grow_sparse(make: Builder, take: Node, rows: int) -> list[list[Tensor]]:
    """Add empty rows to sparse tensors; returns indices, values and dense shape of each."""
    found: list[list[Tensor]] = []
    for node in [
        use.node for port in take.used_ports() if batched_input.is_sparse(take, port) for use in take.uses(port)
    ]:
        name, readers = f"sparse/{len(found)}", node.uses(2)
        full = make.constant([rows], _INT64, name=f"{name}/rows")
        ends = [make.constant([v], _INT32, name=f"{name}/{n}") for n, v in (("begin", 1), ("size", -1))]
        rest = make.add("Slice", [node.out(2), *ends], name=f"{name}/rest")
        whole = make.add("ConcatV2", [full, rest, make.constant(0, _INT32, name=f"{name}/axis")], name=f"{name}/shape")
        _read(make.graph, readers, whole)
        found.append([node.out(0), node.out(1), whole])
    return found


def _padded(make: Builder, tensor: Tensor, missing: Tensor, whole: tuple[Any, ...]) -> Tensor:
    index = tensor.port
    behind = np.zeros((len(whole), 2), "int32")
    behind[0, 1] = 1
    amount = make.add("Mul", [make.constant(behind, name=f"{index}/behind"), missing], name=f"{index}/amount")
    longer = make.add("Pad", [tensor, amount], name=f"{index}/pad")
    return make.add("Reshape", [longer, make.constant(whole, _INT32, name=f"{index}/shape")], name=str(index))


def zero_padding_strings(make: Builder, count: Tensor, padded: Iterable[Tensor], rows: int) -> dict[Tensor, Tensor]:
    """Zero numbers computed from padding strings (a table gives -1, no valid label); returns the unpadded tensor of each."""
    texts = [t.node for t in padded if t.dtype.name == "string"]
    found = [
        node.out()
        for node in (make.graph.descendants(texts, data_only=True) if texts else ())
        if any(t.dtype.name == "string" and (t.shape or (0,))[0] == rows for t in node.inputs)
        and (signature := signatures.of(node)) is not None
        and any((factors or ("",))[0].startswith("#") for factors in signature.outputs)  # elementwise, or row by row
        and node.out().dtype.size is not None
    ]
    plain = {}
    for tensor in found:
        readers, rank = tensor.node.uses(tensor.port), max(len(t.shape or ()) for t in tensor.node.inputs)
        numbers = make.constant(np.arange(rows, dtype="int32").reshape([rows, *[1] * (rank - 1)]), name="numbers")
        true = make.add("Less", [numbers, count], name="true")
        kept = make.add("SelectV2", [true, tensor, make.constant(0, tensor.dtype, name="zero")], name="text")
        plain[kept] = tensor
        _read(make.graph, readers, kept)
    return plain


def endless(chain: list[Node]) -> bool:
    """Whether the dataset repeats forever."""
    counts = [node.inputs[1].node for node in chain if node.op in ops.REPEAT_DATASETS]
    return any(count.op in ops.CONSTANTS and (count.attr("value") < 0).any() for count in counts)


def append_empty_batches(make: Builder, iterator: Node, take: Node, dataset: Node, open_shapes: list[Any]) -> None:
    """Concatenate endless empty batches to the dataset, so that no step blocks."""
    kinds = iterator.attr("output_types")
    parts = [
        _empty_sparse(make, take, i)
        if batched_input.is_sparse(take, i)
        else make.constant(np.zeros([0, *(d or 0 for d in shape[1:])], object), kind, name=f"empty/{i}")
        for i, (kind, shape) in enumerate(zip(kinds, open_shapes, strict=True))
    ]
    empty = [t.shape for t in parts]
    none = make.add("TensorDataset", parts, (), name="empty", output_shapes=empty)
    for_ever = make.constant(-1, _INT64, name="for_ever")
    ever = make.add("RepeatDataset", [none, for_ever], (), name="empty/repeat", output_types=kinds, output_shapes=empty)
    both = make.add("ConcatenateDataset", [dataset.out(), ever], (), name="dataset", output_types=kinds,
                    output_shapes=list(open_shapes))  # fmt: skip
    make.graph.set_input(batched_input.makers_of(iterator)[0], 0, both)


def _empty_sparse(make: Builder, take: Node, index: int) -> Tensor:
    """A serialized sparse tensor without rows."""
    unwrapped = next((use.node for use in take.uses(index)), None)
    rank, kind = (2, _INT64) if unwrapped is None else (batched_input.rank_of(unwrapped), unwrapped.attr("dtype"))
    none = ((np.zeros((0, rank)), _INT64), (np.zeros(0, object), kind), (np.zeros(rank), _INT64))
    parts = [make.constant(part, held, name=f"empty/{index}/{i}") for i, (part, held) in enumerate(none)]
    return make.add("SerializeSparse", parts, (3,), name=f"empty/{index}", out_type=_VARIANT)
