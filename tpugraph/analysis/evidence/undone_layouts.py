"""Evidence of gradients that undo what the step did to the layout of a tensor: they hold the shapes that it had before."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph import ops
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import agreed, leading_to_loss, root, unsettled, values_of
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import depends_on_data

_Values = tuple[int, ...]


def joined_parts(d: Dimensions) -> None:
    """The gradient of a concatenation takes the parts apart that were joined, in their order: the shapes that it has are theirs."""
    offsets, forward = d.of_type(ops.CONCAT_OFFSETS), leading_to_loss(d)
    joined: dict[tuple[_Values, ...], list[list[Dims]]] = {}
    for node in d.of_type(ops.CONCATS) if offsets else ():
        if node not in forward:
            continue
        parts = [d.dims(node.inputs[i]) for i in ops.record(node.op).data_operands(len(node.inputs))]
        told = [part for part in parts if part is not None]
        if len(told) == len(parts):
            joined.setdefault(tuple(values(part, d.sizes) for part in told), []).append(told)
    for node in offsets:
        shapes = [d.elements(tensor) for tensor in node.inputs[1:]]
        found = joined.get(tuple(values_of(d, shape or []) for shape in shapes), [])
        for place, shape in enumerate(shapes if found else ()):
            _tie(d, shape, [parts[place] for parts in found])


def reshaped_back(d: Dimensions) -> None:
    """The gradient of a reshape gives back the shape that was there before; it is told by both of its shapes.

    Of one row it is where they hold a size that data tell: no other tensor has that by chance.
    """
    forward = leading_to_loss(d)
    before: dict[tuple[_Values, object], list[Dims]] = {}
    for node in d.of_type(ops.RESHAPES) if forward else ():
        dims, made = d.dims(node.inputs[0]), d.dims(node.out())
        if dims is None or made is None:
            continue
        shape = d.elements(node.inputs[1])
        if node in forward:
            before.setdefault((values(dims, d.sizes), _told_by(d, made)), []).append(dims)
        elif shape and any(unsettled(size) for size in shape) and _tells(d, dims, made):
            _tie(d, shape, before.get((values_of(d, shape), _told_by(d, dims)), []))


def _tells(d: Dimensions, dims: Dims, made: Dims) -> bool:
    """Whether what a gradient reshapes says which reshape it undoes: another layout, or, of one row, a size that data tell."""
    return values(dims, d.sizes) != values(made, d.sizes) if d.rows > 1 else any(map(depends_on_data, dims))


def _told_by(d: Dimensions, dims: Dims) -> object:
    """What tells a shape from others: its sizes, and of one row which of them data tell."""
    return (
        values(dims, d.sizes) if d.rows > 1 else tuple(root(s) if depends_on_data(s) else d.sizes.at(s) for s in dims)
    )


def _tie(d: Dimensions, shape: Elements | None, found: Sequence[Dims]) -> None:
    """Tie a vector to the shapes that it may be, where they agree."""
    for size, sizes in zip(shape or (), zip(*found, strict=True), strict=False):
        one, told = unsettled(size), agreed(sizes)
        if one is not None and told is not None:
            d.sizes.tie(one, told)
