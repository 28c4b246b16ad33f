"""Partition rules of stacks, TensorArrays and lists: all elements of a container have one placement."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, SHARE, SUM, Held, Partial, Placement, Shard
from tpugraph.analysis.values import integers
from tpugraph.ir import Node
from tpugraph.spmd.placing import Placing, Verdict, rule, whole
from tpugraph.spmd.rules.signature import by_signature
from tpugraph.spmd.splats import is_zero


@rule("TensorArrayV3 StackV2 Stack EmptyTensorList TensorListReserve")
def _container(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    made: list[Placement] = [Held(node.name), *[REPLICATE] * (len(node.outputs or ()) - 1)]
    return Verdict(made, whole(inputs), why="a container")


@rule("TensorArrayGradV3")
def _gradient(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if not isinstance(inputs[0], Held):
        return Verdict([Held(node.name), REPLICATE], why="a container")
    source = node.attr("source", "")
    source = source.decode() if isinstance(source, bytes) else source
    return Verdict([Held(f"{inputs[0].key}/{source}", inputs[0].key), REPLICATE], why="a container")


@rule("ZerosLike")
def _zeros_like(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """ZerosLike of a list is the list of its gradients."""
    if not isinstance(inputs[0], Held):
        return by_signature(p, node, inputs)
    return Verdict([Held(f"{inputs[0].key}/{node.name}", inputs[0].key)], why="a container")


@rule("AddN")
def _add_n(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    lists = [s for s in inputs if isinstance(s, Held)]
    return Verdict([joined_lists(p, node, lists)], why="a container") if lists else by_signature(p, node, inputs)


def joined_lists(p: Placing, node: Node, lists: list[Held]) -> Held:
    """Unite lists: all get the placement of the first."""
    for other in lists[1:]:
        for source, target in ((other, lists[0]), (lists[0], other)):
            element = p.read_element(node, source)
            if element is not None:
                p.write_element(node, target, element)
    return lists[0]


def _written(p: Placing, node: Node, inputs: list[Placement], index: int, outputs: list[Placement | None]) -> Verdict:
    """A written element is converted to the container's placement."""
    element = inputs[index]
    held = p.write_element(node, inputs[0], element)
    wants = _index(node)
    if held != element:
        wants[index] = _element_placement(node, index, held)
    return Verdict(outputs, wants, why="an element of a container")


def _element_placement(node: Node, index: int, held: Placement) -> Placement:
    if isinstance(held, Partial):
        return REPLICATE if held != SUM or is_zero(node.inputs[index]) else SHARE
    return held


def _index(node: Node) -> dict[int, Placement]:
    index = ops.CONTENTS[node.op].index
    return {} if index is None else {index: REPLICATE}


@rule("TensorArrayWriteV3 TensorListPushBack TensorListSetItem StackPushV2 StackPush")
def _write(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    contents = ops.CONTENTS[node.op]
    index = contents.puts or 0
    made: Placement = inputs[0] if contents.value else (inputs[index] if contents.grows else REPLICATE)
    return _written(p, node, inputs, index, [made])


@rule("TensorArrayReadV3 TensorListGetItem StackPopV2 StackPop")
def _read(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([p.read_element(node, inputs[0])], _index(node), why="an element of a container")


@rule("TensorListPopBack")
def _pop(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([inputs[0], p.read_element(node, inputs[0])], why="an element of a container")


def _element(placement: Placement) -> Placement | None:
    """The placement of a slice along dimension 0; None where dimension 0 is sharded."""
    if isinstance(placement, Shard):
        return placement.at(placement.axis - 1) if placement.axis else None
    return placement


def _stack_of(element: Placement) -> Placement:
    return element.at(element.axis + 1) if isinstance(element, Shard) else element


@rule("TensorArrayScatterV3")
def _unstack(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return _unstacked(p, node, inputs, 2, inputs[0], [REPLICATE])


@rule("TensorListFromTensor")
def _list_from(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    handle = Held(node.name)
    return _unstacked(p, node, inputs, 0, handle, [handle])


def _unstacked(
    p: Placing, node: Node, inputs: list[Placement], index: int, handle: Placement, outputs: list[Placement | None]
) -> Verdict:
    element = _element(inputs[index])
    held = p.write_element(node, handle, REPLICATE if element is None else element)
    wanted = _stack_of(_element_placement(node, index, held)) if held != element else inputs[index]
    return Verdict(outputs, {index: wanted} | whole(inputs, index), why="slices are elements of a container")


@rule("TensorArrayGatherV3 TensorListStack")
def _stacked(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    held = p.read_element(node, inputs[0])
    return Verdict([None if held is None else _stack_of(held)], whole(inputs), why="the elements of a container")


@rule("TensorArrayConcatV3")
def _joined(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Elements stacked or concatenated along dimension 0: a Shard with one whole batch per element."""
    held, count = p.read_element(node, inputs[0]), _elements(p, inputs[0])
    if not isinstance(held, Shard) or held.axis:
        return Verdict([held, REPLICATE], why="the elements of a container")
    if count is None:
        p.write_element(node, inputs[0], SUM)  # no placement joins shards and partial sums
        return Verdict([p.read_element(node, inputs[0]), REPLICATE], why="joins as many elements as data say")
    return Verdict([Shard(0, held.outer * count), REPLICATE], why="whole batches one behind the other")


def _elements(p: Placing, handle: Placement) -> int | None:
    made = p.graph.get(handle.of or handle.key) if isinstance(handle, Held) else None
    grows = made is None or made.op not in ops.CONTENTS or made.attr("dynamic_size", False)
    length = None if grows or made is None else ops.CONTENTS[made.op].length
    sizes = None if made is None or length is None else integers(made.inputs[length])
    return sizes[0] if sizes else None


@rule("TensorArraySplitV3")
def _split(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The inverse of ``_joined``: pieces that are whole batches are elements sharded along their dimension 0."""
    value, count = inputs[1], _elements(p, inputs[0])
    if not isinstance(value, Shard) or value.axis:
        return _written(p, node, inputs, 1, [REPLICATE])
    element: Placement = Shard(0) if value.outer == count else REPLICATE
    held = p.write_element(node, inputs[0], element)
    wants: dict[int, Placement] = {} if held == Shard(0) == element else {1: REPLICATE}
    return Verdict([REPLICATE], wants, why="parts are elements of a container")
