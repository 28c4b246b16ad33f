"""Which writes of variables come before a node, whatever else the executor runs at the same time."""

from __future__ import annotations

from collections.abc import Iterable

from tpugraph import analysis, ops
from tpugraph.analysis.state import written_variables
from tpugraph.ir import Graph, Node, Use
from tpugraph.ir.conditionals import NONE, sides


class Writes:
    """Which writes each node follows, as bit sets over all writes of the graph."""

    def __init__(self, graph: Graph) -> None:
        self._frame_of, self._sides = analysis.frames(graph), sides(graph)
        following = graph.descendants(graph.of_type(*ops.WRITES))
        loops = any(node.op in ops.NEXT_ITERATION for node in following)
        order = analysis.loop_order(graph, following) if loops else graph.topological_order(following)
        self.nodes = [node for node in order if node.op in ops.WRITES]
        self.targets = {node: written_variables(node) for node in self.nodes}
        self._bit = {node: 1 << i for i, node in enumerate(self.nodes)}
        self.of_variable: dict[Node, int] = {}
        for node in self.nodes:
            for variable in self.targets[node]:
                self.of_variable[variable] = self.of_variable.get(variable, 0) | self._bit[node]
        self._before: dict[Node, int] = {}
        rounds: dict[str, int] = {}  # of a loop: what one round of it writes, which all that leaves the loop follows
        upto: dict[Node, int] = {}  # what comes before a node, and itself
        groups: dict[int, int] = {}  # what comes before all that wait for the same nodes
        for node in order:
            frame = self._frame_of[node]
            seen = rounds.get(frame, 0) if node.op in ops.EXIT else 0
            for producer, _ in node.inputs:
                seen |= upto.get(producer, 0)
            group = id(node.controls)
            if group not in groups:
                groups[group] = 0
                for control in node.controls:
                    groups[group] |= upto.get(control, 0)
            seen |= groups[group]
            if seen:
                self._before[node] = seen
            upto[node] = seen | self._bit.get(node, 0)
            if node.op in ops.NEXT_ITERATION:
                rounds[frame] = rounds.get(frame, 0) | seen

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

    def waits(self, use: Use, variable: Node) -> list[Node]:
        """What a read of ``variable`` for ``use`` waits for, so that it follows the same writes and always runs.

        These are the writes, but a write in a branch may not run, and no edge leads into a loop or out of one. There it is
        where the branches join, or the end or the start of the loop, by which the reader follows the write.
        """
        reader = use.node.inputs[use.index].node if use.node.op in ops.MERGE else use.node
        wanted = self.before_read(use, variable)
        writes = self.listed(wanted)
        if all(self._beside(node, reader) for node in writes):
            return writes
        found: dict[Node, None] = {}
        stack, seen = [reader] if reader is not use.node else list(reader.producers()), {use.node}
        while stack:
            node = stack.pop()
            if node in seen or not (self._before.get(node, 0) | self.bit(node)) & wanted:
                continue
            seen.add(node)
            if self.bit(node) & wanted or node.op in ops.MERGE | ops.EXIT | ops.ENTER:
                found[node] = None
            else:
                stack.extend(node.producers())
        return list(found)

    def _beside(self, write: Node, reader: Node) -> bool:
        """Whether the write always runs where the reader does, and in the same loop."""
        same = self._frame_of.get(write) == self._frame_of.get(reader)
        return same and self._sides.get(write, NONE) <= self._sides.get(reader, NONE)

    def follow(self, node: Node, waits: Iterable[Node]) -> None:
        """Take note of a new node that waits for others."""
        for other in waits:
            self._before[node] = self._before.get(node, 0) | self._before.get(other, 0) | self.bit(other)

    def listed(self, bits: int) -> list[Node]:
        """The writes in a bit set."""
        found = []
        while bits:  # a step has thousands of writes, and few of them are asked for
            lowest = bits & -bits
            found.append(self.nodes[lowest.bit_length() - 1])
            bits ^= lowest
        return found
