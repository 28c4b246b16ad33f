"""The error of a loss that is no number, which programs catch under TensorFlow's name."""

from __future__ import annotations

import tensorflow as tf

from tpugraph.support import errors


class NanLossDuringTrainingError(errors.NanLossDuringTrainingError, tf.compat.v1.train.NanLossDuringTrainingError):  # type: ignore[misc]
    """The loss is no number any more; tpugraph's error and TensorFlow's in one.

    Args:
        fault: what is wrong, one sentence without a final full stop.
        step: the global step of that loss.
        start: the global step at which the training began that met it.
        **more: as :class:`~tpugraph.support.errors.TpuGraphError`.
    """
