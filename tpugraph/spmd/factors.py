"""The factors of a node: which dimensions of operands and outputs correspond, by its op record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.signatures import ASSUMED_RANK, WHOLE, Factors, Signature
from tpugraph.analysis.values import integers, known_vector
from tpugraph.ir import Node, Tensor


def rank(tensor: Tensor) -> int:
    """The rank; 0 where it is unknown."""
    return len(tensor.shape or ())


def signature(node: Node) -> Signature | None:
    """The signature of a node, also where operands name dimensions; None where factors do not describe it."""
    record = ops.record(node.op)
    factors_of_word = _WORDS.get(record.dims) if isinstance(record.dims, str) else None
    if factors_of_word is None:
        return signatures.of(node)
    if record.dims != "reduce":
        named = _axis_and_size_operands(node)
        if any(tensor.shape is None for index, tensor in enumerate(node.inputs) if index not in named):
            return None
    found = factors_of_word(node)
    if found is None:
        return None
    operands, outputs = found
    linear = record.linear_in(signatures.call_of(node))
    return Signature(tuple(operands), tuple(outputs), linear, signatures.reduce_op(node))


def _axis_and_size_operands(node: Node) -> set[int]:
    record, count = ops.record(node.op), len(node.inputs)
    return {*record.size_operands(count), *record.constant_operands(count), record.axis_operand(count)} - {None}  # type: ignore[return-value]


OperandsAndOutputs = tuple[list[Factors], list[Factors]]
"""The factors of each operand and of each output."""


def _own_factors(tensor: Tensor) -> list[str]:
    """A factor of its own for each dimension."""
    return [f"d{axis}" for axis in range(ASSUMED_RANK if tensor.shape is None else len(tensor.shape))]


def _data_operand(node: Node) -> int:
    """The index of the first operand that is neither axes nor sizes."""
    named = _axis_and_size_operands(node)
    return next(index for index in range(len(node.inputs)) if index not in named)


def _only(node: Node, operand: int, factors: Sequence[str]) -> list[Factors]:
    """Factors of one operand, and no claim for the others."""
    return [tuple(factors) if index == operand else None for index in range(len(node.inputs))]


def _permute(node: Node) -> OperandsAndOutputs | None:
    order = integers(node.inputs[1])
    if order is None:
        return None
    letters = _own_factors(node.inputs[0])
    return _only(node, 0, letters), [tuple(letters[axis] for axis in order)]


def _insert(node: Node) -> OperandsAndOutputs | None:
    axes = integers(node.inputs[1])
    if axes is None:
        return None
    letters = _own_factors(node.inputs[0])
    place = axes[0] % (len(letters) + 1)
    return _only(node, 0, letters), [(*letters[:place], WHOLE, *letters[place:])]


def _drop(node: Node) -> OperandsAndOutputs | None:
    letters, shape = _own_factors(node.inputs[0]), node.inputs[0].shape or ()
    dropped = [axis % len(letters) for axis in node.attr("squeeze_dims", ()) or ()]
    if not dropped:
        if None in shape:
            return None
        dropped = [axis for axis, size in enumerate(shape) if size == 1]
    marked = [WHOLE if axis in dropped else letter for axis, letter in enumerate(letters)]
    return _only(node, 0, marked), [tuple(letter for axis, letter in enumerate(letters) if axis not in dropped)]


def _along(node: Node) -> OperandsAndOutputs | None:
    """The dimensions that an operand names are taken whole, and kept."""
    index, axes = _data_operand(node), named_axes(node)
    if axes is None:
        return None
    marked = [WHOLE if axis in axes else letter for axis, letter in enumerate(_own_factors(node.inputs[index]))]
    return _only(node, index, marked), [tuple(marked)] * len(node.outputs or ())


def _reduce(node: Node) -> OperandsAndOutputs | None:
    axes = named_axes(node)
    if axes is None:
        return None
    letters, kept = _own_factors(node.inputs[0]), node.attr("keep_dims", False)
    left = [WHOLE if axis in axes else letter for axis, letter in enumerate(letters) if kept or axis not in axes]
    return _only(node, 0, letters), [tuple(left)]


def named_axes(node: Node) -> set[int] | None:
    """The dimensions in the axis operand; in the gradient of a broadcast they follow from two static shapes."""
    operand = ops.record(node.op).axis_operand(len(node.inputs))
    if operand is None:
        return None
    if node.inputs[operand].node.op in ops.BROADCAST_AXES:
        return _broadcast_axes(node.inputs[operand])
    axes, data = integers(node.inputs[operand]), node.inputs[_data_operand(node)]
    if axes is None or (data.shape is None and min(axes, default=0) < 0):
        return None
    return {axis % rank(data) if rank(data) else axis for axis in axes}


def _broadcast_axes(tensor: Tensor) -> set[int] | None:
    """The value of BroadcastGradientArgs: the dimensions where this operand is 1 or missing.

    An unknown dimension counts as larger than 1.
    """
    sizes = [known_vector(operand) for operand in tensor.node.inputs]
    if sizes[0] is None or sizes[1] is None:
        return None
    own = sizes[tensor.port] or []
    added = max(len(sizes[0]), len(sizes[1])) - len(own)
    return {*range(added), *(added + axis for axis, size in enumerate(own) if size == 1)}


def _concat(node: Node) -> OperandsAndOutputs | None:
    data, axes = ops.record(node.op).data_operands(len(node.inputs)), named_axes(node)
    if axes is None:
        return None
    letters = [WHOLE if axis in axes else letter for axis, letter in enumerate(_own_factors(node.inputs[data[0]]))]
    return [tuple(letters) if index in data else None for index in range(len(node.inputs))], [tuple(letters)]


def _like(node: Node) -> OperandsAndOutputs | None:
    """A dimension of equal size in operand and output is unaffected by the op."""
    operand, result = _data_operand(node), node.out().shape
    if result is None:
        return None
    shape = node.inputs[operand].shape or ()
    added = len(result) - len(shape)
    if added < 0:
        return None
    same = [axis for axis, size in enumerate(shape) if size is not None and size == result[added + axis]]
    same += [axis for axis in range(len(shape)) if axis not in same and _untouched(node, axis)]
    factors = [f"d{axis}" if axis in same else WHOLE for axis in range(len(shape))]
    return _only(node, operand, factors), [(*[WHOLE] * added, *factors)]


def _untouched(node: Node, axis: int) -> bool:
    """Whether an unknown dimension is unchanged: no padding, or one repetition."""
    numbers = integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if numbers is None:
        return False
    if node.op in ops.TILES:
        return numbers[axis] == 1
    if node.op in ops.PADS:
        return numbers[2 * axis : 2 * axis + 2] == [0, 0]
    if node.op in ops.PLAIN_SLICES:
        size = integers(node.inputs[2])
        return numbers[axis] == 0 and size is not None and size[axis] == -1
    return False


def _sliced(node: Node) -> OperandsAndOutputs | None:
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
    end = node.inputs[2].shape
    count = (end or (0,))[0] if begin is not None and end is not None else None
    if count is None:
        return None

    def masked(kind: str) -> set[int]:
        mask = int(node.attr(f"{kind}_mask", 0))
        return {place for place in range(count) if mask >> place & 1}

    ellipsis = masked("ellipsis")
    new = masked("new_axis") - ellipsis
    picked = masked("shrink_axis") - new
    of_ellipsis = size - (count - len(new) - len(ellipsis))
    parts: list[tuple[bool, bool, int | None]] = []  # in the source, in the result, index
    for place in range(count):
        if place in ellipsis:
            parts += [(True, True, None)] * of_ellipsis
        else:
            parts.append((place not in new, place not in picked, place))
    parts += [(True, True, None)] * (size - sum(in_source for in_source, *_ in parts))
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
