"""The dataflow engine: facts about tensors are carried forward along the graph until nothing changes.

An analysis is a lattice of facts and a *transfer*: what a node says of its outputs, given the facts of its operands. The
engine visits nodes in topological order, and a node again only when a fact that it reads has changed; a Merge, which
joins what meets there, may be visited before all that it reads is known, and so facts go round a loop. What a node said
last stays with its reason, so that every fact can be explained.
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
    """What a transfer says of a node."""

    @property
    def outputs(self) -> Sequence[Known | None]:
        """The fact of each output; None leaves what is known of it as it is."""

    @property
    def why(self) -> str:
        """The rule in words."""


Said = TypeVar("Said", bound=Statement[object])


@dataclass(frozen=True, slots=True)
class Says(Generic[Fact]):
    """A statement with nothing beside it."""

    outputs: Sequence[Fact | None]
    why: str = ""


class Solver(Generic[Fact, Said]):
    """One analysis being solved: the facts of tensors, and what each node ``said`` last, a :class:`Statement` with its reason.

    ``transfer`` says nothing of a node where too little is known of its operands. ``fixed`` are facts from elsewhere, whatever the
    nodes say.
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
        """Take back all that was found."""
        self.facts.clear()
        self.said.clear()

    def wake(self, nodes: Iterable[Node]) -> None:
        """Have nodes visited, again where they were; those outside of the analysis are passed over."""
        position, queued = self.position, self._queued
        for node in nodes:
            place = position.get(node)
            if place is not None and place not in queued:
                queued.add(place)
                heapq.heappush(self._queue, place)

    def run(self) -> None:
        """Visit the nodes that are awake, and all that their facts reach, until nothing changes."""
        while self._queue:
            place = heapq.heappop(self._queue)
            self._queued.discard(place)
            node = self.order[place]
            said = self._transfer(node)
            if said is not None:
                self.said[node] = said
                self._tell(node, said)

    def _tell(self, node: Node, said: Said) -> None:
        """Keep the facts that are new, and wake their readers."""
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
    """The rules of an analysis by op type; one registered for no op type is that for all others."""

    def rule(self, names: str) -> Callable[[_Rule], _Rule]:
        """Register a function for op types, whose names are separated by spaces; each has one rule."""

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
"""A rule of a demand-driven analysis: it yields the questions that it needs answered, so that there is no recursion."""
Question = tuple[Rule, Tensor]
Answer = Generator[Question, Any, Any]


def ask(rule: Rule, tensor: Tensor, known: dict[Question, Any] | None = None) -> Any:
    """The answer that a rule gives for a tensor; a question that comes back to itself, as in a loop, is answered with None there.

    ``known`` are answers to begin with and to add to; they hold for as long as the graph is not edited.
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
