"""The largest batch that fits: the search, and the step made for another batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from models import ORACLE, corpus, finish, tf1, trace, variable
from tpugraph.compiler import adopt_tpu_estimator, convert
from tpugraph.ir import Graph, graphdef
from tpugraph.runtime import batch_search
from tpugraph.runtime.batch_search import MOST, Try
from tpugraph.support.errors import ShapeError
from tpugraph.xla import stablehlo

MEMORY = 16 * 2**30


@pytest.mark.parametrize("begin", [1, 32, 4096])
@pytest.mark.parametrize(("base", "per_row"), [(10**6, 10**6), (0, 3 * 10**9), (10**9, 12_345), (10**9, 10**8 + 7)])
def test_the_search_finds_the_largest_that_fits(begin: int, base: int, per_row: int) -> None:
    tried: list[int] = []

    def attempt(rows: int) -> Try:
        assert rows not in tried
        tried.append(rows)
        needed = base + per_row * (-(-rows // 8) * 8 if rows > 8 else rows)
        return Try(rows, needed, needed <= MEMORY)

    found = batch_search.search(begin, attempt, MEMORY)
    exact = (MEMORY - base) // per_row
    assert found == exact if exact < 8 else exact - 8 - exact // 64 < found <= exact
    assert len(tried) <= 14


def test_memory_that_jumps_is_found_as_well() -> None:
    """A compiler that spends more on some batches than a line would say."""
    tried: list[int] = []

    def attempt(rows: int) -> Try:
        tried.append(rows)
        return Try(rows, rows * 10**6 if rows < 1000 else rows * 10**8, rows < 1000)

    assert 980 <= batch_search.search(32, attempt, MEMORY) < 1000
    assert len(tried) <= 20


def test_nothing_fits_and_all_fits() -> None:
    assert batch_search.search(32, lambda rows: Try(rows, MEMORY + rows, False), MEMORY) == 0
    assert batch_search.search(32, lambda rows: Try(rows, 10, True), MEMORY) == MOST


def tpu_graph(name: str) -> Graph:
    return graphdef.from_graph_def(convert(corpus(name).graph(), iterations_per_loop=2).graph_def)


@pytest.mark.parametrize("name", ["iris_dnn", "clip_adam", "mnist_cnn", "batch_norm", "lstm_dynamic"])
def test_a_step_is_made_for_another_batch(name: str) -> None:
    graph = tpu_graph(name)
    batch = batch_search.rows_of(graph)
    for rows in (batch // 2, 3 * batch):
        module = stablehlo.lower(batch_search.with_rows(graph, rows))
        assert {v.shape[1] for v in module.arguments if v.kind == "infeed"} == {rows}
    same = stablehlo.lower(batch_search.with_rows(batch_search.with_rows(graph, 3 * batch), batch))
    first = stablehlo.lower(graph)
    assert same.arguments == first.arguments
    assert same.results == first.results


def test_a_graph_of_tpu_estimator_takes_another_batch() -> None:
    graph = graphdef.load(ORACLE / "iris_tpu.pb")
    adopt_tpu_estimator.add_entry_points(graph)
    module = stablehlo.lower(batch_search.with_rows(graph, 5 * batch_search.rows_of(graph)))
    assert {v.shape[1] for v in module.arguments if v.kind == "infeed"} == {5 * batch_search.rows_of(graph)}


def test_what_may_be_the_batch_or_not_is_named() -> None:
    """As many places as the batch has rows, which hold a number of the whole batch: nothing says whether they are rows."""

    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices(np.ones((64, 4), "float32")).repeat().batch(8, True)
        error = tf.square(tf1.data.make_initializable_iterator(data).get_next() @ variable("w", (4, 1)))
        loss = tf.reduce_mean(error) + tf.reduce_sum(tf.fill([8], tf.reduce_max(error)))
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    graph = graphdef.from_graph_def(convert(trace(build), iterations_per_loop=2).graph_def)
    with pytest.raises(ShapeError, match="the batch cannot be changed with certainty") as caught:
        batch_search.with_rows(graph, 48)
    assert caught.value.node is not None
