"""How entries of a core's rows are computed with element by element, among them numbers that mean places on this core.

Such a number lacks the places of the cores before. Of a row's number, of so many times it, and of that and what says which
place of the row is meant, as many places as a core has are missing; of what else is computed with it, nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant_at
from tpugraph.analysis.placements import REPLICATE, Entries, Partial, Placement, Replicate, Shard, Sized, holds_entries
from tpugraph.analysis.placing import Placing, Verdict
from tpugraph.analysis.questions import Answer, ask
from tpugraph.analysis.sizes import depends_on_data
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of

COUNTS = Entries("shape")
OWN = Entries("local")

_ADDITIONS, _SUBTRACTIONS = ops.computing(np.add), ops.computing(np.subtract)
_MULTIPLICATIONS, _QUOTIENTS = ops.computing(np.multiply), ops.computing(np.floor_divide)
_AT_LEAST, _NOT_BELOW = ops.computing(np.maximum), ops.computing(np.greater_equal)
_REMAINDERS = ops.computing(np.remainder, np.fmod)
_HANDED_ON = ops.IDENTITIES | ops.CASTS | ops.ENTER | ops.SHAPED_ANEW | ops.STRIDED_SLICES | ops.UNPACKS | ops.PICKS


def entry_by_entry(p: Placing, node: Node, inputs: list[Placement], data: Sequence[int], entries: Entries) -> Verdict:
    """Operands of which some are entries and none has rows."""
    wants, rank = dict[int, Placement](), max((p.rank(node.inputs[i]) for i in data), default=0)
    if any(holds_all_entries(p, node, i, inputs[i], rank) for i in data):
        return p.everywhere(node, inputs, "entries of all cores")
    places = [i for i in data if inputs[i] == OWN and not p.is_zero(node.inputs[i])]
    made = _computed_of_places(p, node, inputs, data, places) if places else _role_after(node, entries)
    if made is None:
        return numbered(p, node, inputs, places)
    for i in data:
        counts = inputs[i] == COUNTS != entries  # read as a number: that of all cores
        apart = holds_entries(inputs[i]) and 0 < p.rank(node.inputs[i]) < rank  # along another dimension of the output
        if counts or apart or isinstance(inputs[i], Partial | Sized):
            wants[i] = REPLICATE
    return Verdict([made] * len(node.outputs or ()), wants, why="entry by entry")


def _computed_of_places(
    p: Placing, node: Node, inputs: list[Placement], data: Sequence[int], places: list[int]
) -> Entries | None:
    """What is computed of numbers of places and of others, or of each other; None where what they lack comes in otherwise."""
    kind, alone = node.out().dtype, len(places) == len(data)
    whole_number = not kind.floating and kind.name != "bool"
    if p.d.level(node.out()) is not None:
        return Entries("values")  # zeros like them
    if len(data) == 1:
        return OWN if whole_number and node.op in ops.IDENTITIES | ops.CASTS else None
    above_zero = places == [data[0]] and p.is_zero(node.inputs[data[1]]) and _is_place(node.inputs[data[0]])
    if above_zero and node.op in _AT_LEAST | _NOT_BELOW:
        return OWN if node.op in _AT_LEAST else Entries("values")
    if alone and kind.name == "bool":
        return Entries("values") if len({places_per_row(p, node.inputs[i]) for i in places}) == 1 else None
    if whole_number and (node.op in _ADDITIONS or (node.op in _SUBTRACTIONS and data[0] in places)):
        return OWN
    if alone or not whole_number or not all(isinstance(inputs[i], Replicate) for i in data if i not in places):
        return None
    if node.op in _MULTIPLICATIONS:
        return OWN
    per_row, by = places_per_row(p, node.inputs[data[0]]), constant_at(node.inputs[data[1]])
    whole_rows = (
        places == [data[0]] and per_row and by is not None and by.size == 1 and by.item() and not per_row % by.item()
    )
    if node.op in _QUOTIENTS | _REMAINDERS and whole_rows:
        return OWN if node.op in _QUOTIENTS else Entries("values")
    return None


def _is_place(tensor: Tensor) -> bool:
    """Whether a number is a place as it was found, not computed of one."""
    return source_of(tensor, _HANDED_ON).node.op not in ops.ELEMENTWISE


def numbered(p: Placing, node: Node, inputs: list[Placement], places: Sequence[int]) -> Verdict:
    """A node reads places on this core as those of all cores: as entries, where the graph tells how many a core has."""
    if any(places_per_row(p, node.inputs[i]) is None for i in places):
        return p.everywhere(node, inputs, "reads places on this core, as those of all cores are others")
    numbers = Entries("values")
    wants: dict[int, Placement] = {i: REPLICATE for i, s in enumerate(inputs) if isinstance(s, Partial | Sized)}
    wants.update(dict.fromkeys(places, numbers))
    return Verdict([numbers] * len(node.outputs or ()), wants, why="places among those of all cores")


def holds_all_entries(p: Placing, node: Node, index: int, placement: Placement, rank: int) -> bool:
    """Whether every core holds the entries of all cores: they meet those of all, and no core's own."""
    dims = p.d.dims(node.inputs[index]) or ()
    return isinstance(placement, Replicate) and len(dims) == rank > 0 and depends_on_data(dims[0])


def _role_after(node: Node, entries: Entries) -> Entries:
    changed = entries.role == "distinct" and node.op not in ops.IDENTITIES | ops.CASTS
    return Entries("by_id") if changed else entries


def beside_places(p: Placing, node: Node, inputs: list[Placement], parts: Sequence[int]) -> Verdict | None:
    """Columns put together of which some are places on this core: the first alone says the row, as in what finds places."""
    if not any(inputs[i] == OWN for i in parts):
        return None
    if inputs[parts[0]] == OWN and not any(inputs[i] == OWN for i in parts[1:]):
        return Verdict(
            [OWN], {i: REPLICATE for i in parts if isinstance(inputs[i], Partial | Sized)}, why="entry by entry"
        )
    return numbered(p, node, inputs, [i for i in parts if inputs[i] == OWN])


def in_columns(p: Placing, places: Tensor) -> bool:
    """Whether places stand in several columns, of which the first alone says the row.

    A column of them that is broadcast with others says so in each.
    """
    behind = reached(
        [places] if _is_wide(p, places) else [],
        lambda t: (
            (i for i in t.node.inputs if p.read(i) == OWN and _is_wide(p, i)) if t.node.op in ops.ELEMENTWISE else ()
        ),
    )
    return any(t.node.op not in ops.ELEMENTWISE for t in behind)


def _is_wide(p: Placing, tensor: Tensor) -> bool:
    dims = p.dims(tensor) or []
    return len(dims) > 1 and dims[-1] != 1


def columns_taken(p: Placing, node: Node, inputs: list[Placement], taken: Sequence[int] | None) -> Verdict:
    """Some columns of places, of which the first alone says the row: it says so of what is made if it is the first there."""
    if not taken or 0 in taken[1:]:
        return numbered(p, node, inputs, [0])
    return Verdict([OWN if taken[0] == 0 else Entries("values")], why="entry by entry")


def places_per_row(p: Placing, tensor: Tensor) -> int | None:
    """How many places among those of a core numbers go on by from one row to the next, as far as the graph tells; else None."""
    found: int | None = ask(_PlacesPerRow(p).of, tensor)
    return found


def places_of(p: Placing, numbers: Tensor, table: Placement) -> bool:
    """Whether numbers of places on this core mean those of its own rows of a table, as far as the graph tells."""
    per_row = places_per_row(p, numbers)
    return not isinstance(table, Shard) or per_row is None or table.plain() == Shard(0, 1, per_row)


class _PlacesPerRow:
    def __init__(self, p: Placing) -> None:
        self._p = p

    def of(self, tensor: Tensor) -> Answer:
        node, rows = tensor.node, self._p.made(tensor)
        if isinstance(rows, Shard):
            return rows.shift if isinstance(rows.shift, int) and rows.shift else None
        if node.op in ops.PLACES_OF_TRUE:
            mask = self._p.read(node.inputs[0])
            return mask.inner if isinstance(mask, Shard) and (mask.axis, mask.outer) == (0, 1) else None
        if node.op in _HANDED_ON:
            return (yield self.of, node.inputs[0])
        if node.op not in _ADDITIONS | _SUBTRACTIONS | _MULTIPLICATIONS | _QUOTIENTS:
            return None
        places, found = [operand for operand in node.inputs if self._p.read(operand) == OWN], []
        for operand in places:
            found.append((yield self.of, operand))
        return None if None in found or not found else self._computed(node, places, found)

    def _computed(self, node: Node, places: list[Tensor], found: list[int]) -> int | None:
        """Of a sum or a difference of numbers of places, or of a multiple or a quotient by a constant."""
        if node.op in _ADDITIONS | _SUBTRACTIONS:
            other = found[1] if len(found) == 2 else 0
            return found[0] + (other if node.op in _ADDITIONS else -other)
        by = next((constant_at(operand) for operand in node.inputs if operand not in places), None)
        if by is None or by.size != 1 or by.dtype.kind not in "iuf" or not by.item() or not np.isfinite(by.item()):
            return None
        return found[0] * int(by.item()) if node.op in _MULTIPLICATIONS else found[0] // int(by.item())
