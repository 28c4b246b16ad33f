"""The passes, in the order in which ``convert`` runs them."""

from tpugraph.passes.batch_norm import BatchNorm
from tpugraph.passes.dense_rows import DenseRows
from tpugraph.passes.entry_points import EntryPoints
from tpugraph.passes.gather_rows import GatherRows
from tpugraph.passes.infeed import Infeed
from tpugraph.passes.inline_functions import InlineFunctions
from tpugraph.passes.join_tables import JoinTables
from tpugraph.passes.outfeed import Outfeed
from tpugraph.passes.pad_batches import PadBatches
from tpugraph.passes.pad_lookups import PadLookups
from tpugraph.passes.partition import Partition
from tpugraph.passes.placement import Placement
from tpugraph.passes.prune import Prune
from tpugraph.passes.replica_program import ReplicaProgram
from tpugraph.passes.replicate import Replicate
from tpugraph.passes.resource_variables import ResourceVariables
from tpugraph.passes.separate_rows import SeparateRows
from tpugraph.passes.shard_tables import ShardTables
from tpugraph.passes.static_shapes import StaticShapes
from tpugraph.passes.training_loop import TrainingLoop
from tpugraph.tpu.pipeline import Pass

_IN_ORDER: tuple[type[Pass], ...] = (
    Prune,
    InlineFunctions,
    ResourceVariables,
    PadBatches,
    SeparateRows,
    StaticShapes,
    PadLookups,
    JoinTables,
    Placement,
    BatchNorm,
    DenseRows,
    Partition,
    ShardTables,
    Outfeed,
    GatherRows,
    Infeed,
    TrainingLoop,
    Replicate,
    EntryPoints,
)

PASSES = tuple(step for step in _IN_ORDER if step not in (PadBatches, SeparateRows, GatherRows))
"""Every pass of the default pipeline, that of training, in order."""

OF_REPLICAS: tuple[type[Pass], ...] = tuple(
    ReplicaProgram if step is Partition else step
    for step in PASSES
    if step not in (JoinTables, BatchNorm, DenseRows, ShardTables)
)
"""Every pass for training a program that is written for one replica: it is replicated unchanged."""

WITHOUT_TRAINING = tuple(
    step for step in _IN_ORDER if step not in (PadLookups, JoinTables, BatchNorm, DenseRows, Outfeed)
)
"""Every pass of the pipeline of evaluation and prediction, in order."""

PIPELINES = {"train": PASSES, "eval": WITHOUT_TRAINING, "predict": WITHOUT_TRAINING}
"""The pipeline of each mode."""
