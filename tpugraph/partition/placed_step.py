"""The placements of a step: what comes in from the host, which dimensions are the batch, where every value lives."""

from __future__ import annotations

from collections.abc import Mapping

from tpugraph import analysis
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import evidence
from tpugraph.analysis import placement_rules as _placement_rules  # registers its rules
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.step import ClosedShapes, SplitConstants
from tpugraph.ir import Graph, Node
from tpugraph.partition import one_row
from tpugraph.partition.fed_values import read_from_host, values_fed
from tpugraph.partition.numbered_constants import compute_instead
from tpugraph.partition.one_over_rows import divide_instead

_ = (_dimension_rules, _placement_rules)


def analyse(graph: Graph, rows: int, count: int = 1, *, policies: Mapping[str, str] | None = None,
            chosen: Mapping[str, bool] | None = None, nodes: analysis.NodeSet | None = None,
            split: SplitConstants | None = None) -> Placing:  # fmt: skip
    """The placements of a training step, with its dimensions and sizes.

    Args:
        graph: the graph, placed on host and device, with shapes.
        rows: rows of one core's batch.
        count: number of cores.
        policies: see :class:`Placing`.
        chosen: constants that are settled: by name, whether they hold the size of the batch.
        nodes: the nodes to analyse; those on the device by default.
        split: which constants hold sizes of a batch that was split.
    """
    device = analysis.cluster_nodes(graph) if nodes is None else nodes
    closed = graph.kept(ClosedShapes) or ClosedShapes()
    # Who asks whether a 1 is a row must find it settled.
    after = _sources(graph, closed.shape_of) if rows == 1 else None
    order = analysis.loop_order(graph, device, after)
    fed = values_fed(graph, read_from_host(graph, device, closed.shape_of if nodes is None else {}), rows,
                     None if split is not None else lambda of_host: analyse(graph, rows, nodes=of_host))  # fmt: skip
    if nodes is None:
        fed.refuse_several_rows(graph.source)
    dims, sizes = fed.dims, fed.elements
    if split is not None:
        dims |= {graph[name].out(): held for name, held in split.dims.items() if name in graph}
        sizes |= {graph[name].out(): held for name, held in split.elements.items() if name in graph}
    settled, only = dict(chosen or {}), None if split is None else set(split.names())
    if closed.ones is not None and only is None:  # no shape of the batch was a constant before
        only = {*closed.shape_of, *settled}

    def found(ones: bool, *, sure_writes: bool = True) -> Dimensions:
        made = Dimensions(graph, order, rows, dims, sizes, shape_of=closed.shape_of, chosen=settled, whole=rows * count,
                          only=only, ones=ones, literal_ones=closed.ones, sure_writes=sure_writes)  # fmt: skip
        evidence.weigh(made)
        return made

    dimensions = found(ones=False)
    if rows > 1 and (dimensions.sizes.conflicts or dimensions.has_parts_of_one_row()):
        other = found(ones=True)
        if len(other.sizes.conflicts) < max(len(dimensions.sizes.conflicts), 1):
            dimensions = other
    if dimensions.sums_left_out and count > 1 and one_row.contradictions(dimensions):
        other = found(ones=True, sure_writes=False)
        if one_row.contradictions(other) < one_row.contradictions(dimensions):
            dimensions = other
    if dimensions.ones and count > 1 and one_row.mend(graph, dimensions):
        order = analysis.loop_order(graph, analysis.cluster_nodes(graph), after)
        dimensions = found(ones=True)
    if count > 1 and nodes is None and split is None and _made_anew(graph, dimensions, settled):
        order = analysis.loop_order(graph, analysis.cluster_nodes(graph), after)
        dimensions = found(ones=dimensions.ones)
    fed.place_constants(dimensions, graph.source)
    return Placing(graph, order, dimensions, fed.placements, policies=policies)


def _made_anew(graph: Graph, dimensions: Dimensions, settled: dict[str, bool]) -> bool:
    """Replace constants that Python made of the rows, and settle the divisors among what does; returns whether there were some."""
    divisors, computed = divide_instead(graph, dimensions), compute_instead(graph, dimensions)
    settled |= dict.fromkeys(divisors, True)
    return bool(divisors or computed)


def _sources(graph: Graph, shape_of: Mapping[str, str]) -> dict[Node, Node]:
    """By constant the node whose shape it is."""
    made = {name: graph.get(tensor.partition(":")[0]) for name, tensor in shape_of.items()}
    return {graph[name]: source for name, source in made.items() if source is not None and name in graph}
