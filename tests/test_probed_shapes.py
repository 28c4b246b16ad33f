"""What TensorFlow's shape functions say of op types without a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.probed_shapes import Operand, Probed, probed
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown
from tpugraph.ir import graphdef

ROWS_TRACED = 4


def at(size: Size) -> int:
    return size.value if isinstance(size, Unknown) else size.at(ROWS_TRACED) if isinstance(size, Poly) else size


def asked(build: Callable[..., Any], *inputs: Operand) -> Probed:
    """What is found of the op that is made last; a placeholder stands for each operand, of floats where no elements are known."""
    with tf.Graph().as_default() as made:
        operands = [
            tf.compat.v1.placeholder(tf.float32 if elements is None else tf.int32, [at(size) for size in dims or ()])
            for dims, elements in inputs
        ]
        name = build(*operands).op.name
    graph = graphdef.from_graph_def(made.as_graph_def(), source="made.pb")
    shapes.infer(graph)
    assert not ops.is_recorded(graph[name].op)
    read = [graph[t.op.name].out() for t in operands]
    given = dict(zip(read, inputs, strict=True))
    return probed(graph, graph[name], [given.get(t, ((), None)) for t in graph[name].inputs], at)


def rounded(x: Any, low: Any = -1.0) -> Any:
    return tf.raw_ops.QuantizeAndDequantizeV2(input=x, input_min=low, input_max=1.0)


def rounded_gradient(gradients: Any, x: Any) -> Any:
    return tf.raw_ops.QuantizeAndDequantizeV4Grad(gradients=gradients, input=x, input_min=-1.0, input_max=1.0)[0]


def glimpses(images: Any, offsets: Any, size: Any = (5, 6)) -> Any:
    return tf.raw_ops.ExtractGlimpseV2(input=images, size=size, offsets=offsets)


def test_dimensions_are_told_apart_by_the_sizes_that_are_asked_with() -> None:
    same = Unknown(ROWS_TRACED)  # as many as the rows
    found = asked(rounded, ((ROWS, same, 3), None))
    assert (found.outputs, found.alike) == ([(ROWS, same, 3)], [])


def test_what_a_constant_operand_says_is_a_number_of_the_model() -> None:
    assert asked(glimpses, ((ROWS, 4, 4, 2), None), ((ROWS, 2), None)).outputs == [(ROWS, 5, 6, 2)]


def test_elements_that_are_sizes_are_asked_with_as_well() -> None:
    height = Unknown(ROWS_TRACED)
    found = asked(glimpses, ((ROWS, 4, 4, 2), None), ((ROWS, 2), None), ((2,), (height, 6)))
    assert found.outputs == [(ROWS, height, 6, 2)]


def test_sizes_that_have_to_be_one_are_tied() -> None:
    """Alone neither can be another; together they can. Numbers that must stay as they are say nothing of an output as large."""
    rows = Unknown(ROWS_TRACED)
    found = asked(rounded_gradient, ((rows, 3), None), ((ROWS, 3), None))
    assert found.alike in ([(rows, ROWS)], [(rows, ROWS), (ROWS, rows)])
    assert found.outputs[0] in ((rows, 3), (ROWS, 3))
    assert asked(rounded_gradient, ((rows, 3), None), ((ROWS_TRACED, 3), None)).outputs[0] is None


def test_of_an_operand_of_unknown_rank_nothing_is_concluded() -> None:
    with tf.Graph().as_default() as made:
        name = rounded(tf.compat.v1.placeholder(tf.float32)).op.name
    graph = graphdef.from_graph_def(made.as_graph_def(), source="made.pb")
    shapes.infer(graph)
    assert probed(graph, graph[name], [(None, None), ((), None), ((), None)], at).outputs == [None]
