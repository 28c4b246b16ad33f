"""Whole values from the parts that the cores hold: how a tensor of a converted graph relates to that of the plain graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, SUM, Partial, Placement, Replicate, Shard, Share
from tpugraph.compiler import ConvertOptions, convert, with_cores
from tpugraph.ir import Graph, Tensor
from tpugraph.passes.partition import Partition
from tpugraph.spmd.analysis import analyse
from tpugraph.spmd.placing import Placing
from tpugraph.tables.sharding import ShardedTables
from tpugraph.testing.comparison import relative
from tpugraph.tpu.program import Program

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OnCores:
    """A tensor of the plain graph on the cores, as a node reads it there: scaled, reduced or gathered where it is.

    Attributes:
        tensor: its name in the converted graph.
        placement: where over the cores it lives.
        reader: who reads it so; "" where it is compared as it is made.
        because: why it lives so.
    """

    tensor: str
    placement: Placement = REPLICATE
    reader: str = ""
    because: str = ""

    @property
    def how(self) -> str:
        """How the values of the cores are put together, in words."""
        if isinstance(self.placement, Shard):
            return f"put together along dimension {self.placement.axis}"
        if isinstance(self.placement, Partial):
            return _COMBINED[self.placement.reduce_op][0]
        return "each core's is compared"

    def whole(self, parts: Sequence[Array]) -> Array:
        """The plain graph's value that the values of all cores make up."""
        if isinstance(self.placement, Partial):
            combined = _COMBINED[self.placement.reduce_op][1]
            return np.asarray(combined(np.stack([np.asarray(part, _wide(part)) for part in parts]), axis=0))
        if isinstance(self.placement, Shard):
            rows = self.placement
            joined = np.concatenate([_blocks(part, rows) for part in parts], axis=rows.axis + 1)
            shape = list(parts[0].shape)
            shape[rows.axis] *= len(parts)
            return joined.reshape(shape)
        return parts[0]

    def difference(self, whole: Array, parts: Sequence[Array]) -> list[float]:
        """How far the cores are from the plain graph's value: each core where it has a part of its own, else all together."""
        if isinstance(self.placement, Shard):
            shares = np.split(_blocks(whole, self.placement), len(parts), axis=self.placement.axis + 1)
            return [relative(share.reshape(part.shape), part, whole) for share, part in zip(shares, parts, strict=True)]
        if isinstance(self.placement, Replicate):
            return [relative(whole, part) for part in parts]
        return [relative(whole, self.whole(parts))]


_COMBINED: dict[str, tuple[str, Any]] = {
    "sum": ("added up over the cores", np.sum),
    "max": ("the largest over the cores", np.max),
    "min": ("the smallest over the cores", np.min),
}


def converted(graph: Graph, options: ConvertOptions) -> tuple[Program, dict[str, list[OnCores]]]:
    """A converted graph, and by the name of a tensor of the plain one how the cores read it."""
    reads: list[tuple[Tensor, str, int, OnCores]] = []

    def before(name: str, number: int, count: int) -> None:
        cores = with_cores(graph, options)[0].num_replicas if name == Partition.name else None
        if cores is not None and cores > 1:
            policies = {"batch_norm": options.batch_norm, "random": options.random}
            reads.extend(_reads(analyse(graph, cores, policies=policies).placing))

    program = convert(graph, options, progress=before)
    local = {name for table in (graph.kept(ShardedTables) or ShardedTables()).tables.values() for name in table.local}
    found: dict[str, list[OnCores]] = {}
    for tensor, reader, index, held in reads:
        node = graph.get(reader)
        if node is None or tensor.node.name in local:
            continue
        read = str(node.inputs[index]) if index >= 0 else str(tensor)
        known = found.setdefault(str(tensor), [])
        if read not in {other.tensor for other in known}:
            known.append(replace(held, tensor=read))
    return program, found


def _reads(placing: Placing) -> Iterator[tuple[Tensor, str, int, OnCores]]:
    """Each tensor of the step with a node and an operand that reads it; with -1 where it is read nowhere in the step."""
    verdicts = placing.verdicts
    for node, verdict in verdicts.items():
        record = ops.record(node.op)
        for index, tensor in enumerate(node.inputs):
            placement = verdict.wants.get(index, placing.read(tensor))
            placement = SUM if isinstance(placement, Share) else placement
            sizes = index in (record.shaped_by, record.rows_operand)  # those of this core's rows
            if tensor.node in verdicts and isinstance(placement, Replicate | Shard | Partial) and not sizes:
                yield tensor, node.name, index, OnCores("", placement, node.name, verdicts[tensor.node].why)
        if node.op in ops.RANDOM | ops.SHAPES | ops.SIZES:
            continue  # what a core makes itself stands for itself
        for port, made in enumerate(verdict.outputs):
            read = port in (*verdict.averaged, *verdict.cuts) or any(use.node in verdicts for use in node.uses(port))
            if not read and isinstance(made, Replicate | Shard | Partial):
                yield node.out(port), node.name, -1, OnCores("", made, "", verdict.why)


def _blocks(value: Array, rows: Shard) -> Array:
    """A value with a dimension of its own for the batches that lie one after the other along the dimension of rows."""
    shape = value.shape
    return value.reshape(*shape[: rows.axis], rows.outer, shape[rows.axis] // rows.outer, *shape[rows.axis + 1 :])


def _wide(part: Array) -> Any:
    """The dtype in which values are added up: float64 for what is not whole."""
    return part.dtype if part.dtype.kind in "biu" else np.complex128 if part.dtype.kind == "c" else np.float64
