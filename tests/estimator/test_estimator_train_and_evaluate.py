"""train_and_evaluate with its specs."""

import json
from pathlib import Path
from typing import Any

import pytest

import tpugraph
from classifier import eval_fn, make, train_fn
from tpugraph import EvalSpec, RunConfig, TPUConfig, TrainSpec, train_and_evaluate


class Exporter:
    name = "best"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, final: bool) -> str:
        self.calls.append((Path(export_path).name, Path(checkpoint_path).name, int(eval_result["global_step"]), final))
        return export_path


def test_checkpoints_are_evaluated_on_the_way(tmp_path: Path, use_tpu: bool) -> None:
    config = RunConfig(TPUConfig(5, 8), model_dir=tmp_path, save_checkpoints_steps=10)
    made, exporter = make(tmp_path, config=config, use_tpu=use_tpu), Exporter()
    found, exported = train_and_evaluate(made, TrainSpec(train_fn, max_steps=25),
                                         EvalSpec(eval_fn, steps=None, exporters=exporter, throttle_secs=0))  # fmt: skip
    assert found is not None
    assert found["global_step"] == 25
    steps = [call[2] for call in exporter.calls]
    assert steps == [10, 20, 25]
    assert [call[3] for call in exporter.calls] == [False] * 2 + [True]
    assert exporter.calls[0][:2] == ("best", "model.ckpt-10")
    assert exported == [str(tmp_path / "export" / "best")]
    with pytest.raises(ValueError, match="at step 25 already"):
        train_and_evaluate(made, TrainSpec(train_fn, max_steps=25), EvalSpec(eval_fn))
    again = Exporter()  # what training starts with is not evaluated again
    train_and_evaluate(made, TrainSpec(train_fn, max_steps=30), EvalSpec(eval_fn, exporters=again, throttle_secs=0))
    assert [call[2] for call in again.calls] == [30]


def test_the_throttle_holds_back(tmp_path: Path) -> None:
    config = RunConfig(TPUConfig(5, 8), model_dir=tmp_path, save_checkpoints_steps=5)
    exporter = Exporter()
    spec = EvalSpec(eval_fn, steps=2, exporters=[exporter], name="held")
    train_and_evaluate(make(tmp_path, config=config), TrainSpec(train_fn, max_steps=15), spec)
    assert [call[2:] for call in exporter.calls] == [(15, True)]
    assert list((tmp_path / "eval_held").iterdir())


def evaluator(monkeypatch: pytest.MonkeyPatch, folder: Path, index: int = 0) -> Any:
    told = {"cluster": {"chief": ["host:1"]}, "task": {"type": "evaluator", "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(told))
    return make(folder, config=RunConfig(TPUConfig(5, 8), model_dir=folder))


def test_an_evaluator_evaluates_what_another_process_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer goes on here when the first checkpoint was evaluated."""
    trainer = make(tmp_path, config=RunConfig(TPUConfig(5, 8), model_dir=tmp_path, tf_random_seed=3))
    watching = evaluator(monkeypatch, tmp_path)

    class Trains(Exporter):
        def export(self, estimator: Any, *named: Any) -> str:
            found = super().export(estimator, *named)
            if len(self.calls) < 2:
                trainer.train(train_fn, max_steps=10)
            return found

    trainer.train(train_fn, max_steps=5)
    exporter = Trains()
    spec = EvalSpec(eval_fn, steps=2, exporters=exporter, start_delay_secs=0, throttle_secs=0)
    found, exported = train_and_evaluate(watching, TrainSpec(train_fn, max_steps=10), spec)
    assert [call[1:] for call in exporter.calls] == [("model.ckpt-5", 5, False), ("model.ckpt-10", 10, True)]
    assert found is not None
    assert (found["global_step"], exported) == (10, [str(tmp_path / "export" / "best")])
    assert not (tmp_path / "model.ckpt-15.index").exists()


def test_an_evaluator_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpugraph.estimator.train_and_evaluate.LONGEST_WAIT", 0.2)
    spec = EvalSpec(eval_fn, start_delay_secs=0, throttle_secs=0)
    with pytest.raises(tpugraph.RunError, match=r"no new checkpoint in .* the last is at step 0 of 9(.|\n)*still runs"):
        train_and_evaluate(evaluator(monkeypatch, tmp_path), TrainSpec(train_fn, max_steps=9), spec)
    assert train_and_evaluate(evaluator(monkeypatch, tmp_path), TrainSpec(train_fn), spec) == (None, [])
    with pytest.raises(ValueError, match="evaluator 1, but there can only be one"):
        train_and_evaluate(evaluator(monkeypatch, tmp_path, 1), TrainSpec(train_fn, max_steps=9), spec)


def test_what_specs_are_without_arguments() -> None:
    train, evaluation = TrainSpec(train_fn), EvalSpec(eval_fn)
    assert (train.max_steps, train.hooks, train.saving_listeners) == (None, (), ())
    assert (evaluation.steps, evaluation.throttle_secs, evaluation.start_delay_secs) == (100, 600, 120)
    assert issubclass(tpugraph.ArgumentError, ValueError)


@pytest.mark.parametrize(("kind", "words"), [("ps", "calls this process ps 0, a parameter server"),
                                             ("worker", "calls this process worker 0 beside a chief")])  # fmt: skip
def test_the_chief_alone_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, words: str) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}))
    made = make(tmp_path)
    assert (made.config.task_type, made.config.is_chief, made.config.num_ps_replicas) == (kind, False, 1)
    with pytest.raises(ValueError, match=words):
        train_and_evaluate(made, TrainSpec(train_fn, max_steps=4), EvalSpec(train_fn))
    if kind == "ps":
        with pytest.raises(ValueError, match=words):
            made.train(train_fn, max_steps=4)
