"""Values whose size the data decide: which nodes make them, and which of these is behind a node that XLA has no form for."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, Node


class DataSized:
    """The nodes of a cluster whose results have an open shape though what they read has none, and all that follows them.

    Args:
        graph: the cluster alone, its shapes known.

    Attributes:
        fatal: a node at which the bridge ends the process, by name: it appends values whose size the data decide to such as have a
            fixed one; or one that it would compute something else for: it repeats what has one row, if the data say so, beside
            more. None where there is none.
    """

    def __init__(self, graph: Graph) -> None:
        self._followers = {
            node.name: {follower.name for follower in graph.descendants([node], data_only=True)}
            for node in graph
            if node.op not in ops.CONTAINERS | ops.CONTROL_FLOW and _opens(node)
        }
        joined = (n for n in graph.of_type(*ops.CONCATS) if _begins_static(n))
        picked = {name for node in graph.of_type(*_PICKING) for name in self._followers.get(node.name, ())}
        repeated = (n for n in graph.of_type(*ops.ELEMENTWISE) if n.name in picked and _may_repeat(n))
        self.fatal = next((n.name for n in (*filter(self._is_behind, joined), *repeated)), None)

    def _is_behind(self, node: Node) -> bool:
        return self.behind(node.name) != node.name

    def behind(self, name: str) -> str:
        """The first node that decides the size of a node's operands; the node itself where none is known to."""
        return next((source for source, reached in self._followers.items() if name in reached), name)


_PICKING = ops.PLACES_OF_TRUE | ops.SLICES | ops.UNIQUE
"""Ops that take as many of something as data say."""


def _opens(node: Node) -> bool:
    given = (tensor.shape for tensor in node.inputs)
    made = (shape for _, shape in node.outputs or ())
    return not _all_static(made) and _all_static(given)


def _begins_static(node: Node) -> bool:
    first, *others = (node.inputs[i].shape for i in ops.record(node.op).data_operands(len(node.inputs)))
    return shapes.is_static(first) and not _all_static(others)


def _may_repeat(node: Node) -> bool:
    """Whether an open dimension of an operand is that of another one with several places: XLA reads it as just as long."""
    given = [tensor.shape[::-1] for tensor in node.inputs if tensor.shape]
    return any(None in sizes and max(size or 1 for size in sizes) > 1 for sizes in zip_longest(*given, fillvalue=1))


def _all_static(found: Iterable[tuple[int | None, ...] | None]) -> bool:
    return all(shapes.is_static(shape) for shape in found)
