"""Rows of a batch that are taken up to a constant below their number: it may be a share of them, as ``rows // 2`` is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import follows_batch
from tpugraph.ir import Node
from tpugraph.partition.bounds_of_rows import Bound, bounds_of, trained
from tpugraph.partition.two_readings import constant_behind
from tpugraph.support.errors import ConversionError


@dataclass(frozen=True)
class _Share:
    """A constant below the rows of a batch, up to which rows are taken: it may be a share of them, as ``rows // 2`` is.

    Attributes:
        node: the op that takes them.
        constant: the constant.
        number: what it holds.
        rows: how many rows there are.
        trains: whether what is taken is written to a variable in the end, or the loss is made of it.
        largest: whether the largest are taken.
    """

    node: Node
    constant: Node
    number: int
    rows: int
    trains: bool
    largest: bool


def _shares(placing: Placing) -> Iterator[_Share]:
    """The constants that may be shares of the rows, and of which nothing is said."""
    d, kept = placing.d, trained(placing)
    for bound in bounds_of(placing) if d.rows > 1 else ():
        behind, node = constant_behind(bound.operand), bound.node
        numbers, sizes = fixed(behind.out()), d.elements(bound.operand) or ()
        if numbers is None or d.constants.choice(behind.name) is not None or bound.rows.c[0]:
            continue
        number = numbers[bound.place] if bound.place < len(numbers) else 0
        size = sizes[bound.place] if bound.place < len(sizes) else None
        rows = bound.rows.at(d.rows)
        half = rows // 2 == 1 and bound.role == "end"
        least = 1 if half or bound.role == "count" else 2  # a slice from the second row on takes no share of them
        if least <= number < rows and (size is None or not follows_batch(size)) and not _begins_every(bound, number):
            yield _Share(node, behind, number, rows, node in kept, bound.role == "count")


def _begins_every(bound: Bound, number: int) -> bool:
    """Whether every so many rows are taken, and it is said which of so many: anchors, and what they are compared with."""
    if bound.role != "begin" or not bound.node.has_attr("begin_mask"):
        return False
    steps = fixed(bound.node.inputs[3])
    return steps is not None and number < steps[bound.place]


def refuse_shares(placing: Placing, count: int) -> None:
    """Refuse a constant that may be a share of the rows, where what is trained depends on which of the two it is.

    The largest of several rows (``top_k`` with ``k=1``) and the first of three are more often meant than a share of them: the
    report has a note.
    """
    shares = [share for share in _shares(placing) if share.trains]
    share = next((s for s in shares if s.number > 1 or (s.rows == 2 and not s.largest)), None)
    if share is None:
        return
    node, number, d = share.node, share.number, placing.d
    names = ",".join(dict.fromkeys(s.constant.name for s in shares if s.number == number))
    flag = f"--batch_constants={names}"
    if number == 1:  # every 1 of the gradients might be that share, too
        flag = "write it as tf.shape(x)[0] // 2, or the graph with more rows a core,"
    raise ConversionError(
        f"'{node.name}' ({node.op}) takes rows of the batch up to {number}, and a core's batch has {d.rows} rows: if "
        f"'{share.constant.name}' is a share of them, as rows // 2 is, it is {number * count} for the whole batch; if it is a "
        f"number of the model, it stays {number}", node=node, origin=placing.graph.source,
        fix=f"{flag} if it is a share of the rows, --literals={names} if it is not",
    )  # fmt: skip


def literal_shares(placing: Placing) -> list[str]:
    """What the user should know of: rows of the batch taken up to a constant that may be a share of them."""
    found = {
        share.constant.name: f"'{share.node.name}' ({share.node.op}) takes {share.number} of the {share.rows} rows of a core's "
        f"batch: read as a number of the model; {_grows(share)} if it grows with the batch, "
        f"--literals={share.constant.name} if it does not"
        for share in _shares(placing)
    }  # fmt: skip
    return list(found.values())


def _grows(share: _Share) -> str:
    """What settles that rows are taken up to a share of them; a half of three rows, as ``rows // 2`` is, is no third of more."""
    half = share.number == 1 and share.rows == 3 and not share.largest
    return (
        f"write tf.shape(x)[0] // 2 for '{share.constant.name}'" if half else f"--batch_constants={share.constant.name}"
    )
