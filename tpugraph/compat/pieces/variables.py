"""Of ``tf`` itself the version, and ``Variable``: resource variables are of its kind, too, where a program asks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops.variables import Variable as _Any

VERSION = "1.15.5"  # of TensorFlow, whose tree the program gets: programs ask whether they run on TensorFlow 1 or 2
_V1 = tf.compat.v1.Variable


class _Kind(type(_V1)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Any)

    def __call__(cls, *words: Any, **named: Any) -> Any:
        return _V1(*words, **named)


class Variable(_V1, metaclass=_Kind):  # type: ignore[misc, valid-type]
    """``tf.compat.v1.Variable``, which makes the variables."""
