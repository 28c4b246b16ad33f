"""ModeKeys: what a model function is called for."""

from __future__ import annotations


class ModeKeys:
    """The values of ``mode`` that a model function sees; they are those of ``tf.estimator.ModeKeys``."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


ALL_MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
