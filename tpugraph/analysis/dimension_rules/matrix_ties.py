"""What ops that take a matrix apart tie together: its factors have as many columns as it has rows or columns, whichever are fewer."""

from __future__ import annotations

from tpugraph.analysis.dimension_facts import Dims
from tpugraph.analysis.dimension_rules.arithmetic_ties import by_signature
from tpugraph.analysis.dimension_rules.size_arithmetic import smallest
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size
from tpugraph.ir import Node


def _sides(d: Dimensions, node: Node) -> tuple[Dims, Size, Size, Size] | None:
    """The dimensions in front of a matrix, its rows and columns, and how many it has of the fewer.

    None where one is not known: then the signature alone says what the factors have.
    """
    dims = d.dims(node.inputs[0])
    fewer = smallest(d, *dims[-2:]) if dims is not None and len(dims) > 1 else None
    if dims is None or fewer is None:
        by_signature(d, node)
        return None
    return dims[:-2], dims[-2], dims[-1], fewer


@rule("Svd")
def _svd(d: Dimensions, node: Node) -> None:
    found = _sides(d, node)
    if found is None:
        return
    front, rows, columns, fewer = found
    d.set(node.out(), (*front, fewer))
    for port, side in ((1, rows), (2, columns)):
        made = (*front, side, side if node.attr("full_matrices", False) else fewer)
        d.set(node.out(port), made if node.attr("compute_uv", True) else None)


@rule("Qr")
def _qr(d: Dimensions, node: Node) -> None:
    found = _sides(d, node)
    if found is None:
        return
    front, rows, columns, fewer = found
    between = rows if node.attr("full_matrices", False) else fewer
    d.set(node.out(), (*front, rows, between))
    d.set(node.out(1), (*front, between, columns))
