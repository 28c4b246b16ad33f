"""Converts ref variables to resource variables."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis import races
from tpugraph.analysis.races import Writes
from tpugraph.analysis.state import written_variables
from tpugraph.analysis.step import OrderedRaces
from tpugraph.ir import Graph, Node, Tensor, Use, attrs
from tpugraph.ir.walks import reached, variable_of
from tpugraph.rewrite.step_nodes import remove_unread
from tpugraph.tpu.pipeline import Pass

_HANDLE = attrs.dtype("resource")


@dataclass(frozen=True)
class ResourceVariables(Pass):
    """Every variable is a resource variable under its old name, and each read sees exactly the writes that it followed.

    A reference is dereferenced when its consumer runs: each consumer that follows a write gets a read of its own after that
    write. A read that follows no write is ordered before the first one. In a training step, a read that is unordered with a write
    comes first, or with step_order=writes_first the write does.
    """

    requires = ("roles_known",)
    ensures = ("resource_variables",)
    gives = (OrderedRaces,)
    step_order: str = races.READS_FIRST

    def run(self, graph: Graph) -> None:
        if graph.roles.mode == "train":
            roots = [graph[name] for name in graph.roles.roots]
            graph.keep(races.settle(graph, roots, self.step_order, in_branches_alone=True))
        if variables := graph.of_type(*ops.REF_VARIABLES):
            _convert(graph, variables)
        for node in graph.of_type(*ops.REF_CONTROL_FLOW):
            graph.retype(node, node.op.removeprefix("Ref"))  # a read, where a write forwarded its reference
        for variable in graph.of_type(*ops.RESOURCE_VARIABLES):  # a handle needs no control inputs
            graph.replace_control_uses(variable, variable.controls)
            graph.set_controls(variable, ())
        _order_reads(graph)


def _convert(graph: Graph, variables: list[Node]) -> None:
    """Convert ref variables, with all nodes that read, write and forward them."""
    writes = Writes(graph)
    references = _references(graph)
    left: list[Node] = []
    for variable in variables:
        left += ReferenceReads(graph, variable, writes, references).convert()
    for node in references:
        held = {key: value for key, value in node.raw_attrs.items() if key[0] != "_"}
        graph.retype(node, node.op.removeprefix("Ref"), attrs=held | {"T": _HANDLE})
    remove_unread(graph, left)
    for variable in variables:
        _retype_variable(graph, variable)


def _references(graph: Graph) -> dict[Node, None]:
    """Nodes that forward a reference: RefSwitch, RefEnter and so on, but not Identity, which dereferences it."""

    def forwards_it(use: Use) -> bool:
        if use.node.op in ops.MERGE and any(t.node.op in ops.WRITES for t in use.node.inputs):
            return False  # it merges values
        return use.index == 0 and (use.node.op.startswith("Ref") or use.node.op in ops.ENTER | ops.SWITCH)

    variables = graph.of_type(*ops.REF_VARIABLES)
    found = reached(variables, lambda node: (use.node for use in node.uses() if forwards_it(use)))
    return {node: None for node in found if node.op not in ops.REF_VARIABLES}


def _retype_variable(graph: Graph, node: Node) -> None:
    attributes = {key: node.raw_attrs[key] for key in ("container", "dtype", "shape") if key in node.raw_attrs}
    graph.retype(
        node,
        "VarHandleOp",
        attrs=attributes | {"shared_name": node.attr("shared_name") or node.name},
        outputs=[(_HANDLE, ())],
    )


def _order_reads(graph: Graph) -> None:
    """Order each unconditional read before the writes, outside of loops, that it does not follow."""
    roles = graph.roles
    step = graph.ancestors([graph[name] for name in (*roles.roots, *(f.name for f in roles.summaries))])
    fixed: dict[Node, list[Node]] = {}
    for node in graph.of_type(*ops.READS, *ops.GATHERS):
        if node in step and node.inputs[0].node.op in ops.RESOURCE_VARIABLES and not node.controls:
            fixed.setdefault(node.inputs[0].node, []).append(node)
    if not fixed:
        return
    maybe = analysis.conditional(graph)
    writes = dict.fromkeys(graph.of_type(*ops.WRITES))
    order = {node: i for i, node in enumerate(graph.topological_order(step, last=writes))}
    for write in writes:
        if write not in step or (write in maybe and analysis.frames(graph)[write]):
            continue  # only an Enter may lead into a loop
        for variable in dict.fromkeys(written_variables(write)):
            for read in fixed.get(variable, ()):
                # Edges that agree with one topological order cannot close a cycle.
                if read not in maybe and order[read] < order[write]:
                    graph.add_control(write, read)


class ReferenceReads:
    """Rewrites the reads and writes of one ref variable; ``references`` are the nodes that forward a reference."""

    def __init__(self, graph: Graph, variable: Node, writes: Writes, references: dict[Node, None]) -> None:
        self.graph = graph
        self.variable = variable
        self.writes = writes
        self.references = references
        self.kind = variable.attr("dtype")
        self.shape = variable.attr("shape")
        self._left: list[Node] = []
        self._reads: dict[tuple[Tensor, frozenset[Node]], Node] = {}

    def convert(self) -> list[Node]:
        """Convert the variable; returns the reads that lost a reader to a new read."""
        handles = [self.variable.out()]
        for handle in handles:  # grows while it is walked
            for use in handle.node.uses(handle.port):
                if use.node in self.references and use.index == 0:
                    handles.extend(use.node.out(port) for port in use.node.used_ports())
                elif use.node.op in ops.WRITES and use.index in ops.WRITES[use.node.op].variables:
                    self._take_result(use.node, handle)
                elif use.node.op in ops.INITIALIZED:
                    self.graph.retype(use.node, ops.INITIALIZED[use.node.op], attrs={})
                elif use.node.op in ops.IDENTITIES:
                    self._convert_identity(use.node, handle)
                else:
                    self.graph.set_input(use.node, use.index, self._read(handle, use).out())
        return self._left

    def _take_result(self, write: Node, handle: Tensor) -> None:
        """A ref write forwards its reference; a resource write has no output, so its readers read the variable."""
        writes = [write]
        for held in writes:  # grows while it is walked
            for use in held.uses(0):
                if use.node.op in ops.WRITES and use.index in ops.WRITES[use.node.op].variables:
                    self.graph.set_input(use.node, use.index, handle)
                    self.graph.add_control(use.node, held)
                    writes.append(use.node)
                elif use.node.op in ops.IDENTITIES:
                    self.graph.add_control(use.node, held)
                    self._convert_identity(use.node, handle)
                else:
                    self.graph.set_input(use.node, use.index, self._read(handle, use).out())
                    if use.node.op in ops.SWITCH:
                        self._forward_alias(handle, use.node)
        for held in reversed(writes):
            if held.op in ops.TO_RESOURCE and variable_of(held.inputs[0]) is self.variable:
                _retype_write(self.graph, held)

    def _convert_identity(self, node: Node, handle: Tensor) -> None:
        """An Identity of a reference aliases the variable, so each of its readers sees the writes that the reader follows."""
        self._forward_alias(handle, node)
        self.graph.retype(
            node, "ReadVariableOp", inputs=[handle], attrs={"dtype": self.kind}, outputs=[(self.kind, self.shape)]
        )

    def _forward_alias(self, handle: Tensor, node: Node) -> None:
        """Order each reader of a value after the writes that it follows; a Switch forwards the alias."""
        stack = [node]
        while stack:
            node = stack.pop()
            followed = self.writes.before(node, self.variable)
            for use in node.uses():
                if self.writes.before_read(use, self.variable) != followed:
                    self.graph.set_input(use.node, use.index, self._read(handle, use).out())
                    self._left.append(node)
                if use.node.op in ops.SWITCH and use.index == 0:
                    stack.append(use.node)

    def _read(self, handle: Tensor, use: Use) -> Node:
        waits = self.writes.waits(use, self.variable)
        key = (handle, frozenset(waits))
        if key not in self._reads:
            read = self._reads[key] = self.graph.add(
                "ReadVariableOp", f"{self.variable.name}/Read", [handle], controls=waits, attrs={"dtype": self.kind},
                device=self.variable.device, outputs=[(self.kind, self.shape)], source=self.variable,
            )  # fmt: skip
            self.writes.follow(read, waits)
        return self._reads[key]


def _retype_write(graph: Graph, node: Node) -> None:
    op = ops.TO_RESOURCE[node.op]
    held = {"dtype": node.raw_attrs.get("T"), **node.raw_attrs}
    wanted = {key: held[key] for key in ops.attr_names(op) if held.get(key) is not None}
    graph.retype(node, op, attrs=wanted, outputs=[])
