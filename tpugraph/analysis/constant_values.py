"""What constants hold: their values, and the whole numbers of an operand that is a constant, such as axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of

_HANDS_ON = ops.IDENTITIES | ops.ENTER


def constant(node: Node) -> np.ndarray[Any, Any]:
    """The value of a Const; decoded once."""
    return np.asarray(node.attr("value"))


def fixed(tensor: Tensor) -> list[int] | None:
    """The whole numbers that a constant operand holds, such as axes; None where it is no constant."""
    node = source_of(tensor, _HANDS_ON).node
    if node.op not in ops.CONSTANTS:
        return None
    value = constant(node)
    return [int(v) for v in value.ravel()] if value.dtype.kind in "iu" else None
