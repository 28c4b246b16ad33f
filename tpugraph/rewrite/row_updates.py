"""Sparse updates of variables: the rows they get, the processing of these, and the same update with a dense gradient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, signatures
from tpugraph.analysis.shapes import byte_size, is_static
from tpugraph.analysis.values import known_scalar
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.attrs import DType
from tpugraph.ir.builder import Builder
from tpugraph.ir.pattern import Match, Rule, anything, apply, either, op, when
from tpugraph.ir.walks import source_of, variable_of
from tpugraph.rewrite.step_nodes import remove_unread
from tpugraph.spmd.factors import named_axes


@dataclass(frozen=True)
class Rows:
    """The rows of a sparse gradient with all their uses."""

    values: Tensor  # the rows [n, ...]
    numbers: Tensor  # their row indices [n]
    shape: tuple[int, ...]
    steps: tuple[Node, ...]
    # the elementwise nodes between the sum by index and the updates, in order
    between: tuple[Node, ...] = ()
    total: Node | None = None  # the segment sum by distinct index; None where updates read the rows themselves
    unique: Node | None = None  # the Unique of the indices, with ``total``

    @property
    def dense_bytes(self) -> int:
        """The bytes that a core sends for the dense gradient."""
        return int(np.prod(self.shape)) * (self.values.dtype.size or 4)

    @property
    def gathered_bytes(self) -> int:
        """The bytes of an all-gather of rows and indices."""
        return (byte_size(self.values) or 0) + 4 * int((self.numbers.shape or (0,))[0] or 0)


ShapeOf = Callable[[Node], tuple[int, ...]]


def shape_of_variables(step: Node) -> tuple[int, ...]:
    """The common shape of an update's variables; () where it is unknown."""
    variables = [variable_of(step.inputs[i]) for i in ops.WRITES[step.op].variables]
    shapes = {None if v is None else v.attr("shape") for v in variables}
    shape = next(iter(shapes))
    return tuple(shape) if len(shapes) == 1 and shape and None not in shape else ()


def rows_of(steps: Iterable[Node], dense: Collection[str], shape_of: ShapeOf = shape_of_variables, *,
            static: bool = True) -> Iterator[Rows]:  # fmt: skip
    """The rows that updates (``steps``) read and that can be made ``dense``, each once; ``static``: only of known number.

    ``shape_of`` gives the common shape of an update's variables, () where it is unknown.
    """
    seen: dict[Node, None] = {}
    for step in steps:
        fact = ops.WRITES[step.op]
        assert fact.rows is not None  # these updates are sparse
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
    """Scatter-add rows to the variable's shape, and let the updates read that."""
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
    """The rows that are summed by index for some updates, where the distinct indices have no other use."""
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
    """The elementwise users of a sum that keep zeros, transitively, and the updates that read these."""
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
    """Whether a node is elementwise and zero where its ``derived`` operands are zero."""
    signature = signatures.of(node)
    if signature is None or not signature.elementwise:
        return False
    rank = max(len(t.shape or ()) for t in node.inputs if t.node in derived)
    small = all(t.node in derived or (t.shape is not None and len(t.shape) < rank) for t in node.inputs)
    return small and any(all(node.inputs[i].node in derived for i in together) for together in signature.linear)


def distinct_by(numbers: Tensor) -> Node | None:
    """The Unique that produces these indices; None where they are no output of one."""
    return numbers.node if numbers.node.op in ops.UNIQUE and not numbers.port else None


def total_of(unique: Node) -> Node | None:
    """The segment sum by the positions of a Unique, where these have no other use."""
    total = next((use.node for use in unique.uses(1) if use.node.op in ops.UNSORTED_SUMS), None)
    return total if len(unique.uses(1)) == 1 else None


def only_counts(node: Node, total: Node) -> bool:
    """Whether a node is used only for the number of segments of a sum."""
    while node is not total:
        uses = node.uses()
        if node.op not in ops.SHAPE_OF | ops.STRIDED_SLICES or len(uses) != 1 or node.control_uses():
            return False
        node = uses[0].node
    return True


_INT32 = attrs.dtype("int32")

DENSE = {op: dense for op, dense in ops.DENSE_WRITES.items() if ops.WRITES[op].additive}
"""Dense updates for which a zero row of the gradient changes nothing."""


def added_up(graph: Graph, name: str, rows: Tensor, numbers: Tensor, shape: tuple[int, ...], *, source: Node,
             controls: Sequence[Node] = ()) -> Tensor:  # fmt: skip
    """Scatter-add rows [n, ...] by their indices [n] to a tensor of the variable's shape.

    The count of the variable's rows waits for ``controls``, so that it is in the loop or branch of the update.
    """
    make = Builder(graph, name, marks={CLUSTER_ATTR: CLUSTER}, source=source)
    count = make.constant(np.asarray(shape[0], "int32"), name="rows", controls=controls)
    return make.add("UnsortedSegmentSum", [rows, numbers, count], shape, name="dense")


def make_dense(graph: Graph, step: Node, value: Tensor, numbers: Tensor, shape: tuple[int, ...]) -> None:
    """Replace a sparse update by its dense form; rows without a gradient keep their values in optimizers that would change them."""
    fact, dense = ops.WRITES[step.op], ops.DENSE_WRITES[step.op]
    inputs = [value if i == fact.value else t for i, t in enumerate(step.inputs) if i != fact.rows]
    if fact.kind == "scatter":
        graph.retype(step, dense, inputs=inputs, attrs={"dtype": value.dtype})
        return
    kept = {name: step.attr(name) for name in ops.attr_names(dense) if step.has_attr(name)}
    if not fact.additive:
        _keep_untouched(graph, step, _touched(graph, step, numbers, shape), value.dtype, shape)
    graph.retype(step, dense, inputs=inputs, attrs=kept)


def _touched(graph: Graph, step: Node, numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Whether each row of the variable has a gradient, bool [rows, 1, ...] with the variable's rank."""
    make, count = _maker(graph, step), numbers.shape
    small = numbers if numbers.dtype == _INT32 else make.cast(numbers, _INT32)
    ones = make.add("OnesLike", [small], count)
    total = added_up(graph, f"{step.name}/touched", ones, numbers, shape[:1], source=step, controls=[numbers.node])
    zero = make.constant(np.int32(0), _INT32, controls=[numbers.node])
    found = make.add("Greater", [total, zero], shape[:1])
    wide = (shape[0], *[1] * (len(shape) - 1))
    target = make.constant([-1, *wide[1:]], _INT32, controls=[numbers.node])
    return make.add("Reshape", [found, target], wide)


def _keep_untouched(graph: Graph, step: Node, touched: Tensor, kind: DType, shape: tuple[int, ...]) -> None:
    """Restore the rows without a gradient, of the variable and its slots, to their values before the step."""
    make, waiting, assigned = _maker(graph, step), step.control_uses(), []
    for index in ops.WRITES[step.op].variables:
        handle = step.inputs[index]
        before = make.add("ReadVariableOp", [handle], shape, dtype=kind, controls=step.controls)
        graph.add_control(step, before.node)
        after = make.add("ReadVariableOp", [handle], shape, dtype=kind, controls=[step])
        chosen = make.add("SelectV2", [touched, after, before], shape)
        assigned.append(make.node("AssignVariableOp", [handle, chosen]))
    graph.swap_controls(waiting, lambda control: (*assigned, step) if control is step else (control,))


def _maker(graph: Graph, step: Node) -> Builder:
    return Builder(graph, f"{step.name}/touched", marks={CLUSTER_ATTR: CLUSTER}, source=step)


# Norms: on each core a sparse gradient has one row per distinct id. Where two cores have rows for one id, the norm is that of
# their sum, so the rows are summed before they are squared.


def add_up_before_squares(graph: Graph, nodes: Iterable[Node]) -> None:
    """Compute norms of rows of distinct ids, among the device's nodes, after their sum over the cores."""
    apply(graph, [Rule(_SUM_OF_SQUARES, _add_up)], nodes)


def distinct_rows(values: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """The distinct ids [n] of rows [n, ...] on a core, and the shape of their table; None where the rows are of another kind."""
    node, width = values.node, (values.shape or (None, None))[1:]
    if node.op in ops.SEGMENT_GRADS and not values.port:
        numbers, count = node.out(1), known_scalar(node.inputs[3])
    elif node.op in ops.ROWS_OPERAND:
        unique = source_of(node.inputs[1], ops.IDENTITIES | ops.CASTS | ops.RESHAPES)
        if unique.node.op not in ops.UNIQUE or unique.port != 1:
            return None
        numbers = unique.node.out(0)
        lookups = (use.node for use in numbers.node.uses(0) if use.node.op in ops.LOOKUPS and use.index == 1)
        tables = (variable_of(lookup.inputs[0]) for lookup in lookups)
        count = next((table.attr("shape")[0] for table in tables if table is not None and table.attr("shape")), None)
    else:
        return None
    return None if count is None or None in width else (numbers, (count, *map(int, width)))  # type: ignore[arg-type]


def _over_all_dimensions(total: Tensor) -> bool:
    shape = total.node.inputs[0].shape
    return shape is not None and named_axes(total.node) == set(range(len(shape)))


_SQUARE = either(
    op(ops.computing(np.square), anything("x")), op(ops.computing(np.multiply), anything("x"), anything("x"))
)
_SUM_OF_SQUARES = either(
    op(ops.SQUARED_SUMS, anything("x")), when(op(ops.SUMS, _SQUARE), _over_all_dimensions, "sum over all dimensions")
)


def _parts(squared: Tensor) -> tuple[Tensor, ...]:
    """The concatenated row lists of a gradient; one list for a single lookup."""
    source = source_of(squared, ops.IDENTITIES)
    node = source.node
    if node.op not in ops.CONCATS:
        return (source,)
    return tuple(node.inputs[i] for i in ops.record(node.op).data_operands(len(node.inputs)))


def _add_up(graph: Graph, node: Node, squared: Match) -> None:
    """Half the sum of squares (L2Loss) of each part; rows of distinct ids are scattered to their table's shape first."""
    found = [(part, distinct_rows(part)) for part in _parts(squared["x"])]
    if all(rows is None for _, rows in found):
        return
    make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
    halves = []
    for index, (part, rows) in enumerate(found):
        if rows is not None:
            numbers, shape = rows
            part = added_up(graph, f"{node.name}/{index}", part, numbers, shape, source=node, controls=[numbers.node])
        halves.append(make.add("L2Loss", [part], (), name="half"))
    total = make.add("AddN", halves, (), name="halves") if len(halves) > 1 else halves[0]
    if node.op not in ops.SQUARED_SUMS:
        total = make.reshape(make.add("AddV2", [total, total], (), name="squares"), [1 for _ in node.out().shape or ()])
    graph.note(total.node, "the rows of an id are added up over all cores before they are squared")
    graph.replace_uses(node.out(), total)
    graph.replace_control_uses(node, [total.node])
    graph.remove(node)
