"""What the kinds of evidence have in common: unknown sizes, and numbers of elements that are summed or spread over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.dimension_facts import Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.sizes import Known, Poly, Size, Unknown, follows_batch, known, times
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of

_CONTROL_FLOW = ops.ENTER | ops.EXIT | ops.SWITCH | ops.MERGE | ops.NEXT_ITERATION
_ARITHMETIC = ops.ADD_N | ops.computing(np.add, np.subtract, np.negative, np.multiply)
_JOINED = ops.ADD_N | ops.MERGE | ops.computing(np.add, np.subtract)
LINEAR = ops.SAME_NUMBERS | ops.SHAPED_ANEW | ops.TRANSPOSES | _ARITHMETIC | _CONTROL_FLOW
"""Ops through which a number of elements is looked for: a factor in front of them is one behind them."""

FARTHEST = 64
"""How many tensors are looked at, at most, from one division."""


def unsettled(size: Size | None) -> Unknown | None:
    """The unknown that is not settled yet."""
    return size.root() if isinstance(size, Unknown) and known(size) is None else None


def root(size: Size) -> Size:
    """The unknown that stands for all that are tied to it; a known size itself."""
    return size.root() if isinstance(size, Unknown) else size


def agreed(sizes: Iterable[Size]) -> Size | None:
    """The first of some sizes, where all of them are told and are one; None where they are not."""
    told = list(sizes)
    alike = {known(size) for size in told}
    return told[0] if len(alike) == 1 and None not in alike else None


def values_of(d: Dimensions, elements: Elements) -> tuple[int, ...]:
    """What a vector holds in the traced graph, as far as anything is known of it."""
    return tuple(d.sizes.at(element) for element in elements if element is not None)


def final(d: Dimensions, size: Size) -> Known:
    """What a size is if nothing more speaks for it: a number of the model."""
    found = known(size)
    return found if found is not None else d.sizes.at(size)


def back(d: Dimensions, start: Tensor) -> Iterator[Size]:
    """The numbers of elements that a value was summed or spread over, looked for through linear ops.

    What a constant was spread over says nothing of a sum that begins with it, as one over steps does with zeros.
    """
    stack, seen = [start], {start}
    # of one row, a 1 behind a slice may as well be a number of the model
    sliced = ops.SLICES if d.rows > 1 else frozenset()
    while stack and len(seen) < FARTHEST:
        tensor = stack.pop()
        node = tensor.node
        count = summed(d, tensor) or spread_value(d, node)
        if count is not None:
            yield count
            d.sizes.propagate()
        elif node.op in LINEAR | ops.SUMS | sliced or _divides_by_model(d, node):
            through = node.inputs[:1] if node.op in ops.DIVISIONS | ops.SLICES else node.inputs
            following = [t for t in through if t not in seen and d.dims(t) is not None and not _begins(d, t, node)]
            seen.update(following)
            stack.extend(following)


def _begins(d: Dimensions, tensor: Tensor, joined: Node) -> bool:
    """Whether a constant that was spread is added to others in a node, or a loop begins with it."""
    filled = source_of(tensor, ops.IDENTITIES | ops.ENTER).node.op in ops.FILLS and d.level(tensor) is not None
    return filled and joined.op in _JOINED and any(d.level(t) is None for t in joined.inputs)


def _divides_by_model(d: Dimensions, node: Node) -> bool:
    """Whether a division is by a number that is no multiple of the rows: half of a sum, which may be made a mean after that."""
    by = d.level(node.inputs[1]) if node.op in ops.DIVISIONS else None
    return by is not None and not isinstance(by, bool) and by % d.rows != 0


def leading_to_loss(d: Dimensions) -> Mapping[Node, None]:
    """The nodes that the loss is made of, and no gradient is; none where the loss is not known, as in a part of a graph."""
    roles = d.graph.roles
    name = "" if roles is None else roles.loss.name.partition(":")[0]
    loss = d.graph.get(name)
    if loss is None:
        return {}
    return d.graph.remember(f"leading to {name}", lambda graph: graph.ancestors([loss], data_only=True))


def ahead(
    d: Dimensions,
    start: Node,
    within: Mapping[Node, None],
    counted: Callable[[Dimensions, Tensor], Size | None] | None = None,
) -> Iterator[Size]:
    """The numbers of elements that what a node makes is summed over, looked for through linear ops among some nodes.

    Args:
        d: the dimensions.
        start: the node.
        within: the nodes to look among.
        counted: how many elements a reduction makes one of, None of another reduction; of a sum if not given.
    """
    count_of = counted or summed
    stack, seen = [start], {start}
    while stack and len(seen) < FARTHEST:
        for use in stack.pop().uses():
            node = use.node
            if node in seen or node not in within or node not in d.nodes:
                continue
            seen.add(node)
            count = count_of(d, node.out()) if node.op in ops.REDUCTIONS else None
            if count is not None:
                yield count
            elif node.op in LINEAR or (node.op in ops.DIVISIONS and use.index == 0):
                stack.append(node)


def averaged(d: Dimensions, tensor: Tensor) -> Size | None:
    """How many elements a Mean is of, where the batch is among them."""
    node = tensor.node
    return _reduced(d, node, d.numbers(node.inputs[1])) if node.op in ops.MEANS else None


def summed(d: Dimensions, tensor: Tensor) -> Size | None:
    """How many elements a Sum makes one of, where the batch is among them."""
    node = tensor.node
    bins = ops.BINS.get(node.op)
    if bins is not None:
        if tensor.port != bins.port:
            return None
        counted = d.dims(node.inputs[bins.operand]) or ()
        gone = list(counted[:-1] if bins.places else counted)
        return times(*(final(d, s) for s in gone)) if any(follows_batch(s) for s in gone) else None
    if node.op not in ops.SUMS | ops.SQUARED_SUMS:
        return _contracted(d, node)
    axes = range(len(d.dims(node.inputs[0]) or ())) if node.op in ops.SQUARED_SUMS else d.numbers(node.inputs[1])
    return _reduced(d, node, axes)


def _reduced(d: Dimensions, node: Node, axes: Iterable[int] | None) -> Size | None:
    """How many elements there are along the axes of an operand, where the batch is among them."""
    dims = d.dims(node.inputs[0])
    if not dims or axes is None:
        return None
    gone = [dims[a % len(dims)] for a in axes]
    return times(*(final(d, s) for s in gone)) if any(follows_batch(s) for s in gone) else None


def _contracted(d: Dimensions, node: Node) -> Size | None:
    """How many products an op adds up along the batch."""
    found = (gone for gone in _contractions(d, node) if any(follows_batch(s) for s in gone))
    gone = next(found, None)
    return None if gone is None else times(*(final(d, s) for s in gone))


def _contractions(d: Dimensions, node: Node) -> Iterator[list[Size]]:
    """The dimensions of each operand along which a linear op adds up products."""
    signature = d.signature(node)
    if signature is None or not signature.linear or signature.elementwise:
        return
    kept = {letter for tokens in signature.outputs for letter in tokens or ()}
    for tokens, tensor in zip(signature.inputs, node.inputs, strict=False):
        dims = d.dims(tensor)
        if tokens is None or not dims:
            continue
        named = tokens[1:] if tokens[:1] == ("...",) else tokens
        tail = dims[len(dims) - len(named) :]
        yield [s for t, s in zip(named, tail, strict=False) if t not in kept and not signatures.whole(t)]


def spread(d: Dimensions, node: Node) -> Size | None:
    """How many elements one element is spread to, where the batch is among them."""
    new = _spread_along(d, node)
    return times(*new) if any(isinstance(s, Poly) for s in new) else None


def spread_value(d: Dimensions, node: Node) -> Size | None:
    """How many elements one is spread to, unless that fills something with a constant on the way to the loss.

    Ones of all rows may be divided by any number there, of classes as of the rows. Of a mean, gradients tile what they divide.
    """
    filled = node in leading_to_loss(d) and node.op in ops.FILLS and d.level(node.out()) is not None
    return None if filled else spread(d, node)


def _spread_along(d: Dimensions, node: Node) -> list[Known]:
    """The dimensions that one element is spread along."""
    source = d.dims(node.inputs[1 if node.op in ops.FILLS else 0]) if node.op in ops.SPREADS else None
    out = None if source is None else d.dims(node.out())
    if source is None or out is None:
        return []
    return [final(d, s) for i, s in enumerate(reversed(out)) if i >= len(source) or final(d, source[-1 - i]) == 1]


def beside_rows(d: Dimensions, node: Node) -> set[int]:
    """The numbers of elements that are no rows that a node adds up, averages, or spreads one element to."""
    if node.op in ops.REDUCTIONS:
        dims, axes = d.dims(node.inputs[0]), d.numbers(node.inputs[1]) if len(node.inputs) > 1 else None
        gone = [[final(d, dims[a % len(dims)]) for a in axes]] if dims and axes else []
    elif node.op in ops.SPREADS:
        gone = [_spread_along(d, node)]
    else:
        gone = [[final(d, s) for s in sizes] for sizes in _contractions(d, node)] if node.outputs else []
    return {math.prod(s for s in sizes if isinstance(s, int)) for sizes in gone if sizes}
