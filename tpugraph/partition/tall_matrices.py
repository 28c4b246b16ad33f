"""Matrices that have fewer rows than columns on a core, and more of all cores together, where gradients are built by that."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import at
from tpugraph.ir import Node
from tpugraph.support.errors import ConversionError


def refuse_tall_matrices(placing: Placing, count: int) -> None:
    """Refuse singular vectors of a matrix that is higher than wide of the whole batch alone, or of a core's alone.

    TensorFlow builds the gradient of one or the other as the graph is traced. That of singular values alone is one for both.

    Raises:
        ConversionError: it names the op, and how many rows of a core would do.
    """
    forward = leading_to_loss(placing.d)
    rows = placing.d.rows
    for node in placing.graph.of_type(*ops.SINGULAR_VECTORS):
        if node not in forward or node not in placing.verdicts:
            continue
        dims = placing.dims(node.inputs[0])
        if dims is None or len(dims) < 2 or not node.attr("compute_uv", True) or not _is_trained(placing, node):
            continue
        (high, wide), (all_high, all_wide) = ([at(size, many) for size in dims[-2:]] for many in (rows, rows * count))
        if (high > wide) == (all_high > all_wide):
            continue
        raise ConversionError(
            f"'{node.name}' ({node.op}) takes a matrix of {high} by {wide} of a core's rows, and of {all_high} by {all_wide} of "
            f"those of {count} cores: TensorFlow builds another gradient where there are more rows than columns",
            node=node, origin=placing.graph.source,
            fix="trace the graph with so many rows a core that its matrix, too, has more rows than columns, or with so few that "
            "all cores together have no more; singular values alone (compute_uv=False) need neither",
        )  # fmt: skip


def _is_trained(placing: Placing, node: Node) -> bool:
    """Whether what a node makes depends on a variable, so that it has a gradient."""
    before = placing.graph.ancestors([node], data_only=True)
    return any(variable in before for variable in placing.graph.of_type(*ops.VARIABLES))
