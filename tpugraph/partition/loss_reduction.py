"""What the loss is of the batch, a mean or a sum: for the report, and for what ``--loss_reduction`` overrides."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.placements import REPLICATE, SUM, Partial, Replicate, Sized
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Tensor


def reduction(placing: Placing, loss: Tensor) -> tuple[str, str]:
    """Whether the loss is a ``mean`` or a ``sum`` over the batch, and why, for the report."""
    joint = _combined_before(placing, loss)
    if joint is not None:
        return "joint", f"'{joint}' combines the rows of all cores on the way to the loss"
    stack, seen = [loss], {loss}
    while stack:
        tensor = stack.pop()
        verdict = placing.verdicts.get(tensor.node)
        if verdict is None:
            continue
        if tensor.port in verdict.averaged:
            return "mean", f"'{tensor.node.name}' is a mean over the batch"
        if tensor.node.op in ops.DIVISIONS and _of_the_batch(placing, tensor.node.inputs[1]):
            return "mean", f"'{tensor.node.name}' divides by '{tensor.node.inputs[1]}', which follows the batch"
        before = [t for t in tensor.node.inputs if placing.made(t) == SUM and t not in seen]
        seen.update(before)
        stack += before
    if placing.made(loss) == SUM:
        return "sum", "nothing that follows the batch divides the loss"
    return "whole", f"every core computes it whole: it is {placing.made(loss) or REPLICATE}"


def _combined_before(placing: Placing, loss: Tensor) -> str | None:
    """A tensor that the cores combine on the way to the loss."""
    for node in placing.graph.ancestors([loss.node], data_only=True):
        verdict = placing.verdicts.get(node)
        for index, want in verdict.wants.items() if verdict is not None else ():
            tensor = node.inputs[index]
            if isinstance(want, Replicate) and not isinstance(placing.made(tensor), Sized | Replicate | None):
                return str(tensor)
    return None


def _of_the_batch(placing: Placing, tensor: Tensor) -> bool:
    """Whether a divisor is a size of the batch, or made by a sum over it."""
    stack, seen = [tensor], {tensor}
    while stack and len(seen) < 40:
        at = stack.pop()
        if isinstance(placing.made(at), Sized | Partial):
            return True
        new = [t for t in at.node.inputs if t not in seen and at.node in placing.verdicts]
        seen.update(new)
        stack += new
    return False
