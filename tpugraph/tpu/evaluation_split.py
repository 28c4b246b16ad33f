"""Splits a step of evaluation or prediction: the device computes rows, the host then updates metrics on the unpadded batch.

Placements are propagated for one core per row of the padded batch: a value that is sharded by rows keeps rows independent, so
that the padding can be sliced off behind it; an op that needs a collective mixes rows and runs on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE, NodeSet, must_be_host, shapes
from tpugraph.analysis.min_cut import minimum_cut
from tpugraph.analysis.placements import Entries, Held, Placement, Replicate, Shard
from tpugraph.analysis.step import DeviceEnds, PaddedBatches
from tpugraph.analysis.values import integers
from tpugraph.control_flow.loops import add_results, whole_loops
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import reached
from tpugraph.roles.findings import Finding
from tpugraph.spmd.placing import Placing, Verdict
from tpugraph.spmd.rules.signature import has_rule
from tpugraph.spmd.splats import splat_value
from tpugraph.tpu.device_cut import in_the_middle, refuse_copies

ALL_ROWS = "PlaceholderWithDefault"
"""A marker op for a value of the unpadded batch, replaced by the pass gather-rows; its input is the device's value."""

TIMES = "_tpugraph_rows"
"""Its attribute: elements of dimension 0 per row, to slice off the padding; 0 without padding."""

_COPIED = "/tail"
"""Suffix of the names of copies for the tail."""

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class Batch:
    """The padded batch."""

    rows: int
    whole: bool  # whether every batch of the plain graph has this many rows, so that rows may mix
    placements: Mapping[Tensor, Placement]  # of its tensors, for one core per row
    # the unpadded tensor for each tensor of the padded batch, or computed from its padding
    plain: Mapping[Tensor, Tensor]
    parts: Mapping[Tensor, Tensor]  # the tensor of the unpadded batch, by tensor of the padded one


def padded_batch(graph: Graph) -> Batch:
    padded = graph.result(PaddedBatches)
    found: dict[Tensor, Placement] = {graph.tensor(name): Shard(0) for name in padded.tensors}
    for names in padded.sparse:
        indices, values, shape = map(graph.tensor, names)
        found |= {indices: Entries("local", str(values)), values: Entries("values"), shape: Entries("shape")}
    plain = {graph.tensor(name): graph.tensor(text) for name, text in padded.plain.items()}
    parts = {tensor: plain.get(tensor, tensor) for tensor in found}
    found |= {graph.tensor(name): Shard(0) for name in padded.numbers}
    return Batch(padded.rows, padded.whole, found, plain, parts)


class RowPlacements:
    """Which values of a step keep rows independent. The host always runs the nodes ``host``."""

    def __init__(self, graph: Graph, batch: Batch, step: Iterable[Node], host: Iterable[Node]) -> None:
        self.graph = graph
        before = graph.ancestors([t.node for t in batch.parts])
        made = {t.node: None for t in batch.placements}
        order = analysis.loop_order(graph, {n: None for n in step if n not in before})
        self.placing = Placing(graph, order, batch.rows, batch.placements)
        self.placing.solve()
        self.behind = graph.descendants(made, data_only=True)
        self._frame_of = analysis.frames(graph)
        self._counted = self._depending_on_rows()
        verdicts = {} if batch.whole else self.placing.verdicts
        free = {n: v for n, v in verdicts.items() if n in self.behind and n not in made}
        self._asking = {n: None for n, v in free.items() if self._asks(n, v)}
        self._mixed = self._spread([*host, *self._asking])

    def rows(self, tensor: Tensor) -> Shard | Entries | None:
        """The placement of a tensor with independent rows; None for any other."""
        placement = self.placing.read(tensor)
        return placement if isinstance(placement, Shard | Entries) and tensor.node not in self._mixed else None

    def give_to_host(self, nodes: Iterable[Node]) -> None:
        self._mixed = self._spread([*self._mixed, *nodes])

    def mixes(self, node: Node) -> bool:
        """Whether a node or one of its ancestors mixes rows, so that the host runs it on the unpadded batch."""
        return node in self._mixed

    def beside(self, node: Node) -> list[Node]:
        """The nodes that share a container with a node."""
        keys = {p.key for p in map(self.placing.read, node.inputs) if isinstance(p, Held)}
        return [other for key in keys for other in self.placing.users(key) if other is not node]

    def blame(self, node: Node) -> str:
        """Which first ancestor of a node mixes rows, or which node of the loop around it, in words."""
        seen = {node}
        while before := [t.node for t in node.inputs if t.node in self._mixed and t.node not in seen]:
            node = before[0]
            seen.add(node)
        if node not in self._asking:
            node = next((n for n in self._asking if self._frame_of[n] == self._frame_of[node]), node)
        unknown = "" if has_rule(node.op) else "may combine rows of the batch (nothing is known of this op)"
        return f"'{node.name}' ({node.op}) {unknown or 'combines rows of the batch'}"

    # ------------------------------------------------------------------ which nodes mix rows

    def _depending_on_rows(self) -> dict[Tensor, None]:
        """Replicated tensors that depend on the number of rows."""
        sizes = [n.out(port) for n in self.placing.verdicts if n.op in ops.SHAPE_OF - ops.RANK_OPS
                 for port, t in enumerate(n.inputs) if isinstance(self.placing.read(t), Shard | Entries)]  # fmt: skip

        def replicated(tensors: Iterable[Tensor]) -> list[Tensor]:
            return [tensor for tensor in tensors if not isinstance(self.placing.read(tensor), Shard)]

        def made_of(tensor: Tensor) -> list[Tensor]:
            readers = {use.node: None for use in tensor.node.uses(tensor.port) if use.node in self.placing.verdicts}
            return replicated(node.out(port) for node in readers for port in range(len(node.outputs or ())))

        return reached(replicated(sizes), made_of)

    def _asks(self, node: Node, verdict: Verdict) -> bool:
        """Whether a node mixes rows, or makes rows from their number."""
        decides = node.inputs[-1:] if node.op in ops.SWITCH | ops.LOOP_COND else ()
        if any(t in self._counted for t in decides) or verdict.averaged or verdict.cuts:
            return True
        if not all(isinstance(p, Shard | Entries | Replicate | Held) for p in verdict.outputs):
            return True
        if any(not self._has_equal_rows(node.inputs[i], want) for i, want in verdict.wants.items()):
            return True
        if not any(isinstance(p, Shard | Entries) for p in verdict.outputs):
            return False
        told = {*ops.record(node.op).size_operands(len(node.inputs)), *verdict.wants}
        counts = any(t in self._counted for i, t in enumerate(node.inputs) if i not in told)
        return counts or node.op in ops.RANDOM or self._rows_are_constant(node, verdict)

    def _has_equal_rows(self, tensor: Tensor, want: Placement) -> bool:
        """Whether a replicated operand that is needed as a shard has equal rows, one per row of the batch."""
        whole = isinstance(self.placing.read(tensor), Replicate)
        return whole and isinstance(want, Shard) and tensor in self._counted and splat_value(tensor) is not None

    def _rows_are_constant(self, node: Node, verdict: Verdict) -> bool:
        """Whether a constant decides the number of rows that a node makes."""
        index, made = ops.record(node.op).shaped_by, verdict.outputs[0]
        if index is None or not isinstance(made, Shard) or node.inputs[index] in self._counted:
            return False
        sizes = integers(node.inputs[index])
        return sizes is not None and made.axis < len(sizes) and sizes[made.axis] >= 0

    def _spread(self, mixing: list[Node]) -> NodeSet:
        """Descendants of nodes that mix rows; a loop goes as a whole."""
        within = [n for n in self.placing.verdicts if n in self.behind and n.op not in ops.CONSTANTS]
        return whole_loops(self.graph, mixing, within, data_only=True)


class EvaluationSplit:
    """Splits the step into the device's part and the tail, which the host runs after it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        roles = graph.roles
        self.roots = [graph[name] for name in roles.roots]
        self.cone = graph.ancestors(self.roots)
        variables = [node for node in self.cone if node.op in ops.RESOURCE_VARIABLES]
        self.of_model: NodeSet = graph.descendants(variables, data_only=True)
        self.host_bound = {n: None for n in self.cone if n in self.of_model and must_be_host(n)}
        ends = {graph.tensor(name).node: None for name in (*roles.predictions.values(), roles.loss.name) if name}
        writes = {node: None for node in self.cone if node.op in ops.WRITES}
        self.forced = {**self.host_bound, **ends, **writes}
        self.batch = padded_batch(graph)
        self.placed = RowPlacements(graph, self.batch, self.cone, self.forced)  # which values keep rows independent
        self.behind = self.placed.behind
        # the nodes that the host runs on the unpadded batch: those that mix rows, write, or follow a write
        self.tail = self._tail()

    def _tail(self) -> NodeSet:
        """Nodes that mix rows, write, or follow a write; a container is used on one side."""
        watching = {n for n in self.behind if not n.outputs}
        found = {n: None for n in self.cone if n in self.forced or self.placed.mixes(n) or n in watching}

        def followers(node: Node) -> list[Node]:
            writes = node.op in ops.WRITES or node.op in ops.GROUPS  # replicated nodes may read a written variable
            waiting = [n for n in node.control_uses() if n not in self.behind and (writes or n.op in ops.GROUPS)]
            behind = [*(use.node for use in node.uses()), *self.placed.beside(node), *waiting]
            return [n for n in behind if n in self.cone]

        return reached(found, followers)

    # ------------------------------------------------------------------ the cut

    def cut(self) -> list[Tensor]:
        """The device's tensors that the tail reads: the minimum cut by bytes.

        A value that the tail reads and that cannot leave the device is computed by the tail.
        """
        while True:
            edges, capacity, sources, sinks = self._flow()
            found = minimum_cut(edges, capacity, list(sources), list(sinks))
            if found is not None:
                return found[1]
            self.placed.give_to_host(t.node for t in sinks if t not in capacity)
            self.tail = self._tail()

    def _flow(self) -> tuple[list[tuple[Tensor, Tensor]], dict[Tensor, int], dict[Tensor, None], dict[Tensor, None]]:
        """The flow from model to tail: edges, capacities of the tensors that may leave the device, sources, sinks."""
        inside = analysis.conditional(self.graph)
        frame_of = analysis.frames(self.graph)
        edges: list[tuple[Tensor, Tensor]] = []
        capacity: dict[Tensor, int] = {}
        sources: dict[Tensor, None] = {}
        sinks: dict[Tensor, None] = {}
        for tensor in [t for n in self.cone for t in self._of_batch(n)]:
            node, size = tensor.node, shapes.byte_size(tensor)
            if not (node in inside or frame_of[node]) and size is not None and self._may_leave(tensor):
                capacity[tensor] = size
            of_model = any(t.node in self.of_model and t.node not in self.behind for t in node.inputs)
            if of_model or not any(t in self._of_batch(t.node) for t in node.inputs):
                sources[tensor] = None
            for use in node.uses(tensor.port):
                if use.node in self.tail:
                    sinks[tensor] = None
                elif use.node in self.cone:  # an element written to a container is read by another op
                    made = [use.node, *self.placed.beside(use.node)]
                    edges.extend((tensor, out) for reader in made for out in self._of_batch(reader))
        return edges, capacity, sources, sinks

    def _of_batch(self, node: Node) -> list[Tensor]:
        """Outputs of the model on the device; with padding, only those with independent rows."""
        if node not in self.of_model or node not in self.behind or node in self.tail:
            return []
        outputs = [node.out(port) for port in range(len(node.outputs or ()))]
        return outputs if self.batch.whole else [t for t in outputs if self.placed.rows(t) is not None]

    def _may_leave(self, tensor: Tensor) -> bool:
        if tensor.dtype.name not in ops.INFEED_DTYPES:
            return False
        rows = self.placed.rows(tensor)
        return self.batch.whole or (isinstance(rows, Shard) and rows.axis == 0 and rows.outer == 1)

    # ------------------------------------------------------------------ parts of the model on the host

    def refuse_in_the_middle(self) -> None:
        """Raise a ConversionError where the model reads the result of a host-only op."""
        for node in self.graph.topological_order(self.host_bound):
            if node.op in ops.WRITES:
                continue
            after = self.graph.descendants([node], data_only=True)
            reader = next((n for n in after if n in self.cone and self._multiplies_variables(n)), None)
            if reader is not None:
                raise in_the_middle(node, reader, "compute it in the input pipeline, or replace it by TensorFlow ops")

    def _multiplies_variables(self, node: Node) -> bool:
        return node.op in ops.PRODUCTS and any(
            t.node in self.of_model and t.node not in self.behind for t in node.inputs[1:]
        )

    def note_products(self) -> None:
        """Note each product of the model that runs on the host, with the node that mixes rows before it."""
        for node in self.tail:
            if self._multiplies_variables(node):
                self.graph.note(node, f"'{node.name}' runs on the host, since {self.placed.blame(node)}", shown=True)

    # ------------------------------------------------------------------ the tail on the host

    def build(self) -> None:
        """Rewire: the tail reads tensors from the device and the unpadded batch, and has copies of all else."""
        graph = self.graph
        self.crossing = dict.fromkeys(self.cut())
        self.nodes: NodeSet = dict(self.tail)
        self._frame_of = analysis.frames(graph)
        count = graph[graph.result(PaddedBatches).count].out()
        own, beside = self._own()
        device = self._release([*(t.node for t in self.crossing), count.node])
        ends = [self._cross(count, 0), *(self._cross(t, self._times(t)) for t in self.crossing)]
        passed = [self._cross(t, 0) for t in beside]
        self._total = ends[0].out()
        arriving = {t: end.out() for t, end in zip([*self.crossing, *beside], [*ends[1:], *passed], strict=True)}
        copies = self._copies(own, device)
        run = [copies.get(n, n) for n in {**self.tail, **own}]
        for node in run:
            self.nodes[node] = None
            graph.set_attr(node, "_output_shapes", None)
            for index, tensor in enumerate(node.inputs):
                graph.set_input(node, index, self._reads(tensor, arriving, copies))
        for node in run:
            kept = [copies.get(c, c) for c in node.controls if c in self.tail or c in own or c in self.nodes]
            graph.set_controls(node, kept)
        self._cut_predictions()
        graph.keep(DeviceEnds(*(tuple(end.inputs[0].node.name for end in group) for group in (ends, passed))))
        self._clear([*ends, *passed])

    # ------------------------------------------------------------------ nodes of each side

    def _own(self) -> tuple[NodeSet, list[Tensor]]:
        """The nodes that the tail recomputes, and the tensors of the unpadded batch that it reads."""
        parts: dict[Tensor, None] = {}
        batch_parts = dict.fromkeys(self.batch.parts.values())

        def own(node: Node) -> Iterator[Node]:
            for tensor in map(self._plain, node.inputs):
                if tensor in batch_parts:
                    parts[tensor] = None
                elif not (tensor in self.crossing or tensor.node.op in ops.RESOURCE_VARIABLES or self._is_size(tensor)):
                    yield tensor.node

        found = reached(self.tail, own)
        return {node: None for node in found if node not in self.tail}, list(parts)

    def _plain(self, tensor: Tensor) -> Tensor:
        """The tensor of the unpadded batch that corresponds to one of the padded batch."""
        return self.batch.plain.get(tensor, tensor)

    def _release(self, ends: list[Node]) -> NodeSet:
        """The nodes of the device. Control edges to them from the tail are removed; asserts among these run in the tail."""
        graph = self.graph
        watches: dict[str, Finding] = {finding.name: finding for finding in graph.roles.updates}

        def before(node: Node) -> list[Node]:
            for control in node.controls:
                if control in self.tail:
                    graph.remove_control(node, control)
                    graph.note(control, f"'{node.name}' waited for it; now it runs on the host behind the device")
                    watches.setdefault(control.name, Finding(control.name, "watches the step"))
            return node.producers()

        found = reached(ends, before)
        graph.roles = replace(graph.roles, updates=tuple(watches.values()))
        return found

    def _copies(self, own: NodeSet, device: NodeSet) -> dict[Node, Node]:
        """Copy for the tail the nodes that the device needs too."""
        shared = [node for node in own if node in device and node.op not in ops.TABLES]
        refuse_copies(shared)
        copies = self.graph.clone_subgraph(shared, lambda name: f"{name}{_COPIED}")
        for copy in copies.values():
            if copy.op in ops.ENTER:
                self.graph.set_attr(copy, "frame_name", f"{copy.attr('frame_name')}{_COPIED}")
        return copies

    def _clear(self, ends: list[Node]) -> None:
        graph = self.graph
        roles = graph.roles
        outside = [node for node in graph if node not in self.cone and node not in self.nodes]
        alive = graph.ancestors([*outside, *ends, *(graph[name] for name in roles.roots)])
        graph.remove_all([node for node in self.cone if node not in alive])

    # ------------------------------------------------------------------ what crosses

    def _times(self, tensor: Tensor) -> int:
        """Elements of dimension 0 per padded row; 0 where the tensor has no padding."""
        return 0 if self.batch.whole else (tensor.shape or (0,))[0] // self.batch.rows  # type: ignore[operator]

    def _cross(self, tensor: Tensor, times: int) -> Node:
        """Send a tensor from the device, and give the tail a placeholder for its unpadded value."""
        name = tensor.node.name
        end = Builder(self.graph, source=tensor.node).identity(tensor, name=f"tpugraph/core/{name}")
        local = times or self.batch.whole
        shape = tensor.shape and (None if local else tensor.shape[0], *tensor.shape[1:])
        make = Builder(self.graph, source=tensor.node, marks={TIMES: times})
        return make.node(ALL_ROWS, [end], name=f"tpugraph/all/{name}", shapes=(shape,), shape=attrs.encode(shape))

    def _reads(self, tensor: Tensor, arriving: dict[Tensor, Tensor], copies: dict[Node, Node]) -> Tensor:
        tensor = self._plain(tensor)
        if tensor in arriving:
            return arriving[tensor]
        if tensor.node not in self.tail and self._is_size(tensor):
            return self._size(tensor)
        return Tensor(copies[tensor.node], tensor.port) if tensor.node in copies else tensor

    def _cut_predictions(self) -> None:
        """Slice predictions to the true rows where the dataset pads its batches itself."""
        for name in self.graph.roles.predictions.values():
            node = self.graph[name]
            shape = node.out().shape
            if self.batch.whole and shape and (shape[0] or 1) % self.batch.rows == 0:
                first = np.arange(len(shape)) == 0
                rows = first * ((shape[0] or 0) // self.batch.rows)
                size = self._vector(node, "size", self._total, rows, first - 1)
                begin = self._constant(node, np.zeros(len(shape)), _INT32)
                self.graph.set_input(node, 0, self._add(node, "Slice", "true_rows", node.inputs[0], begin, size))

    # ------------------------------------------------------------------ sizes

    def _is_size(self, tensor: Tensor) -> bool:
        """Whether a tensor is a shape in which only the number of rows is unknown."""
        node = tensor.node
        if node.op not in ops.SHAPE_OF - ops.RANK_OPS or self._frame_of.get(node, "") or self.batch.whole:
            return False
        source = node.inputs[tensor.port]
        return isinstance(self.placed.rows(source), Shard) and shapes.is_static(source.shape)

    def _size(self, tensor: Tensor) -> Tensor:
        """The shape of an unpadded tensor: true rows times elements per row, then the static dimensions."""
        node, kind = tensor.node, tensor.dtype
        source = node.inputs[tensor.port]
        shape, rows = np.asarray(source.shape), self.placed.rows(source)
        assert isinstance(rows, Shard)
        total = self._total
        if kind != _INT32:
            total = self._add(node, "Cast", "rows", total, DstT=kind, Truncate=False)
        if node.op in ops.SIZES:
            return self._add(node, "Mul", "times", total, self._constant(node, shape.prod() // self.batch.rows, kind))
        along = np.arange(len(shape)) == rows.axis
        return self._vector(node, "plus", total, along * (shape // self.batch.rows), ~along * shape)

    def _vector(self, near: Node, name: str, total: Tensor, times: Any, rest: Any) -> Tensor:
        """The number of true rows times one vector plus another."""
        scaled = self._add(near, "Mul", "times", total, self._constant(near, times, total.dtype))
        return self._add(near, "AddV2", name, scaled, self._constant(near, rest, total.dtype))

    def _constant(self, near: Node, value: object, kind: attrs.DType) -> Tensor:
        array = np.asarray(value, kind.name)
        return self._add(near, "Const", "size", shape=array.shape, dtype=kind, value=array)

    def _add(
        self, near: Node, op: str, name: str, *inputs: Tensor, shape: attrs.Shape = None, **attributes: Any
    ) -> Tensor:
        made = Builder(self.graph, near.name, source=near).add(op, inputs, shape, name=name, **attributes)
        self.nodes[made.node] = None
        return made


class PlainRows:
    """Slices the tail's inputs from the outfeed to the ``count`` true rows."""

    def __init__(self, graph: Graph, count: Tensor) -> None:
        self.graph = graph
        self._sizes: dict[tuple[int, int], Tensor] = {}
        self._make = Builder(graph, "tpugraph/rows", device=HOST_DEVICE)
        self._count = self._make.add("Reshape", [count, self._constant(np.zeros(0))], (), name="rows")
        self._some = self._make.add("Greater", [self._count, self._constant(0)], (), name="any")
        self.total = self._if_any(self._count)
        self._pivot = self._make.add("Identity", [self.total], (), name="pivot").node
        add_results(graph, rows=str(self._count), some=str(self._some), pivot=self._pivot.name)

    def plain(self, tensor: Tensor, times: int) -> Tensor:
        """A tensor sliced to the true rows, with ``times`` elements per row (unsliced where 0), in a step that has rows."""
        if times:
            shape = tensor.shape or ()
            begin, size = self._constant(np.zeros(len(shape))), self._size(len(shape), times)
            tensor = self._make.add("Slice", [tensor, begin, size], (None, *shape[1:]), name="plain")
        return self._if_any(tensor)

    def guard_writes(self) -> None:
        """Make writes conditional on a step with rows."""
        frame_of = analysis.frames(self.graph)
        device = analysis.in_cluster
        step = self.graph.ancestors(self.graph[name] for name in self.graph.roles.roots)
        for node in step:
            if node.op in ops.WRITES and not device(node) and not frame_of[node]:
                self.graph.add_control(node, self._pivot)

    def _size(self, rank: int, times: int) -> Tensor:
        """The size operand of the slice: the true rows in dimension 0, -1 elsewhere."""
        if (rank, times) not in self._sizes:
            factors, rest = np.zeros(rank), np.full(rank, -1)
            factors[0], rest[0] = times, 0
            scaled = self._make.add("Mul", [self._count, self._constant(factors)], (rank,), name="times")
            self._sizes[rank, times] = self._make.add("AddV2", [scaled, self._constant(rest)], (rank,), name="size")
        return self._sizes[rank, times]

    def _if_any(self, tensor: Tensor) -> Tensor:
        shapes = (tensor.shape, tensor.shape)
        return self._make.node("Switch", [tensor, self._some], name="if_any", shapes=shapes).out(1)

    def _constant(self, value: Any) -> Tensor:
        return self._make.constant(np.asarray(value, "int32"))
