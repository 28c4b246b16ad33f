"""Evaluation and prediction on the cores through TPUEstimator: how the model is traced, once, and what runs without cores."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tpugraph
from classifier import FEATURES, LABELS, eval_fn, model_fn, train_fn
from closeness import assert_close
from estimators import checkpoint_of, scalars_in
from tpugraph import EstimatorSpec, ModeKeys, TPUEstimator, compiler
from tpugraph.runtime.session import TPUSession

tf1 = tf.compat.v1
COUNT = 77
STEP = "global_step/Read/ReadVariableOp:0"
X, Y = FEATURES[:COUNT], LABELS[:COUNT].astype(np.float32)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    average = np.float32([[0.5], [-1], [1.5]])
    return checkpoint_of(tmp_path_factory.mktemp("linear"), **{"w/ExponentialMovingAverage": average})


def scores(*, half: bool = False) -> np.ndarray:
    return X.astype(float) @ (np.array([1.0, -2, 3]) / (2 if half else 1))


def read(params: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(params["batch_size"])


def linear(features: Any, labels: Any, mode: str) -> Any:
    weights = tf1.get_variable("w", [3, 1])
    return _spec(tf.squeeze(features["x"] @ weights, 1), labels, mode)


def _spec(found: Any, labels: Any, mode: str, **more: Any) -> Any:
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": found}, **more)
    metrics = {"mean": tf1.metrics.mean(found), "error": tf1.metrics.mean_absolute_error(labels, found)}
    return EstimatorSpec(mode, loss=tf.reduce_mean(tf.square(found - labels)), eval_metric_ops=metrics, **more)


def on(folder: Path, model: Callable[..., Any] = linear, *, rows: int = 16, cores: int = 4, **arguments: Any) -> Any:
    config = tpugraph.RunConfig(tpugraph.TPUConfig(2, cores), model_dir=folder, tf_random_seed=3)
    sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), rows)
    return TPUEstimator(model, **{"config": config, **sizes, **arguments})


def losses(found: np.ndarray, rows: int = 16) -> float:
    """The mean of the batches' losses."""
    errors = found - Y[: len(found)]
    return float(np.mean([np.mean(part**2) for part in np.split(errors, range(rows, len(found), rows))]))


def both(made: Any, reads: Any = read, **named: Any) -> tuple[dict[str, Any], list[float]]:
    return made.evaluate(reads, **named), [row["y"] for row in made.predict(reads, **named)]


def test_a_second_call_traces_converts_and_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    convert, opened, traced = compiler.convert, TPUSession.__init__, model_fn

    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        calls.append(f"model {mode}")
        return traced(features, labels, mode, params)

    def converts(graph: Any, options: Any) -> Any:
        calls.append(f"convert {options.mode}")
        return convert(graph, options)

    def opens(self: Any, *arguments: Any, **named: Any) -> None:
        calls.append("open")
        opened(self, *arguments, **named)

    monkeypatch.setattr(compiler, "convert", converts)
    monkeypatch.setattr(TPUSession, "__init__", opens)
    made = on(tmp_path, models, rows=64, cores=8)
    results = []
    for steps in (5, 10):
        made.train(train_fn, max_steps=steps)
        results.append((made.evaluate(eval_fn, steps=3), next(made.predict(eval_fn))["score"]))
    assert calls == [f"{what}{mode}" for modes in (("train", "train"), ("eval", "eval"), ("infer", "predict"))
                     for what, mode in (("model ", modes[0]), ("convert ", modes[1]), ("open", ""))]  # fmt: skip
    assert [metrics["global_step"] for metrics, _ in results] == [5, 10]
    assert results[0][0]["loss"] != results[1][0]["loss"]
    assert results[0][1] != results[1][1]
    made.evaluate(lambda params: eval_fn(params).take(2))
    assert calls[9:] == ["model eval", "convert eval", "open"]


def test_keras_layers_have_the_same_names_in_every_trace(tmp_path: Path) -> None:
    """Keras numbers layers over the whole process, and checkpoints know variables by those names."""

    def layers(features: Any, labels: Any, mode: str) -> Any:
        hidden = tf.keras.layers.Dense(2)(features["x"])
        found = tf.squeeze(tf.keras.layers.Dense(1)(hidden), 1)
        if mode != ModeKeys.TRAIN:
            return _spec(found, labels, mode)
        loss = tf.reduce_mean(tf.square(found - labels))
        train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, tf1.train.get_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=train)

    made = on(tmp_path, layers)
    made.train(lambda params: read(params).unbatch().repeat().batch(params["batch_size"], drop_remainder=True), steps=2)
    first, second = sorted({name.partition("/")[0] for name in made.get_variable_names()} - {"global_step"})
    weights = [made.get_variable_value(f"{name}/{part}") for name in (first, second) for part in ("kernel", "bias")]
    wanted = ((X @ weights[0] + weights[1]) @ weights[2] + weights[3])[:, 0]
    found, predicted = both(made)
    assert found["mean"] == pytest.approx(wanted.mean(), abs=1e-6)
    np.testing.assert_allclose(predicted, wanted, rtol=1e-4, atol=1e-6)


# --------------------------------------------------------------------------- the number of rows


def reshaped(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Has the batch size in the graph as a constant."""
    rows = params["batch_size"]
    return _spec(tf.reshape(tf.reshape(features["x"], [rows, 3]) @ tf1.get_variable("w", [3, 1]), [rows]), labels, mode)


def by_shape(features: Any, labels: Any, mode: str) -> Any:
    rows = int(features["x"].shape[0])
    return _spec(tf.reshape(features["x"] @ tf1.get_variable("w", [3, 1]), [rows]), labels, mode)


def with_python(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Reads the batch size for nothing, and has a Python function, which each trace numbers anew."""
    assert params["batch_size"]
    rows = tf1.py_func(lambda rows: rows, [features["x"]], tf.float32)
    return linear({"x": tf.ensure_shape(rows, [None, 3])}, labels, mode)


@pytest.mark.parametrize("model", [linear, with_python, reshaped, by_shape])
def test_a_fixed_number_of_rows(tmp_path: Path, checkpoint: str, model: Any, said: list[str]) -> None:
    """A model that holds the batch size is evaluated on full batches, and predicts every row; any other leaves no row out."""
    found, predicted = both(on(tmp_path, model), checkpoint_path=checkpoint)
    assert not [line for line in said if "without cores" in line]
    assert any("fixed number of rows" in line for line in said) == (model in (reshaped, by_shape))
    count = COUNT // 16 * 16 if model in (reshaped, by_shape) else COUNT
    assert found["mean"] == pytest.approx(scores()[:count].mean(), abs=1e-6)
    assert found["loss"] == pytest.approx(losses(scores()[:count]), rel=1e-6)
    assert_close(predicted, scores(), 1e-5)


def of_batches(what: Callable[[Any], float]) -> Callable[[int, int], float]:
    """The mean over the batches of what is made of each one's squared errors."""

    def mean(rows: int, count: int) -> float:
        errors = np.square(X[:count].astype(float).sum(1))
        return float(np.mean([what(part) for part in np.split(errors, range(rows, count, rows))]))

    return mean


means, sums = of_batches(np.mean), of_batches(np.sum)
FIXED = {
    "a divisor": (lambda e, rows: tf.reduce_sum(e) / rows, means),
    "a divisor of each row": (lambda e, rows: tf.reduce_sum(e / rows), means),
    "a factor of both": (lambda e, rows: tf.reduce_sum(e) * rows / tf.cast(rows, tf.float32), sums),
    "a number that it equals": (lambda e, rows: (tf.reduce_sum(e) + 0 * rows) / 4, lambda rows, count: sums(rows, count) / 4),
    "rows of its own": (lambda e, rows: tf.reduce_sum(e * tf1.constant(np.ones(rows, np.float32) / 2)),
                        lambda rows, count: sums(rows, count) / 2),
    "no multiple": (lambda e, rows: tf.reduce_sum(e) / (rows - 1), lambda rows, count: sums(rows, count) / (rows - 1)),
    "a target": (lambda e, rows: tf.reduce_sum(tf.reshape(tf.cumsum(tf.reshape(e, [rows])), [rows, 1])[:, 0] * 0
                                               + tf.reshape(e, [-1, rows])[0]), sums),
}  # fmt: skip


@pytest.mark.parametrize("rows", [16, 4], ids=["4 rows a core", "1 row a core"])
@pytest.mark.parametrize("name", FIXED)
def test_constants_that_are_the_batch_size_mean_what_they_meant(tmp_path: Path, name: str, rows: int,
                                                                said: list[str]) -> None:  # fmt: skip
    change, wanted = FIXED[name]

    def model(features: Any, labels: Any, mode: str, params: Any) -> Any:
        errors = tf.square(features["x"] @ tf1.get_variable("other", [3, 1], initializer=tf1.ones_initializer()))
        loss = change(tf.squeeze(errors, 1), params["batch_size"])
        return linear(features, labels, mode)._replace(loss=loss)

    found = on(tmp_path, model, rows=rows).evaluate(read)
    assert not [line for line in said if "without cores" in line]
    fixed = any("needs a batch with a fixed number of rows" in line for line in said)
    assert found["loss"] == pytest.approx(wanted(rows, COUNT // rows * rows if fixed else COUNT), rel=1e-5)


def test_batches_of_a_fixed_size(tmp_path: Path, checkpoint: str) -> None:
    """Smaller ones are put together; larger ones are not what was asked for."""
    made = on(tmp_path)

    def small(rows: int) -> Any:
        return read({"batch_size": COUNT}).unbatch().take(70).batch(rows, drop_remainder=True)

    found = made.evaluate(lambda: small(7), checkpoint_path=checkpoint)
    assert found["mean"] == pytest.approx(scores()[:70].mean(), abs=1e-6)
    with pytest.raises(ValueError, match="returned batches of 20 rows"):
        made.evaluate(lambda: small(20), checkpoint_path=checkpoint)


# --------------------------------------------------------------------------- where the values come from


def test_a_saver_that_restores_averages(tmp_path: Path, checkpoint: str) -> None:
    def averaged(features: Any, labels: Any, mode: str) -> Any:
        weights = tf1.get_variable("w", [3, 1])
        keys = {"w/ExponentialMovingAverage": weights, "global_step": tf1.train.get_global_step()}
        scaffold = tf1.train.Scaffold(saver=tf1.train.Saver(keys))
        return _spec(tf.squeeze(features["x"] @ weights, 1), labels, mode, scaffold=scaffold)

    found, predicted = both(on(tmp_path, averaged), checkpoint_path=checkpoint)
    assert found["mean"] == pytest.approx(scores(half=True).mean(), abs=1e-6)
    assert_close(predicted, scores(half=True), 1e-5)


def test_first_values_are_those_of_the_scaffold(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    def filled(features: Any, labels: Any, mode: str) -> Any:
        weights = tf1.get_variable("w", [3, 1], initializer=tf1.zeros_initializer())
        held = tf1.placeholder(tf.float32, [3, 1])
        fill = tf1.assign(weights, held)

        def init(scaffold: Any, session: Any) -> None:
            session.run(fill, {held: [[2], [-4], [6]]})

        scaffold = tf1.train.Scaffold(init_fn=init)
        return _spec(tf.squeeze(features["x"] @ weights, 1), labels, mode, scaffold=scaffold)

    made = on(tmp_path, filled)
    first = made.evaluate(read)
    assert made.evaluate(read, checkpoint_path=checkpoint)["mean"] == pytest.approx(scores().mean(), abs=1e-6)
    assert made.evaluate(read)["mean"] == first["mean"] == pytest.approx(2 * scores().mean(), abs=1e-6)
    assert len([line for line in said if line.startswith("evaluated 77 examples in 5 batches on 4 cores")]) == 3


@pytest.mark.parametrize(("use_tpu", "words"), [(True, "no examples to evaluate"), (False, "the evaluation is empty")])
def test_an_empty_input(tmp_path: Path, checkpoint: str, words: str, use_tpu: bool) -> None:
    made = on(tmp_path, use_tpu=use_tpu)
    with pytest.raises(tpugraph.RunError, match=words):
        made.evaluate(lambda params: read(params).take(0), checkpoint_path=checkpoint)
    assert list(made.predict(lambda params: read(params).take(0), checkpoint_path=checkpoint)) == []


# --------------------------------------------------------------------------- hooks


class Watch(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    def __init__(self, *names: str, stop_after: int = 100) -> None:
        self.names, self.stop_after = names, stop_after
        self.calls: list[str] = []
        self.seen: list[Any] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append("created")

    def before_run(self, run_context: Any) -> Any:
        self.calls.append("before")
        return tf1.train.SessionRunArgs([tf1.get_default_graph().get_tensor_by_name(n) for n in self.names])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.calls.append("after")
        self.seen.append(run_values.results)
        if len(self.seen) == self.stop_after:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        self.calls.append("end")
        self.seen.append(session.run(STEP))


def test_hooks_are_called_around_each_loop(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    """Two batches a loop: three loops for five batches. The metrics are those so far."""
    made, watch = on(tmp_path), Watch("mean/value:0", STEP)
    found = made.evaluate(read, hooks=[watch], checkpoint_path=checkpoint)
    data_ended = ["before", "end"]
    assert watch.calls == ["begin", "created", *["before", "after"] * 3, *data_ended]
    *loops, last = watch.seen
    assert [mean for mean, _ in loops] == pytest.approx([scores()[:rows].mean() for rows in (32, 64, 77)], abs=1e-6)
    assert [*(step for _, step in loops), last] == [5, 5, 5, 5]
    assert found["mean"] == pytest.approx(scores().mean(), abs=1e-6)
    assert said[-1].startswith("evaluated 77 examples")
    stopped = made.evaluate(read, hooks=[Watch(stop_after=1)], checkpoint_path=checkpoint)
    assert stopped["mean"] == pytest.approx(scores()[:32].mean(), abs=1e-6)


def test_a_hook_that_wants_each_batch_gets_it_without_cores(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    made, watch, seen = on(tmp_path), Watch("Squeeze:0"), Watch("Squeeze:0")
    found = made.evaluate(read, hooks=[watch], checkpoint_path=checkpoint)
    assert said[0] == ("note: the evaluation runs on this machine, without cores: the hook Watch asks for 'Squeeze:0' of "
                       "each batch")  # fmt: skip
    assert found["mean"] == pytest.approx(scores().mean(), abs=1e-6)
    assert_close([row["y"] for row in made.predict(read, hooks=[seen], checkpoint_path=checkpoint)], scores(), 1e-5)
    for hook in (watch, seen):
        assert_close(np.concatenate([values[0] for values in hook.seen[:5]]), scores(), 1e-5)


@pytest.mark.parametrize(("use_tpu", "expected"), [(True, [4]), (False, [1, 2, 3, 4])])
def test_so_many_steps_are_one_loop(tmp_path: Path, checkpoint: str, use_tpu: bool, expected: list[int]) -> None:
    """Two batches make a loop, but an evaluation whose steps are given is one; ``eval_step`` counts them."""

    class Steps(Watch):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.seen.append(int(run_context.session.run(tf1.get_collection(tf1.GraphKeys.EVAL_STEP)[0])))

    steps = Steps()
    on(tmp_path, use_tpu=use_tpu).evaluate(read, steps=4, hooks=[steps], checkpoint_path=checkpoint)
    assert steps.seen[:-1] == expected
    assert steps.calls.count("before") == len(expected)


def tensors(params: Any) -> Any:
    return tf1.data.make_one_shot_iterator(read(params)).get_next()


def test_tensors_are_evaluated_on_the_cores(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    found = on(tmp_path).evaluate(tensors, checkpoint_path=checkpoint)
    assert said[-1].startswith(f"evaluated {COUNT} examples in 5 batches on 4 cores")
    assert found["mean"] == pytest.approx(scores().mean(), abs=1e-6)
    said.clear()
    assert_close([row["y"] for row in on(tmp_path).predict(tensors, checkpoint_path=checkpoint)], scores(), 1e-5)
    assert said == []


def test_open_shapes_of_an_input_without_an_end_are_refused(tmp_path: Path, checkpoint: str) -> None:
    """Without cores they would be evaluated for ever."""

    def wide(params: Any, *, labels: bool = False) -> Any:
        def widened(y: Any) -> Any:
            return tf.pad(y[:, None], [(0, 0), (0, tf.random.uniform([], 3, 9, tf.int32, seed=1))])

        return read(params).repeat().map(lambda f, y: (f, widened(y)) if labels else ({**f, "wide": widened(y)}, y))

    made = on(tmp_path)
    with pytest.raises(ValueError, match="the features of an input without an end must have static shape"):
        made.predict(wide, checkpoint_path=checkpoint)
    with pytest.raises(ValueError, match="the labels of an input without an end must have static shape"):
        made.evaluate(lambda params: wide(params, labels=True), steps=1, checkpoint_path=checkpoint)

    def one_width(params: Any) -> Any:
        """Of all batches, drawn anew whenever the input is read."""
        drawn = tf.pad(tf.ones([16, 1]), [(0, 0), (0, tf.random.uniform([], 3, 9, tf.int32))])
        features = {"x": tf.ones([16, X.shape[1]]), "wide": drawn}
        return tf.data.Dataset.from_tensor_slices(features).repeat().batch(params["batch_size"], drop_remainder=True)

    with pytest.raises(ValueError, match="the features of an input without an end must have static shape"):
        made.predict(one_width, checkpoint_path=checkpoint)


def test_a_metric_of_several_values(tmp_path: Path, checkpoint: str, use_tpu: bool) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        spec, (mean, update), kept = linear(features, labels, mode), tf1.metrics.mean(labels), tf_keras.metrics.Mean()
        kept.update_state(labels)
        metrics = {"both": ((mean, 2 * mean), update), "keras": kept}
        return EstimatorSpec(mode, loss=spec.loss, eval_metric_ops=metrics)

    found = on(tmp_path, model_fn, use_tpu=use_tpu).evaluate(read, checkpoint_path=checkpoint)
    assert [*found["both"], found["keras"]] == pytest.approx([Y.mean(), 2 * Y.mean(), Y.mean()], abs=1e-6)


def test_generators_of_predictions(tmp_path: Path, checkpoint: str) -> None:
    made = on(tmp_path)
    left = made.predict(read, checkpoint_path=checkpoint)
    assert next(left)["y"] == pytest.approx(scores()[0], rel=1e-5)
    watch = Watch()
    batches = list(made.predict(read, hooks=[watch], checkpoint_path=checkpoint, yield_single_examples=False))
    assert [len(batch["y"]) for batch in batches] == [16, 16, 16, 16, 13]
    assert_close(np.concatenate([batch["y"] for batch in batches]), scores(), 1e-5)
    assert watch.calls[:4] == ["begin", "created", "before", "after"]
    assert watch.calls[-1] == "end"
    with pytest.raises(tpugraph.RunError, match="another predict was begun"):
        list(left)
    assert len(list(itertools.islice(made.predict(read, checkpoint_path=checkpoint), 40))) == 40


def test_hooks_of_predictions_that_are_left(tmp_path: Path, checkpoint: str, use_tpu: bool) -> None:
    watch = Watch()
    left = on(tmp_path, use_tpu=use_tpu).predict(
        read, hooks=[watch], checkpoint_path=checkpoint, yield_single_examples=False
    )
    for _ in range(2):
        next(left)
    left.close()  # type: ignore[attr-defined]
    assert watch.calls == ["begin", "created", *["before", "after"] * 2]


def test_predictions_that_are_no_dict(tmp_path: Path, checkpoint: str) -> None:
    def bare(features: Any, labels: Any, mode: str) -> Any:
        return EstimatorSpec(mode, predictions=linear(features, labels, mode).predictions["y"])

    made = on(tmp_path, bare)
    assert_close(list(made.predict(read, checkpoint_path=checkpoint)), scores(), 1e-5)
    (first, *_) = made.predict(read, checkpoint_path=checkpoint, yield_single_examples=False)
    assert_close(first, scores()[:16], 1e-5)


def test_a_model_of_the_rows_of_one_core_predicts_batches_of_all(
    tmp_path: Path, checkpoint: str, said: list[str]
) -> None:
    """As a detector does whose anchors are those of one image."""

    def anchored(features: Any, labels: Any, mode: str) -> Any:
        found = linear(features, labels, mode)
        tf.reshape(tf.zeros([4]), [features["x"].shape[0], -1])
        return found

    made = on(tmp_path, anchored)
    batches = list(made.predict(read, checkpoint_path=checkpoint, yield_single_examples=False))
    assert any("one core predicts, 4 rows a step" in line for line in said)
    assert [len(batch["y"]) for batch in batches] == [16, 16, 16, 16, 13]
    assert_close(np.concatenate([batch["y"] for batch in batches]), scores(), 1e-5)


def test_what_runs_without_cores_and_why(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    def constant(features: Any, labels: Any, mode: str) -> Any:
        found = linear(features, labels, mode)
        return found._replace(predictions={**found.predictions, "version": tf.constant([1])})

    def numbers(params: Any) -> Any:
        del params
        return {"x": tf.constant(X[:16])}, None

    cases = [(constant, read, "the prediction 'version' does not depend on the input", 5),
             (linear, numbers, "input_fn returns tensors, whose end cannot be told", 1)]  # fmt: skip
    for model, reads, why, count in cases:
        predicted = on(tmp_path, model).predict(reads, checkpoint_path=checkpoint, yield_single_examples=False)
        rows = np.concatenate([batch["y"] for batch in itertools.islice(predicted, count)])
        assert_close(rows, scores()[: len(rows)], 1e-5)
        assert len(said) == 1
        assert said.pop().startswith(f"note: the prediction runs on this machine, without cores: {why}")
    assert len(list(on(tmp_path, constant).predict(read, ["y"], checkpoint_path=checkpoint))) == COUNT
    assert said == []


def test_evaluation_off_the_cores_by_choice(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    found = on(tmp_path, eval_on_tpu=False, eval_batch_size=30).evaluate(read, checkpoint_path=checkpoint)
    assert [line.partition(":")[0] for line in said] == ["evaluated 3 batches at step 5"]
    assert found["loss"] == pytest.approx(losses(scores(), 30), rel=1e-6)


def test_event_files_hold_what_estimator_writes(tmp_path: Path, checkpoint: str, said: list[str]) -> None:
    def pictured(features: Any, labels: Any, mode: str) -> Any:
        found = linear(features, labels, mode)
        total = tf1.get_local_variable("total", [3], tf.float32, tf1.zeros_initializer())
        add = tf1.assign_add(total, tf.reduce_sum(features["x"], 0))
        shown = tf1.summary.histogram("total", total, collections=[])
        more = {"sums": (total.read_value(), add), "shown": (shown, add)}
        return found._replace(eval_metric_ops={**found.eval_metric_ops, **more})

    found = on(tmp_path, pictured).evaluate(read, checkpoint_path=checkpoint, name="held_out")
    assert said[-1].startswith("evaluated 77 examples in 5 batches on 4 cores at step 5: error ")
    assert_close(found["sums"], X.sum(0), 1e-5)
    folder = tmp_path / "eval_held_out"
    assert {(step, tag) for step, tag, _ in scalars_in(folder)} == {(5, "loss"), (5, "mean"), (5, "error")}
    (path,) = folder.glob("events.out.tfevents.*")
    values = {v.tag: v for event in tf1.train.summary_iterator(str(path)) for v in event.summary.value}
    assert values["mean"].simple_value == pytest.approx(found["mean"])
    assert_close(tf.make_ndarray(values["sums"].tensor), X.sum(0), 1e-5)
    assert values["shown/0"].histo.num == 3
    assert tf.make_ndarray(values["checkpoint_path"].tensor).item().decode() == checkpoint
