"""What speaks for a constant being the size of the batch, where no dimension is tied to it.

TensorFlow computes with a static shape when it builds a graph, and writes the results as constants. Evidence is about
the constant, whoever reads it, and must see the batch itself: a dimension that follows it appear or vanish, or a whole
shape that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions, Dims, fixed
from tpugraph.analysis.sizes import ROWS, Known, Poly, Size, Unknown, follows_batch, known, times
from tpugraph.ir import Node, Tensor
from tpugraph.state import variable_of

_LINEAR = frozenset(
    """Identity Reshape Squeeze ExpandDims Mul Neg Cast StopGradient PreventGradient Enter Exit Switch
    Merge NextIteration Add AddV2 AddN Sub Transpose""".split()
)
_SPREADS = frozenset({"Tile", "BroadcastTo", "Fill"})
_FARTHEST = 64


def weigh(d: Dimensions, *, divisors: bool = True) -> None:
    """Settle what evidence speaks for, strongest first; what is left after that is a number of the model.

    Args:
        d: the dimensions.
        divisors: whether what divides a sum over the batch by exactly as many elements counts as their number, as it does in
            gradients: TensorFlow computes the factor of a mean's gradient when it builds a graph.
    """
    settling = (_spread_rows, _flattened, _regrouped, _adjacent, _literal_factors, _whole_shapes, _literal_factors, _divisors,
                   _loop_limits, _counts_of_rows, _divided_counts, _even_parts, _row_numbers)  # fmt: skip
    for settle in settling:
        while divisors or settle is not _divisors:
            before = d.sizes.settled
            d.sizes.place = " ".join((settle.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
            settle(d)
            d.sizes.propagate()
            if d.sizes.settled == before:
                break
    d.sizes.place = "nothing speaks for it being a number of rows"
    _rest(d)


def _rest(d: Dimensions) -> None:
    """What nothing speaks for is a number of the model, small ones first: what is computed from them follows."""
    of_value: dict[int, dict[Unknown, None]] = {}
    for sizes in (*d._elements.values(), *d._dims.values()):
        for size in sizes or ():
            one = _open(size)
            if one is not None and isinstance(size, Unknown) and size.origin is not None and one.value >= 0:
                of_value.setdefault(one.value, {})[one] = None
    for value in sorted(of_value):
        for one in of_value[value]:
            if known(one) is None:
                d.defaulted[one.root()] = None
                d.sizes.tie(one, value)
        d.sizes.propagate()


def _open(size: Size | None) -> Unknown | None:
    """The unknown that is not settled yet."""
    return size.root() if isinstance(size, Unknown) and known(size) is None else None


# --------------------------------------------------------------------------- batches of one row


def _spread_rows(d: Dimensions) -> None:
    """What is spread to one row, to meet the one row of a batch, is spread to the rows of the batch."""
    if d.rows > 1:
        return
    for node in d.order:
        dims, before = (d.dims(node.out()), d.dims(node.inputs[0])) if node.op == "Tile" else (None, None)
        for out, size in zip(dims or (), before or (), strict=False):
            if follows_batch(out) and _open(size):
                d.sizes.tie(size, 1)  # a tile by 1 would do nothing
    made = {_root(s) for n in d.order if n.op in _SPREADS for s in d.dims(n.out()) or () if _open(s)}
    for parts in d.sizes.ones:
        rows = next((p for p in parts if follows_batch(p)), None)
        for part in parts if rows is not None else ():
            if _root(part) in made and _open(part):
                d.sizes.tie(part, rows)  # type: ignore[arg-type]


def _flattened(d: Dimensions) -> None:
    """A reshape of one row holds the row, where nothing says that TensorFlow left out a sum over it."""
    for left, right in d.doubtful:
        if any(_open(s) for s in (*left, *right)):
            d.sizes.product(left, right)
    d.doubtful.clear()


# --------------------------------------------------------------------------- reshapes


def _regrouped(d: Dimensions) -> None:
    """Of the dimensions that one is taken apart into, that one is the batch which keeps the rows apart.

    Dimensions that were put together and are taken apart again as they were are the same ones.
    """
    whole = {size: parts for parts, made in d.regrouped if len(made) == 1 for size in [_root(made[0])]}
    whole |= {
        size: parts for made, parts in d.regrouped if len(made) == 1 and _parted(parts) for size in [_root(made[0])]
    }
    for flat, parts in [(a[0], b) for a, b in d.regrouped if len(a) == 1] + [
        (b[0], a) for a, b in d.regrouped if len(b) == 1
    ]:
        if not any(_open(p) for p in parts) or not follows_batch(flat):
            continue
        made = whole.get(_root(flat))
        if made is None or not _parted(made):
            made = _of_value(d, known(flat), whole)
        if made is None:
            continue
        values = [d.sizes.at(p) for p in parts]
        if values == [d.sizes.at(p) for p in made]:
            d.tie(parts, made)
            continue
        outer, start = 1, 1
        for size in made:
            if follows_batch(size):
                break
            outer *= d.sizes.at(size)
        for part, value in zip(parts, values, strict=True):
            one = _open(part)
            if start == outer and one is not None and value % d.rows == 0 and value > 1:
                d.sizes.tie(one, Poly((0, value // d.rows)))
                break
            start *= value


def _root(size: Size) -> Size:
    return size.root() if isinstance(size, Unknown) else size


def _parted(parts: Dims) -> bool:
    """Whether all parts are known, and one of them follows the batch."""
    return all(known(p) is not None for p in parts) and any(follows_batch(p) for p in parts)


def _of_value(d: Dimensions, flat: Size | None, whole: dict[Size, Dims]) -> Dims | None:
    """The one way in which dimensions were put together to a size of that many rows; None where there are several."""
    found = {
        tuple(known(p) for p in parts)
        for parts in whole.values()
        if _parted(parts) and times(*(_final(d, p) for p in parts)) == flat
    }
    return found.pop() if len(found) == 1 else None  # type: ignore[return-value]


# --------------------------------------------------------------------------- whole shapes


def _whole_shapes(d: Dimensions) -> None:
    """A vector that equals the static shape of a tensor with a batch, and of no other tensor, is that shape."""
    vectors = [
        (tensor, elements)
        for tensor, elements in d._elements.items()
        if tensor.node.op == "Const" and tensor.shape and elements and any(_open(e) for e in elements)
    ]
    if not vectors:
        return
    shapes = _shapes(d)
    for tensor, elements in vectors:
        value = tuple(d.sizes.at(e) for e in elements if e is not None)
        found = shapes.get(value)
        if not found or ((None in found or d.rows == 1) and not _taken_apart(tensor)):
            continue
        for element, sizes in zip(elements, zip(*(f for f in found if f is not None), strict=True), strict=False):
            one = _open(element)
            alike = {known(size) for size in sizes}
            if (
                one is not None and len(alike) == 1 and None not in alike
            ):  # shapes of one size may differ in what is the batch
                d.sizes.tie(one, sizes[0])
                d.reasons[one] = f"'{tensor}' is the whole shape of a tensor with a batch of {d.rows} rows"


def _taken_apart(tensor: Tensor) -> bool:
    """Whether elements of a vector are read one by one, as those of a shape are."""
    taking = ("StridedSlice", "Slice", "GatherV2", "Prod", "Unpack")
    return any(use.index == 0 and use.node.op in taking for use in tensor.node.uses())


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


def _adjacent(d: Dimensions) -> None:
    """A list that is taken apart: where the first slice of it ends, the next one begins."""
    for node in d.order:
        begin, dims = (d.elements(node.inputs[1]), d.dims(node.out())) if node.op == "Slice" else (None, None)
        if begin is None or dims is None or len(begin) != len(dims):
            continue
        for use in node.inputs[0].node.uses(node.inputs[0].port):
            after = d.elements(use.node.inputs[1]) if use.node.op == "Slice" and use.node is not node else None
            for axis, start in enumerate(after or ()):
                ends_there = begin[axis] == 0 and start is not None and d.sizes.at(start) == d.sizes.at(dims[axis])
                if ends_there and _open(start) is not None and follows_batch(dims[axis]):
                    d.sizes.tie(start, dims[axis])  # type: ignore[arg-type]


def _literal_factors(d: Dimensions) -> None:
    """A constant that a size of the batch is computed with is a number of the model, where nothing else says."""
    d.sizes.literal_factors()


# --------------------------------------------------------------------------- divisors


def _divisors(d: Dimensions) -> None:
    """What divides a sum over the batch, or what is spread over it, by exactly as many elements or rows, is their number.

    Where the same constant divides single rows as well, it is a number of the model.
    """
    found: dict[Unknown, Size | None] = {}
    for node in d.order:
        if node.op not in ops.DIVISIONS or len(node.inputs) != 2:
            continue
        elements = d.elements(node.inputs[1])
        divisor = _open(elements[0]) if elements and len(elements) == 1 else None
        if divisor is None or divisor.value < 1 or found.get(divisor, divisor) is None:
            continue
        counts = [c for c in _counts(d, node) if follows_batch(c)]
        count = next((c for c in (*counts, *([ROWS] if counts else [])) if d.sizes.at(c) == divisor.value), None)
        if count is not None:
            found[divisor] = count
        elif d.axes(node.inputs[0]):
            found[divisor] = None  # single rows
    for divisor, size in found.items():
        if size is not None and known(divisor) is None:
            d.sizes.tie(divisor, size)
            d.reasons[divisor] = (
                f"it divides what was summed or spread over {divisor.value} elements or rows of the batch"
            )


def _counts(d: Dimensions, division: Node) -> Iterator[Size]:
    """The numbers of elements that the numerator was summed or spread over, or that the quotient is spread over."""
    yield from _back(d, division.inputs[0])
    if all(d.sizes.at(s) == 1 for s in d.dims(division.out()) or ()):
        yield from _ahead(d, division)


def _back(d: Dimensions, start: Tensor) -> Iterator[Size]:
    stack, seen = [start], {start}
    while stack and len(seen) < _FARTHEST:
        tensor = stack.pop()
        node = tensor.node
        count = _summed(d, node) or _spread(d, node)
        if count is not None:
            yield count
            d.sizes.propagate()
        elif node.op in _LINEAR | {"Sum"}:
            following = [t for t in node.inputs if t not in seen and d.dims(t) is not None]
            seen.update(following)
            stack.extend(following)


def _ahead(d: Dimensions, start: Node) -> Iterator[Size]:
    stack, seen = [start], {start}
    while stack and len(seen) < _FARTHEST:
        for use in stack.pop().uses():
            node = use.node
            if node in seen or node not in d.nodes:
                continue
            seen.add(node)
            count = _spread(d, node)
            if count is not None:
                yield count
                d.sizes.propagate()
            elif node.op in _LINEAR:
                stack.append(node)


def _summed(d: Dimensions, node: Node) -> Size | None:
    """How many elements a Sum makes one of, where the batch is among them."""
    if node.op not in ("Sum", "L2Loss"):
        return _contracted(d, node)
    dims = d.dims(node.inputs[0])
    axes = range(len(dims or ())) if node.op == "L2Loss" else fixed(node.inputs[1])
    if not dims or axes is None:
        return None
    gone = [dims[a % len(dims)] for a in axes]
    return times(*(_final(d, s) for s in gone)) if any(follows_batch(s) for s in gone) else None


def _contracted(d: Dimensions, node: Node) -> Size | None:
    """How many products an op adds up along the batch."""
    signature = d.signature(node)
    if signature is None or not signature.linear or signature.elementwise:
        return None
    kept = {letter for tokens in signature.outputs for letter in tokens or ()}
    for tokens, tensor in zip(signature.inputs, node.inputs, strict=False):
        dims = d.dims(tensor)
        if tokens is None or not dims or "..." in tokens:
            continue
        gone = [s for letter, s in zip(tokens, dims, strict=False) if letter not in kept and letter != "*"]
        if any(follows_batch(s) for s in gone):
            return times(*(_final(d, s) for s in gone))
    return None


def _final(d: Dimensions, size: Size) -> Known:
    """What a size is if nothing more speaks for it: a number of the model."""
    found = known(size)
    return found if found is not None else d.sizes.at(size)


def _spread(d: Dimensions, node: Node) -> Size | None:
    """How many elements one element is spread to, where the batch is among them."""
    if node.op not in _SPREADS:
        return None
    source = d.dims(node.inputs[1 if node.op == "Fill" else 0])
    out = d.dims(node.out())
    if source is None or out is None:
        return None
    new = [_final(d, s) for i, s in enumerate(reversed(out)) if i >= len(source) or _final(d, source[-1 - i]) == 1]
    return times(*new) if any(isinstance(s, Poly) for s in new) else None


# --------------------------------------------------------------------------- counters


def _counts_of_rows(d: Dimensions) -> None:
    """What is added to a variable after a tensor with a batch was made, and is the number of its elements, counts them.

    Metrics of TensorFlow 1 do so: the count of a mean waits for the values.
    """
    for node in d.order:
        fact = ops.WRITES.get(node.op)
        if fact is None or not fact.additive or not node.controls:
            continue
        elements = d.elements(node.inputs[fact.value])
        one = _open(elements[0]) if elements and len(elements) == 1 else None
        if one is None:
            continue
        for control in node.controls:
            dims = d.dims(control.out()) if control.outputs else None
            if dims and any(follows_batch(s) for s in dims):
                count = times(*(_final(d, s) for s in dims))
                if d.sizes.at(count) == one.value:
                    d.sizes.tie(one, count)
                    d.reasons[one] = f"it is added after '{control.name}', which has as many elements"


def _divided_counts(d: Dimensions) -> None:
    """A variable that sums of rows are added to is divided by one that their number is added to."""
    added = {}
    for node in d.order:
        fact = ops.WRITES.get(node.op)
        variable = variable_of(node.inputs[fact.variables[0]]) if fact is not None and fact.additive else None
        if fact is not None and variable is not None:
            added[variable] = node.inputs[fact.value]
    for node in d.order if added else ():
        if node.op not in ops.DIVISIONS:
            continue
        total, count = (added.get(_read_from(t)) for t in node.inputs[:2])  # type: ignore[arg-type]
        elements = None if count is None else d.elements(count)
        one = _open(elements[0]) if elements and len(elements) == 1 else None
        if total is None or one is None:
            continue
        for size in _back(d, total):
            if follows_batch(size) and d.sizes.at(size) == one.value:
                d.sizes.tie(one, size)
                d.reasons[one] = "the sum of as many rows is divided by it"
                break


def _read_from(tensor: Tensor) -> Node | None:
    """The variable whose value a tensor is, guarded against zero perhaps."""
    node = tensor.node
    while node.op in ops.IDENTITIES | {"Maximum", "Cast", "Switch", "Merge"} and node.inputs:
        node = node.inputs[0].node
    return variable_of(node.inputs[0]) if node.op in ops.READS else None


def _even_parts(d: Dimensions) -> None:
    """Parts of one size that make up a number of rows together hold as many of them each."""
    d.sizes.even_parts()


_MOVED = frozenset({"Add", "AddV2", "Sub", "FloorMod", "Mod", "Minimum", "Maximum", "Less", "GreaterEqual", "Equal"})


def _row_numbers(d: Dimensions) -> None:
    """A number of rows that numbers of rows are moved by, or compared with, is that of the batch."""
    for node in d.order:
        if node.op != "Range" or not follows_batch((d.dims(node.out()) or (0,))[0]):
            continue
        count = (d.dims(node.out()) or (0,))[0]
        stack, seen = [node], {node}
        while stack:
            for use in stack.pop().uses():
                reader = use.node
                if reader in seen or reader not in d.nodes:
                    continue
                seen.add(reader)
                if reader.op in _MOVED and len(reader.inputs) == 2:
                    elements = d.elements(reader.inputs[1 - use.index])
                    one = _open(elements[0]) if elements and len(elements) == 1 else None
                    if one is not None and one.value == d.sizes.at(count):
                        d.sizes.tie(one, count)
                        d.reasons[one] = f"numbers of rows meet it in '{reader.name}'"
                if reader.op in _MOVED | {"Cast", "Identity", "Reshape", "ExpandDims"}:
                    stack.append(reader)


# --------------------------------------------------------------------------- loops


def _loop_limits(d: Dimensions) -> None:
    """A loop that takes the elements of a container one after the other has as many iterations as it has elements."""
    for node in d.order:
        if node.op not in ("Less", "LessEqual", "Greater") or not any(u.node.op in _CONDITIONS for u in node.uses()):
            continue
        for counter, limit in (node.inputs, tuple(reversed(node.inputs))):
            elements = d.elements(limit)
            one = _open(elements[0]) if elements else None
            if counter.node.op not in ops.MERGE or not elements or elements[0] is None:
                continue
            if one is None:
                for length in _lengths(d, counter):
                    if follows_batch(elements[0]) and _open(length) and d.sizes.at(length) == d.sizes.at(elements[0]):
                        d.sizes.tie(length, elements[0])
                continue
            lengths = list(_lengths(d, counter))
            for length in lengths:
                if follows_batch(length) and d.sizes.at(length) == one.value:
                    d.sizes.tie(one, length)
                    d.reasons[one] = "the loop takes the rows of the batch one after the other"

    for node in d.order:  # tf.while_loop counts to maximum_iterations beside the condition of the model
        if node.op == "LogicalAnd" and all(t.node.op == "Less" for t in node.inputs):
            first, second = (d.elements(t.node.inputs[1]) for t in node.inputs)
            if first and second and None not in (first[0], second[0]) and d.sizes.at(first[0]) == d.sizes.at(second[0]):  # type: ignore[arg-type]
                d.sizes.tie(first[0], second[0])  # type: ignore[arg-type]


_CONDITIONS = frozenset({"LoopCond", "LogicalAnd"})
_INDEXED = frozenset({"TensorArrayReadV3", "TensorArrayWriteV3", "TensorListGetItem", "TensorListSetItem"})


def _lengths(d: Dimensions, counter: Tensor) -> Iterator[Size]:
    """The lengths of the containers that a counter indexes."""
    stack, seen = [counter.node], {counter.node}
    while stack:
        for use in stack.pop().uses():
            node = use.node
            if node in seen:
                continue
            seen.add(node)
            if node.op in _INDEXED and use.index == 1:
                held = d.containers.get(d.handles.get(node.inputs[0], node.inputs[0]))
                if held is not None and held.length is not None:
                    yield held.length
            elif node.op in ops.IDENTITIES | ops.SWITCH:
                stack.append(node)
