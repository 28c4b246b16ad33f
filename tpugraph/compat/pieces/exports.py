"""Exports: the exporters that ``train_and_evaluate`` calls, ``tf.contrib.predictor``, and functions of ``tf.contrib``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpugraph.ir.session_config import guarded

tf1 = tf.compat.v1


class Exporter:
    """Something with a name that exports an estimator."""

    @property
    def name(self) -> str:
        """The folder below ``export`` in the model_dir."""
        raise NotImplementedError

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
               is_the_final_export: bool) -> str | None:  # fmt: skip
        """Export if it is time to; returns the export's folder, or None."""
        raise NotImplementedError


class LatestExporter(Exporter):
    """Exports after each evaluation, and keeps the newest ``exports_to_keep`` exports; all when None.

    Raises:
        ValueError: exports_to_keep is not positive.
    """

    def __init__(self, name: str, serving_input_receiver_fn: Any, assets_extra: Any = None, as_text: bool = False,
                 exports_to_keep: int | None = 5) -> None:  # fmt: skip
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError("`exports_to_keep`, if provided, must be positive number")
        self._name, self._keep = name, exports_to_keep
        self._arguments = {"serving_input_receiver_fn": serving_input_receiver_fn, "assets_extra": assets_extra,
                           "as_text": as_text}  # fmt: skip

    @property
    def name(self) -> str:
        return self._name

    def _due(self, result: Any, final: bool) -> bool:
        return True

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
               is_the_final_export: bool) -> str | None:  # fmt: skip
        if not self._due(eval_result, is_the_final_export):
            return None
        found: str = estimator.export_saved_model(export_path, checkpoint_path=checkpoint_path, **self._arguments)
        if self._keep is not None:
            for old in sorted(int(entry) for entry in os.listdir(export_path) if entry.isdigit())[: -self._keep]:
                shutil.rmtree(os.path.join(export_path, str(old)))
        return found


class FinalExporter(LatestExporter):
    """Exports once, when training has ended."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Any, assets_extra: Any = None, as_text: bool = False
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, None)

    def _due(self, result: Any, final: bool) -> bool:
        return final


def _smaller_loss(best_eval_result: Any, current_eval_result: Any) -> bool:
    return bool(current_eval_result["loss"] < best_eval_result["loss"])


class BestExporter(LatestExporter):
    """Exports after an evaluation that is better than all before it in this process, by ``compare_fn`` of two results.

    ``event_file_pattern`` is not used: evaluations of earlier processes are not looked at.
    """

    def __init__(self, name: str = "best_exporter", serving_input_receiver_fn: Any = None, event_file_pattern: Any = None,
                 compare_fn: Callable[..., bool] = _smaller_loss, assets_extra: Any = None, as_text: bool = False,
                 exports_to_keep: int | None = 5) -> None:  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._compare = compare_fn
        self._best: Any = None

    def _due(self, result: Any, final: bool) -> bool:
        better = self._best is None or self._compare(best_eval_result=self._best, current_eval_result=result)
        self._best = result if better else self._best
        return better


def export_estimator_savedmodel(estimator: Any, export_dir_base: Any, serving_input_receiver_fn: Any, assets_extra: Any = None,
                                as_text: bool = False, checkpoint_path: Any = None,
                                strip_default_attrs: bool = False) -> str:  # fmt: skip
    """Write the trained model of an estimator as a SavedModel; returns its folder."""
    del strip_default_attrs  # they are always stripped
    found: str = estimator.export_saved_model(export_dir_base, serving_input_receiver_fn, assets_extra, as_text=as_text,
                                              checkpoint_path=checkpoint_path)  # fmt: skip
    return found


def visualize_embeddings(summary_writer: Any, config: Any) -> None:
    """Tell TensorBoard which tensors of a checkpoint are embeddings; the file lies where the writer writes."""
    from tensorboard.plugins import projector

    projector.visualize_embeddings(summary_writer.get_logdir(), config)


class _Predictor:
    """Calls a session with arrays by input name; it has ``feed_tensors``, ``fetch_tensors``, ``graph`` and ``session``."""

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
