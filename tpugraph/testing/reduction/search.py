"""The search for the fewest units that still show a symptom: neighbourhoods, scopes, bisection, delta debugging, bypasses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tpugraph.ir import Node, Tensor
from tpugraph.testing.reduction.units import Unit, bypass

Bypasses = Mapping[Node, Tensor]
"""What is read instead of the output of a node that is left out."""

Shows = Callable[[Sequence[int], Bypasses], bool]
"""Whether the units of these numbers show the symptom by themselves, with bypasses round some that are left out."""


class Search:
    """One search.

    Args:
        units: the units of the step, in topological order.
        shows: tries a selection of them, given by their numbers in ascending order.
    """

    def __init__(self, units: Sequence[Unit], shows: Shows) -> None:
        self._units = units
        self._shows = shows
        self._bypasses: dict[Node, Tensor] = {}
        self._tried: dict[tuple[frozenset[Node], tuple[int, ...]], bool] = {}
        self._of = {node: number for number, unit in enumerate(units) for node in unit}

    def smallest(self, hints: Iterable[str]) -> list[int]:
        """A selection of which no part shows the symptom that one more step of the search would try.

        Args:
            hints: names of nodes that the symptom points to.
        """
        kept = self._around(hints) or self._by_scopes(list(range(len(self._units))))
        kept = self._minimal(self._bisected(kept))
        shorter = self._bypassed(kept)
        return kept if len(shorter) == len(kept) else self._minimal(shorter)

    def _try(self, kept: Iterable[int]) -> bool:
        numbers = tuple(sorted(kept))
        if not numbers:
            return False
        key = frozenset(self._bypasses), numbers
        if key not in self._tried:
            self._tried[key] = self._shows(numbers, self._bypasses)
        return self._tried[key]

    # ------------------------------------------------------------------ the exact why first

    def _around(self, hints: Iterable[str]) -> list[int] | None:
        """The nearest units to those that are hinted at, as few as show it; None where no neighbourhood does."""
        named = {node.name: number for node, number in self._of.items()}
        starts = list(dict.fromkeys(named[name] for name in hints if name in named))
        for start in starts[:4]:
            near = self._nearest(start)
            size = 1
            while size < len(near):
                if self._try(near[:size]):
                    return sorted(near[: self._fewest(near, size // 3, size)])
                size *= 3
        return None

    def _fewest(self, near: list[int], low: int, high: int) -> int:
        """How many of the nearest units show it: more than ``low``, which do not, and at most ``high``, which do.

        What is far away goes before delta debugging, which would keep the far one of two ways at random.
        """
        while low + 1 < high:
            middle = (low + high) // 2
            if self._try(near[:middle]):
                high = middle
            else:
                low = middle
        return high

    def _nearest(self, start: int) -> list[int]:
        """All units, by their distance along edges."""
        found = dict.fromkeys([start])
        pending = [start]
        for number in pending:  # grows while it is walked
            beside = [other for node in self._units[number] for other in (*node.producers(), *node.consumers())]
            new = [self._of[node] for node in beside if node in self._of and self._of[node] not in found]
            new = list(dict.fromkeys(new))
            found |= dict.fromkeys(new)
            pending += new
        return pending

    # ------------------------------------------------------------------ halves and scopes

    def _bisected(self, kept: list[int]) -> list[int]:
        """Without what comes before the symptom in topological order, and without what comes after it."""
        low, high = 0, len(kept) - 1  # kept[low:] shows it
        while low < high:
            middle = (low + high + 1) // 2
            if self._try(kept[middle:]):
                low = middle
            else:
                high = middle - 1
        kept = kept[low:]
        low, high = 1, len(kept)  # kept[:high] shows it
        while low < high:
            middle = (low + high) // 2
            if self._try(kept[:middle]):
                high = middle
            else:
                low = middle + 1
        return kept[:high]

    def _by_scopes(self, kept: list[int]) -> list[int]:
        """Without whole scopes, the outer ones first."""
        depth, most = 1, max((self._units[n][0].name.count("/") for n in kept), default=0)
        while depth <= most and len(kept) > 1:
            groups: dict[str, list[int]] = {}
            for number in kept:
                scope = "/".join(self._units[number][0].name.split("/")[:depth])
                groups.setdefault(scope, []).append(number)
            if len(groups) > 1:
                kept = sorted(n for group in self._ddmin(list(groups.values())) for n in group)
            depth += 1
        return kept

    # ------------------------------------------------------------------ bypasses

    def _bypassed(self, kept: list[int]) -> list[int]:
        """Without nodes on the way, where their readers can do with what they read: all, or half of them, or each by itself."""
        inside = {node for number in kept for node in self._units[number]}
        ways = {number: found for number in kept if (found := bypass(self._units[number], inside)) is not None}
        groups = [list(ways)] if ways else []
        while groups:
            group = groups.pop()
            before, rest = dict(self._bypasses), [number for number in kept if number not in group]
            self._bypasses |= {self._units[number][0]: ways[number] for number in group}
            if self._try(rest):
                kept = rest
                continue
            self._bypasses, half = before, len(group) // 2
            groups += [group[half:], group[:half]] if half else []
        return kept

    # ------------------------------------------------------------------ delta debugging

    def _minimal(self, kept: list[int]) -> list[int]:
        return sorted(n for group in self._ddmin([[number] for number in kept]) for n in group)

    def _ddmin(self, groups: list[list[int]]) -> list[list[int]]:
        """Zeller's delta debugging: parts, then what is left without a part, in ever smaller parts."""
        parts = 2
        while len(groups) > 1:
            size = -(-len(groups) // parts)
            chunks = [groups[at : at + size] for at in range(0, len(groups), size)]
            rests = [[g for other in chunks if other is not chunk for g in other] for chunk in chunks]
            smaller = next(
                (c for c in (*chunks, *rests) if len(c) < len(groups) and self._try(n for g in c for n in g)), None
            )
            if smaller is not None:
                parts = 2 if len(smaller) <= size else max(parts - 1, 2)
                groups = smaller
            elif size == 1:
                break
            else:
                parts = min(parts * 2, len(groups))
        return groups
