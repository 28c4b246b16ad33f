"""What TensorFlow does to the graph of a batch of one row, undone where the graph still tells.

The gradient of a broadcast sums over the dimensions that were broadcast. Of one row, or of two that are taken as one
pair, TensorFlow cannot tell the dimension of the batch from one that was broadcast: it sums over it where nothing is to be
summed, which does nothing to one row and would be wrong of more, or leaves a sum out.
"""

from __future__ import annotations

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import Poly, follows_batch, known, times
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
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
        "two rows a core or more, or with a batch that is open (drop_remainder=False)"
        if rows == 1
        else "more rows a core"
    )
    return ConversionError(
        f"{one}, and the graph does not tell it from a number of the model: {what}",
        node=node, origin=origin,
        fix=f"write the graph with {more}; one core alone (--num_replicas=1) trains it as it is",
    )  # fmt: skip


def mend(graph: Graph, dimensions: Dimensions) -> int:
    """Undo what TensorFlow did to sums over one row; returns how many nodes were changed or added."""
    return _keep_rows(graph, dimensions) + _restore_sums(graph, dimensions)


def _keep_rows(graph: Graph, dimensions: Dimensions) -> int:
    """Let sums that do nothing to one row do nothing to more rows either; returns how many were changed.

    Such a sum is read by reshapes alone, and what they make has the batch that the sum would take away.
    """
    changed = 0
    for node in dimensions.order:
        axes = _over_rows(dimensions, node)
        readers = [use.node for use in node.uses()]
        if not axes or not readers or not all(_has_rows(dimensions, reader) for reader in readers):
            continue
        numbers = dimensions.numbers(node.inputs[1]) or []
        rank = len(dimensions.dims(node.inputs[0]) or ())
        left = sorted({n % rank for n in numbers} - axes)
        graph.set_input(node, 1, _numbers(graph, node, "dimensions", left))
        graph.set_attr(node, "Tidx", _INT32)
        graph.set_attr(node, "keep_dims", True)
        shape = node.inputs[0].shape or ()
        graph.set_outputs(node, [(node.out().dtype, tuple(1 if i in left else s for i, s in enumerate(shape)))])
        graph.note(node, "summed over the one row of a core's batch, of more rows it would not")
        changed += 1
    return changed


def _restore_sums(graph: Graph, dimensions: Dimensions) -> int:
    """Put back the sums over one row that TensorFlow left out before it reshaped a gradient; returns how many.

    What is reshaped has a dimension of one row, and what comes out holds as many elements without it: of more rows these
    are sums over them.
    """
    restored = 0
    for node in [n for n in dimensions.order if n.op == "Reshape"]:
        axes = _summed_away(dimensions, node)
        if not axes:
            continue
        source = node.inputs[0]
        over = _numbers(graph, node, "rows", axes)
        total = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node).add(
            "Sum", [source, over], source.shape, name="over_rows", keep_dims=True
        )
        graph.set_input(node, 0, total)
        graph.note(total.node, "TensorFlow left out the sum over the one row of a core's batch")
        restored += 1
    return restored


def _numbers(graph: Graph, node: Node, name: str, axes: list[int]) -> Tensor:
    """A constant that names dimensions, in the loop or branch of the node that reads it."""
    make = Builder(graph, node.name, marks={CLUSTER_ATTR: CLUSTER}, source=node)
    return make.constant(np.asarray(axes, "int32"), name=name, controls=[node.inputs[0].node])


def _summed_away(d: Dimensions, node: Node) -> list[int]:
    """The dimensions of one row that a reshape loses."""
    before, after = d.dims(node.inputs[0]), d.dims(node.out())
    if before is None or after is None or len(after) > len(before) or not node.out().dtype.floating:
        return []
    first, second = ([known(s) for s in dims] for dims in (before, after))
    if None in first or None in second:
        return []
    rows = [i for i, s in enumerate(first) if isinstance(s, Poly) and d.sizes.at(s) == 1]
    kept = times(*(s for i, s in enumerate(first) if i not in rows))  # type: ignore[arg-type]
    whole = times(*second)  # type: ignore[arg-type]
    return rows if rows and kept == whole != times(*first) else []  # type: ignore[arg-type]


def _over_rows(d: Dimensions, node: Node) -> set[int]:
    """The dimensions of size 1 that follow the batch and that a Sum sums over."""
    if node.op != "Sum":
        return set()
    dims, numbers = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    if not dims or numbers is None:
        return set()
    axes = {n % len(dims) for n in numbers}
    return {axis for axis in axes if follows_batch(dims[axis]) and d.sizes.at(dims[axis]) == 1}


def _has_rows(d: Dimensions, node: Node) -> bool:
    return node.op == "Reshape" and any(follows_batch(s) for s in d.dims(node.out()) or ())
