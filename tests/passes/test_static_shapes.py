import numpy as np
import pytest
import tensorflow as tf

from models import batches, check, finish, rows_of, squared_error, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import Graph
from tpugraph.passes.static_shapes import StaticShapes
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import GraphError, ShapeError


def test_golden() -> None:
    graph = check(StaticShapes(), "drop_remainder", after=False, find=None)
    assert graph["batch"].output(0)[1] == (4, 2)
    assert [n.text for n in graph.notes if n.shown] == ["batched: 4 rows, the last partial batch is dropped"]
    check(StaticShapes(), "open_and_inside", after=False, find=None)  # a Switch itself runs on both of its sides


def test_a_graph_that_tensorflow_refuses_names_the_node() -> None:
    graph = testing.parse(
        "a = Const() {dtype: float32, value: float32[2][1.0, 2.0]}\n"
        "b = Const() {dtype: float32, value: float32[3][1.0, 2.0, 3.0]}\n"
        "wrong = Add(a, b) {T: float32}"
    )
    testing.assert_raises_block(testing.run_pass, StaticShapes(), graph, max_length=600, kind=GraphError,
                                words=["static-shapes", "wrong"])  # fmt: skip


@pytest.mark.parametrize("how", ["padded_batch", "parallel", "map_and_batch"])
def test_every_dataset_that_batches_drops_its_last_partial_batch(how: str) -> None:
    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices(rows_of(18, 4)).shuffle(3, seed=1)
        if how == "padded_batch":
            data = data.padded_batch(4, padded_shapes=([4], [])).repeat()
        elif how == "parallel":
            data = data.batch(4, num_parallel_calls=2).repeat().prefetch(1)
        else:
            data = data.apply(tf.data.experimental.map_and_batch(lambda x, y: (2.0 * x, y), 4)).repeat()
        features, targets = tf1.data.make_initializable_iterator(data).get_next()
        finish(tf.reduce_mean(squared_error(features, targets, variable("w", (4, 1)))), tf1.train.AdamOptimizer(0.1))

    program = convert(trace(build), num_replicas=2)
    assert any("4 rows, the last partial batch is dropped" in note for note in program.report["notes"])
    with TPUSession(program) as session:
        session.initialize()
        assert np.isfinite(session.train(9)).all()


def test_an_unknown_dimension_that_stays_is_refused_with_its_origin() -> None:
    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices(rows_of(16, 4)).filter(lambda x, y: y > 0)
        features, targets = tf1.data.make_initializable_iterator(
            data.batch(4).map(lambda x, y: (x[1:], y[1:]))
        ).get_next()
        finish(tf.reduce_mean(squared_error(features, targets, variable("w", (4, 1)))), tf1.train.AdamOptimizer(0.1))

    testing.assert_raises_block(convert, trace(build), num_replicas=2, max_length=500, kind=ShapeError,
                                words=["open in dimension 0", "IteratorGetNext", "drop_remainder"])  # fmt: skip


def test_batches_without_drop_remainder_train_like_batches_with_it() -> None:
    """96 rows in batches of 20: the partial last batch is dropped, then the data ends."""
    arrays = rows_of(96, 3)

    def build(rows: int, *, drop: bool) -> None:
        features, targets = batches(arrays, rows, drop_remainder=drop)
        count = tf.cast(tf.shape(features)[0], tf.float32)
        loss = tf.reduce_sum(squared_error(features, targets, variable("w", (3, 1)))) / count
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    whole = testing.run_plain(trace(lambda: build(20, drop=True)), steps=4)
    found = testing.run_on_cores(trace(lambda: build(20, drop=False)), steps=4, num_replicas=4)
    testing.assert_same_training(found, whole, relative=1e-5, absolute=1e-6)
    assert np.isfinite(found.losses).all()


@pytest.mark.parametrize(
    ("asserted", "left"),
    [
        ("weights", []),  # by a conditional in a conditional, with an op that XLA has no kernel for
        ("true", []),
        ("alone", []),
        ("false", ["check/Assert/Assert"]),
        ("by_zero", ["check/Assert/Assert"]),
        ("data", ["check/Assert/Assert"]),
        ("looped", ["while/check/Assert/Assert"]),
    ],
)
def test_assertions_that_hold_whatever_the_input_is_are_gone(asserted: str, left: list[str]) -> None:
    def built() -> None:
        x, y = batches(rows_of(16, 3), 4, drop_remainder=False)
        rows, errors = tf.shape(x)[0], tf.square(tf.reduce_sum(x * variable("w", (3,)), 1) - y)

        def check(rows: tf.Tensor) -> tf.Tensor:
            told = {"false": rows > 4, "by_zero": rows // (rows - 4) > 1, "data": tf.reduce_sum(x) < 1e9}.get(
                asserted, rows > 1
            )
            return tf1.Assert(told, [rows], name="check/Assert")

        if asserted == "weights":
            loss = tf1.losses.compute_weighted_loss(errors, weights=tf.abs(y))
        elif asserted == "looped":

            def body(k: tf.Tensor) -> list[tf.Tensor]:
                with tf.control_dependencies([check(tf.shape(x)[0] + k)]):
                    return [k + 1]

            tf1.while_loop(lambda k: k < 2, body, [tf.constant(0)])
            loss = tf.reduce_mean(errors)
        else:
            made = tf.raw_ops.Assert(condition=rows > 1, data=[rows]) if asserted == "alone" else check(rows)
            with tf.control_dependencies([made]):
                loss = tf.reduce_mean(errors)
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    graph = trace(built, resource=True)
    testing.run_pass(StaticShapes(), graph)
    assert [node.name for node in graph if node.op in ("Assert", "DenseToDenseSetOperation")] == left


INPUT = """
    items = Const() {dtype: float32, value: float32[4,2][[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]}
    slices = TensorSliceDataset(items) {Toutput_types: (float32), output_shapes: ([2])}
    size = Const() {dtype: int64, value: int64[]2}
    drop = Const() {dtype: bool, value: bool[]false}
    batched = BatchDatasetV2(slices, size, drop) {output_shapes: ([?,2]), output_types: (float32), parallel_copy: false}
    it = IteratorV2() {container: "", output_shapes: ([?,2]), output_types: (float32), shared_name: "it"}
    make = MakeIterator(batched, it)
    batch = IteratorGetNext(it) {output_shapes: ([?,2]), output_types: (float32)}
    """


def closed(text: str) -> Graph:
    graph = testing.parse(INPUT + text)
    testing.run_pass(StaticShapes(), graph)
    return graph


@pytest.mark.parametrize("form", ["Shape", "Size", "Rank"])
def test_what_asks_for_a_known_shape_is_a_constant(form: str) -> None:
    kind = "" if form == "Rank" else ", out_type: int64"
    graph = closed(
        f"asked = {form}(batch) {{T: float32{kind}}}\nread = Identity(asked) {{T: {'int64' if kind else 'int32'}}}"
    )
    constant = graph["read"].inputs[0].node
    assert "asked" not in graph
    assert constant.attr("value").tolist() == {"Shape": [2, 2], "Size": 4, "Rank": 2}[form]
    assert constant.out().dtype.name == ("int64" if kind else "int32")


def test_a_shape_that_something_waits_for_stays() -> None:
    graph = closed(
        "asked = Shape(batch) {T: float32, out_type: int32}\nread = Identity(asked) {T: int32}\nlate = NoOp() ^asked"
    )
    assert "asked" in graph
    assert graph["read"].inputs[0].node.op == "Const"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size = Const() {dtype: int64, value: int64[]2}", "size = Placeholder() {dtype: int64, shape: []}"),
        ("make = MakeIterator(batched, it)", ""),
        ("batched = BatchDatasetV2(slices, size, drop) {output_shapes: ([?,2]), output_types: (float32), parallel_copy: false}",
         "batched = BatchDataset(slices, size) {output_shapes: ([?,2]), output_types: (float32)}"),
    ],
)  # fmt: skip
def test_a_batch_of_which_nothing_says_the_rows_stays_open(old: str, new: str) -> None:
    assert old in INPUT
    graph = testing.parse(
        INPUT.replace(old, new)
        + "asked = Shape(batch) {T: float32, out_type: int32}\nread = Identity(asked) {T: int32}"
    )
    testing.run_pass(StaticShapes(), graph)
    assert graph["batch"].out().shape == (None, 2)
    assert "asked" in graph
    assert not any(note.shown for note in graph.notes)
