"""The batch as an evaluation or prediction reads it: padded to a fixed number of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpugraph.analysis.placements import Entries, Placement, Shard
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Tensor


@dataclass(frozen=True)
class Batch:
    """The padded batch.

    Attributes:
        rows: its rows.
        whole: whether the plain graph reads as many in each step, so that nothing of it has to keep rows apart.
        placements: where its parts live, with a core for each row.
        plain: by tensor of the padded batch, or made of its padding, what the plain graph reads.
        parts: by part of the padded batch, that of the plain one.
    """

    rows: int
    whole: bool
    placements: Mapping[Tensor, Placement]
    plain: Mapping[Tensor, Tensor]
    parts: Mapping[Tensor, Tensor]


def padded_batch(graph: Graph) -> Batch:
    """The batch that the pass pad-batches left."""
    padded = graph.result(PaddedBatches)
    found: dict[Tensor, Placement] = {graph.tensor(name): Shard(0) for name in padded.tensors}
    for names in padded.sparse:
        indices, values, shape = map(graph.tensor, names)
        found |= {indices: Entries("local", str(values)), values: Entries("values"), shape: Entries("shape")}
    plain = {graph.tensor(name): graph.tensor(text) for name, text in padded.plain.items()}
    parts = {tensor: plain.get(tensor, tensor) for tensor in found}
    found |= {graph.tensor(name): Shard(0) for name in padded.numbers}
    return Batch(padded.rows, padded.whole, found, plain, parts)
