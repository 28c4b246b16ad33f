"""What the iterations of a TF1 loop make, as one tensor behind the loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph.ir import Node, Tensor
from tpugraph.ir.builder import Builder


def stack_iterations(
    make: Builder,
    value: Tensor,
    shape: Sequence[int | None],
    *,
    frame: str,
    condition: Node,
    number: Tensor,
    iterations: int,
) -> Tensor:
    """Let a loop put a value of each iteration into a list that it carries.

    Args:
        make: makes the nodes.
        value: what to put there, in the loop.
        shape: its static shape.
        frame: the loop's frame.
        condition: the loop's LoopCond.
        number: the number of the iteration, int32 [], in the loop.
        iterations: the most iterations of the loop.

    Returns:
        The values, [iterations, ...], behind the loop; zeros where an iteration did not take place.
    """
    kind = value.dtype
    dims, rows = make.constant(np.asarray(shape, "int32")), make.constant(np.int32(iterations))
    empty = make.add("TensorListReserve", [dims, rows], (), element_dtype=kind)
    entry = make.enter(empty, frame, constant=False)
    merge = make.node("Merge", [entry, entry], shapes=[(), ()])
    switch = make.node("Switch", [merge.out(), condition.out()], shapes=[(), ()])
    filled = make.add("TensorListSetItem", [switch.out(1), number, value], (), resize_if_index_out_of_bounds=False)
    make.graph.set_input(merge, 1, make.add("NextIteration", [filled], ()))
    leave = make.add("Exit", [switch.out(0)], ())
    return make.add("TensorListStack", [leave, dims], (iterations, *shape), element_dtype=kind, num_elements=iterations)
