"""Cut graphs: training graphs of a part of a step, with values recorded from the plain graph in place of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from networkx.utils import UnionFind

from tpugraph import analysis, ops
from tpugraph.analysis import NodeSet, shapes
from tpugraph.analysis.batched_input import commonest
from tpugraph.compiler import ConvertOptions, find_roles
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.conditionals import NONE, side, sides
from tpugraph.ir.loops import frame_chain, frames_around
from tpugraph.ir.walks import variable_of
from tpugraph.support.errors import TpuGraphError
from tpugraph.testing.plain_run import PlainRun, Values, checkpoint_values
from tpugraph.testing.repeatable import repeatable

_SCOPE, _FLOAT = "recorded", attrs.dtype("float32")

Unit = tuple[Node, ...]
"""Nodes that are kept or cut together, in topological order."""


def units_of(graph: Graph, nodes: NodeSet) -> list[Unit]:
    """Partition the nodes of a step, and those that fill its iterators and tables, into units, in topological order.

    A unit is a loop with its inner loops; the nodes between the Switches of a predicate and their Merges, forward and backward; or
    the producer and the readers of a handle (a stack, dataset or table). Variables are units of their own.
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
            if tensor.node in nodes and tensor.node.op not in ops.VARIABLES and tensor.dtype.is_handle:
                yield tensor.node, node


class Subject:
    """A copy of the plain graph with the values of its tensors for the first batches; no variable is trained.

    ``notes`` say why values are made up from shapes, for example where files are missing.
    """

    def __init__(self, graph: Graph, options: ConvertOptions, batches: int, checkpoint: str | None) -> None:
        graph = repeatable(graph, [])
        shapes.infer(graph)
        self.graph, self.options, self.batches, self.notes = graph, options, batches, list[str]()
        roles = find_roles(graph, options)
        self.fills = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
        self.units = units_of(graph, graph.ancestors([*self.fills, *(graph[name] for name in roles.roots)]))
        takes = [graph[finding.name] for finding in roles.inputs]
        self.rows = commonest(shape[0] for node in takes for _, shape in node.outputs or () if shape)
        self.varying = graph.descendants([*takes, *graph.of_type(*ops.RANDOM)], data_only=True)
        self.variables: Values = {}
        self._values: dict[Tensor, list[Any]] = {}
        self._plain: PlainRun | None = None
        made = [node.out(port) for node in takes for port in range(len(node.outputs or ()))]
        self._inputs = [tensor for tensor in made if not tensor.dtype.is_handle]
        try:
            if not self._inputs or any(node.op in ops.PLACEHOLDERS for node in takes):
                raise TpuGraphError("the graph is fed from outside")
            self._plain = plain = PlainRun(graph, loss=options.loss, train_op=options.train_op)
            plain.open({} if checkpoint is None else checkpoint_values(roles, checkpoint))
            self.variables = plain.values(list(plain.roles.variables))  # later computations may write them
            found = plain.batches([str(tensor) for tensor in self._inputs], batches)
            if not found:
                raise TpuGraphError("the data hold no batch")
            self.batches = len(found)
            self._values = {tensor: [batch[i] for batch in found] for i, tensor in enumerate(self._inputs)}
        except TpuGraphError as error:
            self.notes.append(f"values are made up, since the graph cannot run here: {error.fault}")
            self.close()

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()
            self._plain = None

    def values(self, tensors: Iterable[Tensor]) -> Mapping[Tensor, list[Any]]:
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
        except TpuGraphError:  # one of them fails: the others are computed one by one
            half = len(wanted) // 2
            for part in (wanted[:half], wanted[half:]) if half else ():
                self._compute(part)
            if not half:
                self._values[wanted[0]] = [_made_up(wanted[0])] * self.batches

    def cut(self, units: Iterable[Unit]) -> tuple[Graph, dict[str, Any]]:
        """A training graph of some units, and the conversion options that name its nodes."""
        kept = [node for unit in units for node in unit]
        read = [t.node for node in kept for t in node.inputs if t.node.op in ops.VARIABLES]
        cut = _Cut(self, list(dict.fromkeys([*read, *kept])))
        loss, train_ops = cut.ends()
        lists = {key: tuple(n for n in getattr(self.options, key) if n.partition("=")[0] in cut.graph)
                 for key in ("batch_constants", "literals")}  # fmt: skip
        return cut.graph, {"loss": loss, "train_op": ",".join(train_ops), "dump_dir": None, "dump_after": (), **lists}


def _made_up(tensor: Tensor) -> Any:
    """An arbitrary value of a tensor's dtype and shape; unknown dimensions are 1."""
    shape = [1 if dim is None else dim for dim in tensor.shape or ()]
    if tensor.dtype.name == "string":
        return np.full(shape, b"text", object)
    count = np.arange(int(np.prod(shape))).reshape(shape)
    return (np.cos(count) if tensor.dtype.floating else count % 2).astype(tensor.dtype.name)


class _Cut:
    """A graph of the kept nodes: their other operands are recorded, and a loss depends on all of their results.

    Fed values are multiplied by a weight of 1: ops that depend on no variable would be placed on the host.
    """

    def __init__(self, subject: Subject, kept: Sequence[Node]) -> None:
        self.subject, self.kept = subject, kept
        self.graph = Graph()
        self.graph.library, self.graph.versions = subject.graph.library, subject.graph.versions
        self.graph.source = _SCOPE
        self.build = Builder(self.graph, scope=_SCOPE)
        self.constants: dict[object, Tensor] = {}
        self.new: dict[Node, Node] = {}
        for node in kept:
            own = {key: value for key, value in node.raw_attrs.items() if key != "_class"}  # no colocation
            self.new[node] = self.graph.add(node.op, node.name, attrs=own, device=node.device, outputs=node.outputs)
        recorded = self._record(dict.fromkeys(t for node in kept for t in node.inputs if t.node not in self.new))
        for node in kept:
            inputs = [recorded.get(t) or Tensor(self.new[t.node], t.port) for t in node.inputs]
            self.graph.set_inputs(self.new[node], inputs)
            self.graph.set_controls(self.new[node], [self.new[c] for c in node.controls if c in self.new])
        variables = [node for node in kept if node.op in ops.VARIABLES]
        for variable in variables:
            kind, shape = variable.attr("dtype"), variable.attr("shape") or ()
            value = subject.variables.get(variable.name, np.zeros([dim or 1 for dim in shape], kind.name))
            self._assign(self.new[variable].out(), self._constant(variable.name, value))
        self.weight: Tensor | None = None
        self._weigh(self.graph.descendants([self.new[variable] for variable in variables], data_only=True))

    def _record(self, wanted: Mapping[Tensor, None]) -> dict[Tensor, Tensor]:
        """Replace tensors by recorded values: rows of the batch from an input, all else as constants."""
        values, varying = self.subject.values(wanted), [t for t in wanted if t.node in self.subject.varying]
        rows = [t for t in varying if t.dtype.size is not None and np.shape(values[t][0])[:1] == (self.subject.rows,)]
        fed = rows or [t for t in varying if t.dtype.size][:1] or [t for t in wanted if t.dtype.floating][:1]
        batches = [_stacked(values[tensor]) for tensor in fed] or [np.zeros((1, 1), np.float32)]
        kinds, forms = [attrs.dtype(batch.dtype.name) for batch in batches], [batch.shape[1:] for batch in batches]
        typed: dict[str, Any] = {"output_types": kinds, "output_shapes": forms}
        sources, add = [self._constant("batches", batch) for batch in batches], self.build.add
        dataset = add("TensorSliceDataset", sources, (), name="dataset", output_shapes=forms, Toutput_types=kinds)
        iterator = add("IteratorV2", [], (), name="iterator", shared_name="", container="", **typed)
        self.build.node("MakeIterator", [dataset, iterator], name="make_iterator")
        self.next = self.build.node("IteratorGetNext", [iterator], name="next", shapes=forms, **typed)
        found = {tensor: self.next.out(port) for port, tensor in enumerate(fed)}
        return found | {t: self._constant(t.node.name, values[t][0]) for t in wanted if t not in found}

    def _weigh(self, of_variables: NodeSet) -> None:
        """Multiply fed values by the weight where their readers depend on no other variable."""
        for port, (kind, shape) in enumerate(self.next.outputs or ()):
            loose = [use for use in self.next.uses(port) if use.node not in of_variables]
            if loose and kind.floating:
                weight = self._weight() if kind == _FLOAT else self.build.cast(self._weight(), kind)
                weighted = self.build.add("Mul", [self.next.out(port), weight], shape, name="weighted")
                for use in loose:
                    self.graph.set_input(use.node, use.index, weighted)

    def ends(self) -> tuple[str, list[str]]:
        """The loss and the train ops: half the squared sum of all results, times the weight, which stays 1.

        Where only an optimizer op is kept, the loss is the product of its variable and the fed value.
        """
        names = [node.name for node in self.kept if node.op in ops.WRITES]
        made, waits = self._unread()
        fed = self.next.out()
        trained = None if made or waits else self._trained(fed)
        if trained is not None:
            return self._half_square(self.build.add("Mul", [fed, trained], fed.shape, name="product")).node.name, names
        parts = [self._half_square(tensor) for tensor in made or [fed]]
        size = parts[0] if len(parts) == 1 else self.build.add("AddN", parts, (), name="sum")
        loss = self.build.node("Mul", [self._weight(), size], name="loss", shapes=((),), controls=waits)
        rate = self._constant("rate", np.float32(0))
        update = self.build.node("ApplyGradientDescent", [self._weight(), rate, size], name="update")
        return loss.name, [*names, update.name]

    def _weight(self) -> Tensor:
        if self.weight is None:
            own: dict[str, Any] = {"dtype": _FLOAT, "shape": (), "shared_name": "", "container": ""}
            self.weight = self.build.node("VariableV2", name="weight", **own).out()
            self._assign(self.weight, self._constant("one", np.float32(1)))
        return self.weight

    def _assign(self, variable: Tensor, value: Tensor) -> None:
        op = "AssignVariableOp" if variable.node.op in ops.RESOURCE_VARIABLES else "Assign"
        self.build.node(op, [variable, value], name="assign")

    def _trained(self, like: Tensor) -> Tensor | None:
        """The value of a variable that a kept optimizer op trains, with the dtype and shape of a tensor."""
        applies = [node for node in self.kept if node.op in ops.WRITES and ops.WRITES[node.op].kind == "apply"]
        for variable in (variable_of(node.inputs[ops.WRITES[node.op].variables[0]]) for node in applies):
            if variable in self.new and (variable.attr("dtype"), variable.attr("shape")) == (like.dtype, like.shape):
                value = self.new[variable].out()
                resource = variable.op in ops.RESOURCE_VARIABLES
                return self.build.add("ReadVariableOp", [value], like.shape, dtype=like.dtype) if resource else value
        return None

    def _unread(self) -> tuple[list[Tensor], list[Node]]:
        """An output of each kept node without kept readers, and the nodes without outputs."""
        read = {other for node in self.kept for other in (*node.producers(), *node.controls)}
        made, waits = [], []
        for node in self.kept:
            if node not in read and node.op not in ops.WRITES and node not in self.subject.fills:
                outputs = [node.out(port) for port in node.used_ports() or [0] if port < len(node.outputs or ())]
                numbers = [tensor for tensor in outputs if tensor.dtype.size and not tensor.dtype.is_handle]
                chosen = min(numbers, key=lambda tensor: not tensor.dtype.floating, default=None)
                made += [] if chosen is None else [Tensor(self.new[node], chosen.port)]
                waits += [self.new[node]] if chosen is None else []
        return made, waits

    def _half_square(self, tensor: Tensor) -> Tensor:
        value = tensor if tensor.dtype == _FLOAT else self.build.cast(tensor, _FLOAT, name="float")
        return self.build.add("L2Loss", [value], (), name="half_square")

    def _constant(self, near: str, value: Any) -> Tensor:
        """A constant, shared by equal values."""
        array = np.asarray(value)
        text = array.dtype.kind in "OSU"
        alike = array.dtype.name, array.shape, repr(array.tolist()) if text else array.tobytes()
        if alike not in self.constants:
            self.constants[alike] = self.build.constant(array, attrs.dtype("string") if text else None, name=near)
        return self.constants[alike]


def _stacked(values: Sequence[Any]) -> Any:
    """The values of all batches in one array; where their shapes differ, the first value repeated."""
    alike = {np.shape(value) for value in values}
    return np.stack(values if len(alike) == 1 else [values[0]] * len(values))
