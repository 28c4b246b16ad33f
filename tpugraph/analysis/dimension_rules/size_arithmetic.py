"""Arithmetic with sizes: the sum, difference, product or quotient of two sizes is a size, related to both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant_at
from tpugraph.analysis.dimension_facts import Formula
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.size_relations import Computation
from tpugraph.analysis.sizes import Size, Unknown, depends_on_data, follows_batch, known
from tpugraph.ir import Node, Tensor
from tpugraph.ops.arithmetic import truncated_quotient


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
    out = _made_of(value, rest)
    d.sizes.product([out], [whole, *rest])
    return out


def _made_of(value: int, sizes: Sequence[Size]) -> Unknown:
    """A size of that value in the traced graph; one that only the data tell where they tell one of those it is made of."""
    return Unknown(-1 if any(map(depends_on_data, sizes)) else value)


def total(d: Dimensions, sizes: Sequence[Size]) -> Size:
    """The sum of sizes as one size."""
    if all(isinstance(s, int) for s in sizes):
        return sum(sizes)  # type: ignore[arg-type]
    whole = _put_together_again(d, sizes)
    if whole is not None:
        return whole
    out = _made_of(sum(d.sizes.at(s) for s in sizes), sizes)
    d.sizes.sum([out], list(sizes))
    return out


def _put_together_again(d: Dimensions, sizes: Sequence[Size]) -> Size | None:
    """What was less by one of some sizes, and is made of the rest and that: a list padded up to a number is as long as it says.

    Of what data tell nothing else says it.
    """
    parts = [size for size in sizes if size != 0]
    if len(parts) != 2 or not all(map(depends_on_data, parts)):
        return None
    wanted = {size.root() for size in parts if isinstance(size, Unknown)}
    for kind, left, right, _ in d.sizes.pending:
        both = {size.root() for size in left if isinstance(size, Unknown)}
        if kind == "sum" and len(right) == 1 and len(left) == 2 and both == wanted:
            return right[0]
    return None


def _sum(d: Dimensions, x: Size, y: Size) -> Size:
    return total(d, [x, y])


def difference(d: Dimensions, x: Size, y: Size) -> Size:
    """One size less another as one size."""
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    out = _made_of(d.sizes.at(x) - d.sizes.at(y), (x, y))
    d.sizes.sum([out, y], [x])
    return out


def _product(d: Dimensions, x: Size, y: Size) -> Size:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    if 0 in (x, y):
        return 0  # whatever the other is
    out = _made_of(d.sizes.at(x) * d.sizes.at(y), (x, y))
    d.sizes.product([out], [x, y])
    return out


def _quotient(d: Dimensions, x: Size, y: Size) -> Size | None:
    a, b = d.sizes.at(x), d.sizes.at(y)
    if not b or a % b:
        return None if not (isinstance(x, int) and isinstance(y, int)) or not b else a // b
    if x == 0 or (isinstance(x, int) and isinstance(y, int)):
        return a // b
    if not isinstance(y, int) and not follows_batch(x) and not _may_count(x):
        return None  # of another number of rows it need not be whole
    out = Unknown(a // b)
    d.sizes.product([x], [out, y])
    return out


def _may_count(size: Size) -> bool:
    """Whether a number was written as a whole one, as the number of elements of a shape that is folded is."""
    origin = size.root().origin if isinstance(size, Unknown) else None
    written = origin[0] if isinstance(origin, tuple) else None
    return known(size) is None and isinstance(written, Tensor) and not written.dtype.floating


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
    return _one_of(d, x, y, max)


def smallest(d: Dimensions, x: Size, y: Size) -> Size | None:
    """The smaller of two sizes; None where only the data tell."""
    return _one_of(d, x, y, min)


def _one_of(d: Dimensions, x: Size, y: Size, choice: Computation) -> Size | None:
    """The larger or the smaller of two sizes: which of them that is may be another of the rows of all cores."""
    found = [d.sizes.at(x), d.sizes.at(y)]
    if min(found) < 0:
        return None  # only the data tell which it is
    if d.sizes.whole == d.sizes.rows or (isinstance(x, int) and isinstance(y, int)):
        return x if choice(found) == found[0] else y
    out = Unknown(choice(found))
    d.sizes.computed(out, [x, y], choice)
    return out


def _remainder(d: Dimensions, x: Size, y: Size) -> Size | None:
    """Of numbers that name dimensions: of numbers of rows none is known."""
    if follows_batch(x) or follows_batch(y) or not d.sizes.at(y):
        return None
    return d.sizes.at(x) % d.sizes.at(y)


_OF_SIZES: dict[Callable[..., Any], Callable[[Dimensions, Size, Size], Size | None]] = {
    np.add: _sum,
    np.subtract: difference,
    np.multiply: _product,
    np.floor_divide: _floored,
    truncated_quotient: _floored,
    np.divide: _quotient,
    np.remainder: _remainder,
    np.fmod: _remainder,
    np.maximum: _largest,
    np.minimum: smallest,
}

COMPUTED = {op: _OF_SIZES[function] for op, function in ops.COMPUTES.items() if function in _OF_SIZES}
"""What an op makes of two sizes; None where no size is known of it."""


# --------------------------------------------------------------------------- numbers that are not whole

_KINDS = frozenset({"int32", "int64", "float16", "float32", "float64"})
"""The dtypes that NumPy computes with as TensorFlow does."""

_DEEPEST = 16
"""Ops that a number is made of, and sizes, at most: shares of rows are made of a few."""


def formula(d: Dimensions, node: Node) -> None:
    """Say how a number is computed of sizes; of a whole number made of such, what size it is."""
    out, function = node.out(), ops.COMPUTES.get(node.op)
    if function is None or out.shape != () or out.dtype.name not in _KINDS:
        return
    parts = [_formula_of(d, tensor) for tensor in node.inputs]
    found = [part for part in parts if part is not None]
    count = sum(len(part.sizes) for part in found)
    if len(found) < len(parts) or not 0 < count <= _DEEPEST or max(part.depth for part in found) >= _DEEPEST:
        return
    made = d.formulas[out] = _applied(function, found, out.dtype.name)
    if out.dtype.floating or d.elements(out) not in (None, [None]):
        return
    value = made.computation([d.sizes.at(size) for size in made.sizes])
    if all(isinstance(size, int) for size in made.sizes):
        d.set_elements(out, [int(value)])
    elif value >= 0:
        size = Unknown(int(value))
        d.set_elements(out, [size])
        d.sizes.computed(size, made.sizes, lambda numbers: int(made.computation(numbers)))


def _formula_of(d: Dimensions, tensor: Tensor) -> Formula | None:
    """How a number is computed of sizes; None of what is no number, or only the data tell."""
    kind = tensor.dtype.name
    if tensor in d.formulas or tensor.shape != () or kind not in _KINDS:
        return d.formulas.get(tensor)
    elements = d.elements(tensor)
    if elements and elements[0] is not None and d.sizes.at(elements[0]) >= 0:
        return Formula((elements[0],), lambda numbers: np.asarray(numbers[0]).astype(kind))
    value = constant_at(tensor) if tensor.dtype.floating else None
    return None if value is None else Formula((), lambda numbers: value)


def _applied(function: Callable[..., Any], parts: Sequence[Formula], kind: str) -> Formula:
    """What a function makes of some formulas, in a dtype."""
    sizes = tuple(size for part in parts for size in part.sizes)

    def computation(numbers: Sequence[int]) -> Any:
        place, values = 0, []
        for part in parts:
            values.append(part.computation(numbers[place : place + len(part.sizes)]))
            place += len(part.sizes)
        with np.errstate(all="ignore"):
            return np.asarray(function(*values)).astype(kind)

    return Formula(sizes, computation, 1 + max(part.depth for part in parts))
