"""Names that TensorFlow moved inside of itself, put back where tf_slim and older programs look for them.

Only names that are absent are added, and nothing that is there is changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

ATTRIBUTES = {
    ("tensorflow.python.framework.ops", "Tensor"): ("tensorflow", "Tensor"),
}
"""Of a module an attribute that it had, and where it is now."""

MODULES = {
    "tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers",
    "tf_keras.legacy_tf_layers.base": "tf_keras.src.legacy_tf_layers.base",
    "tf_keras.legacy_tf_layers.convolutional": "tf_keras.src.legacy_tf_layers.convolutional",
    "tf_keras.legacy_tf_layers.core": "tf_keras.src.legacy_tf_layers.core",
    "tf_keras.legacy_tf_layers.normalization": "tf_keras.src.legacy_tf_layers.normalization",
    "tf_keras.legacy_tf_layers.pooling": "tf_keras.src.legacy_tf_layers.pooling",
}
"""Of a module that TensorFlow itself still asks for, where it is now."""

_NEEDED_BY = ("tf_slim", "tensorflow.python.layers", "tensorflow.python.framework.ops")


def restore(module: str) -> None:
    """Put the names back where ``module`` is one that needs them; the second time nothing happens."""
    if module.startswith(_NEEDED_BY):
        restore_all()


def restore_all() -> None:
    """Put back every name, those of libraries that are not installed left out."""
    for (where, name), (home, there) in ATTRIBUTES.items():
        module = importlib.import_module(where)
        if not hasattr(module, name) and hasattr(found := importlib.import_module(home), there):
            setattr(module, name, getattr(found, there))
    if importlib.util.find_spec("tf_keras") is None:
        return
    for name, home in MODULES.items():
        if name not in sys.modules:
            sys.modules[name] = importlib.import_module(home)
