"""Evidence of the factors of what is left of all pairs of rows, as of those of two different ones: it is reshaped to both."""

from __future__ import annotations

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
            made, factors = _pairs(whole), factors_of_pairs(d, whole, parts)
            if made is None or factors is None:
                continue
            if any(_is_whole_for_all_rows(divide(made, d.sizes.at(size))) for size in parts):
                continue
            for size, factor in zip(parts, factors, strict=True):
                d.sizes.tie(size, factor)


def factors_of_pairs(d: Dimensions, whole: Dims, parts: Dims) -> tuple[Known, Known] | None:
    """What two numbers are that pairs of rows are reshaped to, if both follow the rows; None of others, and of settled ones."""
    made = _pairs(whole)
    if len(parts) != 2 or made is None or not any(_is_open(d, size) for size in parts):
        return None
    return _factors(made, [d.sizes.at(size) for size in parts], d.rows)


def _is_open(d: Dimensions, size: Size) -> bool:
    """Whether nothing says what a number is, or nothing but that what is made of it is of the batch."""
    if not isinstance(size, Unknown):
        return size == 1 and d.rows == 2  # it may be one less than the rows
    return unsettled(size) is not None or size.root() in d.defaulted or size.root() in d.sizes.presumed


def _pairs(sizes: Dims) -> Poly | None:
    """The product of sizes that are all known, where it is one of pairs of rows, and not of all of them; else None."""
    found = [size for size in map(known, sizes) if size is not None]
    made = times(*found) if len(found) == len(sizes) else None
    return made if isinstance(made, Poly) and len(made.c) == 3 and any(made.c[:2]) else None


def _factors(made: Poly, values: list[int], rows: int) -> tuple[Known, Known] | None:
    """The factors of pairs that have two values, of which one is the rows and so many more or less; None where there are none."""
    for one, other in ((0, 1), (1, 0)):
        first = add(poly((0, 1)), values[one] - rows)
        second = divide(made, first)
        if isinstance(second, Poly) and second.at(rows) == values[other] > 0:
            return (first, second) if one == 0 else (second, first)
    return None


def _is_whole_for_all_rows(size: Known | None) -> bool:
    """Whether a size is a whole number whatever the number of rows: of a square that is so if it is for three in a row."""
    if not isinstance(size, Poly):
        return size is not None
    return all(sum(k * rows**power for power, k in enumerate(size.c)) % 1 == 0 for rows in range(3))
