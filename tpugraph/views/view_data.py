"""The data of a conversion's picture: stages, nodes with their versions, placements, verdicts. Everything in it is JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

FORMAT = 3
"""The version of the data's layout."""

Port = tuple[int, int]
"""An output of a node: the node's number among ``ViewData.nodes``, and the number of its output."""


@dataclass
class Version:
    """What a node is from one stage on. A field that is None is as it was in the version before."""

    stage: int
    op: str | None = None
    device: str | None = None
    inputs: list[Port] | None = None
    controls: list[int] | None = None  # numbers of nodes
    attrs: dict[str, str | None] = field(default_factory=dict)  # those that the stage set; None for one that it removed


@dataclass
class Lives:
    """Where over the cores an output of a node lives, and why."""

    port: int
    kind: str  # replicate, shard, partial or another class of placements, in lower case
    text: str  # the placement in words
    because: str  # the rule that says so, in words
    deciding: list[Port]  # the operands that decided it
    collectives: list[str] = field(default_factory=list)  # what the cores do with it for its readers, a sentence each
    given: bool = False  # from the input or from the host


@dataclass
class NodeView:
    """A node through all stages."""

    name: str
    born: int  # the stage that made it, 0 for the graph as it was read
    died: int | None = None  # the stage that removed it
    versions: list[Version] = field(default_factory=list)
    side: str = ""  # device, host, or "" where it was gone before that was decided
    outputs: list[str] = field(default_factory=list)  # dtype and shape
    bytes: list[int | None] = field(default_factory=list)  # of each output, None where its shape is open
    made_by: str | None = None  # a pass
    origin: str | None = None  # the node of the plain graph that it was made for
    collective: int | None = None  # bytes that each core combines with the others in a step
    lives: list[Lives] = field(default_factory=list)
    findings: list[int] = field(default_factory=list)  # numbers in ViewData.findings


@dataclass
class Stage:
    """The graph after one pass; the first stage, ``input``, is the graph as it was read."""

    name: str
    summary: str = ""  # what is true afterwards
    nodes: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    seconds: float = 0.0
    notes: list[tuple[str, str]] = field(default_factory=list)  # node and text


@dataclass
class Transfer:
    """Values that go over the infeed or the outfeed from one node to another."""

    source: int
    target: int
    kind: str  # infeed or outfeed
    bytes: int | None  # per step and core, None where a shape is open


@dataclass
class FindingView:
    """One thing that stops the step, or that is worth a note; of the whole graph where ``node`` is ""."""

    cause: str
    node: str
    fault: str
    fix: str | None = None
    stops: bool = True


@dataclass(repr=False)
class ViewData:
    """All that the pictures of one conversion show: the graph as it was read, then after each pass, and a verdict on it."""

    title: str
    facts: list[str] = field(default_factory=list)  # what is to be said of the whole, line by line
    stages: list[Stage] = field(default_factory=list)
    nodes: list[NodeView] = field(default_factory=list)  # every node of any stage
    transfers: list[Transfer] = field(default_factory=list)
    runs: bool | None = None  # whether it can run on a TPU; None where nobody asked
    verdict: str = ""
    findings: list[FindingView] = field(default_factory=list)
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"<ViewData of {self.title}: {len(self.stages)} stages, {len(self.nodes):,} nodes>"

    def judge(self, *, runs: bool, verdict: str, findings: list[FindingView]) -> None:
        """Add a verdict, and hang its findings on the nodes that they name."""
        self.runs, self.verdict, self.findings = runs, verdict, findings
        newest = {node.name: node for node in self.nodes}
        for number, finding in enumerate(findings):
            if finding.node in newest:
                newest[finding.node].findings.append(number)

    def alive(self, stage: int = -1) -> dict[int, NodeView]:
        """The nodes of a stage by number; of the last one if none is named."""
        at = range(len(self.stages))[stage]
        return {
            number: node
            for number, node in enumerate(self.nodes)
            if node.born <= at and (node.died is None or node.died > at)
        }
