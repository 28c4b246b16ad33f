"""What the placement analysis asks for, made in the graph: collectives at the cheapest places, sizes written anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph import analysis, attrs, one_row, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, evidence, minimum_cut
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import placement_rules as _placement_rules  # registers its rules
from tpugraph.analysis.dimensions import Dimensions, Dims, Elements, constant
from tpugraph.analysis.placements import (
    REPLICATE,
    SUM,
    Entries,
    Held,
    Partial,
    PerCore,
    Placement,
    Replicate,
    Shard,
    Share,
    Sized,
)
from tpugraph.analysis.placing import Placing, Verdict
from tpugraph.analysis.sizes import ROWS, Known, Poly, Size, Unknown, known
from tpugraph.attrs import Shape
from tpugraph.collectives import Collectives
from tpugraph.errors import ConversionError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.state import variable_of

__all__ = ["Partition", "analyse"]
_ = (_dimension_rules, _placement_rules)

IN_A_LOOP = 1000
"""How many times a collective in a loop is taken to run, for its cost: how often it does is not known."""


_Seeds = tuple[dict[Tensor, Dims], dict[Tensor, Placement], dict[Tensor, Elements]]


def analyse(graph: Graph, rows: int, count: int = 1, *, policies: Mapping[str, str] | None = None,
            chosen: Mapping[str, bool] | None = None, nodes: analysis.NodeSet | None = None) -> Placing:  # fmt: skip
    """The placements of a training step, with its dimensions and sizes.

    Args:
        graph: the graph, placed on host and device, with shapes.
        rows: rows of one core's batch.
        count: number of cores.
        policies: see :class:`Placing`.
        chosen: constants that are settled: by name, whether they hold the size of the batch.
        nodes: the nodes to analyse; those on the device by default.
    """
    device = analysis.cluster_nodes(graph) if nodes is None else nodes
    order = analysis.loop_order(graph, device)
    dims, placements, sizes = _seeds(graph, device, rows)
    split = graph.facts.get("split-batch", {})
    if split:
        dims |= {graph[name].out(): held for name, held in split["held"].dims.items() if name in graph}
        sizes |= {graph[name].out(): held for name, held in split["held"].elements.items() if name in graph}
    shape_of = graph.facts.get("static-shapes", {}).get("shape_of", {})

    def found(ones: bool) -> Dimensions:
        made = Dimensions(graph, order, rows, dims, sizes, shape_of=shape_of, chosen=chosen, whole=rows * count,
                          only=split.get("constants"), ones=ones)  # fmt: skip
        evidence.weigh(made)
        return made

    dimensions = found(ones=False)
    if dimensions.sizes.conflicts and rows > 1:  # a 1 may be half of two rows
        other = found(ones=True)
        dimensions = min(dimensions, other, key=lambda d: len(d.sizes.conflicts))
    if dimensions.ones and count > 1 and one_row.keep_rows(graph, dimensions):
        order = analysis.loop_order(graph, analysis.cluster_nodes(graph))
        dimensions = found(ones=True)
    return Placing(graph, order, dimensions, placements, policies=policies)


def _seeds(graph: Graph, device: Mapping[Node, Any], rows: int) -> _Seeds:
    """What the host hands to the device: rows of the batch, entries of sparse rows, or the same for all cores."""
    fed = {t: None for n in device for t in n.inputs if t.node not in device and t.node.op not in ops.VARIABLES}
    inputs = graph.descendants([n for n in graph.of_type(*ops.INPUTS, *ops.RANDOM)], data_only=True)
    dims: dict[Tensor, Dims] = {}
    placements: dict[Tensor, Placement] = {}
    sizes: dict[Tensor, Elements] = {}
    for tensor in fed:
        if tensor.node not in inputs:
            placements[tensor] = REPLICATE
            continue
        shape = tensor.shape
        if shape and shape[0] == rows:
            placements[tensor] = Shard(0)
        elif shape and shape[0] is None:
            placements[tensor] = Entries("local" if len(shape) == 2 and tensor.dtype.name == "int64" else "values")
        elif shape and len(shape) == 1 and tensor.dtype.name == "int64":
            placements[tensor] = Entries("shape")
        else:
            placements[tensor] = PerCore("each core reads its own part of the input")
        if placements[tensor] == Entries("shape") and shape is not None:
            sizes[tensor] = [ROWS, *[None] * (int(shape[0] or 1) - 1)]
        if shape is not None:
            made: list[Size] = [Unknown(-1) if s is None else int(s) for s in shape]
            if placements[tensor] == Shard(0):
                made[0] = ROWS
            dims[tensor] = tuple(made)
    return dims, placements, sizes


@dataclass
class Partition:
    """One step being partitioned.

    Attributes:
        placing: the analysis.
        count: number of cores.
        scaling: ``None`` where the placements decide; ``mean`` or ``sum`` where the user said how gradients combine.
        varying_updates: what is written where a policy lets cores differ: ``mean``, ``replica0`` or ``error``.
        made: the collectives, as words by tensor, for the report.
        factor: what gradients are multiplied by where the user said how they combine and the placements say otherwise.
        forward: what leads to the loss, and is no gradient.
        asking: of partial values that are read whole, the first node that does.
        gathered: bytes of what is gathered, by tensor and the node that asks.
    """

    placing: Placing
    count: int
    scaling: str | None = None
    varying_updates: str = "mean"
    made: dict[str, str] = field(default_factory=dict)
    gathered: dict[str, str] = field(default_factory=dict)
    combined: dict[str, str] = field(default_factory=dict)
    made_behind: dict[Tensor, Tensor] = field(default_factory=dict)
    asking: dict[Tensor, Node] = field(default_factory=dict)
    factor: float = 1.0
    forward: Mapping[Node, None] = field(default_factory=dict)

    def solve(self) -> None:
        """Find placements and the tensors that are reduced, until no reader asks for more."""
        placing = self.placing
        placing.solve()
        for _ in range(12):
            if self._pin():
                placing.solve()
                continue
            placing.met = {t: None for t in placing.met if isinstance(placing.made(t), Partial)}
            asked = self._asked()
            if not asked:
                return
            placing.meet(self._cheapest(asked))
        raise ConversionError("the placements of the step do not settle", origin=placing.graph.source)

    def refuse_doubts(self) -> None:
        """Refuse a constant that may or may not be a number of rows, where a variable would be given another value.

        Raises:
            ConversionError: it names the constant, what it decides, and the flags that settle it.
        """
        self._refuse_bounds()
        d = self.placing.d
        for node in self.placing.verdicts:
            fact = ops.WRITES.get(node.op)
            if fact is None or not fact.additive or fact.rows is not None or d.rows == 1:
                continue
            elements = d.elements(node.inputs[fact.value])
            one = elements[0] if elements and len(elements) == 1 else None
            if not isinstance(one, Unknown) or one.root() not in d.defaulted or one.value < 1 or one.value % d.rows:
                continue
            name = constant_behind(node.inputs[fact.value]).name
            raise ConversionError(
                f"'{node.name}' adds {one.value} to a variable, and a core's batch has {d.rows} rows: if '{name}' counts rows, "
                f"the whole batch has {one.value * self.count} of them; if it is a number of the model, it stays {one.value}",
                node=node, origin=self.placing.graph.source,
                fix=f"--batch_constants={name} if it counts rows, --literals={name} if it does not",
            )  # fmt: skip

    def _refuse_bounds(self) -> None:
        """Refuse a number of rows that is computed from a constant of which nothing says whether it follows the batch."""
        d, placing = self.placing.d, self.placing
        for node in placing.verdicts:
            bounds = _BOUNDS.get(node.op)
            dims = placing.dims(node.inputs[0]) if bounds is not None else None
            if bounds is None or not dims or d.rows == 1:
                continue
            for index in bounds:
                for place, size in enumerate(d.elements(node.inputs[index]) or ()):
                    axis = place if node.op != "TopKV2" else len(dims) - 1
                    if axis >= len(dims) or not isinstance(dims[axis], Poly) or not self._in_doubt(size):
                        continue
                    names = [n.name for n in placing.graph.ancestors([node.inputs[index].node], data_only=True)
                             if n.op == "Const" and constant(n).size == 1 and constant(n).item() == d.rows]  # fmt: skip
                    if not names:
                        continue
                    raise ConversionError(
                        f"'{node.name}' ({node.op}) takes rows of the batch up to a number made of '{names[0]}', which is "
                        f"{d.rows}, as many as a core's batch has rows: if it is that, it grows with the whole batch",
                        node=node, origin=placing.graph.source,
                        fix=f"--batch_constants={names[0]} if it is the size of the batch, --literals={names[0]} if it is not",
                    )  # fmt: skip

    def _in_doubt(self, size: Size | None) -> bool:
        """Whether a number was taken for one of the model for want of evidence, and may follow the batch."""
        d = self.placing.d
        if not isinstance(size, Unknown) or isinstance(known(size), Poly) or size.value < 1:
            return False
        return size.origin is None or (size.root() in d.defaulted and size.value % d.rows == 0)

    def _asked(self) -> list[Tensor]:
        """The partial sums and extremes that a reader wants whole."""
        found: dict[Tensor, None] = {}
        for node, verdict in self.placing.verdicts.items():
            for index, want in verdict.wants.items():
                tensor = node.inputs[index]
                if isinstance(want, Replicate) and isinstance(self.placing.read(tensor), Partial):
                    found[tensor] = None
                    self.asking.setdefault(tensor, node)
        return list(found)

    def _pin(self) -> bool:
        """What a write asks of distinct entries is asked of what they are made from, so that each stays there once."""
        new = False
        for node, verdict in list(self.placing.verdicts.items()):
            if node.op not in ops.WRITES:
                continue
            for index, want in verdict.wants.items():
                if isinstance(want, Replicate) and isinstance(self.placing.read(node.inputs[index]), Entries):
                    maker = self._distinct(node.inputs[index])
                    if maker is not None and maker not in self.placing.pinned:
                        self.placing.pinned.add(maker)
                        new = True
        return new

    def _distinct(self, tensor: Tensor) -> Node | None:
        node = tensor.node
        while node.op in ops.IDENTITIES | {"Reshape", "Cast", "StridedSlice"} and node.inputs:
            node = node.inputs[0].node
        return node if node.op in ("Unique", "UniqueV2") else None

    # ------------------------------------------------------------------ where

    def _cheapest(self, asked: list[Tensor]) -> list[Tensor]:
        """Where partial sums are reduced: of all ways to meet every demand, the one with the fewest bytes."""
        placing = self.placing
        extremes = [t for t in asked if placing.read(t) != SUM]
        sums = [t for t in asked if placing.read(t) == SUM]
        region: dict[Tensor, None] = dict.fromkeys(sums)
        edges: list[tuple[Tensor, Tensor]] = []
        sources: dict[Tensor, None] = {}
        stack = list(sums)
        while stack:
            tensor = stack.pop()
            before = [t for t in tensor.node.inputs if placing.read(t) == SUM]
            if not before or self._starts(tensor):
                sources[tensor] = None
            for other in before:
                edges.append((other, tensor))
                if other not in region:
                    region[other] = None
                    stack.append(other)
        frame_of = analysis.frames(placing.graph)
        capacity = {t: self._cost(t, frame_of) for t in region}
        found = minimum_cut(edges, capacity, list(sources), sums)
        return extremes + (sums if found is None else found[1])

    def _starts(self, tensor: Tensor) -> bool:
        """Whether a partial sum arises at a tensor, from rows, or where a container hands it out."""
        verdict = self.placing.verdicts.get(tensor.node)
        inputs = [self.placing.read(t) for t in tensor.node.inputs]
        return verdict is None or any(isinstance(s, Shard | Entries | Held) for s in inputs)

    def _cost(self, tensor: Tensor, frame_of: Mapping[Node, str]) -> int:
        shape = tensor.shape
        size = 1
        for d in shape or ():
            size *= d or 1
        inside = frame_of.get(tensor.node) and tensor.node.op not in ops.EXIT
        backwards = tensor.node.op in ops.MERGE | ops.NEXT_ITERATION | ops.ENTER | ops.SWITCH
        cost = 16 * size * (tensor.dtype.size or 4) + 1
        return cost * (IN_A_LOOP if inside else 1) * (IN_A_LOOP if backwards else 1)

    # ------------------------------------------------------------------ making

    def apply(self) -> None:
        """Insert what readers want, and write sizes anew where a dimension holds the whole batch."""
        placing = self.placing
        graph = placing.graph
        self.collectives = Collectives(graph, self.count)
        self._cache: dict[tuple[Tensor, Placement], Tensor] = {}
        edits = [
            (node, index, want) for node, verdict in placing.verdicts.items() for index, want in verdict.wants.items()
        ]
        reads = {(node, index): node.inputs[index] for node, index, _ in edits}
        whole = self._whole_readers()
        self._tell_shapes()
        self._draw_alike()
        self._average()
        reduced = {t: self._reduce(t) for t in placing.met}
        for tensor, result in reduced.items():
            source = self.made_behind.get(tensor, tensor)
            for use in source.node.uses(source.port):
                if use.node in placing.verdicts:
                    graph.set_input(use.node, use.index, result)
        for node, index, want in edits:
            tensor = reads[node, index]
            if tensor in placing.met and isinstance(want, Replicate):
                continue
            self._edit(node, index, tensor, want, reduced)
        for node in whole:
            self._resize(node)

    def _tell_shapes(self) -> None:
        """Record the shapes that tensors with a whole batch have from now on."""
        for node in self.placing.verdicts:
            outputs = [(t.dtype, self._shape(t)) for t in map(node.out, range(len(node.outputs or ())))]
            if outputs != node.outputs:
                self.placing.graph.set_outputs(node, outputs)
        self._tell_containers()

    def _tell_containers(self) -> None:
        """Containers, and what is taken out of them, say which shape an element has."""
        placing = self.placing
        for node in placing.verdicts:
            handle = node.out() if node.op == "TensorArrayV3" else node.inputs[0] if node.op in _TAKES else None
            if handle is None or not node.has_attr(_TAKES.get(node.op, "element_shape")):
                continue
            placement = placing.read(handle)
            held = placing.d.containers.get(placing.d.handles.get(handle, handle))
            element = placing.held.get(placement.key) if isinstance(placement, Held) else None
            if held is None or held.dims is None:
                continue
            own = element.axis if isinstance(element, Shard) else None
            dims = [placing.final(s) for s in held.dims]
            if not any(isinstance(s, Poly) and a != own for a, s in enumerate(dims)):
                continue
            rows = placing.d.rows
            local = tuple(_at(s, rows if a == own else rows * self.count) for a, s in enumerate(dims))
            name = _TAKES.get(node.op, "element_shape")
            placing.graph.set_attr(node, name, attrs.encode(local[1:] if name.endswith("except0") else local))

    def _shape(self, tensor: Tensor) -> Shape:
        if tensor.shape is not None and None not in tensor.shape and not self._whole_axes(tensor):
            return tensor.shape
        dims = self.placing.d.dims(tensor)
        if dims is None:
            return tensor.shape
        return tuple(s if s >= 0 else None for s in self._local(tensor))

    def _draw_alike(self) -> None:
        """What all cores draw alike, and what meets rows, is what core 0 draws: each core has a stream of its own."""
        graph, placing = self.placing.graph, self.placing
        random = [n for n in placing.verdicts if n.op in ops.RANDOM]
        meeting = [n for n, v in placing.verdicts.items() if random and _meets_rows(v)]
        reaching = graph.ancestors(meeting, data_only=True)
        for node in random:
            if node not in reaching:
                continue  # it feeds what is the same everywhere, in which no core differs
            for port in node.used_ports():
                tensor = node.out(port)
                if not isinstance(placing.made(tensor), Replicate):
                    continue
                uses = tensor.node.uses(port)
                drawn = self.made_behind[tensor] = self.collectives.sum(self.collectives.first(tensor))
                self._note(tensor, "what core 0 draws")
                for use in uses:
                    graph.set_input(use.node, use.index, drawn)

    def _average(self) -> None:
        """Scale the means of each core's rows to their share of the mean of all."""
        graph = self.placing.graph
        for node, verdict in list(self.placing.verdicts.items()):
            for port in verdict.averaged:
                tensor = node.out(port)
                if isinstance(self.placing.read(node.inputs[0]), Entries):
                    self._average_entries(node)
                    continue
                if self.placing.made(tensor) != SUM:
                    continue
                uses = tensor.node.uses(port)
                share = self.made_behind[tensor] = self.collectives.scaled(tensor, 1.0 / self.count)
                for use in uses:
                    graph.set_input(use.node, use.index, share)

    def _average_entries(self, node: Node) -> None:
        """A mean of entries: the sum of each core's, divided by the number of all."""
        graph, tensor, c = self.placing.graph, node.out(), self.collectives
        uses, kind = tensor.node.uses(0), tensor.dtype
        kept = {"T": kind, "Tidx": node.inputs[1].dtype, "keep_dims": bool(node.attr("keep_dims", False))}
        total = c.add("Sum", f"{node.name}/sum", list(node.inputs), kept, kind, tensor.shape, tensor)
        size = c.add("Size", f"{node.name}/size", [node.inputs[0]], {"T": kind, "out_type": _INT32}, _INT32, (), tensor)
        own = c.add("Size", f"{node.name}/own_size", [tensor], {"T": kind, "out_type": _INT32}, _INT32, (), tensor)
        each = c.add("FloorDiv", f"{node.name}/count", [c.sum(size), own], {"T": _INT32}, _INT32, (), tensor)
        mean = c.add(
            "RealDiv", f"{node.name}/share", [total, c.cast(each, kind)], {"T": kind}, kind, tensor.shape, tensor
        )
        self.made_behind[tensor] = mean
        for use in uses:
            graph.set_input(use.node, use.index, mean)

    def _reduce(self, tensor: Tensor) -> Tensor:
        """The whole value of a partial one."""
        placement = self.placing.made(tensor)
        source = self.made_behind.get(tensor, tensor)
        if isinstance(placement, Partial) and placement.op != "sum":
            result, words = self.collectives.extreme(source, placement.op), f"the {placement.op} over the cores"
        else:
            result, words = self.collectives.sum(source), "the sum over the cores"
            if self.factor != 1 and tensor.dtype.floating and tensor.node not in self.forward:
                result, words = (
                    self.collectives.scaled(result, self.factor),
                    f"{words}, as --loss_reduction asks for it",
                )
        self._note(tensor, words)
        return result

    def _edit(self, node: Node, index: int, tensor: Tensor, want: Placement, reduced: Mapping[Tensor, Tensor]) -> None:
        graph = self.placing.graph
        if node.op in ops.MERGE and tensor.node.op in ops.NEXT_ITERATION | ops.ENTER:
            self._edit(tensor.node, 0, tensor.node.inputs[0], want, reduced)  # a Merge reads nothing else
            return
        source = reduced.get(tensor, self.made_behind.get(tensor, tensor))
        key = (tensor, want)
        if key not in self._cache:
            self._cache[key] = self._convert(node, tensor, source, want)
        graph.set_input(node, index, self._cache[key])

    def _convert(self, node: Node, tensor: Tensor, source: Tensor, want: Placement) -> Tensor:
        placement = self.placing.read(tensor)
        c = self.collectives
        if isinstance(want, Share):
            return c.share(self.whole(tensor, placement) if isinstance(placement, Sized) else source)
        if isinstance(placement, Sized):
            return self.whole(tensor, placement)
        if isinstance(want, Replicate):
            return self._gathered(node, tensor, source, placement)
        if isinstance(want, Shard):
            if isinstance(placement, Shard) and placement.plain() == want:
                return self.numbered(source, placement)
            if isinstance(placement, Replicate):
                return c.own_rows(source, want)
            if isinstance(placement, Shard):
                return c.own_rows(self._gathered(node, tensor, source, placement), want)
            if isinstance(placement, Partial):
                return c.own_rows(self._reduce(tensor), want)
        raise self._refusal(node, tensor, placement)

    def whole(self, tensor: Tensor, placement: Placement | None) -> Tensor:
        """A size of the whole batch, as a constant; of another value the value itself."""
        if not isinstance(placement, Sized):
            return tensor
        sizes = self.placing.sizes(tensor)
        if sizes is None:
            raise ConversionError(f"'{tensor}' is read as numbers, and holds sizes of the batch beside numbers that are not "
                                  "known", node=tensor.node, origin=self.placing.graph.source)  # fmt: skip
        rows = self.placing.d.rows * self.count
        value = np.asarray([_at(s, rows) for s in sizes])
        shape = tensor.shape if tensor.shape is not None else (len(sizes),)
        self.placing.graph.note(tensor.node, f"counts the rows of all cores: {value.ravel().tolist()}")
        return self.collectives.instead(tensor, value.reshape([int(d or 0) for d in shape]),
                                        name=f"{tensor.node.name}/of_all_cores")  # fmt: skip

    def _gathered(self, node: Node, tensor: Tensor, source: Tensor, placement: Placement | None) -> Tensor:
        c = self.collectives
        if isinstance(placement, Shard):
            level = self.placing.d.level(tensor)
            if self._left_out_sum(node, tensor, placement):
                self._note(tensor, "the sum over the cores: TensorFlow left out the sum over a batch of one row")
                return c.sum(source)
            if tensor.node.op == "Const":
                return self._wider(tensor, placement, level)
            if tensor.node.op == "Range":
                rows = placement.inner * self.placing.d.rows * self.count
                return c.constant(np.arange(rows), tensor.dtype, tensor, name=f"{tensor.node.name}/of_all_cores")
            plain = self.numbered(source, placement)
            size = (tensor.dtype.size or 4) * int(np.prod([d or 1 for d in tensor.shape or ()])) * self.count
            self.gathered[str(tensor)] = (
                f"{size:,} bytes, for '{node.name}' ({node.op}): {self.placing.verdicts[node].why}"
            )
            self._note(tensor, f"the rows of all cores ({size:,} bytes), for '{node.name}' ({node.op})")
            if source.shape is not None and None not in source.shape:
                return c.gather(plain, placement)
            return c.gather_entries(plain)
        if placement == Entries("shape") and tensor.shape == () and self._counts_entries(tensor):
            self._note(tensor, f"the number of entries of all cores, for '{node.name}' ({node.op})")
            return c.sum(source)
        if isinstance(placement, Entries) and placement.role in ("values", "distinct"):
            self._note(tensor, f"the entries of all cores, for '{node.name}' ({node.op})")
            return c.gather_entries(source)
        if isinstance(placement, Partial):
            return self._reduce(tensor)
        if isinstance(placement, PerCore):
            return self._unified(node, tensor, source, placement)
        raise self._refusal(node, tensor, placement)

    def _counts_entries(self, tensor: Tensor) -> bool:
        """Whether a number counts entries, or as many things for each: that of all cores is the sum of theirs."""
        node = tensor.node
        while node.op in _OF_COUNTS:
            counts = [t.node for t in node.inputs if self.placing.read(t) == Entries("shape")]
            if len(counts) > 1:
                return False  # a count by another one
            node = counts[0] if counts else node.inputs[0].node
        return node.op in ("Shape", "Size")

    def _left_out_sum(self, node: Node, tensor: Tensor, rows: Shard) -> bool:
        """Whether a variable with one row is given the one row of a core's batch: of more rows it would be given the sum."""
        if self.placing.d.rows != 1 or node.op not in ops.WRITES or ops.WRITES[node.op].rows is not None:
            return False
        variable = variable_of(node.inputs[ops.WRITES[node.op].variables[0]])
        shape = None if variable is None else variable.attr("shape")
        return shape is not None and len(shape) == self.placing.rank(tensor)

    def _wider(self, tensor: Tensor, rows: Shard, level: object) -> Tensor:
        """A constant with a row for each example, for the whole batch."""
        if level is None:
            raise ConversionError(
                f"the constant '{tensor}' has {self.placing.d.rows} rows of its own, one for each row of a core's batch: "
                "which the other cores' rows would have is not known",
                node=tensor.node, origin=self.placing.graph.source,
                fix=f"make it an input, or say that its size is no batch: --literals={tensor.node.name}",
            )  # fmt: skip
        shape = [int(d or 0) for d in tensor.shape or ()]
        shape[rows.axis] *= self.count
        value = np.full(shape, constant(tensor.node).ravel()[0])
        return self.collectives.constant(value, tensor.dtype, tensor, name=f"{tensor.node.name}/of_all_cores")

    def numbered(self, source: Tensor, rows: Shard) -> Tensor:
        """Numbers of this core's rows as those of the whole batch."""
        if not rows.shift:
            return source
        per_core = self.placing.d.rows
        if isinstance(rows.shift, int):
            return self.collectives.numbered(source, rows.shift * per_core)
        shape = [1] * len(source.shape or ())
        shape[rows.along] = len(rows.shift)
        return self.collectives.numbered(source, np.asarray([s * per_core for s in rows.shift]).reshape(shape))

    def _unified(self, node: Node, tensor: Tensor, source: Tensor, placement: PerCore) -> Tensor:
        """One value where cores differ: what the user chose."""
        names = node.inputs[0].node.name
        if self.varying_updates == "error":
            raise ConversionError(f"each core would write another value to '{names}' ({placement.policy})", node=node,
                                  origin=self.placing.graph.source,
                                  fix="--varying_updates=mean writes the mean, =replica0 core 0's")  # fmt: skip
        mean = tensor.dtype.floating and self.varying_updates == "mean"
        self.combined[names] = "mean" if mean else "replica0"
        self._note(tensor, "the mean over the cores" if mean else "the value of core 0")
        return self.collectives.sum(
            self.collectives.scaled(source, 1.0 / self.count) if mean else self.collectives.first(source)
        )

    def _refusal(self, node: Node, tensor: Tensor, placement: Placement | None) -> ConversionError:
        return ConversionError(
            f"'{node.name}' ({node.op}) needs '{tensor}' of the whole batch, and a core holds {placement}",
            node=node, origin=self.placing.graph.source,
            fix="compute it from dense rows; `tpugraph inspect --why` shows where the value comes from",
        )  # fmt: skip

    def _note(self, tensor: Tensor, words: str) -> None:
        self.made[str(tensor)] = words
        self.placing.graph.note(tensor.node, f"combined over the cores: {words}")

    def notes(self) -> list[str]:
        """What the user should know of: choices that give exactness up, and what is gathered at a cost."""
        found = []
        if self.scaling is not None:
            found.append(
                f"--loss_reduction={self.scaling} decides how cores combine: the result need not be that of the whole batch"
            )
        if self.placing.d.rows == 1:
            found.append(one_row.NOTE)
        own = sorted({p.policy for v in self.placing.verdicts.values() for p in v.outputs if isinstance(p, PerCore)})
        found += [f"{policy}: the result is not that of the whole batch" for policy in own]
        return found

    def override(self, loss: Tensor) -> None:
        """Let gradients combine as the user said: as a mean, or as a sum, of what each core makes of its own rows."""
        found, _ = self.reduction(loss)
        self.forward = self.placing.graph.ancestors([loss.node], data_only=True)
        if self.scaling == "sum" and found != "sum":
            self.factor = float(self.count)
        if self.scaling == "mean" and found == "sum":
            self.factor = 1.0 / self.count

    def reduction(self, loss: Tensor) -> tuple[str, str]:
        """Whether the loss is a ``mean`` or a ``sum`` over the batch, and why, for the report."""
        placing = self.placing
        joint = self._combined_before(loss)
        if joint is not None:
            return "joint", f"'{joint}' combines the rows of all cores on the way to the loss"
        stack, seen = [loss], {loss}
        while stack:
            tensor = stack.pop()
            verdict = placing.verdicts.get(tensor.node)
            if verdict is None:
                continue
            if tensor.port in verdict.averaged:
                return "mean", f"'{tensor.node.name}' is a mean over the batch"
            if tensor.node.op in ops.DIVISIONS and self._of_the_batch(tensor.node.inputs[1]):
                return "mean", f"'{tensor.node.name}' divides by '{tensor.node.inputs[1]}', which follows the batch"
            before = [t for t in tensor.node.inputs if placing.made(t) == SUM and t not in seen]
            seen.update(before)
            stack += before
        if placing.made(loss) == SUM:
            return "sum", "nothing that follows the batch divides the loss"
        return "whole", f"every core computes it whole: it is {placing.made(loss) or REPLICATE}"

    def _combined_before(self, loss: Tensor) -> str | None:
        """A tensor that the cores combine on the way to the loss."""
        for node in self.placing.graph.ancestors([loss.node], data_only=True):
            verdict = self.placing.verdicts.get(node)
            for index, want in verdict.wants.items() if verdict is not None else ():
                tensor = node.inputs[index]
                if isinstance(want, Replicate) and not isinstance(self.placing.made(tensor), Sized | Replicate | None):
                    return str(tensor)
        return None

    def _of_the_batch(self, tensor: Tensor) -> bool:
        """Whether a divisor is a size of the batch, or made by a sum over it."""
        stack, seen = [tensor], {tensor}
        while stack and len(seen) < 40:
            at = stack.pop()
            if isinstance(self.placing.made(at), Sized | Partial):
                return True
            new = [t for t in at.node.inputs if t not in seen and at.node in self.placing.verdicts]
            seen.update(new)
            stack += new
        return False

    # ------------------------------------------------------------------ sizes

    def _whole_readers(self) -> list[Node]:
        """The nodes whose output holds the whole batch along a dimension, and which are told sizes."""
        found = []
        for node in self.placing.verdicts:
            if (
                node.op in ops.SIZE_OPERANDS
                and node.outputs
                and (self._whole_axes(node.out()) or self._reads_whole(node))
            ):
                found.append(node)
        return found

    def _reads_whole(self, node: Node) -> bool:
        """Whether an operand is read with the whole batch in it."""
        wants = self.placing.verdicts[node].wants
        for index, tensor in enumerate(node.inputs):
            placement = wants.get(index, self.placing.read(tensor))
            if isinstance(placement, Replicate | Partial) and any(
                isinstance(s, Poly) for s in self.placing.dims(tensor) or []
            ):
                return True
        return False

    def _whole_axes(self, tensor: Tensor) -> list[int]:
        axes = self.placing.d.axes(tensor)
        placement = self.placing.made(tensor) if axes else None
        own = placement.axis if isinstance(placement, Shard) else None
        return [a for a in axes if a != own]

    def _local(self, tensor: Tensor) -> list[int]:
        """The dimensions that a tensor has on a core."""
        placement = self.placing.made(tensor) or self.placing.read(tensor)
        own = placement.axis if isinstance(placement, Shard) else None
        rows = self.placing.d.rows
        return [_at(s, rows if a == own else rows * self.count) for a, s in enumerate(self.placing.dims(tensor) or [])]

    def _resize(self, node: Node) -> None:
        """Write the sizes anew that a node with a whole batch in its output is told."""
        graph, placing = self.placing.graph, self.placing
        shape = self._local(node.out())
        told: dict[int, list[int]] = {}
        if node.op == "Tile":
            told[1] = [a // max(b, 1) for a, b in zip(shape, self._local(node.inputs[0]), strict=True)]
        elif node.op in ("Reshape", "BroadcastTo", "SparseToDense"):
            told[1] = shape
        elif node.op == "ScatterNd":
            told[2] = shape
        elif node.op.startswith("UnsortedSegment"):
            told[2] = shape[:1]
        elif node.op == "OneHot":
            axis = int(node.attr("axis", -1))
            told[1] = [shape[axis]]
        elif node.op in _TOLD_BOUNDS:
            rows = placing.d.rows * self.count
            for index in ops.SIZE_OPERANDS[node.op]:
                sizes = placing.sizes(node.inputs[index])
                if sizes is not None and any(isinstance(s, Poly) for s in sizes):
                    told[index] = [_at(s, rows) for s in sizes]
            if node.op == "StridedSliceGrad":
                told[0] = shape
        elif ops.SIZE_OPERANDS[node.op] == (0,) and node.op != "TensorArrayV3":
            told[0] = shape
        for index, value in told.items():
            operand = node.inputs[index]
            if (value is shape or node.op not in _TOLD_BOUNDS) and min(value, default=0) < 0:
                continue  # it depends on data
            if operand.node.op == "Const" and constant(operand.node).ravel().tolist() == value:
                continue
            form = operand.shape if operand.shape is not None else (len(value),)
            array = np.asarray(value).reshape([int(d or 0) for d in form])
            made = self.collectives.instead(operand, array, name=f"{node.name}/of_all_cores")
            graph.set_input(node, index, made)


_TOLD_BOUNDS = frozenset(
    {"Pad", "PadV2", "Slice", "StridedSlice", "StridedSliceGrad", "SplitV", "Range", "TensorListReserve"}
)
"""Ops told sizes that are not those of their output, where a negative one has a meaning."""

_BOUNDS = {"StridedSlice": (1, 2), "Slice": (1, 2), "TopKV2": (1,)}
"""Ops that take some rows of a batch, and the operands that say which."""

_OF_COUNTS = frozenset(
    {"StridedSlice", "Cast", "Identity", "Prod", "GatherV2", "FloorDiv", "Squeeze", "Reshape", "Maximum"}
)
"""Ops that make a number of entries of the shape of a tensor that holds them."""

_TAKES = {"TensorArrayGatherV3": "element_shape", "TensorArrayConcatV3": "element_shape_except0"}


def _meets_rows(verdict: Verdict) -> bool:
    """Whether a node holds rows or parts of sums, or reads an operand otherwise than it is."""
    return bool(verdict.wants) or any(isinstance(o, Shard | Entries | Partial) for o in verdict.outputs)


def constant_behind(tensor: Tensor) -> Node:
    """The constant that a number is cast from, or the node that makes the number."""
    node = tensor.node
    while node.op in ops.IDENTITIES | ops.ENTER | {"Cast"} and node.inputs:
        node = node.inputs[0].node
    return node


def _at(size: Known, rows: int) -> int:
    return size.at(rows) if isinstance(size, Poly) else int(size)


_INT32 = attrs.dtype("int32")
_CLUSTER = {CLUSTER_ATTR: CLUSTER}
