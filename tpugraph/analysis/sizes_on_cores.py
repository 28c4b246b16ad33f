"""How numbers live on the cores that are made of sizes: those of what a core holds, or of what all of them hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placements import REPLICATE, Partial, Placement, Replicate, is_size
from tpugraph.analysis.sizes import depends_on_data
from tpugraph.ir import Node, Tensor


def of_each(d: Dimensions, node: Node, inputs: Sequence[Placement | None], made: Placement) -> list[Placement | None]:
    """How each output lives; the shape of what all cores hold, of which data tell a part, is one number everywhere."""
    count = len(node.outputs or ())
    if not len(node.inputs) == count > 1:
        return [made] * count
    told = [any(map(depends_on_data, d.elements(node.out(port)) or ())) for port in range(count)]
    return [REPLICATE if told[i] and isinstance(s, Replicate) else made for i, s in enumerate(inputs)]


def beside_sizes(
    d: Dimensions, node: Node, inputs: Sequence[Placement | None], made: Placement
) -> Mapping[int, Placement]:
    """What is wanted of numbers beside sizes that are none: that of all cores. So of a shape that data tell, of a number."""
    unknown = any(None in (d.elements(node.out(port)) or ()) for port in range(len(node.outputs or ())))
    sized = [i for i, s in enumerate(inputs) if is_size(s)]
    told = made == REPLICATE and any(is_told(d, node.inputs[i]) for i in sized)
    parts = [i for i, s in enumerate(inputs) if unknown and isinstance(s, Partial)]
    return dict.fromkeys([*parts, *(sized if told else ())], REPLICATE)


def is_told(d: Dimensions, sizes: Tensor) -> bool:
    """Whether data tell an element of a tensor that is made of sizes, or nothing does: no constant can be written for it."""
    elements = d.elements(sizes)
    return elements is None or any(map(depends_on_data, elements))
