"""The sizes that nodes with rows are told, and the constants that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph.analysis.placements import Shard
from tpugraph.ir import Node, Tensor
from tpugraph.rebatch.following import PROBE, Following
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
        """As many times the size as the batch is larger."""
        return size * PROBE

    def follow(self) -> None:
        """Let the constants follow that hold the sizes of what has rows."""
        for node in self.placing.order:
            if node.outputs:
                self._resize(node)
                self._tell_elements(node)

    def _set(self, node: Node, index: int, value: np.ndarray[Any, Any]) -> None:
        operand, new = node.inputs[index], np.ravel(value).tolist()
        old = factors.vector(operand) or []
        for place, size in enumerate(old):
            if size != -1 and size != new[place]:
                self._follow(node, operand, place)

    def _tell_open(self, node: Node, index: int, made: Shard) -> None:
        if factors.vector(node.inputs[index]) is not None:
            self._follow(node, node.inputs[index], made.axis)

    def _follow(self, node: Node, operand: Tensor, place: int) -> None:
        if not self.following.follow_size(operand, place, f"the sizes of '{node.name}' ({node.op}), which has rows of the batch"):
            value = factors.integers(operand)
            raise ShapeError(f"'{node.name}' ({node.op}) is told its rows by '{operand.node.name}', where no constant is found that "
                             f"holds them{'' if value is None else f': {value}'}", node=node, origin=self.graph.source,
                             fix="trace the graph with the batch that you want")  # fmt: skip


def missing_sizes(following: Following) -> None:
    """Let the constants follow that hold the sizes of what has rows.

    Raises:
        ShapeError: one is not found.
    """
    for layer in following.layers:
        ScaledSizes(following, _with_seeds(layer)).follow()


def _with_seeds(layer: Placing) -> Placing:
    """The layer, whose seeds count as made by their nodes."""
    for tensor, placement in layer.seeds.items():
        layer.flow.facts.setdefault(tensor, placement)
    return layer


