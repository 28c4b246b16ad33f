"""``import tpugraph.compat.v1 as tf``: the module ``tensorflow`` of TensorFlow 1.15.

Everything that ``tensorflow.compat.v1`` still has, with what was dropped since put back: ``tf.contrib``, ``tf.estimator``,
``tf.layers`` and others; docs/compat.md lists them. As with ``tensorflow.compat.v1``, nothing is switched off by the import:
``tf.disable_v2_behavior()`` gives graphs, sessions and ``Dimension`` objects in shapes.
"""

from __future__ import annotations

from typing import Any

from tpugraph.compat.tree import namespace
from tpugraph.runtime.tpu_op_fallback import emulate_tpu_ops

_ROOT = namespace("")
emulate_tpu_ops()


def __getattr__(name: str) -> Any:
    """A name of the tree (PEP 562)."""
    return getattr(_ROOT, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_ROOT)})
