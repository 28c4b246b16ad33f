"""Rows that are picked by a number which may be a share of the rows: the middle one, the last one, that of a percentile."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.evidence import Picked, picked_rows, picks_of_sorted, reading_of_place
from tpugraph.analysis.evidence.readings import number_in
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, follows_batch, known
from tpugraph.ir import Node
from tpugraph.partition.two_readings import in_doubt_alone, refusal_of
from tpugraph.support.errors import ConversionError


def refuse_places(placing: Placing, count: int) -> None:
    """Refuse a row that is picked by a number of which nothing says whether it grows with the batch.

    Raises:
        ConversionError: it names the constant, or the one that the number is computed of, and the flags that settle it.
    """
    d = placing.d
    written: dict[Node, int] = {}
    first: Picked | None = None
    for picked in picked_rows(d) if d.rows > 1 else ():
        elements = d.elements(picked.operand) or ()
        size = elements[picked.place] if picked.place < len(elements) else None
        behind, number = picked.behind, picked.written
        if picked.node not in placing.verdicts or (size is not None and follows_batch(size)):
            continue
        if number is None:
            _refuse_computed(placing, picked, count)
            continue
        if number >= 1 and d.constants.choice(behind.name) is None and picks_of_sorted(d, picked):
            written[behind] = number
            if first is None and not picked.gradient:
                first = picked
    if first is not None:
        raise _refusal(placing, first, written, count)


def _refuse_computed(placing: Placing, picked: Picked, count: int) -> None:
    """Refuse a number that is computed of a constant which may be the rows."""
    d = placing.d
    made_of = placing.graph.ancestors([picked.operand.node], data_only=True)
    if any(node in made_of for node in placing.graph.of_type(*ops.INPUTS)):
        return
    name = next((node.name for node in made_of if in_doubt_alone(d, node)), None)
    if name is not None:
        raise refusal_of(
            placing, picked.node, name, ("is the size of the batch", "is not"),
            f"'{picked.node.name}' ({picked.node.op}) picks a row of the batch by a number made of '{name}', which is as many as a "
            f"core's batch has rows, or so many times them: if it is that, it is {count} times as many for the whole batch",
        )  # fmt: skip


def _refusal(placing: Placing, picked: Picked, written: dict[Node, int], count: int) -> ConversionError:
    number = written[picked.behind]
    held = [node for node, other in written.items() if other == number]
    names = ",".join(node.name for node in held)
    rows, pairs = placing.d.rows, known(picked.rows)
    if isinstance(pairs, Poly) and len(pairs.c) > 2:
        return _refusal_of_pairs(placing, picked, held, pairs)
    reading = reading_of_place(number, rows)
    whole = rows * count
    words = f"{number * count} of {whole} rows" if reading is None else f"{reading.words.format(whole)} rows"
    return refusal_of(
        placing, picked.node, names, ("is a share of the rows", "is not"),
        f"'{picked.node.name}' ({picked.node.op}) picks number {number} of the sorted {rows} rows of a core's batch: if "
        f"'{picked.behind.name}' is a share of them, it is {words} for the whole batch; if it is a number of the "
        "model, it stays",
    )  # fmt: skip


def _refusal_of_pairs(placing: Placing, picked: Picked, held: list[Node], pairs: Poly) -> ConversionError:
    """The error of a place among all that pairs of rows make, which grow with the square of the rows."""
    rows, number = placing.d.rows, picked.written or 0
    many = pairs.at(rows)
    square = "rows*rows" if pairs.c == (0, 0, 1) else f"{pairs.c[2]}*rows*rows"
    share = f"{square}//2" if number == many // 2 else f"{square}-1" if number == many - 1 else None
    plain = share is not None and pairs.c[:2] == (0, 0) and all(number_in(node) == number for node in held)
    flag = ",".join(f"{node.name}={share}" for node in held)
    names = ",".join(node.name for node in held)
    told = f"--batch_constants={flag}" if plain else "compute it of tf.size or tf.shape of what is sorted,"
    return ConversionError(
        f"'{picked.node.name}' ({picked.node.op}) picks number {number} of the sorted {many} that pairs of the {rows} rows of a "
        f"core's batch make: if '{picked.behind.name}' is a share of them, it is another one for the whole batch; if it is a number "
        "of the model, it stays", node=picked.node, origin=placing.graph.source,
        fix=f"{told} if it is a share of them, --literals={names} if it is not",
    )  # fmt: skip
