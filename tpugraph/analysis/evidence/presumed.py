"""Numbers that are presumed to be of the model, as sizes of the batch are computed with them and nothing else says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import root
from tpugraph.analysis.size_relations import STATED, Relations
from tpugraph.analysis.sizes import Size, Unknown, are_alike, follows_batch, is_written, known
from tpugraph.ir import Node


def literal_factors(d: Dimensions) -> None:
    """A constant that a size of the batch is computed with is a number of the model, where nothing else says.

    What a reshape makes of computed numbers is none of these: that is said once they are known.
    """
    sizes = d.sizes
    computed = _made_of(sizes, sizes.computed_sizes())
    waiting = {size.root() for size in d.waiting} if d.postponed else set()
    for kind, _, right, _ in sizes.pending:
        for size in filter(is_written, right) if kind not in STATED and any(map(follows_batch, right)) else ():
            if kind == "quotient" or size.value % d.rows:
                sizes.presume(size)
    taken, rest = _taken(sizes), _left_open(d)
    for place, kind, whole, parts, given in _stated(sizes):
        opened = [p for p in parts if isinstance(p, Unknown) and known(p) is None]
        if not any(map(follows_batch, (whole, *parts))) or any(p.root() in computed for p in opened):
            continue
        if known(whole) is not None:
            if len(opened) != 2 or (kind == "sum" and are_alike(*opened)):
                continue
            opened = [p for p in opened if p.origin is not None]
        elif kind == "sum" and given and is_written(whole) and not any(map(is_written, opened)):
            opened = [whole]  # a number of rows is taken from it
        elif kind == "sum" and (_is_slice(place) or any(taken.get(p.root(), set()) - {root(whole)} for p in opened)):
            continue  # what a slice takes is told by what it is taken of, once that is known
        if len(opened) != 1 or opened[0].root() in waiting or opened[0].root() in rest:
            continue
        if kind == "product" or opened[0].value % d.rows or d.rows == 1:
            sizes.presume(opened[0])


def _stated(sizes: Relations) -> Iterator[tuple[object, str, Size, Sequence[Size], bool]]:
    """The sums and products that are not settled: what states it, kind, whole, parts, and whether a part is made, not the whole."""
    for kind, left, right, place in sizes.pending:
        for whole, parts, given in ((left, right, False), (right, left, True)) if kind in ("product", "sum") else ():
            if len(whole) == 1:
                yield place, str(kind), whole[0], parts, given


def _is_slice(place: object) -> bool:
    return isinstance(place, Node) and place.op in ops.SLICES


def _taken(sizes: Relations) -> dict[Unknown, set[Size]]:
    """What slices take of dimensions that are not known yet, each with these dimensions: they say first what is taken."""
    found: dict[Unknown, set[Size]] = {}
    for place, kind, whole, parts, _ in _stated(sizes):
        if kind == "sum" and _is_slice(place) and known(whole) is None:
            for part in parts:
                if isinstance(part, Unknown):
                    found.setdefault(part.root(), set()).add(root(whole))
    return found


def _left_open(d: Dimensions) -> set[Unknown]:
    """What reshapes leave open where they do not know yet how many elements there are: as many as the others leave."""
    found: set[Unknown] = set()
    for kind, left, right, place in d.sizes.pending:
        if kind != "product" or not isinstance(place, Node) or place.op not in ops.RESHAPES:
            continue
        asked = [0 if size is None else d.sizes.at(size) for size in d.elements(place.inputs[1]) or ()]
        opened = {root(size) for size, number in zip(d.dims(place.out()) or (), asked, strict=False) if number == -1}
        found.update(size.root() for size in (*left, *right) if isinstance(size, Unknown) and size.root() in opened)
    return found


def _made_of(sizes: Relations, parts: set[Unknown]) -> set[Unknown]:
    """Some unknowns with all that are sums or products of them, as halves of the rows that are put together again."""
    made, before = set(parts), -1
    open_wholes = [(whole.root(), of) for _, _, whole, of, _ in _stated(sizes) if isinstance(whole, Unknown)]
    while len(made) != before:
        before = len(made)
        made |= {whole for whole, of in open_wholes if any(isinstance(p, Unknown) and p.root() in made for p in of)}
    return made


__all__ = ["literal_factors"]
