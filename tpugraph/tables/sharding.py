"""Shards a table by rows over the cores: each core looks up and updates its own rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, NodeSet, cluster_nodes, replica_varying, signatures
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.collectives import Collectives
from tpugraph.rewrite.row_updates import distinct_by, only_counts, total_of
from tpugraph.rewrite.step_nodes import core_argument
from tpugraph.tables.row_tables import NotByRows, RowTable

_HANDLE = attrs.dtype("resource")


def check_updates(graph: Graph, table: RowTable) -> None:
    """Check that every update of a table is replicated."""
    varying = replica_varying(graph)
    for node in (*table.steps, *table.dense):
        if node in varying:
            raise NotByRows(f"'{node.name}' ({node.op}) writes what differs between cores")


class Sharding:
    """Shards a table; ``local`` are the nodes of the plain graph that now hold the core's own rows only."""

    def __init__(self, graph: Graph, table: RowTable, collectives: Collectives) -> None:
        self._graph = graph
        self._table = table
        self._collectives = collectives
        self.layout = Layout(table.shape[0], collectives.count)
        self.local: NodeSet = dict(table.wide)
        self._numbers = OwnNumbers(graph, collectives, self.layout)

    def apply(self) -> None:
        # values from the host are not among them: each core is fed its own
        alike = cluster_nodes(self._graph).keys() - replica_varying(self._graph).keys()
        distinct = self._localise_updates()
        for node in self._table.lookups:
            if node.inputs[1].node not in distinct:  # else they are local indices already
                self._look_up(node, gathered=node.inputs[1].node not in alike)
        room = (self.layout.room, *self._table.shape[1:])
        for node in self._table.wide:
            self._graph.set_outputs(node, [(kind, room) for kind, _ in node.outputs or ()])
        for variable, first in self._table.variables.items():
            self._deal_out(variable, first, room)

    def _localise_updates(self) -> dict[Node, None]:
        """Give updates local row indices; returns the Unique nodes, which now find distinct local indices."""
        distinct: dict[Node, None] = {}
        for step in self._table.steps:
            index = ops.WRITES[step.op].rows or 0
            numbers = step.inputs[index]
            unique = distinct_by(numbers)
            if unique in distinct:
                continue
            behind = None if unique is None else self._users_of_distinct(unique)
            if unique is not None and behind is not None:
                distinct[unique] = None
                self.local |= behind
                self._graph.set_input(unique, 0, self._numbers.of(unique.inputs[0])[0])
            else:
                self._graph.set_input(step, index, self._numbers.of(numbers)[0])
        return distinct

    def _users_of_distinct(self, unique: Node) -> NodeSet | None:
        """The row-by-row users of distinct indices and of the sums by these; None where these reach more than the table."""
        total = total_of(unique)
        pending = [use.node for use in unique.uses(0) if total is None or not only_counts(use.node, total)]
        pending += [] if total is None else [total]
        seen: NodeSet = {unique: None}
        while pending:
            node = pending.pop()
            if node in seen or node in self._table.steps:
                continue
            seen[node] = None
            signature = signatures.of(node)
            if node is not total and node not in self._table.lookups and not (signature and signature.elementwise):
                return None
            pending += [use.node for use in node.uses()]
        if total is None:
            return None if unique.uses(1) else seen
        before = self._graph.ancestors([total], data_only=True)  # includes the count of distinct indices
        return {**seen, **{node: None for node in self._graph.descendants([unique], data_only=True) if node in before}}

    def _look_up(self, node: Node, *, gathered: bool) -> None:
        """Gather, of the rows that all cores ask for, those that this core holds; sum over the cores; slice this core's result."""
        graph, collectives, asked = self._graph, self._collectives, node.inputs[1]
        static = is_static(asked.shape)
        every = asked
        if gathered:
            asked = self._numbers.exchanged(asked)
            every = collectives.gather(asked, Shard(0)) if static else collectives.gather_entries(asked)
        numbers, own = self._numbers.of(every)
        kind, width = node.out().dtype, self._table.shape[1:]
        shape = (*(every.shape or ()), *width)
        kept = {name: held for name, held in node.raw_attrs.items() if name != "_output_shapes"}
        rows = graph.add(node.op, f"{node.name}/of_shard", [node.inputs[0], numbers, *node.inputs[2:]], attrs=kept,
                         controls=node.controls, outputs=[(kind, shape)], source=node).out()  # fmt: skip
        make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
        for _ in width:
            last = make.constant(-1, attrs.dtype("int32"), name="last")
            own = make.add("ExpandDims", [own, last], (*(own.shape or ()), 1), name="whose")
        zero = make.constant(np.zeros(()), kind, name="zero")
        total = collectives.sum(make.add("SelectV2", [own, rows, zero], shape, name="held"))
        if gathered and static:
            total = collectives.own_rows(total, Shard(0))
        elif gathered:
            total = collectives.own_entries(total, make.add("Shape", [asked], (1,), name="asked"))
        graph.retype(node, "Identity", inputs=[total], attrs={"T": kind})

    def _deal_out(self, variable: Node, first: Node, room: tuple[int, ...]) -> None:
        """Replace a variable by one shard per core."""
        graph = self._graph
        shards = [self._shard(variable, core, room) for core in range(self.layout.cores)]
        near = Builder(graph, variable.name, source=variable)
        own = core_argument(near, [shard.out() for shard in shards], "shards", "of_core")
        graph.replace_uses(variable.out(), own, where=lambda use: use.node is not first)
        value, controls = first.inputs[ops.WRITES[first.op].value], first.controls
        make = Builder(graph, variable.name, device=variable.device, source=variable)
        parts = self._parts(make, value, room)
        starts = [make.node("AssignVariableOp", [shard.out(), part], name="first", controls=controls)
                  for shard, part in zip(shards, parts, strict=True)]  # fmt: skip
        graph.retype(first, "NoOp", inputs=[], attrs={}, outputs=[])
        graph.set_controls(first, starts)
        self._save_in_slices(variable, shards)
        graph.replace_control_uses(variable, [])
        graph.remove(variable)

    def _shard(self, variable: Node, core: int, room: tuple[int, ...]) -> Node:
        name = f"{variable.name}/shard_{core}"
        held = {"dtype": variable.attr("dtype"), "shape": room, "container": variable.attr("container", ""),
                "shared_name": f"{variable.attr('shared_name') or variable.name}/shard_{core}",
                TABLE: variable.name, ROWS: self.layout.count(core)}  # fmt: skip
        return self._graph.add(
            "VarHandleOp", name, attrs=held, device=variable.device, outputs=[(_HANDLE, ())], source=variable
        )

    def _parts(self, make: Builder, value: Tensor, room: tuple[int, ...]) -> list[Tensor]:
        """Each core's rows of a whole value, zero-padded to the shard's size."""
        int32, counts = attrs.dtype("int32"), [self.layout.count(core) for core in range(self.layout.cores)]
        sizes, axis = make.constant(counts, int32, name="first/sizes"), make.constant(0, int32, name="first/axis")
        parts = make.node("SplitV", [value, sizes, axis], name="first/rows", shapes=[(count, *room[1:]) for count in counts],
                          num_split=len(counts))  # fmt: skip
        return [padded(make, parts.out(core), count, room, name="first/padded") for core, count in enumerate(counts)]

    def _save_in_slices(self, variable: Node, shards: Iterable[Node]) -> None:
        roles, shape = self._graph.roles, self._table.shape
        whole, held = roles.variables[variable.name], dict(roles.variables)
        del held[variable.name]
        for core, shard in enumerate(shards):
            held[shard.name] = replace(whole, name=shard.name, key=whole.key, slice=self.layout.slice(core, shape))
        self._graph.roles = replace(roles, variables=held)


TABLE = "_tpugraph_table"
"""Attribute of a shard: the name of the whole variable in the plain graph."""

ROWS = "_tpugraph_rows"
"""Attribute of a shard: the number of rows of the whole variable that it holds. Further rows are padding."""


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are sharded: contiguous blocks of equal size, a smaller one on the last core."""

    rows: int
    cores: int

    @property
    def piece(self) -> int:
        return -(-self.rows // self.cores)

    @property
    def room(self) -> int:
        """The rows of a shard's variable: one more than it holds, a target for updates of other cores' rows."""
        return self.piece + 1

    def start(self, core: int) -> int:
        return core * self.piece

    def count(self, core: int) -> int:
        return min(self.piece, self.rows - self.start(core))

    def slice(self, core: int, shape: Sequence[int]) -> str:
        """A core's slice as checkpoints write it: the whole shape, then first row and number of rows."""
        return f"{' '.join(map(str, shape))} {self.start(core)},{self.count(core)}{':-' * (len(shape) - 1)}"


@dataclass(frozen=True)
class ShardedTable:
    """A table that was sharded."""

    variables: tuple[str, ...]
    rows: int
    rows_per_core: int
    bytes_per_core: int  # of table and slots on one core
    bytes: int  # of table and slots unsharded
    sums: tuple[str, ...]  # the all-reduces of lookups
    local: tuple[str, ...]  # the nodes that hold a core's rows here and all rows in the plain graph


@dataclass(frozen=True)
class ShardedTables:
    """The sharded tables; ``whole`` has, by name, why other large tables are replicated."""

    least_bytes: int = 0
    tables: Mapping[str, ShardedTable] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)


def table_of(variable: Node) -> str:
    """The name of a variable in the plain graph: for a shard that of its table."""
    name: str = variable.attr(TABLE, variable.name)
    return name


def shards_of(graph: Graph) -> dict[str, list[Node]]:
    """The shards of each table in the order of the cores, by the table's name in the plain graph."""
    found: dict[str, list[Node]] = {}
    for node in graph.of_type(*ops.RESOURCE_VARIABLES):
        if node.has_attr(TABLE):
            found.setdefault(node.attr(TABLE), []).append(node)
    return found


def padded(make: Builder, rows: Tensor, count: int, room: Sequence[int], *, name: str) -> Tensor:
    """``count`` rows, zero-padded to ``room`` rows, the shape of a shard."""
    padding = make.constant(
        [[0, room[0] - count], *[[0, 0]] * (len(room) - 1)], attrs.dtype("int32"), name=f"{name}/padding"
    )
    return make.add("Pad", [rows, padding], tuple(room), name=name)


FIRST, LAST = -(2**31), 2**31 - 1
"""The range of row indices that cores exchange."""


class OwnNumbers:
    """Translates a table's row indices to local ones."""

    def __init__(self, graph: Graph, collectives: Collectives, layout: Layout) -> None:
        self._graph = graph
        self._collectives = collectives
        self._layout = layout
        self._made: dict[Tensor, tuple[Tensor, Tensor]] = {}

    def of(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Local row indices, and which of them are this core's (bool), both in the shape of ``numbers``.

        A row of another core gets the index of the padding row. An index out of the table's range stays out of range: the
        shard fails on it where the whole table would.
        """
        if numbers not in self._made:
            self._made[numbers] = self._make(numbers)
        return self._made[numbers]

    def exchanged(self, numbers: Tensor) -> Tensor:
        """Row indices as int32; those out of its range or of the table's become the largest int32."""
        if numbers.dtype != attrs.dtype("int64"):
            return numbers
        kind, shape, make = numbers.dtype, numbers.shape, self._builder(numbers)
        least = make.add("Maximum", [numbers, make.constant(FIRST, kind, name="least")], shape, name="from_least")
        return make.add("Minimum", [least, make.constant(LAST, kind, name="most")], shape, name="to_most")

    def _builder(self, numbers: Tensor) -> Builder:
        return Builder(self._graph, f"{numbers.node.name}/own", marks={CLUSTER_ATTR: CLUSTER}, source=numbers.node)

    def _make(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        kind, shape, make = numbers.dtype, numbers.shape, self._builder(numbers)
        valid = _within(make, numbers, make.constant(self._layout.rows, kind, name="rows"))
        piece = make.constant(self._layout.piece, kind, name="piece")
        core = self._collectives.cast(self._collectives.own_id(numbers), kind)
        local = make.add("Sub", [numbers, make.add("Mul", [core, piece], (), name="start")], shape, name="local")
        own = make.add("LogicalAnd", [valid, _within(make, local, piece)], shape, name="own")
        foreign = make.add("SelectV2", [valid, piece, numbers], shape, name="foreign")
        return make.add("SelectV2", [own, local, foreign], shape, name="numbers"), own


def _within(make: Builder, numbers: Tensor, end: Tensor) -> Tensor:
    """Whether 0 <= number < end, elementwise."""
    zero = make.constant(0, numbers.dtype, name="first")
    least = make.add("GreaterEqual", [numbers, zero], numbers.shape)
    return make.add("LogicalAnd", [least, make.add("Less", [numbers, end], numbers.shape)], numbers.shape)
