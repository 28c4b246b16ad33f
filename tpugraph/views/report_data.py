"""The data of `tpugraph report`: the verdict, what must change, and each TPU's figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tpugraph.views.view_data import FORMAT, FindingView


@dataclass
class Target:
    """What the compiler for one TPU says of the step, or why it refuses."""

    topology: str
    cores: int
    error: str | None = None
    fix: str | None = None
    compiled: dict[str, Any] | None = None  # as `tpugraph compile --json` prints it; None where it refuses
    examples_per_second: float = 0.0  # rows of the global batch in the least time; 0 where the batch is not known
    largest_batch: int | None = None  # rows of a core that fit; None where that was not searched
    ways: list[dict[str, Any]] = field(default_factory=list)  # that fit, as `tpugraph compile --fit --json` prints them


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
