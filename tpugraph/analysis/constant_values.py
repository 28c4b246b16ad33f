"""What constants hold: their values, the whole numbers of an operand that is a constant, and what they alone decide."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import source_of

_HANDS_ON = ops.IDENTITIES | ops.ENTER


def constant(node: Node) -> np.ndarray[Any, Any]:
    """The value of a Const; decoded once."""
    return np.asarray(node.attr("value"))


def constant_at(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a tensor that is a constant; None of another."""
    return constant(tensor.node) if tensor.node.op in ops.CONSTANTS else None


def fixed(tensor: Tensor) -> list[int] | None:
    """The whole numbers that a constant operand holds, such as axes; None where it is no constant."""
    value = constant_at(source_of(tensor, _HANDS_ON))
    return [int(v) for v in value.ravel()] if value is not None and value.dtype.kind in "iu" else None


def made_of_values(graph: Graph) -> dict[Node, None]:
    """The nodes that an input or a variable leads to; constants alone decide all others."""
    return graph.remember("made of inputs or variables", lambda graph: graph.descendants(
                          graph.of_type(*ops.INPUTS, *ops.VARIABLES), data_only=True))  # fmt: skip
