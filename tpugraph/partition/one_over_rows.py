"""Factors that are one over the rows, as in ``sum * (1 / rows)``: written as divisions, whose divisors can follow the batch."""

from __future__ import annotations

import numpy as np

from tpugraph import ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence import Factor, divided_before_sums, factors, multiplied_before_means, root_factors
from tpugraph.analysis.placing import Placing
from tpugraph.ir import Graph, Node
from tpugraph.partition.two_readings import follows_flag
from tpugraph.support.errors import ConversionError

_ALL = 3


def divide_instead(graph: Graph, d: Dimensions) -> list[str]:
    """Let what multiplies by one over the rows divide by them; returns the names of the divisors.

    A gradient reads the same factor, and the same divisor then.
    """
    made: dict[str, str] = {}
    for factor in list(factors(d)):
        number = factor.constant
        if number.name in made or not (d.constants.choice(number.name) or factor.witnesses == _ALL):
            continue
        made[number.name] = _divisor(graph, factor).name
    return list(made.values())


def _divisor(graph: Graph, factor: Factor) -> Node:
    """The divisor that is read instead of a constant by all that multiplies by it."""
    number = factor.constant
    kind = number.out().dtype
    divisor = graph.add("Const", f"{number.name}/rows", controls=number.controls, attrs={"dtype": kind,
                        "value": np.full(number.out().shape or (), factor.divisor, kind.name), CLUSTER_ATTR: CLUSTER},
                        outputs=number.outputs, source=number)  # fmt: skip
    for use in number.uses():
        node, other = use.node, use.node.inputs[1 - use.index] if len(use.node.inputs) == 2 else None
        if node.op in ops.SCALINGS and other is not None:
            graph.retype(node, "RealDiv", inputs=[other, divisor.out()])
            graph.note(node, f"multiplies by one over {factor.divisor} rows or elements: divides by their number")
    return divisor


def refuse_factors(placing: Placing, count: int) -> None:
    """Refuse a factor of which some speaks for being one over the rows, and some for being a number of the model.

    Raises:
        ConversionError: it names the constant, and the flags that settle it.
    """
    d = placing.d
    for factor in factors(d):
        name = factor.constant.name
        if factor.witnesses < _ALL - 1 or factor.node not in placing.verdicts:
            continue
        raise ConversionError(
            f"'{factor.node.name}' multiplies a sum over the batch by 1/{factor.divisor}, and a core's batch has {d.rows} rows: "
            f"if '{name}' is one over a number of rows, it is 1/{factor.divisor * count} for the whole batch; if it is a number "
            "of the model, it stays", node=factor.node, origin=placing.graph.source,
            fix=f"{follows_flag(name, 1 / factor.divisor, d.rows)} if it is, --literals={name} if it is not; divided by the rows "
            "it would be certain",
        )  # fmt: skip


def literal_means(placing: Placing) -> list[str]:
    """What the user should know of: what may make a mean of a sum over the batch, and is read as a number of the model."""
    noted = {
        f.constant.name: f"'{f.node.name}' multiplies a sum over the batch by 1/{f.divisor}, one over the number of elements or "
        "rows that are summed"
        for f in factors(placing.d) if f.counts and f.witnesses < _ALL - 1
    }  # fmt: skip
    for node, by in divided_before_sums(placing.d):
        noted[by.name] = f"'{node.name}' divides rows of the batch by as many as are summed then"
    found = {name: (what, "makes a mean of the sum") for name, what in noted.items()}
    for made in root_factors(placing.d):
        if placing.d.constants.choice(made.constant.name) is None:
            words = f"'{made.node.name}' multiplies a sum over the batch by {made.number:g}, which may be {made.reading}, the rows"
            found[made.constant.name] = (words, "follows the rows")
    for node, by in multiplied_before_means(placing.d):
        found[by.name] = (
            f"'{node.name}' multiplies rows of the batch by as many as a mean is of then",
            "makes a sum of the mean",
        )
    return [
        f"{what}: read as a number of the model; --batch_constants={name} if it {makes}, --literals={name} if it does not"
        for name, (what, makes) in found.items()
    ]
