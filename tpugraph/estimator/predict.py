"""Prediction: one dict of arrays per example, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.estimator.compiling import SINGLE, prediction_name
from tpugraph.estimator.hooks import HookedRuns, LoopHooks
from tpugraph.estimator.input_faults import explained
from tpugraph.estimator.models import CoresModel, PlainModel
from tpugraph.support.errors import ArgumentError, ArgumentTypeError, RunError

_MOST_BATCHES = 32
"""Of a loop of prediction: all of its rows are held at once, and are made in vain where the generator is left."""


def check_keys(predict_keys: Any) -> list[Any] | None:
    """The keys of predictions that are wanted.

    Raises:
        ArgumentTypeError: a number, as given to ``steps`` of other methods, or anything else that holds no names.
    """
    if predict_keys is None:
        return None
    if isinstance(predict_keys, str):
        return [predict_keys]
    if isinstance(predict_keys, Sequence) and all(isinstance(key, str | tuple) for key in predict_keys):
        return list(predict_keys)
    raise ArgumentTypeError(
        f"predict_keys must be names of predictions, but is {predict_keys!r}",
        fix="predict takes no steps: it ends with its data, e.g. dataset.take(n)",
    )


def chosen(predictions: Any, keys: list[Any] | None) -> Any:
    """The predictions of some keys; all where ``keys`` is None.

    Raises:
        ArgumentError: none of the keys is there, or there are no keys at all.
    """
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise ArgumentError("predict_keys needs predictions that are a dict", fix="leave predict_keys out")
    found = {key: value for key, value in predictions.items() if key in keys}
    if not found:
        raise ArgumentError(
            f"none of {keys} is among the predictions", fix=f"there are {', '.join(map(str, predictions))}"
        )
    return found


def check_fed(predictions: Any) -> None:
    """Refuse predictions that a placeholder would have to be fed for.

    Raises:
        ArgumentError: it names the prediction.
    """
    named = predictions if isinstance(predictions, dict) else {SINGLE: predictions}
    for key, tensor in named.items():
        if tensor.op.type == "Placeholder":
            raise ArgumentError(
                f"the prediction '{key}' should be static: it is a placeholder of shape {tensor.shape}, which nothing feeds",
                fix="make it of the features",
            )


def predict_on_cores(
    model: CoresModel,
    checkpoint: str | None,
    hooks: Sequence[Any],
    otherwise: Callable[[], Iterator[Any]],
    *,
    single: bool,
) -> Iterator[Any]:
    """Yield the predictions of a converted model, example after example or batch after batch.

    The generator may be left at any time; loops run as their rows are asked for, with hooks around each.

    Args:
        model: the model.
        checkpoint: its prefix.
        hooks: session hooks.
        otherwise: what yields the predictions where a hook asks for what the cores do not hand out.
        single: example by example; else batch by batch.

    Raises:
        ArgumentError: predictions with different numbers of rows.
        RunError: another prediction of the same model was begun.
    """
    traced, session = model.traced, model.session
    around = LoopHooks(hooks, traced, traced.spec.predictions)
    _begin(around, model, checkpoint, hooks)
    if hooks and around.wants_batches(model.host, "prediction"):
        yield from otherwise()
        return
    turn, tried = model.turn, 0
    batches = min(session.iterations_per_loop, _MOST_BATCHES) if single else 1
    loops = session.predicting(batches)
    while not around.stop_requested:
        tried += batches
        with explained(traced, tried):
            part = next(loops, None)
        if part is None:
            break
        found = _keyed(part[1], traced.spec.predictions)
        yield from _examples(found) if single else [found]
        check_turn(turn, model.turn)
        if hooks:
            with traced.graph.as_default():
                around.after_loop(model.host, {})
                around.before_loop(model.host)
    if hooks:
        with traced.graph.as_default():
            around.end(model.host)


def _keyed(found: Mapping[str, Any], predictions: Any) -> Any:
    """What the cores handed out, under the keys of the model; without a key where its prediction has none."""
    if not isinstance(predictions, dict):
        return found[SINGLE]
    return {key: found[name] for key in predictions if (name := prediction_name(key)) in found}


def _begin(around: LoopHooks, model: CoresModel, checkpoint: str | None, hooks: Sequence[Any]) -> None:
    """Start the model at a checkpoint, and its hooks with it."""
    with model.traced.graph.as_default():
        around.begin()
        model.start(checkpoint)
        if hooks:
            around.after_create_session(model.host)
            around.before_loop(model.host)


def check_turn(mine: int, now: int) -> None:
    """A generator must not go on with the input of another.

    Raises:
        RunError: another prediction was begun meanwhile.
    """
    if mine != now:
        raise RunError(
            "another predict was begun, or the estimator closed, before this generator ended",
            fix="read one generator to its end, or leave it, before the next; or use another TPUEstimator",
        )


def predict(
    model: PlainModel, checkpoint: str | None, predictions: Any, hooks: Sequence[Any], *, single: bool
) -> Iterator[Any]:
    """Yield the predictions of example after example, or of batch after batch.

    The generator may be left at any time; nothing runs between two values that are asked for.

    Args:
        model: the model.
        checkpoint: its prefix.
        predictions: the tensors.
        hooks: session hooks.
        single: example by example; else batch by batch.

    Raises:
        ArgumentError: predictions with different numbers of rows.
    """
    runs = HookedRuns(model.session, hooks)
    runs.begin()
    model.start(checkpoint)
    runs.started()
    turn, tried = model.turn, 0
    try:
        while not runs.stop_requested:
            tried += 1
            try:
                with explained(model.traced, tried):
                    batch = runs.run(predictions)
            except tf.errors.OutOfRangeError:
                break
            yield from _examples(batch) if single else [batch]
            check_turn(turn, model.turn)
    finally:
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
