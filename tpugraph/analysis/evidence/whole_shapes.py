"""Evidence of vectors that are the whole shape of a tensor."""

from __future__ import annotations

from itertools import combinations

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.open_shapes import OpenShapes
from tpugraph.analysis.evidence.presumed import literal_factors
from tpugraph.analysis.evidence.summed import agreed, leading_to_loss, root, unsettled, values_of
from tpugraph.analysis.sizes import Known, Size, Unknown, depends_on_data, follows_batch, known, times
from tpugraph.ir import Node, Tensor


def whole_shapes(d: Dimensions) -> None:
    """A vector that equals the static shape of a tensor with a batch, and of no other tensor, is that shape."""
    vectors = _vectors(d)
    if d.rows > 1:
        _tell(d, vectors)
        return
    shapes, before = _shapes(d) if vectors else {}, _made_before(d, [tensor.node for tensor, _ in vectors])
    for tensor, elements in sorted(vectors, key=lambda vector: before[vector[0].node][0]):
        # every 1 may be the row: it is the shape of what was made last before it, if of anything
        if values_of(d, elements) not in shapes or not _taken_apart(tensor):
            continue
        _tie(d, tensor, elements, before[tensor.node][1])
        _compute(d)


def shapes_taken_apart(d: Dimensions) -> None:
    """Of a vector that equals the shape of a tensor with a batch a number is taken: it is told before it is presumed the model's."""
    if d.rows > 1:
        _tell(d, [(tensor, elements) for tensor, elements in _vectors(d) if _taken_apart(tensor)], sure=True)


def _vectors(d: Dimensions) -> list[tuple[Tensor, Elements]]:
    """The constants that may be shapes, beside those of which it is known whose shape they are.

    A number that only stands beside others in a shape that a reshape waits for is looked at when the reshape has told what it is.
    """
    waiting = {size.root() for size in d.waiting} if d.postponed else set()
    return [
        (tensor, elements)
        for tensor, elements in [*d._elements.items()]  # what is asked for below may add to them
        if tensor.node.op in ops.CONSTANTS and tensor.shape and elements and any(unsettled(e) for e in elements)
        and tensor.node.name not in d.constants.shape_of
        and not _names_dimensions(tensor.node) and not _bounds_no_batch(d, tensor.node) and not _repeats(tensor.node)
        and not (len(elements) == 1 and unsettled(elements[0]) in waiting and _put_together(tensor.node))
        and not _beside_rows(d, tensor.node)
    ]  # fmt: skip


def _tell(d: Dimensions, vectors: list[tuple[Tensor, Elements]], *, sure: bool = False) -> None:
    """Tie vectors to the tensors with a batch that have such shapes; if it is to be sure, where no other tensor has one."""
    shapes, opened, forward = _shapes(d) if vectors else {}, OpenShapes(d), leading_to_loss(d)
    alike: dict[tuple[Size, ...], list[Node]] = {}  # vectors of the same sizes
    for tensor, elements in vectors:
        alike.setdefault(_roots(elements), []).append(tensor.node)
    for tensor, elements in vectors:
        of_that_size = [shape for shape in shapes.get(values_of(d, elements), []) if _holds(d, tensor, shape[1])]
        if of_that_size and tensor.node not in forward and opened.measures(elements):
            # what else in gradients is as large is so by chance
            of_that_size = [(source, dims) for source, dims in of_that_size if source in forward]
        found = [dims for _, dims in of_that_size]
        if sure or (None in found and len(elements) > 1):  # one size is that of many vectors
            found = _not_made_of(d, alike.get(_roots(elements), [tensor.node]), of_that_size)
        if not found or (None in found and tensor.node not in forward and _is_of_a_part(d, tensor, of_that_size)):
            continue
        if None not in found or (not sure and _taken_apart(tensor) and not opened.has(tensor, elements)):
            _tie(d, tensor, elements, found)
            if None in found and d.constants.choice(tensor.node.name) is None:
                d.untold.shapes[tensor.node] = None


def _is_of_a_part(d: Dimensions, tensor: Tensor, shapes: list[tuple[Node, Dims | None]]) -> bool:
    """Whether one number may be that of what it does not make, of which nothing is known yet: so many of the largest, say."""
    if len(d.elements(tensor) or ()) != 1:
        return False
    made = d.graph.descendants([tensor.node], data_only=True)
    others = [node for node, dims in shapes if dims is None and node not in made and _reads_list(d, node)]
    found = [d.dims(node.out(port)) or () for node in others for port in range(len(node.outputs or ()))]
    return any(len(dims) == 1 and unsettled(dims[0]) is not None for dims in found)


def _reads_list(d: Dimensions, node: Node) -> bool:
    """Whether a node reads as many of something as data say."""
    return any(depends_on_data(size) for tensor in node.inputs[:1] for size in d.dims(tensor) or ())


def _holds(d: Dimensions, tensor: Tensor, dims: Dims | None) -> bool:
    """Whether what is reshaped to a vector may have that shape: as many elements, of all rows as well."""
    count = _count(dims)
    reshaped = [use.node.inputs[0] for use in tensor.node.uses() if use.node.op in ops.RESHAPES]
    return count is None or all(_count(d.dims(data)) in (None, count) for data in reshaped)


def _count(dims: Dims | None) -> Known | None:
    """How many elements a tensor has, where its dimensions are told."""
    sizes = [known(size) for size in dims or ()]
    told = [size for size in sizes if size is not None]
    return times(*told) if dims is not None and len(told) == len(sizes) else None


def counted_by_either(d: Dimensions) -> None:
    """A vector of which a number is cast, and that tensors with the rows in different dimensions have, is the shape of the last."""
    forward = leading_to_loss(d)
    vectors = (
        [vector for vector in _vectors(d) if vector[0].node in forward and _is_cast(vector[0])] if d.rows > 1 else []
    )
    before = _made_before(d, [tensor.node for tensor, _ in vectors]) if vectors else {}
    for tensor, elements in vectors:
        _tie(d, tensor, elements, before[tensor.node][1])
        d.untold.shapes[tensor.node] = None


def whole_shapes_of_one_row(d: Dimensions) -> None:
    """Of one row, a vector that is taken apart is the shape of what was made last before it, if of anything."""
    if d.rows == 1:
        whole_shapes(d)


def _compute(d: Dimensions) -> None:
    """Settle what the number of rows is computed with and what it makes, in front of what holds that many."""
    before = -1
    while d.sizes.settled != before:
        before = d.sizes.settled
        d.sizes.propagate()
        literal_factors(d)


def _roots(elements: Elements) -> tuple[Size, ...]:
    return tuple(root(size) for size in elements if size is not None)


def _tie(d: Dimensions, tensor: Tensor, elements: Elements, found: list[Dims | None]) -> None:
    """Tie a vector to the shapes that it may be, as far as they agree; how many dimensions these have is no number of rows."""
    if len(elements) > 1:
        d.tie(d.dims(tensor), (len(elements),))
    if _turned_over([f for f in found if f is not None]):
        return
    for element, sizes in zip(elements, zip(*(f for f in found if f is not None), strict=True), strict=False):
        one = unsettled(element)
        others = [size for size in sizes if root(size) is not one]  # a shape that it makes says nothing of it
        size = agreed(others)
        size = _open_alike(others) if size is None else size
        if one is None or size is None:
            continue  # shapes of one size may differ in what is the batch
        d.sizes.tie(one, size)
        d.untold.alike[one.root()] = None
        d.reasons[one] = f"'{tensor}' is the whole shape of a tensor with a batch of {d.rows} rows"


def _turned_over(shapes: list[Dims]) -> bool:
    """Whether shapes hold the rows in different dimensions, as what is transposed does of as many places as rows."""
    places = {frozenset(place for place, size in enumerate(dims) if follows_batch(size)) for dims in shapes}
    return any(not one <= other and not other <= one for one, other in combinations(places, 2))


def _open_alike(sizes: list[Size]) -> Unknown | None:
    """The unknown that some sizes are, where all of them are one: what says what it is says so of a number that is tied to it."""
    roots = {root(size) for size in sizes}
    return unsettled(sizes[0]) if len(roots) == 1 else None


def _names_dimensions(node: Node) -> bool:
    """Whether a vector says which dimensions, or which places, an op takes: these are no sizes."""
    stack, seen = [node], {node}
    while stack:
        for reader, index in stack.pop().uses():
            of_sizes = reader.op in ops.STRIDED_SLICES and reader.inputs[0].node.op in ops.SHAPE_OF | ops.CONSTANTS
            record = ops.record(reader.op)
            constant_alone = index in record.constant_operands(
                len(reader.inputs)
            ) and index not in record.size_operands(len(reader.inputs))
            if constant_alone or (of_sizes and index > 0) or (index == 1 and reader.op in ops.PICKS):
                return True
            if reader.op in _PUT_TOGETHER and reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return False


def _bounds_no_batch(d: Dimensions, node: Node) -> bool:
    """Whether a vector only says from where to where slices of what has no batch go: such numbers are no shape."""
    readers = node.uses()
    return bool(readers) and all(
        reader.op in ops.STRIDED_SLICES | ops.SLICE_GRADIENTS and index > 0
        and not d.axes(reader.out() if reader.op in ops.SLICE_GRADIENTS else reader.inputs[0])
        for reader, index in readers
    )  # fmt: skip


def _repeats(node: Node) -> bool:
    """Whether a vector only says how often dimensions are repeated, which the shape of a tensor is by chance, if it is."""
    readers = node.uses()
    return bool(readers) and all(reader.op in ops.TILES and index == 1 for reader, index in readers)


def _put_together(node: Node) -> bool:
    """Whether a vector is only put beside others, in a longer one."""
    readers = node.uses()
    return bool(readers) and all(reader.op in ops.CONCATS for reader, _ in readers)


def _beside_rows(d: Dimensions, node: Node) -> bool:
    """Whether a vector is only put beside the rows in a longer shape: its own sizes are what each row is parted into."""
    parts = [[t for t in reader.inputs if t.node is not node] for reader, _ in node.uses()]
    return _put_together(node) and all(
        any(size is not None and follows_batch(size) for t in others for size in d.elements(t) or ())
        for others in parts
    )


_PUT_TOGETHER = ops.CONCATS | ops.PACKS | ops.IDENTITIES


def _taken_apart(tensor: Tensor) -> bool:
    """Whether elements of a vector are read one by one, as those of a shape are."""
    taking = ops.SLICES | ops.PICKS | ops.UNPACKS | ops.reducing("prod")
    readers = [use for use in tensor.node.uses() if use.index == 0]
    readers += [use for cast in readers if cast.node.op in ops.CASTS for use in cast.node.uses() if use.index == 0]
    return any(use.node.op in taking for use in readers)


def _is_cast(tensor: Tensor) -> bool:
    """Whether a number is taken of a vector, and computed with: it is cast to another kind of number."""
    taken = [
        use.node for use in tensor.node.uses() if use.index == 0 and use.node.op in ops.SLICES | ops.PICKS | ops.UNPACKS
    ]
    casts = [use.node for node in taken for use in node.uses() if use.node.op in ops.CASTS]
    return any(node.out().dtype.floating for node in casts)


def _made_before(d: Dimensions, constants: list[Node]) -> dict[Node, tuple[int, list[Dims | None]]]:
    """Of each constant its place in the order in which the graph was built, and the last tensor of that shape before it.

    What comes in was made before all else, wherever passes put the node that takes it.
    """
    coming_in = [dims for tensor, dims in d._dims.items() if dims is not None and tensor.node not in d.nodes]
    last: dict[tuple[int, ...], Dims] = {tuple(map(d.sizes.at, dims)): dims for dims in coming_in}
    found: dict[Node, tuple[int, list[Dims | None]]] = {}
    wanted = set(constants)
    for place, node in enumerate(d.graph):
        if node in wanted:
            dims = last.get(tuple(int(v) for v in constant(node).ravel()))
            found[node] = (place, [dims] if dims is not None and any(map(follows_batch, dims)) else [])
        elif node in d.nodes and node.op not in ops.CONSTANTS:
            shapes = [d.dims(node.out(port)) for port in range(len(node.outputs or ()))]
            last.update({tuple(map(d.sizes.at, dims)): dims for dims in shapes if dims is not None})
    return found


def _not_made_of(d: Dimensions, nodes: list[Node], shapes: list[tuple[Node, Dims | None]]) -> list[Dims | None]:
    """The shapes of what vectors of the same sizes do not make, nor the gradients of that, where they do not agree.

    The first of the vectors was made of one that was there before; the others have its sizes.
    """
    alike = {None if dims is None else tuple(known(size) for size in dims) for _, dims in shapes}
    if len(alike) > 1:
        made, forward = d.graph.descendants(nodes, data_only=True), leading_to_loss(d)
        here = any(node in forward for node in nodes)
        shapes = [(source, dims) for source, dims in shapes if source not in made and (source in forward or not here)]
    return [dims for _, dims in shapes]


def _shapes(d: Dimensions) -> dict[tuple[int, ...], list[tuple[Node, Dims | None]]]:
    """The tensors with a batch, by static shape; None beside them where one without a batch has the same shape.

    Of whole numbers, which may be shapes themselves, only places that gradients are put at have shapes that others are told of.
    """
    found: dict[tuple[int, ...], list[tuple[Node, Dims | None]]] = {}
    forward = leading_to_loss(d)
    for tensor, dims in d._dims.items():
        if not dims or tensor.node.op in ops.CONSTANTS:
            continue
        value = tuple(d.sizes.at(s) for s in dims)
        if any(follows_batch(s) for s in dims):
            found.setdefault(value, []).append((tensor.node, dims))
        elif tensor.dtype.floating or (len(dims) > 1 and forward and tensor.node not in forward):
            found.setdefault(value, []).append((tensor.node, None))
    return found
