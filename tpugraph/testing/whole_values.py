"""Whole values from the parts that the cores hold: how a tensor of a converted graph relates to that of the plain graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpugraph.analysis.batched_input import batch_rows
from tpugraph.analysis.because import Because
from tpugraph.analysis.placements import Entries, Partial, Placement, Replicate, Shard
from tpugraph.compiler import ConvertOptions, build_passes, convert
from tpugraph.ir import Graph, Tensor
from tpugraph.partition.tables.shards import ShardedTables
from tpugraph.passes.cross_replica_sum import CrossReplicaSum
from tpugraph.tpu.program import Program

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Relation:
    """How the values of a tensor on the cores make up the plain graph's.

    Attributes:
        placement: where over the cores it lives; None where each core has what belongs to its own rows of a table.
        averaged: of a part of a sum: it is a mean of the core's rows, of which the sum has one over the cores' number.
        because: why it lives so.
    """

    placement: Placement | None
    averaged: bool = False
    because: str = ""

    def __str__(self) -> str:
        return str(self.placement)

    @property
    def how(self) -> str:
        """How the values of the cores are put together, in words; "" where they make no value of the plain graph."""
        placement = self.placement
        if isinstance(placement, Replicate):
            return "each core's is compared"
        if isinstance(placement, Shard):
            return f"put together along dimension {placement.axis}"
        if isinstance(placement, Entries) and placement.role == "values":
            return "put together along dimension 0"
        if isinstance(placement, Partial):
            return "averaged over the cores" if self.averaged else _COMBINED[placement.reduce_op][0]
        return ""

    def whole(self, parts: Sequence[Array]) -> Array:
        """The plain graph's value that the values of all cores make up.

        Args:
            parts: the value on each core, alike in dtype.
        """
        placement = self.placement
        if len(parts) == 1 or isinstance(placement, Replicate):
            return parts[0]
        if isinstance(placement, Partial):
            combined = np.mean if self.averaged else _COMBINED[placement.reduce_op][1]
            return np.asarray(combined(np.stack([np.asarray(part, _wide(part)) for part in parts]), axis=0))
        if isinstance(placement, Shard):
            return _joined([_counted(part, placement, core) for core, part in enumerate(parts)], placement)
        return np.concatenate(parts)

    def core(self, whole: Array, parts: Sequence[Array], differs: Any) -> int | None:
        """The first core whose value differs from its part of the plain graph's; None where no core has a part of its own.

        Args:
            whole: the plain graph's value.
            parts: the value on each core.
            differs: tells of two arrays whether they differ.
        """
        if isinstance(self.placement, Replicate):
            return next((core for core, part in enumerate(parts) if differs(whole, part)), None)
        if isinstance(self.placement, Shard) and whole.shape == self.whole(parts).shape:
            shares = _shares(whole, self.placement, len(parts))
            numbered = [_counted(part, self.placement, core) for core, part in enumerate(parts)]
            pairs = enumerate(zip(shares, numbered, strict=True))
            return next((core for core, (share, part) in pairs if differs(share, part)), None)
        return None


_COMBINED: dict[str, tuple[str, Any]] = {
    "sum": ("added up over the cores", np.sum),
    "max": ("the largest over the cores", np.max),
    "min": ("the smallest over the cores", np.min),
}


def relation(because: Because, tensor: Tensor) -> Relation | None:
    """The relation of a tensor of a solved step; None where nothing is known of it."""
    placing = because.placing
    made = placing.made(tensor) or placing.read(tensor)
    if made is None:
        return None
    verdict = placing.verdicts.get(tensor.node)
    averaged = verdict is not None and tensor.port in verdict.averaged and isinstance(made, Partial)
    return Relation(made, averaged, because.reason(tensor).because)


def converted(graph: Graph, options: ConvertOptions) -> tuple[Program, dict[str, Relation]]:
    """A converted graph, and how its tensors relate to those of the plain one, by name."""
    partition = next((step for step in build_passes(options) if isinstance(step, CrossReplicaSum)), None)
    relations: dict[str, Relation] = {}

    def before(name: str, number: int, count: int) -> None:
        if partition is None or name != partition.name or partition.num_replicas == 1:
            return
        rows = batch_rows(graph)
        if rows is not None:
            demands = partition.solved(graph, rows)
            because = Because(demands.placing, demands.asking)
            made = [node.out(port) for node in demands.placing.order for port in range(len(node.outputs or ()))]
            found = {str(tensor): relation(because, tensor) for tensor in made}
            relations.update({name: held for name, held in found.items() if held is not None})

    program = convert(graph, options, progress=before)
    shared = (graph.kept(ShardedTables) or ShardedTables()).tables.values()
    local = {name for table in shared for name in table.local}
    return program, {
        name: replace(held, placement=None) if name.partition(":")[0] in local else held
        for name, held in relations.items()
    }


def _joined(parts: Sequence[Array], rows: Shard) -> Array:
    """The rows of all cores: batch for batch, where a dimension counts several batches one after the other."""
    blocks = [_blocks(part, rows) for part in parts]
    joined = np.concatenate(blocks, axis=rows.axis + 1)
    shape = list(parts[0].shape)
    shape[rows.axis] = sum(part.shape[rows.axis] for part in parts)
    return joined.reshape(shape)


def _shares(whole: Array, rows: Shard, count: int) -> list[Array]:
    """The rows of each core."""
    blocks = _blocks(whole, rows)
    shape = list(whole.shape)
    shape[rows.axis] //= count
    return [part.reshape(shape) for part in np.array_split(blocks, count, axis=rows.axis + 1)]


def _blocks(value: Array, rows: Shard) -> Array:
    """A value with a dimension of its own for the batches that lie one after the other along the dimension of rows."""
    shape = value.shape
    outer = max(rows.outer, 1)
    return value.reshape(*shape[: rows.axis], outer, shape[rows.axis] // outer, *shape[rows.axis + 1 :])


def _counted(part: Array, rows: Shard, core: int) -> Array:
    """Numbers of rows as the whole batch counts them; other values as they are."""
    if not rows.shift or not part.shape:
        return part
    own = part.shape[rows.axis] // max(rows.outer * rows.inner, 1)
    shift = np.asarray(rows.shift) * own * core
    if shift.ndim and rows.along >= 0:
        shift = shift.reshape([-1 if axis == rows.along else 1 for axis in range(part.ndim)])
    return np.asarray(part + shift.astype(part.dtype))


def _wide(part: Array) -> Any:
    """The dtype in which values are added up: float64 for what is not whole."""
    return part.dtype if part.dtype.kind in "biu" else np.complex128 if part.dtype.kind == "c" else np.float64
