"""``tf.layers.BatchNormalization`` as programs derive from it."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from tf_keras.api._v1.keras.__internal__.legacy.layers import BatchNormalization as _BatchNormalization


class BatchNormalization(_BatchNormalization):  # type: ignore[misc]
    """A program may override ``_moments(self, inputs, reduction_axes, keep_dims)``; Keras calls it with a mask as well."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        own = cls.__dict__.get("_moments")
        if own is None or "mask" in inspect.signature(own).parameters:
            return

        @functools.wraps(own)
        def moments(self: Any, inputs: Any, reduction_axes: Any, keep_dims: bool, mask: Any = None) -> Any:
            if mask is not None:
                raise ValueError(f"{type(self).__name__}._moments takes no mask")
            return own(self, inputs, reduction_axes, keep_dims=keep_dims)

        cls._moments = moments
