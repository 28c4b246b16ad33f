"""What is refused: nodes that take rows of the batch in a way that no reading tells."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.ir import Node
from tpugraph.rebatch.following import Following
from tpugraph.spmd import factors
from tpugraph.support.errors import ShapeError

TRACE = "trace the graph with the batch that you want"
"""What helps where nothing else does."""


def refuse_unread(f: Following) -> None:
    """Refuse the first node that takes rows in a way that no reading tells."""
    wanted, gathers = {node: (tensor, axis) for node, tensor, axis in f.wanted()}, f.gathers()
    for node in f.order:
        if node in gathers:
            _refuse_numbers(f, node)
        if node in wanted:
            tensor, axis = wanted[node]
            size = (tensor.shape or ())[axis]
            raise ShapeError(f"'{node.name}' ({node.op}) reads '{tensor}' row by row, which has {size} rows, and what it holds for "
                             "another batch is not known", node=node, origin=f.graph.source, fix=TRACE)  # fmt: skip


def _refuse_numbers(f: Following, node: Node) -> None:
    """Refuse what takes rows as a constant says which may be another with another batch."""
    if node.op in ops.CONTENTS and not f.lists:
        raise ShapeError(f"'{node.name}' ({node.op}) takes rows of the batch one by one, and no constant is found that says how many",
                         node=node, origin=f.graph.source, fix=TRACE)  # fmt: skip
    if node.op in ops.CONTENTS:
        return  # a list has an element for each row, of the shape that it is told
    held = _numbers_beside(f, node)
    settled = node.op not in ops.SLICE_GRADIENTS and any(
        f.axes.get(node.out(port)) for port in range(len(node.outputs or ()))
    )
    if held is not None and not settled:
        raise ShapeError(f"'{node.name}' ({node.op}) takes rows of the batch apart or together as the constant '{held.name}' "
                         f"{constant(held).tolist()} says, which may be another one with another batch", node=node,
                         origin=f.graph.source, fix=f"{TRACE}; or --literals={held.name} where it stays, "
                         f"--batch_constants={held.name} where it follows the batch")  # fmt: skip


def _numbers_beside(f: Following, node: Node) -> Node | None:
    """A constant that says which rows a node takes, or how many."""
    record, count = ops.record(node.op), len(node.inputs)
    told = {*record.size_operands(count), *record.constant_operands(count)} | ({1} if node.op in ops.LOOKUPS else set())
    if node.op in ops.STRIDED_SLICES | ops.SLICE_GRADIENTS:
        told = _bounds_of_rows(f, node)
    for index in sorted(told - {record.axis_operand(count)}):
        found = node.inputs[index].node
        if (
            found.op in ops.CONSTANTS
            and constant(found).dtype.kind in "iu"
            and constant(found).any()  # 0 is 0 with any batch
            and found not in f.changes
            and found.name not in f.literals
        ):
            return found
    return None


def _bounds_of_rows(f: Following, node: Node) -> set[int]:
    """The operands of a slice, or of its gradient, that say which rows it takes, where it is not the first or the last alone."""
    gradient, told = node.op in ops.SLICE_GRADIENTS, set()
    whole, part = (node.out(), node.inputs[-1]) if gradient else (node.inputs[0], node.out())
    follow, begin = f.axes.get(whole, set()), factors.integers(node.inputs[1])
    for axis, target, place in factors.sliced_places(node, factors.rank(whole)) or ():
        alone = target is None or (part.shape or ())[target] == 1
        if axis in follow and place is not None and not (alone and begin is not None and begin[place] in (0, -1)):
            masks = {1: "begin_mask", 2: "end_mask"}
            told |= {index for index, mask in masks.items() if not int(node.attr(mask, 0)) >> place & 1}
    return told
