"""Ties between the height and width of an image and those of what windows over it make, as in convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimension_rules.arithmetic_ties import by_signature
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size
from tpugraph.ir import Node


@rule("Conv2D Conv3D MaxPool MaxPool3D AvgPool AvgPool3D")
def _windows(d: Dimensions, node: Node) -> None:
    """Rows may lie along the height or width of an image, as a batch that is a series in time: each window spans several."""
    by_signature(d, node)
    image, made = d.dims(node.inputs[0]), d.dims(node.out())
    if image is None or made is None:
        return
    _tie_places(d, node, image, made)
    _count(d, node, image)


@rule("Conv2DBackpropInput Conv3DBackpropInputV2 AvgPoolGrad AvgPool3DGrad")
def _input_gradient(d: Dimensions, node: Node) -> None:
    """The first operand holds the shape of the output; height and width are those that windows were laid over."""
    by_signature(d, node)
    sizes, made = d.elements(node.inputs[0]), d.dims(node.inputs[-1])
    if sizes is None or d.dims(node.out()) is None or None in sizes:
        return
    for axis, size in enumerate(sizes):
        if isinstance(size, int):
            d.measure(node.out(), axis, size)
    image = d.dims(node.out())
    d.tie(tuple(s for s in sizes if s is not None), image)
    if image is not None and made is not None:
        _tie_places(d, node, image, made)


@rule("Conv2DBackpropFilter Conv3DBackpropFilterV2")
def _kernel_gradient(d: Dimensions, node: Node) -> None:
    """The second operand holds the shape of the output: kernels may be made of rows, as those of a tracker are."""
    by_signature(d, node)
    sizes = d.elements(node.inputs[1])
    if sizes is not None and None not in sizes:
        d.tie(tuple(s for s in sizes if s is not None), d.dims(node.out()))


@rule("DepthwiseConv2dNative")
def _depthwise(d: Dimensions, node: Node) -> None:
    """It makes channels times multiplier: each channel of the image has kernels of its own."""
    _windows(d, node)
    _tie_channels(d, node, d.dims(node.inputs[0]), d.dims(node.inputs[1]), d.dims(node.out()))


@rule("DepthwiseConv2dNativeBackpropInput")
def _depthwise_input_gradient(d: Dimensions, node: Node) -> None:
    _input_gradient(d, node)
    _tie_channels(d, node, d.dims(node.out()), d.dims(node.inputs[1]), d.dims(node.inputs[2]))


@rule("DepthwiseConv2dNativeBackpropFilter")
def _depthwise_kernel_gradient(d: Dimensions, node: Node) -> None:
    _kernel_gradient(d, node)
    _tie_channels(d, node, d.dims(node.inputs[0]), d.dims(node.out()), d.dims(node.inputs[2]))


def _tie_channels(d: Dimensions, node: Node, image: Dims | None, kernel: Dims | None, made: Dims | None) -> None:
    axis = 1 if str(node.attr("data_format", "NHWC")).startswith("NC") else -1
    if image is not None and kernel is not None and made is not None:
        d.sizes.tie(image[axis], kernel[2])
        d.sizes.product([made[axis]], list(kernel[2:]))


def _tie_places(d: Dimensions, node: Node, image: Dims, made: Dims) -> None:
    """Tie each dimension that windows move along to how many windows there are."""
    if len(image) != len(made) or all(isinstance(size, int) for size in (*image[1:], *made[1:])):
        return
    for axis, span in _spans(d, node, len(image)):
        _tie(d, node, image[axis], made[axis], axis, span)


def _count(d: Dimensions, node: Node, image: Dims) -> None:
    """Say how many windows there are on what has so many elements: the shape of what comes out of a loop is not inferred."""
    for axis, span in _spans(d, node, len(image)):
        size, step = image[axis], int(node.attr("strides")[axis])
        if isinstance(size, int) and size >= 0:
            d.measure(node.out(), axis, _steps([size], lost=_lost(node, axis, span), step=step))


def _spans(d: Dimensions, node: Node, rank: int) -> list[tuple[int, int]]:
    """The axes that windows move along, and how many elements a window spans; without those of which nothing says it."""
    first = 2 if str(node.attr("data_format", "NHWC")).startswith("NC") else 1
    spans = [(axis, _span(d, node, axis, axis - first)) for axis in range(first, first + rank - 2)]
    return [(axis, span) for axis, span in spans if span is not None]


def _span(d: Dimensions, node: Node, axis: int, place: int) -> int | None:
    """How many elements a window spans along an axis; None where the kernel does not say it."""
    if node.has_attr("ksize"):
        return int(node.attr("ksize")[axis])
    kernel = d.dims(node.inputs[1])
    size = None if kernel is None else kernel[place]
    if not isinstance(size, int):
        return None
    dilations = node.attr("dilations", ()) or ()
    return (size - 1) * int(dilations[axis] if dilations else 1) + 1


def _tie(d: Dimensions, node: Node, size: Size, made: Size, axis: int, span: int) -> None:
    """Tie what windows make along one axis to what they lie over."""
    step, lost = int(node.attr("strides")[axis]), _lost(node, axis, span)
    d.sizes.window(size, made)
    if step > 1:
        d.sizes.computed(made, [size], partial(_steps, lost=lost, step=step))
    elif lost == 0:
        d.sizes.tie(made, size)
    elif lost > 0:
        d.sizes.sum([made, lost], [size])
    else:
        d.sizes.sum([made], [size, -lost])


def _lost(node: Node, axis: int, span: int) -> int:
    """How many fewer windows of a step of one there are than elements, for what a window spans and is added at the ends."""
    if node.attr("padding") == "SAME":
        return 0
    explicit = node.attr("explicit_paddings", ()) or ()
    return span - 1 - sum(map(int, explicit[2 * axis : 2 * axis + 2]))


def _steps(numbers: Sequence[int], *, lost: int, step: int) -> int:
    """How many windows there are of a size: one at each step."""
    return -((lost - numbers[0]) // step)
