"""Named invariants of a graph. A pass declares those it requires and ensures; the pipeline checks both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, in_cluster
from tpugraph.analysis.shapes import is_static
from tpugraph.analysis.step import DeviceEnds, Partitioned
from tpugraph.ir import Graph, Node, attrs
from tpugraph.ir.function_library import functions_named
from tpugraph.ir.walks import readers
from tpugraph.support.errors import ConversionError, InvariantError
from tpugraph.tpu.form_check import missing_entry_points


@dataclass(frozen=True)
class Violation:
    """A node, or the graph, for which an invariant does not hold; ``of_model`` where the user's model is the cause."""

    node: Node | None
    fault: str
    fix: str | None = None
    of_model: bool = False


Check = Callable[[Graph], Iterable[Violation]]


@dataclass(frozen=True)
class Invariant:
    """A named property of a graph."""

    name: str
    meaning: str
    check: Check

    def verify(self, graph: Graph, stage: str) -> None:
        """Raise an InvariantError with the first violation, or a ConversionError where the model is the cause."""
        violations = list(graph.remember(f"fails {self.name}", lambda graph: dict.fromkeys(self.check(graph))))
        if not violations:
            return
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        origin = graph.source
        if first.node is not None and first.node.origin:
            origin = f"{graph.source}, made for '{first.node.origin}' by {first.node.made_by}"
        if first.of_model:
            raise ConversionError(f"{first.fault}{more}", node=first.node, origin=origin, fix=first.fix, stage=stage)
        raise InvariantError(
            f"{self.name}: {first.fault}{more}", node=first.node, origin=origin, fix=first.fix, stage=stage
        )


INVARIANTS: dict[str, Invariant] = {}
"""All invariants by name."""


def _invariant(check: Check) -> Check:
    """Register a check under its function's name; its docstring is the meaning."""
    name = check.__name__.lstrip("_")
    INVARIANTS[name] = Invariant(name, (check.__doc__ or "").strip().rstrip("."), check)
    return check


@_invariant
def _well_formed(graph: Graph) -> Iterator[Violation]:
    """Every edge leads to a node of the graph; no input, attribute or called function is missing."""
    for node in graph.take_touched():
        for index, (producer, port) in enumerate(node.inputs):
            if graph.get(producer.name) is not producer:
                yield Violation(node, f"input {index} reads '{node.inputs[index]}', which was removed")
            elif producer.outputs is not None and port >= len(producer.outputs):
                fault = f"input {index} reads '{node.inputs[index]}', but that node has {len(producer.outputs)} outputs"
                yield Violation(node, fault)
        for control in node.controls:
            if graph.get(control.name) is not control:
                yield Violation(node, f"waits for '{control.name}', which was removed")
        wanted = attrs.arity(node.op, node.raw_attrs)
        if wanted is not None and wanted != len(node.inputs):
            yield Violation(node, f"has {len(node.inputs)} inputs, but {node.op} takes {wanted}")
        for name in sorted(ops.required_attrs(node.op).difference(node.raw_attrs)):
            yield Violation(node, f"the attribute '{name}' is missing")
        for name in sorted(ops.function_attrs(node.op).intersection(node.raw_attrs)):
            called = node.attr(name)
            if isinstance(called, attrs.Func) and called.name and called.name not in functions_named(graph):
                yield Violation(node, f"calls the function '{called.name}', which is not in the graph's library")


@_invariant
def _roles_known(graph: Graph) -> Iterator[Violation]:
    """The roles were found and their nodes are in the graph."""
    if graph.roles is None:
        yield Violation(None, "the roles of the graph are not known", "call tpugraph.roles.find first")
        return
    for name in graph.roles.roots:
        if name not in graph:
            yield Violation(None, f"'{name}' is no longer in the graph")


@_invariant
def _resource_variables(graph: Graph) -> Iterator[Violation]:
    """No ref variable is left."""
    for node in graph.of_type(*ops.REF_VARIABLES):
        yield Violation(node, "is a ref variable", "run the pass resource-variables")


@_invariant
def _shapes_known(graph: Graph) -> Iterator[Violation]:
    """Dtype and shape of every output were inferred."""
    for node in graph:
        if node.outputs is None:
            yield Violation(node, "its outputs are unknown")


@_invariant
def _placed(graph: Graph) -> Iterator[Violation]:
    """Every node is on the host or on the device, and no host op is on the device."""
    device = analysis.cluster_nodes(graph)
    for node in device:
        if ops.is_host_only(node.op):
            yield Violation(
                node, "runs on a host only, and is used between ops of the device", _HOST_FIX, of_model=True
            )
    if not device:
        yield Violation(None, "no node is placed on the device", "run the pass placement")


@_invariant
def _rows_separate(graph: Graph) -> Iterator[Violation]:
    """The host reads what cores compute as the rows of all cores only."""
    found = graph.kept(DeviceEnds)
    ends = [graph.get(name) for name in found.nodes] if found is not None else []
    if not ends:
        yield Violation(None, "it is not known where the device's part of the step ends", "run the pass separate-rows")
    for node in ends:
        for use in node.uses() if node is not None else []:
            if use.node.op not in ops.DEFAULTS and not in_cluster(use.node):
                yield Violation(use.node, "reads the rows of one core")


@_invariant
def _static_infeed(graph: Graph) -> Iterator[Violation]:
    """What crosses from the host to the device has a fixed shape and a dtype that an infeed takes."""
    for node in graph.of_type("InfeedDequeueTuple"):
        for kind, shape in node.outputs or []:
            if not is_static(shape):
                yield Violation(node, f"an infeed tensor has the open shape {shape}")
            if kind.name not in ops.INFEED_DTYPES:
                yield Violation(node, f"an infeed takes no {kind}")


@_invariant
def _gradients_reduced(graph: Graph) -> Iterator[Violation]:
    """Every write of a trained variable is replicated: it depends on the input through a CrossReplicaSum only."""
    varying = _varying(graph)
    for name in graph.roles.trained:
        for use in readers(graph[name]):
            fact = ops.WRITES.get(use.op)
            if fact is not None and in_cluster(use) and use in varying:
                yield Violation(use, f"the update of '{name}' differs between cores", _UPDATE_FIX, of_model=True)


@_invariant
def _uniform_writes(graph: Graph) -> Iterator[Violation]:
    """Every write in the step of a variable that the cores have in common is replicated."""
    writes = [
        node for node in _varying(graph) if node.op in ops.WRITES and in_cluster(node) and not analysis.writes_own(node)
    ]
    of_input = analysis.varying_with_input(graph) if writes else {}
    for node in writes:
        if node in of_input:
            yield Violation(node, "writes a value that differs between cores", "run the pass partition")
        else:
            yield Violation(node, "writes a value that the host computes without the input, and each core reads its own",
                            "compute it with ops that run on the device, or in the input function", of_model=True)  # fmt: skip


def _varying(graph: Graph) -> NodeSet:
    alone = graph.kept_or_empty(Partitioned).cores == 1
    return {} if alone else analysis.replica_varying(graph)


_UPDATE_FIX = (
    "besides its gradient, the update depends on the batch (a rate or a condition made of this step's loss, say): "
    "use the step counter or a variable for it"
)


_HOST_FIX = "compute it in the input function, or take it out of the step"


@_invariant
def _fed_by_infeed(graph: Graph) -> Iterator[Violation]:
    """The device reads the host through the infeed, loop constants and cluster arguments only."""
    device = analysis.cluster_nodes(graph)
    groups: set[int] = set()  # nodes with equal control inputs share a tuple
    for node in device:
        for tensor in node.inputs:
            other = tensor.node
            if other in device or other.op in ops.RESOURCE_VARIABLES | ops.CLUSTER_INPUTS:
                continue
            yield Violation(node, f"reads '{tensor}', which is on the host", "run the pass infeed")
        if id(node.controls) in groups:
            continue
        for control in node.controls:
            if control not in device:
                fault = f"waits for '{control.name}', which is on the host"
                yield Violation(node, fault, "let it wait for the input, or for nothing", of_model=True)
        groups.add(id(node.controls))


@_invariant
def _fed_to_outfeed(graph: Graph) -> Iterator[Violation]:
    """The host reads the device through the outfeed and cluster outputs only."""
    device = analysis.cluster_nodes(graph)
    for node in graph:
        if node in device or node.op in ops.REPLICATED_OUTPUTS | ops.COMPILATION_RESULTS:
            continue
        for tensor in node.inputs:
            if tensor.node in device:
                yield Violation(node, f"reads '{tensor}', which is on the device", "run the pass outfeed")
        for control in node.controls:
            if control in device:
                yield Violation(node, f"what runs on the host waits for '{control.name}', which is on the device",
                                "let it wait for nothing of the step, or read a value of it", of_model=True)  # fmt: skip


@_invariant
def _in_loop(graph: Graph) -> Iterator[Violation]:
    """The training step is inside the device loop."""
    inside = graph.descendants(graph.of_type(*ops.ENTER), until=ops.EXIT)
    for node in graph.of_type("InfeedDequeueTuple", "OutfeedEnqueueTuple"):
        if node not in inside:
            yield Violation(node, "is outside the device loop", "run the pass training-loop")


@_invariant
def _replicated(graph: Graph) -> Iterator[Violation]:
    """One cluster with its TPUReplicateMetadata; every output leaves it through a TPUReplicatedOutput."""
    metadata = graph.of_type("TPUReplicateMetadata")
    if len(metadata) != 1:
        yield Violation(None, f"the graph has {len(metadata)} TPUReplicateMetadata, not one", "run the pass replicate")
    for node in graph.of_type("TPUReplicatedOutput"):
        if not node.inputs[0].node.has_attr("_tpu_output_identity"):
            yield Violation(node, "its input is not marked as a cluster output")


@_invariant
def _entry_points(graph: Graph) -> Iterator[Violation]:
    """The entry points that a session runs are there under their fixed names."""
    for name in missing_entry_points(graph, graph.roles.mode):
        yield Violation(None, f"there is no '{name}'", "run the pass entry-points")
