"""What reads and writes a ref variable, rewritten for a resource variable: each read sees exactly the writes it followed."""

from __future__ import annotations

from functools import cache

from tpugraph import ops
from tpugraph.analysis.races import Writes
from tpugraph.ir import Graph, Node, Tensor, Use
from tpugraph.ir.walks import variable_of


class ReferenceReads:
    """Rewrites what reads and writes one variable.

    Args:
        graph: the graph.
        variable: the ref variable.
        writes: which writes each read follows.
        references: the nodes that hand on a reference.
    """

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
        """Convert them all; returns the reads that lost a reader to a read of its own."""
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
        """A ref write hands its reference on; a resource write has no output, so its readers read the variable."""
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
                        self._hand_on(handle, use.node)
        for held in reversed(writes):
            if held.op in ops.TO_RESOURCE and variable_of(held.inputs[0]) is self.variable:
                _retype_write(self.graph, held)

    def _convert_identity(self, node: Node, handle: Tensor) -> None:
        """A snapshot in name only: it shares the variable's memory, so each reader sees what it follows."""
        self._hand_on(handle, node)
        self.graph.retype(
            node, "ReadVariableOp", inputs=[handle], attrs={"dtype": self.kind}, outputs=[(self.kind, self.shape)]
        )

    def _hand_on(self, handle: Tensor, node: Node) -> None:
        """Give each reader of a value the writes that it follows; a Switch hands the variable's memory on."""
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
                "ReadVariableOp",
                f"{self.variable.name}/Read",
                [handle],
                controls=waits,
                attrs={"dtype": self.kind},
                device=self.variable.device,
                outputs=[(self.kind, self.shape)],
                source=self.variable,
            )
            self.writes.follow(read, waits)
        return self._reads[key]


def _retype_write(graph: Graph, node: Node) -> None:
    op = ops.TO_RESOURCE[node.op]
    wanted = _attributes_of(op)
    held = dict(node.raw_attrs)
    if "dtype" in wanted and "T" in held:
        held["dtype"] = held["T"]
    graph.retype(node, op, attrs={key: value for key, value in held.items() if key in wanted}, outputs=[])


@cache
def _attributes_of(op: str) -> frozenset[str]:
    return frozenset(attribute.name for attribute in ops.op_def(op).attr)
