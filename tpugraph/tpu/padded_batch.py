"""The batch of one core as an evaluation or prediction reads it: padded to a fixed number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpugraph.analysis.batch_constants import Told
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.placements import Entries, Placement, Shard
from tpugraph.analysis.sizes import ROWS, Size, Unknown
from tpugraph.ir import Tensor


@dataclass(frozen=True)
class Batch:
    """The padded batch of one core.

    Attributes:
        rows: its rows.
        dense: the tensors whose dimension 0 holds them.
        sparse: indices, values and dense shape of each sparse tensor.
        told: what a second trace says of the constants.
        baked: whether constants of the graph may hold the number of rows, since it was traced with it.
    """

    rows: int
    dense: Sequence[Tensor]
    sparse: Sequence[tuple[Tensor, Tensor, Tensor]]
    told: Told
    baked: bool

    def tensors(self) -> list[Tensor]:
        """All parts of the batch."""
        return [*self.dense, *(tensor for parts in self.sparse for tensor in parts)]

    def dims(self) -> dict[Tensor, Dims]:
        """The dimensions that come in with it."""
        found: dict[Tensor, Dims] = {}
        for tensor in self.dense:
            found[tensor] = (ROWS, *map(_size, (tensor.shape or ())[1:]))
        for parts in self.sparse:
            found |= {tensor: tuple(map(_size, tensor.shape or ())) for tensor in parts}
        return {**found, **self.told.dims}

    def elements(self) -> dict[Tensor, Elements]:
        """The elements of the sizes that come in with it."""
        found: dict[Tensor, Elements] = {}
        for _, _, shape in self.sparse:
            rank = (shape.shape or (2,))[0] or 2
            found[shape] = [ROWS, *[None] * (int(rank) - 1)]
        return {**found, **self.told.elements}

    def placements(self) -> dict[Tensor, Placement]:
        """Where its parts live."""
        found: dict[Tensor, Placement] = dict.fromkeys(self.dense, Shard(0))
        for numbers, values, shape in self.sparse:
            found |= {numbers: Entries("local"), values: Entries("values"), shape: Entries("shape")}
        return found


def _size(size: int | None) -> Size:
    return Unknown(-1) if size is None else int(size)
