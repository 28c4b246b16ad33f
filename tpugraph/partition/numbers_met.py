"""Constants in doubt, and numbers computed of them, that meet values of the whole batch or weigh rows before a sum.

A number that Python or a fold made of the rows is an operand like any other: its logarithm is subtracted, its root divides, it
is part of a weight. What comes of it depends on whether it follows the rows wherever it meets what all rows were put together
for, and wherever it multiplies or divides rows that are added up after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence import root_divisors, shares_of_classes
from tpugraph.analysis.evidence.divisors import divides_a_mean, unguarded
from tpugraph.analysis.evidence.readings import number_in
from tpugraph.analysis.evidence.summed import LINEAR, back, leading_to_loss, summed
from tpugraph.analysis.placements import Partial, Replicate, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of
from tpugraph.partition.doubted_numbers import Doubted, doubted_numbers, is_model
from tpugraph.partition.two_readings import constant_behind, refusal_of

_SAME = ops.SAME_NUMBERS | ops.IDENTITIES | ops.SHAPED_ANEW
_DIFFERENCES = ops.computing(np.subtract)
_LINEAR = LINEAR | ops.PRODUCTS
_SURE = 2
"""Above it few models multiply shares by exactly as many as all rows have together unless it is that."""


def refuse_met_numbers(placing: Placing, count: int) -> None:
    """Refuse a number that may be made of the rows where the result depends on whether it is.

    Raises:
        ConversionError: it names the constant that the number is made of, and the flags that settle it.
    """
    d = placing.d
    for node, doubted, how in (*_shares(placing.d), *_met(placing)) if d.rows > 1 else ():
        if node not in placing.verdicts:
            continue
        name, reading = doubted.node.name, doubted.reading
        written = (
            doubted.number if number_in(doubted.node) == doubted.number else None
        )  # else it counts what the constant holds
        if reading is None:
            what, then = f"{doubted.number:g}", f"is {doubted.number * count:g} for the whole batch"
            times = round(doubted.number) // d.rows
            what += f", which is {'as many as' if times == 1 else f'{times} times'} the {d.rows} rows of a core's batch"
        else:
            what = f"{doubted.number:g}, which is {reading}, and a core's batch has {d.rows} rows"
            then = f"is {reading.words.format(reading.of * count)} for the whole batch"
        raise refusal_of(
            placing, node, name, ("follows the rows", "does not"),
            f"'{node.name}' ({node.op}) {how} by a number made of '{name}', {what}: if '{name}' follows them, it {then}; if it is "
            "a number of the model, it stays", written,
        )  # fmt: skip


def _met(placing: Placing) -> Iterator[tuple[Node, Doubted, str]]:
    """Where numbers in doubt decide what comes out: the node, the constant, and what becomes of which values there."""
    numbers, alone = doubted_numbers(placing.d)
    graph = placing.graph
    of_input = graph.descendants(graph.of_type(*ops.INPUTS), data_only=True) if numbers else {}
    forward = leading_to_loss(placing.d)
    roots = {made.node for made in root_divisors(placing.d)}
    for node in placing.verdicts if numbers else ():
        if not node.outputs or not node.out().dtype.floating:
            continue
        for index, tensor in enumerate(node.inputs):
            doubted = numbers.get(tensor)
            others = [t for t in node.inputs if t.node not in alone and t.node in of_input]
            if doubted is None or not others:
                continue
            if node.op not in ops.ELEMENTWISE:
                if (
                    doubted.sure
                    and _contracts(placing.d, node, index)
                    and (node in forward or doubted.node not in forward)
                ):
                    yield node, doubted, "weighs rows of the batch that are added up"
                continue
            if any(is_model(placing.d, t, doubted) for t in others):
                continue
            if any(_holds_whole(placing, t) for t in others):
                counted = _counts_down(placing.d, node, doubted) or _counts(placing.d, node, doubted, forward)
                if doubted.sure or node in roots or counted or _makes_weights(placing, node, others, doubted, forward):
                    yield node, doubted, "changes a value of the whole batch"
            elif _weighs(placing.d, node, index, doubted, forward) or _makes_weights(
                placing, node, others, doubted, forward
            ):
                yield node, doubted, "weighs rows of the batch that are added up"


def _counts(d: Dimensions, node: Node, doubted: Doubted, forward: Mapping[Node, None]) -> bool:
    """Whether the loss is computed with exactly as many as there are rows, or pairs of rows: with a two any model may be.

    A mean over the rows is divided by their number no more.
    """
    if d.rows == 2 or doubted.number not in (d.rows, d.rows**2) or node not in forward or doubted.node not in forward:
        return False
    return not (node.op in ops.DIVISIONS and divides_a_mean(d, node))


def _shares(d: Dimensions) -> Iterator[tuple[Node, Doubted, str]]:
    """Where numbers of rows divide what may be the rows over as many classes: so the weights of these are made."""
    for made in shares_of_classes(d):
        if d.constants.choice(made.constant.name) is None:
            yield made.node, Doubted(made.constant, made.number, made.reading, True), "weighs numbers of rows"


def _makes_weights(
    placing: Placing, node: Node, others: list[Tensor], doubted: Doubted, forward: Mapping[Node, None]
) -> bool:
    """Whether what each row is of all rows is multiplied by as many as there are: weights, whose mean is one then.

    So are entries of rows that a sum over all of them divides, and as many as are summed multiply, before or after that.
    """
    if node.op not in ops.SCALINGS or node not in forward or doubted.reading:
        return False
    if doubted.number == placing.d.rows and any(are_shares(placing, tensor) for tensor in others):
        return True
    sums = _sums_dividing(placing.d, node, others, forward) if doubted.number > _SURE else ()
    return any(doubted.number == placing.d.sizes.at(count) for count in sums)


def _sums_dividing(d: Dimensions, node: Node, others: list[Tensor], forward: Mapping[Node, None]) -> Iterator[Size]:
    """The numbers of elements of the sums over the batch that divide what a product is made of, or what is made of it."""
    ahead = reached(
        [node], lambda at: (use.node for use in at.uses() if use.node in forward and _hands_on(use.node, use.index))
    )
    besides = [t for at in ahead if at in forward and at.op in ops.SCALINGS for t in at.inputs if t.node not in ahead]
    behind = reached([t.node for t in (*others, *besides)], _handed)
    for at in (*ahead, *behind):
        if at.op in ops.DIVISIONS:
            yield from (count for count in back(d, unguarded(at.inputs[1])) if follows_batch(count))


def _handed(node: Node) -> Iterator[Node]:
    """The nodes whose factors are those of what a node makes."""
    yield from (t.node for index, t in enumerate(node.inputs) if _hands_on(node, index))


def _hands_on(node: Node, index: int) -> bool:
    """Whether a factor of an operand is one of what a node makes."""
    return node.op in _LINEAR or (node.op in ops.DIVISIONS | ops.SUMS | ops.MEANS and index == 0)


def are_shares(placing: Placing, tensor: Tensor) -> bool:
    """Whether rows are divided by a sum over all of them, or computed with all of them as those of a softmax are."""
    d, node = placing.d, source_of(tensor, _SAME).node
    if node not in placing.verdicts or not node.outputs or not d.axes(node.out()):
        return False
    if node.op in ops.DIVISIONS:
        by = node.inputs[1]
        return bool(d.axes(node.inputs[0])) and not d.axes(by) and any(map(follows_batch, back(d, by)))
    if len(node.inputs) != 1:  # a product of matrices reads all rows of one, too
        return False
    wanted = placing.verdicts[node].wants.get(0)
    return isinstance(wanted, Replicate) and isinstance(placing.read(node.inputs[0]), Shard)


def _holds_whole(placing: Placing, tensor: Tensor) -> bool:
    """Whether a value was made of all rows of the batch, and no core has rows of its own of it."""
    placement = placing.made(tensor)
    return isinstance(placement, Partial) or (isinstance(placement, Replicate) and not placing.d.elements(tensor))


def _counts_down(d: Dimensions, node: Node, doubted: Doubted) -> bool:
    """Whether a sum is taken from as many as it is of: the rows less those that are marked are the others."""
    if (
        node.op not in _DIFFERENCES
        or doubted.reading is not None
        or constant_behind(node.inputs[0]) is not doubted.node
    ):
        return False
    return any(follows_batch(count) and d.sizes.at(count) == doubted.number for count in back(d, node.inputs[1]))


def _contracts(d: Dimensions, node: Node, index: int) -> bool:
    """Whether a node adds up products of an operand and others along the rows of the batch, as a product of matrices does."""
    signature = d.signature(node)
    named = signature is not None and index < len(signature.inputs) and signature.inputs[index] is not None
    count = summed(d, node.out()) if named and node.op not in ops.REDUCTIONS else None
    return count is not None and follows_batch(count)


def _weighs(d: Dimensions, node: Node, index: int, doubted: Doubted, forward: Mapping[Node, None]) -> bool:
    """Whether a product or quotient of rows and a number is added up over the batch.

    Of a number that the loss is made of the gradients tell nothing: they have its factors once more.
    """
    if node.op not in ops.SCALINGS and not (node.op in ops.DIVISIONS and index == 1):
        return False
    if not doubted.sure and (doubted.node in forward or doubted.reading is not None or node.op in ops.SCALINGS):
        return False
    if doubted.node in forward and node not in forward:
        return False
    within = forward if node in forward else d.nodes
    stack, seen = [node], {node}
    while stack:
        for use in stack.pop().uses():
            reader = use.node
            if reader in seen or reader not in within or reader not in d.nodes or not reader.outputs:
                continue
            seen.add(reader)
            count = summed(d, reader.out())
            if count is not None and follows_batch(count):
                return True
            if reader.op in LINEAR | ops.SUMS or (reader.op in ops.DIVISIONS and use.index == 0):
                stack.append(reader)
    return False
