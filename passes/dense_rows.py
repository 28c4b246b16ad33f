"""Gradients of an embedding's rows summed in the shape of the embedding, where that is fewer bytes than all cores' rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tpugraph import analysis, ops
from tpugraph.analysis import signatures
from tpugraph.analysis.shapes import byte_size, is_static
from tpugraph.analysis.step import Literals, add_literals
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import variable_of
from tpugraph.partition.dense_steps import DENSE, added_up, make_dense
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class DenseRows(Pass):
    """Updates of rows that come from every core are dense where a dense gradient is fewer bytes than the rows of all cores.

    Each core adds its rows up in a tensor of the variable's shape, which cross-replica-sum sums over the cores. It is done
    where a row of zeros changes nothing: in plain gradient descent, in Adam, which writes all its rows anyway, in Adagrad.
    """

    num_replicas: int = 8

    requires = ("placed", "shapes_known")
    ensures = ("placed", "shapes_known")
    reads_if_given = (Literals,)
    gives = (Literals,)

    def run(self, graph: Graph) -> None:
        device = analysis.cluster_nodes(graph)
        steps = [n for n in device if n.op in DENSE and ops.WRITES[n.op].rows is not None]
        if self.num_replicas == 1 or not steps:
            return
        outside = analysis.conditional(graph).keys() | {n for n, f in analysis.frames(graph).items() if f}
        varying = analysis.replica_varying(graph)
        parts = _Parts(graph, self.num_replicas)
        for rows in list(_rows_of(node for node in steps if node not in outside)):
            if rows.values.node in varying and rows.dense_bytes < rows.gathered_bytes(self.num_replicas):
                parts.make_dense(rows)
        made = [n.name for n in graph.of_type("Const") if n.made_by == self.name]
        add_literals(graph, made)


@dataclass(frozen=True)
class _Rows:
    """Rows of a gradient and all that is done with them.

    Attributes:
        values: the rows, one for each number.
        numbers: which rows of the variable they are.
        shape: the shape of the variable.
        steps: the updates that read them, each variable of this shape.
        between: from the sum of the rows that have one number to the updates, element by element, in order.
        total: the sum of the rows that have one number; None where updates read the rows themselves.
        unique: the node that finds which numbers there are, with ``total``.
    """

    values: Tensor
    numbers: Tensor
    shape: tuple[int, ...]
    steps: tuple[Node, ...]
    between: tuple[Node, ...] = ()
    total: Node | None = None
    unique: Node | None = None

    @property
    def dense_bytes(self) -> int:
        """What a core sends of the dense gradient."""
        return int(np.prod(self.shape)) * (self.values.dtype.size or 4)

    def gathered_bytes(self, cores: int) -> int:
        """What a core sends where the rows of all cores are gathered, with their numbers."""
        return cores * ((byte_size(self.values) or 0) + 4 * int((self.numbers.shape or (0,))[0] or 0))


def _rows_of(steps: Iterator[Node]) -> Iterator[_Rows]:
    """The rows that updates read and that can be made dense, each once."""
    seen: dict[Node, None] = {}
    for step in steps:
        fact = ops.WRITES[step.op]
        assert fact.rows is not None  # these are updates of rows
        numbers = step.inputs[fact.rows]
        unique = numbers.node if numbers.node.op == "Unique" and not numbers.port else None
        if unique in seen:
            continue
        if unique is not None:
            seen[unique] = None
        found = _Rows(step.inputs[fact.value], numbers, _shape(step), (step,)) if unique is None else _summed(unique)
        if found is not None and found.shape and _fits(found):
            yield found


def _fits(rows: _Rows) -> bool:
    values, numbers = rows.values.shape, rows.numbers.shape
    return values is not None and is_static(values) and numbers == values[:1] and rows.shape[1:] == values[1:]


def _shape(step: Node) -> tuple[int, ...]:
    """The shape that all variables of an update have; () where it is not known."""
    variables = [variable_of(step.inputs[i]) for i in ops.WRITES[step.op].variables]
    shapes = {None if v is None else v.attr("shape") for v in variables}
    shape = next(iter(shapes))
    return tuple(shape) if len(shapes) == 1 and shape and None not in shape else ()


def _summed(unique: Node) -> _Rows | None:
    """The rows that are summed by number for some updates, where nothing else asks which numbers there are."""
    total = next((use.node for use in unique.uses(1) if use.node.op == "UnsortedSegmentSum"), None)
    if total is None or len(unique.uses(1)) != 1 or unique.control_uses():
        return None
    between, steps = _followers(total)
    asking = {use.node for use in unique.uses(0)} - steps.keys()
    others = {use.node for node in (total, *between) for use in node.uses()} - between.keys() - steps.keys()
    if others or not steps or not all(_counts(node, total) for node in asking):
        return None
    shapes = {_shape(step) for step in steps}
    if len(shapes) != 1 or any(step.inputs[ops.WRITES[step.op].rows or 0] != unique.out() for step in steps):
        return None
    return _Rows(total.inputs[0], unique.inputs[0], shapes.pop(), tuple(steps), tuple(between), total, unique)


def _followers(total: Node) -> tuple[dict[Node, None], dict[Node, None]]:
    """What is made of a sum and is zero where the sum is, element by element; and the updates that read these."""
    between: dict[Node, None] = {}
    steps: dict[Node, None] = {}
    made = [total]
    for node in made:  # grows while it is walked
        for use in node.uses(0):
            reader = use.node
            if reader.op in DENSE and use.index == ops.WRITES[reader.op].value:
                steps[reader] = None
            elif reader not in between and _keeps_zeros(reader, {total, *between}):
                between[reader] = None
                made.append(reader)
    return between, steps


def _keeps_zeros(node: Node, derived: set[Node]) -> bool:
    """Whether a node works element by element and gives zero where those of its operands are zero that are derived."""
    signature = signatures.of(node)
    if signature is None or not signature.elementwise:
        return False
    rank = max(len(t.shape or ()) for t in node.inputs if t.node in derived)
    small = all(t.node in derived or (t.shape is not None and len(t.shape) < rank) for t in node.inputs)
    return small and any(all(node.inputs[i].node in derived for i in together) for together in signature.linear)


def _counts(node: Node, total: Node) -> bool:
    """Whether a node only leads to the number of rows of a sum."""
    while node is not total:
        uses = node.uses()
        if node.op not in (*ops.SHAPE_OF, "StridedSlice") or len(uses) != 1 or node.control_uses():
            return False
        node = uses[0].node
    return True


class _Parts:
    """Makes updates dense."""

    def __init__(self, graph: Graph, cores: int) -> None:
        self.graph = graph
        self.cores = cores

    def make_dense(self, rows: _Rows) -> None:
        """Add rows up in the shape of the variable, and let the updates read that."""
        scope = rows.steps[0].name
        dense = added_up(self.graph, scope, rows.values, rows.numbers, rows.shape, source=rows.values.node)
        gathered = rows.gathered_bytes(self.cores)
        words = f"made dense: {rows.dense_bytes:,} bytes from each core, where the rows of all would be {gathered:,}"
        if rows.total is not None:
            self.graph.replace_uses(rows.total.out(), dense)
        for node in rows.between:
            self.graph.set_outputs(node, [(node.out().dtype, rows.shape)])
        for step in rows.steps:
            make_dense(self.graph, step, dense if rows.total is None else step.inputs[ops.WRITES[step.op].value])
            self.graph.note(step, words)
        if rows.total is not None and rows.unique is not None:
            self.graph.replace_control_uses(rows.total, [dense.node])
            self._remove(rows.total)

    def _remove(self, node: Node) -> None:
        """Remove a node that nothing reads any more, and what was there for it alone."""
        pending = [node]
        while pending:
            at = pending.pop()
            if at in self.graph and not at.uses() and not at.control_uses():
                made_for_it = [p for p in at.producers() if p.op in ("Unique", "StridedSlice", *ops.SHAPE_OF)]
                self.graph.remove(at)
                pending += made_for_it
