"""What the gradient of an op that broadcasts tells: of which dimensions it sums, and whose shapes it compares."""

from __future__ import annotations

from tpugraph.analysis.bounds import shape_of
from tpugraph.analysis.broadcast_sizes import broadcast, met_by_data
from tpugraph.analysis.dimension_facts import Elements
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import follows_batch, known
from tpugraph.ir import Node, Tensor


@rule("BroadcastGradientArgs")
def _broadcast_gradient_args(d: Dimensions, node: Node) -> None:
    """Two shapes that were broadcast together."""
    a, b = d.elements(node.inputs[0]), d.elements(node.inputs[1])
    if a is None or b is None or None in a or None in b:
        for port in range(2):
            d.fresh(node.out(port))
        return
    broadcast(d.sizes, [tuple(a), tuple(b)])  # type: ignore[arg-type]
    if met_by_data(a, b):
        for shape, other in (node.inputs, node.inputs[::-1]):
            _tie_to_what_it_meets(d, shape_of(shape), d.elements(other))
        for port in range(2):
            d.fresh(node.out(port))  # what data tell is one, and is summed over, or as many as the rows
        return
    rank = max(len(a), len(b))
    known_sides = [[s for s in side if s is not None] for side in (a, b)]
    sides = [[1] * (rank - len(k)) + [d.sizes.at(s) if not follows_batch(s) else -1 for s in k] for k in known_sides]
    for port, (own, found) in enumerate(zip(sides, known_sides, strict=True)):
        if any(d.sizes.at(s) == 1 and known(s) is None for s in found):
            d.fresh(node.out(port))  # one row may meet as many, and is summed over then only where it is one
            continue
        axes: Elements = [i for i in range(rank) if own[i] == 1]
        d.set(node.out(port), (len(axes),))
        d._elements[node.out(port)] = axes


def _tie_to_what_it_meets(d: Dimensions, asked: Tensor | None, other: Elements | None) -> None:
    """Tie a shape to that of what a tensor is broadcast with in the forward step, where the other shape is that of this tensor."""
    if asked is None or not other or None in other:
        return
    sizes = [d.sizes.at(size) for size in other if size is not None]
    signatures = {use.node: d.signature(use.node) for use in asked.node.uses()}
    readers = [node for node, signature in signatures.items() if signature is not None and signature.elementwise]
    beside = [d.dims(tensor) or () for reader in readers for tensor in reader.inputs if tensor != asked]
    alike = [dims for dims in beside if [d.sizes.at(size) for size in dims] == sizes]
    if alike and all(dims == alike[0] for dims in alike):
        d.tie(tuple(size for size in other if size is not None), alike[0])
