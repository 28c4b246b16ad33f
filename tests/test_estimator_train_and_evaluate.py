"""train_and_evaluate with its specs."""

from __future__ import annotations

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


@pytest.mark.parametrize("use_tpu", [True, False])
def test_checkpoints_are_evaluated_on_the_way(tmp_path: Path, *, use_tpu: bool) -> None:
    config = RunConfig(TPUConfig(5, 8), model_dir=tmp_path, save_checkpoints_steps=10)
    made, exporter = make(tmp_path, config=config, use_tpu=use_tpu), Exporter()
    found, exported = train_and_evaluate(
        made, TrainSpec(train_fn, max_steps=25), EvalSpec(eval_fn, steps=None, exporters=exporter, throttle_secs=0)
    )
    assert found is not None
    assert found["global_step"] == 25
    steps = [call[2] for call in exporter.calls]
    assert steps == [10, 20, 25, 25]
    assert [call[3] for call in exporter.calls] == [False] * 3 + [True]
    assert exporter.calls[0][:2] == ("best", "model.ckpt-10")
    assert exported == [str(tmp_path / "export" / "best")]
    with pytest.raises(ValueError, match="at step 25 already"):
        train_and_evaluate(made, TrainSpec(train_fn, max_steps=25), EvalSpec(eval_fn))


def test_the_throttle_holds_back(tmp_path: Path) -> None:
    config = RunConfig(TPUConfig(5, 8), model_dir=tmp_path, save_checkpoints_steps=5)
    exporter = Exporter()
    spec = EvalSpec(eval_fn, steps=2, exporters=[exporter], name="held")
    train_and_evaluate(make(tmp_path, config=config), TrainSpec(train_fn, max_steps=15), spec)
    assert [call[2:] for call in exporter.calls] == [(15, True)]
    assert list((tmp_path / "eval_held").iterdir())


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: TrainSpec(3), TypeError, "TrainSpec input_fn"),
        (lambda: TrainSpec(train_fn, max_steps=0), ValueError, "TrainSpec max_steps"),
        (lambda: TrainSpec(train_fn, hooks=[3]), TypeError, "TrainSpec hooks"),
        (lambda: EvalSpec(3), TypeError, "EvalSpec input_fn"),
        (lambda: EvalSpec(eval_fn, steps=0), ValueError, "EvalSpec steps"),
        (lambda: EvalSpec(eval_fn, name=3), TypeError, "EvalSpec name"),
        (lambda: EvalSpec(eval_fn, exporters=3), TypeError, "EvalSpec exporters"),
        (lambda: EvalSpec(eval_fn, throttle_secs=-1), ValueError, "EvalSpec throttle_secs"),
        (lambda: train_and_evaluate(1, TrainSpec(train_fn), EvalSpec(eval_fn)), TypeError, "a tpugraph.TPUEstimator"),
    ],
)
def test_specs_refuse(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_defaults() -> None:
    train, evaluation = TrainSpec(train_fn), EvalSpec(eval_fn)
    assert (train.max_steps, train.hooks, train.saving_listeners) == (None, (), ())
    assert (evaluation.steps, evaluation.throttle_secs, evaluation.start_delay_secs) == (100, 600, 120)
    assert issubclass(tpugraph.ArgumentError, ValueError)
