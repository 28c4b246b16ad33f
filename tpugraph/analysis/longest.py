"""How long a dimension may be of which only data say how long it is: at most as long as that which it was cut out of.

What is laid one behind the other has at most as many places as all of that has together, and so has what a mask finds there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tpugraph import ops
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.placements import Entries, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, Size, Unknown, depends_on_data
from tpugraph.ir import Node, Tensor


class Longest:
    """Bounds of sizes that data tell, found once for a graph.

    Args:
        placing: the analysis, which knows which dimensions have one size.
        count: number of cores.
    """

    def __init__(self, placing: Placing, count: int) -> None:
        self._placing, self._count, self._most = placing, count, dict[Unknown, int]()
        for node in placing.d.of_type(ops.SLICES):
            for cut, whole in _cuts(placing, node):
                self._note(cut, self.of_size(whole))
        for kinds, in_all in ((ops.RESHAPES, False), (ops.PLACES_OF_TRUE, True)):
            for node in placing.d.of_type(kinds):
                made = placing.d.dims(node.out())
                if made and isinstance(placing.made(node.out()), Entries):
                    self._note(made[0], self._of_list(node, () if in_all else made[1:]))

    def _note(self, size: Size, most: int | None) -> None:
        if most is not None and isinstance(size, Unknown) and depends_on_data(size):
            self._most[size.root()] = min(most, self._most.get(size.root(), most))

    def _of_list(self, node: Node, apart: Sequence[Size]) -> int | None:
        """The most entries of a core in a list that a reshape lays, with dimensions behind it, or that a mask finds in a tensor.

        Along one dimension a core has its own rows, or entries; along others there are those of all cores.
        """
        placement, rows = self._placing.read(node.inputs[0]), self._placing.d.rows
        own = placement.axis if isinstance(placement, Shard) else 0
        held = [
            self._most_here(size, rows if axis == own else rows * self._count)
            for axis, size in enumerate(self._placing.d.dims(node.inputs[0]) or (Unknown(-1),))
        ]
        each = math.prod(self._most_here(size, rows * self._count) or 1 for size in apart)
        return None if None in held else math.prod(size or 0 for size in held) // each

    def _most_here(self, size: Size, rows: int) -> int | None:
        told = self._placing.final(size)
        return told.at(rows) if isinstance(told, Poly) else self.of_size(size)

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
