"""Whether a graph can run on a TPU, and which nodes stop it: with TensorFlow alone, and no TPU.

The tables say it node by node: XLA's kernels, the operands that XLA must know. Then the step is lowered by TensorFlow's own
bridge to XLA, whose word counts: what it takes, the tables were too careful about; what it refuses, they may not know.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.compiler import adopt_tpu_estimator, check_constants, check_files, check_kernels, deduplicate
from tpugraph.compiler.conversion import convert
from tpugraph.compiler.options import ConvertOptions, given
from tpugraph.ir import Graph, Node, graphdef
from tpugraph.support.errors import ShapeError, TpuGraphError, UsageError
from tpugraph.support.garbage import without_garbage_collection
from tpugraph.support.wording import counted
from tpugraph.views.history import History
from tpugraph.xla import stablehlo

CAUSES = {
    "conversion": "tpugraph cannot convert the graph",
    "feed": "fed from outside",
    "kernel": "no XLA kernel",
    "text": "text",
    "host": "runs on a host only",
    "dtype": "dtype",
    "attribute": "attribute",
    "device": "a TPU has none",
    "constant": "not known when the step is compiled",
    "shape": "open shape",
    "loop": "loop without a bound",
    "compiler": "XLA refuses it",
    "path": "local file",
}
"""What a finding can be about, in the order in which they are told."""

NOTES = frozenset({"path"})
"""Causes that do not stop the step."""

_ENTRY_POINTS = ("tpugraph/train", "tpugraph/evaluate", "tpugraph/predict")

_BEYOND_XLA = NOTES | {"device"}
"""Causes that the bridge to XLA, which lowers for a CPU, has no say in."""

_FIXES = {
    "constant": "make it of constants and static shapes, or compute it in Python when the graph is built",
    "shape": "a mask of fixed shape instead of the rows themselves: tf.where(condition, x, y), multiply by a mask",
    "loop": "give tf.while_loop maximum_iterations, or compare its counter with a constant",
    "compiler": "write it with other ops, or compute it in the input function",
    "path": "a TPU host reads no files of another machine: put it on Cloud Storage and use --rebind=OLD=gs://...",
}


@dataclass(frozen=True)
class Diagnostic:
    """One thing that stops a step, or that is worth a note.

    Attributes:
        cause: one of ``CAUSES``.
        node: the node's name, or "" where the whole graph is meant.
        op: its op type, or "".
        scope: the name scope of the node, "" at the top.
        origin: what the node was made for: ``gradient of X`` or the pass that made it, or None.
        fault: one sentence.
        fix: what to do about it, where that is known.
    """

    cause: str
    node: str
    op: str
    scope: str
    origin: str | None
    fault: str
    fix: str | None = None


@dataclass(repr=False)
class Report:
    """What :func:`check` found.

    Attributes:
        source: the file of the graph.
        compiles: whether the step can run on a TPU.
        converted: whether tpugraph could make a TPU graph of it.
        lowered: whether XLA was asked; not for graphs that evaluate or predict, of which the tables alone speak.
        device_nodes: the number of nodes that would run on the device; 0 where the conversion did not get so far.
        findings: what was found, in the order of the causes.
        seconds: how long it took, by stage.
    """

    source: str
    compiles: bool
    converted: bool
    lowered: bool
    device_nodes: int
    findings: list[Diagnostic]
    seconds: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Report on {self.source or 'a graph'}: {self.verdict}>"

    @property
    def stopping(self) -> list[Diagnostic]:
        """The findings that stop the step."""
        return [finding for finding in self.findings if finding.cause not in NOTES]

    @property
    def percent(self) -> float:
        """The share of device nodes with nothing against them, rounded down to a tenth; 100 only for a graph that can run."""
        if not self.device_nodes:
            return 0.0
        stopped = len({finding.node for finding in self.stopping})
        return max(0.0, math.floor(1000 * (self.device_nodes - stopped) / self.device_nodes) / 10)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        count = f"{counted(self.device_nodes, 'node')} on the device"
        if self.compiles:
            how = "" if self.lowered else ", by the tables; XLA is asked of training graphs only"
            return f"can run on a TPU: {count}, nothing against any of them{how}"
        stopping = len({finding.node for finding in self.stopping if finding.node})
        if not stopping:
            return f"cannot run on a TPU: {CAUSES[self.stopping[0].cause]}"
        share = f"; {self.percent:.1f} % of {count} can compile" if self.device_nodes else ""
        return f"cannot run on a TPU: {counted(stopping, 'node')} in the way{share}"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dicts and lists (JSON)."""
        own = {
            key: getattr(self, key) for key in ("source", "compiles", "converted", "lowered", "device_nodes", "percent")
        }
        return {**own, "findings": [asdict(finding) for finding in self.findings], "seconds": self.seconds}


def check(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions | None = None,
    *,
    history: History | None = None,
    **fields: Any,
) -> Report:
    """Say whether a graph can run on a TPU and which nodes stop it; needs TensorFlow alone.

    Args:
        model: a plain training graph, which is converted first, or a TPU graph; a Graph is used up.
        options: how to convert a plain graph; or give the fields of :class:`ConvertOptions` as keyword arguments.
        history: is told of the conversion pass by pass, as far as it goes.
        **fields: see there.

    Raises:
        LoadError: the graph cannot be read.
        UsageError: options that cannot be used.
    """
    with without_garbage_collection():
        return _check(model, given(options, fields), history)


def _check(model: str | os.PathLike[str] | Graph, options: ConvertOptions, history: History | None) -> Report:
    started = time.perf_counter()
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    loaded = time.perf_counter()
    refusal = _convert(graph, options, history)
    if history is not None:
        history.finish(graph)
    converted = time.perf_counter()
    device, nodes = _device(graph), {node.name: node for node in graph}
    findings = list(_by_tables(graph, device, nodes))
    findings += [_finding(nodes, "path", "", f"the input reads '{name}'") for name in check_files.local_files(graph)]
    looked = time.perf_counter()
    lowers = refusal is None and "tpugraph/train" in graph
    complaint = _lower(graph, nodes) if lowers else refusal
    if lowers and complaint is None:  # the tables were too careful
        findings = [finding for finding in findings if finding.cause in _BEYOND_XLA]
    if complaint is not None and not any(finding.node == complaint.node for finding in findings):
        findings.append(complaint)
    order = list(CAUSES)
    findings.sort(key=lambda finding: order.index(finding.cause))
    stops = any(finding.cause not in NOTES for finding in findings)
    seconds = {"load": loaded - started, "convert": converted - loaded, "tables": looked - converted,
               "lower": time.perf_counter() - looked}  # fmt: skip
    return Report(graph.source, not stops, refusal is None, lowers, len(device), findings, seconds)


# --------------------------------------------------------------------------- conversion and lowering


def _convert(graph: Graph, options: ConvertOptions, history: History | None) -> Diagnostic | None:
    """Make a TPU graph with entry points of the graph, in place; the error where that cannot be."""
    try:
        if not graph.of_type("TPUReplicateMetadata"):
            convert(graph, options, history=history)
            return None
        if history is not None:
            history.record(graph, "input", summary="The TPU graph as it was read.")
            shapes.infer(graph)
        if not any(name in graph for name in _ENTRY_POINTS):
            adopt_tpu_estimator.add_entry_points(graph)
            if history is not None:
                history.record(graph, "entry points", summary="The graph that TPUEstimator built has entry points.")
    except UsageError:
        raise
    except TpuGraphError as error:
        return _of_error({node.name: node for node in graph}, error, "conversion")
    return None


def _lower(graph: Graph, nodes: Mapping[str, Node]) -> Diagnostic | None:
    """What TensorFlow's bridge to XLA refuses in a TPU graph, which is used up."""
    op_of = {name: node.op for name, node in nodes.items()}  # the lowering turns ops into others
    try:
        deduplicate.merge_alike(graph)
        stablehlo.lower(graph)
    except stablehlo.Refused as error:
        name = error.node or ""
        cause = "loop" if error.cause == "compiler" and op_of.get(name) in ops.LISTS else error.cause
        return _finding(nodes, cause, name, error.fault, error.fix, op=op_of.get(name, ""))
    except TpuGraphError as error:
        return _of_error(nodes, error, "compiler")
    return None


def _of_error(nodes: Mapping[str, Node], error: TpuGraphError, otherwise: str) -> Diagnostic:
    """An error of the conversion or of the lowering as a finding, its cause told by the node that it names."""
    name = (error.node or "").partition(" (")[0]
    op = nodes[name].op if name in nodes else ""
    cause = otherwise
    if op in ops.PLACEHOLDERS:
        cause = "feed"
    elif isinstance(error, ShapeError):
        cause = "shape"
    elif op in ops.LOOP_COND | ops.LISTS:
        cause = "loop"
    elif ops.is_host_only(op):
        cause = "host"
    fault = f"{error.stage}: {error.fault}" if error.stage and cause == otherwise else error.fault
    return _finding(nodes, cause, name, fault, error.fix, op=op)


# --------------------------------------------------------------------------- tables


def _device(graph: Graph) -> list[Node]:
    """What would run on the device: the cluster, or where there is none yet the step's nodes that variables reach."""
    found = list(analysis.cluster_nodes(graph))
    if found or graph.roles is None:
        return found
    step = graph.ancestors(graph[name] for name in graph.roles.roots)
    reached = graph.descendants([node for node in step if node.op in ops.VARIABLES], data_only=True)
    return [node for node in step if node in reached and node.op not in ops.SUMMARIES | ops.SAVES | ops.ASSERTS]


def _by_tables(graph: Graph, device: list[Node], nodes: Mapping[str, Node]) -> Iterator[Diagnostic]:
    """What XLA lacks or cannot know, as far as tables say it."""
    missing = list(check_kernels.missing(graph, device))
    without = {found.node for found in missing}
    for found in missing:
        forward = _gradient_of(nodes, found.node.split("/"))
        fix = f"goes when '{forward}' is replaced" if forward in without else found.fix
        yield _finding(nodes, found.cause, found.node, found.fault, fix, op=found.op)
    for loose in check_constants.unknown(graph, device):
        yield _finding(nodes, "constant", loose.node.name, loose.fault, op=loose.node.op)


def _finding(
    nodes: Mapping[str, Node], cause: str, name: str, fault: str, fix: str | None = None, *, op: str = ""
) -> Diagnostic:
    return Diagnostic(cause, name, op, name.rpartition("/")[0], _origin(nodes, name), fault, fix or _FIXES.get(cause))


def _origin(nodes: Mapping[str, Node], name: str) -> str | None:
    """What a node was made for: the op whose gradient it is part of, or the pass that made it."""
    forward = _gradient_of(nodes, name.split("/"))
    if forward is not None:
        return f"gradient of {forward}"
    node = nodes.get(name)
    if node is None or node.made_by is None:
        return None
    return f"made by {node.made_by}" + (f" for {node.origin}" if node.origin else "")


def _gradient_of(nodes: Mapping[str, Node], parts: list[str]) -> str | None:
    """The op that a node's name says it is the gradient of, as ``tf.gradients`` names them, where the graph has that op."""
    for index, part in enumerate(parts):
        if not part.endswith("_grad"):
            continue
        path = [*parts[:index], part.removesuffix("_grad")]
        for start in range(len(path)):
            if "/".join(path[start:]) in nodes:
                return "/".join(path[start:])
    return None
