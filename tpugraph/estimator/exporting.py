"""Exporting: a trained model, traced for serving, goes to disk."""

from __future__ import annotations

import os

from tpugraph.estimator import export
from tpugraph.estimator.plain_session import PlainModel
from tpugraph.estimator.tracing import Request, trace_model, trace_serving


def export_trained(
    request: Request,
    checkpoint: str,
    base: str | os.PathLike[str],
    assets: dict[str, str] | None,
    *,
    as_text: bool,
) -> str:
    """Trace the model behind its serving input, give it a checkpoint's values and write it.

    Args:
        request: what to trace; its input function returns the receiver.
        checkpoint: prefix of the checkpoint.
        base: the folder below which the model goes.
        assets: files to put beside the model: name there to path here.
        as_text: write the graph as text.

    Returns:
        The folder of the model.

    Raises:
        ArgumentTypeError: the function returns no receiver (a ``TypeError``).
    """
    fed, receiver = trace_serving(request)
    model = PlainModel(trace_model(request, fed), fed.fingerprint, request.config.session_config)
    try:
        with model.traced.graph.as_default():
            model.traced.scaffold.saver.restore(model.session, checkpoint)
            spec = model.traced.spec
            served = export.signatures(receiver, spec.export_outputs, spec.predictions)
        return export.write(model, os.fspath(base), served, assets, as_text=as_text)
    finally:
        model.close()
