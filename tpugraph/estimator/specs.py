"""ModeKeys, EstimatorSpec and TPUEstimatorSpec."""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import check_choice, check_each, check_type
from tpugraph.estimator.host_call import call_pair, host_call_hooks
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


class ModeKeys:
    """The ``mode`` of a model function; the values are those of ``tf.estimator.ModeKeys``."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


ALL_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def metric_pairs(metrics: Any) -> dict[str, Any]:
    """Checks ``eval_metric_ops``: pairs of a value, or a tuple of values, and an update op.

    A metric object of ``tf_keras`` gives its result and its update op; its variables are reset with the local ones.
    """
    if metrics is None:
        return {}
    check_type("eval_metric_ops", metrics, Mapping, what="a dict")
    return {key: _pair(key, value) for key, value in metrics.items()}


def _pair(key: str, metric: Any) -> Any:
    if isinstance(metric, tuple) and len(metric) == 2:
        return metric
    updates = getattr(metric, "updates", None)
    if not updates or not callable(getattr(metric, "result", None)):
        raise ArgumentTypeError(
            f"eval_metric_ops: '{key}' must be a pair (value tensor, update op), but is {metric!r}",
            fix="a function of tf.compat.v1.metrics returns such a pair; a metric of tf_keras must have been called",
        )
    known = {id(variable) for variable in tf1.local_variables()}
    for variable in metric.variables:
        if id(variable) not in known:
            tf1.add_to_collection(tf1.GraphKeys.LOCAL_VARIABLES, variable)
    return metric.result(), updates[0]


def flat_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics with one value each: those of a tuple are called ``name/0``, ``name/1`` and so on."""
    found = {}
    for key, (value, update) in metrics.items():
        parts = {f"{key}/{i}": part for i, part in enumerate(value)} if isinstance(value, tuple) else {key: value}
        found.update({name: (part, update) for name, part in parts.items()})
    return found


def regrouped(metrics: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`flat_metrics` on values."""
    values = dict(found)
    for key, (value, _) in metrics.items():
        if isinstance(value, tuple):
            values[key] = tuple(values.pop(f"{key}/{i}") for i in range(len(value)))
    return values


_EstimatorSpec = namedtuple(
    "_EstimatorSpec",
    "mode predictions loss train_op eval_metric_ops export_outputs training_chief_hooks training_hooks scaffold evaluation_hooks "
    "prediction_hooks",
    defaults=(None, None, None, None, None, None, None, None, None, None),
)
_TPUEstimatorSpec = namedtuple(
    "_TPUEstimatorSpec",
    "mode predictions loss train_op eval_metrics export_outputs scaffold_fn host_call training_hooks evaluation_hooks "
    "prediction_hooks",
    defaults=(None, None, None, None, None, None, None, None, None, None),
)


class EstimatorSpec(_EstimatorSpec):
    """What a model function returns: the tensors and ops of one mode.

    Args:
        mode: a :class:`ModeKeys` value.
        predictions: a tensor or a dict of tensors; required in PREDICT.
        loss: a scalar tensor; required in TRAIN and EVAL.
        train_op: the op of a training step; required in TRAIN.
        eval_metric_ops: dict of (value tensor, update op) pairs, or metric objects of ``tf_keras``; metrics of Keras 3
            have no update op. A value may be a tuple of tensors.
        export_outputs: dict of export outputs.
        training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: session hooks.
        scaffold: a ``tf.compat.v1.train.Scaffold``.
    """

    __slots__ = ()

    __signature__ = inspect.signature(_EstimatorSpec)

    def __new__(cls, *fields: Any, **named: Any) -> EstimatorSpec:
        given = super().__new__(cls, *fields, **named)
        checked = _checked(given)
        if given.scaffold is not None:
            check_type("scaffold", given.scaffold, tf.compat.v1.train.Scaffold, what="a tf.compat.v1.train.Scaffold")
        return given._replace(
            **checked,
            eval_metric_ops=metric_pairs(given.eval_metric_ops),
            training_chief_hooks=hooks_of("training_chief_hooks", given.training_chief_hooks),
        )


class TPUEstimatorSpec(_TPUEstimatorSpec):
    """What a model function written for TPUEstimator returns; a plain :class:`EstimatorSpec` does as well.

    Args:
        mode, predictions, loss, train_op, export_outputs: see :class:`EstimatorSpec`.
        eval_metrics: ``(metric_fn, tensors)``; the function gets the tensors (a list or dict of batch-major tensors)
            and returns a dict of metrics.
        scaffold_fn: a function without arguments that returns a ``tf.compat.v1.train.Scaffold``.
        host_call: ``(function, tensors)``; what the function returns runs on the host in each step, on batch-major tensors
            of all cores. See ``experimental_host_call_every_n_steps`` of :class:`TPUConfig`.
        training_hooks, evaluation_hooks, prediction_hooks: session hooks.
    """

    __slots__ = ()

    __signature__ = inspect.signature(_TPUEstimatorSpec)

    def __new__(cls, *fields: Any, **named: Any) -> TPUEstimatorSpec:
        given = super().__new__(cls, *fields, **named)
        checked = _checked(given)
        check_call("eval_metrics", given.eval_metrics)
        check_call("host_call", given.host_call)
        if given.scaffold_fn is not None and not callable(given.scaffold_fn):
            raise ArgumentTypeError(f"scaffold_fn must be a function without arguments, but is {given.scaffold_fn!r}")
        return given._replace(**checked)

    def as_estimator_spec(self) -> EstimatorSpec:
        """The plain spec: calls the metric function, the host call and the scaffold function in the current graph.

        A hook runs the host call in each step of training and evaluation.
        """
        beside = host_call_hooks(self.host_call)
        metrics = None if self.eval_metrics is None else call_pair("eval_metrics", self.eval_metrics)
        hooks = {name: (*(getattr(self, name) or ()), *beside) for name in ("training_hooks", "evaluation_hooks")}
        return EstimatorSpec(self.mode, self.predictions, self.loss, self.train_op, metrics, self.export_outputs, **hooks,
                             scaffold=_scaffold(self.scaffold_fn), prediction_hooks=self.prediction_hooks)  # fmt: skip


def plain_spec(spec: EstimatorSpec | TPUEstimatorSpec) -> EstimatorSpec:
    return spec.as_estimator_spec() if isinstance(spec, TPUEstimatorSpec) else spec


def check_call(name: str, pair: Any) -> None:
    if pair is None:
        return
    if not isinstance(pair, (tuple, list)):
        raise ArgumentTypeError(f"{name} must be a tuple (function, tensors), but is {pair!r}")
    if len(pair) != 2:
        raise ArgumentError(f"{name} must be a tuple (function, tensors), but has {len(pair)} elements")
    function, tensors = pair
    if not callable(function):
        raise ArgumentTypeError(f"{name}[0] must be a function, but is {function!r}")
    if not isinstance(tensors, (list, tuple, Mapping)):
        raise ArgumentTypeError(f"{name}[1] must be a list or dict of tensors, but is {tensors!r}")
    arguments: tuple[Any, Any] = ((), tensors) if isinstance(tensors, Mapping) else (tensors, {})
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments[0], **arguments[1])
    except TypeError as error:
        given = f"{len(tensors)} tensors" if not isinstance(tensors, Mapping) else f"the tensors {sorted(tensors)}"
        raise ArgumentError(f"{name}: the function takes {signature}, but gets {given}: {error}",
                            fix="give one tensor per parameter") from error  # fmt: skip


def _scaffold(scaffold_fn: Any) -> Any:
    if scaffold_fn is None:
        return None
    scaffold = scaffold_fn()
    if scaffold is None:
        raise ArgumentError("scaffold_fn returned None", fix="return the tf.compat.v1.train.Scaffold")
    return scaffold


_REQUIRED = {  # the modes that need a field, and the fix
    "predictions": ((ModeKeys.PREDICT,), "predictions={...}"),
    "loss": ((ModeKeys.TRAIN, ModeKeys.EVAL), "loss=..."),
    "train_op": ((ModeKeys.TRAIN,), "train_op=optimizer.minimize()"),
}


def _checked(given: _EstimatorSpec | _TPUEstimatorSpec) -> dict[str, Any]:
    check_choice("mode", given.mode, ALL_MODES, why="see ModeKeys")
    for name, (modes, fix) in _REQUIRED.items():
        if getattr(given, name) is None and given.mode in modes:
            raise ArgumentError(f"the spec has no {name}, which mode {given.mode} needs", fix=fix)
    predictions, train_op, outputs = given.predictions, given.train_op, given.export_outputs
    for key, value in (predictions if isinstance(predictions, Mapping) else {"predictions": predictions}).items():
        if predictions is not None and not tf.is_tensor(value):
            raise ArgumentTypeError(f"predictions: '{key}' must be a tensor, but is {value!r}")
    if not (train_op is None or isinstance(train_op, tf.Operation) or tf.is_tensor(train_op)):
        raise ArgumentTypeError(f"train_op must be an op or a tensor, but is {train_op!r}")
    if outputs is not None:
        outputs = dict(check_type("export_outputs", outputs, Mapping, what="a dict"))
    hooks = ("training_hooks", "evaluation_hooks", "prediction_hooks")
    checked = {name: hooks_of(name, getattr(given, name)) for name in hooks}
    return {**checked, "loss": None if given.loss is None else _scalar(given.loss), "export_outputs": outputs}


def _scalar(loss: Any) -> Any:
    if not tf.is_tensor(loss):
        raise ArgumentTypeError(f"loss must be a tensor, but is {loss!r}")
    if loss.shape.num_elements() not in (None, 1):
        raise ArgumentError(f"loss must be a scalar, but '{loss.name}' has the shape {loss.shape}",
                            fix="tf.reduce_mean(loss)")  # fmt: skip
    return loss if loss.shape.rank == 0 else tf.reshape(loss, [])


def hooks_of(name: str, hooks: Any) -> tuple[Any, ...]:
    return check_each(name, hooks, tf1.train.SessionRunHook, what="a tf.compat.v1.train.SessionRunHook")
