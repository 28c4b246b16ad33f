"""Fused losses."""

from __future__ import annotations

from tpugraph.ops.record import page

op = page("loss")

op("SoftmaxCrossEntropyWithLogits", dims="nC, nC -> n, nC", backward=True, fused=True)
op("SparseSoftmaxCrossEntropyWithLogits", dims="nC, n -> n, nC", backward=True, fused=True)
_CTC = {
    "dims": "TBC, **, *, B -> B, TBC",
    "instead": "tf.nn.ctc_loss with dense labels (labels of shape [batch, length], logit_length)",
}
op("CTCLoss", backward=True, **_CTC)
op("CTCLossV2", **_CTC)
