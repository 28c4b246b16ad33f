"""``tf.contrib.predictor``: functions of arrays made from a SavedModel or an estimator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpugraph.ir.session_config import guarded

tf1 = tf.compat.v1


class _Predictor:
    """Calls a session with arrays by input name; ``feed_tensors``, ``fetch_tensors``, ``graph`` and ``session`` are open."""

    def __init__(self, session: Any, feeds: Mapping[str, Any], fetches: Mapping[str, Any]) -> None:
        self.session, self.graph, self.feed_tensors, self.fetch_tensors = session, session.graph, feeds, fetches

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for some inputs."""
        unknown = sorted(input_dict.keys() - self.feed_tensors.keys())
        if unknown:
            raise ValueError(f"Got unexpected keys in input_dict: {unknown}; expected: {sorted(self.feed_tensors)}")
        feed = {self.feed_tensors[name]: value for name, value in input_dict.items()}
        return self.session.run(dict(self.fetch_tensors), feed)  # type: ignore[no-any-return]


def from_saved_model(export_dir: str, signature_def_key: str | None = None, signature_def: Any = None,
                     input_names: Mapping[str, str] | None = None, output_names: Mapping[str, str] | None = None,
                     tags: str | None = None, graph: Any = None, config: Any = None) -> _Predictor:  # fmt: skip
    """A predictor of a SavedModel's signature, ``serving_default`` where none is named, or of named tensors."""
    session = tf1.Session(graph=graph or tf.Graph(), config=guarded(config))
    with session.graph.as_default():
        loaded = tf1.saved_model.load(session, (tags or "serve").split(","), export_dir)
    if input_names is None or output_names is None:
        key = signature_def_key or "serving_default"
        if signature_def is None and key not in loaded.signature_def:
            raise ValueError(f"Got signature_def_key '{key}'. Available signatures are {sorted(loaded.signature_def)}.")
        signature = signature_def or loaded.signature_def[key]
        input_names = {name: info.name for name, info in signature.inputs.items()}
        output_names = {name: info.name for name, info in signature.outputs.items()}
    tensors = [{name: session.graph.get_tensor_by_name(tensor) for name, tensor in names.items()}
               for names in (input_names, output_names)]  # fmt: skip
    return _Predictor(session, *tensors)


def from_estimator(estimator: Any, serving_input_receiver_fn: Callable[[], Any], output_key: str | None = None,
                   graph: Any = None, config: Any = None) -> _Predictor:  # fmt: skip
    """A predictor of an estimator with its newest checkpoint: what :func:`from_saved_model` makes of its export."""
    with tempfile.TemporaryDirectory() as folder:
        exported = estimator.export_saved_model(folder, serving_input_receiver_fn)
        return from_saved_model(exported, output_key, graph=graph, config=config)
