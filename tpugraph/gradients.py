"""Raw gradients: where backpropagation hands a variable's gradient to clipping, scaling and the optimizer.

The raw gradients are the cheapest set of tensors, each of a variable's own shape, that separates backpropagation from
all updates; of several such sets the one closest to backpropagation. Everything between a raw gradient and the update
is processing, whatever ops it is made of, so optimizers of plain Assign ops are found like those with their own op.
What processing made of a gradient by an op that is not linear in it is no raw gradient, whatever its shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.analysis import NodeSet, frames, in_cluster, minimum_cut, reads_host
from tpugraph.attrs import Shape
from tpugraph.errors import ConversionError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.processing import processed
from tpugraph.shapes import is_static
from tpugraph.state import variable_of

_MAKES_INDICES = frozenset({"Reshape", "Identity", "ConcatV2", "Cast"}) | ops.SEGMENT_GRADS


@dataclass(frozen=True)
class _Label:
    """What a candidate looks like: ``dense`` with the variable's shape, ``rows`` with its row shape, or ``indices``."""

    kind: str
    shape: Shape

    def fits(self, tensor: Tensor, *, direct: bool) -> bool:
        """Whether the tensor can be the raw gradient; ``direct`` says that the update reads it itself."""
        shape = tensor.shape
        if self.kind == "dense":
            return tensor.dtype.floating and (shape == self.shape or (direct and not is_static(shape)))
        if shape is None or tensor.node.op in ("Unique", "UniqueV2", "UnsortedSegmentSum"):
            return False
        if self.kind == "indices":
            made = direct or tensor.node.op in _MAKES_INDICES
            return made and tensor.dtype.name in ("int32", "int64") and len(shape) == 1
        return tensor.dtype.floating and len(shape) == len(self.shape or ()) and shape[1:] == (self.shape or ())[1:]


@dataclass(frozen=True)
class RawGradient:
    """One tensor to reduce over the cores.

    Attributes:
        tensor: the raw gradient.
        kind: ``dense``, or ``rows`` and ``indices`` of IndexedSlices.
        variable: the variable it belongs to.
        why: how it was found.
        readers: nodes of the processing that read it.
    """

    tensor: Tensor
    kind: str
    variable: str
    why: str
    readers: NodeSet = field(default_factory=dict)


def find_raw_gradients(graph: Graph, varying: NodeSet, forward: NodeSet) -> list[RawGradient]:
    """Find what to reduce.

    Args:
        graph: the graph, with roles, shapes and placement.
        varying: the replica-varying nodes.
        forward: the nodes that the loss is computed from; none of their values is a gradient.

    Raises:
        ConversionError: an update that depends on the input otherwise than through a gradient of its variable's shape.
    """
    walk = _Walk(graph, varying, forward)
    for finding in graph.roles.updates:
        walk.add_update(graph[finding.name])
    return walk.cut()


def rows_alike(graph: Graph, varying: NodeSet, forward: NodeSet) -> list[Node]:
    """Rows of gradients that are the same on every core while the numbers of the rows differ: each core has its own.

    What the loss does not read has no gradient: rows of ones that are added to it are a count.
    """
    pairs = []
    for update in (graph[finding.name] for finding in graph.roles.updates):
        fact = ops.WRITES[update.op]
        if fact.rows is not None and variable_of(update.inputs[fact.variables[0]]) in forward:
            pairs.append((update.inputs[fact.value], update.inputs[fact.rows]))
    processing = graph.ancestors((rows.node for rows, _ in pairs), data_only=True)
    pairs += [(n.inputs[0], n.inputs[1]) for n in processing if n.op == "UnsortedSegmentSum" and n not in forward]
    return list({rows.node: None for rows, at in pairs if at.node in varying and rows.node not in varying})


class _Walk:
    """Walks back from the updates and collects the network to cut."""

    def __init__(self, graph: Graph, varying: NodeSet, forward: NodeSet) -> None:
        self.graph = graph
        self.varying = varying
        self.forward = forward
        self.edges: dict[tuple[Tensor, Tensor], None] = {}
        self.labels: dict[Tensor, dict[_Label, str]] = {}
        self.sources: dict[Tensor, None] = {}
        self.targets: dict[Tensor, Node] = {}
        self.processing: NodeSet = {}
        self.ways_back: NodeSet = {}
        self.processed: dict[Tensor, Node] = {}
        self._seen: set[tuple[Tensor, _Label]] = set()

    def add_update(self, update: Node) -> None:
        fact = ops.WRITES[update.op]
        variable = variable_of(update.inputs[fact.variables[0]])
        if variable is None:
            raise ConversionError("the variable that this update writes cannot be told", node=update)
        shape = variable.attr("shape")
        self.processing[update] = None
        if fact.rows is None:
            self._start(update, update.inputs[fact.value], _Label("dense", shape), variable)
            return
        if len({update.inputs[place].node in self.varying for place in (fact.value, fact.rows)}) > 1:
            raise ConversionError(
                f"'{variable.name}' is written row by row, and only the rows or their numbers differ between cores",
                node=update,
                origin=self.graph.source,
                fix="write the whole variable, for example by the sum of one-hot rows",
            )
        self._start(update, update.inputs[fact.value], _Label("rows", shape), variable)
        self._start(update, update.inputs[fact.rows], _Label("indices", None), variable)

    def _start(self, update: Node, tensor: Tensor, label: _Label, variable: Node) -> None:
        if tensor.node not in self.varying:
            return
        if tensor.node in self.forward and label.kind == "dense":
            raise self._not_a_gradient(update, tensor)
        self.targets[tensor] = update
        stack = [tensor]
        while stack:
            t = stack.pop()
            if (t, label) in self._seen:
                continue
            self._seen.add((t, label))
            deciding = self._deciding(t.node)
            if deciding:  # a constant of a branch: what decides the branch is no gradient, and may come from one
                self.processing[t.node] = None
                self.edges.update(((producer, t), None) for producer in deciding)
                stack.extend(deciding)
                continue
            if label.fits(t, direct=t is tensor) and (t.node not in self.forward or t is tensor):
                self.labels.setdefault(t, {})[label] = variable.name
            if self._stops(t, label):
                self.sources[t] = None
                continue
            self.processing[t.node] = None
            if any(not in_cluster(p.node) and p.node.op not in ops.VARIABLES for p in t.node.inputs):
                self.sources[t] = None  # it reads the host: what comes in varies
            for producer in t.node.inputs:
                if producer.node in self.varying:
                    self.edges[producer, t] = None
                    stack.append(producer)

    def _deciding(self, node: Node) -> list[Tensor]:
        """What decides whether a node runs at all, where nothing that it reads varies."""
        if node in self.forward or any(t.node in self.varying for t in node.inputs):
            return []
        return [control.out() for control in node.controls if control in self.varying and control.outputs]

    def _stops(self, tensor: Tensor, label: _Label) -> bool:
        """Whether backpropagation begins here."""
        node = tensor.node
        if node in self.forward or node.op in ops.BACKPROPAGATION:
            return True
        if not any(t.node in self.varying for t in node.inputs):
            return True  # it varies by itself: a random stream, a container
        if label.kind != "dense" and node.op in ("Reshape", "ConcatV2"):  # how backpropagation hands over IndexedSlices
            return label.fits(tensor, direct=False)
        if node.op == "UnsortedSegmentSum":
            return label.kind == "dense"
        if node.op == "GatherV2":
            return label.kind == "dense" and any(t.node in self.forward for t in node.inputs)
        if node.op in ops.MULTILINEAR - ops.ELEMENTWISE:  # a layer, not a scaling
            return any(reads_host(t) or (t.node in self.forward and t.node in self.varying) for t in node.inputs)
        return False

    def cut(self) -> list[RawGradient]:
        """Solve for the raw gradients."""
        if not self.targets:
            return []
        self._leave_out_processed()
        self._leave_out_ways_back()
        found = minimum_cut(self.edges, dict.fromkeys(self.labels, 1), self.sources, self.targets)
        if found is None:
            raise self._no_cut()
        gradients = []
        for tensor in found[1]:
            label, variable = next(iter(self.labels[tensor].items()))
            settled = _behind_identities(tensor, self.labels, label)
            readers = {use.node: None for use in settled.node.uses(settled.port)
                       if use.node in self.processing and use.node not in self.ways_back}  # fmt: skip
            why = f"the {label.kind} gradient of '{variable}', made by {tensor.node.op}"
            gradients.append(RawGradient(settled, label.kind, variable, why, readers))
        return gradients

    def _leave_out_processed(self) -> None:
        """What lies inside a loop, or behind an op that is not linear in gradients, is no raw gradient."""
        frame_of = frames(self.graph)
        for tensor in list(self.labels):
            if frame_of[tensor.node] and tensor.node.op not in ops.EXIT:
                del self.labels[tensor]
        self.processed = processed(self.edges, self.sources, self.labels)
        for tensor in self.processed:
            self.labels.pop(tensor, None)

    def _leave_out_ways_back(self) -> None:
        """What leads back to where another gradient begins is backpropagation, even where it looks like a gradient."""
        before = [t.node for source in self.sources for t in source.node.inputs]
        self.ways_back = {n: None for n in self.graph.ancestors(before, data_only=True) if n in self.processing}
        for tensor in [t for edge in self.edges for t in edge if t.node in self.ways_back]:
            if tensor not in self.sources and tensor not in self.targets:
                self.labels.pop(tensor, None)
            self.sources[tensor] = None

    def _no_cut(self) -> ConversionError:
        """Why no set of raw gradients separates backpropagation from the updates."""
        for target, update in self.targets.items():
            if minimum_cut(self.edges, dict.fromkeys(self.labels, 1), self.sources, [target]) is None:
                cause = self.processed.get(target)
                return self._not_a_gradient(update, target) if cause is None else self._mixed(update, cause)
        target, update = next(iter(self.targets.items()))
        return self._not_a_gradient(update, target)

    def _not_a_gradient(self, update: Node, tensor: Tensor) -> ConversionError:
        return ConversionError(
            f"the gradient of '{_written(update)}' cannot be told from '{tensor}', which '{update.name}' writes",
            node=tensor.node,
            origin=f"{self.graph.source}, update '{update.name}'",
            fix="name the right train op with --train_op",
        )

    def _mixed(self, update: Node, cause: Node) -> ConversionError:
        if cause.op in ops.SWITCH:
            return ConversionError(
                f"whether '{_written(update)}' is updated depends on the batch of each core",
                node=cause,
                origin=f"{self.graph.source}, update '{update.name}'",
                fix="make the condition of the step counter, of variables or of the gradient itself",
            )
        return ConversionError(
            f"the gradient of '{_written(update)}' is processed by '{cause.name}' ({cause.op}) together with other values "
            "of the batch, so it cannot be reduced over the cores before",
            node=cause,
            origin=f"{self.graph.source}, update '{update.name}'",
            fix="process the gradient by itself, variables and the step counter only",
        )


def _written(update: Node) -> str:
    variable = variable_of(update.inputs[ops.WRITES[update.op].variables[0]])
    return variable.name if variable else update.name


def _behind_identities(tensor: Tensor, labels: dict[Tensor, dict[_Label, str]], label: _Label) -> Tensor:
    """Follow identities that nothing branches off from, so that the update itself reads the sum."""
    while True:
        uses = tensor.node.uses(tensor.port)
        if len(uses) != 1 or uses[0].node.op not in ("Identity", "Snapshot", "StopGradient") or uses[0].index:
            return tensor
        behind = uses[0].node.out()
        if label not in labels.get(behind, {}):
            return tensor
        tensor = behind
