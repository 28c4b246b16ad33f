"""What the placement analysis asks for, made in the graph: collectives at the cheapest places, sizes written anew."""

from tpugraph.partition.demands import Demands
from tpugraph.partition.doubts import refuse_doubts
from tpugraph.partition.insertion import Partition
from tpugraph.partition.literal_notes import literal_notes
from tpugraph.partition.loss_reduction import reduction
from tpugraph.partition.placed_step import analyse
from tpugraph.partition.remade_constants import chosen_reading
from tpugraph.partition.row_formulas import compute_by_formulas, parted

__all__ = [
    "Demands",
    "Partition",
    "analyse",
    "chosen_reading",
    "compute_by_formulas",
    "literal_notes",
    "parted",
    "reduction",
    "refuse_doubts",
]
