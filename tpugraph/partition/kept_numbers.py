"""Numbers of the loss that may be made of the rows where nothing is refused: the report names them, with the flags to settle them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence.readings import number_in
from tpugraph.analysis.evidence.summed import leading_to_loss
from tpugraph.analysis.placements import Partial, Replicate, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Node, Tensor
from tpugraph.partition.doubted_numbers import Doubted, doubted_numbers, is_model, one_over_rows
from tpugraph.partition.ones_in_doubt import scaled_by_one
from tpugraph.partition.pairs_in_doubt import divisors_of_pairs
from tpugraph.partition.two_readings import constant_behind, follows_flag

_SURE = 2
"""Above it few models divide a sum by one less than the rows unless it is that."""


def kept_numbers(placing: Placing) -> list[str]:
    """What the user should know of: numbers of the loss that are as many as the rows, or one over them, read as of the model.

    So are those that the step counter is computed with, and one less than the rows where it divides what all rows make together.
    """
    d = placing.d
    kept: dict[float, dict[str, None]] = {}
    less: dict[str, dict[str, None]] = {}
    if d.rows > 1:
        for doubted in _as_many(placing):
            kept.setdefault(doubted.number, {})[doubted.node.name] = None
        for node, formula in _one_less(placing):
            less.setdefault(formula, {})[node.name] = None
    if d.rows == 1:
        kept[1] = dict.fromkeys(scaled_by_one(placing))
    made = [
        (f"{number:g}", ",".join(names), follows_flag(",".join(names), number, d.rows))
        for number, names in kept.items()
        if names
    ]
    for formula, names in less.items():
        flag = ",".join(f"{name}={formula}" for name in names)
        made.append((f"what is {formula}", ",".join(names), f"--batch_constants={flag}"))
    rows = f"{d.rows} rows" if d.rows > 1 else "one row"
    return [
        f"the loss is computed with {number}, which a core's batch of {rows} may have made of these: read as a number of "
        f"the model; {flag} if it counts rows, --literals={names} if it does not"
        for number, names, flag in made
    ] + _counted_pairs(placing)


def _as_many(placing: Placing) -> Iterator[Doubted]:
    """Numbers that are as many as the rows, or one over them, and meet what comes of the input, or the step counter."""
    d, forward, graph = placing.d, leading_to_loss(placing.d), placing.graph
    numbers, alone = doubted_numbers(d)
    of_input, of_step = graph.descendants(graph.of_type(*ops.INPUTS), data_only=True), _of_step(placing)
    of_all = _of_all(placing, forward)
    for node in placing.verdicts:
        stepping = any(t.node in of_step and t.node not in of_input for t in node.inputs)
        if not (stepping and node.op in ops.ELEMENTWISE) and not _is_of_loss(node, forward):
            continue
        others = [t for t in node.inputs if t.node not in alone and (t.node in of_input or t.node in of_step)]
        may_count = _may_count_steps if stepping else _may_count_rows
        met = (t for t in node.inputs if others and (node.op in ops.ELEMENTWISE or t.dtype.floating))
        for doubted in filter(None, (numbers.get(t) or one_over_rows(d, t) for t in met)):
            of_user = doubted.node.made_by is None  # what a pass made is no number of the user's graph
            features = any(is_model(d, t, doubted) and t.node not in of_all for t in others)
            if of_user and may_count(d, node, doubted) and not features:
                yield doubted


def _is_of_loss(node: Node, forward: Mapping[Node, None]) -> bool:
    return node in forward and bool(node.outputs) and node.out().dtype.floating


def _may_count_rows(d: Dimensions, node: Node, doubted: Doubted) -> bool:
    return doubted.reading is not None or doubted.number in (d.rows, d.rows**2)


def _may_count_steps(d: Dimensions, node: Node, doubted: Doubted) -> bool:
    """Whether a number beside the step counter may make rows of steps: of two rows, a factor may, and little else is one."""
    return doubted.number == d.rows and (d.rows > _SURE or node.op in ops.SCALINGS)


def _counted_pairs(placing: Placing) -> list[str]:
    """The divisors of sums over all pairs of two or three rows that may count pairs, or rows, in another way than they are read."""
    d, found = placing.d, {}
    for divisor in divisors_of_pairs(placing):
        if d.rows == 2 and divisor.counts_rows:
            continue  # refused
        other = "2*rows" if not divisor.counts_rows else "rows*(rows-1)/2"
        found[divisor.constant] = (
            f"'{divisor.node.name}' divides a sum over all pairs of the {d.rows} rows of a core's batch by {divisor.number}: read as "
            f"the number of {'the rows' if divisor.counts_rows else 'these'}; --batch_constants={divisor.constant}={other} if it is "
            f"that, --literals={divisor.constant} if it is a number of the model"
        )
    return list(found.values())


def _of_step(placing: Placing) -> Mapping[Node, None]:
    """What is computed of the step counter."""
    graph, role = placing.graph, placing.graph.roles.step
    step = None if role is None else graph.get(role.name)
    return {} if step is None else graph.descendants([step], data_only=True)


def _one_less(placing: Placing) -> Iterator[tuple[Node, str]]:
    """The divisors that are one less than the rows, or its square, of what all rows of the batch make together."""
    d, forward = placing.d, leading_to_loss(placing.d)
    of_all = _of_all(placing, forward)
    formulas = {(d.rows - 1) ** 2: "(rows-1)*(rows-1)", d.rows - 1: "rows-1"}
    for node in forward:
        if node.op not in ops.DIVISIONS or node not in placing.verdicts or node.inputs[0].node not in of_all:
            continue
        by = constant_behind(node.inputs[1])
        number = number_in(by) if by.op in ops.CONSTANTS and by.made_by is None else None
        if (
            number not in formulas
            or d.constants.choice(by.name) is not None
            or not (d.axes(node.inputs[0]) or number > _SURE)
        ):
            continue
        yield by, formulas[int(number)]


def _of_all(placing: Placing, forward: Mapping[Node, None]) -> Mapping[Node, None]:
    """What all rows of the batch make together, and what is made of that."""
    return placing.graph.descendants([node for node in forward if _joins_rows(placing, node)], data_only=True)


def _joins_rows(placing: Placing, node: Node) -> bool:
    """Whether a node makes something of rows of all cores: it adds them up, or reads all of them."""
    verdict = placing.verdicts.get(node)
    if verdict is None:
        return False
    gathers = any(
        isinstance(want, Replicate) and _has_rows(placing, node.inputs[i]) for i, want in verdict.wants.items()
    )
    return gathers or any(isinstance(made, Partial) for made in verdict.outputs)


def _has_rows(placing: Placing, tensor: Tensor) -> bool:
    return isinstance(placing.read(tensor), Shard)
