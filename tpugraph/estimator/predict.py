"""Prediction: one dict of arrays per example, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.compiling import SINGLE, prediction_name
from tpugraph.estimator.hooks import HookedRuns, LoopHooks
from tpugraph.estimator.input_faults import naming_bad_batch
from tpugraph.estimator.models import CoresModel, PlainModel
from tpugraph.support.errors import ArgumentError, ArgumentTypeError, RunError

_MOST_BATCHES = 32  # a loop's predictions are all in memory, and wasted where the generator is left


def check_keys(predict_keys: Any) -> list[Any] | None:
    """Checks ``predict_keys``; a number is refused, as other methods take ``steps`` there."""
    if predict_keys is None:
        return None
    if isinstance(predict_keys, str):
        return [predict_keys]
    if isinstance(predict_keys, Sequence) and all(isinstance(key, str | tuple) for key in predict_keys):
        return list(predict_keys)
    raise ArgumentTypeError(f"predict_keys must be names of predictions, but is {predict_keys!r}",
                            fix="predict takes no steps: it ends with its data, e.g. dataset.take(n)")  # fmt: skip


def select_predictions(predictions: Any, keys: list[Any] | None) -> Any:
    """The predictions of some keys; all where ``keys`` is None."""
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise ArgumentError("predict_keys needs predictions that are a dict", fix="leave predict_keys out")
    found = {key: value for key, value in predictions.items() if key in keys}
    if not found:
        raise ArgumentError(f"none of {keys} is among the predictions",
                            fix=f"there are {', '.join(map(str, predictions))}")  # fmt: skip
    return found


def check_placeholders(predictions: Any) -> None:
    """Refuses placeholders, which nothing feeds."""
    named = predictions if isinstance(predictions, dict) else {SINGLE: predictions}
    for key, tensor in named.items():
        if tensor.op.type == "Placeholder":
            raise ArgumentError(
                f"the prediction '{key}' should be static: it is a placeholder of shape {tensor.shape}, which nothing feeds",
                fix="make it of the features",
            )


def predict_on_cores(model: CoresModel, checkpoint: str | None, hooks: Sequence[Any],
                     otherwise: Callable[[], Iterator[Any]], *, single: bool) -> Iterator[Any]:  # fmt: skip
    """Yields the predictions of a converted model.

    Loops run when their rows are asked for, with hooks around each; the generator may be left at any time. ``otherwise`` yields
    the predictions where a hook asks for what the cores do not export.
    """
    traced, session = model.traced, model.session
    around = LoopHooks(hooks, model, traced.spec.predictions)
    with traced.graph.as_default():
        around.begin()
        model.start(checkpoint)
        around.after_create_session()
        around.before_loop()
        on_host = around.wants_batches("prediction")
    if on_host:
        yield from otherwise()
        return
    turn, tried = model.turn, 0
    batches = min(session.iterations_per_loop, _MOST_BATCHES) if single else model.parts
    loops = session.predicting(batches)
    while not around.stop_requested:
        tried += batches
        with naming_bad_batch(traced, tried):
            part = next(loops, None)
        if part is None:
            break
        rows, keys = part[1], traced.spec.predictions
        # under the keys of the model; without one where its prediction has none
        found = (
            {k: rows[n] for k in keys if (n := prediction_name(k)) in rows} if isinstance(keys, dict) else rows[SINGLE]
        )
        with traced.graph.as_default():
            around.after_loop({})
        yield from _examples(found) if single else [found]
        check_current(turn, model.turn)
        with traced.graph.as_default():
            around.before_loop()
    around.end()


def check_current(mine: int, now: int) -> None:
    """Refuses to go on with the input of another generator."""
    if mine != now:
        raise RunError("another predict was begun, or the estimator closed, before this generator ended",
                       fix="read one generator to its end, or leave it, before the next; or use another TPUEstimator")  # fmt: skip


def predict(
    model: PlainModel, checkpoint: str | None, predictions: Any, hooks: Sequence[Any], *, single: bool
) -> Iterator[Any]:
    """Yields the predictions of a plain model; the generator may be left at any time."""
    runs = HookedRuns(hooks, model)
    runs.begin()
    model.start(checkpoint)
    runs.after_create_session()
    turn, tried = model.turn, 0
    while not runs.stop_requested:
        tried += 1
        try:
            with naming_bad_batch(model.traced, tried):
                batch = runs.run(predictions)
        except tf.errors.OutOfRangeError:
            break
        yield from _examples(batch) if single else [batch]
        check_current(turn, model.turn)
    runs.end()


def _examples(batch: Any) -> Iterator[Any]:
    if not isinstance(batch, dict):
        yield from batch
        return
    rows = {key: value.shape[0] if value.ndim else None for key, value in batch.items()}
    if None in rows.values() or len(set(rows.values())) > 1:
        raise ArgumentError(f"the predictions do not have one row per example: {rows}",
                            fix="yield_single_examples=False")  # fmt: skip
    for index in range(next(iter(rows.values())) or 0):
        yield {key: value[index] for key, value in batch.items()}
