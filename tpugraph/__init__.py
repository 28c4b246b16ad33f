"""tpugraph: a compiler from plain TensorFlow 1 training graphs to TPU training graphs.

The error classes are here at once; every other name is loaded when it is first used, so that ``import tpugraph`` needs
no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tpugraph.errors import (
    CheckpointError,
    ConversionError,
    GraphError,
    InvariantError,
    LoadError,
    PipelineError,
    RolesError,
    RunError,
    ShapeError,
    TpuGraphError,
    UsageError,
)

if TYPE_CHECKING:
    from tpugraph.compiler import ConvertOptions, convert
    from tpugraph.graphdef import load
    from tpugraph.ir import Graph, Node, Tensor
    from tpugraph.pipeline import Pass, Pipeline
    from tpugraph.program import Program
    from tpugraph.roles import Roles
    from tpugraph.runtime.session import TPUSession

__version__ = "0.1.0"

_HOMES = {
    "ConvertOptions": "tpugraph.compiler",
    "Graph": "tpugraph.ir",
    "Node": "tpugraph.ir",
    "Pass": "tpugraph.pipeline",
    "Pipeline": "tpugraph.pipeline",
    "Program": "tpugraph.program",
    "Roles": "tpugraph.roles",
    "TPUSession": "tpugraph.runtime.session",
    "Tensor": "tpugraph.ir",
    "convert": "tpugraph.compiler",
    "load": "tpugraph.graphdef",
}
"""Where the names live that are loaded on first use."""

_MODULES = frozenset({"testing"})

__all__ = [
    "CheckpointError",
    "ConversionError",
    "ConvertOptions",
    "Graph",
    "GraphError",
    "InvariantError",
    "LoadError",
    "Node",
    "Pass",
    "Pipeline",
    "PipelineError",
    "Program",
    "Roles",
    "RolesError",
    "RunError",
    "ShapeError",
    "TPUSession",
    "Tensor",
    "TpuGraphError",
    "UsageError",
    "__version__",
    "convert",
    "load",
    "testing",
]


def __getattr__(name: str) -> Any:
    """A name of the library, loaded now (PEP 562)."""
    if name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        found = importlib.import_module(f"tpugraph.{name}")
    else:
        raise AttributeError(f"module 'tpugraph' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
