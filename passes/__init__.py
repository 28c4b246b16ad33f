"""The passes, in the order in which ``convert`` runs them."""

from passes.batch_norm import BatchNorm
from passes.cross_replica_sum import CrossReplicaSum
from passes.dense_rows import DenseRows
from passes.entry_points import EntryPoints
from passes.evaluation_entry_points import EvaluationEntryPoints
from passes.evaluation_loop import EvaluationLoop
from passes.gather_rows import GatherRows
from passes.infeed import Infeed
from passes.inline_functions import InlineFunctions
from passes.outfeed import Outfeed
from passes.pad_batches import PadBatches
from passes.placement import Placement
from passes.prune import Prune
from passes.replicate import Replicate
from passes.resource_variables import ResourceVariables
from passes.separate_rows import SeparateRows
from passes.split_batch import SplitBatch
from passes.static_shapes import StaticShapes
from passes.training_loop import TrainingLoop
from tpugraph.pipeline import Pass

PASSES: tuple[type[Pass], ...] = (
    Prune,
    InlineFunctions,
    ResourceVariables,
    StaticShapes,
    Placement,
    SplitBatch,
    BatchNorm,
    DenseRows,
    CrossReplicaSum,
    Outfeed,
    Infeed,
    TrainingLoop,
    Replicate,
    EntryPoints,
)
"""Every pass of the default pipeline, that of training, in order."""

WITHOUT_TRAINING: tuple[type[Pass], ...] = (
    Prune,
    InlineFunctions,
    ResourceVariables,
    PadBatches,
    SeparateRows,
    StaticShapes,
    Placement,
    GatherRows,
    Infeed,
    EvaluationLoop,
    Replicate,
    EvaluationEntryPoints,
)
"""Every pass of the pipeline of evaluation and prediction, in order."""

PIPELINES: dict[str, tuple[type[Pass], ...]] = {
    "train": PASSES,
    "eval": WITHOUT_TRAINING,
    "predict": WITHOUT_TRAINING,
}
"""The pipeline of each mode."""
