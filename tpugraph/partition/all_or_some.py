"""Rows of a batch, or entries, that are taken up to a number as large as all of them: all, or as many of any batch."""

from __future__ import annotations

from tpugraph.analysis.constant_values import constant_at, fixed
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Unknown, follows_batch
from tpugraph.ir import Node
from tpugraph.partition.bounds_of_rows import bounds_of, trained
from tpugraph.partition.two_readings import refusal_of


def refuse_all_or_some(placing: Placing, count: int) -> None:
    """Refuse a number that ends a slice at the last row of a core's batch, where what is trained depends on what it counts.

    Raises:
        ConversionError: it names the constant, those that end slices of gradients with it, and the flags that settle them.
    """
    ends = _ends(placing)
    if not ends:
        return
    kept = trained(placing) if placing.d.rows > 1 else leading_to_loss(placing.d)  # gradients of one row take all
    for node, number in ends.items():
        if node in kept and node in placing.verdicts:
            names = ",".join(dict.fromkeys(_holder(one).name for one in ends.values() if one.root() is number.root()))
            raise refusal_of(
                placing, node, names, ("counts the rows", "does not"),
                f"'{node.name}' ({node.op}) takes rows up to {number.value}, and a core's batch has as many: if "
                f"'{_holder(number).name}' counts them, all {number.value * count} of the whole batch are taken; if it is a "
                f"number of the model, {number.value} of them are",
            )  # fmt: skip


def refuse_shares_of_one_row(placing: Placing, count: int) -> None:
    """Refuse a bound that is computed of as many as one row has entries, where all entries lie in one list: it may count these.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    graph, d = placing.graph, placing.d
    forward = leading_to_loss(d) if d.rows == 1 else {}
    for bound in (bound for bound in bounds_of(placing) if bound.node in forward and bound.rows.at(1) > 1):
        number = bound.rows.at(1)
        behind = graph.ancestors([bound.operand.node], data_only=True)
        name = next((node.name for node in behind if _may_count(d, node, number)), None)
        if name is not None:
            raise refusal_of(
                placing, bound.node, name, ("counts the entries", "does not"),
                f"'{bound.node.name}' ({bound.node.op}) takes entries up to a number made of '{name}', which is {number}, as many as "
                f"the one row of a core's batch has: if it counts them, it is {number * count} for the whole batch; if it is a "
                "number of the model, it stays",
            )  # fmt: skip


def _may_count(d: Dimensions, node: Node, number: int) -> bool:
    """Whether a constant holds a number, and nothing says that it follows the batch, or that it does not."""
    if not node.outputs or constant_at(node.out()) is None or fixed(node.out()) != [number]:
        return False
    if d.constants.choice(node.name) is not None:
        return False
    held = [size for size in d.elements(node.out()) or () if size is not None]
    return node.name not in d.constants.shape_of and not any(follows_batch(size) for size in held)


def ends_of_rows(placing: Placing) -> list[str]:
    """What the user should know of: rows taken up to a number that is as large as all of them, where nothing is trained by it."""
    found = {
        (name := _holder(number).name): f"'{node.name}' ({node.op}) takes rows up to {number.value}, and a core's batch has as many: "
        f"--batch_constants={name} if '{name}' counts them, --literals={name} if it does not"
        for node, number in _ends(placing).items()
    }  # fmt: skip
    return list(found.values())


def _ends(placing: Placing) -> dict[Node, Unknown]:
    """The slices that end at the last row of a core's batch by a number of which nothing is said, with that number."""
    d = placing.d
    guessed = {one.root() for one in (*d.untold.read_as_all, *d.sizes.presumed, *d.defaulted)}
    return {
        node: bound
        for node, bound, whole in d.untold.ends
        if follows_batch(whole) and bound.root() in guessed and d.constants.choice(_holder(bound).name) is None
    }


def _holder(bound: Unknown) -> Node:
    """The constant that a number is written in."""
    tensor, _ = bound.origin  # type: ignore[misc]
    return tensor.node  # type: ignore[has-type, no-any-return]
