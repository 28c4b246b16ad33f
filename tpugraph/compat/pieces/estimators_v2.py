"""The canned estimators of ``tf.compat.v2.estimator``: those of ``tf.estimator``, whose loss is a mean over the batch.

Those of version 1 add the losses of a batch up. Heads take the mean in both versions.
"""

from __future__ import annotations

from typing import Any

from tpugraph.estimator import canned_estimators
from tpugraph.estimator.heads import Reduction


class _MeanLoss:
    """Sets a canned estimator's default loss reduction."""

    def __init__(self, *words: Any, **named: Any) -> None:
        named.setdefault("loss_reduction", Reduction.SUM_OVER_BATCH_SIZE)
        super().__init__(*words, **named)


def _with_mean_loss(base: type) -> Any:
    return type(base.__name__, (_MeanLoss, base), {"__doc__": base.__doc__, "__module__": __name__})


LinearClassifier = _with_mean_loss(canned_estimators.LinearClassifier)
DNNClassifier = _with_mean_loss(canned_estimators.DNNClassifier)
DNNLinearCombinedClassifier = _with_mean_loss(canned_estimators.DNNLinearCombinedClassifier)
BaselineClassifier = _with_mean_loss(canned_estimators.BaselineClassifier)
LinearRegressor = _with_mean_loss(canned_estimators.LinearRegressor)
DNNRegressor = _with_mean_loss(canned_estimators.DNNRegressor)
DNNLinearCombinedRegressor = _with_mean_loss(canned_estimators.DNNLinearCombinedRegressor)
BaselineRegressor = _with_mean_loss(canned_estimators.BaselineRegressor)
