"""The copies of replica-varying nodes, one per emulated core."""

from __future__ import annotations

from tpugraph.ir import Node, Tensor


class Copies:
    """The copies of the replica-varying nodes: one node per core."""

    def __init__(self, count: int, of: dict[Node, list[Node]]) -> None:
        self.count = count
        self._of = of
        self._core = {copy: core for nodes in of.values() for core, copy in enumerate(nodes)}

    def nodes(self, node: Node) -> list[Node]:
        """The node of each core; the same node N times where it is replicated."""
        return self._of.get(node) or [node] * self.count

    def tensor(self, tensor: Tensor, core: int) -> Tensor:
        """The tensor of one core."""
        return Tensor(self.nodes(tensor.node)[core], tensor.port)

    def varies(self, node: Node) -> bool:
        """Whether the node exists once per core."""
        return node in self._of

    def core_of(self, node: Node) -> int:
        """The core that a copy belongs to; 0 for a replicated node."""
        return self._core.get(node, 0)

    def cores(self) -> dict[Node, int]:
        """The core of every copy."""
        return dict(self._core)
