"""Nodes with the links between them: lookup by name and op type, orders, and what depends on what."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import count

from tpugraph import ops
from tpugraph.ir.countdown import Countdown, cycle_error
from tpugraph.ir.node import PLACE, Node, Tensor, Use, Wait, assign
from tpugraph.support.errors import GraphError

_new = tuple.__new__  # a third of the time of Use(...), which counts where every edge of a graph is made


class Links:
    """The half of a graph that is read; :class:`tpugraph.ir.Graph` adds the edits."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._next_suffix: dict[str, int] = {}
        self._of_op: dict[str, dict[Node, None]] = {}
        self._places = count()
        self._waits: dict[tuple[Node, ...], Wait] = {}

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
        found.sort(key=PLACE)
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
        countdown = Countdown(None if nodes is None else chosen)
        waiting: dict[Node, int] = {}
        ready: deque[Node] = deque()
        held: deque[Node] = deque()
        for node in chosen:
            producers = [producer for producer, _ in node.inputs]
            if node.op in ops.MERGE:
                producers = [p for p in producers if p.op not in ops.NEXT_ITERATION]
            edges = len(producers) if nodes is None else len([p for p in producers if p in chosen])
            edges += node._wait is not None and countdown.pending(node, node._wait)
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
            if node._awaited:
                consumers += countdown.released(node)
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
            raise cycle_error(waiting)
        return order

    def check_order(self) -> None:
        """See that there is an order; the quick way to ask that of all nodes.

        Raises:
            GraphError: a cycle that is no loop; the message names its nodes.
        """
        countdown = Countdown(None)
        waiting = {node: len(node.inputs) for node in self._nodes.values()}
        for wait in self._waits.values():
            for node in wait.nodes:
                waiting[node] += countdown.pending(node, wait)
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
            for consumer in countdown.released(node) if node._awaited else ():
                if closes and consumer.op in ops.MERGE:
                    continue
                waiting[consumer] = edges = waiting[consumer] - 1
                if not edges:
                    ready.append(consumer)
        if len(ready) < len(waiting):
            raise cycle_error({node: edges for node, edges in waiting.items() if edges})

    def ancestors(self, nodes: Iterable[Node], *, data_only: bool = False) -> dict[Node, None]:
        """The nodes and all that they depend on (a dict used as an ordered set)."""
        seen = dict.fromkeys(nodes)
        stack = list(seen)
        walked: set[Wait] = set()
        while stack:
            node = stack.pop()
            for producer, _ in node.inputs:
                if producer not in seen:
                    seen[producer] = None
                    stack.append(producer)
            wait = node._wait
            if data_only or wait is None or wait in walked:
                continue
            walked.add(wait)
            for control in wait.controls:
                if control not in seen:
                    seen[control] = None
                    stack.append(control)
        return seen

    def descendants(
        self, nodes: Iterable[Node], *, data_only: bool = False, until: Container[str] = ()
    ) -> dict[Node, None]:
        """The nodes and all that depends on them (a dict used as an ordered set).

        Args:
            nodes: where the walk begins.
            data_only: whether control edges are left out.
            until: op types that the walk finds and does not go past.
        """
        seen = dict.fromkeys(nodes)
        stack = list(seen)
        walked: set[Wait] = set()
        while stack:
            node = stack.pop()
            if node.op in until:
                continue
            for consumer, _ in node._uses:
                if consumer not in seen:
                    seen[consumer] = None
                    stack.append(consumer)
            if data_only or not node._awaited:
                continue
            for wait in node._awaited.keys() - walked:
                walked.add(wait)
                for waiting in wait.nodes:
                    if waiting not in seen:
                        seen[waiting] = None
                        stack.append(waiting)
        return seen

    # ------------------------------------------------------------------ links, for edits

    def _insert(self, node: Node) -> None:
        self._nodes[node.name] = node
        assign(node, "_place", next(self._places))
        self._of_op.setdefault(node.op, {})[node] = None

    def _drop(self, node: Node) -> None:
        self._unlink(node)
        del self._nodes[node.name]
        del self._of_op[node.op][node]

    def _drop_all(self, nodes: Mapping[Node, None]) -> None:
        """Drop nodes that nothing else uses."""
        for node in nodes:
            for index, (producer, _) in enumerate(node.inputs):
                if producer not in nodes:
                    producer._uses.pop(_new(Use, (node, index)), None)
            node._uses.clear()
            assign(node, "inputs", ())
            self._stop_waiting(node)
            del self._nodes[node.name]
            del self._of_op[node.op][node]

    def _set_op(self, node: Node, op: str) -> None:
        del self._of_op[node.op][node]
        self._of_op.setdefault(op, {})[node] = None
        assign(node, "op", op)

    def _link(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> None:
        assign(node, "inputs", inputs)
        for index, (producer, port) in enumerate(inputs):
            producer._uses[_new(Use, (node, index))] = port
        if not controls:
            return
        wait = self._waits.get(controls)
        if wait is None:
            wait = self._waits[controls] = Wait(controls)
            for control in controls:
                control._awaited[wait] = None
        assign(node, "controls", wait.controls)
        assign(node, "_wait", wait)
        wait.nodes[node] = None

    def _unlink(self, node: Node) -> None:
        for index, tensor in enumerate(node.inputs):
            tensor.node._uses.pop(_new(Use, (node, index)), None)
        assign(node, "inputs", ())
        self._stop_waiting(node)

    def _stop_waiting(self, node: Node) -> None:
        wait = node._wait
        if wait is None:
            return
        assign(node, "controls", ())
        assign(node, "_wait", None)
        del wait.nodes[node]
        if not wait.nodes:
            del self._waits[wait.controls]
            for control in wait.controls:
                del control._awaited[wait]

    def _check_members(self, nodes: Iterable[Node], what: str) -> None:
        for node in nodes:
            if self._nodes.get(node.name) is not node:
                raise GraphError(f"{what}: the node is not in this graph", node=node)
