"""Hooks, saving listeners, scaffolds and warm starts around the training loops."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from closeness import assert_close
from estimators import ROWS, TARGETS, assert_trained, by_hand, estimator, input_fn, linear_fn, linear_with, scalars_in
from tpugraph import EstimatorSpec, WarmStartSettings
from tpugraph.estimator.hooks import HostSession

tf1 = tf.compat.v1


class Recorder(tf1.train.SessionRunHook):  # type: ignore[misc]
    def __init__(self, stop_at: int | None = None) -> None:
        self.calls: list[Any] = []
        self.stop_at = stop_at

    def begin(self) -> None:
        self.calls.append("begin")
        self.step = tf1.train.get_global_step()
        self.doubled = self.step * 2

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append(("session", int(session.run(self.step))))

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs({"doubled": self.doubled, "step": [self.step]})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_values.results["step"][0])
        if isinstance(run_context.session, HostSession):  # elsewhere a fetch may come before the step or after it
            assert run_values.results["doubled"] == 2 * step
            assert run_context.session.run(self.step) == step
        else:
            step = int(run_context.session.run(self.step))
        self.calls.append(step)
        if self.stop_at is not None and step >= self.stop_at:
            run_context.request_stop()

    def end(self, session: Any) -> None:
        self.calls.append(("end", int(session.run(self.step))))


def test_hooks_are_called_around_each_loop(tmp_path: Path) -> None:
    trained = estimator(tmp_path)
    for last, calls in ((10, [("session", 0), 4, 8, 10, ("end", 10)]), (12, [("session", 10), 12, ("end", 12)])):
        hook = Recorder()
        trained.train(input_fn, hooks=[hook], max_steps=last)
        assert hook.calls == ["begin", *calls]


def test_a_hook_may_stop_training(tmp_path: Path, use_tpu: bool) -> None:
    hook = Recorder(stop_at=7)
    trained = estimator(tmp_path, use_tpu=use_tpu).train(input_fn, hooks=[hook], max_steps=100)
    assert trained.get_variable_value("global_step") == (8 if use_tpu else 7)
    assert hook.calls[-1] == ("end", 8 if use_tpu else 7)


def test_hooks_of_the_model_are_called(tmp_path: Path, use_tpu: bool) -> None:
    hooks = [Recorder(), Recorder()]
    given = {"training_hooks": hooks} if use_tpu else {"training_hooks": hooks[:1], "training_chief_hooks": hooks[1:]}
    models = linear_with(lambda spec: EstimatorSpec(spec.mode, loss=spec.loss, train_op=spec.train_op, **given))
    estimator(tmp_path, models, use_tpu=use_tpu, loop=1).train(input_fn, max_steps=2)
    for hook in hooks:
        assert hook.calls == ["begin", ("session", 0), 1, 2, ("end", 2)]


def test_hooks_of_the_chief_are_refused_on_cores(tmp_path: Path) -> None:
    models = linear_with(lambda spec: EstimatorSpec(spec.mode, loss=spec.loss, train_op=spec.train_op,
                                                    training_chief_hooks=[Recorder()]))  # fmt: skip
    with pytest.raises(ValueError, match="training_chief_hooks returned by EstimatorSpec is not supported in TPUE"):
        estimator(tmp_path, models).train(input_fn, max_steps=1)


def test_a_hook_reads_and_resets_variables_that_no_checkpoint_holds(tmp_path: Path, use_tpu: bool) -> None:
    """Those of metrics, which the cores update: in training a mean over some steps, in evaluation one over all batches."""
    counts, means = [], []

    class Means(tf1.train.SessionRunHook):  # type: ignore[misc]
        def after_run(self, run_context: Any, run_values: Any) -> None:
            counts.append(float(run_context.session.run(self.count)))
            if self.resets:
                run_context.session.run(self.count.initializer)

        def end(self, session: Any) -> None:
            means.append(float(session.run(self.mean)))

    hook = Means()

    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = linear_fn(features, labels, mode, params)
        hook.mean, update = tf1.metrics.mean(labels, name="targets")
        (hook.count,) = [v for v in tf1.local_variables() if v.op.name == "targets/count"]
        if mode == "train":
            return EstimatorSpec(mode, loss=spec.loss, train_op=tf.group(spec.train_op, update))
        return EstimatorSpec(mode, loss=spec.loss, eval_metric_ops={"targets": (hook.mean, update)})

    def batches() -> Any:
        return input_fn({"batch_size": ROWS})

    made = tpugraph.Estimator(models, tmp_path, config=tpugraph.RunConfig(log_step_count_steps=2), use_tpu=use_tpu)
    hook.resets = True
    made.train(batches, hooks=[hook], steps=4)
    assert counts == ([2 * ROWS] * 2 if use_tpu else [ROWS] * 4)
    hook.resets = False
    found = made.evaluate(batches, steps=2, hooks=[hook])
    assert_close(np.asarray(means[-1]), np.asarray(found["targets"]), 1e-6)
    assert counts[-1] == 2 * ROWS


def test_a_scaffold_is_finalized_once(tmp_path: Path, use_tpu: bool) -> None:
    finalized: list[str] = []

    class Counted(tf1.train.Scaffold):  # type: ignore[misc]
        def finalize(self) -> Any:
            finalized.append("once")
            return super().finalize()

    models = linear_with(lambda spec: spec._replace(scaffold_fn=Counted))
    estimator(tmp_path, models, use_tpu=use_tpu).train(input_fn, max_steps=2)
    assert finalized == ["once"]


def test_the_loss_and_variables_can_be_asked_for(tmp_path: Path) -> None:
    class Ask(tf1.train.SessionRunHook):  # type: ignore[misc]
        def begin(self) -> None:
            graph = tf1.get_default_graph()
            self.loss, self.train = graph.get_tensor_by_name("loss_value:0"), graph.get_operation_by_name("step")
            self.weights = tf1.trainable_variables()[0]

        def before_run(self, run_context: Any) -> Any:
            loss = run_context.original_args.fetches[1]
            assert loss is self.loss
            return tf1.train.SessionRunArgs((self.loss, self.train, self.weights))

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.results = run_values.results

    models = linear_with(lambda spec: EstimatorSpec(spec.mode, loss=tf.identity(spec.loss, "loss_value"),
                                                    train_op=tf.group(spec.train_op, name="step")))  # fmt: skip
    hook = Ask()
    estimator(tmp_path, models).train(input_fn, hooks=[hook], max_steps=4)
    losses, weights = by_hand(4)
    assert hook.results[0] == pytest.approx(losses[-1], rel=1e-4)
    assert hook.results[1] is None
    assert_close(hook.results[2][:, 0], weights, 1e-4)


def watched(features: Any, labels: Any, mode: str, params: Any) -> Any:
    tf.reduce_mean(labels, name="average")
    tf.identity(labels, name="rows")
    tf.square(labels, name="squares")
    return linear_fn(features, labels, mode, params)


class Ask(tf1.train.SessionRunHook):  # type: ignore[misc]
    def __init__(self, *names: str, first: int = 0) -> None:
        self.names, self.first, self.asked = names, first, 0

    def before_run(self, run_context: Any) -> Any:
        self.asked += 1
        return tf1.train.SessionRunArgs(self.names) if self.asked > self.first else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.results = run_values.results


def test_tensors_of_the_input_leave_the_cores(tmp_path: Path, use_tpu: bool) -> None:
    """Hooks get what the plain graph would give on the whole batch, of the loop's last step."""
    trained = estimator(tmp_path, watched, use_tpu=use_tpu)
    for last in (6, 10):
        hook = Ask("average:0", "rows:0")
        trained.train(input_fn, hooks=[hook], steps=last)
        rows = TARGETS[np.arange((last - 1) * ROWS, last * ROWS) % len(TARGETS)]
        assert hook.results[0] == pytest.approx(rows.mean(), rel=1e-5)
        assert np.array_equal(hook.results[1], rows)
    assert {tag for _, tag, _ in scalars_in(tmp_path)} <= {"loss", "global_step/sec", "examples/sec"}


def test_what_is_asked_for_late_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(tpugraph.RunError, match="'squares:0' depends on the input, which the cores take inside"):
        estimator(tmp_path, watched).train(input_fn, hooks=[Ask("squares:0", first=1)], max_steps=8)


def test_the_hooks_of_tensorflow(tmp_path: Path) -> None:
    hooks = [
        tf1.train.CheckpointSaverHook(str(tmp_path / "more"), save_steps=4),
        tf1.train.StepCounterHook(every_n_steps=4, output_dir=str(tmp_path / "more")),
        tf1.train.StopAtStepHook(last_step=9),
        tf1.train.LoggingTensorHook({"step": "global_step:0" if not tf1.resource_variables_enabled()
                                     else "global_step/Read/ReadVariableOp:0"}, every_n_iter=1),
    ]  # fmt: skip
    trained = estimator(tmp_path / "own").train(input_fn, hooks=hooks, max_steps=100)
    assert trained.get_variable_value("global_step") == 12  # the end of the loop with step 9
    saved = tf.train.latest_checkpoint(str(tmp_path / "more"))
    assert np.array_equal(tf.train.load_variable(saved, "w"), trained.get_variable_value("w"))


def test_saving_listeners(tmp_path: Path, use_tpu: bool) -> None:
    calls: list[Any] = []

    class Listener(tf1.train.CheckpointSaverListener):  # type: ignore[misc]
        def begin(self) -> None:
            calls.append("begin")

        def before_save(self, session: Any, global_step_value: int) -> None:
            calls.append(("before", int(global_step_value)))

        def after_save(self, session: Any, global_step_value: int) -> Any:
            calls.append(("after", int(global_step_value)))
            return global_step_value >= 8 or global_step_value == 0  # the first is of no account

        def end(self, session: Any, global_step_value: int) -> None:
            calls.append(("end", int(global_step_value)))

    trained = estimator(tmp_path, use_tpu=use_tpu, save_checkpoints_steps=4)
    trained.train(input_fn, max_steps=20, saving_listeners=[Listener()])
    saves = [(what, step) for step in (0, 4, 8) for what in ("before", "after")]
    assert calls == ["begin", *saves, ("end", 8)]


# --------------------------------------------------------------------------- scaffold


def test_a_scaffold_initialises(tmp_path: Path, use_tpu: bool) -> None:
    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = linear_fn(features, labels, mode, params)
        start = tf1.placeholder(tf.float32, [])
        weights = next(v for v in tf1.trainable_variables() if v.op.name == "w")
        momentum = next(v for v in tf1.global_variables() if v.op.name == "w/Momentum")

        def set_momentum(scaffold: Any, session: Any) -> None:
            session.run(tf1.assign(momentum, tf.zeros([3, 1]) + 2.0))

        with tf.control_dependencies([tf1.global_variables_initializer()]):
            init = tf1.assign(weights, tf.fill([3, 1], start))
        scaffold = tf1.train.Scaffold(init_op=init, init_feed_dict={start: 5.0}, init_fn=set_momentum)
        return spec._replace(scaffold_fn=lambda: scaffold)

    estimator(tmp_path, models, use_tpu=use_tpu).train(input_fn, max_steps=1)
    for name, value in (("w", 5.0), ("w/Momentum", 2.0)):
        assert tf.train.load_variable(str(tmp_path / "model.ckpt-0"), name).tolist() == [[value]] * 3


@pytest.mark.parametrize("hook", ["init_fn", "local_init_op"])
def test_a_scaffold_gives_values_to_what_its_saver_leaves_out(tmp_path: Path, hook: str, use_tpu: bool) -> None:
    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        frozen = tf1.get_variable("frozen", [3, 1], initializer=tf1.random_normal_initializer(), trainable=False)
        spec = linear_fn({"x": features["x"] + tf.transpose(frozen)}, labels, mode, params)
        given = tf1.assign(frozen, tf.zeros([3, 1]))
        how = {"init_fn": lambda scaffold, session: session.run(given), "local_init_op": given}[hook]
        saver = tf1.train.Saver([v for v in tf1.global_variables() if v is not frozen])
        scaffold = tf1.train.Scaffold(saver=saver, **{hook: how})
        return EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, scaffold=scaffold)

    trained = estimator(tmp_path, models, use_tpu=use_tpu).train(input_fn, steps=4)
    assert_trained(trained, 4)
    if hook == "local_init_op":  # which is run where a training goes on, too
        estimator(tmp_path, models, use_tpu=use_tpu).train(input_fn, steps=1)
        return
    with pytest.raises(tpugraph.CheckpointError, match="nothing gives the variables frozen a first value"):
        estimator(tmp_path, models, use_tpu=use_tpu).train(input_fn, steps=1)


def test_a_saver_names_the_variables(tmp_path: Path) -> None:
    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = linear_fn(features, labels, mode, params)
        saver = tf1.train.Saver({f"mine/{v.op.name}": v for v in tf1.global_variables()})
        return EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, scaffold=tf1.train.Scaffold(saver=saver))

    trained = estimator(tmp_path, models).train(input_fn, steps=4)
    assert trained.get_variable_names() == ["mine/global_step", "mine/w", "mine/w/Momentum"]


# --------------------------------------------------------------------------- warm start


def test_warm_start(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    first = estimator(tmp_path / "first").train(input_fn, max_steps=5)
    for source in (str(tmp_path / "first"), first.latest_checkpoint(), WarmStartSettings(str(tmp_path / "first"))):
        folder = tmp_path / f"second{len(list(tmp_path.iterdir()))}"
        said.clear()
        estimator(folder, use_tpu=use_tpu, warm_start_from=source).train(input_fn, max_steps=1)
        start = tf.train.load_checkpoint(str(folder / "model.ckpt-0"))
        assert np.array_equal(start.get_tensor("w"), first.get_variable_value("w"))
        assert not start.get_tensor("w/Momentum").any()
        assert start.get_tensor("global_step") == 0
        assert any(line.endswith("model.ckpt-5: 1 variable restored") for line in said)


def test_warm_start_reports_what_is_missing_or_differs(tmp_path: Path, said: list[str]) -> None:
    estimator(tmp_path / "first").train(input_fn, max_steps=1)

    def models(features: Any, labels: Any, mode: str, params: Any) -> Any:
        extra = tf1.get_variable("extra", [3])
        tf1.get_variable("renamed", [2, 2])
        return linear_fn({"x": features["x"] * extra}, labels, mode, params)

    settings = WarmStartSettings(str(tmp_path / "first"), ["w$", "extra$", "renamed$"],
                                 var_name_to_prev_var_name={"renamed": "w"})  # fmt: skip
    estimator(tmp_path / "second", models, warm_start_from=settings).train(input_fn, max_steps=1)
    (line,) = [line for line in said if line.startswith("warm start from")]
    assert line.endswith(
        "1 variable restored; 1 missing: extra; 1 of another shape: renamed is [2, 2], in the checkpoint [3, 1]"
    )


def test_warm_starts_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(tpugraph.CheckpointError, match="no checkpoint"):
        estimator(tmp_path, warm_start_from=str(tmp_path)).train(input_fn, max_steps=1)
    estimator(tmp_path / "first").train(input_fn, max_steps=1)
    settings = WarmStartSettings(str(tmp_path / "first"), var_name_to_prev_var_name={"w": "v"})
    with pytest.raises(tpugraph.CheckpointError, match="has none of the 1 variables chosen"):
        estimator(tmp_path / "second", warm_start_from=settings).train(input_fn, max_steps=1)
