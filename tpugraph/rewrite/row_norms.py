"""Squares of rows of a gradient that belong to distinct ids: of the whole batch the rows of an id are added up before.

The gradient of a sparse lookup has one row for each distinct id of the batch, the sum over all places that name it. A core
has rows of its own ids, and another core may have one of the same id: the squares of both are not the square of their sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.known_sizes import known_scalar
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import source_of, variable_of
from tpugraph.rewrite.dense_steps import added_up


@dataclass(frozen=True)
class DistinctRows:
    """Rows that belong to distinct ids.

    Attributes:
        values: the rows, [n, ...].
        numbers: the ids, [n].
        shape: that of the table.
    """

    values: Tensor
    numbers: Tensor
    shape: tuple[int, ...]


def add_up_before_squares(graph: Graph, nodes: Iterable[Node]) -> int:
    """Let norms of the rows of distinct ids be those of their sums over all cores; returns how many norms were changed.

    Args:
        graph: the graph.
        nodes: where norms are looked for, those on the device.
    """
    changed = 0
    for node in list(nodes):
        squared = _squared(node)
        if squared is None:
            continue
        found = [(part, distinct_rows(part)) for part in _parts(squared)]
        if any(rows is not None for _, rows in found):
            _replace(graph, node, found)
            changed += 1
    return changed


def distinct_rows(values: Tensor) -> DistinctRows | None:
    """The ids that rows belong to, where each id has one row on a core; None where they are other rows."""
    node = values.node
    if node.op in ops.SEGMENT_GRADS and not values.port:
        count = known_scalar(node.inputs[3])
        return None if count is None else _of_table(values, node.out(1), count)
    if node.op not in ops.ROWS_OPERAND:
        return None
    unique = source_of(node.inputs[1], ops.IDENTITIES | ops.CASTS | ops.RESHAPES)
    if unique.node.op not in ops.UNIQUE or unique.port != 1:
        return None
    numbers = unique.node.out(0)
    tables = [
        variable_of(use.node.inputs[0]) for use in unique.node.uses(0) if use.node.op in ops.LOOKUPS and use.index == 1
    ]
    count = next((table.attr("shape")[0] for table in tables if table is not None and table.attr("shape")), None)
    return None if count is None else _of_table(values, numbers, count)


_SQUARES = ops.computing(np.square)
_MULTIPLICATIONS = ops.computing(np.multiply)


def _of_table(values: Tensor, numbers: Tensor, count: int) -> DistinctRows | None:
    width = (values.shape or (None, None))[1:]
    return None if None in width else DistinctRows(values, numbers, (count, *width))  # type: ignore[arg-type]


def _squared(node: Node) -> Tensor | None:
    """What a node adds up the squares of, over all dimensions; None where it does something else."""
    if node.op in ops.SQUARED_SUMS:
        return node.inputs[0]
    if node.op not in ops.SUMS or not _all_dimensions(node):
        return None
    square = node.inputs[0].node
    if square.op in _SQUARES or (square.op in _MULTIPLICATIONS and square.inputs[0] == square.inputs[1]):
        return square.inputs[0]
    return None


def _all_dimensions(node: Node) -> bool:
    """Whether a sum is over all dimensions of its operand."""
    shape, axes = node.inputs[0].shape, fixed(node.inputs[1])
    return (
        shape is not None
        and axes is not None
        and {axis % max(len(shape), 1) for axis in axes} == set(range(len(shape)))
    )


def _parts(squared: Tensor) -> tuple[Tensor, ...]:
    """The lists of rows that stand one behind another in a gradient; that of one lookup alone."""
    source = source_of(squared, ops.IDENTITIES)
    node = source.node
    if node.op not in ops.CONCATS:
        return (source,)
    return tuple(node.inputs[i] for i in ops.record(node.op).data_operands(len(node.inputs)))


def _replace(graph: Graph, node: Node, found: list[tuple[Tensor, DistinctRows | None]]) -> None:
    """Half the squares, as L2Loss gives them, of each part; the rows of distinct ids in the shape of their table."""
    make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
    halves = []
    for index, (part, rows) in enumerate(found):
        whole = part if rows is None else added_up(graph, f"{node.name}/{index}", rows.values, rows.numbers, rows.shape,
                                                   source=node, controls=[rows.numbers.node])  # fmt: skip
        halves.append(make.add("L2Loss", [whole], (), name="half"))
    total = make.add("AddN", halves, (), name="halves") if len(halves) > 1 else halves[0]
    if node.op not in ops.SQUARED_SUMS:
        total = make.reshape(make.add("AddV2", [total, total], (), name="squares"), [1 for _ in node.out().shape or ()])
    graph.note(total.node, "the rows of an id are added up over all cores before they are squared")
    graph.replace_uses(node.out(), total)
    graph.replace_control_uses(node, [total.node])
    graph.remove(node)
