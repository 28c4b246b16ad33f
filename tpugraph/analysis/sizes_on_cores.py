"""How numbers live on the cores that are made of sizes: those of what a core holds, or of what all of them hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, Partial, Placement, Replicate, is_size
from tpugraph.analysis.sizes import depends_on_data, follows_batch
from tpugraph.ir import Node

if TYPE_CHECKING:
    from tpugraph.analysis.placing import Placing


def of_each(p: Placing, node: Node, inputs: Sequence[Placement | None], made: Placement) -> list[Placement | None]:
    """How each output lives; the shape of what all cores hold, of which data tell a part, is one number everywhere."""
    count = len(node.outputs or ())
    if node.op not in ops.SHAPES or count == 1:
        return [made] * count
    told = [any(map(depends_on_data, p.d.elements(node.out(port)) or ())) for port in range(count)]
    return [REPLICATE if told[i] and isinstance(s, Replicate) else made for i, s in enumerate(inputs)]


def made_of_sizes(p: Placing, node: Node) -> bool | None:
    """Of outputs whose numbers are all known when the graph is converted, whether some follow the batch; else None."""
    if not node.outputs or node.op in ops.RANGES:
        return None
    follows = False
    for port in range(len(node.outputs)):
        elements = p.d.elements(node.out(port))
        if elements is None:
            return None
        some = any(e is not None and follows_batch(e) for e in elements)
        if any(map(depends_on_data, elements)) and not some:
            return None
        follows = follows or some
    return None if not follows and _divides_by_rows(p, node) else follows


def beside_sizes(p: Placing, node: Node, inputs: Sequence[Placement | None], made: Placement) -> dict[int, Placement]:
    """What is wanted of numbers beside sizes that are none: that of all cores. So of a shape that data tell, of a number."""
    unknown = any(None in (p.d.elements(node.out(port)) or ()) for port in range(len(node.outputs or ())))
    sized = [i for i, s in enumerate(inputs) if is_size(s)]
    told = made == REPLICATE and any(p.sizes(node.inputs[i]) is None for i in sized)
    parts = [i for i, s in enumerate(inputs) if unknown and isinstance(s, Partial)]
    return dict.fromkeys([*parts, *(sized if told else ())], REPLICATE)


def _divides_by_rows(p: Placing, node: Node) -> bool:
    """Whether a node divides numbers of the model by numbers of rows, which need not make whole numbers."""
    if node.op not in ops.DIVISIONS:
        return False
    first, second = ([p.final(e) for e in p.d.elements(t) or () if e is not None] for t in node.inputs[:2])
    return any(map(follows_batch, second)) and not any(map(follows_batch, first))
