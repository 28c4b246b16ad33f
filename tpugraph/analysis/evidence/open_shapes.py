"""Shapes of the forward step with sizes that nothing settled yet: other constants say what these are."""

from __future__ import annotations

from functools import cached_property

from tpugraph import ops
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss, root, unsettled
from tpugraph.analysis.sizes import Unknown
from tpugraph.ir import Node, Tensor


class OpenShapes:
    """The shapes of the forward step, by the sizes that nothing settled yet: other constants say what these are."""

    def __init__(self, d: Dimensions) -> None:
        self._d = d

    @cached_property
    def _by_size(self) -> dict[tuple[int, int, Unknown], list[tuple[Node, Dims]]]:
        """The shapes with so many dimensions that have a size at a place, each with its node."""
        found: dict[tuple[int, int, Unknown], list[tuple[Node, Dims]]] = {}
        constants = dict.fromkeys(self._d.of_type(ops.CONSTANTS))
        for node in leading_to_loss(self._d):
            ports = range(len(node.outputs or ())) if node not in constants else ()
            for dims in filter(None, (self._d.dims(node.out(port)) for port in ports)):
                for place, one in enumerate(map(unsettled, dims)):
                    if one is not None:
                        found.setdefault((len(dims), place, one), []).append((node, dims))
        return found

    def measures(self, elements: Elements) -> bool:
        """Whether a size of a gradient's vector of which nothing is known is one of the forward step: that says what it is."""
        return any(one in self._sizes for one in map(unsettled, elements))

    @cached_property
    def _sizes(self) -> set[Unknown | None]:
        return {one for _, _, one in self._by_size}

    def has(self, tensor: Tensor, elements: Elements) -> bool:
        """Whether a vector is found to be the shape of what is not made of it, which has as many rows as another constant says."""
        opened = {place: one for place, one in enumerate(map(unsettled, elements)) if one is not None}
        if not opened:
            return True  # what another vector said of it settled it
        place, size = next(iter(opened.items()))
        alike = [
            node
            for node, dims in self._by_size.get((len(elements), place, size), ())
            if all(root(dims[place]) is size for place, size in opened.items())
        ]
        made = self._d.graph.descendants([tensor.node], data_only=True) if alike else {}
        return any(node not in made for node in alike)
