"""Evidence of what counts rows, and of numbers of rows."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import final, root, unsettled
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import ROWS, Poly, follows_batch, times
from tpugraph.analysis.state import additions
from tpugraph.ir.walks import source_of


def counts_of_rows(d: Dimensions) -> None:
    """What is added to a variable after a tensor with a batch was made, and is the number of its elements, counts them.

    Metrics of TensorFlow 1 do so: the count of a mean waits for the values.
    """
    added = ((node, *addition) for node in d.order for addition in additions(node).items())
    for node, tensor, adding in added:
        elements = d.elements(tensor)
        one = unsettled(elements[0]) if elements and len(elements) == 1 else None
        if one is None:
            continue
        for control in (*node.controls, *adding.controls):
            dims = d.dims(control.out()) if control.outputs else None
            if dims and any(follows_batch(s) for s in dims):
                count = times(*(final(d, s) for s in dims))
                if d.sizes.at(count) == one.value:
                    d.sizes.tie(one, count)
                    d.reasons[one] = f"it is added after '{control.name}', which has as many elements"


def counted_by_shapes(d: Dimensions) -> None:
    """Of one row, an element of a vector that is added to a variable counts rows, where it stands for rows in some shape.

    A vector that is taken apart is the shape of a tensor. Of one without a batch it would add the same number each time.
    """
    added = [(node, tensor) for node in d.order for tensor in additions(node)] if d.ones else []
    for node, tensor in added:
        taken = source_of(tensor, ops.IDENTITIES | ops.CASTS)
        if taken.node.op not in ops.STRIDED_SLICES or taken.node.inputs[0].node.op not in ops.CONSTANTS:
            continue
        elements, vector = d.elements(taken), [e for e in d.elements(taken.node.inputs[0]) or () if e is not None]
        one = unsettled(elements[0]) if elements and len(elements) == 1 else None
        place = next((i for i, e in enumerate(vector) if root(e) is one), None)
        if one is not None and place is not None and d.has_rows_at(place, values(vector, d.sizes)):
            d.sizes.tie(one, ROWS)
            d.reasons[one] = f"'{node.name}' counts what stands at its place in a shape: the rows"


def behind_batches(d: Dimensions) -> None:
    """Numbers, one for each row, that begin at a multiple of the rows begin behind as many batches, as those of a second view do."""
    for node in d.order if d.rows > 1 else ():
        if node.op not in ops.RANGES or not follows_batch((d.dims(node.out()) or (0,))[0]):
            continue
        elements = d.elements(node.inputs[0])
        start = unsettled(elements[0]) if elements else None
        if start is not None and start.value > 0 and start.value % d.rows == 0:
            d.sizes.tie(start, Poly((0, start.value // d.rows)))
            d.reasons[start] = f"'{node.name}' has a number for each row, and begins there"


_REMAINDERS = ops.computing(np.remainder, np.fmod)
_MOVED = _REMAINDERS | ops.computing(np.add, np.subtract, np.minimum, np.maximum, np.less, np.greater_equal, np.equal)
_HANDED_ON = ops.SAME_NUMBERS | ops.SHAPED_ANEW


def row_numbers(d: Dimensions) -> None:
    """A number of rows that numbers of rows are moved by, compared with or divided by is that of the batch."""
    for node in d.order:
        if node.op not in ops.RANGES or not follows_batch((d.dims(node.out()) or (0,))[0]):
            continue
        count = (d.dims(node.out()) or (0,))[0]
        stack, seen = [node], {node}
        numbers = {node}  # the numbers of rows as they are, of which the remainder by their count is nothing
        while stack:
            at = stack.pop()
            for use in at.uses():
                reader = use.node
                if reader in seen or reader not in d.nodes:
                    continue
                seen.add(reader)
                if at in numbers and reader.op in _HANDED_ON:
                    numbers.add(reader)
                remainder = at in numbers and reader.op in _REMAINDERS
                share = at in numbers and reader.op in ops.DIVISIONS and use.index == 0
                if (reader.op in _MOVED or share) and len(reader.inputs) == 2 and not remainder:
                    elements = d.elements(reader.inputs[1 - use.index])
                    one = unsettled(elements[0]) if elements and len(elements) == 1 else None
                    if one is not None and one.value == d.sizes.at(count):
                        d.sizes.tie(one, count)
                        d.reasons[one] = f"numbers of rows meet it in '{reader.name}'"
                if reader.op in _MOVED | _HANDED_ON:
                    stack.append(reader)
