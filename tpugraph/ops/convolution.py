"""Convolutions, pooling and image ops."""

from __future__ import annotations

from collections.abc import Callable

from tpugraph.ops.record import Call, images, page

op = page("convolution")

# --------------------------------------------------------------------------- convolutions


def _convolution(name: str, image: str, kernel: str, made: str, version: str = "") -> None:
    """A convolution, and its gradients with respect to image and kernel."""
    op(name, dims=images(f"{image}, {kernel} -> {made}"), linear="each", role="product")
    op(
        f"{name}BackpropInput{version}",
        dims=images(f"-, {kernel}, {made} -> {image}"),
        linear="1,2",
        constants=(0,),
        shaped_by=0,
        backward=True,
    )
    op(
        f"{name}BackpropFilter{version}",
        dims=images(f"{image}, -, {made} -> {kernel}"),
        linear="0,2",
        constants=(1,),
        shaped_by=1,
        backward=True,
    )


_convolution("Conv2D", "n**c", "**co", "n**o")
_convolution("Conv3D", "n***c", "***co", "n***o", "V2")
_convolution("DepthwiseConv2dNative", "n***", "****", "n***")  # output channels are input channels times multiplier
op("Dilation2D", dims="n**c, **c -> n**c")
op("Dilation2DBackpropInput", dims="nHWc, **c, n**c -> nHWc", linear="2", backward=True)
op("Dilation2DBackpropFilter", dims="n**c, HWc, n**c -> HWc", linear="2", backward=True)

# --------------------------------------------------------------------------- pooling


def _pool(dims: str) -> Callable[[Call], str | None]:
    """Channels, and rows, are independent where the window has size 1 there."""
    by_format = images(dims)
    assert callable(by_format)

    def rule(call: Call) -> str | None:
        written, window = by_format(call), list(call.attr("ksize", ()))
        channel = 1 if str(call.attr("data_format", "NHWC")).startswith("NC") else -1
        return written if window and written and window[0] == window[channel] == 1 else None

    return rule


op("MaxPool", dims=_pool("n**c -> n**c"))
op("MaxPoolGrad", dims=_pool("nHWc, nIJc, nIJc -> nHWc"), linear="2", backward=True)
op("MaxPoolGradGrad", dims=_pool("nHWc, nIJc, nHWc -> nIJc"), linear="2")
op("MaxPoolV2", dims="n***, -, - -> n***", constants=(1, 2))
op("MaxPoolGradV2", dims="nHWC, nIJC, nIJC, -, - -> nHWC", linear="2", constants=(3, 4))
op("MaxPoolGradGradV2", dims="nHWC, nIJC, nHWC, -, - -> nIJC", linear="2", constants=(3, 4))
op("AvgPool", dims=_pool("n**c -> n**c"), linear="all")
op("AvgPoolGrad", dims=_pool("-, n**c -> n**c"), linear="1", constants=(0,), shaped_by=0, backward=True)
op("MaxPool3D", dims=_pool("n***c -> n***c"))
op("MaxPool3DGrad", dims=_pool("nFHWc, nGIJc, nGIJc -> nFHWc"), linear="2", backward=True)
op("MaxPool3DGradGrad", dims=_pool("nFHWc, nGIJc, nFHWc -> nGIJc"), linear="2")
op("AvgPool3D", dims=_pool("n***c -> n***c"), linear="all")
op("AvgPool3DGrad", dims=_pool("-, n***c -> n***c"), linear="1", constants=(0,), shaped_by=0, backward=True)


def _argmax(dims: str) -> Callable[[Call], str]:
    """Flat argmax indices include the channel, and the row if the op is asked to include the batch."""
    return lambda call: dims.replace("n", "N") if call.attr("include_batch_in_index", False) else dims


op("MaxPoolWithArgmax", dims=_argmax("n*** -> n***, n***"))
op("MaxPoolGradWithArgmax", dims=_argmax("n***, n***, n*** -> n***"), linear="1", backward=True)
op("FractionalMaxPool FractionalAvgPool", instead="tf.nn.max_pool2d or tf.nn.avg_pool2d")

# --------------------------------------------------------------------------- images

op("ExtractImagePatches SpaceToDepth DepthToSpace", dims="n*** -> n***", linear="all")
op("ExtractVolumePatches", dims="n**** -> n****", linear="all")
op("SpaceToBatch BatchToSpace", dims="***c, - -> ***c", linear="0")
op("SpaceToBatchND BatchToSpaceND", linear="0", constants=(1, 2))
op("ResizeBilinear", dims="n**c, - -> n**c", linear="0", constants=(1,))
op("ResizeBilinearGrad", dims="n**c, nHWc -> nHWc", linear="0", backward=True)
op("ResizeNearestNeighbor", dims="n**c, - -> n**c", linear="0", constants=(1,))
op(
    "ResizeNearestNeighborGrad",
    dims="n**c, - -> n**c",
    linear="0",
    instead="tf.image.resize with method bilinear; or tf.repeat, whose gradient XLA has, for whole factors",
    backward=True,
)
_RESIZE = "tf.image.resize with method bilinear or nearest, or resize in the input function"
op("ResizeBicubic ResizeArea", dims="n**c, - -> n**c", linear="0", instead=_RESIZE)
op("ResizeBicubicGrad", dims="n**c, nHWc -> nHWc", linear="0", backward=True)
op("ScaleAndTranslate", dims="n**c, -, -, - -> n**c", linear="0", instead=_RESIZE)
op("ScaleAndTranslateGrad", dims="n**c, nHWc, -, - -> nHWc", linear="0", backward=True)
op("CropAndResize", dims="***c, b*, b, - -> b**c", linear="0", instead=_RESIZE)
op("CropAndResizeGradImage", dims="b**c, b*, b, - -> ***c", linear="0", backward=True, shaped_by=3)
op("CropAndResizeGradBoxes", dims="b**c, ***c, b*, b -> b*", linear="0,1")
op("ExtractGlimpse", instead=_RESIZE)
# one transform per image, or one for all
op("ImageProjectiveTransformV2", dims="...**c, ...*, - -> ...**c", linear="0")
op("ImageProjectiveTransformV3", dims="...**c, ...*, -, - -> ...**c")
op("DrawBoundingBoxes", dims="nHWC, n** -> nHWC")
op("DrawBoundingBoxesV2", dims="nHWC, n**, - -> nHWC")
op("AdjustContrastv2", dims="...HWc, - -> ...HWc", linear="0")
op("AdjustHue AdjustSaturation", dims="...C, - -> ...C")
op("RGBToHSV HSVToRGB", dims="...C -> ...C")
op("NonMaxSuppressionV4", constants=(2,))
op("QuantizedConv2D")
