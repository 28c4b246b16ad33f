"""Evidence of vectors that are the whole shape of a tensor."""

from __future__ import annotations

from tpugraph.analysis.dimensions import Dimensions, Dims
from tpugraph.analysis.evidence.shared import unsettled
from tpugraph.analysis.sizes import follows_batch, known
from tpugraph.ir import Tensor


def whole_shapes(d: Dimensions) -> None:
    """A vector that equals the static shape of a tensor with a batch, and of no other tensor, is that shape."""
    vectors = [
        (tensor, elements)
        for tensor, elements in d._elements.items()
        if tensor.node.op == "Const" and tensor.shape and elements and any(unsettled(e) for e in elements)
    ]
    if not vectors:
        return
    shapes = _shapes(d)
    for tensor, elements in vectors:
        value = tuple(d.sizes.at(e) for e in elements if e is not None)
        found = shapes.get(value)
        if not found or ((None in found or d.rows == 1) and not _taken_apart(tensor)):
            continue
        if d.rows == 1:  # every 1 may be the row: it is the shape of what was made last before it, if of anything
            found = _made_before(d, tensor, value)
        for element, sizes in zip(elements, zip(*(f for f in found if f is not None), strict=True), strict=False):
            one = unsettled(element)
            alike = {known(size) for size in sizes}
            if (
                one is not None and len(alike) == 1 and None not in alike
            ):  # shapes of one size may differ in what is the batch
                d.sizes.tie(one, sizes[0])
                d.reasons[one] = f"'{tensor}' is the whole shape of a tensor with a batch of {d.rows} rows"


def _taken_apart(tensor: Tensor) -> bool:
    """Whether elements of a vector are read one by one, as those of a shape are."""
    taking = ("StridedSlice", "Slice", "GatherV2", "Prod", "Unpack")
    readers = [use for use in tensor.node.uses() if use.index == 0]
    readers += [use for cast in readers if cast.node.op == "Cast" for use in cast.node.uses() if use.index == 0]
    return any(use.node.op in taking for use in readers)


def _made_before(d: Dimensions, shape: Tensor, value: tuple[int, ...]) -> list[Dims | None]:
    """The last tensor of a static shape in front of a constant, in the order in which the graph was built."""
    last: Dims | None = None
    for node in d.graph:
        if node is shape.node:
            break
        for port in range(len(node.outputs or ())) if node in d.nodes and node.op != "Const" else ():
            dims = d.dims(node.out(port))
            if dims is not None and tuple(d.sizes.at(s) for s in dims) == value:
                last = dims
    return [last] if last is not None and any(follows_batch(s) for s in last) else []


def _shapes(d: Dimensions) -> dict[tuple[int, ...], list[Dims | None]]:
    """The tensors with a batch, by static shape; None beside them where one without a batch has the same shape."""
    found: dict[tuple[int, ...], list[Dims | None]] = {}
    for tensor, dims in d._dims.items():
        if not dims or tensor.node.op == "Const":
            continue
        value = tuple(d.sizes.at(s) for s in dims)
        if any(follows_batch(s) for s in dims):
            found.setdefault(value, []).append(dims)
        elif tensor.dtype.floating:
            found.setdefault(value, []).append(None)
    return found
