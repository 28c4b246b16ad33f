"""The exporters of ``tf.estimator``: what ``train_and_evaluate`` exports behind an evaluation."""

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
        """Export, or do not; returns the folder of what was exported."""
        raise NotImplementedError


class LatestExporter(Exporter):
    """Exports behind each evaluation, and keeps the newest exports.

    Args:
        name: the folder below ``export``.
        serving_input_receiver_fn: as that of ``export_saved_model``.
        assets_extra: as that of ``export_saved_model``.
        as_text: as that of ``export_saved_model``.
        exports_to_keep: how many; all when None.

    Raises:
        ValueError: exports_to_keep is not positive.
    """

    def __init__(self, name: str, serving_input_receiver_fn: Callable[[], Any], assets_extra: Any = None,
                 as_text: bool = False, exports_to_keep: int | None = 5) -> None:  # fmt: skip
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError("`exports_to_keep`, if provided, must be positive number")
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._assets = assets_extra
        self._as_text = as_text
        self._keep = exports_to_keep

    @property
    def name(self) -> str:
        """The folder below ``export`` in the model_dir."""
        return self._name

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
               is_the_final_export: bool) -> str | None:  # fmt: skip
        """Export, and remove exports that are too old."""
        found: str = estimator.export_saved_model(export_path, self._receiver_fn, self._assets, as_text=self._as_text,
                                                  checkpoint_path=checkpoint_path)  # fmt: skip
        if self._keep is not None:
            for old in sorted(int(entry) for entry in os.listdir(export_path) if entry.isdigit())[: -self._keep]:
                shutil.rmtree(os.path.join(export_path, str(old)))
        return found


class FinalExporter(LatestExporter):
    """Exports once, when training has ended."""

    def __init__(self, name: str, serving_input_receiver_fn: Callable[[], Any], assets_extra: Any = None,
                 as_text: bool = False) -> None:  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, None)

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
               is_the_final_export: bool) -> str | None:  # fmt: skip
        """Export, if training has ended."""
        if not is_the_final_export:
            return None
        return super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)


def _smaller_loss(best_eval_result: Any, current_eval_result: Any) -> bool:
    """Whether the loss of the second result is the smaller one."""
    return bool(current_eval_result["loss"] < best_eval_result["loss"])


class BestExporter(LatestExporter):
    """Exports behind an evaluation that was better than all before it in this process.

    Args:
        name: the folder below ``export``.
        serving_input_receiver_fn: as that of ``export_saved_model``.
        event_file_pattern: not used: evaluations of earlier processes are not looked at.
        compare_fn: whether the second of two results is the better one.
        assets_extra: as that of ``export_saved_model``.
        as_text: as that of ``export_saved_model``.
        exports_to_keep: how many; all when None.
    """

    def __init__(self, name: str = "best_exporter", serving_input_receiver_fn: Any = None, event_file_pattern: Any = None,
                 compare_fn: Callable[..., bool] = _smaller_loss, assets_extra: Any = None, as_text: bool = False,
                 exports_to_keep: int | None = 5) -> None:  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text, exports_to_keep)
        self._compare = compare_fn
        self._best: Any = None

    def export(self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
               is_the_final_export: bool) -> str | None:  # fmt: skip
        """Export, if the result is the best so far."""
        if self._best is not None and not self._compare(best_eval_result=self._best, current_eval_result=eval_result):
            return None
        self._best = eval_result
        return super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
