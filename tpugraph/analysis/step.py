"""Results of passes for later ones: one class per kind. The graph stores one instance of each.

A pass declares the results it stores in ``gives`` and those it uses in ``reads``, so that a pipeline in the wrong order cannot
be built; :meth:`tpugraph.ir.Graph.keep` and :meth:`tpugraph.ir.Graph.result` are the only access. Nodes and tensors are stored
by name, so that rewriting keeps results valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpugraph.analysis.placements import Placement


@dataclass(frozen=True)
class InProcess:
    """The graph runs in the process that built it, where its Python functions exist."""


@dataclass(frozen=True)
class EveryStep:
    """The operands of some summaries are stacked over all steps of a loop, not taken from the last one."""

    summaries: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrderedRace:
    """A race and its order: ``first`` is ``read``, ``write`` or "" for neither."""

    read: str
    write: str
    variable: str
    first: str


@dataclass(frozen=True)
class OrderedRaces:
    """The races of the step have been ordered."""

    order: str = "reads_first"
    races: tuple[OrderedRace, ...] = ()


@dataclass(frozen=True)
class PaddedLookups:
    """Id lists have been padded to ``most`` ids per row, by the list's producer; for ``flagged`` ones the bound is a flag's."""

    most: Mapping[str, int] = field(default_factory=dict)
    flagged: tuple[str, ...] = ()


@dataclass(frozen=True)
class JoinedTables:
    """Partitioned tables are looked up without partitioned ids.

    ``pieces`` has the number of pieces by the node that stitched the rows; ``steps`` are the updates of pieces, which get index
    -1 for rows of other pieces and must become dense.
    """

    pieces: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaddedBatches:
    """Batches of evaluation and prediction have been padded."""

    rows: int
    count: str  # the node that counts the true rows
    # whether the batch size is static in the plain graph, so that it drops the last partial batch
    whole: bool
    tensors: tuple[str, ...]  # the tensors of the padded batch
    numbers: tuple[str, ...]  # numbers computed from padded strings, zero in padding
    sparse: tuple[tuple[str, str, str], ...]  # indices, values and shape of sparse tensors
    plain: Mapping[str, str]  # the unpadded tensor for each tensor of the padded batch, or computed from its padding
    endless: bool  # whether the dataset repeats forever


@dataclass(frozen=True)
class DeviceEnds:
    """The device computes ``nodes``, first the number of rows; ``beside`` are tensors of the unpadded batch that bypass it."""

    nodes: tuple[str, ...]
    beside: tuple[str, ...]


@dataclass(frozen=True)
class Cut:
    """Where a step is cut between host and device."""

    # the tensors that cross to the device, with their bytes per core and step
    tensors: Mapping[str, int] = field(default_factory=dict)
    naive_bytes: int | None = 0  # the bytes of the whole input; None where unknown
    # observers that cannot be placed on several cores, by node, with the reason
    dropped: Mapping[str, str] = field(default_factory=dict)
    tail: tuple[str, ...] = ()  # the observers that run on the host after the device
    waits: tuple[str, ...] = ()

    def bytes(self) -> int:
        """The bytes that cross per core and step."""
        return sum(self.tensors.values())


@dataclass(frozen=True)
class Partitioned:
    """The step has been partitioned over the cores."""

    cores: int = 0
    rows: int | None = None  # rows of one core's batch; None where the batch has no rows
    loss_share: str = ""  # the tensor that is one core's share of the loss
    notes: tuple[str, ...] = ()
    # the placements of the tensors that leave the device
    leaving: Mapping[str, Placement] = field(default_factory=dict)
    combined: Mapping[str, Any] = field(default_factory=dict)  # the reduced tensors, with the reason
    gathered: Mapping[str, Any] = field(default_factory=dict)  # the all-gathered tensors, with their bytes
    unified: Mapping[str, Any] = field(default_factory=dict)  # unified updates, by node


@dataclass(frozen=True)
class Enqueues:
    """The nodes that enqueue a batch for each core."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Outfed:
    """The tensors of the outfeed, and how the host combines each; ``bytes`` per step, of all cores."""

    enqueue: str = ""
    tensors: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    loss: str = ""


@dataclass(frozen=True)
class Queues:
    """The queues for tensors that bypass the device, from host loop to host loop."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """The nodes and tensors after the loops, and the number of rows of a step, by the names of the entry points."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.names[name]

    def __contains__(self, name: str) -> bool:
        return name in self.names
