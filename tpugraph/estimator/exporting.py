"""Exporting: a trained model, traced for serving or evaluation, goes to disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import one_of
from tpugraph.estimator.context import Batches
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.plain_session import PlainModel
from tpugraph.estimator.reporting import say
from tpugraph.estimator.saved_model_writing import signatures_of, write
from tpugraph.estimator.tpu_serving import ExportSavedModelApiVersion, model_fn_inference_on_tpu
from tpugraph.estimator.tracing import Request, trace_model, trace_serving
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1
_TAGS = {ModeKeys.PREDICT: "serve", ModeKeys.EVAL: "eval", ModeKeys.TRAIN: "train"}


@dataclass(frozen=True)
class Exports:
    """Which graphs an exported model has.

    Attributes:
        cpu: a plain one.
        tpu: of a model for serving one whose computation a TPU runs, with the tags ``serve`` and ``tpu``.
        by_model: whether the model function puts its computation on TPUs itself (version V2).
    """

    cpu: bool = True
    tpu: bool = False
    by_model: bool = False


def exports_of(cpu: bool, tpu: bool, version: Any) -> Exports:
    """The graphs that the arguments of an estimator ask for.

    Args:
        cpu: ``export_to_cpu``.
        tpu: ``export_to_tpu``.
        version: an :class:`ExportSavedModelApiVersion`; None is V1.

    Raises:
        ArgumentError: no such version, or no graph at all (a ``ValueError``).
    """
    name = getattr(version or ExportSavedModelApiVersion.V1, "name", None)
    one_of("export_saved_model_api_version", name, ("V1", "V2"), why="see ExportSavedModelApiVersion")
    if not tpu and not cpu:
        raise ArgumentError("export_to_tpu and export_to_cpu are both False", fix="leave one of them True")
    return Exports(cpu, tpu, name == "V2")


def export_trained(
    request: Request,
    exports: Exports,
    checkpoint: str,
    base: str | os.PathLike[str],
    assets: dict[str, str] | None,
    *,
    as_text: bool,
) -> str:
    """Trace the model behind its input receiver, give it a checkpoint's values and write it.

    Args:
        request: what to trace; its input function returns the receiver.
        exports: which graphs to write.
        checkpoint: prefix of the checkpoint.
        base: the folder below which the model goes.
        assets: files to put beside the model: name there to path here.
        as_text: write the graph as text.

    Returns:
        The folder of the model.

    Raises:
        ArgumentTypeError: the function returns no receiver (a ``TypeError``).
        ArgumentError: there is only a graph for TPUs to write, and the model cannot be one (a ``ValueError``).
    """
    request = replace(request, plan=Batches(0, None, None, None))  # the rows of a request are not known
    tag, wanted = _TAGS[request.mode], exports.tpu and request.mode == ModeKeys.PREDICT
    made: list[tuple[list[str], PlainModel, dict[str, Any]]] = []
    try:
        if exports.cpu or not wanted:
            made.append(([tag], *_model(request)))
        if wanted:
            found = _for_tpus(request, exports, alone=not made)
            made.extend([([tag, "tpu"], *found)] if found is not None else [])
        with made[0][1].traced.graph.as_default():
            made[0][1].traced.scaffold.saver.restore(made[0][1].session, checkpoint)
        return write(made, os.fsdecode(base), assets, as_text=as_text)
    finally:
        for _, model, _ in made:
            model.close()


def _model(request: Request) -> tuple[PlainModel, dict[str, Any]]:
    fed, receiver = trace_serving(request)
    config = tf1.ConfigProto()
    config.MergeFrom(request.config.session_config or tf1.ConfigProto())
    config.graph_options.place_pruned_graph = True  # what is for TPUs alone has no place on this machine
    model = PlainModel(trace_model(request, fed), fed.fingerprint, config)
    with model.traced.graph.as_default():
        return model, signatures_of(request.mode, receiver, model.traced)


def _for_tpus(request: Request, exports: Exports, *, alone: bool) -> tuple[PlainModel, dict[str, Any]] | None:
    """The graph whose computation a TPU runs; None, and a line, where the model cannot be one and there is a plain graph."""
    model_fn = request.model_fn if exports.by_model else _whole_on_tpu(request.model_fn)
    try:
        return _model(replace(request, model_fn=model_fn, serves_on_tpu=True))
    except (TypeError, ValueError, NotImplementedError, tf.errors.OpError) as error:
        words = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
        if alone:
            raise ArgumentError(f"the model cannot be exported for TPUs: {words}", fix="export_to_cpu=True") from error
        say(f"warning: the exported model has no graph for TPUs: {words}")
        return None


def _whole_on_tpu(model_fn: Callable[..., Any]) -> Callable[..., Any]:
    def served(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
        del mode
        return model_fn_inference_on_tpu(model_fn, features, labels, config, params)

    return served
