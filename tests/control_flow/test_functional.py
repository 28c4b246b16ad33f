"""TF1 control flow raised to functional While and If: the same numbers, no TF1 op left, and words where it cannot be."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from closeness import assert_close
from models import as_test, trace
from tpugraph import ops
from tpugraph.analysis import loop_shapes, shapes
from tpugraph.analysis.loop_shapes import within_loops
from tpugraph.analysis.trip_counts import bound_stacks, most_iterations
from tpugraph.control_flow.functionalize import raise_control_flow
from tpugraph.control_flow.stacks import replace_known_stacks
from tpugraph.ir import Graph, function_library
from tpugraph.ir.session_config import guarded
from tpugraph.support.errors import ConversionError

tf1 = tf.compat.v1


def built(build: Callable[[], list[Any]], *, resource: bool = False) -> Graph:
    """The graph of ``build``, whose results are called result_0, result_1 and so on."""

    def named() -> None:
        for index, value in enumerate(build()):
            tf.identity(value, name=f"result_{index}")

    graph = trace(named, resource=resource)
    shapes.infer(graph)
    return graph


def run(graph: Graph, times: int = 1) -> list[list[Any]]:
    imported = shapes.import_graph(graph)
    results = [name for name in (n.name for n in graph) if name.startswith("result_")]
    initializers = [op for op in imported.get_operations() if op.name.endswith("/Assign")]
    with tf1.Session(graph=imported, config=guarded()) as session:
        session.run(initializers)
        return [session.run([f"{name}:0" for name in results]) for _ in range(times)]


def assert_raised_is_the_same(
    build: Callable[[], list[Any]], *, times: int = 1, resource: bool = False, relative: float
) -> Graph:
    expected = run(built(build, resource=resource), times)
    graph = built(build, resource=resource)
    bound_stacks(graph)
    raise_control_flow(graph)
    assert not graph.of_type(*ops.CONTROL_FLOW)
    for function in function_library.functions_named(graph).values():
        assert not [node.name for node in function.node_def if node.op in ops.CONTROL_FLOW]
    for before, after in zip(expected, run(graph, times), strict=True):
        for one, other in zip(before, after, strict=True):
            assert_close(other, one, relative)
    return graph


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
W = np.cos(np.arange(9, dtype=np.float32)).reshape(3, 3) + np.eye(3, dtype=np.float32)  # keeps the scale


def loop(x: Any, w: Any, times: int) -> Any:
    return tf1.while_loop(lambda i, _: i < times, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), (0, x))[1]


def test_a_loop_becomes_a_while() -> None:
    graph = assert_raised_is_the_same(lambda: [loop(tf.constant(X), tf.constant(W), 4)], relative=1e-6)
    assert len(graph.of_type("StatelessWhile")) == 1

    def build() -> list[Any]:
        x, w = tf.constant(X), tf.constant(W)
        return list(tf.gradients(tf.reduce_sum(loop(x, w, 5)), [x, w]))

    graph = assert_raised_is_the_same(build, relative=1e-5)
    assert {int(node.inputs[0].node.attr("value")) for node in graph.of_type("StackV2")} == {5}


@as_test(assert_raised_is_the_same, relative=1e-6)
def test_nested_loops() -> list[Any]:
    def outer(i: Any, y: Any) -> Any:
        return i + 1, tf1.while_loop(
            lambda j, _: j <= i, lambda j, z: (j + 1, z * 1.5 + tf.cast(i, tf.float32)), (0, y)
        )[1]

    return [tf1.while_loop(lambda i, _: i < 3, outer, (0, tf.constant(X)))[1]]


@pytest.mark.parametrize("inner_first", [False, True])
def test_the_gradient_of_nested_loops_keeps_all_that_the_inner_one_computed(*, inner_first: bool) -> None:
    def build() -> list[Any]:
        x, w = tf.constant(X), tf.constant(W)

        def outer(i: Any, y: Any) -> Any:
            return i + 1, loop(tf.sin(y) if inner_first else tf.sin(loop(y, w, 3)), w, 2)

        y = tf1.while_loop(lambda i, _: i < 4, outer, (0, x))[1]
        return [y, *tf.gradients(tf.reduce_sum(y * y), [x, w])]

    graph = assert_raised_is_the_same(build, relative=1e-5)
    sizes = {int(node.inputs[0].node.attr("value")) for node in graph.of_type("StackV2")}
    assert sizes == ({4, 4 * 2} if inner_first else {4, 4 * 2, 4 * 3})


def test_shapes_within_loops_are_those_that_every_iteration_has() -> None:
    def build() -> list[Any]:
        def body(i: Any, kept: Any, grown: Any) -> Any:
            inner = tf1.while_loop(lambda j, _: j < 2, lambda j, y: (j + 1, tf.tanh(y, name="within")), (0, kept))[1]
            return i + 1, tf.sin(inner, name="keeps"), tf.concat([grown, kept], 0, name="grows")

        invariant = tf.TensorShape([]), tf.TensorShape([2, 3]), tf.TensorShape([None, 3])
        start = (0, tf.constant(X), tf.constant(X))
        return list(tf1.while_loop(lambda i, *_: i < 3, body, start, shape_invariants=invariant)[1:])

    graph = built(build)
    found = within_loops(graph)
    assert graph["while/keeps"].outputs[0][1] is None  # what TensorFlow knows
    assert found["while/keeps"] == found["while/while/within"] == [(2, 3)]
    assert found["result_0"] == [(2, 3)]
    assert found["while/grows"] == [(None, 3)]
    assert graph["while/Merge"].op == "Merge"


@pytest.mark.parametrize("value", [1.0, -1.0])
@as_test(assert_raised_is_the_same, relative=1e-5)
def test_a_conditional_and_its_gradient(value: float) -> list[Any]:
    x, w = tf.constant(X * value), tf.constant(W)
    y = tf1.cond(tf.reduce_sum(x[0]) > -1, lambda: tf.tanh(tf.matmul(x, w)), lambda: x * 3.0)
    return [y, *tf.gradients(tf.reduce_sum(y * y), [x, w])]


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
@as_test(assert_raised_is_the_same, relative=1e-5)
def test_nested_conditionals_with_gradients(a: bool, b: bool) -> list[Any]:
    x, outer, inner = tf.constant(X), tf.constant(a), tf.constant(b)
    y = tf1.cond(outer, lambda: tf1.cond(inner, lambda: tf.sin(x) * 2.0, lambda: tf.exp(x)), lambda: x * x)
    return [y, tf.gradients(tf.reduce_sum(y * y), x)[0]]


@as_test(assert_raised_is_the_same, relative=1e-5)
def test_a_conditional_in_a_loop_and_a_loop_in_a_conditional() -> list[Any]:
    x, w = tf.constant(X), tf.constant(W)

    def body(i: Any, y: Any) -> Any:
        return i + 1, tf1.cond(tf.equal(i % 2, 0), lambda: tf.tanh(y @ w), lambda: y * 1.25)

    y = tf1.while_loop(lambda i, _: i < 5, body, (0, x))[1]
    z = tf1.cond(tf.reduce_sum(y) > 100, lambda: y, lambda: loop(y, w, 3))
    return [z, tf.gradients(tf.reduce_sum(y), x)[0]]


def test_effects_in_a_branch_happen_in_that_branch_alone() -> None:
    def build() -> list[Any]:
        count = tf1.get_variable("count", initializer=tf.constant(0.0))
        even = tf.equal(count.read_value() % 2.0, 0.0)
        added = tf1.cond(
            even, lambda: count.assign_add(1.0, read_value=True) + 0.0, lambda: count.assign_add(10.0) + 0.0
        )
        with tf.control_dependencies([added]):
            return [count.read_value()]

    graph = assert_raised_is_the_same(build, times=4, resource=True, relative=0)
    assert len(graph.of_type("If")) == 1


@as_test(assert_raised_is_the_same, times=3, resource=True, relative=0)
def test_what_waits_for_a_conditional_waits_for_the_if() -> list[Any]:
    count = tf1.get_variable("count", initializer=tf.constant(0.0))
    done = tf1.cond(tf.constant(True), lambda: tf.group(count.assign_add(1.0).op), lambda: tf.no_op())
    with tf.control_dependencies([done]):
        return [count.read_value()]


def looped_in_a_branch(x: Any) -> Any:
    def looped() -> Any:
        return tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * v * 0.4), [0, x])[1]

    return tf1.cond(x > 0.0, looped, lambda: -x)


@as_test(assert_raised_is_the_same, relative=1e-6)
def test_the_gradient_of_a_loop_within_a_branch() -> list[Any]:
    """Its stacks are read behind a Switch of the branch, which no Merge joins."""
    x = tf.constant(2.0)
    return [tf.gradients(looped_in_a_branch(x), x)[0]]


def test_a_loop_within_a_branch_beside_its_gradient_is_refused_by_name() -> None:
    """The branch would have to be left with the stacks that the loop has pushed to."""

    def build() -> list[Any]:
        x = tf.constant(2.0)
        y = looped_in_a_branch(x)
        return [tf.gradients(tf.square(y), x)[0]]

    graph = built(build)
    bound_stacks(graph)
    with pytest.raises(
        ConversionError, match="a later part of the conditional needs the side effect of this node"
    ) as caught:
        raise_control_flow(graph)
    assert "compute it outside of tf.cond" in caught.value.block()


def test_a_loop_of_unknown_length_has_no_gradient() -> None:
    def build() -> list[Any]:
        x = tf.constant(X)
        y = tf1.while_loop(lambda y: tf.reduce_sum(tf.abs(y)) > 1e-3, lambda y: tf.tanh(y) * 0.5, (x,))
        return [tf.gradients(tf.reduce_sum(y), x)[0]]

    with pytest.raises(ConversionError, match="its number of iterations has no known bound") as caught:
        bound_stacks(built(build))
    assert "maximum_iterations" in caught.value.block()


@pytest.mark.parametrize(
    ("test", "step", "first", "most"),
    [
        (lambda i: i < 7, 1, 0, 7),
        (lambda i: i <= 7, 2, 0, 4),
        (lambda i: i < 10, 3, 1, 3),
        (lambda i: i > 0, -1, 5, 5),
        (lambda i: tf.logical_and(i < 100, i < tf.minimum(9, tf.reduce_max(tf1.placeholder_with_default([3], [1])))), 1, 0, 9),
    ],
)  # fmt: skip
def test_the_most_iterations(test: Any, step: int, first: int, most: int) -> None:
    graph = built(lambda: [tf1.while_loop(test, lambda i: i + step, (first,))])
    assert most_iterations(graph.of_type("LoopCond")[0]) == most


def test_shapes_that_a_gradient_pops_are_known_where_those_in_the_loop_are() -> None:
    """A batch that was open when the gradient was made: it pops the shapes of both operands of the sum, and of the product."""

    def build() -> list[Any]:
        x, w = tf1.placeholder_with_default(tf.constant(X), [None, 3], name="x"), tf.constant(W)
        steps = tf1.TensorArray(tf.float32, 4, element_shape=None).unstack(tf.stack([x, 2.0 * x, x, 0.5 * x]))
        y = tf1.while_loop(lambda i, _: i < 4, lambda i, y: (i + 1, tf.tanh(y @ w) + steps.read(i)), (0, x))[1]
        return list(tf.gradients(tf.reduce_sum(y * y), [x, w]))

    graph = built(build)
    expected = run(graph)
    stacks = len(graph.of_type("StackV2"))
    assert replace_known_stacks(graph) == 0
    graph.set_attr(graph["x"], "shape", (2, 3))
    loop_shapes.infer(graph)
    assert replace_known_stacks(graph) == 2
    assert len(graph.of_type("StackV2")) == stacks - 2
    popped = {n.inputs[i].node.op for n in graph.of_type("BroadcastGradientArgs") for i in (0, 1)}
    assert popped == {"Const", "Shape"}  # the latter outside of the loop
    bound_stacks(graph)
    raise_control_flow(graph)
    for before, after in zip(expected[0], run(graph)[0], strict=True):
        assert_close(after, before, 1e-5)
