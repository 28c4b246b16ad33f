"""Single places along the rows of a batch that are picked by a constant: the third row, or the last one, of a batch of three."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, follows_batch
from tpugraph.ir import Node
from tpugraph.partition.two_readings import constant_behind


@dataclass(frozen=True)
class _Pick:
    """A number that names a place along the rows.

    Attributes:
        node: the op that takes, or moves, what is there.
        number: the place, counted from zero.
        firsts: the constants that hold it, by name.
        behind: those that hold the next place.
    """

    node: Node
    number: int
    firsts: list[str]
    behind: list[str]


def literal_picks(placing: Placing) -> list[str]:
    """What the user should know of: a place along the rows, read as a number of the model, that may be the last one, or half-way."""
    rows = placing.d.rows
    found: dict[str, str] = {}
    for pick in _picks(placing) if rows > 1 and not placing.d.constants.opened else ():
        names = ",".join(dict.fromkeys((*pick.firsts, *pick.behind)))
        follows = [f"{_flag(pick, formula)} if it is {words} of any batch" for formula, words in _ways(pick, rows)]
        if follows:
            found[names] = (
                f"'{pick.node.name}' ({pick.node.op}) reads place {pick.number} of a core's batch of {rows} rows as place "
                f"{pick.number} of the whole batch, too: {', '.join(follows)}, --literals={names} if it is not"
            )
    return list(found.values())


def _flag(pick: _Pick, formula: str) -> str:
    after = "rows" if formula == "rows-1" else f"{formula}+1"
    told = dict.fromkeys(pick.firsts, formula) | dict.fromkeys(pick.behind, after)
    return f"--batch_constants={','.join(f'{name}={what}' for name, what in told.items())}"


def _ways(pick: _Pick, rows: int) -> list[tuple[str, str]]:
    """What a place may be of the rows, as a formula and in words; by one place rows are rolled for its own sake."""
    last = pick.number == rows - 1 and not (pick.node.op in ops.ROLLS and pick.number == 1)
    found = [("rows-1", "the last one")] if last else []
    return found + ([("rows//2", "half-way")] if pick.number == rows // 2 else [])


def _picks(placing: Placing) -> Iterator[_Pick]:
    """The places along the rows that constants name of which nothing is said."""
    for node in placing.verdicts:
        pick = _begin(placing, node) if node.op in ops.STRIDED_SLICES else _numbered(placing, node)
        if pick and all(placing.d.constants.choice(name) is None for name in (*pick.firsts, *pick.behind)):
            yield pick


def _begin(placing: Placing, node: Node) -> _Pick | None:
    """The one row that a slice takes. Its gradient has constants of its own."""
    begin, end = (fixed(operand) for operand in node.inputs[1:3])
    dims = placing.dims(node.inputs[0])
    if begin is None or end is None or len(begin) != 1 or not dims or not _holds_rows(placing, dims[0]):
        return None  # a formula computes a constant of one number
    axis, made, place = places(node, len(dims))[0]
    if axis != 0 or made is not None or place != 0 or begin[0] < 1 or end[0] != begin[0] + 1:
        return None
    alike = [other for other in placing.verdicts if other.op in ops.SLICE_GRADIENTS and placing.dims(other.out()) == dims
             and (fixed(other.inputs[1]), fixed(other.inputs[2])) == (begin, end)]  # fmt: skip
    firsts = [constant_behind(tensor).name for tensor in (node.inputs[1], *(other.inputs[1] for other in alike))]
    behind = [constant_behind(tensor).name for tensor in (node.inputs[2], *(other.inputs[2] for other in alike))]
    return _Pick(node, begin[0], firsts, behind)


def _numbered(placing: Placing, node: Node) -> _Pick | None:
    """The one number by which rows are picked, or rolled."""
    if node.op not in ops.ROLLS | ops.PICKS:
        return None
    numbers, axes = fixed(node.inputs[1]), fixed(node.inputs[2]) if len(node.inputs) > 2 else [0]
    dims = placing.dims(node.inputs[0])
    if not numbers or len(numbers) != 1 or numbers[0] < 1 or not dims or axes is None or len(axes) != 1:
        return None
    if not _holds_rows(placing, dims[axes[0] % len(dims)]):
        return None
    return _Pick(node, numbers[0], [constant_behind(node.inputs[1]).name], [])


def _holds_rows(placing: Placing, size: Size) -> bool:
    return follows_batch(size) and placing.d.sizes.at(size) == placing.d.rows
