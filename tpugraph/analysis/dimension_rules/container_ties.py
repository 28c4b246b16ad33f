"""What TensorArrays, stacks and lists tie together."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Container, Dims
from tpugraph.analysis.dimension_rules.handed_on_ties import hand_on
from tpugraph.analysis.dimension_rules.size_arithmetic import product
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size
from tpugraph.analysis.trip_counts import steps_of
from tpugraph.ir import Node, Tensor
from tpugraph.ir.pattern import anything, match, op
from tpugraph.ir.walks import source_of
from tpugraph.ir.while_loops import carried

# --------------------------------------------------------------------------- containers


@rule("TensorArrayV3")
def _array(d: Dimensions, node: Node) -> None:
    handle = node.out()
    d.handles[handle] = handle
    held = d.containers[handle] = Container()
    size = d.elements(node.inputs[0])
    held.fixed = not node.attr("dynamic_size", False)
    held.length = size[0] if size and held.fixed else None
    d.fresh(handle)
    d.set(node.out(1), ())


@rule("TensorArrayGradV3")
def _array_grad(d: Dimensions, node: Node) -> None:
    d.handles[node.out()] = d.handles.get(node.inputs[0], node.out())
    d.containers.setdefault(d.handles[node.out()], Container())
    d.fresh(node.out())
    d.set(node.out(1), ())


@rule("StackV2 Stack")
def _stack(d: Dimensions, node: Node) -> None:
    d.handles[node.out()] = node.out()
    d.containers[node.out()] = Container()
    d.fresh(node.out())


def _container(d: Dimensions, node: Node) -> Container | None:
    root = d.handles.get(node.inputs[0])
    return None if root is None else d.containers[root]


def _length_of(d: Dimensions, handle: Tensor) -> Size | None:
    """How many elements a container has.

    An array that grows has as many as a loop has steps that counts from zero, one by one, and ends at a number for no other
    reason, if it puts an element in at each step, where it has counted to.
    """
    root = d.handles.get(handle)
    held = None if root is None else d.containers[root]
    if held is None or held.length is not None or held.fixed:
        return None if held is None else held.length
    limits: dict[Size | None, None] = {}
    puts = [use.node for tensor, of in d.handles.items() if of == root for use in tensor.node.uses(tensor.port)]
    for node, put in ((node, ops.CONTENTS.get(node.op)) for node in puts):
        if put is not None and put.puts is not None and put.index is not None:
            limits[_limit(d, node.inputs[put.index])] = None
    held.length = next(iter(limits)) if len(limits) == 1 else None
    return held.length


def _limit(d: Dimensions, number: Tensor) -> Size | None:
    """How far a loop counts whose counter is the number of an element, in every step of the loop; None where it is none such."""
    switch = source_of(number)
    loop = carried(switch.node.inputs[0].node) if switch.node.inputs else None
    if loop is None or not loop.holds(number) or fixed(loop.initial) != [0] or steps_of(loop.merge.out()) != 1:
        return None
    found = next(
        filter(None, (match(_UP_TO, use.node.out()) for less in loop.merge.uses(0) for use in less.node.uses())), None
    )
    limit = d.elements(found["limit"]) if found and found["counter"].node is loop.merge else None
    return limit[0] if limit else None


_UP_TO = op(ops.LOOP_COND, op(ops.computing(np.less), anything("counter"), anything("limit")))


def _holds(d: Dimensions, held: Container | None, dims: Dims | None) -> None:
    if held is None or dims is None:
        return
    if held.dims is None:
        held.dims = dims
    d.tie(held.dims, dims)


@rule("StackPushV2 StackPush")
def _push(d: Dimensions, node: Node) -> None:
    held, elements = _container(d, node), d.elements(node.inputs[1])
    _holds(d, held, d.dims(node.inputs[1]))
    d.set(node.out(), d.dims(node.inputs[1]))
    d.set_elements(node.out(), elements)
    if held is not None:
        held.elements = elements if held.pushes == 0 else None
        held.pushes += 1


@rule("StackPopV2 StackPop TensorArrayReadV3")
def _take(d: Dimensions, node: Node) -> None:
    held = _container(d, node)
    if held is not None and held.dims is not None:
        d.set(node.out(), held.dims)
        d.set_elements(node.out(), held.elements)
    else:
        _holds(d, held, d.fresh(node.out()))


@rule("TensorArrayWriteV3")
def _write(d: Dimensions, node: Node) -> None:
    _holds(d, _container(d, node), d.dims(node.inputs[2]))
    d.set(node.out(), ())


@rule("TensorArrayScatterV3")
def _array_scatter(d: Dimensions, node: Node) -> None:
    held, dims = _container(d, node), d.dims(node.inputs[2])
    d.set(node.out(), ())
    if dims is None:
        return
    _holds(d, held, dims[1:])
    indices = d.dims(node.inputs[1])
    if indices:
        d.sizes.tie(indices[0], dims[0])
    if held is not None and held.length is not None:
        d.sizes.tie(held.length, dims[0])


@rule("TensorArrayGatherV3")
def _array_gather(d: Dimensions, node: Node) -> None:
    held, out = _container(d, node), node.out()
    indices = d.dims(node.inputs[1])
    if held is None or held.dims is None or not indices:
        made = d.fresh(out)
        if made:
            _holds(d, held, made[1:])
        return
    length: Size = indices[0]
    if held.length is not None and d.sizes.at(held.length) == d.sizes.at(length):
        d.sizes.tie(held.length, length)
    d.set(out, (length, *held.dims))


@rule("TensorArrayConcatV3")
def _array_concat(d: Dimensions, node: Node) -> None:
    held, out, length = _container(d, node), node.out(), _length_of(d, node.inputs[0])
    d.fresh(node.out(1))
    if held is None or not held.dims or length is None:
        d.fresh(out)
        return
    d.set(out, (product(d, [length, held.dims[0]]), *held.dims[1:]))


@rule("TensorArraySplitV3")
def _array_split(d: Dimensions, node: Node) -> None:
    held, dims, lengths = _container(d, node), d.dims(node.inputs[1]), d.elements(node.inputs[2])
    d.set(node.out(), ())
    if dims and lengths and None not in lengths:
        d.sizes.sum([dims[0]], [length for length in lengths if length is not None])
    if held is None or not dims:
        return
    first = held.dims[0] if held.dims else lengths[0] if lengths and len(set(lengths)) == 1 else None
    if first is not None:
        _holds(d, held, (first, *dims[1:]))


@rule("TensorArraySizeV3 TensorListLength")
def _length(d: Dimensions, node: Node) -> None:
    length = _length_of(d, node.inputs[0])
    d.set(node.out(), ())
    if length is not None:
        d.set_elements(node.out(), [length])


# --------------------------------------------------------------------------- lists


def _new_list(d: Dimensions, out: Tensor) -> Container:
    d.handles[out] = out
    d.set(out, ())
    held = d.containers[out] = Container()
    return held


@rule("EmptyTensorList")
def _empty_list(d: Dimensions, node: Node) -> None:
    _new_list(d, node.out())


@rule("TensorListReserve")
def _reserved_list(d: Dimensions, node: Node) -> None:
    held = _new_list(d, node.out())
    size = d.elements(node.inputs[1])
    held.length = size[0] if size else None
    shape = d.elements(node.inputs[0])
    if shape is not None and None not in shape and all(d.sizes.at(s) >= 0 for s in shape):  # type: ignore[arg-type]
        held.dims = tuple(shape)  # type: ignore[arg-type]


@rule("TensorListFromTensor")
def _list_from(d: Dimensions, node: Node) -> None:
    held, dims = _new_list(d, node.out()), d.dims(node.inputs[0])
    if dims:
        held.dims, held.length = dims[1:], dims[0]


@rule("TensorListPushBack TensorListSetItem")
def _list_put(d: Dimensions, node: Node) -> None:
    value = node.inputs[ops.CONTENTS[node.op].puts or 0]
    _holds(d, _container(d, node), d.dims(value))
    hand_on(d, node.inputs[0], node.out())
    d.set(node.out(), ())


@rule("TensorListPopBack")
def _list_pop(d: Dimensions, node: Node) -> None:
    hand_on(d, node.inputs[0], node.out())
    d.set(node.out(), ())
    _list_read(d, node, node.out(1))


@rule("TensorListGetItem")
def _list_get(d: Dimensions, node: Node) -> None:
    _list_read(d, node, node.out())


def _list_read(d: Dimensions, node: Node, out: Tensor) -> None:
    held = _container(d, node)
    if held is not None and held.dims is not None:
        d.set(out, held.dims)
    else:
        _holds(d, held, d.fresh(out))


@rule("TensorListStack")
def _list_stack(d: Dimensions, node: Node) -> None:
    held, out = _container(d, node), node.out()
    if held is None or held.dims is None or held.length is None:
        made = d.fresh(out)
        if made:
            _holds(d, held, made[1:])
        return
    d.set(out, (held.length, *held.dims))


@rule("TensorListElementShape")
def _list_shape(d: Dimensions, node: Node) -> None:
    held = _container(d, node)
    d.fresh(node.out())
    if held is not None and held.dims is not None:
        d.set_elements(node.out(), list(held.dims))
