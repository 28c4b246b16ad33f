"""How ops on boxes of images are partitioned."""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph.analysis.placement_rules.factor_placements import by_signature
from tpugraph.analysis.placements import Placement, Shard
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.ir import Node


@rule("CropAndResize")
def _crop(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    boxes = _boxes_of(inputs[0], inputs[2])
    if boxes is None:
        return by_signature(p, node, inputs)
    return Verdict([boxes], _read_as(boxes, inputs, (1,)), why="boxes of this core's own images")


@rule("CropAndResizeGradImage")
def _crop_images(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    dims = p.dims(node.out())
    images = shard_of(dims, 0) if dims else None
    boxes = _boxes_of(images, inputs[2])
    if images is None or boxes is None:
        return by_signature(p, node, inputs)
    return Verdict([images], _read_as(boxes, inputs, (0, 1)), why="boxes of this core's own images")


@rule("CropAndResizeGradBoxes")
def _crop_boxes(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    boxes = _boxes_of(inputs[1], inputs[3])
    if boxes is None:
        return by_signature(p, node, inputs)
    return Verdict([boxes], _read_as(boxes, inputs, (0, 2)), why="boxes of this core's own images")


def _boxes_of(images: Placement | None, numbers: Placement) -> Shard | None:
    """How boxes live whose images have numbers of this core's own; None where these number the images of the whole batch."""
    if not isinstance(images, Shard) or not isinstance(numbers, Shard) or images.axis or images.outer != 1:
        return None
    return numbers.plain() if numbers.shift == images.inner else None


def _read_as(boxes: Shard, inputs: list[Placement], operands: Sequence[int]) -> dict[int, Placement]:
    """What is wanted of operands that have a part for each box."""
    return {index: boxes for index in operands if inputs[index] != boxes}
