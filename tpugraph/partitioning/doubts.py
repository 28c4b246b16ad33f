"""Constants that may or may not be numbers of rows, and of which the result depends: refused, with the flags that settle them."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.dimensions import constant
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Poly, Size, Unknown, known
from tpugraph.errors import ConversionError
from tpugraph.ir import Node, Tensor

_BOUNDS = {"StridedSlice": (1, 2), "Slice": (1, 2), "TopKV2": (1,)}
"""Ops that take some rows of a batch, and the operands that say which."""


def refuse_doubts(placing: Placing, count: int) -> None:
    """Refuse a constant that may or may not be a number of rows, where a variable would be given another value.

    Raises:
        ConversionError: it names the constant, what it decides, and the flags that settle it.
    """
    _refuse_bounds(placing)
    d = placing.d
    for node in placing.verdicts:
        fact = ops.WRITES.get(node.op)
        if fact is None or not fact.additive or fact.rows is not None or d.rows == 1:
            continue
        elements = d.elements(node.inputs[fact.value])
        one = elements[0] if elements and len(elements) == 1 else None
        if not d.in_doubt(one):
            continue
        name = constant_behind(node.inputs[fact.value]).name
        raise _refusal(
            placing, node, name, ("counts rows", "does not"),
            f"'{node.name}' adds {one.value} to a variable, and a core's batch has {d.rows} rows: if '{name}' counts rows, "
            f"the whole batch has {one.value * count} of them; if it is a number of the model, it stays {one.value}",
        )  # fmt: skip


def _refusal(placing: Placing, node: Node, name: str, readings: tuple[str, str], fault: str) -> ConversionError:
    """The error of a constant with two readings, and the flags that choose one."""
    return ConversionError(
        fault, node=node, origin=placing.graph.source,
        fix=f"--batch_constants={name} if it {readings[0]}, --literals={name} if it {readings[1]}",
    )  # fmt: skip


def _refuse_bounds(placing: Placing) -> None:
    """Refuse a number of rows that is computed from a constant of which nothing says whether it follows the batch."""
    d = placing.d
    for node in placing.verdicts:
        bounds = _BOUNDS.get(node.op)
        dims = placing.dims(node.inputs[0]) if bounds is not None else None
        if bounds is None or not dims or d.rows == 1:
            continue
        for index in bounds:
            for place, size in enumerate(d.elements(node.inputs[index]) or ()):
                axis = place if node.op != "TopKV2" else len(dims) - 1
                if axis >= len(dims) or not isinstance(dims[axis], Poly) or not _in_doubt(placing, size):
                    continue
                names = [n.name for n in placing.graph.ancestors([node.inputs[index].node], data_only=True)
                         if n.op == "Const" and constant(n).size == 1 and constant(n).item() == d.rows]  # fmt: skip
                if not names:
                    continue
                raise _refusal(
                    placing, node, names[0], ("is the size of the batch", "is not"),
                    f"'{node.name}' ({node.op}) takes rows of the batch up to a number made of '{names[0]}', which is "
                    f"{d.rows}, as many as a core's batch has rows: if it is that, it grows with the whole batch",
                )  # fmt: skip


def _in_doubt(placing: Placing, size: Size | None) -> bool:
    """Whether a number was taken for one of the model for want of evidence, and may follow the batch."""
    d = placing.d
    if not isinstance(size, Unknown) or isinstance(known(size), Poly) or size.value < 1:
        return False
    return size.origin is None or (size.root() in d.defaulted and size.value % d.rows == 0)


def constant_behind(tensor: Tensor) -> Node:
    """The constant that a number is cast from, or the node that makes the number."""
    node = tensor.node
    while node.op in ops.IDENTITIES | ops.ENTER | {"Cast"} and node.inputs:
        node = node.inputs[0].node
    return node
