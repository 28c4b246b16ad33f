"""The data of the report that helps to decide about a TPU: verdict, what must change, and what each TPU would make of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tpugraph.views.view_data import FORMAT, FindingView


@dataclass
class TensorBar:
    """One of the largest tensors of a core.

    Attributes:
        node: where it comes from, or "".
        shape: with layout and tiles, as the compiler writes it.
        bytes: what it takes, with padding.
        elements: bytes of its elements alone.
        on_chip: whether it is in the memory of the chip itself rather than in HBM.
    """

    node: str
    shape: str
    bytes: int
    elements: int
    on_chip: bool


@dataclass
class Target:
    """What the compiler for one TPU says of the step. Where it refuses, only the first four fields are filled.

    Attributes:
        topology: which TPU.
        cores: how many it has.
        error: what it complains of, or None.
        fix: what to do about that, where it is known.
        seconds: how long compiling took.
        hbm: bytes of memory of a core.
        peak_flops: what a core can do, in operations per second in bfloat16.
        bandwidth: what a core reads and writes, in bytes per second.
        memory: bytes of a core by kind.
        needed: bytes of memory that a core needs.
        flops: operations of a step.
        bytes_accessed: bytes that a step reads and writes.
        step_seconds: the least time of a step that the peaks allow.
        bound_by: ``compute`` or ``memory``.
        examples_per_second: rows of the global batch in that time, 0 where the batch is not known.
        infeed_bytes: of each core and step.
        all_reduce_bytes: that each core gives to sums over the cores in a step.
        tensors: the largest ones.
        most_live: the most bytes of HBM and of the chip's own memory that are live at once.
        largest_batch: the most rows of a core that fit, or None where that was not searched.
    """

    topology: str
    cores: int
    error: str | None = None
    fix: str | None = None
    seconds: float = 0.0
    hbm: int = 0
    peak_flops: float = 0.0
    bandwidth: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)
    needed: int = 0
    flops: float = 0.0
    bytes_accessed: float = 0.0
    step_seconds: float = 0.0
    bound_by: str = ""
    examples_per_second: float = 0.0
    infeed_bytes: int = 0
    all_reduce_bytes: int = 0
    tensors: list[TensorBar] = field(default_factory=list)
    most_live: int = 0
    largest_batch: int | None = None


@dataclass
class Collective:
    """What the cores combine.

    Attributes:
        tensor: the value that they combine.
        how: why and how, in words.
        bytes: of each core in a step, or None where its shape is open.
    """

    tensor: str
    how: str
    bytes: int | None


@dataclass
class ReportData:
    """All that the report shows.

    Attributes:
        title: the name of the graph.
        runs: whether it can run on a TPU.
        verdict: the same in words.
        findings: what is in the way, in the order of the causes.
        facts: what the conversion found, line by line.
        collectives: what the cores combine.
        targets: what each TPU would make of it.
    """

    title: str
    runs: bool
    verdict: str
    findings: list[FindingView] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"format": FORMAT, **asdict(self)}
