"""Input pipelines that leave nothing to tune run as they are written, without the thread that measures them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import finish, rows_of, squared_error, tf1, trace, variable
from tpugraph import ops
from tpugraph.compiler import convert
from tpugraph.ir import Graph, Node
from tpugraph.runtime.pipelines import run_as_written
from tpugraph.runtime.session import TPUSession


def maker_of(graph: Graph) -> Node:
    return graph.of_type(*ops.MAKE_ITERATOR)[0]


def made(*, parallel: int | None = None, ahead: int | None = None) -> Graph:
    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices(rows_of(96, 3)).repeat()
        data = data.map(lambda x, y: (2 * x, y), num_parallel_calls=parallel).batch(4, drop_remainder=True)
        data = data if ahead is None else data.prefetch(ahead)
        features, targets = tf1.data.make_initializable_iterator(data).get_next()
        loss = tf.reduce_mean(squared_error(features, targets, variable("w", (3, 1))))
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    return trace(build)


@pytest.mark.parametrize("choices", [{}, {"parallel": 2}, {"parallel": 2, "ahead": 3}])
def test_measuring_is_switched_off_where_nothing_asks_for_it(choices: dict[str, Any]) -> None:
    graph = made(**choices)
    before = maker_of(graph).inputs[0].node
    assert run_as_written(graph) == 1
    last = maker_of(graph).inputs[0].node
    assert (last.op, last.inputs[0].node) == ("OptionsDataset", before)
    options = tf.data.Options()
    options._from_proto(type(options._to_proto()).FromString(last.raw_attrs["serialized_options"].s))
    assert options.autotune.enabled is False
    assert options.experimental_optimization.apply_default_optimizations is None  # as before


def test_a_session_trains_the_same_on_what_is_tuned_and_what_is_not() -> None:
    found = []
    for choices in ({"parallel": 2}, {"parallel": tf.data.AUTOTUNE}):
        with TPUSession(convert(made(**choices), num_replicas=2, iterations_per_loop=3)) as session:
            found.append(session.train(6))
    np.testing.assert_array_equal(found[0], found[1])
