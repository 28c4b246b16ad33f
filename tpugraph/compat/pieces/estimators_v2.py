"""The canned estimators of ``tf.compat.v2.estimator``: those of ``tf.estimator``, whose loss is a mean over the batch.

Those of version 1 add the losses of a batch up. Heads take the mean in both versions.
"""

from __future__ import annotations

from typing import Any

from tpugraph.estimator.canned import estimators
from tpugraph.estimator.canned.heads import Reduction


class _MeanLoss:
    """In front of a canned estimator: the reduction, where none is said."""

    def __init__(self, *words: Any, **named: Any) -> None:
        named.setdefault("loss_reduction", Reduction.SUM_OVER_BATCH_SIZE)
        super().__init__(*words, **named)


class LinearClassifier(_MeanLoss, estimators.LinearClassifier):
    """A linear model of classes."""


class DNNClassifier(_MeanLoss, estimators.DNNClassifier):
    """Fully connected layers for classes."""


class DNNLinearCombinedClassifier(_MeanLoss, estimators.DNNLinearCombinedClassifier):
    """Wide and deep for classes."""


class BaselineClassifier(_MeanLoss, estimators.BaselineClassifier):
    """The mean of the classes."""


class LinearRegressor(_MeanLoss, estimators.LinearRegressor):
    """A linear model of numbers."""


class DNNRegressor(_MeanLoss, estimators.DNNRegressor):
    """Fully connected layers for numbers."""


class DNNLinearCombinedRegressor(_MeanLoss, estimators.DNNLinearCombinedRegressor):
    """Wide and deep for numbers."""


class BaselineRegressor(_MeanLoss, estimators.BaselineRegressor):
    """The mean of the numbers."""
