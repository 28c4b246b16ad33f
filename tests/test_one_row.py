"""What is refused of batches of one row, of rows that are reshaped, and of shapes, since nothing tells what a number stands for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from programs.harness import check, trace
from programs.parts import batch, column, dense, floats, minimise, state, tf1, variable, whole
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.support.errors import ConversionError

mean = tf.reduce_mean


def refusal(build: Callable[[int], Any], rows: int) -> ConversionError:
    traced = trace(build, rows)
    graph = graphdef.from_graph_def(traced.graph.as_graph_def(), source="made.pb")
    with pytest.raises(ConversionError) as caught:
        convert(graph, num_replicas=4, loss=traced.loss, train_op=traced.train)
    return caught.value


def test_means_over_the_row_and_over_its_one_unit_are_told_apart_by_nothing() -> None:
    def both(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(seed=1))
        h = tf.tanh(x @ variable("w", 4, 1))
        meant = h * tf.exp(mean(h, 0, keepdims=True)) + tf.sin(mean(h, 1, keepdims=True))
        return minimise(mean(tf.square(tf.squeeze(meant, 1) - y)))

    error = refusal(both, 1)
    assert "of the gradient of a sum or a mean nothing says whether that is over the row" in error.fault
    assert str(error.node).startswith("gradients/Mean")
    assert "two rows a core" in str(error.fix)


def test_a_row_that_the_loss_loses_is_named() -> None:
    def beside_a_memory(rows: int) -> Any:
        x, y = batch(rows, floats(3, 2), floats(seed=1))
        memory = tf.tile(tf.identity(state("memory", 2, 2))[None], [tf.shape(x)[0], 1, 1])
        held = tf.concat([memory, x], 1)
        weights = tf.nn.softmax(tf.matmul(x, tf.tensordot(held, variable("k", 2, 2), 1), transpose_b=True))
        return minimise(mean(tf.square(tf.reduce_sum(tf.matmul(weights, held), [1, 2]) - y)))

    error = refusal(beside_a_memory, 1)
    assert "a reshape that the loss is made of has no place for the row" in error.fault
    assert "Tensordot" in str(error.node)


def test_numbers_that_begin_at_one_may_begin_behind_the_row() -> None:
    def averaged(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(seed=1))
        error = column(x, 4) - y
        return minimise(mean(tf.cumsum(error) / tf.cast(tf.range(1, rows + 1), tf.float32)))

    error = refusal(averaged, 1)
    assert "numbers of rows begin at one, or behind as many as the rows" in error.fault
    assert str(error.node).startswith("range")
    assert str(check(averaged, 4, rows=2)) == "equal"


def test_one_that_is_taken_from_another_place_of_a_shape_counts_no_rows_for_certain() -> None:
    def columns_counted(rows: int) -> Any:
        x, y = batch(rows, floats(1), floats(seed=1))
        loss, train = minimise(mean(tf.square(column(x, 1) - y)))
        with tf.control_dependencies([train]):
            return loss, tf1.assign_add(state("seen", kind=tf.int32), tf.shape(x)[1]).op

    error = refusal(columns_counted, 1)
    assert "adds 1 to a variable" in error.fault
    assert error.fix == "--batch_constants=Shape if it counts rows, --literals=Shape if it does not"
    verdict = check(columns_counted, 4, rows=1, literals=("Shape",))
    assert verdict.outcome == "equal", str(verdict)


def test_a_row_may_be_where_a_reshape_writes_a_one_or_where_it_leaves_a_dimension_open() -> None:
    def grid(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(seed=1))
        across, down = tf.meshgrid(column(x, 4), y)
        return minimise(mean(tf.square(across - down)))

    error = refusal(grid, 1)
    assert "whether a reshape puts the row where it writes a 1, or where it leaves a dimension open" in error.fault
    assert str(error.node).startswith("meshgrid/Reshape")
    assert str(check(grid, 2, rows=3)) == "equal"


def test_a_slice_that_leaves_nothing_of_one_row_leaves_the_rows_behind_it() -> None:
    def turned(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(3, seed=1))
        h = dense(x, 4, 3, "h", tf.tanh)
        return minimise(mean(tf.square(h - tf.concat([y[1:], y[:1]], 0))))

    error = refusal(turned, 1)
    assert "a slice leaves nothing of it: the rows behind the first, or none" in error.fault
    assert str(check(turned, 2, rows=3)) == "equal"


def test_a_share_of_the_rows_among_the_numbers_of_a_reshape_is_refused() -> None:
    def halves(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(seed=1))
        h = dense(x, 4, 3, "h", tf.tanh)
        parts = tf.reshape(h, [2, rows // 2, 3])
        return minimise(mean(tf.square(parts[0] - parts[1] - 0.3)) + mean(tf.square(column(h, 3) - y)))

    error = refusal(halves, 4)
    assert error.fault.endswith(
        "reshapes rows to [2, 2, 3]: which of these numbers follows the 4 rows of a core's batch, nothing says"
    )
    assert "write -1 in 'Reshape/shape'" in str(error.fix)


def test_a_one_that_python_wrote_for_the_row_of_an_open_batch_is_refused_where_it_meets_the_rows() -> None:
    def numbered(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(4, seed=1), drop_remainder=False)
        scores = tf.matmul(dense(x, 4, 3, "a", tf.tanh), dense(y, 4, 3, "b", tf.tanh), transpose_b=True)
        return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(rows), logits=scores)))

    error = refusal(numbered, 1)
    assert "a number is " in error.fault
    assert "one row" in error.fault


@pytest.mark.parametrize(("of_rows", "flag"), [(True, "batch_constants"), (False, "literals")])
def test_a_number_out_of_a_shape_that_rows_and_a_variable_have_is_refused(of_rows: bool, flag: str) -> None:
    def regularized(rows: int) -> Any:
        x, y = batch(rows, floats(5), floats(seed=1))
        w = tf.identity(variable("w", 3, 5))
        count = tf.cast(tf.shape(x if of_rows else w)[0], tf.float32)
        return minimise(mean(tf.square(column(x * mean(w, 0), 5) - y)) + tf.reduce_sum(tf.square(w)) / count)

    error = refusal(regularized, 3)
    assert "computes with 3, out of the shape 'Shape': a tensor with the 3 rows" in error.fault
    assert error.fix == "--batch_constants=Shape if it is the shape of rows, --literals=Shape if it is not"
    options: dict[str, Any] = {flag: ("Shape",)}
    assert str(check(regularized, 2, rows=3, **options)) == "equal"
    assert str(check(regularized, 2, rows=4)) == "equal"


@pytest.mark.parametrize(
    ("rows", "words"), [(1, "it is taken by its number"), (2, "each of the 2 rows"), (3, "each of the 3 rows")]
)
def test_rows_that_a_loop_of_python_takes_are_refused(rows: int, words: str) -> None:
    def stacked(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(seed=1))
        error = tf.square(column(x, 4) - y)
        return minimise(mean(tf.stack([error[row] for row in range(rows)])))

    assert words in refusal(stacked, rows).fault


def test_rows_that_a_variable_keeps_for_the_next_batch_are_refused() -> None:
    def stateful(rows: int) -> Any:
        x, y = batch(rows, floats(5), floats(seed=1))
        kept = state("kept", rows, 5)
        loss, train = minimise(mean(tf.square(column(x + tf.convert_to_tensor(kept), 5) - y)))
        with tf.control_dependencies([train]):
            return loss, tf1.assign(kept, 0.5 * x).op

    error = refusal(stateful, 3)
    assert "computes rows of the batch with as many rows that a variable keeps" in error.fault
    assert "--num_replicas=1" in str(error.fix)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("of_rows", [True, False])
def test_flags_say_whether_one_place_of_a_table_is_the_rows(of_rows: bool, closed: bool) -> None:
    def added(rows: int) -> Any:
        x, y = batch(rows, floats(4), floats(seed=1), drop_remainder=closed)
        return minimise(mean(tf.square(column(x, 4) + variable("t", 4)[: rows if of_rows else 1] - y)))

    error = refusal(added, 1)
    assert (
        "takes one place that 'add' (AddV2) puts beside the rows, and is bounded by 'strided_slice/stack_1'"
        in error.fault
    )
    flag = "batch_constants" if of_rows else "literals"
    named = re.search(f"--{flag}=(strided_slice/stack_1\\S*) if", str(error.fix))
    assert named is not None
    verdict = check(added, 4, rows=1, **{flag: tuple(named[1].split(","))})
    assert verdict.outcome == ("equal" if closed or not of_rows else "refused"), str(verdict)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("of_rows", [True, False])
def test_flags_say_whether_the_most_of_the_hardest_are_the_rows(of_rows: bool, closed: bool) -> None:
    def hardest(rows: int) -> Any:
        x, y, marks = batch(rows, floats(5), floats(seed=1), whole(2, seed=2), drop_remainder=closed)
        count = tf.minimum(tf.reduce_sum(marks), rows if of_rows else 1)
        return minimise(tf.reduce_sum(tf.nn.top_k(tf.square(column(x, 5) - y), count)[0]) / 3.0)

    error = refusal(hardest, 1)
    assert "takes rows of the batch up to a number made of 'Minimum/y', which is 1" in error.fault
    flag = "batch_constants" if of_rows else "literals"
    assert str(check(hardest, 4, rows=1, **{flag: ("Minimum/y",)})) == "equal"


def test_a_value_of_the_whole_batch_that_is_divided_by_one_is_refused() -> None:
    def divided(rows: int) -> Any:
        x, kinds = batch(rows, floats(5), whole(3, seed=2))
        shares, marks = tf.reduce_sum(tf.nn.softmax(dense(x, 5, 3, "z")), 0), tf.reduce_sum(tf.one_hot(kinds, 3), 0)
        return minimise(tf.reduce_sum(shares[:, None] * marks[None] / tf.cast(rows, tf.float32)))

    error = refusal(divided, 1)
    assert "divides a value of the whole batch by" in error.fault
    assert str(check(divided, 4, rows=1, batch_constants=(str(error.fix).split("=")[1].split()[0],))) == "equal"
