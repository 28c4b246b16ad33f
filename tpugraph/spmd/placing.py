"""Propagates placements: how every value of the step is distributed over the cores, and how each node reads its operands.

Placements flow forward from the input by one rule per op type (:mod:`tpugraph.spmd.rules`), to a fixpoint through loops. A rule
gives the placement of each output, and of each operand that the node needs in another placement: there a collective is
inserted (:mod:`tpugraph.rewrite`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpugraph import ops
from tpugraph.analysis.dataflow import Rules, Solver
from tpugraph.analysis.placements import REPLICATE, Entries, Held, Partial, Placement, Replicate, Shard
from tpugraph.ir import Graph, Node, Tensor


@dataclass(slots=True)
class Verdict:
    """The result of a rule for one node."""

    outputs: Sequence[Placement | None]  # the placement of each output; None where no operand has one yet
    # by operand, the placement that the node needs, where the operand has another one
    wants: dict[int, Placement] = field(default_factory=dict)
    # outputs that are means over this core's rows, to be divided by the number of cores
    averaged: tuple[int, ...] = ()
    why: str = ""  # the rule in words
    cuts: tuple[int, ...] = ()  # outputs that every core computes whole and then slices


VALUES = Entries("values")
"""Ragged rows: a data-dependent number per row of this core, in order."""
COUNT = Entries("shape")
"""The number of this core's ragged rows, or the shape of a tensor of these, whose first element is that number."""

Rule = Callable[["Placing", Node, "list[Placement]"], Verdict]
RULES: Rules[Rule] = Rules()
"""The rules of op types whose signature does not suffice."""
rule = RULES.rule


class Placing:
    """The placements of one step.

    Args:
        policies: ``batch_norm`` and ``random``, as the user chose.
    """

    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        cores: int,
        seeds: Mapping[Tensor, Placement],
        *,
        policies: Mapping[str, str] | None = None,
    ) -> None:
        self.graph = graph
        self.order = order
        self.cores = cores
        self.seeds = dict(seeds)
        self.policies = dict(policies or {})
        # partial values that are reduced right behind their node, for all readers
        self.reduced: dict[Tensor, None] = {}
        # random ops where each core draws only its own rows, with their shard
        self.drawn: dict[Node, Shard] = {}
        self.held: dict[str, Placement] = {}  # by container, the placement of its elements
        # how often the operands of a merge had incompatible placements
        self.disagreements: Counter[Node] = Counter()
        self.flow: Solver[Placement, Verdict] = Solver(order, self._apply, fixed=self.seeds)
        self.verdicts, self._placed = self.flow.said, self.flow.facts
        self._users: dict[str, dict[Node, None]] = {}
        self._unreached = False

    def made(self, tensor: Tensor) -> Placement | None:
        """The placement of a tensor as its node produces it; None where it has none yet."""
        return self._placed.get(tensor)

    def read(self, tensor: Tensor) -> Placement | None:
        """The placement of a tensor as readers see it: replicated where it is reduced behind its node."""
        if tensor in self.reduced:
            return REPLICATE
        found = self._placed.get(tensor) or self.seeds.get(tensor)
        if found is not None:
            return found
        inside = tensor.node in self.flow.position and tensor.node.op not in ops.CONSTANTS
        return None if inside else REPLICATE

    def solve(self) -> None:
        """Propagate until nothing changes."""
        self.flow.forget()
        self.held.clear()
        self.disagreements.clear()
        self._unreached = False
        self.flow.wake(self.order)
        self.flow.run()
        self._unreached = True  # values without a placement, such as an empty container, are replicated
        self.flow.wake(node for node in self.order if node not in self.verdicts)
        self.flow.run()

    def reduce_at(self, tensors: Iterable[Tensor]) -> None:
        """Reduce some partial values right behind their nodes."""
        new = dict.fromkeys(tensors)
        self.reduced |= new
        if self.held or any(node.op in ops.MERGE for node in self.order):
            self.solve()  # loop-carried placements would keep themselves alive
            return
        self.flow.wake(use.node for tensor in new for use in tensor.node.uses(tensor.port))
        self.flow.run()

    def replicate_operands(self, node: Node, inputs: Sequence[Placement], why: str) -> Verdict:
        """The verdict that every core runs the node on whole operands."""
        return Verdict([REPLICATE] * len(node.outputs or ()), whole(inputs), why=why)

    def _apply(self, node: Node) -> Verdict | None:
        seen = [self.read(tensor) for tensor in node.inputs]
        joins = node.op in ops.MERGE
        if any(placement is None for placement in seen):
            if all(placement is None for placement in seen) if joins else not self._unreached:
                return None
            seen = seen if joins else [REPLICATE if placement is None else placement for placement in seen]
        verdict = RULES.of(node.op)(self, node, seen)  # type: ignore[arg-type]
        verdict.wants = {i: want for i, want in verdict.wants.items() if want != seen[i]}
        return verdict

    def write_element(self, node: Node, handle: Placement, element: Placement) -> Placement:
        """Record an element written into a container; returns the placement of the container's elements."""
        if not isinstance(handle, Held):
            return REPLICATE
        self._users.setdefault(handle.key, {})[node] = None
        before = self.held.get(handle.key)
        joined = element if before is None else join(before, element)
        if handle.of is not None:  # gradients have the placement of their forward values
            self._users.setdefault(handle.of, {})[node] = None
            forward = self.held.get(handle.of)
            if isinstance(forward, Shard) or (isinstance(joined, Shard) and forward is not None):
                joined = forward if isinstance(forward, Shard) else REPLICATE
        if joined != before:
            self.held[handle.key] = joined
            self.flow.wake(self._users[handle.key])
        return joined

    def read_element(self, node: Node, handle: Placement) -> Placement | None:
        """The placement of a container's elements; None while it has none."""
        if not isinstance(handle, Held):
            return REPLICATE
        self._users.setdefault(handle.key, {})[node] = None
        found = self.held.get(handle.key)
        return REPLICATE if found is None and self._unreached else found

    def users(self, key: str) -> list[Node]:
        """The nodes that write or read elements of a container."""
        return list(self._users.get(key, ()))


def whole(inputs: Sequence[Placement], *kept: int) -> dict[int, Placement]:
    """The wants of a node that reads its operands replicated, except ``kept`` and the handles of containers."""
    return {i: REPLICATE for i, s in enumerate(inputs) if i not in kept and not isinstance(s, Held)}


def join(a: Placement, b: Placement) -> Placement:
    """The common placement of two: shards and partials win over replicated values; incompatible ones are replicated."""
    if a == b:
        return a
    if isinstance(a, Replicate):
        a, b = b, a
    return a if isinstance(b, Replicate) and isinstance(a, Shard | Partial | Entries) else REPLICATE
