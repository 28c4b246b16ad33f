"""tpugraph: a compiler from plain TensorFlow 1 training graphs to TPU training graphs.

The error classes are here at once; every other name is loaded when it is first used, so that ``import tpugraph`` needs
no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tpugraph.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    ConversionError,
    GraphError,
    InvariantError,
    LoadError,
    NanLossDuringTrainingError,
    PipelineError,
    RolesError,
    RunError,
    ShapeError,
    TpuGraphError,
    UsageError,
)
from tpugraph.support.tensorflow_log import import_tensorflow

if TYPE_CHECKING:
    from tpugraph.analysis.networkx_view import as_networkx
    from tpugraph.compiler import ConvertOptions, convert
    from tpugraph.compiler.tpu_check import check, view
    from tpugraph.estimator.checkpoints import WarmStartSettings
    from tpugraph.estimator.cluster import TPUClusterResolver
    from tpugraph.estimator.embeddings import (
        AdagradParameters,
        AdamParameters,
        EmbeddingConfigSpec,
        FeatureConfig,
        StochasticGradientDescentParameters,
        TableConfig,
    )
    from tpugraph.estimator.keras_model import model_to_estimator
    from tpugraph.estimator.optimizer import CrossShardOptimizer
    from tpugraph.estimator.plain_estimator import Estimator
    from tpugraph.estimator.run_config import RunConfig
    from tpugraph.estimator.specs import EstimatorSpec, ModeKeys, TPUEstimatorSpec
    from tpugraph.estimator.tpu_config import InputPipelineConfig, TPUConfig
    from tpugraph.estimator.tpu_estimator import TPUEstimator
    from tpugraph.estimator.train_and_evaluate import EvalSpec, TrainSpec, train_and_evaluate
    from tpugraph.ir import Graph, Node, Tensor
    from tpugraph.ir.graphdef import load
    from tpugraph.roles.findings import Roles
    from tpugraph.runtime.session import TPUSession
    from tpugraph.testing.reduce import reduce
    from tpugraph.testing.tensor_comparison import compare
    from tpugraph.tpu.pipeline import Pass, Pipeline
    from tpugraph.tpu.program import Program

__version__ = "0.1.0"

_HOMES = {
    "AdagradParameters": "tpugraph.estimator.embeddings",
    "AdamParameters": "tpugraph.estimator.embeddings",
    "ConvertOptions": "tpugraph.compiler",
    "CrossShardOptimizer": "tpugraph.estimator.optimizer",
    "EmbeddingConfigSpec": "tpugraph.estimator.embeddings",
    "Estimator": "tpugraph.estimator.plain_estimator",
    "EstimatorSpec": "tpugraph.estimator.specs",
    "EvalSpec": "tpugraph.estimator.train_and_evaluate",
    "FeatureConfig": "tpugraph.estimator.embeddings",
    "Graph": "tpugraph.ir",
    "InputPipelineConfig": "tpugraph.estimator.tpu_config",
    "ModeKeys": "tpugraph.estimator.specs",
    "Node": "tpugraph.ir",
    "Pass": "tpugraph.tpu.pipeline",
    "Pipeline": "tpugraph.tpu.pipeline",
    "Program": "tpugraph.tpu.program",
    "Roles": "tpugraph.roles.findings",
    "RunConfig": "tpugraph.estimator.run_config",
    "StochasticGradientDescentParameters": "tpugraph.estimator.embeddings",
    "TableConfig": "tpugraph.estimator.embeddings",
    "TPUClusterResolver": "tpugraph.estimator.cluster",
    "TPUConfig": "tpugraph.estimator.tpu_config",
    "TPUEstimator": "tpugraph.estimator.tpu_estimator",
    "TPUEstimatorSpec": "tpugraph.estimator.specs",
    "TPUSession": "tpugraph.runtime.session",
    "Tensor": "tpugraph.ir",
    "TrainSpec": "tpugraph.estimator.train_and_evaluate",
    "WarmStartSettings": "tpugraph.estimator.checkpoints",
    "as_networkx": "tpugraph.analysis.networkx_view",
    "check": "tpugraph.compiler.tpu_check",
    "compare": "tpugraph.testing.tensor_comparison",
    "convert": "tpugraph.compiler",
    "load": "tpugraph.ir.graphdef",
    "model_to_estimator": "tpugraph.estimator.keras_model",
    "reduce": "tpugraph.testing.reduce",
    "train_and_evaluate": "tpugraph.estimator.train_and_evaluate",
    "view": "tpugraph.compiler.tpu_check",
}
"""Where the names live that are loaded on first use."""

_MODULES = {
    "export": "tpugraph.export",
    "graphdef": "tpugraph.ir.graphdef",
    "layers": "tpugraph.estimator.layers",
    "testing": "tpugraph.testing",
}
"""Where the modules live that are loaded on first use."""

__all__ = [
    "AdagradParameters",
    "AdamParameters",
    "ArgumentError",
    "ArgumentTypeError",
    "CheckpointError",
    "ConversionError",
    "ConvertOptions",
    "CrossShardOptimizer",
    "EmbeddingConfigSpec",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "FeatureConfig",
    "Graph",
    "GraphError",
    "InputPipelineConfig",
    "InvariantError",
    "LoadError",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "Node",
    "Pass",
    "Pipeline",
    "PipelineError",
    "Program",
    "Roles",
    "RolesError",
    "RunConfig",
    "RunError",
    "ShapeError",
    "StochasticGradientDescentParameters",
    "TPUClusterResolver",
    "TPUConfig",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "TPUSession",
    "TableConfig",
    "Tensor",
    "TpuGraphError",
    "TrainSpec",
    "UsageError",
    "WarmStartSettings",
    "__version__",
    "as_networkx",
    "check",
    "compare",
    "convert",
    "export",
    "graphdef",
    "layers",
    "load",
    "model_to_estimator",
    "reduce",
    "testing",
    "train_and_evaluate",
    "view",
]


def __getattr__(name: str) -> Any:
    """A name of the library, loaded now (PEP 562)."""
    home = _HOMES.get(name) or _MODULES.get(name)
    if home is None:
        raise AttributeError(f"module 'tpugraph' has no attribute {name!r}")
    import_tensorflow()
    found = importlib.import_module(home)
    if name in _HOMES:
        found = getattr(found, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
