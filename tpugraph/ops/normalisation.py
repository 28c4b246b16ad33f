"""Softmax, batch normalisation and local response normalisation."""

from __future__ import annotations

from collections.abc import Callable

from tpugraph.ops.record import Call, page

op = page("normalisation")


def _batch_norm(whole: str, fixed: str = "") -> Callable[[Call], str | None]:
    """With batch statistics only channels are independent; with fixed statistics every element is.

    Args:
        whole: the signature with batch statistics; ``X`` is the image.
        fixed: the signature with fixed statistics, where it differs.
    """

    def dims(call: Call) -> str | None:
        training, rank = call.attr("is_training", True), call.ranks[0]
        if rank is None:
            return None
        others = "*" * (rank - 1) if training else "nhwd"[: rank - 1]
        first = str(call.attr("data_format", "NHWC")).startswith("NC")
        image = f"{others[0]}c{others[1:]}" if first else f"{others}c"
        return (whole if training else fixed or whole).replace("X", image)

    return dims


def _affine(call: Call) -> str | None:
    """With fixed statistics the image is linear in scale and offset; the other outputs are the statistics."""
    return None if call.attr("is_training", True) else "1+2"


op("Softmax LogSoftmax", dims="...C -> ...C", fused=True)
batch_norm = page("normalisation", role="batch_norm", linear=_affine)
gradient = page("normalisation", role="batch_norm_gradient", linear="0", backward=True)
for _version, _more in (("", ""), ("V2", ""), ("V3", ", -")):  # V3 has one more output, which its gradient reads
    _dims = _batch_norm(f"X, c, c, c, c -> X, c, c, c, c{_more}", f"X, c, c, c, c -> X, -, -, -, -{_more}")
    batch_norm(f"FusedBatchNorm{_version}", dims=_dims)
    gradient(f"FusedBatchNormGrad{_version}", dims=_batch_norm(f"X, X, c, c, c{_more} -> X, c, c, -, -"))
op("LRN", dims="nhwC -> nhwC")
op("LRNGrad", dims="nhwC, nhwC, nhwC -> nhwC", linear="0", backward=True)
