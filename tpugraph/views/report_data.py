"""The data of `tpugraph report`: the verdict, what must change, and each TPU's figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tpugraph.views.view_data import FORMAT, FindingView


@dataclass
class TensorBar:
    """One of the largest tensors of a core."""

    node: str  # "" where the compiler made it
    shape: str  # with layout and tiles, as the compiler writes it
    bytes: int  # with padding
    elements: int  # bytes of its elements alone
    on_chip: bool  # in the memory of the chip itself rather than in HBM


@dataclass
class Target:
    """What the compiler for one TPU says of the step; where it refuses, only the first four fields and the ways are filled."""

    topology: str
    cores: int
    error: str | None = None
    fix: str | None = None
    seconds: float = 0.0  # of compiling
    hbm: int = 0  # bytes of memory of a core
    peak_flops: float = 0.0  # of a core, per second in bfloat16
    bandwidth: float = 0.0  # of a core, bytes per second
    memory: dict[str, int] = field(default_factory=dict)  # bytes of a core by kind
    needed: int = 0  # bytes of a core
    flops: float = 0.0  # of a step
    bytes_accessed: float = 0.0  # in a step
    step_seconds: float = 0.0  # the least that the peaks allow
    bound_by: str = ""  # compute or memory
    examples_per_second: float = 0.0  # rows of the global batch in the least time; 0 where the batch is not known
    infeed_bytes: int = 0  # of each core and step
    all_reduce_bytes: int = 0  # that each core gives to sums over the cores in a step
    tensors: list[TensorBar] = field(default_factory=list)  # the largest
    most_live: int = 0  # the most bytes of HBM and of the chip's own memory that are live at once
    largest_batch: int | None = None  # rows of a core that fit; None where that was not searched
    ways: list[dict[str, Any]] = field(
        default_factory=list
    )  # of laying the step on a mesh that fit, as --fit says them


@dataclass
class Collective:
    """What the cores combine, why and how; bytes of each core in a step, None where a shape is open."""

    tensor: str
    how: str
    bytes: int | None


@dataclass
class ReportData:
    """All that the report shows; findings in the order of their causes, facts of the conversion line by line."""

    title: str
    runs: bool  # on a TPU
    verdict: str
    findings: list[FindingView] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}
