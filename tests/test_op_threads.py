"""One thread works on each op of a step where that keeps all processors busy, and more than one elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, batches, finish, rows_of, trace, variable
from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.ir.session_config import OWN_THREADS, guarded
from tpugraph.runtime.emulator import op_threads
from tpugraph.runtime.emulator.emulation import Lowered, lower
from tpugraph.runtime.session import TPUSession
from tpugraph.tpu.program import Program

tf1 = tf.compat.v1
CORES, ROWS, WIDTH = 4, 2, 24


def convolved(rows: int, *, last: int = 16, batch_norm: bool = False) -> Any:
    """Two convolutions of the rows of a core, and behind them a layer with a weight that is larger than the rows."""
    x, y = batches(rows_of(48, 400), rows)
    images = tf.reshape(x, [-1, 20, 20, 1])
    for number, (before, after) in enumerate(((1, 4), (4, 8))):
        images = tf.nn.relu(
            tf.nn.conv2d(images, variable(f"filter_{number}", (3, 3, before, after), scale=0.3), 1, "SAME")
        )
    images = images - tf.reduce_mean(images, [0, 1, 2]) if batch_norm else images
    hidden = tf.tanh(
        tf.reshape(tf.nn.avg_pool2d(images, 5, 5, "VALID"), [-1, 128]) @ variable("dense", (128, last), scale=0.1)
    )
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(hidden, 1) - y))
    return finish(loss, tf1.train.MomentumOptimizer(0.001, 0.9))


def program(**options: Any) -> Program:
    return convert(trace(lambda: convolved(ROWS * CORES, **options)), num_replicas=CORES, iterations_per_loop=4)


def lowered(**options: Any) -> Lowered:
    return lower(graphdef.from_graph_def(program(**options).graph_def))


def products_of_all_cores(found: Lowered) -> int:
    return len([node for node in found.graph.of_type("MatMul") if "/joined" in node.name])


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda count: monkeypatch.setattr(op_threads.os, "sched_getaffinity", lambda _: set(range(count)))


@pytest.mark.parametrize(("count", "threads", "products"), [(1, 0, 2), (2, 1, 4), (3, 0, 2)])
def test_one_thread_where_each_processor_has_as_many_cores(
    processors: Any, count: int, threads: int, products: int
) -> None:
    """The rows of all cores by a weight are then a product for each processor, and its gradient is one product as ever."""
    processors(count)
    found = lowered()
    assert found.threads == threads
    assert products_of_all_cores(found) == products
    assert len([node for node in found.graph.of_type("MatMul") if node.attr("transpose_a")]) == 1


def test_an_op_that_is_much_of_the_step_is_divided(processors: Any) -> None:
    processors(2)
    found = lowered(last=8000)
    assert (found.threads, products_of_all_cores(found)) == (0, 2)


@pytest.mark.parametrize("count", [2, 4])
def test_it_trains_as_the_whole_batch(processors: Any, count: int) -> None:
    """One thread adds up in another order than several do, which moved an element by 5e-5 of itself."""
    processors(count)
    assert_cores_are_the_whole_batch(convolved, relative=1e-4, absolute=1e-5, rows=ROWS, cores=CORES)


def test_the_session_has_as_many_threads(processors: Any) -> None:
    processors(2)
    with TPUSession(program()) as session:
        assert session.engine.threads == 1
        assert len(session.train(3)) == 3


def test_threads_that_somebody_asked_for_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(**asked: int) -> int:
        made = guarded(tf1.ConfigProto(**asked), converted=True, threads=1)
        return int(made.intra_op_parallelism_threads)

    monkeypatch.delenv(OWN_THREADS, raising=False)
    assert of() == 1
    assert of(intra_op_parallelism_threads=3) == 3
    assert of(inter_op_parallelism_threads=1) == 0  # no two ops run beside each other
    monkeypatch.setenv(OWN_THREADS, "false")  # one pool for all sessions, which the first one makes
    assert of() == 0
