"""The factors of a node: which dimensions of operands and outputs correspond, by its op record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.signatures import MOST_DIMENSIONS, WHOLE, Factors, Signature
from tpugraph.analysis.values import integers, known_vector
from tpugraph.ir import Node, Tensor


def rank(tensor: Tensor) -> int:
    """The rank; 0 where it is unknown."""
    return len(tensor.shape or ())


def signature(node: Node) -> Signature | None:
    """The signature of a node, also where operands name dimensions; None where factors do not describe it."""
    record = ops.record(node.op)
    words = _WORDS.get(record.dims) if isinstance(record.dims, str) else None
    if words is None:
        return signatures.of(node)
    told = _axis_and_size_operands(node)
    is_open = record.dims != "reduce" and any(t.shape is None for i, t in enumerate(node.inputs) if i not in told)
    made = None if is_open else words(node)
    if made is None:
        return None
    linear = record.linear_in(signatures.call_of(node))
    return Signature(tuple(made[0]), tuple(made[1]), linear, signatures.reduce_op(node))


def _axis_and_size_operands(node: Node) -> set[int]:
    record, count = ops.record(node.op), len(node.inputs)
    return {*record.size_operands(count), *record.constant_operands(count), record.axis_operand(count)} - {None}  # type: ignore[return-value]


Made = tuple[list[Factors], list[Factors]]


def _letters(tensor: Tensor) -> list[str]:
    return [f"d{axis}" for axis in range(MOST_DIMENSIONS if tensor.shape is None else len(tensor.shape))]


def _source(node: Node) -> int:
    told = _axis_and_size_operands(node)
    return next(i for i in range(len(node.inputs)) if i not in told)


def _only(node: Node, index: int, factors: Sequence[str]) -> list[Factors]:
    return [tuple(factors) if i == index else None for i in range(len(node.inputs))]


def _permute(node: Node) -> Made | None:
    order = integers(node.inputs[1])
    if order is None:
        return None
    letters = _letters(node.inputs[0])
    return _only(node, 0, letters), [tuple(letters[axis] for axis in order)]


def _insert(node: Node) -> Made | None:
    axes, letters = integers(node.inputs[1]), _letters(node.inputs[0])
    if axes is None:
        return None
    place = axes[0] % (len(letters) + 1)
    return _only(node, 0, letters), [(*letters[:place], WHOLE, *letters[place:])]


def _drop(node: Node) -> Made | None:
    source, letters = node.inputs[0], _letters(node.inputs[0])
    named = [axis % len(letters) for axis in node.attr("squeeze_dims", ()) or ()]
    if not named and None in (source.shape or ()):
        return None
    gone = named or [axis for axis, size in enumerate(source.shape or ()) if size == 1]
    marked = [WHOLE if axis in gone else letter for axis, letter in enumerate(letters)]
    return _only(node, 0, marked), [tuple(letter for axis, letter in enumerate(letters) if axis not in gone)]


def _along(node: Node) -> Made | None:
    """The dimensions that an operand names are taken whole, and kept."""
    index = _source(node)
    axes, letters = named_axes(node), _letters(node.inputs[index])
    if axes is None:
        return None
    marked = [WHOLE if axis in axes else letter for axis, letter in enumerate(letters)]
    return _only(node, index, marked), [tuple(marked)] * len(node.outputs or ())


def _reduce(node: Node) -> Made | None:
    axes = named_axes(node)
    if axes is None:
        return None
    letters, kept = _letters(node.inputs[0]), node.attr("keep_dims", False)
    left = [WHOLE if axis in axes else letter for axis, letter in enumerate(letters) if kept or axis not in axes]
    return _only(node, 0, letters), [tuple(left)]


def named_axes(node: Node) -> set[int] | None:
    """The dimensions in the axis operand; in the gradient of a broadcast they follow from two static shapes."""
    operand, source = ops.record(node.op).axis_operand(len(node.inputs)), node.inputs[_source(node)]
    if operand is None or node.inputs[operand].node.op in ops.BROADCAST_AXES:
        return None if operand is None else _broadcast_axes(node.inputs[operand])
    axes = integers(node.inputs[operand])
    if axes is None or (source.shape is None and min(axes, default=0) < 0):
        return None
    return {axis % rank(source) if rank(source) else axis for axis in axes}


def _broadcast_axes(tensor: Tensor) -> set[int] | None:
    """The value of BroadcastGradientArgs: the dimensions where this operand is 1 or missing.

    An unknown dimension counts as larger than 1.
    """
    sizes = [known_vector(operand) for operand in tensor.node.inputs]
    if sizes[0] is None or sizes[1] is None:
        return None
    own = sizes[tensor.port] or []
    lead = max(map(len, sizes)) - len(own)  # type: ignore[arg-type]
    return {*range(lead), *(lead + axis for axis, size in enumerate(own) if size == 1)}


def _concat(node: Node) -> Made | None:
    data, axes = ops.record(node.op).data_operands(len(node.inputs)), named_axes(node)
    if axes is None:
        return None
    letters = [WHOLE if axis in axes else letter for axis, letter in enumerate(_letters(node.inputs[data[0]]))]
    return [tuple(letters) if i in data else None for i in range(len(node.inputs))], [tuple(letters)]


def _like(node: Node) -> Made | None:
    """A dimension of equal size in operand and output is unaffected by the op."""
    index, out = _source(node), node.out()
    if out.shape is None:
        return None
    source = node.inputs[index].shape or ()
    lead = len(out.shape) - len(source)
    if lead < 0:
        return None
    same = [axis for axis, size in enumerate(source) if size is not None and size == out.shape[lead + axis]]
    same += [axis for axis in range(len(source)) if axis not in same and _untouched(node, axis)]
    inputs = [f"d{axis}" if axis in same else WHOLE for axis in range(len(source))]
    return _only(node, index, inputs), [(*[WHOLE] * lead, *inputs)]


def _untouched(node: Node, axis: int) -> bool:
    """Whether an unknown dimension is unchanged: no padding, or one repetition."""
    told = integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if told is None:
        return False
    if node.op in ops.TILES:
        return told[axis] == 1
    if node.op in ops.PADS:
        return told[2 * axis : 2 * axis + 2] == [0, 0]
    if node.op in ops.PLAIN_SLICES:
        size = integers(node.inputs[2])
        return told[axis] == 0 and size is not None and size[axis] == -1
    return False


def _sliced(node: Node) -> Made | None:
    """The dimensions that a strided slice, or its gradient, leaves whole."""
    gradient = node.op in ops.SLICE_GRADIENTS
    whole = node.out().shape if gradient else node.inputs[0].shape
    part = node.inputs[4].shape if gradient else node.out().shape
    places = None if whole is None else sliced_places(node, len(whole))
    if whole is None or part is None or places is None:
        return None
    large, small = [WHOLE] * len(whole), [WHOLE] * len(part)
    for axis, target, place in places:
        if axis is None or target is None or target >= len(part):
            continue
        if _takes_all(node, place, whole[axis], part[target]):
            large[axis] = small[target] = f"d{axis}"
    return (_only(node, 4, small), [tuple(large)]) if gradient else (_only(node, 0, large), [tuple(small)])


def _takes_all(node: Node, place: int | None, whole: int | None, part: int | None) -> bool:
    if place is None:
        return True
    steps = integers(node.inputs[3])
    if steps is None or steps[place] != 1:
        return False
    masked = node.attr("begin_mask", 0) >> place & 1 and node.attr("end_mask", 0) >> place & 1
    return bool(masked) or (whole is not None and whole == part)


def sliced_places(node: Node, size: int) -> list[tuple[int | None, int | None, int | None]] | None:
    """For each part of a strided slice: the source dimension, the result dimension, and the index into begin and end.

    The source dimension is None for a new axis, the result dimension None where one element is picked, and the index None for
    dimensions of an ellipsis or without bounds.
    """
    begin = node.inputs[1 if node.op in ops.STRIDED_SLICES | ops.SLICE_GRADIENTS else 0].shape
    count = None if node.inputs[2].shape in (None, (None,)) or begin is None else (node.inputs[2].shape or (0,))[0]
    if count is None:
        return None
    masks = {name: int(node.attr(f"{name}_mask", 0)) for name in ("ellipsis", "new_axis", "shrink_axis")}
    new = [p for p in range(count) if masks["new_axis"] >> p & 1 and not masks["ellipsis"] >> p & 1]
    wide = size - (count - len(new) - bool(masks["ellipsis"]))
    parts: list[tuple[bool, bool, int | None]] = []  # in the source, in the result, index
    for place in range(count):
        if masks["ellipsis"] >> place & 1:
            parts += [(True, True, None)] * wide
        else:
            parts.append((place not in new, place in new or not masks["shrink_axis"] >> place & 1, place))
    parts += [(True, True, None)] * (size - sum(of_source for of_source, *_ in parts))
    axes, targets = itertools.count(), itertools.count()
    return [(next(axes) if source else None, next(targets) if result else None, at) for source, result, at in parts]


_WORDS = {
    "permute": _permute,
    "insert": _insert,
    "drop": _drop,
    "along": _along,
    "reduce": _reduce,
    "concat": _concat,
    "like": _like,
    "sliced": _sliced,
}
"""Reads the words of records that name dimensions by an operand or attribute, with its value and static shapes."""
