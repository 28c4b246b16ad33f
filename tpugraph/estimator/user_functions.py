"""Calls the user's functions with the arguments that they take."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

from tpugraph.estimator.specs import EstimatorSpec, TPUEstimatorSpec
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

_MODEL_ARGUMENTS = ("features", "labels", "mode", "params", "config")


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters that a function takes by name, without those bound by ``functools.partial``."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(function).parameters.values()
    return tuple(p.name for p in given if p.kind not in unnamed and p.name not in bound)


def takes(function: Callable[..., Any], name: str) -> bool:
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    return name in parameters_of(function) or inspect.Parameter.VAR_KEYWORD in kinds


def name_of(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    return getattr(inner, "__qualname__", type(inner).__name__).rpartition("<locals>.")[2]


def check_model_fn(model_fn: Any, params: Any) -> None:
    """Checks that a model function takes features, params if there are any, and no unknown arguments."""
    if model_fn is None:
        raise ArgumentError("model_fn is None", fix="TPUEstimator(model_fn=...)")
    if not callable(model_fn):
        raise ArgumentTypeError(f"model_fn must be a function, but is {model_fn!r}")
    names = parameters_of(model_fn)
    if "features" not in names:
        raise ArgumentError(f"model_fn '{name_of(model_fn)}' takes no argument 'features', but {list(names)}")
    unknown = [name for name in names if name not in _MODEL_ARGUMENTS]
    if unknown:
        raise ArgumentError(f"model_fn '{name_of(model_fn)}' has following not expected args: {unknown}",
                            fix=f"it may take {', '.join(_MODEL_ARGUMENTS)}; pass others in params")  # fmt: skip
    if params and not takes(model_fn, "params"):
        raise ArgumentError(f"model_fn '{name_of(model_fn)}' does not include params argument, but params are given",
                            fix="def model_fn(features, labels, mode, params)")  # fmt: skip


def with_extras(params: Any, **extras: Any) -> Any:
    """A deep copy of the user's params with some keys set; None values are left out."""
    copied = copy.deepcopy(params) if params is not None else {}
    for key, value in extras.items():
        if value is None:
            continue
        if hasattr(copied, "add_hparam") and key not in copied:
            copied.add_hparam(key, value)
        elif hasattr(copied, "set_hparam"):
            copied.set_hparam(key, value)
        else:
            copied[key] = value
    return copied


def watch_batch_size(params: Any) -> Any:
    """Params that set ``reads_batch_size`` when their batch size is read, where they are a dict."""
    return _WatchedParams(params) if type(params) is dict else params


def _watching(name: str) -> Callable[..., Any]:
    def method(self: _WatchedParams, *arguments: Any) -> Any:
        self.reads_batch_size |= name not in ("__getitem__", "get") or arguments[0] == "batch_size"
        return getattr(dict, name)(self, *arguments)

    return method


class _WatchedParams(dict[str, Any]):
    reads_batch_size = False


for _name in "__getitem__ get __iter__ keys values items copy pop setdefault __or__ __ror__".split():
    setattr(_WatchedParams, _name, _watching(_name))  # who takes all params reads the batch size too


def taken(function: Any, **given: Any) -> dict[str, Any]:
    """Those of some arguments that a function takes."""
    return {name: value for name, value in given.items() if takes(function, name)}


def check_input_fn(input_fn: Any, owner: str = "") -> Any:
    if not callable(input_fn):
        raise ArgumentTypeError(f"{owner}input_fn must be a function, but is {input_fn!r}")
    return input_fn


def call_input_fn(input_fn: Any, mode: str, params: Any, config: Any) -> Any:
    check_input_fn(input_fn)
    wanted = taken(input_fn, mode=mode, params=params, config=config)
    needed = [p.name for p in inspect.signature(input_fn).parameters.values()
              if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and p.name not in wanted]  # fmt: skip
    if needed:
        raise ArgumentTypeError(
            f"input_fn '{name_of(input_fn)}' takes {needed}, which TPUEstimator does not know",
            fix="it may take params, mode, config; wrap it: lambda params: input_fn(..., params['batch_size'])",
        )
    return input_fn(**wanted)


def call_model_fn(
    model_fn: Any, features: Any, labels: Any, mode: str, params: Any, config: Any
) -> EstimatorSpec | TPUEstimatorSpec:
    wanted = taken(model_fn, mode=mode, params=params, config=config)
    if takes(model_fn, "labels"):
        wanted["labels"] = labels
    elif labels is not None:
        raise ArgumentError(
            f"model_fn does not take labels, but input_fn returns labels: model_fn '{name_of(model_fn)}' has no such argument",
            fix="def model_fn(features, labels, mode, params), or return features alone",
        )
    spec = model_fn(features=features, **wanted)
    if not isinstance(spec, (EstimatorSpec, TPUEstimatorSpec)):
        raise ArgumentError(f"model_fn '{name_of(model_fn)}' returned {spec!r} ({type(spec).__name__}), which is no spec",
                            fix="return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)")  # fmt: skip
    return spec
