"""Names that TensorFlow moved inside of itself, put back where tf_slim and older programs look for them.

Only names that are absent are added, and nothing that is there is changed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

from tpugraph.compat.symbols import Page, found_in

_OPS = "tensorflow.python.ops"

MOVED: dict[str, Page] = {
    "tensorflow.python.framework.ops": found_in("tensorflow", "Tensor IndexedSlices"),
    f"{_OPS}.array_ops": found_in(f"{_OPS}.array_ops_stack", "stack unstack"),
    f"{_OPS}.control_flow_ops": {
        **found_in(f"{_OPS}.control_flow_assert", "Assert"),
        **found_in(f"{_OPS}.control_flow_case", "case"),
        **found_in(f"{_OPS}.cond", "cond"),
        **found_in(f"{_OPS}.while_loop", "while_loop"),
    },
    f"{_OPS}.variable_scope": found_in(f"{_OPS}.variable_v1", "variable=VariableV1"),
    "tensorflow.python.feature_column.feature_column_lib": found_in("tf_keras.src.feature_column.dense_features", "DenseFeatures"),
}  # fmt: skip
"""Of each module the names that it had, and where they are now."""

NEEDED_BY = ("tf_slim", "tensorflow.python.layers", "tensorflow.python.framework.ops")
"""Prefixes of the names of modules that ask for what was moved."""


def restore() -> None:
    """Put every name back, those of libraries that are not installed left out; the second time nothing happens."""
    keras = importlib.util.find_spec("tf_keras") is not None
    for where, names in MOVED.items():
        module = importlib.import_module(where)
        for name, symbol in names.items():
            home, _, attribute = symbol.home.partition(":")
            if not hasattr(module, name) and (keras or not home.startswith("tf_keras")):
                setattr(module, name, getattr(importlib.import_module(home), attribute))
    if not keras:
        return
    layer = importlib.import_module("tf_keras.src.engine.base_layer_v1").Layer
    if not hasattr(layer, "apply"):
        layer.apply = lambda self, inputs, *words, **named: self(inputs, *words, **named)
    # TensorFlow itself looks for these modules where they were
    for name in ("", ".base", ".convolutional", ".core", ".normalization", ".pooling"):
        moved = importlib.import_module(f"tf_keras.src.legacy_tf_layers{name}")
        sys.modules.setdefault(f"tf_keras.legacy_tf_layers{name}", moved)
