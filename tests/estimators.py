"""Small models and inputs for the tests of TPUEstimator."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tpugraph
from models import rows_of

tf1 = tf.compat.v1
FEATURES, TARGETS = rows_of(96, 3)
ROWS = 32


def linear_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """A linear model; the optimizer is wrapped where params say so."""
    weights = tf1.get_variable("w", [3, 1], initializer=tf1.zeros_initializer())
    found = tf.squeeze(features["x"] @ weights, 1)
    if mode == tpugraph.ModeKeys.PREDICT:
        return tpugraph.TPUEstimatorSpec(mode, predictions={"y": found})
    loss = tf.reduce_mean(tf.square(found - labels))
    optimizer = tf1.train.MomentumOptimizer(params.get("rate", 0.05), 0.9)
    if params.get("wrapped", True):
        optimizer = tpugraph.CrossShardOptimizer(optimizer)
    train = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
    return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=train)


def dataset(rows: int, *, repeat: bool = True) -> Any:
    data = tf.data.Dataset.from_tensor_slices(({"x": FEATURES}, TARGETS))
    return (data.repeat() if repeat else data).batch(rows, drop_remainder=True)


def input_fn(params: dict[str, Any]) -> Any:
    return dataset(params["batch_size"])


def estimator(model_dir: Path | str, model_fn: Callable[..., Any] = linear_fn, *, loop: int | str = 4,
              cores: int | None = 4, params: Any = None, use_tpu: bool = True, rows: int | None = ROWS,
              warm_start_from: Any = None, batch_axis: Any = None, per_host: Any = True, **config: Any) -> Any:  # fmt: skip
    tpu = tpugraph.TPUConfig(loop, cores, per_host_input_for_training=per_host)
    run = tpugraph.RunConfig(tpu, model_dir=model_dir, **{"tf_random_seed": 7, **config})
    return tpugraph.TPUEstimator(model_fn, config=run, params=params, use_tpu=use_tpu, train_batch_size=rows,
                                 eval_batch_size=rows, predict_batch_size=rows, warm_start_from=warm_start_from,
                                 batch_axis=batch_axis)  # fmt: skip


def checkpoint_of(folder: Path, **values: Any) -> str:
    """A checkpoint of step 5 with the weights 1, -2 and 3 of a linear model, and other values."""
    with tf.Graph().as_default(), tf1.Session() as session:
        for name, value in {"w": np.float32([[1], [-2], [3]]), "global_step": np.int64(5), **values}.items():
            session.run(tf1.get_variable(name, initializer=value).initializer)
        return str(tf1.train.Saver().save(session, str(folder / "model.ckpt"), 5))


def example(**features: Any) -> bytes:
    """A serialised tf.train.Example of lists of bytes, whole numbers and floats."""
    made = tf.train.Example()
    for name, values in features.items():
        for value in values:
            feature = made.features.feature[name]
            whole = feature.int64_list if isinstance(value, (int, np.integer)) else feature.float_list
            (feature.bytes_list if isinstance(value, bytes) else whole).value.append(value)
    return made.SerializeToString()


def linear_with(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """The linear model with what ``change`` makes of its spec."""

    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        return change(linear_fn(features, labels, mode, params))

    return model_fn


def assert_trained(made: Any, steps: int, *, rows: int = ROWS, relative: float = 1e-4) -> None:
    """The weights are those that NumPy computes in so many steps."""
    weights = by_hand(steps, rows=rows)[1]
    np.testing.assert_allclose(made.get_variable_value("w")[:, 0], weights, rtol=relative, atol=relative / 100)


def by_hand(steps: int, *, rows: int = ROWS, rate: float = 0.05) -> tuple[list[float], np.ndarray]:
    """Losses and weights of the linear model, computed with NumPy."""
    weights, moment = np.zeros([3]), np.zeros([3])
    losses = []
    for step in range(steps):
        take = np.arange(step * rows, (step + 1) * rows) % len(FEATURES)
        x, y = FEATURES[take].astype(float), TARGETS[take].astype(float)
        error = x @ weights - y
        losses.append(float(np.mean(error**2)))
        moment = 0.9 * moment + 2 * x.T @ error / rows
        weights = weights - rate * moment
    return losses, weights


def saved(folder: Path, end: str = ".index") -> list[int]:
    """The steps of the checkpoints in a folder."""
    return sorted(int(path.name.removesuffix(end).rpartition("-")[2]) for path in folder.glob(f"model.ckpt-*{end}"))


def losses_in(model_dir: Path | str) -> dict[int, float]:
    """The losses that the event files of a folder hold, by step."""
    return {step: value for step, tag, value in scalars_in(model_dir) if tag == "loss"}


def scalars_in(model_dir: Path | str) -> Iterator[tuple[int, str, float]]:
    for path in sorted(Path(model_dir).glob("events.out.tfevents.*")):
        for event in tf1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    yield event.step, value.tag, value.simple_value


def served(folder: Any, signature: str = "serving_default", **inputs: Any) -> dict[str, np.ndarray]:
    """What an exported model answers, with v2 behaviour on and off."""
    with tf.Graph().as_default(), tf1.Session() as session:
        found = tf1.saved_model.loader.load(session, ["serve"], str(folder)).signature_def[signature]
        fed = {found.inputs[name].name: value for name, value in inputs.items()}
        return dict(session.run({name: tensor.name for name, tensor in found.outputs.items()}, fed))


@contextmanager
def lines() -> Iterator[list[str]]:
    """What is said within the block."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tpugraph")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
