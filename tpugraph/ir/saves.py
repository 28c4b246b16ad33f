"""What a SaveV2 op writes: under which key and slice, which tensor."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.ir.node import Node, Tensor
from tpugraph.support.errors import GraphError


def saved_by(save: Node) -> list[tuple[str, str, Tensor]] | None:
    """Key, slice ("" for the whole) and tensor of each entry, in order; None where the keys are computed."""
    if save.op not in ops.TENSOR_SAVES:
        raise GraphError(
            "the node writes no checkpoint: it is no SaveV2", node=save, fix="convert the plain graph again"
        )
    names, slices = save.inputs[1].node, save.inputs[2].node
    if names.op not in ops.CONSTANTS or slices.op not in ops.CONSTANTS:
        return None
    keys, pieces = (
        [text.decode("utf-8", "replace") for text in node.attr("value").ravel()] for node in (names, slices)
    )
    tensors = save.inputs[3:]
    if not len(keys) == len(pieces) == len(tensors):
        raise GraphError(f"the node saves {len(tensors)} tensors under {len(keys)} keys with {len(pieces)} slices", node=save,
                         fix="write the graph again")  # fmt: skip
    return list(zip(keys, pieces, tensors, strict=True))
