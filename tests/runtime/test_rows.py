"""Rows of constants read by their numbers: the same rows in the same order, and one read per step."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpugraph import ops
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.runtime.emulator import emulation, reads
from tpugraph.runtime.emulator.emulation import EmulatedLoop
from tpugraph.runtime.session import TPUSession

tf1 = tf.compat.v1
ROWS = np.arange(70, dtype=np.float32).reshape(35, 2)


def plain(change: Any, *, in_order: bool = True) -> Any:
    """A graph whose loss tells the rows of the batch apart.

    With ``in_order`` it also depends on their order, by numbers of rows that each core takes its own of as it runs: a step
    with a slice that moves is not compiled.
    """
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(3)
        data = change(tf.data.Dataset.from_tensor_slices((ROWS, np.arange(35, dtype=np.int32))))
        iterator = tf1.data.make_initializable_iterator(data)
        tf1.add_to_collection("table_initializer", iterator.initializer)
        x, number = iterator.get_next()
        weight = tf1.get_variable("w", [2], initializer=tf1.constant_initializer([1.0, 0.5]))
        scale = tf.cast(tf.range(1, x.shape[0] + 1), tf.float32) if in_order else tf.cast(number, tf.float32)
        loss = tf.reduce_mean((tf.linalg.matvec(x, weight) + tf.cast(number, tf.float32)) * scale)
        step = tf1.train.get_or_create_global_step()
        tf1.train.GradientDescentOptimizer(1e-3).minimize(loss, step, name="train")
        tf1.global_variables_initializer()
        tf1.train.Saver()
        return graph.as_graph_def(add_shapes=True)


INPUTS = {
    "shuffled": (lambda d: d.shuffle(20, seed=4).repeat().batch(6, drop_remainder=True), True),
    "seed of the graph": (lambda d: d.shuffle(50).repeat().batch(6, drop_remainder=True), True),
    "ends": (lambda d: d.repeat(2).shuffle(9, seed=1).batch(6, drop_remainder=True).prefetch(2), True),
    "whole batches": (lambda d: d.shuffle(9, seed=1).repeat().batch(12, drop_remainder=True)
                      .rebatch(6, drop_remainder=True), True),
    "whole batches that do not divide": (lambda d: d.shuffle(9, seed=1).repeat().batch(5, drop_remainder=True)
                                         .rebatch(6, drop_remainder=True), True),
    "take and skip": (lambda d: d.skip(2).take(30).shuffle(9, seed=1).repeat().batch(6, drop_remainder=True), True),
    "a function": (lambda d: d.map(lambda x, y: (x + 1, y)).shuffle(9, seed=1).repeat().batch(6, drop_remainder=True),
                   False),
    "in order": (lambda d: d.repeat().batch(6, drop_remainder=True), True),
    "in order, ends": (lambda d: d.repeat(2).batch(6, drop_remainder=True).prefetch(2), True),
}  # fmt: skip

MAY_END = {"ends", "in order, ends", "a function", "take and skip"}
"""Inputs with an end, or of which nothing that is looked at says that they have none."""


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("loop", [5, 120], ids=["copied", "staged"])
def test_the_same_rows_in_the_same_order(name: str, loop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    change, by_number = INPUTS[name]
    program = convert(graphdef.from_graph_def(plain(change, in_order=loop < 100)), num_replicas=2,
                      iterations_per_loop=loop)  # fmt: skip
    losses = []
    for together in (True, False):
        if not together:  # the dataset is read, row by row
            monkeypatch.setattr("tpugraph.runtime.emulator.infeed_outfeed.read_together", lambda *_: None)
        with TPUSession(program) as session:
            if together:
                assert isinstance(session.engine, EmulatedLoop)
                assert bool(session.engine.lowered.graph.of_type("RangeDataset")) == by_number
                assert (session.engine.lowered.compiled_nodes > 0) == (loop > 100)
                reads = session.engine.lowered.graph.of_type(*ops.GET_NEXT)
                read = "IteratorGetNextAsOptional" if name in MAY_END else "IteratorGetNextSync"
                assert [node.op for node in reads] == [read]
                entries = session.engine.lowered.graph.of_type(*ops.ENTER)
                assert {node.attr("parallel_iterations") for node in entries} == {1}  # reads come in order
            losses.append(session.train(5) + session.train(3))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_rows_that_are_none_or_empty() -> None:
    data = plain(lambda d: d.skip(35).shuffle(9, seed=1).repeat().batch(6, drop_remainder=True))
    with TPUSession(convert(graphdef.from_graph_def(data), num_replicas=2, iterations_per_loop=5)) as session:
        assert session.train(5) == []
        assert session.notes == ["the data ended after 0 steps"]
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.from_tensor_slices((ROWS[:8], np.zeros((8, 0), np.float32))).repeat().batch(8, True)
        x, nothing = tf1.data.make_initializable_iterator(data).get_next()
        weight = tf1.get_variable("w", [2], initializer=tf1.ones_initializer())
        loss = tf.reduce_mean(tf.linalg.matvec(x, weight)) + tf.reduce_sum(nothing)
        tf1.train.GradientDescentOptimizer(1e-3).minimize(loss, tf1.train.get_or_create_global_step(), name="train")
        tf1.summary.scalar("loss", loss)
        program = convert(graphdef.from_graph_def(graph.as_graph_def(add_shapes=True)), num_replicas=2)
    with TPUSession(program) as session:
        assert session.train(1) == [pytest.approx(float(ROWS[:8].sum() / 8))]


@pytest.mark.parametrize(("loop", "ahead"), [(5, reads.AHEAD), (500, 500), (10**6, reads.MOST_AHEAD // 6)])
def test_the_numbers_of_the_next_loop_are_read_ahead(loop: int, ahead: int) -> None:
    change, _ = INPUTS["shuffled"]
    program = convert(graphdef.from_graph_def(plain(change)), num_replicas=2, iterations_per_loop=loop)
    graph = emulation.lower(graphdef.from_graph_def(program.graph_def)).graph
    reads = next(node for node in graph.of_type("PrefetchDataset") if node.uses())
    assert reads.inputs[1].node.attr("value") == ahead
    assert reads.inputs[0].node.op == "OptionsDataset"
