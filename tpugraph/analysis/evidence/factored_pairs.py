"""Evidence of the factors of what is left of all pairs of rows, as of those of two different ones: it is reshaped to both."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import unsettled
from tpugraph.analysis.sizes import Known, Poly, Size, Unknown, add, divide, known, poly, times


def factored(d: Dimensions) -> None:
    """What is left of all pairs of rows, and is reshaped to two numbers, has these as its factors.

    Were one of them a number of the model, the other would be no whole number for most numbers of rows.
    """
    for sides in d.regrouped if d.rows > 1 else ():
        for whole, parts in (sides, reversed(sides)):
            if len(parts) != 2 or not any(is_open(d, size) for size in parts):
                continue
            found = factors_of_pairs(d, whole, parts)
            for size, factor in zip(parts, found[0], strict=True) if len(found) == 1 else ():
                d.sizes.tie(size, factor)


def factors_of_pairs(d: Dimensions, whole: Dims, parts: Dims) -> list[tuple[Known, Known]]:
    """All that two numbers may be that pairs of rows are reshaped to; nothing of others than what is left of all pairs.

    One of them is the rows and so many more or less, or a number of the model where the other is a whole number then.
    """
    made = _pairs(whole)
    if made is None or made.at(d.rows) != d.sizes.at(parts[0]) * d.sizes.at(parts[1]):
        return []
    return list(dict.fromkeys(_readings(made, [d.sizes.at(size) for size in parts], d.rows)))


def is_open(d: Dimensions, size: Size) -> bool:
    """Whether nothing says what a number is, or nothing but that what is made of it is of the batch."""
    if d.rows == 2 and known(size) == 1:
        return True  # it may be one less than the rows
    if not isinstance(size, Unknown):
        return False
    return unsettled(size) is not None or size.root() in d.defaulted or size.root() in d.sizes.presumed


def _pairs(sizes: Dims) -> Poly | None:
    """The product of sizes that are all known, where it is one of pairs of rows, and not of all of them; else None."""
    found = [size for size in map(known, sizes) if size is not None]
    made = times(*found) if len(found) == len(sizes) else None
    return made if isinstance(made, Poly) and len(made.c) == 3 and any(made.c[:2]) else None


def _readings(made: Poly, values: list[int], rows: int) -> Iterator[tuple[Known, Known]]:
    """Each way to make pairs of two factors that have two values."""
    for place, other in ((0, 1), (1, 0)):
        of_rows, of_model = add(poly((0, 1)), values[place] - rows), values[place]
        for first in (of_rows, of_model):
            second = divide(made, first)
            if not isinstance(second, Poly) or second.at(rows) != values[other] or not _is_whole_for_all_rows(second):
                continue
            yield (first, second) if place == 0 else (second, first)


def _is_whole_for_all_rows(size: Poly) -> bool:
    """Whether a size is a whole number whatever the number of rows: of a square that is so if it is for three in a row."""
    return all(sum(k * rows**power for power, k in enumerate(size.c)) % 1 == 0 for rows in range(3))
