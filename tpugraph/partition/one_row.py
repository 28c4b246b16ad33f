"""What TensorFlow does to the graph of a batch of one row, undone where the graph still tells.

The gradient of a broadcast sums over the dimensions that were broadcast. Of one row, or of two that are taken as one
pair, TensorFlow cannot tell the dimension of the batch from one that was broadcast: it sums over it where nothing is to be
summed, which does nothing to one row and would be wrong of more, or leaves a sum out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.dimension_rules.slicing_ties import places
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import Known, Poly, depends_on_data, follows_batch, known, times
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.walks import source_of
from tpugraph.partition.left_out_sums import sums_before
from tpugraph.support.errors import ConversionError

NOTE = (
    "a core's batch has one row, of which TensorFlow leaves out sums that gradients take over it: where the graph does not "
    "tell, the result need not be that of the whole batch; trace the graph with two rows per core or more"
)
"""What the report says of such a batch."""

_INT32 = attrs.dtype("int32")


def refusal(what: str, node: object, origin: str, rows: int = 1) -> ConversionError:
    """The error of a graph in which one row and a number of the model cannot be told apart.

    Args:
        what: where they meet, as the end of a sentence.
        node: the node.
        origin: the graph.
        rows: the rows of a core's batch; of more than one, a part of them is one row.
    """
    one = "a core's batch has one row" if rows == 1 else f"a part of a core's batch of {rows} rows is one row"
    more = (
        "two rows a core or more, or with an open batch (drop_remainder=False) and sizes from tf.shape"
        if rows == 1
        else "more rows a core"
    )
    return ConversionError(
        f"{one}, and the graph does not tell it from a number of the model: {what}",
        node=node, origin=origin,
        fix=f"write the graph with {more}; one core alone (--num_replicas=1) trains it as it is",
    )  # fmt: skip


def contradictions(dimensions: Dimensions) -> int:
    """How often sizes contradict each other elsewhere than where a variable is written, which is mended."""
    return sum(1 for node, *_ in dimensions.sizes.conflicts if not isinstance(node, Node) or node.op not in ops.WRITES)


def mend(graph: Graph, dimensions: Dimensions) -> int:
    """Undo what TensorFlow did to sums over one row; returns how many nodes were changed or added."""
    return _keep_rows(graph, dimensions) + _restore_sums(graph, dimensions) + _sum_before_writes(graph, dimensions)


def _keep_rows(graph: Graph, dimensions: Dimensions) -> int:
    """Let sums that do nothing to one row do nothing to more rows either; returns how many were changed.

    Such a sum is read by reshapes alone, and what they make has the batch that the sum would take away.
    """
    changed = 0
    for node in [n for n in dimensions.order if n.op in ops.SUMS]:
        readers = [use.node for use in node.uses()]
        kept = [_kept(dimensions, node, reader) for reader in readers]
        axes = kept[0] if kept else set()
        if not axes or any(other != axes for other in kept):
            continue
        numbers = dimensions.numbers(node.inputs[1]) or []
        rank = len(dimensions.dims(node.inputs[0]) or ())
        left = sorted({n % rank for n in numbers} - axes)
        graph.set_input(node, 1, _numbers(graph, node, node.inputs[0], "dimensions", left))
        graph.set_attr(node, "Tidx", _INT32)
        graph.set_attr(node, "keep_dims", True)
        shape = node.inputs[0].shape or ()
        graph.set_outputs(node, [(node.out().dtype, tuple(1 if i in left else s for i, s in enumerate(shape)))])
        graph.note(node, "summed over the one row of a core's batch, of more rows it would not")
        changed += 1
    return changed


def _restore_sums(graph: Graph, dimensions: Dimensions) -> int:
    """Put back the sums over one row that TensorFlow left out of a gradient; returns how many.

    Where what reads a gradient has no such dimension any more, or one that was made of nothing, it was broadcast along it.

    Raises:
        ConversionError: the loss itself is made of what lost the row.
    """
    restored, forward, reshapes = 0, leading_to_loss(dimensions), _Reshapes(dimensions)
    for node in dimensions.order:
        index, axes = _summed_away(dimensions, node, reshapes)
        if not axes:
            continue
        if node in forward:
            raise refusal("a reshape that the loss is made of has no place for the row", node, graph.source)
        graph.set_input(node, index, _total(graph, node, node.inputs[index], axes))
        restored += 1
    return restored


def _sum_before_writes(graph: Graph, dimensions: Dimensions) -> int:
    """Put back the sums of gradients that go to their variables with the row; returns how many."""
    found = sums_before(dimensions) if dimensions.sums_left_out else {}
    for (tensor, axes), uses in found.items():
        total = _total(graph, tensor.node, tensor, [*axes])
        for use in uses:
            graph.set_input(use.node, use.index, total)
    return len(found)


def _total(graph: Graph, node: Node, source: Tensor, axes: list[int]) -> Tensor:
    """The sum of a tensor over the row, which keeps its dimensions; made for a node."""
    over = _numbers(graph, node, source, "rows", axes)
    total = graph.add("Sum", f"{node.name}/over_rows", [source, over], attrs={"T": source.dtype, "Tidx": _INT32,
                      "keep_dims": True, CLUSTER_ATTR: CLUSTER}, outputs=[(source.dtype, source.shape)],
                      source=node)  # fmt: skip
    graph.note(total, "TensorFlow left out the sum over the one row of a core's batch")
    return total.out()


def _numbers(graph: Graph, node: Node, source: Tensor, name: str, axes: list[int]) -> Tensor:
    """A constant that names dimensions of an operand, in the loop or branch of the node that reads it."""
    made = graph.add("Const", f"{node.name}/{name}", controls=[source.node], attrs={"dtype": _INT32,
                     "value": np.asarray(axes, "int32"), CLUSTER_ATTR: CLUSTER}, outputs=[(_INT32, (len(axes),))],
                     source=node)  # fmt: skip
    return made.out()


def _summed_away(d: Dimensions, node: Node, reshapes: _Reshapes) -> tuple[int, list[int]]:
    """The operand of which a node's result has lost dimensions of one row, and these."""
    if node.op in ops.RESHAPES:
        return 0, _reshaped_away(d, node, reshapes)
    if node.op in ops.SLICE_GRADIENTS:
        return 4, of_new_dimensions(d, node)
    return 0, _broadcast_away(d, node) if node.op in ops.BROADCASTS else []


def _broadcast_away(d: Dimensions, node: Node) -> list[int]:
    """The dimensions of one row that a gradient is broadcast along to what is no row, as that of a mean with its dimensions is."""
    before, after = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
    return [
        axis
        for axis, (size, made) in enumerate(zip(before, after, strict=False))
        if len(before) == len(after) and follows_batch(size) and d.sizes.at(size) == 1 and not follows_batch(made)
        and (depends_on_data(made) or known(made) is not None)
    ]  # fmt: skip


def of_new_dimensions(d: Dimensions, node: Node) -> list[int]:
    """The dimensions that a slice made of nothing, and along which its gradient has the row."""
    made, grad = d.dims(node.out()), d.dims(node.inputs[4])
    if made is None or grad is None:
        return []
    new = [target for axis, target, _ in places(node, len(made)) if axis is None and target is not None]
    return [target for target in new if target < len(grad) and follows_batch(grad[target])]


def _reshaped_away(d: Dimensions, node: Node, reshapes: _Reshapes) -> list[int]:
    """The dimensions of one row that a reshape loses."""
    before, after = d.dims(node.inputs[0]), d.dims(node.out())
    if before is None or after is None or len(after) > len(before) or not node.out().dtype.floating:
        return []
    first, second = ([known(s) for s in dims] for dims in (before, after))
    if None in first or None in second:
        return []
    rows = [i for i, s in enumerate(first) if isinstance(s, Poly) and d.sizes.at(s) == 1]
    lost = _one_of_a_pair(d, node, rows, (first, second), reshapes)  # type: ignore[arg-type]
    if lost:
        return lost
    kept = times(*(s for i, s in enumerate(first) if i not in rows))  # type: ignore[arg-type]
    whole = times(*second)  # type: ignore[arg-type]
    return rows if rows and kept == whole != times(*first) else []  # type: ignore[arg-type]


def _one_of_a_pair(
    d: Dimensions, node: Node, rows: list[int], dims: tuple[list[Known], list[Known]], reshapes: _Reshapes
) -> list[int]:
    """Of the rows of pairs those that a reshape loses: where the number of dimensions is the same, it has a 1 there.

    What a gradient sums ends with the dimensions of what was broadcast; otherwise it undoes a reshape of the forward step.
    """
    first, second = dims
    shapes: list[list[Known]] = [second]
    if len(rows) < 2:
        return []
    if len(first) != len(second) and not any(isinstance(size, Poly) for size in second):
        return []
    if len(first) != len(second) and source_of(node.inputs[0]).node.op in ops.SUMS:
        shapes = [[*[1] * (len(first) - len(second)), *second]]
    elif len(first) != len(second):
        shapes = list(reshapes.undone(node, second))
    found = {tuple(_lost(rows, first, shape)) for shape in shapes} - {()}
    if len(found) > 1:
        raise refusal("the gradient of pairs of rows leaves out a sum over one of the two", node, d.graph.source)
    return list(next(iter(found), ()))


def _lost(rows: list[int], first: list[Known], shape: list[Known]) -> list[int]:
    """The rows among some dimensions that are 1 in a shape, where that is all in which the two differ."""
    lost = [i for i in rows if shape[i] == 1]
    alike = all(one == other or i in lost for i, (one, other) in enumerate(zip(first, shape, strict=True)))
    return lost if alike else []


_Sizes = tuple[tuple[int, ...], tuple[int, ...]]
_Dims = list[Known | None]


class _Reshapes:
    """What is shaped anew in the forward step, by the sizes in the traced graph: the reshape of a gradient undoes one of it."""

    def __init__(self, d: Dimensions) -> None:
        self._d = d
        self._forward = leading_to_loss(d)

    @cached_property
    def _by_sizes(self) -> dict[_Sizes, list[tuple[_Dims, _Dims]]]:
        """The dimensions before and after each, by their sizes."""
        found: dict[_Sizes, list[tuple[_Dims, _Dims]]] = {}
        d = self._d
        for node in self._forward:
            if node in d.nodes and node.op in ops.SHAPED_ANEW and node.outputs:
                dims, made = d.dims(node.inputs[0]) or (), d.dims(node.out()) or ()
                sizes = values(dims, d.sizes), values(made, d.sizes)
                found.setdefault(sizes, []).append(([*map(known, dims)], [*map(known, made)]))
        return found

    def undone(self, node: Node, second: list[Known]) -> Iterator[list[Known]]:
        """What those make that the reshape of a gradient may undo."""
        d = self._d
        before, after = (values(d.dims(tensor) or (), d.sizes) for tensor in (node.inputs[0], node.out()))
        for dims, made in self._by_sizes.get((after, before), ()) if node not in self._forward else ():
            if dims == second and None not in made:
                yield made  # type: ignore[misc]


def _kept(d: Dimensions, node: Node, reader: Node) -> set[int]:
    """The dimensions of one row that a Sum takes away and that the reshape of its result has again."""
    dims, numbers = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    made = d.dims(reader.out()) if reader.op in ops.RESHAPES else None
    if not dims or numbers is None or made is None:
        return set()
    gone = {n % len(dims) for n in numbers}
    rows = {axis for axis in gone if follows_batch(dims[axis]) and d.sizes.at(dims[axis]) == 1}
    if len(made) == len(dims):
        return {axis for axis in rows if follows_batch(made[axis])}
    if not any(map(follows_batch, made)):
        return set()
    whole = [known(s) for s in made]
    left = [known(s) for axis, s in enumerate(dims) if axis not in gone]
    aligned = {axis for axis in rows if axis >= len(dims) - len(made) and follows_batch(made[axis - len(dims)])}
    counted = None not in whole and None not in left
    if aligned and counted and times(*left, *(known(dims[axis]) for axis in aligned)) == times(*whole):  # type: ignore[arg-type]
        return aligned  # what is broadcast ends with the same dimensions
    return set() if counted and times(*whole) == times(*left) else rows  # type: ignore[arg-type]
