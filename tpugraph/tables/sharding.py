"""A table dealt out to the cores: each looks up and updates those rows that it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, NodeSet, cluster_nodes, replica_varying, signatures
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.rewrite.collectives import Collectives
from tpugraph.rewrite.row_updates import distinct_by, only_counts, total_of
from tpugraph.tables.own_numbers import OwnNumbers
from tpugraph.tables.row_tables import NotByRows, RowTable
from tpugraph.tables.shards import ROWS, TABLE, Layout, padded

_HANDLE = attrs.dtype("resource")


def check_updates(graph: Graph, table: RowTable) -> None:
    """See that every core knows the whole of each update of a table.

    Raises:
        NotByRows: an update differs between cores.
    """
    varying = replica_varying(graph)
    for node in (*table.steps, *table.dense):
        if node in varying:
            raise NotByRows(f"'{node.name}' ({node.op}) writes what differs between cores")


class Sharding:
    """Deals a table out.

    Args:
        graph: the graph, whose cores have combined what they have to.
        table: the table.
        collectives: makes what the cores combine.

    Attributes:
        layout: how the rows are dealt out.
        local: the nodes of the plain graph whose values are no longer those of all rows, but of the core's own.
    """

    def __init__(self, graph: Graph, table: RowTable, collectives: Collectives) -> None:
        self._graph = graph
        self._table = table
        self._collectives = collectives
        self.layout = Layout(table.shape[0], collectives.count)
        self.local: NodeSet = dict(table.wide)
        self._numbers = OwnNumbers(graph, collectives, self.layout)

    def apply(self) -> None:
        """Rewrite the graph."""
        # what comes from the host is none of them: each core is fed its own
        alike = cluster_nodes(self._graph).keys() - replica_varying(self._graph).keys()
        distinct = self._localise_updates()
        for node in self._table.lookups:
            if node.inputs[1].node not in distinct:  # else they are numbers of this core already
                self._look_up(node, gathered=node.inputs[1].node not in alike)
        room = (self.layout.room, *self._table.shape[1:])
        for node in self._table.wide:
            self._graph.set_outputs(node, [(kind, room) for kind, _ in node.outputs or ()])
        for variable, first in self._table.variables.items():
            self._deal_out(variable, first, room)

    # ------------------------------------------------------------------ updates

    def _localise_updates(self) -> dict[Node, None]:
        """Give updates the core's own numbers; returns the nodes that find distinct numbers, of the core's own from now on."""
        distinct: dict[Node, None] = {}
        for step in self._table.steps:
            index = ops.WRITES[step.op].rows or 0
            numbers = step.inputs[index]
            unique = distinct_by(numbers)
            if unique in distinct:
                continue
            behind = None if unique is None else self._made_of_distinct(unique)
            if unique is not None and behind is not None:
                distinct[unique] = None
                self.local |= behind
                self._graph.set_input(unique, 0, self._numbers.of(unique.inputs[0])[0])
            else:
                self._graph.set_input(step, index, self._numbers.of(numbers)[0])
        return distinct

    def _made_of_distinct(self, unique: Node) -> NodeSet | None:
        """What is made of distinct numbers, and of the sums by these, row by row; None where that leads to more than the table."""
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
        before = self._graph.ancestors([total], data_only=True)  # among them what counts the distinct numbers
        return {**seen, **{node: None for node in self._graph.descendants([unique], data_only=True) if node in before}}

    # ------------------------------------------------------------------ lookups

    def _look_up(self, node: Node, *, gathered: bool) -> None:
        """Let the core gather what it holds of the rows that all cores ask for, and take its own of the sum over the cores."""
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

    # ------------------------------------------------------------------ variables

    def _deal_out(self, variable: Node, first: Node, room: tuple[int, ...]) -> None:
        """Put a variable of each core in the place of a whole one."""
        graph = self._graph
        shards = [self._shard(variable, core, room) for core in range(self.layout.cores)]
        given = graph.add("TPUReplicatedInput", f"{variable.name}/shards", [shard.out() for shard in shards],
                          attrs={"N": len(shards), "T": _HANDLE}, outputs=[(_HANDLE, ())], source=variable)  # fmt: skip
        own = graph.add("Identity", f"{variable.name}/of_core", [given.out()], outputs=[(_HANDLE, ())], source=variable,
                        attrs={"T": _HANDLE, "_tpu_input_identity": True, CLUSTER_ATTR: CLUSTER})  # fmt: skip
        graph.replace_uses(variable.out(), own.out(), where=lambda use: use.node is not first)
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
        """Each core's rows of a whole value, with zeros in the room behind them."""
        int32, counts = attrs.dtype("int32"), [self.layout.count(core) for core in range(self.layout.cores)]
        sizes, axis = make.constant(counts, int32, name="first/sizes"), make.constant(0, int32, name="first/axis")
        parts = make.node("SplitV", [value, sizes, axis], name="first/rows", shapes=[(count, *room[1:]) for count in counts],
                          num_split=len(counts))  # fmt: skip
        return [padded(make, parts.out(core), count, room, name="first/padded") for core, count in enumerate(counts)]

    def _save_in_slices(self, variable: Node, shards: Iterable[Node]) -> None:
        """Let checkpoints have the rows of each core as a slice of the whole variable."""
        roles, shape = self._graph.roles, self._table.shape
        whole, held = roles.variables[variable.name], dict(roles.variables)
        del held[variable.name]
        for core, shard in enumerate(shards):
            held[shard.name] = replace(whole, name=shard.name, key=whole.key, slice=self.layout.slice(core, shape))
        self._graph.roles = replace(roles, variables=held)
