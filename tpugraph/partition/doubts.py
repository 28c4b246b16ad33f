"""Constants that may or may not be numbers of rows, and of which the result depends: refused, with the flags that settle them."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, follows_batch, known
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of
from tpugraph.partition import one_row
from tpugraph.partition.all_or_some import refuse_all_or_some, refuse_shares_of_one_row
from tpugraph.partition.bins_in_doubt import refuse_bins, refuse_bins_for_rows
from tpugraph.partition.bounds_of_rows import refuse_bounds, refuse_pads, refuse_places_beside_rows, refuse_rolls
from tpugraph.partition.numbered_constants import refuse_own_rows
from tpugraph.partition.numbers_met import refuse_met_numbers
from tpugraph.partition.numbers_of_rows import (
    refuse_counters,
    refuse_divisors,
    refuse_multiplied_means,
    refuse_one_less,
)
from tpugraph.partition.one_over_rows import refuse_factors
from tpugraph.partition.ones_in_doubt import refuse_ones
from tpugraph.partition.pairs_in_doubt import refuse_halved_pairs, refuse_pairs
from tpugraph.partition.parts_of_rows import refuse_parts
from tpugraph.partition.places_of_rows import refuse_places
from tpugraph.partition.reshapes_in_doubt import refuse_reshapes
from tpugraph.partition.row_by_row import (
    refuse_fixed_segments,
    refuse_open_segments,
    refuse_row_by_row,
    refuse_rows_kept,
)
from tpugraph.partition.shapes_in_doubt import refuse_coincident_shapes
from tpugraph.partition.shares_of_rows import refuse_shares
from tpugraph.partition.tall_matrices import refuse_tall_matrices
from tpugraph.partition.two_readings import beside_shares
from tpugraph.support.errors import ConversionError


def refuse_doubts(placing: Placing, count: int) -> None:
    """Refuse a constant that may or may not be a number of rows, where a variable would be given another value.

    Raises:
        ConversionError: it names the constant, what it decides, and the flags that settle it.
    """
    if placing.d.rows == 1:
        _refuse_contradicted(placing)
    _refuse_one_row(placing)
    refuse_own_rows(placing)
    refuse_row_by_row(placing)
    refuse_rows_kept(placing)
    refuse_fixed_segments(placing)
    refuse_open_segments(placing)
    refuse_reshapes(placing, count)
    refuse_pairs(placing, count)
    refuse_halved_pairs(placing)
    refuse_bins(placing, count)
    refuse_bins_for_rows(placing, count)
    refuse_pads(placing, count)
    refuse_parts(placing)
    refuse_bounds(placing)
    refuse_all_or_some(placing, count)
    refuse_shares_of_one_row(placing, count)
    refuse_ones(placing)
    refuse_places_beside_rows(placing)
    refuse_rolls(placing)
    _refuse_beside_shares(placing)
    refuse_shares(placing, count)
    refuse_places(placing, count)
    refuse_one_less(placing, count)
    refuse_divisors(placing, count)
    refuse_factors(placing, count)
    refuse_multiplied_means(placing, count)
    refuse_counters(placing, count)
    refuse_met_numbers(placing, count)
    refuse_coincident_shapes(placing, count)
    refuse_tall_matrices(placing, count)
    _refuse_contradicted(placing)  # of parts of one row nothing said more
    _refuse_computed(placing)


def _refuse_contradicted(placing: Placing) -> None:
    """Refuse a graph of one row in which numbers contradict each other: of an open batch, a 1 that Python wrote for the row, too."""
    d = placing.d
    for node, one, other in d.sizes.conflicts if d.ones else ():
        if not isinstance(node, Node) or not (isinstance(one, Poly) or isinstance(other, Poly)):
            continue
        if d.constants.opened or (node.outputs and not node.out().dtype.floating):
            what = f"a number is {one} by what it is computed of, and {other} by what reads it"
            raise one_row.refusal(what, node, placing.graph.source, d.rows)


def _refuse_computed(placing: Placing) -> None:
    """Refuse a number that is another one of all rows by what it is computed of than by what reads it: half of three may be."""
    d = placing.d
    for node, one, other in d.sizes.conflicts:
        if isinstance(node, Node) and node.outputs and not node.out().dtype.floating and d.elements(node.out()):
            raise ConversionError(
                f"'{node.name}' ({node.op}) is {one} by what it is computed of, and {other} by what reads it, where b is the rows "
                f"of a batch: of the {d.rows} rows of a core's batch both are one number", node=node, origin=placing.graph.source,
                fix="write the graph with another number of rows a core, of which the two differ",
            )  # fmt: skip


def _refuse_one_row(placing: Placing) -> None:
    """Refuse a graph of one row in which nothing tells where the row is, or a gradient has rows where its op says that none are."""
    d, origin = placing.d, placing.graph.source
    if not d.sums_left_out:
        return
    for node in d.untold.tiles:
        what = "of the gradient of a sum or a mean nothing says whether that is over the row"
        raise one_row.refusal(what, node, origin, d.rows)
    for node in d.untold.reshapes:
        what = "nothing says whether a reshape puts the row where it writes a 1, or where it leaves a dimension open"
        raise one_row.refusal(what, node, origin, d.rows)
    for node in (node for node in placing.verdicts if node.op in ops.SLICES):
        whole, part = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
        if any(follows_batch(a) and d.sizes.at(b) == 0 and known(b) == 0 for a, b in zip(whole, part, strict=False)):
            raise one_row.refusal(
                "a slice leaves nothing of it: the rows behind the first, or none", node, origin, d.rows
            )
    for node in (node for node in placing.verdicts if node.op in ops.RANGES):
        start, count = d.elements(node.inputs[0]), d.dims(node.out())
        if start and count and follows_batch(count[0]) and d.in_doubt(start[0]) and d.sizes.at(start[0]) == 1:
            what = "numbers of rows begin at one, or behind as many as the rows"
            raise one_row.refusal(what, node, origin, d.rows)
    for node in (node for node in placing.verdicts if node.op in ops.SLICE_GRADIENTS):
        if one_row.of_new_dimensions(d, node):
            what = "the gradient of pairs of rows leaves out a sum over one of the two"
            raise one_row.refusal(what, node, origin, d.rows)
    for node in leading_to_loss(d) if d.rows == 1 else ():
        if node in placing.verdicts and node.op in ops.RESHAPES and _may_be_columns(d, node):
            what = "nothing says whether what is reshaped has the row in front, or in the 1 that is written behind"
            raise one_row.refusal(what, node, origin, d.rows)
        if node in placing.verdicts and node.op in ops.RESHAPES and _may_mix_rows(d, node):
            what = "of what is reshaped behind other dimensions, nothing says whether the rows come first then"
            raise one_row.refusal(what, node, origin, d.rows)


def _may_be_columns(d: Dimensions, node: Node) -> bool:
    """Whether rows of several batches are reshaped to as many places as there are batches, and to a 1 behind these."""
    shape, made = source_of(node.inputs[1]).node, d.dims(node.out()) or ()
    wanted, before = fixed(node.inputs[1]), [size for size in d.dims(node.inputs[0]) or () if d.sizes.at(size) != 1]
    if not wanted or -1 in wanted or len(before) != 1 or len(wanted) != len(made) or not follows_batch(before[0]):
        return False
    if d.constants.choice(shape.name) is not None or shape.name in d.constants.shape_of:
        return False
    place = next((place for place, size in enumerate(made) if d.sizes.at(size) > 1), len(made))
    return follows_batch(made[place]) and 1 in wanted[place + 1 :]


def _may_mix_rows(d: Dimensions, node: Node) -> bool:
    """Whether a reshape may put the row in front of a dimension that was in front of it, as one from time to batch does.

    A shape that is computed by products is that of the operand then, or one leaves another dimension open than the one that
    seems to hold the row.
    """
    before, made = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
    shape, wanted = source_of(node.inputs[1]).node, fixed(node.inputs[1])
    if len(made) < 2 or len(before) < 2:
        return False
    if wanted is None:
        parts = [source_of(part).node for part in shape.inputs] if shape.op in ops.PACKS else []
        alike = [d.sizes.at(size) for size in before] == [d.sizes.at(size) for size in made]
        return alike and any(part.op in ops.SCALINGS for part in parts)
    rows = next((place for place, size in enumerate(before) if follows_batch(size)), 0)
    joined = d.sizes.at(before[rows]) > 1 and any(d.sizes.at(size) > 1 for size in before[:rows])
    return joined and -1 in wanted and len(wanted) == len(made) and not follows_batch(made[wanted.index(-1)])


def _refuse_beside_shares(placing: Placing) -> None:
    """Refuse a number that is said to be a share of the rows in one constant, and that others hold of which nothing is said."""
    others = beside_shares(placing.d)
    if not others:
        return
    shares, rows = placing.d.constants.shares, placing.d.rows
    name, number = next(iter(others.items()))
    said = [held for value, held in shares.items() if value in others.values()]
    raise ConversionError(
        f"'{name}' is {number} as '{shares[number]}', which --batch_constants says to be a share of the {rows} rows of a "
        "core's batch: gradients hold the sizes of the forward step once more, and nothing says whether this is one",
        node=name, origin=placing.graph.source,
        fix=f"--batch_constants={','.join([*said, *others])} without those that are numbers of the model: these to --literals",
    )  # fmt: skip
