"""The hosts of a session and which has what: the tasks that replicas run on, and copies of what lies outside the loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.ir import Graph, Node


@dataclass
class Hosts:
    """The hosts of a session, and the nodes that are not on the first one.

    Attributes:
        devices: the device of each host; replicas are dealt out in order, as many to each.
        replicas: number of replicas over all hosts.
        key: of the group of hosts; no other session has the same.
        collectives: whether the hosts can sum by collectives; else the sums are made on the first one.
        at: host of a node; the first host, or every one, for a node that is not in it.
        copies: of each host but the first, its copy of a node outside the loop.
    """

    devices: tuple[str, ...]
    replicas: int
    key: int = 1
    collectives: bool = True
    at: dict[Node, int] = field(default_factory=dict)
    copies: dict[int, dict[Node, Node]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of hosts."""
        return len(self.devices)

    @property
    def cores(self) -> int:
        """Number of cores of each host."""
        return self.replicas // self.count

    @property
    def others(self) -> range:
        """All hosts but the first."""
        return range(1, self.count)

    def of_core(self, core: int) -> int:
        """The host that a replica runs on."""
        return core // self.cores

    def put(self, nodes: Iterable[Node], host: int) -> None:
        """Have nodes on a host."""
        self.at.update(dict.fromkeys(nodes, host))

    def copy_outside(self, graph: Graph, node: Node, host: int) -> Node:
        """A host's own copy of a node outside the loop and of all that leads to it; tables are initialised there."""
        known = self.copies.setdefault(host, {})
        if node in known:
            return known[node]
        chosen = [n for n in graph.ancestors([node]) if n not in known]
        made = graph.clone_subgraph(
            chosen, lambda name: f"{name}/host_{host}", replace_controls={n: [c] for n, c in known.items()}
        )
        for copy in made.values():
            for index, tensor in enumerate(copy.inputs):
                if tensor.node in known:
                    graph.set_input(copy, index, known[tensor.node].out(tensor.port))
        known.update(made)
        self.put(made.values(), host)
        for table in [n for n in made if n.op in ops.TABLES]:
            for use in table.uses():
                if use.node.op in ops.TABLE_INITIALIZERS:
                    self._also(graph, use.node, host)
        return made[node]

    def copy_iterator(self, graph: Graph, iterator: Node, maker: Node, host: int) -> Node:
        """A host's own copy of an iterator and of what makes it, dataset and all."""
        self._also(graph, maker, host)
        return self.copies[host][iterator]

    def _also(self, graph: Graph, initializer: Node, host: int) -> None:
        """Let what waits for an initializer wait for the host's own as well."""
        waiting = [node for node in initializer.control_uses() if node not in self.at]
        made = self.copy_outside(graph, initializer, host)
        for node in waiting:
            graph.add_control(node, made)
