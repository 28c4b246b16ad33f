"""Names that TensorFlow moved inside of itself, put back where tf_slim and older programs look for them.

Only names that are absent are added, and nothing that is there is changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

_OPS = "tensorflow.python.ops"

ATTRIBUTES = {
    ("tensorflow.python.framework.ops", "Tensor"): ("tensorflow", "Tensor"),
    ("tensorflow.python.framework.ops", "IndexedSlices"): ("tensorflow", "IndexedSlices"),
    (f"{_OPS}.array_ops", "stack"): (f"{_OPS}.array_ops_stack", "stack"),
    (f"{_OPS}.array_ops", "unstack"): (f"{_OPS}.array_ops_stack", "unstack"),
    (f"{_OPS}.control_flow_ops", "Assert"): (f"{_OPS}.control_flow_assert", "Assert"),
    (f"{_OPS}.control_flow_ops", "case"): (f"{_OPS}.control_flow_case", "case"),
    (f"{_OPS}.control_flow_ops", "cond"): (f"{_OPS}.cond", "cond"),
    (f"{_OPS}.control_flow_ops", "while_loop"): (f"{_OPS}.while_loop", "while_loop"),
    (f"{_OPS}.variable_scope", "variable"): (f"{_OPS}.variable_v1", "VariableV1"),
}
"""Of a module an attribute that it had, and where it is now."""

LATE = {
    "tensorflow.python.feature_column.feature_column_lib": {
        "DenseFeatures": ("tf_keras.src.feature_column.dense_features", "DenseFeatures")
    },
}
"""The same of modules that programs alone ask for, looked up when they do."""

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


def restore_late(module: str) -> None:
    """Put the names of :data:`LATE` back into a module that a program imports."""
    for name, (home, there) in LATE.get(module, {}).items():
        _put(module, name, home, there)


def _put(module: str, name: str, home: str, there: str) -> None:
    where = importlib.import_module(module)
    if not hasattr(where, name) and hasattr(found := importlib.import_module(home), there):
        setattr(where, name, getattr(found, there))


def restore_all() -> None:
    """Put back every name, those of libraries that are not installed left out."""
    for (where, name), (home, there) in ATTRIBUTES.items():
        _put(where, name, home, there)
    if importlib.util.find_spec("tf_keras") is None:
        return
    layer = importlib.import_module("tf_keras.src.engine.base_layer_v1").Layer
    if not hasattr(layer, "apply"):
        layer.apply = lambda self, inputs, *words, **named: self(inputs, *words, **named)
    for name, home in MODULES.items():
        if name not in sys.modules:
            sys.modules[name] = importlib.import_module(home)
