"""``InMemoryEvaluatorHook`` evaluates what is being trained, with the variables as they are; and the messages of a profile."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
import tpugraph.compat.v1 as compat
from estimators import FEATURES, ROWS, TARGETS, by_hand, linear_fn, scalars_in
from tpugraph.compat.pieces.hooks import InMemoryEvaluatorHook


def all_rows(params: Any) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, TARGETS))
    return rows.batch(params["batch_size"], drop_remainder=True)


def loss_after(steps: int) -> float:
    """The mean loss of all rows with the weights that so many steps give."""
    _, weights = by_hand(steps)
    return float(np.mean((FEATURES.astype(float) @ weights - TARGETS) ** 2))


def train_input(params: Any) -> Any:
    return all_rows(params).repeat()


@pytest.mark.parametrize(("use_tpu", "steps"), [(True, (0, 4, 8, 12)), (False, (0, 3, 6, 9, 12))],
                         ids=["cores", "plain"])  # fmt: skip
def test_evaluates_before_in_between_and_at_the_end(use_tpu: bool, steps: tuple[int, ...], tmp_path: Path) -> None:
    run = tpugraph.RunConfig(tpugraph.TPUConfig(4, 4), model_dir=tmp_path, save_checkpoints_steps=1000)
    made = tpugraph.TPUEstimator(linear_fn, config=run, use_tpu=use_tpu, train_batch_size=ROWS, eval_batch_size=ROWS)
    hook = compat.estimator.experimental.InMemoryEvaluatorHook(made, all_rows, name="beside", every_n_iter=3)
    made.train(train_input, hooks=[hook], max_steps=12)
    found = {step: value for step, tag, value in scalars_in(tmp_path / "eval_beside") if tag == "loss"}
    assert tuple(found) == steps
    assert list(found.values()) == pytest.approx([loss_after(step) for step in steps], rel=1e-4)
    assert sorted(path.name for path in tmp_path.glob("*.index")) == ["model.ckpt-0.index", "model.ckpt-12.index"]


def test_the_messages_of_a_profile() -> None:
    assert compat.contrib.tpu.TPUInMemoryEvalHook is InMemoryEvaluatorHook
    profiler = compat.contrib.tpu.profiler
    trace = profiler.Trace()
    trace.devices[3].CopyFrom(profiler.Device(name="TPU:3", resources={1: profiler.Resource(name="steps")}))
    trace.trace_events.append(profiler.TraceEvent(device_id=3, resource_id=1, name="step", duration_ps=5))
    assert profiler.Trace.FromString(trace.SerializeToString()).trace_events[0].name == "step"
