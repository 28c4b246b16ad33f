"""What the placement analysis asks for, made in the graph: collectives at the cheapest places, sizes written anew."""

from tpugraph.partitioning.demands import Demands
from tpugraph.partitioning.doubts import literal_bounds, refuse_doubts
from tpugraph.partitioning.loss_reduction import reduction
from tpugraph.partitioning.partition import Partition
from tpugraph.partitioning.placed_step import analyse

__all__ = ["Demands", "Partition", "analyse", "literal_bounds", "reduction", "refuse_doubts"]
