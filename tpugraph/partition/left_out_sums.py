"""Gradients of variables that were broadcast along one row: TensorFlow left out their sum over it, and nothing stands in its place.

The variable has one place where its gradient has a row. What only scales a gradient may come before the sum; what takes
its norm, or clips it, has to see the sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimension_rules.lookup_ties import handle_dims
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import follows_batch, known
from tpugraph.ir import Node, Tensor, Use
from tpugraph.ir.walks import source_of
from tpugraph.ops.record import Call

_FARTHEST = 64
"""How many ops are looked at, at most, from one write."""


def sums_before(d: Dimensions) -> dict[tuple[Tensor, tuple[int, ...]], dict[Use, None]]:
    """The tensors that are to be summed over their row, with the dimensions of that, and by whom the sums are read."""
    found: dict[tuple[Tensor, tuple[int, ...]], dict[Use, None]] = {}
    for node in d.order:
        for index, shape in _goes_to(d, node):
            axes = _rows(d, node.inputs[index], shape)
            if axes:
                tensor, uses = _before_nonlinear(d, Use(node, index), axes)
                found.setdefault((tensor, axes), {}).update(dict.fromkeys(uses))
    return found


def _goes_to(d: Dimensions, node: Node) -> Iterator[tuple[int, Dims]]:
    """The operands that a node writes to a variable, or takes beside others of their shape, with the shape that they have to have."""
    fact = ops.WRITES.get(node.op)
    shape = handle_dims(node.inputs[fact.variables[0]]) if fact is not None and fact.rows is None else None
    if fact is not None and shape is not None:
        yield fact.value, shape
    if node.op in ops.SLICE_GRADIENTS and node.outputs:
        yield from _taken_of_table(d, node)
    for share in [t.node for t in node.inputs if t.node.op in ops.DIVISIONS] if node.op in ops.SCALINGS else ():
        value, counted = share.inputs  # an extreme's gradient goes to equal parts to all places that hold it
        if (
            source_of(counted, ops.RESHAPES).node.op in ops.SUMS
            and value in source_of(counted, ops.RESHAPES).node.inputs
        ):
            shared = d.dims(counted)
            yield from ((i, shared) for i, t in enumerate(node.inputs) if t.node is not share and shared is not None)
    if node.op in ops.ADD_N or (node.op in ops.BACKPROPAGATION and _elementwise(d, node)):
        told = [t for t in node.inputs if node.op not in ops.ADD_N or d.level(t) != 0]  # zeros are as large as the rest
        least = min((d.dims(t) or () for t in told), key=lambda dims: sum(map(follows_batch, dims)), default=())
        yield from ((index, least) for index, t in enumerate(node.inputs) if t.node.op not in ops.CONSTANTS)


def _taken_of_table(d: Dimensions, node: Node) -> Iterator[tuple[int, Dims]]:
    """What a slice by numbers took of a table: one place of several, where its gradient has a row."""
    whole, grad, bounds = d.dims(node.out()) or (), d.dims(node.inputs[4]) or (), [fixed(t) for t in node.inputs[1:3]]
    found = list(places(node, len(whole)))
    numbers = [size for tensor in node.inputs[1:3] for size in d.elements(tensor) or ()]
    if any(size is not None and follows_batch(size) for size in numbers):
        return  # as many places as there are rows
    if None in bounds or any(axis is None for axis, _, _ in found) or any(map(follows_batch, whole)):
        return
    taken = {
        target: whole[axis] for axis, target, place in found if place >= 0 and axis is not None and target is not None
    }
    yield 4, tuple(1 if a in taken and d.sizes.at(size) == 1 else size for a, size in enumerate(grad))


def _rows(d: Dimensions, value: Tensor, shape: Dims) -> tuple[int, ...]:
    """The dimensions along which a value has a row, and what it goes to one place."""
    dims = d.dims(value)
    if dims is None or len(dims) != len(shape) or not value.dtype.floating:
        return ()
    alone = (d.sizes.at(size) == 1 and follows_batch(size) and known(shape[a]) == 1 for a, size in enumerate(dims))
    return tuple(axis for axis, is_row in enumerate(alone) if is_row)


def _before_nonlinear(d: Dimensions, use: Use, axes: tuple[int, ...]) -> tuple[Tensor, list[Use]]:
    """The tensor in front of all that is not linear in a gradient, and who has to read its sum: that, and what leads to a use."""
    tensor = use.node.inputs[use.index]
    found = tensor, [use]
    for _ in range(_FARTHEST):
        uses = tensor.node.uses(tensor.port)
        others = [u for u in uses if u != use and not _linear(d, u, axes)]
        if others or not _linear(d, use, axes):
            found = tensor, [use, *others]
        if len(uses) > 1 + len(others):
            return found  # backpropagation may go on from here
        operands = [index for index, t in enumerate(tensor.node.inputs) if _has_rows(d, t, axes)]
        if len({tensor.node.inputs[index] for index in operands}) != 1 or not _elementwise(d, tensor.node):
            return found
        use = Use(tensor.node, operands[0])
        tensor = tensor.node.inputs[operands[0]]
    return found


def _has_rows(d: Dimensions, tensor: Tensor, axes: tuple[int, ...]) -> bool:
    dims = d.dims(tensor) if tensor.dtype.floating else None
    return dims is not None and max(axes) < len(dims) and any(follows_batch(dims[axis]) for axis in axes)


def _reduces(d: Dimensions, node: Node, axes: tuple[int, ...]) -> bool:
    """Whether a reduction takes one of some dimensions of its operand away, or may."""
    dims, gone = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    return not dims or gone is None or any(axis % len(dims) in axes for axis in gone)


def _elementwise(d: Dimensions, node: Node) -> bool:
    signature = d.signature(node)
    return signature is not None and signature.elementwise


def _linear(d: Dimensions, use: Use, axes: tuple[int, ...]) -> bool:
    """Whether a use may come before the sum of an operand: it is linear in it, alone or with others that have rows."""
    node, index = use
    if node not in d.nodes or not node.outputs or not node.out().dtype.floating or node.op in ops.WRITES:
        return True
    if node.op in ops.IDENTITIES:
        return all(_linear(d, reader, axes) for reader in node.uses(0))
    if node.op in ops.MEANS and _reduces(d, node, axes):
        return False  # the mean of the sum is the sum, of the rows it is a part of that
    call = Call(node.attr, tuple(None if t.shape is None else len(t.shape) for t in node.inputs))
    alike = {i for i, t in enumerate(node.inputs) if t == node.inputs[index]}
    rows = {i for i, t in enumerate(node.inputs) if _has_rows(d, t, axes)}
    return any(
        alike <= together and (together <= rows or not _elementwise(d, node))
        for together in ops.record(node.op).linear_in(call)
    )
