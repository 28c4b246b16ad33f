"""Rows of a batch that are taken one by one, or by numbers that Python made: those of one core's batch alone."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Unknown, follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.support.errors import ConversionError


def refuse_row_by_row(placing: Placing) -> None:
    """Refuse rows of a batch that are taken one by one, all of them: the whole batch has more.

    Raises:
        ConversionError: it names the last one.
    """
    taken: dict[Tensor, set[int]] = {}
    for node, number in _single_rows(placing) if placing.d.rows > 2 else ():
        numbers = taken.setdefault(node.inputs[0], set())
        numbers.add(number)
        if numbers >= set(range(placing.d.rows)):
            raise ConversionError(
                f"'{node.name}' ({node.op}) takes one row of the batch, and beside it each of the {placing.d.rows} rows of a core's "
                "batch is taken by itself: of the whole batch there are more than the graph has nodes for",
                node=node, origin=placing.graph.source,
                fix="compute with all rows at once, or with tf.map_fn, instead of in a loop of Python",
            )  # fmt: skip


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
