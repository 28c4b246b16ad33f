"""What the placement analysis asks for, made in the graph: collectives at the cheapest places, sizes written anew."""

from tpugraph.partition.all_or_some import ends_of_rows
from tpugraph.partition.bounds_of_rows import literal_bounds
from tpugraph.partition.demands import Demands
from tpugraph.partition.doubts import literal_reshapes, refuse_doubts
from tpugraph.partition.insertion import Partition
from tpugraph.partition.kept_numbers import kept_numbers
from tpugraph.partition.loss_reduction import reduction
from tpugraph.partition.one_over_rows import literal_means
from tpugraph.partition.placed_step import analyse
from tpugraph.partition.remade_constants import chosen_reading
from tpugraph.partition.row_formulas import compute_by_formulas, parted
from tpugraph.partition.shapes_in_doubt import literal_shapes

__all__ = [
    "Demands",
    "Partition",
    "analyse",
    "chosen_reading",
    "compute_by_formulas",
    "ends_of_rows",
    "kept_numbers",
    "literal_bounds",
    "literal_means",
    "literal_reshapes",
    "literal_shapes",
    "parted",
    "reduction",
    "refuse_doubts",
]
