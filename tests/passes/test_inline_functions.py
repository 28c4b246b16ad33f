from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import as_test, by_hand, check, tf1, trace
from tpugraph import ops, testing
from tpugraph.analysis import shapes
from tpugraph.ir import Graph, function_library
from tpugraph.passes.inline_functions import InlineFunctions
from tpugraph.roles.findings import Roles
from tpugraph.support.errors import ConversionError

# --------------------------------------------------------------------------- golden text

FUNCTIONS = {  # the body, and what it returns; the arguments are called in0, in1 and so on
    "cond": ("in0 int32, in1 int32, in2 float32, in3 resource", "less = Less(in0, in1) {T: int32}", "less"),
    "body": (
        "in0 int32, in1 int32, in2 float32, in3 resource",
        """
        one = Const() {dtype: int32, value: int32[]1}
        next = AddV2(in0, one) {T: int32}
        read = ReadVariableOp(in3) {dtype: float32}
        product = Mul(in2, read) {T: float32}
        """,
        "next, in1, product, in3",
    ),
    "counts": (
        "in0 float32, in1 resource",
        """
        one = Const() {dtype: float32, value: float32[]1.0}
        count = AssignAddVariableOp(in1, one) {dtype: float32}
        twice = AddV2(in0, in0) {T: float32}
        """,
        "twice",
    ),
    "only": (
        "in0 resource",
        "one = Const() {dtype: float32, value: float32[]1.0}\ncount = AssignAddVariableOp(in0, one) {dtype: float32}",
        "",
    ),
    "stays": ("in0 float32, in1 resource", "", "in0"),
    "one": ("in0 float32", "result = Neg(in0) {T: float32}", "result"),
    "two": ("in0 float32", "result = Const() {dtype: float32, value: float32[]2.0}", "result"),
    "three": ("in0 float32", "result = Exp(in0) {T: float32}", "result"),
    "outer": (
        "in0 float32, in1 resource, in2 float32",
        "inner = StatefulPartitionedCall(in0, in1) {Tin: (float32; resource), Tout: (float32), f: &counts}",
        "inner",
    ),
    "endless": ("in0 float32", "again = PartitionedCall(in0) {Tin: (float32), Tout: (float32), f: &round}", "again"),
    "round": ("in0 float32", "back = PartitionedCall(in0) {Tin: (float32), Tout: (float32), f: &endless}", "back"),
}


def define(graph: Graph) -> Graph:
    for name, (arguments, body, results) in FUNCTIONS.items():
        pairs = [argument.split() for argument in arguments.split(", ")]
        given = [f"{label} = Placeholder() {{dtype: {kind}}}" for label, kind in pairs]
        part = testing.parse("\n".join([*given, body]))
        part.library = graph.library
        if "PartitionedCall" not in body:
            shapes.infer(part)
        else:
            for node in part:
                part.set_outputs(node, [(node.attr("dtype") or node.attr("Tout")[0], None)])
        nodes = [node for node in part if node.op != "Placeholder"]
        inputs = [part[label].out() for label, _ in pairs]
        function_library.add_function(part, name, nodes, inputs, [part.tensor(r) for r in results.split(", ") if r], {})
        graph.library = part.library
    return graph


def with_functions(graph: Graph) -> Roles:
    return by_hand(define(graph))


@pytest.mark.parametrize("case", ["while", "if", "case", "call"])
def test_golden(case: str) -> None:
    graph = check(InlineFunctions(), case, find=with_functions, after=False)
    assert not function_library.functions_named(graph)


def test_a_graph_without_calls_stays_as_it_is() -> None:
    source = "x = Test()\nloss = Test(x)\ntrain = NoOp() ^loss\nunread = Test()"
    testing.check_pass(InlineFunctions(), source, source, edits="+0 -0 ~0", roles=by_hand)


def test_a_function_whose_name_is_an_op_type() -> None:
    """The function's own name as an op type is the older form of a call; SymbolicGradient is no call."""
    before = """
        x = Const() {dtype: float32, value: float32[]1.0}
        loss = Identity(call) {T: float32}
        call = one(x)
        gradient = SymbolicGradient(x, loss) {Tin: (float32; float32), Tout: (float32), f: &three}
        train = NoOp() ^loss ^gradient
    """
    after = """
        x = Const() {dtype: float32, value: float32[]1.0}
        loss = Identity(call/result) {T: float32}
        gradient = SymbolicGradient(x, loss) {Tin: (float32; float32), Tout: (float32), f: &three}
        train = NoOp() ^loss ^gradient
        call/result = Neg(x) {T: float32}
    """
    graph = testing.check_pass(InlineFunctions(), before, after, edits="+1 -1 ~1", roles=with_functions)
    assert list(function_library.functions_named(graph)) == ["three"]


# --------------------------------------------------------------------------- what cannot be inlined


@pytest.mark.parametrize(("function", "words"), [
    ("round", ["inline-functions", "the function 'round' calls itself: round -> endless -> round", "tf.while_loop"]),
    ("gone", ["the function 'gone' is not in the graph's library", "loss (PartitionedCall)", "write the graph again"]),
])  # fmt: skip
def test_functions_that_cannot_be_inlined(function: str, words: list[str]) -> None:
    source = f"""
        x = Const() {{dtype: float32, value: float32[]1.0}}
        loss = PartitionedCall(x) {{Tin: (float32), Tout: (float32), f: &{function}}}
        train = NoOp() ^loss
    """
    testing.assert_raises_block(testing.run_pass, InlineFunctions(), testing.parse(source), roles=with_functions,
                                kind=ConversionError, words=words)  # fmt: skip


# --------------------------------------------------------------------------- the same numbers, run by TensorFlow


def built(build: Callable[[], Any]) -> Graph:
    """The graph of ``build``, whose results are called result_0, result_1 and so on."""

    def named() -> None:
        results = [tf.identity(value, name=f"result_{index}") for index, value in enumerate(build())]
        tf.group(*results, name="train")

    graph = trace(named, resource=True, functional=True)
    graph.set_attr([node for node in graph if node.has_attr("_class")], "_class", None)  # as the pass prune does
    return graph


def run(graph: Graph) -> list[Any]:
    """The results of two steps, and the variables after them."""
    imported = shapes.import_graph(graph)
    named = [node.name for node in graph if node.name.startswith("result_")]
    with tf1.Session(graph=imported) as session:
        session.run([op for op in imported.get_operations() if op.name.endswith("/Assign")])
        found = [value for _ in range(2) for value in session.run([f"{name}:0" for name in named])]
        reads = [f"{node.name}/Read/ReadVariableOp:0" for node in graph.of_type("VarHandleOp")]
        return [*found, *session.run([name for name in reads if name.partition(":")[0] in graph])]


def assert_inlined_is_the_same(build: Callable[[], Any], *, kept: int = 0) -> Graph:
    """The graph as it is and with its functions inlined; ``kept`` functions stay in the library."""
    expected, graph = run(built(build)), built(build)
    assert function_library.functions_named(graph)
    testing.run_pass(InlineFunctions(), graph, roles=lambda graph: by_hand(graph, loss="result_0"))
    assert not graph.of_type(*ops.CALLS)
    assert len(function_library.functions_named(graph)) == kept
    found = run(graph)
    assert len(found) == len(expected)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    return graph


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
W = np.cos(np.arange(9, dtype=np.float32)).reshape(3, 3)


def power(x: Any, w: Any, times: Any) -> Any:
    return tf.while_loop(lambda i, _: i < times, lambda i, y: (i + 1, tf.tanh(y @ w)), (0, x))[1]


@pytest.mark.parametrize("times", [0, 1, 4])
def test_a_loop_and_its_gradient(times: int) -> None:
    def build() -> Any:
        x, w = tf.constant(X), tf.constant(W)
        y = power(x, w, tf.constant(times))
        return y, *tf.gradients(tf.reduce_sum(y * y), [x, w])

    assert len(assert_inlined_is_the_same(build).of_type(*ops.LOOP_COND)) == 2


def test_a_loop_whose_values_grow_or_change_places() -> None:
    def build() -> Any:
        def body(i: Any, grown: Any, one: Any, two: Any) -> Any:
            return i + 1, tf.concat([grown, one], 0), two, one + tf.cast(i, tf.float32)

        form = tuple(tf.TensorShape(s) for s in ([], [None, 3], [2, 3], [2, 3]))
        start = (0, tf.constant(X), tf.constant(X), tf.constant(2 * X))
        return tf.while_loop(lambda i, *_: i < 3, body, start, shape_invariants=form)[1:]

    graph = assert_inlined_is_the_same(build)
    shapes.infer(graph)
    assert {merge.out().shape for merge in graph.of_type("Merge")} == {(), (None, 3), (2, 3)}


@as_test(assert_inlined_is_the_same)
def test_an_argument_handed_on_at_another_place_is_there_once_in_each_iteration() -> Any:
    """The limit becomes the counter: it enters as a constant, which the iteration that does not take place has too."""
    limit = tf.constant(5)
    return tf.while_loop(lambda i, n: i < n, lambda i, n: (n, n), (0, limit))[:1]


@pytest.mark.parametrize("outcome", [True, False])
@as_test(assert_inlined_is_the_same)
def test_a_conditional_and_its_gradient(*, outcome: bool) -> Any:
    x, w = tf.constant(X), tf.constant(W)
    when = tf.reduce_sum(x) < (1.0 if outcome else -1.0)
    y = tf.cond(when, lambda: tf.sin(x @ w), lambda: tf.ones_like(x))
    return y, *tf.gradients(tf.reduce_sum(y * y), [x, w])


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3])
def test_a_case_with_every_index(index: int) -> None:
    """What the branches keep for their gradients is no optional."""

    def build() -> Any:
        x = tf.constant(X)
        y = tf.switch_case(tf.constant(index), [lambda: x * 2.0, lambda: tf.exp(x), lambda: tf.zeros_like(x)])
        return y, *tf.gradients(tf.reduce_sum(y * y), [x])

    assert not assert_inlined_is_the_same(build).of_type("OptionalNone", "OptionalFromValue", "OptionalGetValue")


def test_loops_and_conditionals_in_each_other() -> None:
    def build() -> Any:
        x, w = tf.constant(X), tf.constant(W)

        def body(i: Any, y: Any) -> Any:
            return i + 1, tf.cond(i % 2 > 0, lambda: power(y, w, i), lambda: y + 1.0)

        y = tf.while_loop(lambda i, _: i < 4, body, (0, x))[1]
        return y, *tf.gradients(tf.reduce_sum(y * y), [x, w])

    graph = assert_inlined_is_the_same(build)
    frames = {node.attr("frame_name") for node in graph.of_type(*ops.ENTER)}
    assert len(frames) == len(graph.of_type(*ops.LOOP_COND)) == 4


def test_what_functions_write_is_written_as_often_as_before() -> None:
    def build() -> Any:
        count, seen = (tf1.get_variable(name, initializer=0.0) for name in ("count", "seen"))

        def body(i: Any) -> Any:
            with tf.control_dependencies([count.assign_add(1.0, read_value=False)]):
                return i + 1

        def skipped() -> Any:
            with tf.control_dependencies([seen.assign_add(100.0, read_value=False)]):
                return tf.constant(0)

        looped = tf.while_loop(lambda i: i < 5, body, (0,))
        with tf.control_dependencies(looped if isinstance(looped, (list, tuple)) else [looped]):
            after = count.read_value()
        taken = tf.cond(after > 1e6, skipped, lambda: tf.constant(1))
        return after, taken

    found = run(assert_inlined_is_the_same(build))
    assert found[0] == 5.0


@as_test(assert_inlined_is_the_same)
def test_calls_of_functions_and_their_gradients() -> Any:
    x, w = tf.constant(X), tf.constant(W)
    total = tf1.get_variable("total", initializer=0.0)

    @tf.function
    def inner(y: Any) -> Any:
        total.assign_add(tf.reduce_sum(y))
        return tf.tanh(y @ w)

    @tf.function
    def outer(y: Any) -> Any:
        return inner(inner(y)) * 2.0

    y = outer(x)
    return y, *tf.gradients(tf.reduce_sum(y * y), [x, w])


@as_test(assert_inlined_is_the_same)
def test_a_call_in_a_loop_and_in_a_conditional_of_tf1() -> Any:
    """The constants of the function run in the frame and in the branch of the call."""

    @tf.function
    def scaled(y: Any) -> Any:
        return y * tf.constant(3.0) + tf.cast(tf.range(3), tf.float32)

    tf1.disable_control_flow_v2()
    y = tf1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, scaled(y)), (0, tf.constant(X)))[1]
    taken = [tf1.cond(tf.reduce_sum(y) > limit, lambda: scaled(y), lambda: y) for limit in (-1e9, 1e9)]
    return y, *taken


def test_functions_of_datasets_stay() -> None:
    def build() -> Any:
        data = tf1.data.Dataset.range(8).map(lambda i: tf.cast(i, tf.float32) * 2.0)
        value = tf1.data.make_one_shot_iterator(data).get_next()
        return [tf.cond(value > 1.0, lambda: value, lambda: -value)]

    graph = assert_inlined_is_the_same(build, kept=2)
    assert len(graph.of_type("OneShotIterator")) == 1
