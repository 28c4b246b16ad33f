"""The sizes that nodes with rows are told, and the constants that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis.placements import Entries, Shard
from tpugraph.ir import Node, Tensor
from tpugraph.ir.attrs import Shape
from tpugraph.rebatch.following import PROBE, Following
from tpugraph.rebatch.refusing import TRACE
from tpugraph.rewrite.local_sizes import LocalSizes
from tpugraph.spmd import factors
from tpugraph.spmd.placing import Placing
from tpugraph.support.errors import ShapeError


class ScaledSizes(LocalSizes):
    """Lets the size operands of one layer follow; it is :class:`LocalSizes` with more rows in place of a core's own."""

    def __init__(self, following: Following, placing: Placing) -> None:
        super().__init__(placing, None)  # type: ignore[arg-type]  # no node is made
        self.following = following

    def own(self, size: int) -> int:
        """The size at the other batch: scaled in the dimensions that follow."""
        return size * PROBE

    def follow(self) -> None:
        """Let the constants follow that hold the sizes of what has rows."""
        for node in self.placing.order:
            if node.outputs:
                self._resize(node)
                self._tell_elements(node)

    def _tell(self, node: Node, index: int, shape: Shape, made: Shard) -> None:
        operand = node.inputs[index]
        if self.placing.read(operand) == Entries("shape"):
            return
        told = factors.integers(operand) or []
        groups = [p for p, size in enumerate(told) if size == -1 and p < made.axis and shape and shape[p] == 1]
        if node.op in ops.RESHAPES and groups and operand.node not in self.following.changes:
            raise ShapeError(f"'{node.name}' ({node.op}) puts rows into groups {told}: whether there are more groups or larger "
                             "ones with another batch is not known", node=node, origin=self.graph.source, fix=TRACE)  # fmt: skip
        self._follow(node, operand, made.axis)

    def _set(self, node: Node, index: int, value: np.ndarray[Any, Any]) -> None:
        old = factors.integers(node.inputs[index]) or []
        for place, (size, new) in enumerate(zip(old, np.ravel(value).tolist(), strict=False)):
            if size != new:
                self._follow(node, node.inputs[index], place)

    def _resize_strided(self, node: Node, rows: Shard, *, gradient: bool) -> None:
        shape = self._shapes[node][0] if gradient else node.inputs[0].shape
        for axis, target, place in factors.sliced_places(node, len(shape or ())) or ():
            for index, mask in ((1, "begin_mask"), (2, "end_mask")):
                bounds = factors.integers(node.inputs[index])
                unmasked = place is not None and not int(node.attr(mask, 0)) >> place & 1
                if (
                    (target if gradient else axis) == rows.axis
                    and unmasked
                    and bounds is not None
                    and bounds[place or 0]
                ):
                    self._follow(node, node.inputs[index], place or 0)

    def _tell_elements(self, node: Node) -> None:
        before = dict(node.raw_attrs)
        super()._tell_elements(node)
        self.following.opened |= {
            (node.name, name): value for name, value in node.raw_attrs.items() if before.get(name) is not value
        }

    def _follow(self, node: Node, operand: Tensor, place: int) -> None:
        if not self.following.follow_size(
            operand, place, f"the sizes of '{node.name}' ({node.op}), which has rows of the batch"
        ):
            value = factors.integers(operand)
            raise ShapeError(f"'{node.name}' ({node.op}) is told its rows by '{operand.node.name}', where no constant is found that "
                             f"holds them{'' if value is None else f': {value}'}", node=node, origin=self.graph.source,
                             fix=TRACE)  # fmt: skip


def missing_sizes(following: Following) -> None:
    """Let the constants follow that hold the sizes of what has rows.

    Raises:
        ShapeError: one is not found.
    """
    for layer in following.layers:
        sizes = ScaledSizes(following, layer)
        for tensor, placement in layer.seeds.items():  # seeds count as made by their nodes
            layer.flow.facts.setdefault(tensor, placement)
        sizes.follow()
