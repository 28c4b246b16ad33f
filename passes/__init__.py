"""The passes, in the order in which ``convert`` runs them."""

from passes.cross_replica_sum import CrossReplicaSum
from passes.entry_points import EntryPoints
from passes.infeed import Infeed
from passes.outfeed import Outfeed
from passes.placement import Placement
from passes.prune import Prune
from passes.replicate import Replicate
from passes.resource_variables import ResourceVariables
from passes.split_batch import SplitBatch
from passes.static_shapes import StaticShapes
from passes.training_loop import TrainingLoop
from passes.varying_updates import VaryingUpdates
from tpugraph.pipeline import Pass

PASSES: tuple[type[Pass], ...] = (
    Prune,
    ResourceVariables,
    StaticShapes,
    Placement,
    SplitBatch,
    CrossReplicaSum,
    VaryingUpdates,
    Outfeed,
    Infeed,
    TrainingLoop,
    Replicate,
    EntryPoints,
)
"""Every pass of the default pipeline, in order."""
