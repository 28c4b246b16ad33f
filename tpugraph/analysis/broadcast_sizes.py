"""The shape that operands are broadcast to, and what that says of their sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.size_relations import Relations
from tpugraph.analysis.sizes import Size, Unknown, depends_on_data, follows_batch, is_written, known


def broadcast(sizes: Relations, shapes: Sequence[Dims | None]) -> Dims | None:
    """The shape that operands are broadcast to; None where the rank of one is not known.

    Sizes that must be equal for that are tied.
    """
    known_shapes = [s for s in shapes if s is not None]
    if len(known_shapes) != len(shapes) or not shapes:
        return None
    if all(shape == known_shapes[0] for shape in known_shapes[1:]):
        return known_shapes[0]
    rank = max(len(s) for s in known_shapes)
    return tuple(_broadcast_one(sizes, [s[i - rank] for s in known_shapes if rank - i <= len(s)]) for i in range(rank))


def _broadcast_one(sizes: Relations, parts: list[Size]) -> Size:
    first = parts[0]
    if len(parts) == 1:
        return first
    if all(isinstance(p, int) for p in parts):
        return max(parts)  # type: ignore[type-var]
    value = max(map(sizes.at, parts))
    open_ = next((p for p in parts if sizes.at(p) < 0), None)
    if open_ is not None and all(p is open_ or _has_one_place(sizes, p) for p in parts):
        return open_  # known only when a step runs, and what is broadcast to it has one place
    if value != 1:
        if all(p is first for p in parts):
            return first
        for part in parts:
            if isinstance(part, Unknown) and part.value == 1:
                sizes.tie(part, 1)  # of more rows it could not be broadcast
        whole = [p for p in parts if sizes.at(p) != 1 or follows_batch(p)]
        for part in whole[1:]:
            sizes.tie(whole[0], part)
        rows = next((part for part in whole if follows_batch(part)), None)
        return whole[0] if rows is None else rows
    for part in parts if open_ is not None else ():
        if sizes.at(part) > 0:
            sizes.tie(open_, part)  # type: ignore[arg-type]  # it may be a batch of one row
    out = Unknown(1 if open_ is None else -1)
    sizes.broadcast(out, parts)
    return out


def _has_one_place(sizes: Relations, size: Size) -> bool:
    """Whether a dimension has one place of any batch: of more rows than one no written 1 is their number."""
    return known(size) == 1 or (sizes.rows > 1 and sizes.at(size) == 1)


def met_by_data(one: Sequence[Size | None], other: Sequence[Size | None]) -> bool:
    """Whether a size of one of two shapes that are broadcast together is told by data, and that of the other may be the rows."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return any((depends_on_data(a) and _may_follow(b)) or (depends_on_data(b) and _may_follow(a)) for a, b in pairs)


def _may_follow(size: Size | None) -> bool:
    """Whether a size follows the batch, as far as is found, or is written and nothing is found of it."""
    return size is not None and (follows_batch(size) or (is_written(size) and size.value > 1))
