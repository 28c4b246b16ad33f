"""Which writes of variables come before a node, whatever else the executor runs at the same time."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.ir import Graph, Node, Use
from tpugraph.state import written_variables


class Writes:
    """Which writes each node follows, as bit sets over all writes of the graph."""

    def __init__(self, graph: Graph) -> None:
        following = graph.descendants(graph.of_type(*ops.WRITES))
        order = graph.topological_order(node for node in graph if node in following)
        self.nodes = [node for node in order if node.op in ops.WRITES]
        self.targets = {node: written_variables(node) for node in self.nodes}
        self._bit = {node: 1 << i for i, node in enumerate(self.nodes)}
        self.of_variable: dict[Node, int] = {}
        for node in self.nodes:
            for variable in self.targets[node]:
                self.of_variable[variable] = self.of_variable.get(variable, 0) | self._bit[node]
        self._before: dict[Node, int] = {}
        for node in order:
            seen = 0
            for producer in node.producers():
                seen |= self._before.get(producer, 0) | self._bit.get(producer, 0)
            if seen:
                self._before[node] = seen

    def bit(self, node: Node) -> int:
        """The set that holds this write alone; 0 where the node is no write."""
        return self._bit.get(node, 0)

    def before(self, node: Node, variable: Node) -> int:
        """The writes of ``variable`` that ``node`` follows."""
        return self._before.get(node, 0) & self.of_variable.get(variable, 0)

    def before_read(self, use: Use, variable: Node) -> int:
        """The writes of ``variable`` that a read follows; a Merge takes what one branch read, after its own writes."""
        if use.node.op not in ops.MERGE:
            return self.before(use.node, variable)
        source = use.node.inputs[use.index].node
        return (self._before.get(source, 0) | self._bit.get(source, 0)) & self.of_variable.get(variable, 0)

    def listed(self, bits: int) -> list[Node]:
        """The writes in a bit set."""
        return [node for i, node in enumerate(self.nodes) if bits >> i & 1]
