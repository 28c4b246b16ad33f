"""Updates of rows of a variable: which rows they are given and what is done with these first; the same with dense gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.shapes import byte_size, is_static
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import variable_of
from tpugraph.rewrite.dense_steps import added_up, make_dense
from tpugraph.rewrite.unread import remove_unread


@dataclass(frozen=True)
class Rows:
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

    @property
    def gathered_bytes(self) -> int:
        """What is gathered of the rows of all cores, with their numbers."""
        return (byte_size(self.values) or 0) + 4 * int((self.numbers.shape or (0,))[0] or 0)


ShapeOf = Callable[[Node], tuple[int, ...]]


def shape_of_variables(step: Node) -> tuple[int, ...]:
    """The shape that all variables of an update have; () where it is not known."""
    variables = [variable_of(step.inputs[i]) for i in ops.WRITES[step.op].variables]
    shapes = {None if v is None else v.attr("shape") for v in variables}
    shape = next(iter(shapes))
    return tuple(shape) if len(shapes) == 1 and shape and None not in shape else ()


def rows_of(steps: Iterable[Node], dense: Collection[str], shape_of: ShapeOf = shape_of_variables, *,
            static: bool = True) -> Iterator[Rows]:  # fmt: skip
    """The rows that updates read and that can be made dense, each once.

    Args:
        steps: the updates.
        dense: the op types of updates that can be dense.
        shape_of: gives the shape that all variables of an update have, () where it is not known.
        static: whether the number of rows has to be known.
    """
    seen: dict[Node, None] = {}
    for step in steps:
        fact = ops.WRITES[step.op]
        assert fact.rows is not None  # these are updates of rows
        numbers = step.inputs[fact.rows]
        unique = distinct_by(numbers)
        if unique in seen:
            continue
        if unique is not None:
            seen[unique] = None
        values = step.inputs[fact.value]
        found = Rows(values, numbers, shape_of(step), (step,)) if unique is None else _summed(unique, dense, shape_of)
        if found is not None and found.shape and (_fits(found) or not static):
            yield found


def make_rows_dense(graph: Graph, rows: Rows, *, in_loop: bool = False) -> None:
    """Add rows up in the shape of the variable, and let the updates read that.

    Args:
        graph: the graph.
        rows: the rows.
        in_loop: whether the updates are in a loop, which new constants have to be in as well.
    """
    dense = added_up(graph, rows.steps[0].name, rows.values, rows.numbers, rows.shape, source=rows.values.node,
                     controls=[rows.numbers.node] if in_loop else ())  # fmt: skip
    if rows.total is not None:
        graph.replace_uses(rows.total.out(), dense)
    for node in rows.between:
        graph.set_outputs(node, [(node.out().dtype, rows.shape)])
    for step in rows.steps:
        value = dense if rows.total is None else step.inputs[ops.WRITES[step.op].value]
        make_dense(graph, step, value, rows.numbers, rows.shape)
    if rows.total is not None:
        graph.replace_control_uses(rows.total, [dense.node])
        remove_unread(graph, [rows.total])


def _fits(rows: Rows) -> bool:
    values, numbers = rows.values.shape, rows.numbers.shape
    return values is not None and is_static(values) and numbers == values[:1] and rows.shape[1:] == values[1:]


def _summed(unique: Node, dense: Collection[str], shape_of: ShapeOf) -> Rows | None:
    """The rows that are summed by number for some updates, where nothing else asks which numbers there are."""
    total = total_of(unique)
    if total is None or unique.control_uses():
        return None
    between, steps = _followers(total, dense)
    asking = {use.node for use in unique.uses(0)} - steps.keys()
    others = {use.node for node in (total, *between) for use in node.uses()} - between.keys() - steps.keys()
    if others or not steps or not all(only_counts(node, total) for node in asking):
        return None
    shapes = {shape_of(step) for step in steps}
    if len(shapes) != 1 or any(step.inputs[ops.WRITES[step.op].rows or 0] != unique.out() for step in steps):
        return None
    return Rows(total.inputs[0], unique.inputs[0], shapes.pop(), tuple(steps), tuple(between), total, unique)


def _followers(total: Node, dense: Collection[str]) -> tuple[dict[Node, None], dict[Node, None]]:
    """What is made of a sum and is zero where the sum is, element by element; and the updates that read these."""
    between: dict[Node, None] = {}
    steps: dict[Node, None] = {}
    made = [total]
    for node in made:  # grows while it is walked
        for use in node.uses(0):
            reader = use.node
            if reader.op in dense and use.index == ops.WRITES[reader.op].value:
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


def distinct_by(numbers: Tensor) -> Node | None:
    """The node that finds which numbers there are, where these are the distinct ones; else None."""
    return numbers.node if numbers.node.op in ops.UNIQUE and not numbers.port else None


def total_of(unique: Node) -> Node | None:
    """The sum of the rows that have one number, where nothing else asks which of the distinct numbers each row has."""
    total = next((use.node for use in unique.uses(1) if use.node.op in ops.UNSORTED_SUMS), None)
    return total if len(unique.uses(1)) == 1 else None


def only_counts(node: Node, total: Node) -> bool:
    """Whether a node only leads to the number of rows of a sum."""
    while node is not total:
        uses = node.uses()
        if node.op not in ops.SHAPE_OF | ops.STRIDED_SLICES or len(uses) != 1 or node.control_uses():
            return False
        node = uses[0].node
    return True
