"""Rows of a batch that are split into parts of written sizes: which part grows with the batch, the numbers do not say."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Known, Poly, add
from tpugraph.ir import Node
from tpugraph.partition.bounds_of_rows import trained
from tpugraph.partition.two_readings import constant_behind
from tpugraph.support.errors import ConversionError


def refuse_parts(placing: Placing) -> None:
    """Refuse a split of rows by numbers of which not each is some whole batches, or a number of the model beside these.

    Of three rows, one and two are the first and the rest, or all but two and these, or ``rows // 2`` and the rest, as none and
    one are of one row. Equal parts are shares of the rows.

    Raises:
        ConversionError: it names the constant, and how the sizes are to be written.
    """
    kept = trained(placing)
    for node in placing.graph.of_type(*ops.SPLITS):
        sizes = _written(node) if node in placing.verdicts and node in kept else None
        if sizes is None or _is_told(placing, node, sizes):
            continue
        name, rows = constant_behind(node.inputs[_told(node)[0]]).name, placing.d.rows
        raise ConversionError(
            f"'{node.name}' ({node.op}) takes rows of the batch apart into parts of {sizes}, and a core's batch has "
            f"{rows} row{'' if rows == 1 else 's'}: which of the parts grows with the whole batch, or whether each does, nothing "
            "says", node=node, origin=placing.graph.source,
            fix=f"write -1 in '{name}' for the part that takes what the others leave, or compute the sizes from tf.shape(x)[0]",
        )  # fmt: skip


def _told(node: Node) -> tuple[int, ...]:
    """The operand that says how large the parts are, where one does."""
    return ops.record(node.op).size_operands(len(node.inputs))


def _written(node: Node) -> list[int] | None:
    """How large the parts are that a split makes, where that is written in the graph, of each."""
    sizes = fixed(node.inputs[_told(node)[0]]) if _told(node) else None
    return None if sizes is None or -1 in sizes else sizes


def _is_told(placing: Placing, node: Node, sizes: list[int]) -> bool:
    """Whether it is told how large each part is of any batch; of what is no batch it is."""
    record = ops.record(node.op)
    (source,) = record.data_operands(len(node.inputs))
    dims, place = placing.dims(node.inputs[source]), placing.d.numbers(node.inputs[record.axis or 0])
    whole = dims[place[0] % len(dims)] if dims and place is not None else None
    if not isinstance(whole, Poly) or not dims or place is None:
        return True
    made = [placing.dims(node.out(port)) or sizes[port : port + 1] * len(dims) for port in range(len(sizes))]
    parts = [part[place[0] % len(dims)] for part in made]
    if add(*parts) != whole or (placing.d.rows == 1 and 0 in parts):
        return False
    return len(set(parts)) == 1 or all(map(_is_batches, parts))


def _is_batches(size: Known) -> bool:
    """Whether a size is a number of the model, or that of some whole batches, or pairs of their rows."""
    return not isinstance(size, Poly) or (not size.c[0] and all(isinstance(number, int) for number in size.c))
