"""What ops that give values another shape tie together."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.dimension_facts import LONGEST, Dims
from tpugraph.analysis.dimension_rules.size_arithmetic import product, total
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Size, Unknown
from tpugraph.ir import Node


@rule("ExpandDims")
def _expand_dims(d: Dimensions, node: Node) -> None:
    dims, axis = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    if dims is None or axis is None:
        d.fresh(node.out())
        return
    place = axis[0] % (len(dims) + 1)
    d.set(node.out(), (*dims[:place], 1, *dims[place:]))
    _pass_on(d, node)


@rule("Squeeze")
def _squeeze(d: Dimensions, node: Node) -> None:
    dims = d.dims(node.inputs[0])
    if dims is None:
        d.fresh(node.out())
        return
    axes = [a % len(dims) for a in node.attr("squeeze_dims", []) or []]
    gone = axes or [i for i, s in enumerate(dims) if d.sizes.at(s) == 1]
    d.set(node.out(), [s for i, s in enumerate(dims) if i not in gone])
    _pass_on(d, node)


def _pass_on(d: Dimensions, node: Node) -> None:
    d.set_elements(node.out(), d.elements(node.inputs[0]))
    d.set_level(node.out(), d.level(node.inputs[0]))


@rule("Transpose ConjugateTranspose")
def _transpose(d: Dimensions, node: Node) -> None:
    dims, order = d.dims(node.inputs[0]), d.numbers(node.inputs[1])
    if dims is not None and len(dims) == 1:
        order = [0]  # whatever the graph computes it of
    d.set(node.out(), None if dims is None or order is None else [dims[a] for a in order])
    d.set_level(node.out(), d.level(node.inputs[0]))
    elements = d.elements(node.inputs[0])
    if elements is not None and dims is not None and len(dims) == 2 and order == [1, 0]:
        high, wide = (d.sizes.at(s) for s in dims)
        d.set_elements(node.out(), [elements[row * wide + column] for column in range(wide) for row in range(high)])


@rule("Fill")
def _fill(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, 0)
    value, dims = d.level(node.inputs[1]), d.dims(node.out())
    d.set_level(node.out(), value)
    if (
        value is not None
        and value == int(value)
        and dims is not None
        and len(dims) <= 1
        and all(0 <= d.sizes.at(size) <= 8 for size in dims)
    ) and not node.out().dtype.floating:
        d.set_elements(node.out(), [int(value)] * (d.sizes.at(dims[0]) if dims else 1))


@rule("""RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal StatelessRandomUniform StatelessRandomNormal
    StatelessTruncatedNormal StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2 StatefulUniform StatefulStandardNormalV2
    Empty ParameterizedTruncatedNormal""")
def _drawn(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, ops.SHAPED_BY[node.op])


@rule("BroadcastTo")
def _broadcast_to(d: Dimensions, node: Node) -> None:
    shaped_by(d, node, 1)
    dims, out = d.dims(node.inputs[0]), d.dims(node.out())
    if dims is not None and out is not None:
        for k in range(1, len(dims) + 1):
            if d.sizes.at(dims[-k]) != 1:
                d.sizes.tie(dims[-k], out[-k])
    d.set_level(node.out(), d.level(node.inputs[0]))


def shaped_by(d: Dimensions, node: Node, operand: int) -> None:
    """One operand holds the shape of the output."""
    wanted = d.elements(node.inputs[operand])
    if wanted is not None and None not in wanted:
        d.set(node.out(), wanted)  # type: ignore[arg-type]
        return
    dims = d.fresh(node.out())
    if wanted is not None and dims is not None and len(dims) == len(wanted):
        for asked, size in zip(wanted, dims, strict=True):
            if asked is not None:
                d.sizes.tie(asked, size)


@rule("Tile")
def _tile(d: Dimensions, node: Node) -> None:
    dims, multiples = d.dims(node.inputs[0]), d.elements(node.inputs[1])
    if dims is None or multiples is None or len(dims) != len(multiples):
        d.fresh(node.out())
    else:
        times = [Unknown(-1) if many is None else many for many in multiples]  # None where only data tell
        made = [m if s == 1 else product(d, [s, m]) for s, m in zip(dims, times, strict=True)]
        d.set(node.out(), made)
        repeated = [(m, s, out) for s, m, out in zip(dims, times, made, strict=True) if 1 not in (s, m)]
        if len(repeated) == 1:
            (many, size, out) = repeated[0]
            d.layouts[node] = ((many, size), out)
        elements, often = d.elements(node.inputs[0]), d.sizes.at(times[0]) if len(times) == 1 else -1
        if elements is not None and 0 <= often <= LONGEST:
            d.set_elements(node.out(), elements * often)
    d.set_level(node.out(), d.level(node.inputs[0]))


@rule("Pack")
def _pack(d: Dimensions, node: Node) -> None:
    parts = [d.dims(t) for t in node.inputs]
    for other in parts[1:]:
        d.tie(parts[0], other)
    first = parts[0]
    if first is None:
        d.fresh(node.out())
        return
    axis = int(node.attr("axis", 0)) % (len(first) + 1)
    d.set(node.out(), (*first[:axis], len(parts), *first[axis:]))
    if not first:
        found = [d.elements(t) for t in node.inputs]
        d.set_elements(node.out(), [e[0] if e else None for e in found])
    elif len(first) == 1 and axis == 0:
        vectors = [d.elements(t) for t in node.inputs]
        d.set_elements(node.out(), None if None in vectors else [e for v in vectors for e in v or ()])


@rule("InvertPermutation")
def _invert(d: Dimensions, node: Node) -> None:
    order = d.numbers(node.inputs[0])
    d.set(node.out(), d.dims(node.inputs[0]))
    if order is not None and sorted(order) == list(range(len(order))):
        d.set_elements(node.out(), [order.index(i) for i in range(len(order))])


@rule("Unpack")
def _unpack(d: Dimensions, node: Node) -> None:
    dims = d.dims(node.inputs[0])
    elements = d.elements(node.inputs[0])
    for port in range(len(node.outputs or ())):
        if dims is None:
            d.fresh(node.out(port))
            continue
        axis = int(node.attr("axis", 0)) % len(dims)
        d.set(node.out(port), (*dims[:axis], *dims[axis + 1 :]))
        if elements is not None and port < len(elements):
            d.set_elements(node.out(port), [elements[port]])


@rule("ConcatV2 Concat")
def _concat(d: Dimensions, node: Node) -> None:
    record = ops.record(node.op)
    parts = [node.inputs[i] for i in record.data_operands(len(node.inputs))]
    axis = d.numbers(node.inputs[record.axis or 0])
    dims = [d.dims(t) for t in parts]
    if axis is None or any(x is None for x in dims):
        d.fresh(node.out())
        return
    shapes: list[Dims] = [x for x in dims if x is not None]
    place = axis[0] % max(len(shapes[0]), 1)
    for other in shapes[1:]:
        d.tie((*shapes[0][:place], *shapes[0][place + 1 :]), (*other[:place], *other[place + 1 :]))
    joined = total(d, [s[place] for s in shapes])
    d.set(node.out(), (*shapes[0][:place], joined, *shapes[0][place + 1 :]))
    if len(shapes[0]) == 1:
        lengths = [d.sizes.at(shape[0]) for shape in shapes]
        vectors = [d.elements(t) or [None] * n for t, n in zip(parts, lengths, strict=True)]
        d.set_elements(node.out(), None if -1 in lengths else [e for vector in vectors for e in vector])
    columns = [d.elements(t) for t in parts]
    if len(shapes[0]) == 2 and place == 1 and None not in columns:  # columns side by side
        high = d.sizes.at(shapes[0][0])
        rows = [
            [c[r * (len(c) // high) : (r + 1) * (len(c) // high)] for c in columns if c] for r in range(max(high, 0))
        ]
        d.set_elements(node.out(), [e for row in rows for cell in row for e in cell])


@rule("ConcatOffset")
def _concat_offset(d: Dimensions, node: Node) -> None:
    axis, shapes = d.numbers(node.inputs[0]), [d.elements(t) for t in node.inputs[1:]]
    for port in range(len(node.outputs or ())):
        d.fresh(node.out(port))
    if axis is None or any(s is None for s in shapes):
        return
    place, first = axis[0], shapes[0] or []
    offset: Size = 0
    for port, shape in enumerate(shapes):
        assert shape is not None
        for i, (one, other) in enumerate(zip(first, shape, strict=True)):  # all have one shape, but for that dimension
            if i != place % len(shape) and one is not None and other is not None:
                d.sizes.tie(one, other)
        d.set_elements(node.out(port), [offset if i == place % len(shape) else 0 for i in range(len(shape))])
        size = shape[place % len(shape)]
        offset = Unknown(0) if size is None else total(d, [offset, size])


@rule("Split SplitV")
def _split(d: Dimensions, node: Node) -> None:
    record = ops.record(node.op)
    (source,) = record.data_operands(len(node.inputs))
    dims, place = d.dims(node.inputs[source]), d.numbers(node.inputs[record.axis or 0])
    told = record.size_operands(len(node.inputs))
    sizes = d.elements(node.inputs[told[0]]) if told else None
    count = len(node.outputs or ())
    for port in range(count):
        out = node.out(port)
        if dims is None or place is None:
            d.fresh(out)
            continue
        at = place[0] % len(dims)
        piece = sizes[port] if sizes and sizes[port] is not None and d.sizes.at(sizes[port]) >= 0 else None  # type: ignore[arg-type]
        if piece is None:
            value = (out.shape or ())[at] if out.shape else None
            if value is None and not told and d.sizes.at(dims[at]) >= 0:
                value = d.sizes.at(dims[at]) // count
            piece = d.constants.may_follow(value, out)
            if not told and not isinstance(dims[at], int):
                d.sizes.product([dims[at]], [count, piece])
        d.set(out, (*dims[:at], piece, *dims[at + 1 :]))
    _split_elements(d, node, source, told)
    if told and dims is not None and place is not None and d.sizes.at(dims[place[0] % len(dims)]) >= 0:
        parts = [(d.dims(node.out(port)) or (-1,) * len(dims))[place[0] % len(dims)] for port in range(count)]
        d.sizes.sum([dims[place[0] % len(dims)]], parts)


def _split_elements(d: Dimensions, node: Node, source: int, told: tuple[int, ...]) -> None:
    """The parts of a small vector, as of a shape that is taken apart and put together anew."""
    elements, count = d.elements(node.inputs[source]), len(node.outputs or ())
    if elements is None or len(d.dims(node.inputs[source]) or ()) != 1:
        return
    sizes = d.numbers(node.inputs[told[0]]) if told else [len(elements) // count] * count
    if sizes is None or len(sizes) != count or sizes.count(-1) > 1:
        return
    sizes = [len(elements) - sum(sizes) - 1 if size == -1 else size for size in sizes]
    if min(sizes) < 0 or sum(sizes) != len(elements):
        return
    for port, size in enumerate(sizes):
        first = sum(sizes[:port])
        d.set_elements(node.out(port), elements[first : first + size])
