"""Loops that run as one XLA computation train as the same graph does op by op, and only where the rule allows it."""

from pathlib import Path
from typing import Any

import pytest
from sampling import part

from models import Model, batches, corpus, family, finish, linear, rows_of, squared_error, tf1, trace, variable
from tpugraph import testing
from tpugraph.compiler import convert
from tpugraph.ir import Graph
from tpugraph.ir.function_library import functions_named
from tpugraph.runtime.emulator import xla_loop
from tpugraph.runtime.emulator.emulation import EmulatedLoop
from tpugraph.runtime.session import TPUSession
from tpugraph.testing import Training

LOOP = 200
IRIS = corpus("iris_dnn")


def train(graph: Graph, *steps: int, cores: int = 8, loop: int = LOOP, checkpoint: Path | None = None,
          compiled: bool | None = None, **options: Any) -> Training:  # fmt: skip
    """Train in several calls, of what is compiled as it says."""
    with TPUSession(convert(graph, num_replicas=cores, iterations_per_loop=loop, **options)) as session:
        assert compiled in (None, is_compiled(session))
        session.initialize() if checkpoint is None else session.restore(checkpoint)
        losses = [loss for count in steps for loss in session.train(count)]
        return Training(losses, session.values())


def is_compiled(session: TPUSession) -> bool:
    assert isinstance(session.engine, EmulatedLoop)
    return session.engine.lowered.compiled_nodes > 0


def compiles(graph: Graph, *, loop: int = LOOP) -> bool:
    with TPUSession(convert(graph, num_replicas=8, iterations_per_loop=loop)) as session:
        return is_compiled(session)


STAGED = [corpus("iris_dnn"), corpus("ref_variables"), family("accumulate_or_noise"), family("contrib_layers"), family("keras_adam"),
          family("two_optimizers"), family("weighted_some_zero")]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("model", part(STAGED, 2), ids=lambda model: model.name)
def test_compiled_loops_train_as_recorded(model: Model) -> None:
    recorded = model.recorded("global8")
    steps = 5, len(recorded.losses) - 5
    options = {"global_batch": model.options("global8")["global_batch"]}
    found = train(model.graph(), *steps, checkpoint=model.checkpoint, compiled=True, **options)
    assert found.variables.keys() >= recorded.variables.keys()
    model.assert_recorded(found, "global8")


def averaged() -> None:
    """A linear model whose loss sums over axes that the graph computes, as all of ``tf.losses`` do."""
    features, targets, weights = linear(8)
    found = tf1.squeeze(tf1.matmul(features, weights), -1)
    finish(tf1.losses.mean_squared_error(targets, found), tf1.train.GradientDescentOptimizer(0.05))


def step_ops(graph: Graph, cores: int) -> list[str]:
    """The ops of a compiled loop, but for the Identity through which each core carries its last loss out of it."""
    with TPUSession(convert(graph, num_replicas=cores, iterations_per_loop=LOOP)) as session:
        assert is_compiled(session)
        assert isinstance(session.engine, EmulatedLoop)
        found = functions_named(session.engine.lowered.graph).values()
    return sorted(node.op for function in found for node in function.node_def if node.op != "Identity")


def test_a_step_does_as_much_for_eight_cores_as_for_two() -> None:
    """A gradient is one product over the rows of all cores."""
    found = step_ops(IRIS.graph(), 8)
    assert found == step_ops(IRIS.graph(), 2)
    assert not any(op.startswith("BatchMatMul") for op in found)
    assert found.count("MatMul") == 8
    assert step_ops(trace(averaged), 8) == step_ops(trace(averaged), 2)


def test_loops_of_any_length_agree_with_single_steps() -> None:
    steps = 130, 7, LOOP, 1
    found = train(IRIS.graph(), *steps, checkpoint=IRIS.checkpoint)
    single = train(IRIS.graph(), sum(steps), loop=1, checkpoint=IRIS.checkpoint)
    # Measured: losses 5e-6 and variables 2e-6; XLA sums in another order.
    testing.assert_same_training(found, single, relative=1e-4, absolute=1e-5)


def finite(rows: int = 8, *, repeats: int = 30) -> None:
    data = tf1.data.Dataset.from_tensor_slices(rows_of(40, 3)).repeat(repeats).batch(rows, drop_remainder=True)
    features, targets = tf1.data.make_initializable_iterator(data).get_next()
    loss = tf1.reduce_mean(squared_error(features, targets, variable("w", (3, 1))), name="loss")
    finish(loss, tf1.train.GradientDescentOptimizer(0.05))


@pytest.mark.parametrize("cores", [1, 8])
def test_the_data_ends_after_the_last_whole_step(cores: int) -> None:
    found = 1200 // 8  # steps in 30 x 40 rows
    program = convert(trace(finite), num_replicas=cores, iterations_per_loop=LOOP)
    with TPUSession(program) as session:
        assert is_compiled(session)
        session.initialize()
        losses = session.train(found + 50)
        assert len(losses) == found == session.global_step
        assert session.notes == [f"the data ended after {found} steps"]
        assert session.train(1) == []
        assert session.global_step == found
        weights = session.value("w")
    single = train(trace(finite), found, cores=cores, loop=1)
    testing.assert_same_training(Training(losses, {"w": weights}),
                                 Training(single.losses, {"w": single.variables["w"]}), relative=1e-5, absolute=1e-6)  # fmt: skip


def test_short_loops_and_literal_sessions_are_not_compiled() -> None:
    with TPUSession(convert(IRIS.graph(), num_replicas=8, iterations_per_loop=LOOP), literal=True) as session:
        assert not is_compiled(session)
    assert not compiles(IRIS.graph(), loop=xla_loop.FEWEST_STEPS - 1)


def test_much_data_is_not_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_loop, "MOST_BYTES", 10_000)
    assert not compiles(trace(finite))
    by_step = train(trace(finite), 30)
    monkeypatch.undo()
    testing.assert_same_training(train(trace(finite), 30), by_step, relative=1e-6, absolute=1e-7)


def random_step() -> None:
    features, targets, weights = linear(8)
    noise = tf1.random_normal((8,), seed=1)
    finish(tf1.reduce_mean(squared_error(features, targets + 0.1 * noise, weights), name="loss"),
           tf1.train.AdamOptimizer(0.1))  # fmt: skip


def convolution() -> None:
    features, targets = batches(rows_of(96, 16), 8)
    images = tf1.nn.conv2d(tf1.reshape(features, (8, 4, 4, 1)), variable("k", (2, 2, 1, 2)), strides=1, padding="VALID")
    loss = tf1.reduce_mean(tf1.square(tf1.reduce_sum(images, (1, 2, 3)) - targets), name="loss")
    finish(loss, tf1.train.GradientDescentOptimizer(0.01))


@pytest.mark.parametrize("build", [random_step, convolution])
def test_ops_that_xla_does_otherwise_stay_as_they_are(build: object) -> None:
    assert not compiles(trace(build))  # type: ignore[arg-type]


def test_batches_of_a_queue_are_staged() -> None:
    """The queue gives values of no known shape; the infeed says what they are."""
    model = corpus("queue_runner")
    found = train(model.graph(), 24, cores=1, checkpoint=model.checkpoint, compiled=True)
    testing.assert_same_training(found, model.recorded("plain"), relative=1e-4, absolute=1e-5)
