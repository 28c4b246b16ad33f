"""What arithmetic ties together: factors of signatures, and numbers made of sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.broadcast_sizes import broadcast
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimension_rules.size_arithmetic import COMPUTED, difference, formula, product
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.probed_shapes import probed
from tpugraph.analysis.sizes import Poly, Size, Unknown, known
from tpugraph.ir import Node, Tensor

# --------------------------------------------------------------------------- factors


def elementwise(d: Dimensions, node: Node) -> None:
    """All operands are broadcast together."""
    if not node.outputs:
        return
    out = node.out()
    shapes = [d.dims(t) for t in node.inputs]
    if d.sums_left_out and node.op in ops.BACKPROPAGATION and len(node.inputs) == 2:
        dims = _forward_dims(d, node, shapes)
    elif ops.record(node.op).broadcasts or (node.op in ops.ADD_N and not d.sure_writes):
        dims = broadcast(d.sizes, shapes)
    else:
        dims = max(shapes, key=lambda shape: -1 if shape is None else len(shape))  # a bound may be a scalar
        for other in shapes:
            d.tie(dims, other)
    for port in range(len(node.outputs)):
        d.set(node.out(port), dims)
    _levels(d, node, out)
    _arithmetic(d, node, out)


def _probed(d: Dimensions, node: Node) -> None:
    """What TensorFlow's own shape function says of an op type of which neither a signature nor a rule says anything."""
    read = [(d.dims(t), _told(d.elements(t))) for t in node.inputs]
    found = probed(d.graph, node, read, d.sizes.at)
    for one, other in found.alike:
        d.sizes.tie(one, other)
    for port, dims in enumerate(found.outputs):
        if dims is not None:
            d.set(node.out(port), dims)


def _told(elements: Elements | None) -> Dims | None:
    """The elements of a vector, where all of them are told."""
    told = [one for one in elements or () if one is not None]
    return tuple(told) if elements and len(told) == len(elements) else None


def _told_rows(d: Dimensions, node: Node) -> None:
    """An operand may say how many rows the output has."""
    told = ops.record(node.op).rows_operand
    count = None if told is None or told >= len(node.inputs) else d.elements(node.inputs[told])
    made = d.dims(node.out()) if count else None
    if count and count[0] is not None and made:
        d.sizes.tie(count[0], made[0])


def _forward_dims(d: Dimensions, node: Node, shapes: Sequence[Dims | None]) -> Dims | None:
    """The dimensions of what a gradient is multiplied with; of one row, its sum may have been left out where these are 1."""
    signature = d.signature(node)
    gradient = next((i for together in signature.linear for i in together), None) if signature is not None else None
    forward, back = (None, None) if gradient is None else (shapes[1 - gradient], shapes[gradient])
    if forward is None or back is None or len(forward) != len(back):
        d.tie(shapes[0], shapes[1])
        return shapes[0]
    for size, other in zip(forward, back, strict=True):
        if known(size) != 1:
            d.sizes.tie(size, other)
    return forward


@rule("")
def by_signature(d: Dimensions, node: Node) -> None:
    """The letters of the signature are one size each."""
    signature = d.signature(node)
    if signature is None:
        if node.op not in ops.SHAPED_OTHERWISE:
            _probed(d, node)
        for port in range(len(node.outputs or ())):
            d.fresh(node.out(port))
        _told_rows(d, node)
        return
    if signature.elementwise:
        elementwise(d, node)
        return
    letters: dict[str, Size] = {}
    spread: list[Dims] = []
    mixed = False
    for tokens, tensor in zip(signature.inputs, node.inputs, strict=False):
        dims = d.dims(tensor)
        if tokens is None or dims is None:
            continue
        tail = [t for t in tokens if t != "..."]
        if len(dims) < len(tail):
            continue
        if tokens[:1] == ("...",):
            spread.append(dims[: len(dims) - len(tail)])
        for letter, size in zip(tail, dims[len(dims) - len(tail) :], strict=True):
            if letter == "*":
                mixed = mixed or not isinstance(size, int)
                continue
            if letter in letters:
                d.sizes.tie(letters[letter], size)
            letters.setdefault(letter, size)
    leading = broadcast(d.sizes, spread) if spread else ()
    for port, tokens in enumerate(signature.outputs):
        if port < len(node.outputs or ()):
            d.set(node.out(port), _filled(d, node.out(port), tokens, letters, leading, mixed))


def _filled(
    d: Dimensions,
    out: Tensor,
    tokens: signatures.Tokens,
    letters: dict[str, Size],
    leading: Dims | None,
    mixed: bool,
) -> Dims | None:
    """The dimensions of an output; those it has to itself may follow the batch only where a whole operand's may."""
    if tokens is None or leading is None:
        return None
    tail = [t for t in tokens if t != "..."]
    static = out.shape
    places: list[Size] = []
    for index, letter in enumerate(tail):
        if letter in letters:
            places.append(letters[letter])
            continue
        if static is None or len(static) < len(tail):
            return None
        places.append(
            d.constants.may_follow(static[index - len(tail)], out) if mixed else static[index - len(tail)] or -1
        )
    return (*(leading if tokens[:1] == ("...",) else ()), *places)


# --------------------------------------------------------------------------- numbers made of sizes

_EQUALITIES = ops.computing(np.equal)
_NEGATIVES = ops.computing(np.negative)
_MINIMUM, _MAXIMUM = ops.computing(np.minimum), ops.computing(np.maximum)
_FLOORED = ops.computing(np.floor_divide)


def _arithmetic(d: Dimensions, node: Node, out: Tensor) -> None:
    if node.op in ops.CASTS:
        d.set_elements(out, d.elements(node.inputs[0]))
        same_rows(d, node)
        formula(d, node)
        return
    if node.op in _EQUALITIES:
        _compared(d, node)
        return
    if node.op in ops.ORDERINGS:
        _ordered(d, node)
        return
    elements = d.elements(node.inputs[0]) if node.op in _NEGATIVES and not out.dtype.floating else None
    if elements is not None:
        d.set_elements(out, [None if one is None else difference(d, 0, one) for one in elements])
    if node.op in COMPUTED and len(node.inputs) == 2:
        _computed(d, node, out)
    formula(d, node)


def _computed(d: Dimensions, node: Node, out: Tensor) -> None:
    a, b = d.elements(node.inputs[0]), d.elements(node.inputs[1])
    if (least := _no_more_than(d, node)) is not None:
        d.set_elements(out, [least])
        return
    if not a or not b or (len(a) != len(b) and 1 not in (len(a), len(b))):
        return
    if node.op in _FLOORED and len(a) == len(b) > 1:
        _divided_by_a_shape(d, a, b)
    count = max(len(a), len(b))
    pairs = [(a[i % len(a)], b[i % len(b)]) for i in range(count)]
    d.set_elements(out, [None if x is None or y is None else COMPUTED[node.op](d, x, y) for x, y in pairs])


def _no_more_than(d: Dimensions, node: Node) -> Size | None:
    """A number, of which the smaller one is taken of it and of another that is no less than it, whatever data say."""
    for number, other in (node.inputs, node.inputs[::-1]) if node.op in _MINIMUM else ():
        size = d.elements(number)
        guarded = [d.elements(t) for t in other.node.inputs] if other.node.op in _MAXIMUM else []
        least = size[0] if size and len(size) == 1 else None
        if least is not None and any(one and len(one) == 1 and _are_one(one[0], least) for one in guarded):
            return least
    return None


def _are_one(one: Size | None, other: Size) -> bool:
    """Whether two sizes are known to be the same."""
    return one is other or (one is not None and known(one) is not None and known(one) == known(other))


def _divided_by_a_shape(d: Dimensions, shape: Elements, by: Elements) -> None:
    """A shape divided by one that is either as large along a dimension or one, as that of what is reduced, holds its sizes."""
    pairs = [(x, y) for x, y in zip(shape, by, strict=True) if x is not None and y is not None]
    if len(pairs) < len(shape) or any(d.sizes.at(y) not in (1, d.sizes.at(x)) for x, y in pairs):
        return
    for x, y in pairs:
        if d.sizes.at(y) > 1:
            d.sizes.tie(x, y)


def _compared(d: Dimensions, node: Node) -> None:
    """Sizes that the model expects to be equal are."""
    a, b = (d.elements(t) for t in node.inputs)
    if a is not None and b is not None and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            if x is not None and y is not None and d.sizes.at(x) == d.sizes.at(y):
                d.sizes.tie(x, y)


def _ordered(d: Dimensions, node: Node) -> None:
    """A size is never below zero, however many rows there are."""
    small, large, inclusive = ops.ORDERINGS[node.op]
    below, sizes = d.elements(node.inputs[small]), d.elements(node.inputs[large])
    if inclusive and below == [0] and sizes and all(map(_is_never_negative, sizes)):
        d.set_level(node.out(), True)


def _is_never_negative(size: Size | None) -> bool:
    """Whether a number is none that is computed by a difference, which may be one."""
    if isinstance(size, Unknown) and known(size) is None:
        return isinstance(size.origin, tuple) and size.value >= 0
    found = None if size is None else known(size)
    return found is not None and min(found.c if isinstance(found, Poly) else (found,)) >= 0


def _levels(d: Dimensions, node: Node, out: Tensor) -> None:
    """What is made element by element of the same numbers everywhere is the same everywhere."""
    function = ops.COMPUTES.get(node.op)
    if function is None:
        return
    given = [d.level(t) for t in node.inputs]
    if any(number is None for number in given):
        return
    if function is np.multiply and not all(given):
        return  # what is zero lives anywhere, a product where its factors do
    with np.errstate(all="ignore"):
        number = np.asarray(function(*given)).item()
    if np.isfinite(number):
        kind = bool if out.dtype.name == "bool" else float if out.dtype.floating else int
        d.set_level(out, kind(number))


@rule("Shape")
def _shape(d: Dimensions, node: Node) -> None:
    dims = d.dims(node.inputs[0])
    d.fresh(node.out())
    d.set_elements(node.out(), None if dims is None else list(dims))


@rule("ShapeN")
def _shape_n(d: Dimensions, node: Node) -> None:
    for port, tensor in enumerate(node.inputs):
        dims = d.dims(tensor)
        d.fresh(node.out(port))
        d.set_elements(node.out(port), None if dims is None else list(dims))


@rule("VariableShape")
def _variable_shape(d: Dimensions, node: Node) -> None:
    d.fresh(node.out())


@rule("Size")
def _size(d: Dimensions, node: Node) -> None:
    dims = d.dims(node.inputs[0])
    d.set(node.out(), ())
    rest = [size for size in dims or () if known(size) != 1]
    if dims is not None and (len(rest) == 1 or all(d.sizes.at(s) >= 0 for s in rest)):
        d.set_elements(node.out(), [rest[0] if len(rest) == 1 else product(d, dims)])


@rule("Rank")
def _rank(d: Dimensions, node: Node) -> None:
    d.set(node.out(), ())
    dims = d.dims(node.inputs[0])
    d.set_elements(node.out(), None if dims is None else [len(dims)])


def same_rows(d: Dimensions, node: Node) -> None:
    """What is made of the coordinates of entries belongs to as many rows."""
    for tensor in node.inputs[:1]:
        if tensor in d.rows_of_entries:
            d.rows_of_entries[node.out()] = d.rows_of_entries[tensor]
