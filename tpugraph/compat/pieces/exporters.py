"""The exporters of ``tf.estimator``, which ``train_and_evaluate`` calls, and functions of ``tf.contrib`` that hand on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any


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
    """Exports behind each evaluation, and keeps the newest ``exports_to_keep`` exports; all when None.

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
    """Exports behind an evaluation that was better than all before it in this process, by ``compare_fn`` of two results.

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
