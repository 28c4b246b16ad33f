"""What TensorFlow's own shape function says of a node that no signature and no rule describes: its outputs' dimensions.

The function is asked with other sizes in the place of those that may follow the batch, no two alike: an output that has one of
them now, and had that dimension's size before, has that dimension; one that has what it had before does not depend on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import tensorflow as tf

from tpugraph.analysis.constant_values import constant_at
from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.sizes import Poly, Size, Unknown, known
from tpugraph.ir import Graph, Node, graphdef
from tpugraph.ir.imported import REFUSALS, to_be_run

_LEAST, _STEP = 10007, 1009
"""The first size to ask with is at least that, and larger than all that the operands have; how far the next ones are apart."""

Operand = tuple[Dims | None, Dims | None]
"""The dimensions of what a node reads, and its elements; None of what is not known."""


@dataclass(frozen=True)
class Probed:
    """What is found of a node.

    Attributes:
        outputs: for each output its dimensions; None where one of them is neither that of an input nor a number of the model.
        alike: sizes that TensorFlow takes only where they are one.
    """

    outputs: list[Dims | None]
    alike: list[tuple[Size, Size]]


def probed(graph: Graph, node: Node, inputs: Sequence[Operand], at: Callable[[Size], int]) -> Probed:
    """Find what the dimensions of a node's outputs are.

    Args:
        graph: that of the node.
        node: one of an op type of which nothing else is known.
        inputs: of each operand its dimensions, and its elements where it is a small vector of sizes.
        at: the value of a size in the graph as it was traced.
    """
    ask = _Question(graph, node, inputs, at)
    free = list(dict.fromkeys(one for sizes in chain(*inputs) for one in map(_free, sizes or ()) if one is not None))
    first = max([_LEAST, *(2 * at(size) for sizes in chain(*inputs) for size in sizes or ())])
    asked = {one: first + _STEP * place for place, one in enumerate(free)}
    alike: list[tuple[Size, Size]] = []
    before, after = ask({}), ask(asked)
    if before is not None and after is None:
        alone = [one for one in free if ask({one: asked[one]}) is None]
        for one in alone:  # it has to be as large as another, or what it is
            same = (other for other in free if other != one and at(other) == at(one))
            other = next((other for other in same if ask({one: asked[one], other: asked[one]}) is not None), None)
            if other is not None:
                alike.append((one, other))
                asked[one] = asked[other] = min(asked[one], asked[other])
            else:
                del asked[one]
        after = ask(asked)
    kept = {at(one) for one in free if one not in asked}
    if before is None or after is None:
        return Probed([None] * len(node.outputs or ()), alike)
    return Probed([_compared(*shapes, asked, kept, at) for shapes in zip(before, after, strict=True)], alike)


_Shape = tuple[int | None, ...] | None


def _free(size: Size) -> Size | None:
    """The size to ask about, of one that follows the batch or may, in one form however it is tied; None of a number of the model."""
    found = known(size)
    if found is None and isinstance(size, Unknown):
        return size.root()
    return found if isinstance(found, Poly) else None


def _compared(
    before: _Shape, after: _Shape, asked: dict[Size, int], kept: Collection[int], at: Callable[[Size], int]
) -> Dims | None:
    """What the dimensions of an output are, by what became of them."""
    if before is None or after is None or len(before) != len(after):
        return None
    one_of = {size: one for one, size in asked.items()}
    made: list[Size] = []
    for old, new in zip(before, after, strict=True):
        one = one_of.get(new) if new is not None else None
        if one is not None and at(one) == old:
            made.append(one)
        elif new is not None and new == old and new not in kept:
            made.append(new)
        else:
            return None
    return tuple(made)


class _Question:
    """Asks TensorFlow for the shapes of a node's outputs."""

    def __init__(self, graph: Graph, node: Node, inputs: Sequence[Operand], at: Callable[[Size], int]) -> None:
        self._at = at
        self._definition = copy.deepcopy(graphdef.definitions(graph, [node]))
        probed = self._definition.node[0]
        probed.name = _PROBED
        self._shaped: list[tuple[Any, Dims | None]] = []  # operands of which the shape is known
        self._numbered: list[tuple[Any, Dims | None, Dims]] = []  # and those of which the elements are sizes
        for index, (tensor, (dims, elements)) in enumerate(zip(node.inputs, inputs, strict=True)):
            operand = self._definition.node.add(op="Placeholder" if elements is None else "Const")
            if elements is not None:
                self._numbered.append((operand, dims, elements))
            elif constant_at(tensor) is not None:
                operand.CopyFrom(graphdef.definitions(graph, [tensor.node]).node[0])
            else:
                self._shaped.append((operand, dims))
            operand.attr["dtype"].CopyFrom(tensor.dtype.encoded)
            operand.name = probed.input[index] = f"operand_{index}"

    def __call__(self, sizes: dict[Size, int]) -> list[_Shape] | None:
        """The shapes where some sizes are others than they were; None where TensorFlow refuses that."""
        for operand, dims in self._shaped:
            shape = None if dims is None else [self._size(one, sizes) for one in dims]
            open_ = None if shape is None else [None if size < 0 else size for size in shape]
            operand.attr["shape"].shape.CopyFrom(tf.TensorShape(open_).as_proto())
        for operand, dims, elements in self._numbered:
            numbers = [self._size(one, sizes) for one in elements]
            made = tf.make_tensor_proto(numbers if dims else numbers[0], operand.attr["dtype"].type)
            operand.attr["value"].tensor.CopyFrom(made)
        try:
            outputs = to_be_run(self._definition).get_operation_by_name(_PROBED).outputs
        except REFUSALS:
            return None
        return [None if t.shape.rank is None else tuple(t.shape.as_list()) for t in outputs]

    def _size(self, size: Size, sizes: dict[Size, int]) -> int:
        one = _free(size)
        return self._at(size) if one is None or one not in sizes else sizes[one]


_PROBED = "probed"
