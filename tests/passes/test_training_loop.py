import evaluating
import pytest
import tensorflow as tf

from models import (
    assert_same_on_cores,
    check,
    corpus,
    finish,
    linear,
    rows_of,
    squared_error,
    tf1,
    trace,
)
from models import variable as fixed
from tpugraph import analysis, testing
from tpugraph.compiler import convert
from tpugraph.passes.training_loop import TrainingLoop
from tpugraph.runtime.session import TPUSession


def test_golden_step() -> None:
    graph = check(TrainingLoop(iterations_per_loop=3), "step", num_replicas=2)
    frames = analysis.frames(graph)
    assert len({frames[n] for n in graph.of_type("LoopCond")}) == 3
    assert {frames[n] for n in graph.of_type("InfeedEnqueueTuple")} == {"tpugraph/infeed/while"}
    assert {frames[n] for n in graph.of_type("OutfeedDequeueTuple")} == {"tpugraph/outfeed/while"}


@pytest.mark.parametrize(("case", "mode"), [("evaluation", "eval"), ("prediction", "predict")])
def test_golden_without_training(case: str, mode: str) -> None:
    evaluating.check(TrainingLoop(iterations_per_loop=3), case, mode=mode, num_replicas=2)


@pytest.mark.parametrize("iterations", [1, 2, 3, 7, 50])
def test_any_loop_length_gives_the_same_training(iterations: int) -> None:
    def build(rows: int) -> None:
        finish(tf.reduce_mean(squared_error(*linear(rows))), tf1.train.AdamOptimizer(0.1))

    assert_same_on_cores(build, relative=2e-5, absolute=1e-6, steps=7, iterations_per_loop=iterations)


def test_the_last_loop_is_shorter() -> None:
    lengths: list[int] = []
    model = corpus("iris_dnn")
    with TPUSession(convert(model.folder / "model.pb", num_replicas=2, iterations_per_loop=4)) as session:
        session.restore(model.checkpoint)
        session.train(10, on_loop=lambda step, losses: lengths.append(len(losses)))
        assert session.global_step == 10
    assert lengths == [4, 4, 2]


@pytest.mark.parametrize("cores", [1, 4])
def test_the_end_of_the_data_ends_training_after_the_last_whole_step(cores: int) -> None:
    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices(rows_of(96, 3)).batch(20, drop_remainder=True)
        features, targets = tf1.data.make_initializable_iterator(data).get_next()
        loss = tf.reduce_mean(squared_error(features, targets, fixed("w", (3, 1))))
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    found = testing.run_on_cores(trace(build), steps=50, num_replicas=cores, iterations_per_loop=3)
    assert len(found.losses) == 4  # 96 rows are 4 steps of 20
    assert found.variables["global_step"] == 4
