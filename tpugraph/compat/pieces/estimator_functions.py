"""Functions of ``tf.estimator`` and ``tf.contrib.estimator`` besides the estimators, heads and hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf

from tpugraph.estimator.inputs import is_dataset, next_element, split_labels
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.specs import ModeKeys, plain_spec
from tpugraph.estimator.user_functions import call_model_fn, taken

tf1 = tf.compat.v1


def load_global_step_from_checkpoint_dir(checkpoint_dir: Any) -> int:
    """The step of the newest checkpoint in a folder; 0 where there is none."""
    path = tf1.train.latest_checkpoint(checkpoint_dir)
    return int(tf1.train.load_variable(path, tf1.GraphKeys.GLOBAL_STEP)) if path else 0


# --------------------------------------------------------------------------- parsing


def classifier_parse_example_spec(feature_columns: Collection[Any], label_key: str, label_dtype: Any = tf.int64,
                                  label_default: Any = None, weight_column: Any = None) -> dict[str, Any]:  # fmt: skip
    """What ``tf.io.parse_example`` takes for a classifier: the features of the columns, the label, the weight.

    Raises:
        ValueError: the label has the name of a feature.
    """
    label = tf.io.FixedLenFeature((1,), label_dtype, label_default)
    return _parse_spec(feature_columns, label_key, label, weight_column)


def regressor_parse_example_spec(feature_columns: Collection[Any], label_key: str, label_dtype: Any = tf.float32,
                                 label_default: Any = None, label_dimension: int = 1,
                                 weight_column: Any = None) -> dict[str, Any]:  # fmt: skip
    """What ``tf.io.parse_example`` takes for a regressor: the features of the columns, the label, the weight.

    Raises:
        ValueError: the label has the name of a feature.
    """
    label = tf.io.FixedLenFeature((label_dimension,), label_dtype, label_default)
    return _parse_spec(feature_columns, label_key, label, weight_column)


def _parse_spec(columns: Collection[Any], label_key: str, label: Any, weight: Any) -> dict[str, Any]:
    found: dict[str, Any] = tf1.feature_column.make_parse_example_spec(columns)
    if label_key in found:
        raise ValueError(f"label should not be used as feature. label_key: {label_key}, features: {sorted(found)}")
    found[label_key] = label
    if weight is not None:
        key = getattr(weight, "key", weight)
        found[key] = tf.io.FixedLenFeature((1,), getattr(weight, "dtype", tf.float32))
    return found


# --------------------------------------------------------------------------- estimators


def add_metrics(estimator: Any, metric_fn: Callable[..., Any]) -> Estimator:
    """The same estimator with more metrics of evaluation.

    Args:
        estimator: a plain one.
        metric_fn: a function that takes any of ``features``, ``labels``, ``predictions``, ``config`` and returns a dict
            of metrics.
    """
    inner = estimator.model_fn

    def model_fn(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
        spec = plain_spec(call_model_fn(inner, features, labels, mode, params, config))
        if mode != ModeKeys.EVAL:
            return spec
        more = metric_fn(
            **taken(metric_fn, features=features, labels=labels, predictions=spec.predictions, config=config)
        )
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **more})

    return Estimator(model_fn, estimator.model_dir, estimator.config, estimator.params)


def call_logit_fn(logit_fn: Callable[..., Any], features: Any, mode: str, params: Any, config: Any) -> Any:
    """Calls a logit function with those of the arguments that it takes."""
    return logit_fn(features=features, **taken(logit_fn, mode=mode, params=params, config=config))


class _Clipped(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer that clips its gradients to a norm, all together."""

    def __init__(self, optimizer: Any, norm: float) -> None:
        super().__init__(False, "ClippedOptimizer")
        self._optimizer = optimizer
        self._norm = norm

    def compute_gradients(self, *arguments: Any, **named: Any) -> Any:
        return self._optimizer.compute_gradients(*arguments, **named)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        clipped, _ = tf.clip_by_global_norm(list(gradients), self._norm)
        return self._optimizer.apply_gradients(list(zip(clipped, variables, strict=True)), global_step, name)


def clip_gradients_by_norm(optimizer: Any, clip_norm: float) -> Any:
    """An optimizer that clips its gradients by their global norm."""
    return _Clipped(optimizer, clip_norm)


def parse_input_fn_result(result: Any) -> tuple[Any, Any, list[Any]]:
    """The features, labels and hooks that an input function returned; the iterator of a Dataset starts with the tables."""
    return *split_labels(next_element(result) if is_dataset(result) else result), []
