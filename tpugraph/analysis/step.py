"""What a pass finds or makes for later ones: a class for each, of which the graph keeps one object.

A pass names in ``gives`` what it keeps and in ``reads`` what it looks up, so that a pipeline in the wrong order cannot be
built; :meth:`tpugraph.ir.Graph.keep` and :meth:`tpugraph.ir.Graph.result` are the only way. Nodes and tensors are named, so
that rewriting keeps them valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpugraph.analysis.placements import Placement


@dataclass(frozen=True)
class InProcess:
    """The graph runs in the process that made it: the Python functions that it calls are there."""


@dataclass(frozen=True)
class EveryStep:
    """Of each step, not of a loop's last one alone, the host keeps what some summaries read, stacked."""

    summaries: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrderedRace:
    """A read and a write of a variable that the plain graph puts in no order; ``first`` is ``read``, ``write`` or "" for neither."""

    read: str
    write: str
    variable: str
    first: str


@dataclass(frozen=True)
class OrderedRaces:
    """Reads and writes that were in no order have got one."""

    order: str = "reads_first"
    races: tuple[OrderedRace, ...] = ()


@dataclass(frozen=True)
class ClosedShapes:
    """Open batches have been given a number of rows; ``batches`` has a sentence for each."""

    batches: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaddedLookups:
    """Lists of ids have been padded to ``most`` ids a row, by the node that made the list; of the ``flagged`` ones a flag says it."""

    most: Mapping[str, int] = field(default_factory=dict)
    flagged: tuple[str, ...] = ()


@dataclass(frozen=True)
class JoinedTables:
    """Tables in pieces are looked up as one.

    ``pieces`` has their number by the node that put the rows together; ``steps`` the updates of pieces, which are given -1 for rows
    of other pieces and have to be dense.
    """

    pieces: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaddedBatches:
    """Batches of evaluation and prediction have been padded."""

    rows: int
    plain_rows: int
    count: str  # the node that counts the true ones
    # whether the plain graph has that number of rows in its shapes, so that it drops the last partial batch
    whole: bool
    tensors: tuple[str, ...]  # the tensors of the padded batch
    numbers: tuple[str, ...]  # numbers made of padded text, zero where it is padding
    sparse: tuple[tuple[str, str, str], ...]  # indices, values and shape of the sparse ones
    plain: Mapping[str, str]  # by tensor of the padded batch, or made of its padding, what the plain graph reads
    endless: bool  # whether the dataset repeats for ever


@dataclass(frozen=True)
class DeviceEnds:
    """The device computes ``nodes`` of its rows, their number first; ``beside`` are parts of the plain batch that go past it."""

    nodes: tuple[str, ...]
    beside: tuple[str, ...]


@dataclass(frozen=True)
class HostModels:
    """Products of layers that the host computes behind the device, a sentence each."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cut:
    """Where a step is cut between host and device."""

    # what crosses to the device, with its bytes for one core in each step
    tensors: Mapping[str, int] = field(default_factory=dict)
    naive_bytes: int | None = 0  # how many bytes the whole input would take; None where that is open
    # what watched the step and cannot do so on several cores, by node, with the reason
    dropped: Mapping[str, str] = field(default_factory=dict)
    tail: tuple[str, ...] = ()  # the nodes that watch the step on the host behind the device
    waits: tuple[str, ...] = ()

    def bytes(self) -> int:
        """How many bytes cross for one core in each step."""
        return sum(self.tensors.values())


@dataclass(frozen=True)
class Partitioned:
    """The step has been partitioned over the cores; as long as it has not, nothing is said."""

    cores: int = 0
    rows: int | None = None  # rows of one core's batch; None where the batch has no dimension
    loss_share: str = ""  # the tensor that is one core's share of the loss
    notes: tuple[str, ...] = ()
    # how the tensors that leave the device live on the cores
    leaving: Mapping[str, Placement] = field(default_factory=dict)
    combined: Mapping[str, Any] = field(default_factory=dict)  # the tensors that cores combine, with the reason
    gathered: Mapping[str, Any] = field(default_factory=dict)  # the tensors whose rows are gathered, with their bytes
    unified: Mapping[str, Any] = field(default_factory=dict)  # updates that were made the same on every core, by node


@dataclass(frozen=True)
class Enqueues:
    """The nodes that enqueue a batch for each core."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Outfed:
    """What leaves the device through the outfeed, and what the host makes of each; ``bytes`` leave all cores in a step."""

    enqueue: str = ""
    tensors: Mapping[str, str] = field(default_factory=dict)
    bytes: int = 0
    loss: str = ""


@dataclass(frozen=True)
class Queues:
    """The queues of what goes past the device, from host to host."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """The nodes and tensors behind the loops, and how many rows a step has, by what the entry points call them."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.names[name]

    def __contains__(self, name: str) -> bool:
        return name in self.names
