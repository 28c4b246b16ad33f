"""The placement analysis: where every value of the step lives, and where an op asks for it to live elsewhere.

Placements flow forward from the input and the variables, by a rule for each op (:mod:`tpugraph.analysis.placement_rules`), to
a fixpoint through loops. A rule gives the placements of an op's outputs and what it *wants* of its operands; a want that
differs from what an operand is becomes a collective, inserted by the pass ``cross-replica-sum``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dataflow import Solver
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placements import (
    REPLICATE,
    SIZED,
    Entries,
    Held,
    Partial,
    Placement,
    Replicate,
    Shard,
    Sized,
    is_size,
    join_two,
)
from tpugraph.analysis.rules import Rules
from tpugraph.analysis.sizes import Known, Poly, depends_on_data, follows_batch, known
from tpugraph.analysis.sizes_on_cores import beside_sizes, is_told, of_each
from tpugraph.ir import Graph, Node, Tensor


@dataclass(slots=True)
class Verdict:
    """What a rule says of a node.

    Attributes:
        outputs: the placement of each output.
        wants: by number of operand, how the node reads it where that differs from what it is.
        averaged: the outputs that are means over the cores: they are scaled by one over their number.
        why: the rule in words.
    """

    outputs: Sequence[Placement | None]
    wants: dict[int, Placement] = field(default_factory=dict)
    averaged: tuple[int, ...] = ()
    why: str = ""


Rule = Callable[["Placing", Node, "list[Placement]"], Verdict]
RULES: Rules[Rule] = Rules()
"""How op types are partitioned of which their signature does not say it."""

rule = RULES.rule
"""Registers a rule."""


class Placing:
    """The analysis.

    Args:
        graph: the graph, with shapes.
        order: the nodes to analyse, in topological order.
        dimensions: which dimensions follow the batch.
        seeds: the placements of tensors that come from elsewhere.
        policies: what the user chose: ``batch_norm``.

    Attributes:
        verdicts: of each node what its rule said last.
        met: tensors of which every reader reads the replicated value, made once behind them.
        pinned: nodes that read all operands replicated, whatever their rule says.
    """

    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        dimensions: Dimensions,
        seeds: Mapping[Tensor, Placement],
        *,
        policies: Mapping[str, str] | None = None,
    ) -> None:
        self.graph = graph
        self.order = order
        self.d = dimensions
        self.policies = dict(policies or {})
        self.seeds = dict(seeds)
        self.met: dict[Tensor, None] = {}
        self.pinned: set[Node] = set()
        self.unreached = False
        self.flow: Solver[Placement, Verdict] = Solver(order, self._apply, fixed=self.seeds)
        self.verdicts, self._placed, self._position = self.flow.said, self.flow.facts, self.flow.position
        self.held: dict[str, Placement] = {}
        self._readers: dict[str, dict[Node, None]] = {}

    # ------------------------------------------------------------------ answers

    def made(self, tensor: Tensor) -> Placement | None:
        """How a tensor comes out of its node; None where no value reached it."""
        return self._placed.get(tensor)

    def read(self, tensor: Tensor) -> Placement | None:
        """How readers see a tensor: replicated where it is reduced behind its node."""
        if self.met and tensor in self.met:
            return REPLICATE
        placed = self._placed.get(tensor)
        if placed is not None:
            return placed
        if tensor in self.seeds:
            return self.seeds[tensor]
        if tensor.node in self._position:
            return self._constant(tensor) if tensor.node.op in ops.CONSTANTS else None
        return self._constant(tensor) if tensor.node.op in ops.CONSTANTS else REPLICATE

    def is_zero(self, tensor: Tensor) -> bool:
        """Whether a tensor holds nothing but zeros, which live anywhere."""
        level = self.d.level(tensor)
        return level is not None and level == 0

    def sizes(self, tensor: Tensor) -> list[Known] | None:
        """The elements of a tensor that is made of sizes; None where one is not known."""
        if is_told(self.d, tensor):
            return None
        return [self.final(e) for e in self.d.elements(tensor) or ()]

    def final(self, size: object) -> Known:
        """What a size is in the end: what nothing speaks for being the batch is a number of the model."""
        found = known(size)  # type: ignore[arg-type]
        return found if found is not None else int(self.d.sizes.at(size))  # type: ignore[arg-type]

    def dims(self, tensor: Tensor) -> list[Known] | None:
        """The dimensions of a tensor."""
        dims = self.d.dims(tensor)
        return None if dims is None else [self.final(s) for s in dims]

    def rank(self, tensor: Tensor) -> int:
        """The number of dimensions."""
        dims = self.d.dims(tensor)
        if dims is not None:
            return len(dims)
        return len(tensor.shape or ())

    # ------------------------------------------------------------------ solving

    def solve(self) -> None:
        """Carry placements forward until nothing changes."""
        self.flow.forget()
        self.held.clear()
        self.unreached = False
        self.flow.wake(self.order)
        self.flow.run()
        self._reach_rest()

    def meet(self, tensors: Iterable[Tensor]) -> None:
        """Let all readers of some tensors read the replicated value, and follow what comes of it."""
        new = dict.fromkeys(tensors)
        self.met |= new
        if self.held or any(node.op in ops.MERGE for node in self.order):
            self.solve()  # what goes round a loop would keep itself alive
            return
        self.flow.wake(use.node for t in new for use in t.node.uses(t.port))
        self.flow.run()

    def _reach_rest(self) -> None:
        """What no value reached, as a container that nothing is put into, is the same everywhere."""
        self.unreached = True
        self.flow.wake(node for node in self.order if node not in self.verdicts)
        self.flow.run()

    def _apply(self, node: Node) -> Verdict | None:
        count = len(node.outputs or ())
        if node.op in ops.CONSTANTS:
            return Verdict([self._constant(node.out())])
        seen = [self.read(t) for t in node.inputs]
        inputs = seen
        if any(s is None for s in seen):
            joins = node.op in ops.MERGE
            if all(s is None for s in seen) if joins else not self.unreached:
                return None
            inputs = seen if joins else [REPLICATE if s is None else s for s in seen]
        if node in self.pinned:
            return self.everywhere(node, inputs, "asked for by what reads it")  # type: ignore[arg-type]
        sizes = self._made_of_sizes(node)
        real = bool(node.outputs) and node.out().dtype.floating  # a number, and no size: that of all cores counts
        if sizes is not False and not real and node.op in _OF_SIZES and _of_entries(inputs):
            return Verdict([Entries("shape")] * count, why="a size of entries")
        whole = all(isinstance(s, Replicate) for s in inputs)
        if sizes and whole and any(map(depends_on_data, self.d.elements(node.out()) or ())):
            return Verdict([REPLICATE] * count, why="the size of what all cores hold, of which data tell a part")
        if sizes and node.op in ops.CONTENTS and is_told(self.d, node.out()):
            return RULES.of(node.op)(self, node, inputs)  # type: ignore[arg-type]  # those of a core, or of all: as it was given
        if sizes is not None and node.op not in ops.BROADCAST_AXES and (sizes or any(map(is_size, inputs))):
            made = SIZED if sizes else REPLICATE
            wants = dict(beside_sizes(self.d, node, inputs, made))
            return Verdict(of_each(self.d, node, inputs, made), wants, why="made of sizes")
        return RULES.of(node.op)(self, node, inputs)  # type: ignore[arg-type]

    def everywhere(self, node: Node, inputs: Sequence[Placement], why: str) -> Verdict:
        """Every core runs the node on whole operands."""
        wants: dict[int, Placement] = {}
        for index, placement in enumerate(inputs):
            if not isinstance(placement, Replicate | Held) and not self.is_shape_operand(node, index, placement):
                wants[index] = REPLICATE
        return Verdict([REPLICATE] * len(node.outputs or ()), wants, why=why)

    def is_shape_operand(self, node: Node, index: int, placement: Placement) -> bool:
        """Whether an operand is a size that is written anew where the output is whole."""
        return isinstance(placement, Sized) and index in ops.record(node.op).size_operands(len(node.inputs))

    def _made_of_sizes(self, node: Node) -> bool | None:
        """Of outputs whose numbers are all known when the graph is converted, whether some follow the batch; else None."""
        if not node.outputs or node.op in ops.RANGES:
            return None
        follows = False
        for port in range(len(node.outputs)):
            elements = self.d.elements(node.out(port))
            if elements is None:
                return None
            some = any(e is not None and follows_batch(e) for e in elements)
            if any(map(depends_on_data, elements)) and not some:
                return None
            follows = follows or some
        return None if not follows and self._divides_by_rows(node) else follows

    def _divides_by_rows(self, node: Node) -> bool:
        """Whether a node divides numbers of the model by numbers of rows, which need not make whole numbers."""
        if node.op not in ops.DIVISIONS:
            return False
        first, second = ([self.final(e) for e in self.d.elements(t) or () if e is not None] for t in node.inputs[:2])
        return any(map(follows_batch, second)) and not any(map(follows_batch, first))

    def _constant(self, tensor: Tensor) -> Placement:
        elements = self.d.elements(tensor)
        if elements and any(e is not None and follows_batch(e) for e in elements):
            return SIZED
        axes = self.d.axes(tensor)
        if not axes:
            return REPLICATE
        return shard_of(self.dims(tensor) or [], axes[0]) or REPLICATE

    # ------------------------------------------------------------------ containers

    def put(self, node: Node, handle: Placement, element: Placement | None) -> Placement | None:
        """Say that a container is given an element; returns how it holds its elements, None where that cannot be joined."""
        if not isinstance(handle, Held) or element is None:
            return element
        self._readers.setdefault(handle.key, {})[node] = None
        before = self.held.get(handle.key)
        joined = element if before is None else join_two(before, element)
        if handle.of is not None:  # the gradients of what a container holds have the shapes of that
            self._readers.setdefault(handle.of, {})[node] = None
            forward = self.held.get(handle.of)
            if isinstance(forward, Shard) or (isinstance(joined, Shard) and forward is not None):
                joined = forward if isinstance(forward, Shard) else REPLICATE
        if joined is not None and joined != before:
            self.held[handle.key] = joined
            self.flow.wake(self._readers.get(handle.key, ()))
        return joined if joined is not None else REPLICATE

    def take(self, node: Node, handle: Placement) -> Placement | None:
        """How a container holds its elements; None as long as none was put in."""
        if not isinstance(handle, Held):
            return REPLICATE
        self._readers.setdefault(handle.key, {})[node] = None
        found = self.held.get(handle.key)
        return REPLICATE if found is None and self.unreached else found

    def users(self, key: str) -> list[Node]:
        """The nodes that put elements into a container, or take them out."""
        return list(self._readers.get(key, ()))


_ARITHMETIC = ops.computing(np.add, np.subtract, np.multiply, np.floor_divide, np.maximum, np.minimum, np.asarray)
_PUT_TOGETHER = ops.PICKS | ops.PACKS | ops.CONCATS | ops.DYNAMIC_STITCHES | ops.SLICES
_OF_SIZES = _ARITHMETIC | _PUT_TOGETHER | ops.reducing("prod") | ops.SHAPED_ANEW - ops.RESHAPES
"""Ops that compute sizes of others."""


def _of_entries(inputs: Sequence[Placement | None]) -> bool:
    """Whether operands are sizes of entries, and numbers that are the same everywhere."""
    return Entries("shape") in inputs and all(s == Entries("shape") or isinstance(s, Replicate | Sized) for s in inputs)


def shard_of(dims: Sequence[Known], axis: int) -> Shard | None:
    """The placement of rows along a dimension that holds whole rows; None where it holds no whole number of them."""
    size = dims[axis]
    if isinstance(size, Poly) and len(size.c) == 2 and size.c[0] == 0 and size.c[1] == int(size.c[1]) > 0:
        return Shard(axis, 1, int(size.c[1]))
    return None


__all__ = ["RULES", "Entries", "Partial", "Placing", "Verdict", "constant", "rule", "shard_of"]
