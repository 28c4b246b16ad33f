"""Prediction: one dict of arrays per example, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.errors import ArgumentError, ArgumentTypeError
from tpugraph.estimator.plain_session import HookedRuns, PlainModel

tf1 = tf.compat.v1


def check_keys(predict_keys: Any) -> list[str] | None:
    """The keys of predictions that are wanted.

    Raises:
        ArgumentTypeError: a number, as given to ``steps`` of other methods, or anything else that holds no names.
    """
    if predict_keys is None:
        return None
    if isinstance(predict_keys, str):
        return [predict_keys]
    if isinstance(predict_keys, Sequence) and all(isinstance(key, str) for key in predict_keys):
        return list(predict_keys)
    raise ArgumentTypeError(
        f"predict_keys must be names of predictions, but is {predict_keys!r}",
        fix="predict takes no steps: it ends with its data, e.g. dataset.take(n)",
    )


def chosen(predictions: Any, keys: list[str] | None) -> Any:
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
        raise ArgumentError(f"none of {keys} is among the predictions", fix=f"there are {', '.join(predictions)}")
    return found


def predict(
    model: PlainModel, checkpoint: str, predictions: Any, hooks: Sequence[Any], *, single: bool
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
    runs = HookedRuns(model.session, [*hooks, *model.traced.spec.prediction_hooks])
    runs.begin()
    model.start(checkpoint)
    runs.started()
    try:
        while not runs.stop_requested:
            try:
                batch = runs.run(predictions)
            except tf.errors.OutOfRangeError:
                break
            yield from _examples(batch) if single else [batch]
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
