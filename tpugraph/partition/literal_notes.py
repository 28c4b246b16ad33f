"""Numbers that are read as numbers of the model, and may be made of the rows: what the report says of them."""

from __future__ import annotations

from tpugraph.analysis.placing import Placing
from tpugraph.partition.all_or_some import ends_of_rows
from tpugraph.partition.bounds_of_rows import literal_pads
from tpugraph.partition.divided_sums import literal_divisors
from tpugraph.partition.kept_numbers import kept_numbers
from tpugraph.partition.made_values import literal_makers
from tpugraph.partition.one_over_rows import literal_means
from tpugraph.partition.picked_places import literal_picks
from tpugraph.partition.reshapes_in_doubt import literal_reshapes
from tpugraph.partition.shapes_in_doubt import literal_shapes
from tpugraph.partition.shares_of_rows import literal_shares

_KINDS = (
    literal_shares, literal_pads, literal_means, literal_divisors, literal_reshapes, kept_numbers, literal_shapes, ends_of_rows,
    literal_picks, literal_makers,
)  # fmt: skip


def literal_notes(placing: Placing) -> list[str]:
    """What the user should know of each such number: how it is read, and the flags that settle it."""
    return [note for notes_of in _KINDS for note in notes_of(placing)]
