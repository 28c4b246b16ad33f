"""How a loss combines over cores: is it a mean or a sum over the batch, or a mean with weights of its own?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tpugraph.analysis import NodeSet
from tpugraph.degrees import Degrees, unclear
from tpugraph.errors import RolesError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.mixing import Mixing


@dataclass(frozen=True)
class Reduction:
    """How the shards of the global batch combine.

    Attributes:
        kind: ``mean`` (each core counts the same), ``sum``, or ``weighted`` (a mean once the ``divisors`` speak of the
            global batch).
        reason: why, for the report.
        divisors: for ``weighted``, the scalars that parts of the loss are divided by and that the batch decides.
        means: those of the divisors that are means over the batch; the others are sums.
        doubt: what was assumed and may be wrong, or None.
        departs: why the result is not that of the whole batch, or None where it is.
        statistics: the nodes that normalise rows by statistics of the rows of one core.
    """

    kind: str
    reason: str
    divisors: tuple[Tensor, ...] = ()
    means: tuple[Tensor, ...] = ()
    doubt: str | None = None
    departs: str | None = None
    statistics: frozenset[Node] = frozenset()


def of_loss(
    graph: Graph, loss: Tensor, varying: NodeSet, batch: int | None, *, rescaled: Collection[str] | None = None
) -> Reduction:
    """Decide from the graph: is the loss divided by something that grows with the batch?

    Args:
        graph: the graph, with shapes.
        loss: the scalar loss.
        varying: the replica-varying nodes.
        batch: rows of one core's batch, or None where unknown.
        rescaled: where the traced batch was split over the cores, the constants that were re-derived for it; any other
            constant speaks of the global batch and does not grow with one core's.

    Raises:
        RolesError: parts of the loss grow differently with the batch.
    """
    walk = Degrees(graph, loss, varying, batch, rescaled)
    kind = _kind(graph, loss, walk, rescaled)
    if kind.doubt:
        kind = replace(kind, doubt=f"{kind.doubt}; if it is not, say --loss_reduction=mean or sum")
    elif kind.kind == "sum" and walk.divides_rows and not rescaled:
        number, value = next(iter(walk.divides_rows.items()))
        doubt = f"'{number}' ({value:g}) divides single rows, and is not taken for the size of the batch of {batch}"
        kind = replace(kind, doubt=f"{doubt}; if it is, say --loss_reduction=mean")
    mixed = walk.mixing()
    for node, divisor in mixed.divisors.items():
        if divisor not in kind.divisors:
            mixed.faults.setdefault(node, f"({node.op}) divides rows of the batch by a number made of all rows")
    if not walk.knows_rows:
        return replace(kind, departs=_unchecked(mixed, batch))
    if mixed.faults:
        node, fault = next(iter(mixed.faults.items()))
        raise unclear(graph, node, f"the loss is no mean or sum over the rows of the batch: '{node.name}' {fault}")
    return replace(kind, departs=mixed.note(), statistics=frozenset(mixed.own_statistics))


def _unchecked(mixed: Mixing, batch: int | None) -> str:
    """What is said of a batch of one row, or of an unknown number."""
    rows = "an unknown number of rows" if batch is None else "1 row"
    text = f"a core has {rows}, so it cannot be told whether rows of the batch meet other than in a sum or a mean"
    if not mixed.faults:
        return text
    node, fault = next(iter(mixed.faults.items()))
    return f"{text}: if they do at '{node.name}' {fault}, the result is not that of the whole batch"


def on_one_core(graph: Graph, loss: Tensor, varying: NodeSet, batch: int | None) -> Reduction:
    """One core has the whole batch: any loss is what it was, and what it would be on several is only told."""
    try:
        return of_loss(graph, loss, varying, batch)
    except RolesError as error:
        return Reduction("mean", f"one core has the whole batch; on several it would be refused: {error.fault}")


def chosen(graph: Graph, loss: Tensor, varying: NodeSet, batch: int | None, kind: str) -> Reduction:
    """The reduction that the user chose, and whether it gives what the whole batch would."""
    walk = Degrees(graph, loss, varying, batch, None)
    mixed = walk.mixing() if walk.knows_rows else Mixing()
    statistics = frozenset(mixed.own_statistics)
    return Reduction(kind, "chosen with --loss_reduction", departs=mixed.note(), statistics=statistics)


def of_value(
    graph: Graph,
    value: Tensor,
    varying: NodeSet,
    batch: int | None,
    *,
    known: Collection[str] = (),
    rescaled: Collection[str] | None = None,
) -> Reduction:
    """How a value that a variable is given combines over cores: it is a mean or a sum over the batch, or departs.

    Args:
        graph: the graph, with shapes.
        value: what is written.
        varying: the replica-varying nodes.
        batch: rows of one core's batch, or None where unknown.
        known: names of nodes that normalise rows by one core's statistics and were noted already.
        rescaled: as for :func:`of_loss`.
    """
    walk = Degrees(graph, value, varying, batch, rescaled)
    try:
        degree = max(walk.degree(value), 0)
    except RolesError as error:
        return Reduction("mean", error.fault, departs=error.fault)
    departs = _departs(walk, value, degree, known)
    return Reduction("sum" if degree == 1 else "mean", "", departs=departs, doubt=walk.doubt)


def is_sum(
    graph: Graph, value: Tensor, varying: NodeSet, batch: int | None, *, rescaled: Collection[str] | None = None
) -> bool:
    """Whether a number is a sum over the rows of the batch and nothing else; arguments as for :func:`of_value`."""
    walk = Degrees(graph, value, varying, batch, rescaled)
    try:
        degree = walk.degree(value)
    except RolesError:
        return False
    return degree == 1 and _departs(walk, value, degree, ()) is None


def _departs(walk: Degrees, value: Tensor, degree: int, known: Collection[str]) -> str | None:
    """Why neither the mean nor the sum over the cores is what the whole batch would give."""
    mixed = walk.mixing() if walk.knows_rows else Mixing()
    statistics = [node for node in mixed.own_statistics if node.name not in known]
    if walk.holds_rows(value):
        return f"'{value}' holds rows of the batch"
    if mixed.joins:
        return f"'{mixed.joins[0].name}' puts rows of the batch beside others"
    if mixed.faults:
        node, fault = next(iter(mixed.faults.items()))
        return f"'{node.name}' {fault}"
    if walk.weights or walk.means or mixed.divisors or degree > 1:
        return f"'{value}' is divided by a number that the batch decides, or grows with a power of the batch"
    if statistics:
        return f"'{statistics[0].name}' ({statistics[0].op}) compares the rows of each core with their own statistics"
    return None


def _kind(graph: Graph, loss: Tensor, walk: Degrees, rescaled: Collection[str] | None) -> Reduction:
    degrees = [(max(degree, 0), tensor) for degree, tensor in walk.addends(loss)]
    found = {degree for degree, _ in degrees}
    if len(found) > 1:
        parts = "; ".join(f"'{t}' is {'a sum' if d else 'a mean'}" for d, t in degrees[:4])
        raise unclear(graph, loss.node, f"the loss adds a mean over the batch and a sum over it: {parts}")
    degree = found.pop() if found else 0
    if degree > 1:
        raise unclear(graph, loss.node, f"the loss grows with the batch size to the power {degree}")
    if degree == 1:
        divides = "what divides it is the size of the global batch" if rescaled else "nothing divides by its size"
        reason = f"'{walk.summed_by or loss}' sums over the batch and {divides}"
        return Reduction("sum", reason, doubt=walk.doubt)
    divisors = tuple(dict.fromkeys([*walk.weights, *walk.means]))
    if divisors:
        named = ", ".join(f"'{t}'" for t in divisors)
        reason = f"the loss is divided by {named}, which the batch decides"
        return Reduction("weighted", reason, divisors, tuple(dict.fromkeys(walk.means)), doubt=walk.doubt)
    why = walk.averaged_by or "no sum over the batch leads to it"
    return Reduction("mean", f"the loss is a mean over the batch ({why})", doubt=walk.doubt)
