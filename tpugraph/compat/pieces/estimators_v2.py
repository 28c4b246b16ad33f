"""The canned estimators of ``tf.compat.v2.estimator``: those of ``tf.estimator``, whose loss is a mean over the batch.

Those of version 1 add the losses of a batch up. Heads take the mean in both versions.
"""

from __future__ import annotations

import functools
from typing import Any

from tpugraph.estimator import canned_estimators
from tpugraph.estimator.heads import Reduction


class _MeanLoss:
    """Sets a canned estimator's default loss reduction."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **{"loss_reduction": Reduction.SUM_OVER_BATCH_SIZE, **named})


@functools.cache
def __getattr__(name: str) -> Any:
    """The estimator of that name (PEP 562)."""
    base = getattr(canned_estimators, name)
    return type(name, (_MeanLoss, base), {"__doc__": base.__doc__, "__module__": __name__})
