"""Propagation: where every value of the step lives on the cores, and what each node wants of its operands.

Placements flow forward from the input by one rule for each op type (:mod:`tpugraph.spmd.rules`), to a fixpoint through loops.
A rule gives the placement of each output and, by operand, how the node reads it where that differs from how it lives; a want
becomes a collective (:mod:`tpugraph.rewrite`).
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
    """What a rule says of a node."""

    outputs: Sequence[Placement | None]  # the placement of each output; None where no value has reached it
    # by operand, how the node reads it where that differs from how it lives
    wants: dict[int, Placement] = field(default_factory=dict)
    # the outputs that are means over this core's rows, to be divided by the number of cores
    averaged: tuple[int, ...] = ()
    why: str = ""  # the rule in words
    cuts: tuple[int, ...] = ()  # the outputs that every core computes whole and then slices


VALUES = Entries("values")
"""Ragged rows: as many as data say for each row of this core, in order."""
COUNT = Entries("shape")
"""A number of ragged rows of this core, or the shape of a tensor that holds them: its first element counts them."""

Rule = Callable[["Placing", Node, "list[Placement]"], Verdict]
RULES: Rules[Rule] = Rules()
"""The rules of op types that are not partitioned by their signature alone."""
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
        # partial values that every reader reads replicated: they are reduced once, behind their node
        self.reduced: dict[Tensor, None] = {}
        # random ops whose every use keeps rows apart, with the rows that each core draws
        self.drawn: dict[Node, Shard] = {}
        self.held: dict[str, Placement] = {}  # by container, the placement of its elements
        # how often a merge was given values of placements that do not go together
        self.disagreements: Counter[Node] = Counter()
        self.flow: Solver[Placement, Verdict] = Solver(order, self._apply, fixed=self.seeds)
        self.verdicts, self._placed = self.flow.said, self.flow.facts
        self._users: dict[str, dict[Node, None]] = {}
        self._unreached = False

    def made(self, tensor: Tensor) -> Placement | None:
        """How a tensor comes out of its node; None where no value reached it."""
        return self._placed.get(tensor)

    def read(self, tensor: Tensor) -> Placement | None:
        """How readers see a tensor: replicated where it is reduced behind its node."""
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
        self._unreached = True  # what no value reached, as a container that stays empty, is the same on every core
        self.flow.wake(node for node in self.order if node not in self.verdicts)
        self.flow.run()

    def reduce_at(self, tensors: Iterable[Tensor]) -> None:
        """Let every reader of some partial values read them reduced."""
        new = dict.fromkeys(tensors)
        self.reduced |= new
        if self.held or any(node.op in ops.MERGE for node in self.order):
            self.solve()  # what goes round a loop would keep itself alive
            return
        self.flow.wake(use.node for tensor in new for use in tensor.node.uses(tensor.port))
        self.flow.run()

    def replicate_operands(self, node: Node, inputs: Sequence[Placement], why: str) -> Verdict:
        """Every core runs the node on whole operands."""
        wants: dict[int, Placement] = {
            i: REPLICATE for i, s in enumerate(inputs) if not isinstance(s, Replicate | Held)
        }
        return Verdict([REPLICATE] * len(node.outputs or ()), wants, why=why)

    def _apply(self, node: Node) -> Verdict | None:
        seen = [self.read(tensor) for tensor in node.inputs]
        joins = node.op in ops.MERGE
        if any(placement is None for placement in seen):
            if all(placement is None for placement in seen) if joins else not self._unreached:
                return None
            seen = seen if joins else [REPLICATE if placement is None else placement for placement in seen]
        return RULES.of(node.op)(self, node, seen)  # type: ignore[arg-type]

    def write_element(self, node: Node, handle: Placement, element: Placement) -> Placement:
        """Say that a container is given an element; returns how it holds all of its elements."""
        if not isinstance(handle, Held):
            return REPLICATE
        self._users.setdefault(handle.key, {})[node] = None
        before = self.held.get(handle.key)
        joined = element if before is None else join(before, element)
        if handle.of is not None:  # gradients lie as what they are gradients of
            self._users.setdefault(handle.of, {})[node] = None
            forward = self.held.get(handle.of)
            if isinstance(forward, Shard) or (isinstance(joined, Shard) and forward is not None):
                joined = forward if isinstance(forward, Shard) else REPLICATE
        if joined != before:
            self.held[handle.key] = joined
            self.flow.wake(self._users[handle.key])
        return joined

    def read_element(self, node: Node, handle: Placement) -> Placement | None:
        """How a container holds its elements; None as long as it was given none."""
        if not isinstance(handle, Held):
            return REPLICATE
        self._users.setdefault(handle.key, {})[node] = None
        found = self.held.get(handle.key)
        return REPLICATE if found is None and self._unreached else found

    def users(self, key: str) -> list[Node]:
        """The nodes that write elements of a container, or read them."""
        return list(self._users.get(key, ()))


def join(a: Placement, b: Placement) -> Placement:
    """How values of both placements can live: rows and parts win over what every core holds; what disagrees is replicated."""
    if a == b:
        return a
    if isinstance(a, Replicate):
        a, b = b, a
    return a if isinstance(b, Replicate) and isinstance(a, Shard | Partial | Entries) else REPLICATE
