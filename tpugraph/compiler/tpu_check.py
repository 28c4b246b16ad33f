"""``tpugraph check``: whether a graph can run on a TPU, and which nodes stop it; needs TensorFlow alone.

TensorFlow's bridge to XLA lowers the step and decides. It names one node at a time, so the table of XLA's kernels lists all
nodes without a kernel, also where the graph cannot be converted.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tpugraph import analysis, ops
from tpugraph.analysis import shapes, trip_counts
from tpugraph.compiler import adopt_tpu_estimator
from tpugraph.compiler.conversion import convert
from tpugraph.compiler.options import ConvertOptions, given, shows_options
from tpugraph.ir import Graph, Node, Tensor, attrs, function_library, graphdef
from tpugraph.ir.attrs import DType
from tpugraph.ir.conditionals import joins_branches
from tpugraph.ir.side_effects import local_files
from tpugraph.ir.walks import source_of
from tpugraph.support.errors import ShapeError, TpuGraphError, UsageError
from tpugraph.support.process import without_garbage_collection
from tpugraph.support.wording import counted
from tpugraph.views.conversion_view import View
from tpugraph.views.history import History
from tpugraph.views.view_data import FindingView
from tpugraph.xla import stablehlo
from tpugraph.xla.bridge import Refused
from tpugraph.xla.legalize import REDUCED

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
"""The causes of findings, in the order in which they are printed."""

NOTES = frozenset({"path"})
"""Causes that do not stop the step."""

_BEYOND_XLA = NOTES | {"device"}
"""Causes that the bridge, which lowers for a CPU, cannot judge."""

_FIXES = {
    "constant": "make it of constants and static shapes, or compute it in Python when the graph is built",
    "shape": "a mask of fixed shape instead of the rows themselves: tf.where(condition, x, y), multiply by a mask",
    "loop": "give tf.while_loop maximum_iterations, or compare its counter with a constant",
    "compiler": "write it with other ops, or compute it in the input function",
    "path": "a TPU host reads no files of another machine: put it on Cloud Storage and use --rebind=OLD=gs://...",
}


@dataclass(frozen=True)
class Diagnostic:
    """A finding; ``cause`` is one of ``CAUSES``, ``origin`` is ``gradient of X`` or the pass that made the node.

    Without a node the whole graph is meant.
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
    """The answer of :func:`check`.

    Attributes:
        converted: whether the graph could be converted, so that the bridge was asked.
        device_nodes: the number of nodes for the device; 0 where the conversion failed before placement.
    """

    source: str
    converted: bool
    device_nodes: int
    findings: list[Diagnostic]
    seconds: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Report on {self.source or 'a graph'}: {self.verdict}>"

    @property
    def stopping(self) -> list[Diagnostic]:
        return [finding for finding in self.findings if finding.cause not in NOTES]

    @property
    def compiles(self) -> bool:
        """Whether the step can run on a TPU."""
        return not self.stopping

    @property
    def percent(self) -> float:
        """The share of device nodes with nothing against them, rounded down to a tenth; 100 only for a graph that can run."""
        if not self.device_nodes:
            return 0.0
        stopped = len({finding.node for finding in self.stopping})
        return max(0.0, math.floor(1000 * (self.device_nodes - stopped) / self.device_nodes) / 10)

    @property
    def verdict(self) -> str:
        count = f"{counted(self.device_nodes, 'node')} on the device"
        if self.compiles:
            return f"can run on a TPU: {count}, nothing against any of them"
        stopping = len({finding.node for finding in self.stopping if finding.node})
        if not stopping:
            return f"cannot run on a TPU: {CAUSES[self.stopping[0].cause]}"
        share = f"; {self.percent:.1f} % of {count} can compile" if self.device_nodes else ""
        return f"cannot run on a TPU: {counted(stopping, 'node')} in the way{share}"

    def shown(self) -> list[FindingView]:
        """The findings, as pages show them."""
        return [FindingView(CAUSES[f.cause], f.node, f.fault, f.fix, stops=f.cause not in NOTES) for f in self.findings]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        own = {key: getattr(self, key) for key in ("source", "compiles", "converted", "device_nodes", "percent")}
        return {**own, "findings": [asdict(finding) for finding in self.findings], "seconds": self.seconds}


@shows_options
@without_garbage_collection()
def check(
    model: str | os.PathLike[str] | Graph,
    options: ConvertOptions | None = None,
    *,
    history: History | None = None,
    **fields: Any,
) -> Report:
    """Say whether a graph can run on a TPU and which nodes stop it; needs TensorFlow alone.

    Args:
        model: a plain graph, which is converted first, or a TPU graph; a Graph is used up.
        options: how to convert a plain graph; or give the fields of :class:`ConvertOptions` as keyword arguments.
        history: records the conversion pass by pass, as far as it goes.

    Raises:
        LoadError: the graph cannot be read.
        UsageError: options that cannot be used.
    """
    options = given(options, fields)
    started = time.perf_counter()
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    loaded = time.perf_counter()
    refusal = _convert(graph, options, history)
    if history is not None:
        history.finish(graph)
    converted = time.perf_counter()
    device, nodes = _device(graph), {node.name: node for node in graph}
    findings = list(_kernel_findings(graph, device, nodes))
    findings += [_finding(nodes, "path", "", f"the input reads '{name}'") for name in local_files(graph)]
    looked = time.perf_counter()
    complaint = refusal or _lower(graph, nodes)
    if complaint is None:  # XLA takes what the table of kernels held against it
        findings = [finding for finding in findings if finding.cause in _BEYOND_XLA]
    elif not any(finding.node == complaint.node for finding in findings):
        findings.append(complaint)
    order = list(CAUSES)
    findings.sort(key=lambda finding: order.index(finding.cause))
    seconds = {"load": loaded - started, "convert": converted - loaded, "tables": looked - converted,
               "lower": time.perf_counter() - looked}  # fmt: skip
    return Report(graph.source, refusal is None, len(device), findings, seconds)


@shows_options
def view(model: str | os.PathLike[str] | Graph, options: ConvertOptions | None = None, **fields: Any) -> View:
    """Convert a graph and show it: every stage, what each pass did, where values live and why, what stops it on a TPU.

    Args:
        model: a plain graph, which is converted, or a TPU graph; a Graph is used up.
        options: how to convert a plain graph; or give the fields of :class:`ConvertOptions` as keyword arguments.
        **fields: see there.

    Raises:
        LoadError: the graph cannot be read.
        UsageError: options that cannot be used.
    """
    options = given(options, fields)
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    history = History(Path(graph.source).name or "graph")
    report = check(graph, options, history=history)
    history.view.judge(runs=report.compiles, verdict=report.verdict, findings=report.shown())
    return View(history.view)


# --------------------------------------------------------------------------- conversion and lowering


def _convert(graph: Graph, options: ConvertOptions, history: History | None) -> Diagnostic | None:
    """Convert the graph in place, or give a TPU graph entry points; returns the error."""
    try:
        if not graph.of_type("TPUReplicateMetadata"):
            convert(graph, options, history=history)
            return None
        if history is not None:
            history.record(graph, "input", summary="The TPU graph as it was read.")
            shapes.infer(graph)
        if adopt_tpu_estimator.add_entry_points(graph) and history is not None:
            history.record(graph, "entry points", summary="The graph that TPUEstimator built has entry points.")
    except UsageError:
        raise
    except TpuGraphError as error:
        return _of_error({node.name: node for node in graph}, error, "conversion")
    return None


def _lower(graph: Graph, nodes: Mapping[str, Node]) -> Diagnostic | None:
    """The refusal of the bridge to XLA; the graph is used up."""
    whole = graphdef.to_graph_def(graph)
    try:
        stablehlo.lower(graph)
    except Refused as error:
        node = graphdef.from_graph_def(whole).get(error.node or "")
        op, fault = "" if node is None else node.op, error.fault
        cause = "loop" if error.cause == "compiler" and op in ops.LISTS else error.cause
        if error.operand is not None and node is not None:
            operand, value = list(function_library.named_operands(node))[error.operand]
            if source := _source(value):
                fault = f"the operand '{operand}' of {op} must be known when the step is compiled, and it depends on {source}"
        return _finding(nodes, cause, error.node or "", fault, error.fix, op=op)
    except TpuGraphError as error:
        return _of_error(nodes, error, "compiler")
    return None


def _of_error(nodes: Mapping[str, Node], error: TpuGraphError, otherwise: str) -> Diagnostic:
    """The finding of an error; the node that it names tells the cause."""
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


# --------------------------------------------------------------------------- operands that XLA must know


def _source(operand: Tensor) -> str | None:
    """The nearest variable, input, random op or loop that an operand depends on, in words."""
    front = [operand.node]
    seen = set(front)
    for node in front:  # grows while it is walked
        if node.op in ops.CONSTANTS | _OF_STATIC_SHAPE | ops.CONTAINER_READS:
            continue
        if node.op in ops.READS | ops.GATHERS | ops.VARIABLES:
            handle = source_of(node.out(), ops.READS | ops.GATHERS | ops.HANDLE_ALIASES | ops.CLUSTER_INPUTS)
            return f"the variable '{handle}'"
        if node.op in ops.RANDOM | ops.INPUTS | ops.INFEEDS:
            return f"the {'random op' if node.op in ops.RANDOM else 'input'} '{node.name}'"
        if node.op in ops.MERGE:
            return f"{'the branch taken at' if joins_branches(node) else 'what the loop carries in'} '{node.name}'"
        more = dict.fromkeys(tensor.node for tensor in node.inputs if tensor.node not in seen)
        seen.update(more)
        front += more
    return None


_OF_STATIC_SHAPE = ops.SHAPE_OF | ops.FILLED_LIKE | ops.VARIABLE_SHAPES
"""Ops whose value XLA knows whatever their operand's is: its shapes are static."""


# --------------------------------------------------------------------------- kernels


def _device(graph: Graph) -> list[Node]:
    """The nodes for the device: the cluster, or where there is none yet the step's nodes that read variables."""
    found = list(analysis.cluster_nodes(graph))
    if found or graph.roles is None:
        return found
    step = graph.ancestors(graph[name] for name in graph.roles.roots)
    reached = graph.descendants([node for node in step if node.op in ops.VARIABLES], data_only=True)
    return [node for node in step if node in reached and node.op not in ops.SUMMARIES | ops.SAVES | ops.ASSERTS]


def _kernel_findings(graph: Graph, device: list[Node], nodes: Mapping[str, Node]) -> Iterator[Diagnostic]:
    """Nodes of the device, and of the functions that they call, that no XLA kernel takes."""
    faults = list(_kernel_faults(graph, device))
    at_fault = {name for name, _, _ in faults}
    for name, op, (cause, fault, fix) in faults:
        forward = _gradient_of(nodes, name)
        if forward in at_fault:
            fix = f"goes when '{forward}' is replaced"
        yield _finding(nodes, cause, name, fault, fix, op=op)


_LOWERED = (
    ops.CONTROL_FLOW
    | ops.TPU_SYSTEM
    | ops.VARIABLES
    | ops.GROUPS
    | ops.CONSTANTS
    | ops.STATELESS.keys()
    | ops.DENSE_STEPS.keys()
    | ops.ELEMENT_READS
) - ops.REPLACEMENTS.keys()
"""Ops that the lowering replaces before XLA sees them."""


_Fault = tuple[str, str, str | None]
"""Cause, fault and fix."""


@cache
def kernels() -> Mapping[str, tuple[Mapping[str, frozenset[Any]], ...]]:
    """XLA's kernels by op type: for each the allowed values of the attributes that it restricts."""
    from tensorflow.python.framework import kernels as registry
    from tensorflow.python.util import pywrap_xla_ops

    pywrap_xla_ops.get_cpu_kernel_names()  # registers them
    found: dict[str, list[dict[str, frozenset[Any]]]] = {}
    for kernel in registry.get_all_registered_kernels().kernel:
        if kernel.device_type == "XLA_CPU_JIT":
            taken = {c.name: frozenset(attrs.decode(c.allowed_values) or ()) for c in kernel.constraint}
            found.setdefault(kernel.op, []).append(taken)
    return {op: tuple(taken) for op, taken in found.items()}


def _kernel_faults(graph: Graph, device: Iterable[Node]) -> Iterator[tuple[str, str, _Fault]]:
    """Nodes that no kernel takes, each with op and fault; ``caller/inner`` names a node of a library function."""
    library = function_library.functions_named(graph)
    for node in device:
        if node.op in ops.ALL_REDUCES and node.attr("T").name not in REDUCED:
            fix = f"train the variable in one of {', '.join(sorted(REDUCED))}"
            yield node.name, node.op, ("dtype", f"XLA has no all-reduce of {node.attr('T')}", fix)
        if node.op in _LOWERED:
            continue
        called = function_library.used_by(graph, [node]).values() if library else ()
        inner = [(f"{node.name}/{each.name}", each.op, each.attr) for function in called for each in function.node_def]
        for name, op, raw in [*inner, (node.name, ops.TO_RESOURCE.get(node.op, node.op), node.raw_attrs)]:
            found = None if op in library or op in _LOWERED else _kernel_fault(op, raw)
            if found is not None:
                yield name, op, found


def _kernel_fault(op: str, raw: Mapping[str, Any]) -> _Fault | None:
    decoded = {name: attrs.decode(value) for name, value in raw.items() if name[0] != "_"}
    kinds = {key: value for key, value in decoded.items() if isinstance(value, DType)}
    if op in ops.STACKS and any(kind.name == "resource" for kind in kinds.values()):
        return ("loop", *trip_counts.NESTED)
    if op not in kernels():
        return _without_kernel(op, kinds.values())
    lacks = ops.TPU_LACKS.get(op, frozenset())
    lacked = next((kind for kind in kinds.values() if kind.name in lacks), None)
    if lacked is not None:
        return "device", f"a TPU has no {op} of {lacked}", "cast to a dtype of half the size"
    attribute, value, instead = ops.XLA_REFUSES.get(op, ("", None, ""))
    if attribute and decoded.get(attribute) == value:
        return "attribute", f"XLA does not take {op} with {attribute}={value}", instead
    refused = [_refused(taken, decoded) for taken in kernels()[op]]
    if None in refused:
        return None
    key, values = next(found for found in refused if found is not None)
    listed = ", ".join(sorted(map(str, values)))
    cause, fix = ("dtype", "cast") if key in kinds else ("attribute", "set it")
    return cause, f"XLA's kernel for {op} does not take {key}={decoded[key]}", f"{fix} to one of {listed}"


def _without_kernel(op: str, kinds: Iterable[DType]) -> _Fault:
    if ops.is_host_only(op):
        return "host", f"{op} runs on a host only", "compute it in the input function"
    definition = ops.op_def(op)
    arguments = () if definition is None else (*definition.input_arg, *definition.output_arg)
    fixed = {attrs.dtype(argument.type) for argument in arguments if argument.type}
    if any(kind.name == "string" for kind in (*kinds, *fixed)):
        return "text", f"{op} works on text, which no TPU does", "turn text into numbers in the input function"
    return "kernel", f"XLA has no kernel for {op}", ops.instead_of(op)


def _refused(taken: Mapping[str, frozenset[Any]], decoded: Mapping[str, Any]) -> tuple[str, frozenset[Any]] | None:
    """The first attribute with a value that a kernel does not take, and the values that it takes."""
    for key, values in taken.items():
        value = decoded.get(key)
        given = value if isinstance(value, list) else [] if value is None else [value]
        if any(item not in values for item in given):
            return key, values
    return None


# --------------------------------------------------------------------------- findings


def _finding(
    nodes: Mapping[str, Node], cause: str, name: str, fault: str, fix: str | None = None, *, op: str = ""
) -> Diagnostic:
    return Diagnostic(cause, name, op, name.rpartition("/")[0], _origin(nodes, name), fault, fix or _FIXES.get(cause))


def _origin(nodes: Mapping[str, Node], name: str) -> str | None:
    forward = _gradient_of(nodes, name)
    if forward is not None:
        return f"gradient of {forward}"
    node = nodes.get(name)
    if node is None or node.made_by is None:
        return None
    return f"made by {node.made_by}" + (f" for {node.origin}" if node.origin else "")


def _gradient_of(nodes: Mapping[str, Node], name: str) -> str | None:
    """The op that a node is the gradient of, by the names that ``tf.gradients`` gives."""
    parts = name.split("/")
    for index, part in enumerate(parts):
        if not part.endswith("_grad"):
            continue
        path = [*parts[:index], part.removesuffix("_grad")]
        for start in range(len(path)):
            if "/".join(path[start:]) in nodes:
                return "/".join(path[start:])
    return None
