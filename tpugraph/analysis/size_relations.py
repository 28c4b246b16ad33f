"""Relations between sizes of a step: what is tied is one size, and a sum or a product settles its last unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tpugraph.analysis.sizes import (
    Known,
    Poly,
    Size,
    Unknown,
    add,
    at,
    divide,
    follows_batch,
    known,
    term,
    through,
    times,
)  # fmt: skip

Computation = Callable[[Sequence[int]], int]
"""What a graph computes of some numbers."""
STATED = ("product", "sum", "window", "broadcast")
"""Relations that say what is; all others compute a size of some."""


class Relations:
    """All ties and relations between sizes.

    Args:
        rows: the number of rows that the graph was traced with.
        whole: the number of rows of the batches of all cores together.

    Attributes:
        conflicts: where a size that follows the batch was tied to one that does not: the place, and both.
        settled: how many unknowns have been found; grows.
        ones: dimensions of size 1 that were broadcast together.
        ties: each pair of sizes that was found to be one, with the node or the evidence that says so.
        presumed: numbers taken for numbers of the model as sizes of the batch are computed with them, or with what they make.
        pending: the relations that are not settled: their kind, both sides, and the place.
        left_open: sizes that depend on data, as reshapes leave them open, each with the dimensions that are reshaped.
        beside_open: each size that depends on data with one that it meets and that does not, and the node where they meet.
    """

    def __init__(self, rows: int, whole: int | None = None) -> None:
        self.rows = rows
        self.whole = rows if whole is None else whole
        self.conflicts: list[tuple[object, Known, Known]] = []
        self.settled = 0
        self.place: object = None  # the node, or the words of the evidence, that ties sizes now
        self.ones: list[list[Size]] = []
        self.ties: list[tuple[Size, Size, object]] = []
        self.left_open: dict[Unknown, Sequence[Size]] = {}
        self.beside_open: list[tuple[Size, Size, object]] = []
        self.presumed: dict[Unknown, None] = {}
        self._presuming = False
        self.pending: list[tuple[str | Computation, list[Size], list[Size], object]] = []

    def at(self, size: Size) -> int:
        """The value in the traced graph."""
        if isinstance(size, int):
            return size
        return size.value if isinstance(size, Unknown) else size.at(self.rows)

    def tie(self, a: Size, b: Size) -> None:
        """Two sizes are one."""
        if a is b:
            return
        x, y = a.root() if isinstance(a, Unknown) else a, b.root() if isinstance(b, Unknown) else b
        if self.at(x) < 0 <= self.at(y) or self.at(y) < 0 <= self.at(x):
            self.beside_open.append((x, y, self.place) if self.at(x) < 0 else (y, x, self.place))
        if isinstance(x, Unknown) and isinstance(y, Unknown):
            if x.found is not None and y.found is not None:
                return self._agree(x.found, y.found)
            if x is y or x.value != y.value:
                return None
            if x.found is not None or (y.found is None and y.origin is None):
                x, y = y, x  # what is found stays, then what is written in the graph
            x._up = y
            self.ties.append((a, b, self.place))
            self.settled += y.found is not None
            return None
        if isinstance(y, Unknown):
            x, y = y, x
        if not isinstance(x, Unknown) or x.found is not None:
            return self._agree(x.found if isinstance(x, Unknown) else x, y)  # type: ignore[arg-type]
        if x.value < 0 and isinstance(y, int):
            return None  # a size that depends on data is no number, and none that is made of it
        if x.value == self.at(y):
            x.found = y  # type: ignore[assignment]
            if self._presuming and isinstance(y, int):
                self.presumed[x] = None
            self.ties.append((a, b, self.place))
            self.settled += 1
        return None

    def meet_rows(self, size: Size, rows: Size) -> None:
        """A size that depends on data is as large as the rows that it meets, where a reshape of rows leaves it open.

        Another one may be 1 when a step runs, and is broadcast then.
        """
        one, found = size.root() if isinstance(size, Unknown) else None, known(rows)
        if one is None or one.found is not None or not isinstance(found, Poly):
            return
        if any(map(follows_batch, self.left_open.get(one, ()))):
            one.found, self.settled = found, self.settled + 1
            self.ties.append((size, rows, self.place))

    def may_be_one(self, a: Size, b: Size) -> bool:
        """Whether two sizes of one value may be one: what is computed, as half of the rows is, is what that makes of it."""
        if self.at(a) != self.at(b):
            return False
        if self.at(a) < 0:  # data tell one, and another one or the last place is not it
            return isinstance(a, Unknown) and isinstance(b, Unknown) and a.root() is b.root()
        if known(a) is not None and known(b) is not None:
            return known(a) == known(b)
        return self.computed_sizes().isdisjoint(size.root() for size in (a, b) if isinstance(size, Unknown))

    def _agree(self, a: Known, b: Known) -> None:
        if a != b:
            self.conflicts.append((self.place, a, b))

    def product(self, left: Sequence[Size], right: Sequence[Size]) -> None:
        """The products of both sides are equal."""
        self._relate("product", left, right)

    def sum(self, left: Sequence[Size], right: Sequence[Size]) -> None:
        """The sums of both sides are equal."""
        one, other = ([size for size in side if size != 0] for side in (left, right))
        if len(one) == len(other) == 1:
            self.tie(one[0], other[0])
        else:
            self._relate("sum", left, right)

    def quotient(self, out: Size, size: Size, by: Size) -> None:
        """One size is another divided by a third, and the remainder left out."""
        self._relate("quotient", [out], [size, by])

    def computed(self, out: Size, sizes: Sequence[Size], computation: Computation) -> None:
        """One size is what the graph computes of others, as a share of them that is rounded."""
        self._relate(computation, [out], sizes)

    def window(self, a: Size, b: Size) -> None:
        """One size is that of windows over the other: either both follow the batch, or none."""
        self._relate("window", [a], [b])

    def broadcast(self, out: Size, parts: Sequence[Size]) -> None:
        """A dimension of a result that its operands are broadcast to: those of another size than 1 are as large."""
        if self.at(out) not in (1, -1):
            for part in parts:
                if self.at(part) != 1 or follows_batch(part):
                    self.tie(out, part)
            return
        if self.at(out) == 1:
            self.ones.append(list(parts))
        self._relate("broadcast", [out], parts)  # all are 1, or told by data: one of them may be a batch of one row

    def computed_sizes(self) -> set[Unknown]:
        """The unknowns that are computed of others, as a share of them that is rounded, and follow when these are found."""
        made = (left[0] for kind, left, _, _ in self.pending if kind not in STATED)
        return {size.root() for size in made if isinstance(size, Unknown)}

    def presume(self, size: Size) -> None:
        """Take a number for one of the model, and what it makes with it, as sizes of the batch are computed with it."""
        self._presuming = True
        self.tie(size, self.at(size))

    def _relate(self, kind: str | Computation, left: Sequence[Size], right: Sequence[Size]) -> None:
        relation = (kind, list(left), list(right), self.place)
        if not self._settle(*relation):
            self.pending.append(relation)

    def propagate(self) -> None:
        """Let relations settle their last unknowns until none can."""
        place = self.place
        while True:
            before = self.settled
            self.pending = [relation for relation in self.pending if not self._settle(*relation)]
            if self.settled == before:
                self.place, self._presuming = place, False
                return

    def _settle(self, kind: str | Computation, left: list[Size], right: list[Size], place: object) -> bool:
        self.place = place
        if not isinstance(kind, str):
            return self._settle_computed(kind, left[0], right)
        if kind == "broadcast":
            return self._settle_broadcast(left[0], right)
        if kind == "quotient":
            return self._settle_quotient(left[0], *right)
        if kind == "window":
            return self._settle_window(left[0], right[0])
        found = [[known(s) for s in side] for side in (left, right)]
        unknown = [s for s in (*left, *right) if known(s) is None]
        if len(unknown) > 1:
            return self._no_batch(found, unknown) if kind == "product" else self._settle_alike(found, unknown)
        sides = [(times if kind == "product" else add)(*(f for f in side if f is not None)) for side in found]
        if not unknown:
            self._agree(*sides)
            return True
        here, there = (sides[0], sides[1]) if any(f is None for f in found[0]) else (sides[1], sides[0])
        value = divide(there, here) if kind == "product" else add(there, times(here, -1))
        if isinstance(value, Poly) and value.at(self.rows) != self.at(unknown[0]):
            return True  # the numbers of the traced graph do not bear it out
        if value is not None:
            self.tie(unknown[0], value)
        return True

    def _settle_alike(self, found: list[list[Known | None]], unknown: list[Size]) -> bool:
        """Several terms of a sum that are one unknown, as two more views of the rows beside the first."""
        terms, whole = found if None in found[0] else found[::-1]
        alike = len({s.root() for s in unknown if isinstance(s, Unknown)}) == 1 and None not in whole
        value = term(whole, terms) if alike else None
        if value is not None and self.at(value) == self.at(unknown[0]):
            self.tie(unknown[0], value)
        return value is not None

    def _settle_quotient(self, out: Size, size: Size, by: Size) -> bool:
        found, divisor, quotient = known(size), known(by), known(out)
        if found is not None and divisor is not None and self.whole == self.rows:
            share = divide(found, divisor) if isinstance(found, Poly) else found // divisor  # type: ignore[operator]
            if share is not None:
                self.tie(out, share)
            return True
        if found is not None and divisor is not None:
            self.tie(out, through(*((n, at(found, n) // at(divisor, n)) for n in (self.rows, self.whole))))
            return True
        exact = self.at(out) * self.at(by) == self.at(size)
        if not exact or quotient is None or divisor is None:
            return False
        self.tie(size, times(quotient, divisor))
        return True

    def _settle_computed(self, computation: Computation, out: Size, sizes: list[Size]) -> bool:
        found = [size for size in map(known, sizes) if size is not None]
        if len(found) < len(sizes):
            return computation in (max, min) and self._settle_chosen(computation, out, sizes)
        here, there = (computation([at(size, rows) for size in found]) for rows in (self.rows, self.whole))
        if self.whole != self.rows or not any(isinstance(size, Poly) for size in found):
            self.tie(out, through((self.rows, here), (self.whole, there)))
        return True

    def _settle_chosen(self, choice: Computation, out: Size, sizes: list[Size]) -> bool:
        """The larger or the smaller of two sizes is known, and is not the one of them that is: it is the other.

        Of two that are one it is that one.
        """
        if len({size.root() if isinstance(size, Unknown) else size for size in sizes}) == 1:
            self.tie(out, sizes[0])
            return True
        made, opened = known(out), [size for size in sizes if known(size) is None]
        others = [known(size) for size in sizes if size is not opened[0]]
        if made is None or len(others) != 1 or others[0] is None:
            return False
        for rows in (self.rows, self.whole):
            if at(others[0], rows) == at(made, rows) or choice([at(made, rows), at(others[0], rows)]) != at(made, rows):
                return False
        self.tie(opened[0], made)
        return True

    def _no_batch(self, found: list[list[Known | None]], unknown: list[Size]) -> bool:
        """A product without batch on one side leaves none on the other."""
        without = any(None not in side and not any(isinstance(f, Poly) for f in side) for side in found)
        for size in unknown if without else ():
            self.tie(size, self.at(size))
        return without

    def _settle_window(self, a: Size, b: Size) -> bool:
        size = next((size for size, other in ((a, b), (b, a)) if isinstance(known(other), int)), None)
        if size is not None:
            self.tie(size, self.at(size))
        return size is not None

    def _settle_broadcast(self, out: Size, parts: list[Size]) -> bool:
        if isinstance(out, Unknown) and out.value < 0:
            return self._settle_told(out.root(), parts)
        found = [known(part) for part in parts]
        batch = next((f for f in found if isinstance(f, Poly)), None if None in found else 1)
        if batch is not None:
            self.tie(out, batch)
            return True
        for part in parts if known(out) == 1 else ():
            self.tie(part, 1)
        return known(out) == 1

    def _settle_told(self, out: Unknown, parts: list[Size]) -> bool:
        """What data tell stays so beside a dimension of one place, and is as large as the rows that it meets."""
        found = [known(part) for part in parts if self.at(part) > 0]
        rows = next((f for f in found if isinstance(f, Poly)), None)
        if rows is None and None not in found:
            self.tie(out, next(part for part in parts if self.at(part) < 0))
        elif rows is not None and out.found is None:
            out.found, self.settled = rows, self.settled + 1
        return rows is not None or None not in found


def values(sizes: Iterable[Size], relations: Relations) -> tuple[int, ...]:
    """The values of sizes in the traced graph."""
    return tuple(map(relations.at, sizes))
