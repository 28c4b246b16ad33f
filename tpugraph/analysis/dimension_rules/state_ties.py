"""What ops that write variables, and batch norms, tie together."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimension_rules.lookup_ties import handle_dims
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.ir import Node


@rule(" ".join(ops.WRITES))
def _writes(d: Dimensions, node: Node) -> None:
    """What a variable is given has its shape."""
    fact = ops.WRITES[node.op]
    table = handle_dims(node.inputs[fact.variables[0]])
    value = d.dims(node.inputs[fact.value])
    if table is not None and value is not None and fact.rows is None and len(value) == len(table):
        for size, place in zip(value, table, strict=True):
            if d.sure_writes or place != 1:
                d.sizes.tie(size, place)
    if fact.rows is not None and value is not None:
        numbers = d.dims(node.inputs[fact.rows])
        place = numbers[-1] if numbers and fact.places else 1  # how many numbers name a row, or an element
        if numbers and fact.places:
            numbers = numbers[:-1]
        if numbers is not None:
            d.tie(value[: len(numbers)], numbers)
            d.tie(value[len(numbers) :], table[place:] if table is not None and isinstance(place, int) else None)
    for port in range(len(node.outputs or ())):
        d.fresh(node.out(port))


@rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _batch_norm(d: Dimensions, node: Node) -> None:
    channels = _tie_channels(d, node, d.dims(node.inputs[0]), d.dims(node.inputs[1]))
    d.set(node.out(), d.dims(node.inputs[0]))
    for port in range(1, len(node.outputs or ())):
        d.set(node.out(port), channels if port < 5 else None)


@rule("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3")
def _batch_norm_grad(d: Dimensions, node: Node) -> None:
    d.tie(d.dims(node.inputs[0]), d.dims(node.inputs[1]))
    channels = _tie_channels(d, node, d.dims(node.inputs[1]), d.dims(node.inputs[2]))
    d.set(node.out(), d.dims(node.inputs[1]))
    for port in range(1, len(node.outputs or ())):
        d.set(node.out(port), channels if port < 3 else None)


def _tie_channels(d: Dimensions, node: Node, image: Dims | None, scale: Dims | None) -> Dims | None:
    """There is a scale for each channel; rows that lie along the channels, as of a layer norm, have scales of their own."""
    signature = d.signature(node)
    if image and scale and signature is not None and signature.inputs[0] is not None:
        d.sizes.tie(image[signature.inputs[0].index("c")], scale[0])
    return scale
