"""The numbers that bound what an op takes, or puts around something: where the whole batch is, and where a core's own rows are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Known, Poly, at
from tpugraph.ir import Node
from tpugraph.partition.scaled_shapes import told_of

PARTS = ops.PADS | ops.SLICES | ops.SLICE_GRADIENTS
"""Ops that are told, of each dimension, what they take of it, or put around it."""


@dataclass(frozen=True)
class ToldBounds:
    """What bounds the nodes of one step on so many cores.

    Attributes:
        placing: the solved analysis.
        count: number of cores.
    """

    placing: Placing
    count: int

    def numbers(self, node: Node, sizes: list[Known], *, whole: bool) -> list[int]:
        """Sizes where the whole batch is, in numbers; along the dimension of a core's own rows they are those of the core."""
        rows = self.placing.d.rows
        own = self._places_of_own_rows(node) if whole else ()
        return [at(s, rows * self.count if whole and place not in own else rows) for place, s in enumerate(sizes)]

    def from_end(self, node: Node, operand: int, sizes: list[Known]) -> list[Known]:
        """The numbers of an operand, those that count a bound of a slice from the end as the shapes of the whole batch say.

        A number below zero in a constant is no size, so that nothing ties it to what is left of a dimension behind the rows.
        """
        if (
            not node.has_attr("shrink_axis_mask")
            or operand not in (_BEGIN, _END)
            or min(map(_least, sizes), default=0) >= 0
        ):
            return sizes
        gradient = node.op in ops.SLICE_GRADIENTS
        whole, part = (t.shape for t in ((node.out(), node.inputs[-1]) if gradient else (node.inputs[0], node.out())))
        if whole is None or part is None or None in (*whole, *part):
            return sizes
        found = list(sizes)
        for axis, target, place in places(node, len(whole)):
            if axis is None or target is None or place < 0 or _least(sizes[place]) >= 0:
                continue
            other = self._bound(node, _END if operand == _BEGIN else _BEGIN, place, int(whole[axis] or 0))
            if other is not None:
                taken = int(part[target] or 0)
                found[place] = other + (-taken if operand == _BEGIN else taken) - int(whole[axis] or 0)
        return found

    def _bound(self, node: Node, operand: int, place: int, whole: int) -> int | None:
        """Where a slice by steps of one begins, or ends, in what holds the whole batch; None where that is not known."""
        name = "begin" if operand == _BEGIN else "end"
        if int(node.attr(f"{name}_mask", 0)) >> place & 1:
            return 0 if operand == _BEGIN else whole
        sizes, steps = self.placing.sizes(node.inputs[operand]), fixed(node.inputs[3])
        if not sizes or not steps or steps[place] != 1:
            return None
        bound = at(sizes[place], self.placing.d.rows * self.count)
        return bound if bound >= 0 else bound + whole

    def of_other_dimensions(self, node: Node) -> bool:
        """Whether rows are cut, or padded, along another dimension by numbers of all rows, as scores of rows beside others are."""
        if node.op not in PARTS or not isinstance(self.placing.made(node.out()), Shard):
            return False
        own, operands = self._places_of_own_rows(node), ops.record(node.op).size_operands(len(node.inputs))
        bounds = [told_of(self.placing, node.inputs[index]) for index in operands]
        return any(isinstance(size, Poly) and place not in own for told in bounds for place, size in enumerate(told))

    def _places_of_own_rows(self, node: Node) -> Collection[int]:
        """Which of the numbers that bound a slice or a pad speak of the dimension along which a core has its own rows."""
        placement = self.placing.made(node.out())
        if not isinstance(placement, Shard):
            return ()
        if node.op in ops.PADS:
            return (2 * placement.axis, 2 * placement.axis + 1)
        if node.op in ops.SLICE_GRADIENTS:
            found = places(node, self.placing.rank(node.out()))
            return [place for axis, _, place in found if axis == placement.axis and place >= 0]
        if node.op not in ops.SLICES:
            return ()
        rank = self.placing.rank(node.inputs[0])
        if len(ops.record(node.op).size_operands(len(node.inputs))) == 2:  # a begin and a size for each dimension
            return (placement.axis,)
        return [place for _, made, place in places(node, rank) if made == placement.axis and place >= 0]


_BEGIN, _END = 1, 2
"""The operands that bound a slice by steps, and the gradient of one."""


def _least(size: Known) -> int:
    """The number where it follows no batch, else 0."""
    return 0 if isinstance(size, Poly) else size
