"""Values that are made in as many places as a shape says, which may be the rows of a batch, or a number of the model."""

from __future__ import annotations

from collections.abc import Container, Iterator

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss, root
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, follows_batch
from tpugraph.ir import Node
from tpugraph.partition.two_readings import constant_behind

_MADE_OF_NOTHING = ops.FILLS | ops.BROADCASTS | ops.DRAWS
"""Ops of which a shape alone says in how many places there are values."""


def literal_makers(placing: Placing) -> list[str]:
    """What the user should know of: values in as many places as a batch has rows, which meet no rows that say so.

    Such a shape is read as that of the rows where a tensor with the batch is as large, and as one of the model otherwise.
    """
    d = placing.d
    rows = f"{d.rows} rows" if d.rows > 1 else "one row"
    found = {
        shape.name: f"'{node.name}' ({node.op}) makes values in as many places as '{shape.name}' says, {d.rows} along one dimension, "
        f"and a core's batch has {rows}: read as {'these' if read_as_rows else 'a number of the model'}; "
        f"--batch_constants={shape.name} if it is made of the rows, --literals={shape.name} if it is a number of the model"
        for node, shape, read_as_rows in _in_doubt(placing)
    }  # fmt: skip
    return list(found.values())


def _in_doubt(placing: Placing) -> Iterator[tuple[Node, Node, bool]]:
    """The nodes of the loss that make values, the constant that says in how many places, and whether it is read as the rows."""
    d, of_input, forward = placing.d, None, leading_to_loss(placing.d)
    products = frozenset(d.of_type(ops.PRODUCTS))
    for node in d.of_type(_MADE_OF_NOTHING):
        if node not in forward or node not in placing.verdicts or not node.out().dtype.floating:
            continue
        shape = constant_behind(node.inputs[ops.SHAPED_BY[node.op]])
        if fixed(shape.out()) is None or shape.made_by is not None or d.constants.choice(shape.name) is not None:
            continue
        sizes = [size for size in d.elements(shape.out()) or () if size is not None and _is_in_doubt(d, size)]
        if any(map(follows_batch, sizes)) and of_input is None:
            of_input = d.graph.descendants(d.graph.of_type(*ops.INPUTS), data_only=True)
        read = [
            follows_batch(size)
            for size in sizes
            if not (follows_batch(size) and _meets_rows(d, node, root(size), of_input or {}, products))
        ]
        if read:
            yield node, shape, read[0]


def _is_in_doubt(d: Dimensions, size: Size) -> bool:
    """Whether a size is as many as the rows, and nothing tells whether it is these but that numbers are alike."""
    if not isinstance(size, Unknown) or size.value != d.rows:
        return False
    return size.root() in d.defaulted or size.root() in d.untold.alike


def _meets_rows(d: Dimensions, node: Node, made: Size, of_input: Container[Node], products: Container[Node]) -> bool:
    """Whether values that are made stand beside rows of the input in an op that is no product, each beside one of them."""
    stack, seen = [node.out()], {node.out()}
    while stack:
        tensor = stack.pop()
        dims = d.dims(tensor) or ()
        places = [place - len(dims) for place, size in enumerate(dims) if root(size) is made]
        for reader, _ in tensor.node.uses(tensor.port) if places else ():
            if reader not in d.nodes or reader in products:
                continue
            others = [d.dims(t) or () for t in reader.inputs if t not in seen and t.node in of_input]
            if any(-at <= len(beside) and follows_batch(beside[at]) for at in places for beside in others):
                return True
            made_of_it = [reader.out(port) for port in range(len(reader.outputs or ()))]
            stack += [one for one in made_of_it if one not in seen]
            seen.update(made_of_it)
    return False
