"""The data of a conversion's picture: stages, nodes with their versions, placements, verdicts. Everything in it is JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FORMAT = 2
"""The version of the data's layout, in the JSON under ``format``."""

Port = tuple[int, int]
"""An output of a node: the node's number among ``ViewData.nodes``, and the number of its output."""


@dataclass
class Version:
    """What a node is from one stage on. A field that is None is as it was in the version before.

    Attributes:
        stage: the number of the stage that made it so.
        op: the op type.
        device: the device string.
        inputs: what it reads.
        controls: the numbers of the nodes that it waits for.
        attrs: attributes as text, only those that the stage set; None for one that it removed.
    """

    stage: int
    op: str | None = None
    device: str | None = None
    inputs: list[Port] | None = None
    controls: list[int] | None = None
    attrs: dict[str, str | None] = field(default_factory=dict)


@dataclass
class Lives:
    """Where over the cores an output of a node lives, and why.

    Attributes:
        port: the number of the output.
        kind: ``replicate``, ``shard``, ``partial`` or another kind of placement, in lower case.
        text: the placement in words.
        because: the rule that says so, in words.
        deciding: the operands that decided it.
        collectives: what the cores do with it for its readers, a sentence each.
        given: whether it comes from elsewhere: from the input or from the host.
    """

    port: int
    kind: str
    text: str
    because: str
    deciding: list[Port]
    collectives: list[str] = field(default_factory=list)
    given: bool = False


@dataclass
class NodeView:
    """A node through all stages.

    Attributes:
        name: unique at each stage.
        born: the number of the stage that made it, 0 for the graph as it was read.
        died: the number of the stage that removed it, or None.
        versions: what it was, oldest first.
        side: ``device``, ``host``, or "" where it was gone before that was decided.
        outputs: dtype and shape of each output, as last known.
        bytes: of each output, or None where its shape is open.
        made_by: the pass that made it, or None.
        origin: the node of the plain graph that it was made for, or None.
        collective: bytes that each core combines with the others in a step, or None where the node is no collective.
        lives: where its outputs live, as the partitioning found it.
        findings: the numbers of the findings about it in ``ViewData.findings``.
    """

    name: str
    born: int
    died: int | None = None
    versions: list[Version] = field(default_factory=list)
    side: str = ""
    outputs: list[str] = field(default_factory=list)
    bytes: list[int | None] = field(default_factory=list)
    made_by: str | None = None
    origin: str | None = None
    collective: int | None = None
    lives: list[Lives] = field(default_factory=list)
    findings: list[int] = field(default_factory=list)


@dataclass
class Stage:
    """The graph after one pass; the first stage is the graph as it was read.

    Attributes:
        name: of the pass, or ``input``.
        summary: what is true afterwards.
        nodes: how many there are.
        added: how many nodes it added.
        removed: how many nodes it removed.
        changed: how many nodes that stayed it changed.
        seconds: how long it took.
        notes: what it said of nodes: node and text.
    """

    name: str
    summary: str = ""
    nodes: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    seconds: float = 0.0
    notes: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Transfer:
    """What goes between host and device without an edge of the graph: over the infeed or the outfeed.

    Attributes:
        source: the number of the node that sends.
        target: the number of the node that receives.
        kind: ``infeed`` or ``outfeed``.
        bytes: per step and core, or None where a shape is open.
    """

    source: int
    target: int
    kind: str
    bytes: int | None


@dataclass
class FindingView:
    """One thing that stops the step, or that is worth a note.

    Attributes:
        cause: in words.
        node: its name, or "" where the whole graph is meant.
        fault: one sentence.
        fix: what to do about it, or None.
        stops: whether it stops the step.
    """

    cause: str
    node: str
    fault: str
    fix: str | None = None
    stops: bool = True


@dataclass(repr=False)
class ViewData:
    """All that the pictures of one conversion show.

    Attributes:
        title: the name of the graph.
        facts: what is to be said of the whole, line by line.
        stages: the graph as it was read, then after each pass.
        nodes: every node of any stage.
        transfers: what goes over infeed and outfeed.
        runs: whether it can run on a TPU; None where nobody asked.
        verdict: the same in words.
        findings: what stops it.
    """

    title: str
    facts: list[str] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    nodes: list[NodeView] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    runs: bool | None = None
    verdict: str = ""
    findings: list[FindingView] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<ViewData of {self.title}: {len(self.stages)} stages, {len(self.nodes):,} nodes>"

    def judge(self, *, runs: bool, verdict: str, findings: list[FindingView]) -> None:
        """Add a verdict, and hang its findings on the nodes that they name."""
        self.runs, self.verdict, self.findings = runs, verdict, findings
        newest = {node.name: node for node in self.nodes}
        for number, finding in enumerate(findings):
            if finding.node in newest:
                newest[finding.node].findings.append(number)

    def stops(self, node: NodeView) -> bool:
        """Whether something about a node stops the step."""
        return any(self.findings[number].stops for number in node.findings)

    def alive(self, stage: int = -1) -> dict[int, NodeView]:
        """The nodes of a stage by number; of the last one if none is named."""
        at = range(len(self.stages))[stage]
        return {
            number: node
            for number, node in enumerate(self.nodes)
            if node.born <= at and (node.died is None or node.died > at)
        }

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it; fields of nodes and versions that say nothing are left out."""
        nodes = [_said(vars(node)) | {"versions": [_said(vars(v)) for v in node.versions]} for node in self.nodes]
        for node in nodes:
            if "lives" in node:
                node["lives"] = [vars(lives) for lives in node["lives"]]
        beside = {name: [vars(item) for item in getattr(self, name)] for name in ("stages", "transfers", "findings")}
        return {"format": FORMAT, **vars(self), **beside, "nodes": nodes}


def _said(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that hold something; an empty list of inputs is something, since the version before may have had some."""
    return {
        key: value for key, value in fields.items() if value not in (None, "", {}) and (value != [] or key in _KEPT)
    }


_KEPT = frozenset({"inputs", "controls", "versions"})


def current(node: NodeView, stage: int) -> Version:
    """A node as it is at a stage, with every field set."""
    found = Version(stage, "", "", [], [], {})
    for version in node.versions:
        if version.stage > stage:
            break
        for name in ("op", "device", "inputs", "controls"):
            value = getattr(version, name)
            if value is not None:
                setattr(found, name, value)
        found.attrs = {key: value for key, value in {**found.attrs, **version.attrs}.items() if value is not None}
    return found
