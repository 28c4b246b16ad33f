"""Arithmetic with sizes: the sum, difference, product or quotient of two sizes is a size, related to both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import Size, Unknown, follows_batch


def product(d: Dimensions, sizes: Sequence[Size]) -> Size:
    """The product of sizes as one size."""
    rest = [s for s in sizes if not isinstance(s, int)]
    whole = 1
    for s in sizes:
        whole *= s if isinstance(s, int) else 1
    if not rest or not whole:
        return whole
    if len(rest) == 1 and whole == 1:
        return rest[0]
    value = whole
    for s in rest:
        value *= d.sizes.at(s)
    out = Unknown(value)
    d.sizes.product([out], [whole, *rest])
    return out


def total(d: Dimensions, sizes: Sequence[Size]) -> Size:
    """The sum of sizes as one size."""
    if all(isinstance(s, int) for s in sizes):
        return sum(sizes)  # type: ignore[arg-type]
    out = Unknown(sum(d.sizes.at(s) for s in sizes))
    d.sizes.sum([out], list(sizes))
    return out


def _sum(d: Dimensions, x: Size, y: Size) -> Size:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    out = Unknown(d.sizes.at(x) + d.sizes.at(y))
    d.sizes.sum([out], [x, y])
    return out


def difference(d: Dimensions, x: Size, y: Size) -> Size:
    """One size less another as one size."""
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    out = Unknown(d.sizes.at(x) - d.sizes.at(y))
    d.sizes.sum([x], [out, y])
    return out


def _product(d: Dimensions, x: Size, y: Size) -> Size:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    if 0 in (x, y):
        return 0  # whatever the other is
    out = Unknown(d.sizes.at(x) * d.sizes.at(y))
    d.sizes.product([out], [x, y])
    return out


def _quotient(d: Dimensions, x: Size, y: Size) -> Size | None:
    a, b = d.sizes.at(x), d.sizes.at(y)
    if not b or a % b:
        return None if not (isinstance(x, int) and isinstance(y, int)) or not b else a // b
    if x == 0 or (isinstance(x, int) and isinstance(y, int)):
        return a // b
    out = Unknown(a // b)
    d.sizes.product([x], [out, y])
    return out


def _floored(d: Dimensions, x: Size, y: Size) -> Size | None:
    """A size divided by another one, as whole numbers are."""
    a, b = d.sizes.at(x), d.sizes.at(y)
    if a < 0 or b <= 0:
        return None
    if isinstance(x, int) and isinstance(y, int):
        return a // b
    out = Unknown(a // b)
    d.sizes.quotient(out, x, y)
    return out


def _largest(d: Dimensions, x: Size, y: Size) -> Size | None:
    if d.sizes.at(x) < 0 or d.sizes.at(y) < 0:
        return None  # only the data tell which it is
    return x if d.sizes.at(x) >= d.sizes.at(y) else y


def _smallest(d: Dimensions, x: Size, y: Size) -> Size | None:
    if d.sizes.at(x) < 0 or d.sizes.at(y) < 0:
        return None
    return x if d.sizes.at(x) <= d.sizes.at(y) else y


def _remainder(d: Dimensions, x: Size, y: Size) -> Size | None:
    """Of numbers that name dimensions: of numbers of rows none is known."""
    if follows_batch(x) or follows_batch(y) or not d.sizes.at(y):
        return None
    return d.sizes.at(x) % d.sizes.at(y)


COMPUTED: dict[str, Callable[[Dimensions, Size, Size], Size | None]] = {
    "FloorMod": _remainder,
    "Mod": _remainder,
    "Add": _sum,
    "AddV2": _sum,
    "Sub": difference,
    "Mul": _product,
    "FloorDiv": _floored,
    "TruncateDiv": _floored,
    "RealDiv": _quotient,
    "Div": _quotient,
    "Maximum": _largest,
    "Minimum": _smallest,
}
"""What an op makes of two sizes; None where no size is known of it."""
