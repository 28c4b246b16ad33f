"""How long a dimension may be of which only data say how long it is: at most as long as that which it was cut out of."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, depends_on_data
from tpugraph.ir import Node, Tensor


class Longest:
    """Bounds of sizes that data tell, found once for a graph.

    Args:
        placing: the analysis, which knows which dimensions have one size.
    """

    def __init__(self, placing: Placing) -> None:
        self._placing, self._most = placing, dict[Unknown, int]()
        for node in placing.d.of_type(ops.SLICES):
            for cut, whole in _cuts(placing, node):
                self._note(cut, whole)

    def _note(self, cut: Size, whole: Size) -> None:
        most = self.of_size(whole)
        if most is not None and isinstance(cut, Unknown) and depends_on_data(cut):
            self._most[cut.root()] = min(most, self._most.get(cut.root(), most))

    def of_size(self, size: Size) -> int | None:
        """The most places that a dimension has; None where nothing bounds it, or it follows the batch."""
        if isinstance(size, Unknown) and depends_on_data(size):
            return self._most.get(size.root())
        told = self._placing.final(size)
        return told if isinstance(told, int) else None

    def of(self, tensor: Tensor, axis: int) -> int | None:
        """The most places that a dimension of a tensor has; None where nothing bounds it, or it follows the batch."""
        dims = self._placing.d.dims(tensor) or ()
        return self.of_size(dims[axis]) if axis < len(dims) else None


def _cuts(placing: Placing, node: Node) -> Iterator[tuple[Size, Size]]:
    """The dimensions of what a slice takes, each with the one that it is taken out of."""
    whole, cut = (placing.d.dims(t) or () for t in (node.inputs[0], node.out()))
    if not node.has_attr("shrink_axis_mask"):
        yield from zip(cut, whole, strict=False)
        return
    for axis, made, _ in places(node, len(whole)) if whole else ():
        if axis is not None and made is not None and made < len(cut):
            yield cut[made], whole[axis]
