"""Nodes with the links between them: lookup by name and op type, orders, and what depends on what."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, count
from operator import attrgetter

from tpugraph import ops
from tpugraph.errors import GraphError
from tpugraph.nodes import Node, Tensor, Use

_PLACE = attrgetter("_place")
_new = tuple.__new__  # a third of the time of Use(...), which counts where every edge of a graph is made


class Links:
    """The half of a graph that is read; :class:`tpugraph.ir.Graph` adds the edits."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._next_suffix: dict[str, int] = {}
        self._of_op: dict[str, dict[Node, None]] = {}
        self._places = count()
        self._groups: dict[tuple[Node, ...], tuple[Node, ...]] = {}  # nodes that wait for the same ones share a tuple

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))

    def __contains__(self, item: object) -> bool:
        if isinstance(item, str):
            return item in self._nodes
        return isinstance(item, Node) and self._nodes.get(item.name) is item

    def __getitem__(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise GraphError(f"there is no node '{name}'")
        return node

    def get(self, name: str) -> Node | None:
        """The node of that name, or None."""
        return self._nodes.get(name)

    def tensor(self, name: str) -> Tensor:
        """The tensor ``node`` or ``node:port``.

        Raises:
            GraphError: there is no such node.
        """
        node, _, port = name.partition(":")
        return Tensor(self[node], int(port or 0))

    def of_type(self, *types: str) -> list[Node]:
        """The nodes with one of these op types, in graph order."""
        found = [node for op in dict.fromkeys(types) for node in self._of_op.get(op, ())]
        found.sort(key=_PLACE)
        return found

    def fresh_name(self, base: str) -> str:
        """``base`` if free, else ``base_1``, ``base_2`` and so on."""
        if base not in self._nodes:
            return base
        suffix = self._next_suffix.get(base, 1)
        while f"{base}_{suffix}" in self._nodes:
            suffix += 1
        self._next_suffix[base] = suffix + 1
        return f"{base}_{suffix}"

    def topological_order(self, nodes: Iterable[Node] | None = None, *, last: Container[Node] = ()) -> list[Node]:
        """The nodes (all by default) so that each follows what it reads and waits for; loop back edges are ignored.

        Args:
            nodes: the nodes to order.
            last: nodes that come only when nothing else can.

        Raises:
            GraphError: a cycle that is no loop; the message names its nodes.
        """
        chosen = dict.fromkeys(self._nodes.values() if nodes is None else nodes)
        groups = _Groups(None if nodes is None else chosen)
        waiting: dict[Node, int] = {}
        ready: deque[Node] = deque()
        held: deque[Node] = deque()
        for node in chosen:
            producers = [producer for producer, _ in node.inputs]
            if node.op in ops.MERGE:
                producers = [p for p in producers if p.op not in ops.NEXT_ITERATION]
            edges = len(producers) if nodes is None else len([p for p in producers if p in chosen])
            edges += bool(node.controls) and groups.waits(node)
            if edges:
                waiting[node] = edges
            else:
                (held if node in last else ready).append(node)
        order: list[Node] = []
        while ready or held:
            node = ready.popleft() if ready else held.popleft()
            order.append(node)
            closes = node.op in ops.NEXT_ITERATION
            consumers = [consumer for consumer, _ in node._uses]
            if node._control_uses:
                consumers += groups.released(node)
            for consumer in consumers:
                edges = waiting.get(consumer, 0)
                if not edges or (closes and consumer.op in ops.MERGE):
                    continue
                if edges > 1:
                    waiting[consumer] = edges - 1
                else:
                    del waiting[consumer]
                    (held if consumer in last else ready).append(consumer)
        if waiting:
            raise _cycle_error(waiting)
        return order

    def check_order(self) -> None:
        """See that there is an order; the quick way to ask that of all nodes.

        Raises:
            GraphError: a cycle that is no loop; the message names its nodes.
        """
        groups = _Groups(None)
        waiting = {
            node: len(node.inputs) + (bool(node.controls) and groups.waits(node)) for node in self._nodes.values()
        }
        for node in self.of_type(*ops.NEXT_ITERATION):
            for consumer, _ in node._uses:
                if consumer.op in ops.MERGE:
                    waiting[consumer] -= 1
        ready = [node for node, edges in waiting.items() if not edges]
        for node in ready:  # grows while it is walked
            closes = node.op in ops.NEXT_ITERATION
            for consumer, _ in node._uses:
                if closes and consumer.op in ops.MERGE:
                    continue
                waiting[consumer] = edges = waiting[consumer] - 1
                if not edges:
                    ready.append(consumer)
            for consumer in groups.released(node) if node._control_uses else ():
                if closes and consumer.op in ops.MERGE:
                    continue
                waiting[consumer] = edges = waiting[consumer] - 1
                if not edges:
                    ready.append(consumer)
        if len(ready) < len(waiting):
            raise _cycle_error({node: edges for node, edges in waiting.items() if edges})

    def ancestors(self, nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
        """The nodes and all that they depend on (a dict used as an ordered set)."""
        seen = dict.fromkeys(nodes)
        stack = list(seen)
        groups: set[int] = set()
        while stack:
            node = stack.pop()
            for producer, _ in node.inputs:
                if producer not in seen:
                    seen[producer] = None
                    stack.append(producer)
            if data_only or id(node.controls) in groups:
                continue
            groups.add(id(node.controls))
            for control in node.controls:
                if control not in seen:
                    seen[control] = None
                    stack.append(control)
        return seen

    def descendants(self, nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
        """The nodes and all that depends on them (a dict used as an ordered set)."""
        seen = dict.fromkeys(nodes)
        stack = list(seen)
        while stack:
            node = stack.pop()
            for consumer, _ in node._uses:
                if consumer not in seen:
                    seen[consumer] = None
                    stack.append(consumer)
            if data_only:
                continue
            for waiting in node._control_uses:
                if waiting not in seen:
                    seen[waiting] = None
                    stack.append(waiting)
        return seen

    # ------------------------------------------------------------------ links, for edits

    def _insert(self, node: Node) -> None:
        self._nodes[node.name] = node
        node._place = next(self._places)
        self._of_op.setdefault(node.op, {})[node] = None

    def _drop(self, node: Node) -> None:
        self._unlink(node)
        del self._nodes[node.name]
        del self._of_op[node.op][node]

    def _set_op(self, node: Node, op: str) -> None:
        del self._of_op[node.op][node]
        self._of_op.setdefault(op, {})[node] = None
        node.op = op

    def _link(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        node.inputs = inputs
        node.controls = self._groups.setdefault(controls, controls)
        for index, (producer, port) in enumerate(inputs):
            producer._uses[_new(Use, (node, index))] = port
        for control in controls:
            control._control_uses[node] = None

    def _link_all(self, wired: Iterable[tuple[Node, tuple[Tensor, ...], tuple[Node, ...]]]) -> None:
        """Link new nodes; of those that wait for the same ones, each of these takes note at once."""
        waiting: dict[tuple[Node, ...], dict[Node, None]] = {}
        for node, inputs, controls in wired:
            self._link(node, inputs, ())
            if controls:
                node.controls = self._groups.setdefault(controls, controls)
                waiting.setdefault(node.controls, {})[node] = None
        groups_of: dict[Node, list[dict[Node, None]]] = {}
        for controls, nodes in waiting.items():
            for control in controls:
                groups_of.setdefault(control, []).append(nodes)
        for control, groups in groups_of.items():
            first, *others = groups
            control._control_uses = first.copy() if not others else dict.fromkeys(sorted(chain(*groups), key=_PLACE))

    def _unlink(self, node: Node) -> None:
        for index, tensor in enumerate(node.inputs):
            tensor.node._uses.pop(_new(Use, (node, index)), None)
        for control in node.controls:
            control._control_uses.pop(node, None)
        node.inputs = ()
        node.controls = ()

    def _check_members(self, nodes: Iterable[Node], what: str) -> None:
        for node in nodes:
            if self._nodes.get(node.name) is not node:
                raise GraphError(f"{what}: the node is not in this graph", node=node)


class _Groups:
    """The nodes that wait for the same ones, in an order: all of them are released by the last of these.

    Thousands of nodes may wait for hundreds: each that comes is counted once, and not once for each that waits.

    Args:
        chosen: the nodes that are ordered; all where None.
    """

    def __init__(self, chosen: Container[Node] | None) -> None:
        self._chosen = chosen
        self._left: dict[tuple[int, bool], int] = {}  # by the shared tuple: how many are still to come
        self._of: dict[Node, list[tuple[int, bool]]] = {}

    def waits(self, node: Node) -> bool:
        """Whether anything is to come that a node waits for."""
        key = (id(node.controls), node.op in ops.MERGE)
        if key not in self._left:
            chosen = self._chosen
            awaited = [c for c in node.controls if (chosen is None or c in chosen) and not is_back_edge(c, node)]
            self._left[key] = len(awaited)
            for control in awaited:
                self._of.setdefault(control, []).append(key)
        return self._left[key] > 0

    def released(self, control: Node) -> list[Node]:
        """The nodes that wait for nothing any more, now that one more has come."""
        finished = set()
        for key in self._of.get(control, ()):
            self._left[key] -= 1
            if not self._left[key]:
                finished.add(key)
        if not finished:
            return []
        return [n for n in control._control_uses if (id(n.controls), n.op in ops.MERGE) in finished]


def is_back_edge(producer: Node, consumer: Node) -> bool:
    """Whether the edge closes a TF1 loop."""
    return consumer.op in ops.MERGE and producer.op in ops.NEXT_ITERATION


def _cycle_error(waiting: Mapping[Node, int]) -> GraphError:
    node = next(iter(waiting))
    seen: dict[Node, None] = {}
    while node not in seen:
        seen[node] = None
        node = next(p for p in node.producers() if p in waiting and not is_back_edge(p, node))
    path = list(seen)
    cycle = path[path.index(node) :]
    names = " <- ".join(n.name for n in cycle[:6]) + (" <- ..." if len(cycle) > 6 else "")
    return GraphError(
        f"the graph has a cycle that is no loop: {names}",
        node=node,
        fix="break it where the graph is written; a loop needs Merge and NextIteration, as tf.while_loop makes them",
    )
