"""Evidence of batches of one row, where every 1 might be the batch."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.constant_values import constant_at, fixed
from tpugraph.analysis.dimension_facts import Doubt
from tpugraph.analysis.dimension_rules.lookup_ties import handle_dims
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss, root, unsettled
from tpugraph.analysis.size_relations import values
from tpugraph.analysis.sizes import follows_batch, known
from tpugraph.ir import Node
from tpugraph.ir.walks import source_of


def numbered_rows(d: Dimensions) -> None:
    """Numbers that are as many as the rows, or go up to their number, go up by one.

    Where they begin at one, nothing says whether that is the number of rows; any other beginning is a number of the model.
    """
    for node in [n for n in d.order if n.op in ops.RANGES] if d.ones else ():
        count, (start, limit, step) = d.dims(node.out()), map(d.elements, node.inputs)
        ends = [count[0] if count else None, limit[0] if limit else None]
        if not any(end is not None and follows_batch(end) for end in ends):
            continue
        one, first = unsettled(step[0]) if step else None, unsettled(start[0]) if start else None
        if one is not None and one.value == 1:
            d.sizes.tie(one, 1)
        if first is not None and first.value != 1:
            d.sizes.tie(first, first.value)


def summed_beside(d: Dimensions) -> None:
    """A gradient that is summed over other dimensions, and has as many again, keeps its row at its place.

    It belongs to what was broadcast along these dimensions.
    """
    for node in [n for n in d.order if n.op in ops.RESHAPES] if d.ones else ():
        total = source_of(node.inputs[0]).node
        if total.op not in ops.SUMS:
            continue
        before, axes, made = d.dims(total.inputs[0]), d.numbers(total.inputs[1]), d.dims(node.out())
        if not before or axes is None or made is None or len(made) != len(before) or any(map(follows_batch, made)):
            continue
        gone = {axis % len(before) for axis in axes}
        for axis, (size, kept) in enumerate(zip(before, made, strict=True)):
            if axis not in gone and follows_batch(size) and unsettled(kept):
                d.sizes.tie(kept, size)


def beside_extremes(d: Dimensions) -> None:
    """The gradient of an extreme, or of a product, brings what was made of the row back beside what it was made of.

    Of what a sum made this says nothing: the gradient of a broadcast is summed over one row that it keeps. But where a value is
    divided by its own sums, to share what comes back, these stand beside it, and so does what is shared.
    """
    forward = leading_to_loss(d)
    for node in [n for n in d.order if n.op in ops.RESHAPES and n not in forward] if d.ones else ():
        made_of = node.inputs[0].node
        if made_of.op not in ops.REDUCTIONS or len(made_of.inputs) < 2:
            continue
        shares = [
            use.node for use in node.uses() if use.node.op in ops.DIVISIONS and use.node.inputs[0] == made_of.inputs[0]
        ]
        if made_of.op in ops.SUMS and not shares:
            continue
        _brought_back(d, made_of, node)
        for beside in (t for share in shares for use in share.uses() for t in use.node.inputs):
            if beside.node.op in ops.RESHAPES and beside.node not in forward:
                _alike_in_numbers(d, beside.node, node)


def _brought_back(d: Dimensions, reduction: Node, reshape: Node) -> None:
    """A reshape of what a reduction made has the dimensions of its operand, and 1 along those that were reduced."""
    before, axes, made = d.dims(reduction.inputs[0]), d.numbers(reduction.inputs[1]), d.dims(reshape.out())
    if not before or axes is None or made is None or len(made) != len(before):
        return
    gone = {axis % len(before) for axis in axes}
    wanted = [1 if axis in gone else size for axis, size in enumerate(before)]
    if values(wanted, d.sizes) == values(made, d.sizes):
        for size, other in zip(made, wanted, strict=True):
            if unsettled(size):
                d.sizes.tie(size, other)


def _alike_in_numbers(d: Dimensions, node: Node, other: Node) -> None:
    """Two nodes of one static shape have the same dimensions."""
    made, dims = d.dims(node.out()), d.dims(other.out())
    if made is not None and dims is not None and values(made, d.sizes) == values(dims, d.sizes):
        d.tie(made, dims)


def spread_rows(d: Dimensions) -> None:
    """What is spread to one row, to meet the one row of a batch, is spread to the rows of the batch.

    So is what differs by its place, as numbers in a row or a diagonal: of a single place it would say nothing.
    """
    if not d.ones:
        return
    nodes = _spread(d)
    _spread_operands(d, nodes)
    made = {root(s) for n in nodes for s in d.dims(n.out()) or () if unsettled(s)}
    for parts in d.sizes.ones:
        rows = next((p for p in parts if follows_batch(p)), None)
        for part in parts if rows is not None else ():
            if root(part) in made and unsettled(part):
                d.sizes.tie(part, rows)  # type: ignore[arg-type]


def _spread_operands(d: Dimensions, nodes: dict[Node, None]) -> None:
    """What is computed of such values element by element, and is spread to the rows, is so of values that are."""
    for node in reversed(nodes):
        signature = d.signature(node)
        if signature is None or not signature.elementwise:
            continue
        for dims in [d.dims(t) or () for t in node.inputs if t.node in nodes]:
            for size, out in zip(reversed(dims), reversed(d.dims(node.out()) or ()), strict=False):
                if unsettled(size) and d.sizes.at(size) == 1 and follows_batch(out):
                    d.sizes.tie(size, out)


def _spread(d: Dimensions) -> dict[Node, None]:
    """The nodes that make values for many places, and those that scale, name or reshape what is made.

    What differs by its place, and has several places, is put anew for what it meets, as numbers of columns are.
    """
    found = dict.fromkeys(n for n in d.order if n.op in ops.SPREADS | ops.BY_PLACE)
    by_place = {n for n in found if n.op in ops.BY_PLACE}
    for node in d.order:
        data = [t for t in node.inputs if d.dims(t) != ()]
        made = [t for t in data if t.node in found]
        if not made:
            continue
        signature, anew = d.signature(node), node.op in ops.SHAPED_ANEW and made[0] is data[0]
        if anew and data[0].node in by_place and any(d.sizes.at(s) != 1 for s in d.dims(data[0]) or ()):
            continue
        alone = len(made) + sum(constant_at(t) is not None for t in data) == len(data)
        if anew or (alone and signature is not None and signature.elementwise):
            found[node] = None
            by_place |= {node} if any(t.node in by_place for t in made) else set()
    return found


def parts_of_tables(d: Dimensions) -> None:
    """What is sliced out of a dimension that does not follow the batch, or padded to one, does not follow it either.

    How many of the largest elements are taken is a number of the model, too, where it is written as a number. What a slice is
    bounded by that is computed may be taken out of a shape.
    """
    for node in d.order if d.ones else ():
        if node.op in ops.TOP_K:
            for size in d.elements(node.inputs[1]) or ():
                one = unsettled(size) if node.inputs[1].node.op in ops.CONSTANTS else None
                if one is not None and one.value == 1:
                    d.sizes.tie(one, one.value)
        computed = node.op in ops.STRIDED_SLICES and any(fixed(bounds) is None for bounds in node.inputs[1:])
        if node.op not in ops.SLICES | ops.PADS or computed:
            continue
        whole, part = (node.inputs[0], node.out()) if node.op in ops.SLICES else (node.out(), node.inputs[0])
        dims, taken = d.dims(whole), d.dims(part)
        for before, size in zip(dims or (), taken or (), strict=False):
            one = unsettled(size) if isinstance(known(before), int) else None
            if one is not None and dims is not None and taken is not None and len(dims) == len(taken):
                d.sizes.tie(one, one.value)


def summed_and_met_by_rows(d: Dimensions) -> None:
    """A gradient that is summed over the one row, and meets rows on its way, keeps them: that of what was broadcast meets none."""
    forward = leading_to_loss(d)
    for node in d.order if d.ones else ():
        signature = d.signature(node) if node not in forward else None
        if signature is None or not signature.elementwise or len(node.inputs) < 2:
            continue
        for tensor in node.inputs:
            source = source_of(tensor).node
            if source.op not in ops.RESHAPES or source in forward or not _sums_rows(d, source.inputs[0].node):
                continue
            for other in node.inputs:
                for size, rows in zip(reversed(d.dims(tensor) or ()), reversed(d.dims(other) or ()), strict=False):
                    if unsettled(size) and follows_batch(rows) and d.sizes.at(size) == d.sizes.at(rows) == 1:
                        d.sizes.tie(size, rows)


def _sums_rows(d: Dimensions, node: Node) -> bool:
    """Whether a node adds up what has one row along that row."""
    if node.op not in ops.SUMS:
        return False
    dims, axes = d.dims(node.inputs[0]) or (), d.numbers(node.inputs[1])
    return bool(dims) and any(follows_batch(dims[axis]) and d.sizes.at(dims[axis]) == 1 for axis in axes or ())


def flattened(d: Dimensions) -> None:
    """A reshape of one row holds the row, where nothing says that TensorFlow left out a sum over it.

    What a gradient summed over other dimensions, and loses dimensions of size 1 then, was to be summed over the row too.
    """
    begun = (
        {root(size) for node in d.order if node.op in ops.TILES for size in d.dims(node.inputs[0]) or ()}
        if d.doubtful
        else set()
    )
    _flatten(
        d,
        [
            doubt
            for doubt in d.doubtful
            if not doubt.beside_one and not any(root(size) in begun for size in doubt.right if unsettled(size))
        ],
    )


def flattened_before_tiles(d: Dimensions) -> None:
    """What a gradient is reshaped to before it is tiled holds the row, where the tile itself does not say it."""
    _flatten(d, d.doubtful)


def _flatten(d: Dimensions, doubts: list[Doubt]) -> None:
    for doubt in doubts:
        open_left, open_right = (any(unsettled(s) for s in side) for side in (doubt.left, doubt.right))
        if open_left == open_right or (open_left and not any(follows_batch(s) for s in doubt.right)):
            continue
        rows = [s for s in doubt.left if follows_batch(s) and d.sizes.at(s) == 1]
        if rows and any(follows_batch(s) and known(s) == known(rows[0]) for s in doubt.among):
            continue  # they are there already
        if doubt.left_open is not None and unsettled(doubt.left_open) and doubt.left_open not in doubt.right:
            continue  # of a 1 that is written and one that is left open, either may be the rows
        d.sizes.product([s for s in doubt.left if not doubt.summed or s not in rows], doubt.right)


def met_by_rows(d: Dimensions) -> None:
    """What is made of rows in a shape that is written out, and meets rows, has as many of them."""
    if not d.ones:
        return
    made_of_rows = d.graph.descendants([n for n in d.order if any(map(d.axes, n.inputs))], data_only=True)
    for node in d.order:
        signature = d.signature(node)
        if signature is None or not signature.elementwise or len(node.inputs) < 2:
            continue
        shapes = [d.dims(t) or () for t in node.inputs]
        for tensor, shape in zip(node.inputs, shapes, strict=True):
            source = source_of(tensor).node
            if source.op not in ops.TOLD_SIZES or source.op in ops.SLICES | ops.SPREADS or source not in made_of_rows:
                continue
            before = d.dims(source.inputs[0]) if source.op in ops.RESHAPES else None
            if before is not None and all(isinstance(known(s), int) for s in before):
                continue  # what has no rows has none in another shape
            for place in range(1, len(shape) + 1):
                rows = next((s[-place] for s in shapes if len(s) >= place and follows_batch(s[-place])), None)
                if rows is not None and unsettled(shape[-place]) and d.sizes.at(rows) == 1:
                    d.sizes.tie(shape[-place], rows)


def written(d: Dimensions) -> None:
    """What a variable is given has its shape, where nothing says that TensorFlow left out a sum over the row."""
    if d.sure_writes:
        return
    for node in [n for n in d.order if n.op in ops.WRITES]:
        fact = ops.WRITES[node.op]
        table, value = handle_dims(node.inputs[fact.variables[0]]), d.dims(node.inputs[fact.value])
        if table is not None and value is not None and fact.rows is None and len(value) == len(table):
            for size, place in zip(value, table, strict=True):
                if place == 1 and unsettled(size):
                    d.sizes.tie(size, place)


def reshaped(d: Dimensions) -> None:
    """A reshape holds all elements, where nothing speaks of a batch."""
    for doubt in d.doubtful:
        if not doubt.among and any(unsettled(s) for s in (*doubt.left, *doubt.right)):
            d.sizes.product(doubt.left, doubt.right)
    d.doubtful.clear()
