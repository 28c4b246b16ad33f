"""The dataflow engine: propagates facts about tensors forward through the graph to a fixpoint.

An analysis is a lattice of facts and a *transfer function*, which gives the facts of a node's outputs from those of its
operands. The engine visits nodes in topological order from a worklist, and a node again only when a fact of an operand has
changed; a Merge may be visited before all of its operands have facts, so that facts propagate around loops. A node's last
statement is kept with its reason, so that every fact can be explained.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tpugraph.ir import Node, Tensor

Fact = TypeVar("Fact")
Known = TypeVar("Known", covariant=True)


class Statement(Protocol[Known]):
    """The result of a transfer function for one node."""

    @property
    def outputs(self) -> Sequence[Known | None]:
        """The fact of each output; None leaves it unchanged."""

    @property
    def why(self) -> str:
        """The rule in words."""


Said = TypeVar("Said", bound=Statement[object])


@dataclass(frozen=True, slots=True)
class Says(Generic[Fact]):
    """A statement of output facts alone."""

    outputs: Sequence[Fact | None]
    why: str = ""


class Solver(Generic[Fact, Said]):
    """One analysis being solved: the facts of tensors, and each node's last :class:`Statement`, in ``said``.

    ``transfer`` returns nothing where too little is known of the operands. ``fixed`` are given facts, which override the
    nodes' statements.
    """

    def __init__(
        self, order: Sequence[Node], transfer: Callable[[Node], Said | None], *, fixed: Container[Tensor] = ()
    ) -> None:
        self.order = order
        self.facts: dict[Tensor, Fact] = {}
        self.said: dict[Node, Said] = {}
        self.position = {node: place for place, node in enumerate(order)}
        self._transfer = transfer
        self._fixed = fixed
        self._queue: list[int] = []
        self._queued: set[int] = set()

    def forget(self) -> None:
        self.facts.clear()
        self.said.clear()

    def wake(self, nodes: Iterable[Node]) -> None:
        """Put nodes on the worklist, without those outside of the analysis."""
        position, queued = self.position, self._queued
        for node in nodes:
            place = position.get(node)
            if place is not None and place not in queued:
                queued.add(place)
                heapq.heappush(self._queue, place)

    def run(self) -> None:
        """Process the worklist until it is empty."""
        while self._queue:
            place = heapq.heappop(self._queue)
            self._queued.discard(place)
            node = self.order[place]
            said = self._transfer(node)
            if said is not None:
                self.said[node] = said
                self._tell(node, said)

    def _tell(self, node: Node, said: Said) -> None:
        """Store the facts that changed, and wake their readers."""
        for port, fact in enumerate(said.outputs):
            if fact is None:
                continue
            tensor = node.out(port)
            before = self.facts.get(tensor)
            if before is not fact and before != fact and tensor not in self._fixed:
                self.facts[tensor] = fact  # type: ignore[assignment]
                self.wake([use.node for use in node.uses(port)])


_Rule = TypeVar("_Rule", bound=Callable[..., object])


class Rules(dict[str, _Rule]):
    """The rules of an analysis by op type; one registered without op types is the default."""

    def rule(self, names: str) -> Callable[[_Rule], _Rule]:
        """Register a function for op types, separated by spaces; each has one rule."""

        def register(function: _Rule) -> _Rule:
            kinds = names.split() or [""]
            if ruled := self.keys() & kinds:
                raise ValueError(f"{', '.join(sorted(ruled))} has a rule already")
            self.update(dict.fromkeys(kinds, function))
            return function

        return register

    def of(self, op: str) -> _Rule:
        return self.get(op) or self[""]


Rule = Callable[[Tensor], "Answer"]
"""A rule of a demand-driven analysis: a generator that yields the queries it depends on, which avoids recursion."""
Question = tuple[Rule, Tensor]
Answer = Generator[Question, Any, Any]


def ask(rule: Rule, tensor: Tensor, known: dict[Question, Any] | None = None) -> Any:
    """A rule's answer for a tensor; a query that depends on itself, as in a loop, is answered with None there.

    ``known`` is a cache of answers, valid until the graph is edited.
    """
    known = {} if known is None else known
    first = (rule, tensor)
    asked: dict[Question, None] = {}
    stack: list[tuple[Question, Answer]] = []
    following: Question | None = first
    answer = None
    while True:
        if following is not None:
            if following in known or following in asked:
                answer = known.get(following)
            else:
                asked[following] = None
                stack.append((following, following[0](following[1])))
                answer = None
        if not stack:
            return known[first]
        question, work = stack[-1]
        try:
            following = work.send(answer)
        except StopIteration as end:
            stack.pop()
            del asked[question]
            answer = known[question] = end.value
            following = None
