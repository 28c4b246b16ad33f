"""Rows of a batch that are taken one by one, or by numbers that Python made: those of one core's batch alone."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placements import Replicate, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import ROWS, Unknown, follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.partition import one_row
from tpugraph.support.errors import ConversionError

_KEPT = frozenset({*ops.READS, *ops.VARIABLES})
"""What gives the value of a variable, a ref variable being its own value."""


def refuse_row_by_row(placing: Placing) -> None:
    """Refuse rows of a batch that are taken one by one, all of them: the whole batch has more.

    Raises:
        ConversionError: it names the last one.
    """
    rows = placing.d.rows
    taken: dict[Tensor, set[int]] = {}
    if rows == 1:
        _refuse_the_row(placing)
    for node, number in _single_rows(placing) if rows > 1 else ():
        numbers = taken.setdefault(node.inputs[0], set())
        numbers.add(number)
        if numbers >= set(range(rows)):
            raise _refusal(placing, node, "takes one row of the batch", "is taken by itself")
    given: set[int] = set()
    for node, number in _single_gradients(placing) if rows > 1 and not _takes_apart(placing) else ():
        given.add(number)
        if given >= set(range(rows)):
            raise _refusal(placing, node, "puts a gradient at one row of the batch", "has a gradient of its own")


def refuse_rows_kept(placing: Placing) -> None:
    """Refuse rows of the batch that meet as many rows of a variable, as the state that a batch hands on to the next one.

    Of the whole batch there are more than the variable has.

    Raises:
        ConversionError: it names the op where they meet.
    """
    d = placing.d
    for node, one, other in d.sizes.conflicts if d.rows > 1 else ():
        if not isinstance(node, Node) or node.op not in ops.ELEMENTWISE or {one, other} != {ROWS, d.rows}:
            continue
        kept = [source_of(t).node for t in node.inputs if isinstance(placing.made(t), Replicate) and d.dims(t)]
        if any(source.op in _KEPT for source in kept):
            raise ConversionError(
                f"'{node.name}' ({node.op}) computes rows of the batch with as many rows that a variable keeps: of the whole batch "
                "there are more than it has", node=node, origin=placing.graph.source,
                fix="keep what does not grow with the batch, as a mean over it, or train with one core (--num_replicas=1)",
            )  # fmt: skip


def _refuse_the_row(placing: Placing) -> None:
    """Refuse the one row of a batch that the loss takes by its number: it may be the first of all rows, or each of them."""
    forward = leading_to_loss(placing.d)
    for node, _ in _single_rows(placing) if placing.d.sums_left_out else ():
        if node in forward and node.out().dtype.floating:
            raise one_row.refusal(
                "it is taken by its number, as the first of several rows might be", node, placing.graph.source
            )


def _refusal(placing: Placing, node: Node, what: str, each: str) -> ConversionError:
    return ConversionError(
        f"'{node.name}' ({node.op}) {what}, and beside it each of the {placing.d.rows} rows of a core's batch {each}: of the whole "
        "batch there are more than the graph has nodes for", node=node, origin=placing.graph.source,
        fix="compute with all rows at once, or with tf.map_fn, instead of in a loop of Python",
    )  # fmt: skip


def _takes_apart(placing: Placing) -> bool:
    """Whether rows are taken apart as well, and their gradients put together again therefore."""
    taking = ops.SLICES | ops.UNPACKS | ops.PICKS | (ops.SPLITS if placing.d.rows == 2 else frozenset())  # two halves
    return any(0 in placing.d.axes(t) for node in placing.verdicts if node.op in taking for t in node.inputs)


def _single_gradients(placing: Placing) -> Iterator[tuple[Node, int]]:
    """The nodes that put the gradient of one row, which nothing else takes, among those of all rows, with its number."""
    for node in placing.verdicts:
        if node.op not in _PUTTING or 0 not in placing.d.axes(node.out()):
            continue
        if node.op in ops.CONCATS:
            numbers = _put_beside_zeros(placing, node)
        elif node.op in ops.SLICE_GRADIENTS:
            numbers = _row_of_slice(placing, node)
        else:
            numbers = fixed(source_of(node.inputs[_PUTTING[node.op]], ops.IDENTITIES | ops.SHAPED_ANEW)) or []
        if len(numbers) == 1:
            yield node, numbers[0]


_PUTTING = {
    **dict.fromkeys(ops.CONCATS | ops.SLICE_GRADIENTS | ops.UNSORTED_SEGMENTS, 1),
    **dict.fromkeys(ops.ONE_HOTS, 0),
}
"""Ops that put something at a row that they are told by a number, and the operand that says which."""


def _row_of_slice(placing: Placing, node: Node) -> list[int]:
    """The one row at which the gradient of a slice is put; nothing where that is of several."""
    begin, end = fixed(node.inputs[1]), fixed(node.inputs[2])
    for axis, made, place in places(node, placing.rank(node.out())) if node.has_attr("shrink_axis_mask") else ():
        if (
            axis == 0
            and begin
            and place >= 0
            and (made is None or (end is not None and end[place] == begin[place] + 1))
        ):
            return [begin[place]]
    return []


def _put_beside_zeros(placing: Placing, node: Node) -> list[int]:
    """Which of as many parts as there are rows, each of one row, is not zero, where that is one."""
    parts = node.inputs[:-1]
    if len(parts) != placing.d.rows or any((part.shape or (0,))[0] != 1 for part in parts):
        return []
    return [number for number, part in enumerate(parts) if not placing.is_zero(part)]


def refuse_fixed_segments(placing: Placing) -> None:
    """Refuse rows of a batch that are put together by numbers which no input leads to: the whole batch has more rows.

    Raises:
        ConversionError: it names what puts them together, and the numbers.
    """
    found = [node for node in placing.verdicts if node.op in ops.SEGMENTS]
    graph = placing.graph
    of_input = graph.descendants(graph.of_type(*ops.INPUTS), data_only=True) if found else {}
    for node in found:
        rows, numbers = source_of(node.inputs[-2], ops.UNIQUE), node.inputs[-1]
        made = placing.made(rows)
        own = 0 in placing.d.axes(rows) or (isinstance(made, Shard) and made.axis == 0)
        if own and numbers.node not in of_input and not placing.d.axes(numbers):
            raise ConversionError(
                f"'{node.name}' ({node.op}) puts rows of the batch together by the numbers '{numbers}', which the input has no part "
                f"in: they are those of the {placing.d.rows} rows of a core's batch, and the whole batch has more",
                node=node, origin=graph.source,
                fix="tf.nn.safe_embedding_lookup_sparse in its place, or tf.reduce_sum(tf.nn.embedding_lookup(table, ids), 1)",
            )  # fmt: skip


def refuse_open_segments(placing: Placing) -> None:
    """Refuse segments of which data say how many there are where they meet rows of the batch, one each or one for all.

    Raises:
        ConversionError: it names the segments, and where they meet the rows.
    """
    d = placing.d
    opened: dict[Unknown, Node] = {}
    for node in placing.verdicts:
        segments: Node | None = node if node.op in ops.SEGMENTS else None
        if node.op in ops.RESHAPES and opened:
            sizes = (size.root() for size in d.dims(node.inputs[0]) or () if isinstance(size, Unknown))
            segments = next((opened[size] for size in sizes if size in opened), None)
        if segments is None:
            continue
        made = d.dims(node.out()) or ()
        for size in made[:1] if node is segments else made:
            if isinstance(size, Unknown) and d.sizes.at(size) < 0:
                opened.setdefault(size.root(), segments)
    for size, rows, where in d.sizes.beside_open if opened else ():
        segments = opened.get(size.root()) if isinstance(size, Unknown) else None
        if segments is None or not follows_batch(rows):
            continue
        met = f"'{where.name}' ({where.op}) puts" if isinstance(where, Node) else "the graph puts"
        raise ConversionError(
            f"'{segments.name}' ({segments.op}) makes as many segments as the numbers '{segments.inputs[-1]}' say when a "
            f"step runs, and {met} them beside rows of the batch: nothing says that each row has one",
            node=segments, origin=placing.graph.source,
            fix="tf.math.unsorted_segment_sum, or its kin, with a number of segments: tf.shape(x)[0] where each row of x has one",
        )  # fmt: skip


def _single_rows(placing: Placing) -> Iterator[tuple[Node, int]]:
    """The nodes that take single rows of the batch by a constant number, with that."""
    for node in placing.verdicts:
        axes = placing.d.axes(node.inputs[0]) if node.inputs else []
        if not axes or not node.outputs:
            continue
        if node.op in ops.UNPACKS:
            rank = placing.rank(node.inputs[0])
            yield from ((node, port) for port in range(len(node.outputs)) if int(node.attr("axis", 0)) % rank in axes)
        elif node.op in ops.SLICES and node.has_attr("shrink_axis_mask"):
            begin = fixed(node.inputs[1]) or []
            found = places(node, placing.rank(node.inputs[0]))
            yield from ((node, begin[place]) for axis, made, place in found if axis in axes and made is None and begin)
        elif node.op in ops.PICKS and placing.rank(node.inputs[1]) == 0:
            number, axis = fixed(node.inputs[1]), fixed(node.inputs[2]) if len(node.inputs) > 2 else [0]
            if number and axis and axis[0] in axes:
                yield node, number[0]
