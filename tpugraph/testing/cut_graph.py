"""Training graphs of a part of a step, which ``reduce`` tries: recorded values stand in for the rest of the plain graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from networkx.utils import UnionFind

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, shapes
from tpugraph.compiler import ConvertOptions, find_roles
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import NONE, side, sides
from tpugraph.ir.loops import frame_chain, frames_around
from tpugraph.ir.walks import reached, variable_of
from tpugraph.spmd.analysis import commonest
from tpugraph.support.errors import TpuGraphError
from tpugraph.testing.plain_run import PlainRun, Values, checkpoint_values, fix_seeds

Unit = tuple[Node, ...]
"""Nodes that are kept or cut together, in topological order."""

Bypasses = Mapping[Node, Tensor]
"""What is read instead of the output of a node that is cut."""

_SCOPE, _FLOAT = "recorded", attrs.dtype("float32")


def is_handle(tensor: Tensor) -> bool:
    """Whether a tensor is a reference, a resource or a variant, which cannot be recorded."""
    return tensor.dtype.ref or tensor.dtype.name in ("resource", "variant")


def _is_number(tensor: Tensor) -> bool:
    return tensor.dtype.name in attrs.SIZE_OF


# --------------------------------------------------------------------------- units


def units_of(graph: Graph, nodes: NodeSet) -> list[Unit]:
    """The units that the nodes of a step fall into, in topological order.

    Together stay: a loop with the loops inside of it; what stands between the Switches of a predicate and their Merges, forward
    and backward; whoever hands on a handle (a stack, a list, an iterator) with who reads it. Variables are units of their own.
    """
    order = graph.topological_order(nodes)
    joined: UnionFind[object] = UnionFind(order)
    for one, other in _together(graph, order, nodes):
        joined.union(one, other)
    found: dict[object, list[Node]] = {}
    for node in order:
        found.setdefault(joined[node], []).append(node)
    return [tuple(unit) for unit in found.values()]


def _together(graph: Graph, order: Iterable[Node], nodes: NodeSet) -> Iterator[tuple[object, object]]:
    frame_of, around, on = analysis.frames(graph), frames_around(graph), sides(graph)
    for node in order:
        if frame_of[node]:
            yield node, ("loop", frame_chain(around, frame_of[node])[-2])
        decided = on.get(node, NONE).union(*(on.get(t.node, NONE) | side(t) for t in node.inputs), side(node.out()))
        yield from ((node, ("if", predicate)) for predicate, _ in decided)
        for tensor in node.inputs:
            if tensor.node in nodes and tensor.node.op not in ops.VARIABLES and is_handle(tensor):
                yield tensor.node, node


# --------------------------------------------------------------------------- the graph that is cut


class Subject:
    """The plain graph that is reduced, with values of its tensors at its first batches; no variable is trained.

    Args:
        graph: the plain graph; edited in place.
        options: of its conversion.
        batches: how many batches.
        checkpoint: where training starts; the graph's own first values when None.

    Attributes:
        units: the units of its step.
        notes: why values are made up from the shapes, as where files are not here.
    """

    def __init__(self, graph: Graph, options: ConvertOptions, batches: int, checkpoint: str | None) -> None:
        fix_seeds(graph)
        shapes.infer(graph)
        self.graph, self.options, self.batches, self.notes = graph, options, batches, list[str]()
        self.roles = find_roles(graph, options)
        self.units = units_of(graph, graph.ancestors(graph[name] for name in self.roles.roots))
        inputs = [graph[finding.name] for finding in self.roles.inputs]
        self.rows = commonest(shape[0] for node in inputs for _, shape in node.outputs or () if shape)
        self.varying = graph.descendants([*inputs, *graph.of_type(*ops.RANDOM)], data_only=True)
        self.fills = [graph[name] for name in (*self.roles.table_initializers, *self.roles.iterator_initializers)]
        self.variables: Values = {}
        self._values: dict[Tensor, list[Any]] = {}
        self._plain: PlainRun | None = None
        try:
            self._open({} if checkpoint is None else checkpoint_values(self.roles, checkpoint))
        except TpuGraphError as error:
            self.notes.append(f"values are made up, since the graph cannot run here: {error.fault}")
            self.close()

    def _open(self, start: Values) -> None:
        self._plain = PlainRun(self.graph, loss=self.options.loss, train_op=self.options.train_op)
        self._plain.open(start)
        self.variables = self._plain.values(list(self._plain.roles.variables))  # what is computed later may write them
        takes = [self.graph[finding.name] for finding in self._plain.roles.inputs]
        made = [node.out(port) for node in takes for port in range(len(node.outputs or ()))]
        self._inputs = [tensor for tensor in made if not is_handle(tensor)]
        if not self._inputs or any(node.op in ops.PLACEHOLDERS for node in takes):
            raise TpuGraphError("the graph is fed from outside")
        found = self._plain.batches([str(tensor) for tensor in self._inputs], self.batches)
        if not found:
            raise TpuGraphError("the data hold no batch")
        self.batches = len(found)
        self._values = {t: [batch[i] for batch in found] for i, t in enumerate(self._inputs)}

    def close(self) -> None:
        """Release the session."""
        if self._plain is not None:
            self._plain.close()
            self._plain = None

    def values(self, tensors: Iterable[Tensor]) -> Mapping[Tensor, list[Any]]:
        """The values of some tensors, of each one for each batch."""
        self._compute([tensor for tensor in dict.fromkeys(tensors) if tensor not in self._values])
        return self._values

    def _compute(self, wanted: list[Tensor]) -> None:
        if self._plain is None or not wanted:
            self._values |= {tensor: [_made_up(tensor)] * self.batches for tensor in wanted}
            return
        try:
            feeds = ({str(t): self._values[t][number] for t in self._inputs} for number in range(self.batches))
            rows = [self._plain.compute([str(tensor) for tensor in wanted], feed) for feed in feeds]
            self._values |= {tensor: [np.asarray(row[i]) for row in rows] for i, tensor in enumerate(wanted)}
        except TpuGraphError:  # one of them fails by itself: the others are asked for alone
            half = len(wanted) // 2
            for part in (wanted[:half], wanted[half:]) if half else ():
                self._compute(part)
            if not half:
                self._values[wanted[0]] = [_made_up(wanted[0])] * self.batches

    def cut(self, units: Sequence[int], bypasses: Bypasses) -> tuple[Graph, dict[str, Any]]:
        """A training graph of some units, and the options of its conversion that name nodes.

        Other values that the nodes read are recorded; the loss depends on all that they compute.
        """
        cut = _Cut(self, [node for number in units for node in self.units[number]], bypasses)
        lists = {key: tuple(n for n in getattr(self.options, key) if n.partition("=")[0] in cut.graph)
                 for key in ("batch_constants", "literals")}  # fmt: skip
        return cut.graph, {
            "loss": cut.loss,
            "train_op": ",".join(cut.train_ops),
            "dump_dir": None,
            "dump_after": (),
            **lists,
        }


def _made_up(tensor: Tensor) -> Any:
    """Some value of a tensor's dtype and shape; an open dimension has one element."""
    shape = [1 if dim is None else dim for dim in tensor.shape or ()]
    if tensor.dtype.name == "string":
        return np.full(shape, b"text", object)
    count = np.arange(int(np.prod(shape))).reshape(shape)
    return (np.cos(count) if tensor.dtype.floating else count % 2).astype(tensor.dtype.name)


# --------------------------------------------------------------------------- cut graphs


class _Cut:
    def __init__(self, subject: Subject, kept: Sequence[Node], bypasses: Bypasses) -> None:
        self.subject, self.kept, self.bypasses = subject, kept, bypasses
        self.graph = Graph()
        self.graph.library, self.graph.versions = subject.graph.library, subject.graph.versions
        self.graph.source = _SCOPE
        self.build = Builder(self.graph, scope=_SCOPE)
        self.constants: dict[object, Tensor] = {}
        nodes = reached(kept, self._behind_handles)
        self.new: dict[Node, Node] = {}
        for node in nodes:
            own = {key: value for key, value in node.raw_attrs.items() if key != "_class"}  # no colocation
            self.new[node] = self.graph.add(node.op, node.name, attrs=own, device=node.device, outputs=node.outputs)
        recorded = self._record(dict.fromkeys(t for node in nodes for t in self._reads(node) if t.node not in nodes))
        for node in nodes:
            inputs = [recorded.get(t) or Tensor(self.new[t.node], t.port) for t in self._reads(node)]
            self.graph.set_inputs(self.new[node], inputs)
            self.graph.set_controls(self.new[node], [self.new[c] for c in node.controls if c in nodes])
        for node in nodes:
            if node.op in ops.VARIABLES:
                self._first_value(node)
        self.loss, self.train_ops = self._ends()

    def _reads(self, node: Node) -> list[Tensor]:
        """What a node reads, round the nodes that are bypassed."""
        found = list(node.inputs)
        for index, tensor in enumerate(found):
            while tensor.node in self.bypasses:
                found[index] = tensor = self.bypasses[tensor.node]
        return found

    def _behind_handles(self, node: Node) -> list[Node]:
        """The nodes behind the handles that a node reads, with what fills an iterator or a table."""
        if node.op in ops.VARIABLES:
            return []
        if node in self.subject.fills or ops.is_dataset(node.op):
            return node.producers()
        fills = [f for f in self.subject.fills if node in (f.inputs[-1].node, f.inputs[0].node)]
        return [*(t.node for t in node.inputs if is_handle(t)), *fills]

    def _record(self, wanted: Mapping[Tensor, None]) -> dict[Tensor, Tensor]:
        """Recorded values instead of tensors: rows of the batch come from an input, the rest is constant."""
        values, varying = self.subject.values(wanted), [t for t in wanted if t.node in self.subject.varying]
        rows = [t for t in varying if t.dtype.size is not None and t.shape and t.shape[0] in (self.subject.rows, None)]
        fed = rows or list(filter(_is_number, varying))[:1] or [t for t in wanted if t.dtype.floating][:1]
        batches = [_stacked(values[tensor]) for tensor in fed] or [np.zeros((1, 1), np.float32)]
        kinds, shapes = [attrs.dtype(b.dtype.name) for b in batches], [tensor.shape for tensor in fed] or [(1,)]
        typed: dict[str, Any] = {"output_types": kinds, "output_shapes": shapes}
        sources = [self._constant("batches", batch) for batch in batches]
        dataset = self.build.add(
            "TensorSliceDataset", sources, (), name="dataset", output_shapes=shapes, Toutput_types=kinds
        )
        iterator = self.build.add("IteratorV2", [], (), name="iterator", shared_name="", container="", **typed)
        self.build.node("MakeIterator", [dataset, iterator], name="make_iterator")
        self.next = self.build.node("IteratorGetNext", [iterator], name="next", shapes=shapes, **typed)
        found = {tensor: self.next.out(port) for port, tensor in enumerate(fed)}
        return found | {t: self._constant(t.node.name, values[t][0]) for t in wanted if t not in found}

    def _first_value(self, variable: Node) -> None:
        """The initialiser of a kept variable, with its recorded value."""
        kind, shape = variable.attr("dtype"), variable.attr("shape") or ()
        value = self.subject.variables.get(variable.name, np.zeros([dim or 1 for dim in shape], kind.name))
        op, typed = ("AssignVariableOp", "dtype") if variable.op in ops.RESOURCE_VARIABLES else ("Assign", "T")
        self.build.node(
            op, [self.new[variable].out(), self._constant(variable.name, value)], name="assign", **{typed: kind}
        )

    # ------------------------------------------------------------------ the loss

    def _ends(self) -> tuple[str, list[str]]:
        """The loss and the train ops: those of the graph where all that is kept leads to them, else made here."""
        loss = self.subject.graph.tensor(self.subject.roles.loss.name)
        writes = [node for node in self.kept if node.op in ops.WRITES]
        trained = [variable for node in writes for variable in self._trained_by(node)]
        made, waits = self._unread()
        names = [node.name for node in writes]
        behind_loss = reached([loss.node] if loss.node in self.new else [],
                              lambda node: [t.node for t in self._reads(node) if t.node in self.new])  # fmt: skip
        if not waits and {t.node for t in made} <= {self.new.get(loss.node)} and behind_loss.keys() & trained:
            return str(Tensor(self.new[loss.node], loss.port)), names
        if trained and not made and not waits:
            return self._trained_loss(trained[0]), names
        name, update = self._weighed_loss(made, waits)
        return name, [*names, update]

    def _trained_by(self, update: Node) -> list[Node]:
        """The variable of floats that a kept optimizer op trains."""
        fact = ops.WRITES[update.op]
        variable = variable_of(update.inputs[fact.variables[0]]) if fact.kind == "apply" else None
        return [variable] if variable in self.new and variable.attr("dtype") == _FLOAT else []

    def _unread(self) -> tuple[list[Tensor], list[Node]]:
        """An output of each kept node that nothing kept reads, and the nodes that have none."""
        read = {other for node in self.kept for other in (*(t.node for t in self._reads(node)), *node.controls)}
        made, waits = [], []
        for node in self.kept:
            if node not in read and node.op not in ops.WRITES:
                outputs = [node.out(port) for port in node.used_ports() or [0] if port < len(node.outputs or ())]
                numbers = [tensor for tensor in outputs if _is_number(tensor) and not is_handle(tensor)]
                chosen = min(numbers, key=lambda tensor: not tensor.dtype.floating, default=None)
                made += [] if chosen is None else [Tensor(self.new[node], chosen.port)]
                waits += [self.new[node]] if chosen is None else []
        return made, waits

    def _trained_loss(self, variable: Node) -> str:
        """A loss made of the fed value and of a kept variable that an optimizer trains."""
        value, fed, shape = self.new[variable].out(), self.next.out(), variable.attr("shape")
        if variable.op in ops.RESOURCE_VARIABLES:
            value = self.build.add("ReadVariableOp", [value], shape, name="read", dtype=_FLOAT)
        if fed.dtype == _FLOAT and fed.shape == shape:  # a gradient, say: one node less
            return self._half_square(self.build.add("Mul", [fed, value], shape, name="product", T=_FLOAT)).node.name
        return self.build.node("Mul", [self._half_square(value), self._half_square(fed)], name="loss", T=_FLOAT).name

    def _half_square(self, tensor: Tensor) -> Tensor:
        if tensor.dtype.name != "float32":
            tensor = self.build.cast(tensor, _FLOAT, name="float")
        return self.build.add("L2Loss", [tensor], (), name="half_square", T=_FLOAT)

    def _weighed_loss(self, made: Sequence[Tensor], waits: Iterable[Node]) -> tuple[str, str]:
        """A loss, the half square of some tensors times a weight, and the weight's update by gradient descent."""
        parts = [self._half_square(tensor) for tensor in made or [self.next.out()]]
        size = parts[0] if len(parts) == 1 else self.build.add("AddN", parts, (), name="sum")
        weight = self.build.node(
            "VariableV2", name="weight", dtype=_FLOAT, shape=(), shared_name="", container=""
        ).out()
        one = self._constant("one", np.float32(1))
        self.build.node("Assign", [weight, one], name="assign", T=_FLOAT)
        loss = self.build.node("Mul", [weight, size], name="loss", shapes=((),), controls=waits)
        return loss.name, self.build.node("ApplyGradientDescent", [weight, one, size], name="update", T=_FLOAT).name

    def _constant(self, near: str, value: Any) -> Tensor:
        """A constant; one for all that is equal."""
        array = np.asarray(value)
        alike = array.dtype.str, array.shape, array.tobytes() if array.dtype != object else repr(array.tolist())
        if alike not in self.constants:
            kind = attrs.dtype("string" if array.dtype.kind in "OSU" else array.dtype.name)
            self.constants[alike] = self.build.add("Const", [], array.shape, name=near, dtype=kind, value=array)
        return self.constants[alike]


def _stacked(values: Sequence[Any]) -> Any:
    """The values of all batches in one array; the first for all where their shapes differ."""
    alike = {np.shape(value) for value in values}
    return np.stack(values if len(alike) == 1 else [values[0]] * len(values))
