"""Candidates of a reduction: training graphs of some units of a step, with recorded values where the rest was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.walks import variable_of
from tpugraph.roles.findings import Roles
from tpugraph.spmd.analysis import commonest
from tpugraph.testing.reduction.recorded_values import RecordedValues
from tpugraph.testing.reduction.units import Unit, is_handle

SCOPE = "recorded"
_FLOAT = attrs.dtype("float32")
_Wiring = tuple[Node, tuple[Tensor, ...], tuple[Node, ...]]


@dataclass(frozen=True)
class Candidate:
    """A graph to try.

    Attributes:
        graph: a plain training graph of its own.
        loss: the name of its loss.
        train_op: the names of its train ops, with commas between.
    """

    graph: Graph
    loss: str
    train_op: str


class Subject:
    """The graph that is reduced, and what candidates are made of.

    Args:
        graph: the plain graph, with shapes.
        roles: its roles.
        recorded: values of its tensors.
    """

    def __init__(self, graph: Graph, roles: Roles, recorded: RecordedValues) -> None:
        self.graph = graph
        self.roles = roles
        self.recorded = recorded
        inputs = [graph[finding.name] for finding in roles.inputs]
        self.rows = commonest(shape[0] for node in inputs for _, shape in node.outputs or () if shape)
        random = [node for node in graph if node.op in ops.RANDOM]
        self.varying = graph.descendants([*inputs, *random], data_only=True)

    def candidate(self, units: Iterable[Unit], bypasses: Mapping[Node, Tensor]) -> Candidate:
        """A training graph that holds some units. What else they read is recorded, and what they make leads to the loss.

        Args:
            units: the units.
            bypasses: by nodes of one output that are in none of them, what is read instead of it.
        """
        return _Making(self, [node for unit in units for node in unit], bypasses).make()


@dataclass
class _Making:
    """One candidate being made: new nodes for old ones, all put into the new graph in the end."""

    subject: Subject
    kept: Sequence[Node]
    bypasses: Mapping[Node, Tensor]
    new: dict[Node, Node] = field(default_factory=dict)
    wired: list[_Wiring] = field(default_factory=list)
    cut: dict[Tensor, Tensor] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    constants: dict[object, Tensor] = field(default_factory=dict)
    suffixes: Counter[str] = field(default_factory=Counter)

    def make(self) -> Candidate:
        nodes = dict.fromkeys([*self.kept, *self._behind_handles(self.kept)])
        self.new = {node: _copy(node) for node in nodes}
        self.names = {node.name for node in nodes}
        self._record([t for node in nodes for t in self._read(node) if t.node not in nodes])
        for node in nodes:
            inputs = tuple(self.cut[t] if t in self.cut else Tensor(self.new[t.node], t.port) for t in self._read(node))
            controls = tuple(self.new[control] for control in node.controls if control in nodes)
            self.wired.append((self.new[node], inputs, controls))
        for node in nodes:
            if node.op in ops.VARIABLES:
                self._first_value(node)
        loss, train_ops = self._ends()
        graph = Graph()
        graph.library, graph.versions, graph.source = self.subject.graph.library, self.subject.graph.versions, SCOPE
        graph.adopt(self.wired)
        return Candidate(graph, loss, ",".join(train_ops))

    # ------------------------------------------------------------------ what the kept nodes read

    def _read(self, node: Node) -> list[Tensor]:
        """What a node reads, round the nodes that are bypassed."""
        found = list(node.inputs)
        for index, tensor in enumerate(found):
            while tensor.node in self.bypasses:
                found[index] = tensor = self.bypasses[tensor.node]
        return found

    def _behind_handles(self, nodes: Iterable[Node]) -> list[Node]:
        """The nodes behind the handles that some nodes read, with what fills an iterator or a table."""
        graph, found = self.subject.graph, dict.fromkeys(nodes)
        pending = list(found)
        roles = self.subject.roles
        fills = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
        for node in pending:  # grows while it is walked
            if node.op in ops.VARIABLES:
                continue
            whole = [*(t.node for t in node.inputs if is_handle(t)), *(f for f in fills if f.inputs[-1].node is node),
                     *(f for f in fills if f.inputs[0].node is node)]  # fmt: skip
            if node in fills or ops.is_dataset(node.op):
                whole += [t.node for t in node.inputs]
            new = [other for other in dict.fromkeys(whole) if other not in found]
            found |= dict.fromkeys(new)
            pending += new
        return pending

    def _record(self, tensors: Iterable[Tensor]) -> None:
        """Recorded values instead of tensors: rows of the batch come from an input, the rest is constant."""
        wanted = list(dict.fromkeys(tensors))
        values = self.subject.recorded.of(wanted)
        batched = [tensor for tensor in wanted if self._is_batch(tensor)]
        varying = [t for t in wanted if t.node in self.subject.varying and t.dtype.name in attrs.SIZE_OF]
        fed = dict.fromkeys(batched or varying[:1] or [t for t in wanted if t.dtype.floating][:1])
        for tensor in wanted:
            if tensor not in fed:
                self.cut[tensor] = self._constant(tensor.node.name, values[tensor][0])
        self._input({tensor: values[tensor] for tensor in fed})

    def _is_batch(self, tensor: Tensor) -> bool:
        shape = tensor.shape
        if tensor.node not in self.subject.varying or not shape or tensor.dtype.size is None:
            return False
        return shape[0] in (self.subject.rows, None)

    def _input(self, fed: Mapping[Tensor, Sequence[Any]]) -> None:
        """An input pipeline that gives the recorded batches, one element each."""
        batches = [_stacked(values) for values in fed.values()] or [np.zeros((1, 1), np.float32)]
        kinds = [attrs.dtype(batch.dtype.name) for batch in batches]
        shapes = [tensor.shape for tensor in fed] or [(1,)]
        sources = [self._constant(f"{SCOPE}/batches", batch) for batch in batches]
        typed = {"output_types": kinds, "output_shapes": shapes}
        handle, variant = attrs.dtype("resource"), attrs.dtype("variant")
        dataset = self._add("TensorSliceDataset", "dataset", sources, {"Toutput_types": kinds, "output_shapes": shapes},
                            [(variant, ())])  # fmt: skip
        named = {"shared_name": "", "container": ""}
        iterator = self._add("IteratorV2", "iterator", [], {**named, **typed}, [(handle, ())])
        self._add("MakeIterator", "make_iterator", [dataset.out(), iterator.out()], {}, [])
        taken = self._add("IteratorGetNext", "next", [iterator.out()], typed, list(zip(kinds, shapes, strict=True)))
        self.cut |= {tensor: taken.out(port) for port, tensor in enumerate(fed)}
        self.taken = taken

    def _first_value(self, variable: Node) -> None:
        """The initialiser of a kept variable, with its recorded value."""
        kind, shape = variable.attr("dtype"), variable.attr("shape") or ()
        found = self.subject.recorded.variable(variable.name)
        value = np.zeros([dim or 1 for dim in shape], kind.name) if found is None else found
        first, handle = self._constant(variable.name, value), self.new[variable].out()
        if variable.op in ops.RESOURCE_VARIABLES:
            self._add("AssignVariableOp", "assign", [handle, first], {"dtype": kind}, [])
        else:
            self._add("Assign", "assign", [handle, first], {"T": kind}, [(attrs.dtype(f"{kind.name}_ref"), shape)])

    # ------------------------------------------------------------------ what becomes of what they make

    def _ends(self) -> tuple[str, list[str]]:
        """The loss and the train ops: those of the graph where all that is kept leads to them, else ones that it is led to."""
        writes = [node for node in self.kept if node.op in ops.WRITES]
        trained = [variable for node in writes for variable in self._trained_by(node)]
        loss = self.subject.graph.tensor(self.subject.roles.loss.name)
        made, waits = self._made_in_vain()
        vain = {tensor.node for tensor in made} - {self.new.get(loss.node)}
        if not vain and not waits and self._reads_any(loss.node, trained):
            return str(Tensor(self.new[loss.node], loss.port)), [node.name for node in writes]
        if trained and not made and not waits:
            return self._trained_loss(trained[0]), [node.name for node in writes]
        name, update = self._weigh(self._size(made), waits)
        return name, [*(node.name for node in writes), update]

    def _reads_any(self, node: Node, variables: Sequence[Node]) -> bool:
        """Whether a kept node is computed from one of some variables."""
        seen = dict.fromkeys([node] if node in self.new else [])
        pending = list(seen)
        for at in pending:  # grows while it is walked
            new = [t.node for t in self._read(at) if t.node in self.new and t.node not in seen]
            seen |= dict.fromkeys(new)
            pending += dict.fromkeys(new)
        return any(variable in seen for variable in variables)

    def _trained_by(self, update: Node) -> list[Node]:
        """The variable of floats that a kept optimizer op trains."""
        fact = ops.WRITES[update.op]
        variable = variable_of(update.inputs[fact.variables[0]]) if fact.kind == "apply" else None
        return [variable] if variable in self.new and variable.attr("dtype") == _FLOAT else []

    def _trained_loss(self, variable: Node) -> str:
        """A loss of what is fed and of a variable that is trained anyway."""
        value = self.new[variable].out()
        if variable.op in ops.RESOURCE_VARIABLES:
            read = self._add("ReadVariableOp", "read", [value], {"dtype": _FLOAT}, [(_FLOAT, variable.attr("shape"))])
            value = read.out()
        fed = self.taken.out()
        if fed.dtype == _FLOAT and fed.shape == variable.attr("shape"):  # a gradient, say: one node less
            product = self._add("Mul", "product", [fed, value], {"T": _FLOAT}, [(_FLOAT, fed.shape)])
            return self._half_square(product.out()).node.name
        size, own = self._half_square(fed), self._half_square(value)
        return self._add("Mul", "loss", [own, size], {"T": _FLOAT}, [(_FLOAT, ())]).name

    def _made_in_vain(self) -> tuple[list[Tensor], list[Node]]:
        """An output of each kept node that nothing kept reads, and the nodes that have none."""
        read = {t.node for node in self.kept for t in self._read(node)} | {
            c for node in self.kept for c in node.controls
        }
        ends = [node for node in self.kept if node not in read and node.op not in ops.WRITES]
        made, waits = [], []
        for node in ends:
            made_by = [node.out(p) for p in node.used_ports() or [0] if p < len(node.outputs or ())]
            numbers = [tensor for tensor in made_by if tensor.dtype.name in attrs.SIZE_OF and not is_handle(tensor)]
            numbers.sort(key=lambda tensor: not tensor.dtype.floating)
            made += [Tensor(self.new[node], t.port) for t in numbers[:1]]
            if not numbers:
                waits.append(self.new[node])
        return made, waits

    def _size(self, made: Sequence[Tensor]) -> Tensor:
        """One number that depends on all of some tensors: the sum of their squares."""
        parts = [self._half_square(tensor) for tensor in made or [self.taken.out()]]
        if len(parts) == 1:
            return parts[0]
        return self._add("AddN", "sum", parts, {"N": len(parts), "T": _FLOAT}, [(_FLOAT, ())]).out()

    def _half_square(self, tensor: Tensor) -> Tensor:
        if tensor.dtype.name != "float32":
            kinds = {"SrcT": tensor.dtype, "DstT": _FLOAT}
            tensor = self._add("Cast", "float", [tensor], kinds, [(_FLOAT, tensor.shape)]).out()
        return self._add("L2Loss", "half_square", [tensor], {"T": _FLOAT}, [(_FLOAT, ())]).out()

    def _weigh(self, size: Tensor, waits: Iterable[Node]) -> tuple[str, str]:
        """A loss that is a number times a weight, and the update of the weight by its gradient, which is that number."""
        reference = attrs.dtype("float32_ref")
        named = {"shared_name": "", "container": ""}
        weight = self._add("VariableV2", "weight", [], {"dtype": _FLOAT, "shape": (), **named}, [(reference, ())]).out()
        one = self._constant("one", np.float32(1))
        self._add("Assign", "assign", [weight, one], {"T": _FLOAT}, [(reference, ())])
        loss = self._add("Mul", "loss", [weight, size], {"T": _FLOAT}, [(_FLOAT, ())], waits)
        update = self._add("ApplyGradientDescent", "update", [weight, one, size], {"T": _FLOAT}, [(reference, ())])
        return loss.name, update.name

    # ------------------------------------------------------------------ nodes

    def _constant(self, near: str, value: Any) -> Tensor:
        """A constant; one for all that is equal."""
        array = np.asarray(value)
        held = array.tobytes() if array.dtype != object else repr(array.tolist())
        alike = (array.dtype.str, array.shape, held)
        if alike not in self.constants:
            self.constants[alike] = self._new_constant(near, array)
        return self.constants[alike]

    def _new_constant(self, near: str, array: Any) -> Tensor:
        kind = attrs.dtype("string" if array.dtype.kind in "OSU" else array.dtype.name)
        node = self._add(
            "Const", near.removeprefix(f"{SCOPE}/"), [], {"dtype": kind, "value": array}, [(kind, array.shape)]
        )
        return node.out()

    def _add(self, op: str, name: str, inputs: Sequence[Tensor], attributes: Mapping[str, Any], outputs: list[Any],
             controls: Iterable[Node] = ()) -> Node:  # fmt: skip
        free = f"{SCOPE}/{name}"
        while free in self.names:
            self.suffixes[name] += 1
            free = f"{SCOPE}/{name}_{self.suffixes[name]}"
        self.names.add(free)
        node = Node(op, free, "", {key: attrs.encode(value) for key, value in attributes.items()})
        node.outputs = outputs
        self.wired.append((node, tuple(inputs), tuple(controls)))
        return node


def _copy(node: Node) -> Node:
    """The same node for another graph, without colocation."""
    copy = Node(node.op, node.name, node.device, {k: v for k, v in node.raw_attrs.items() if k != "_class"})
    copy.outputs = node.outputs
    return copy


def _stacked(values: Sequence[Any]) -> Any:
    """The values of all batches in one array; the first for all where their shapes differ."""
    alike = {np.shape(value) for value in values}
    return np.stack(values if len(alike) == 1 else [values[0]] * len(values))
