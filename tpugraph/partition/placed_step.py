"""The placements of a step: what comes in from the host, which dimensions are the batch, where every value lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tpugraph import analysis
from tpugraph.analysis import dimension_rules as _dimension_rules  # registers its rules
from tpugraph.analysis import evidence
from tpugraph.analysis import placement_rules as _placement_rules  # registers its rules
from tpugraph.analysis.dimension_facts import Dims, Elements
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.step import ClosedShapes, SplitConstants
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.partition import one_row
from tpugraph.partition.fed_values import FedValues, measured_only, read_from_host, values_fed
from tpugraph.partition.numbered_constants import compute_instead
from tpugraph.partition.one_over_rows import divide_instead
from tpugraph.partition.remade_constants import compute_chosen

_ = (_dimension_rules, _placement_rules)


@dataclass(frozen=True)
class _Asked:
    """What is asked for of a step: the dimensions of its tensors, whatever order of its nodes.

    Attributes:
        graph: the graph.
        rows: rows of one core's batch.
        whole: rows of all cores.
        dims: the dimensions of what comes in.
        sizes: the elements of the sizes that come in.
        closed: what is known of shapes that were closed.
        settled: constants that are settled, by name.
        only: the constants that may hold the size of the batch; None where any may.
    """

    graph: Graph
    rows: int
    whole: int
    dims: dict[Tensor, Dims]
    sizes: dict[Tensor, Elements]
    closed: ClosedShapes
    settled: dict[str, bool]
    only: set[str] | None

    def found(self, order: Sequence[Node], *, ones: bool, sure_writes: bool = True) -> Dimensions:
        """The dimensions, with all that speaks for them; ``ones`` says whether a 1 may be a number of rows."""
        made = Dimensions(
            self.graph,
            order,
            self.rows,
            self.dims,
            self.sizes,
            shape_of=self.closed.shape_of,
            chosen=self.settled,
            whole=self.whole,
            only=self.only,
            ones=ones,
            opened=bool(self.closed.batches),
            literal_ones=self.closed.ones,
            sure_writes=sure_writes,
        )
        evidence.weigh(made)
        return made

    def least_conflicting(self, order: Sequence[Node]) -> Dimensions:
        """The dimensions, with numbers of one row only where the step has parts of one row, or contradicts itself without."""
        summed = (  # whether the sums of gradients over the rows are in the graph for sure
            self.rows > 1 or self.whole == 1 or self.closed.ones is not None
        )
        dimensions = self.found(order, ones=False, sure_writes=summed)
        conflicts = len(dimensions.sizes.conflicts)
        if self.rows == 1 or not (conflicts or dimensions.has_parts_of_one_row()):
            return dimensions
        other = self.found(order, ones=True)
        return other if len(other.sizes.conflicts) < max(conflicts, 1) else dimensions

    def least_contradictory(self, order: Sequence[Node], dimensions: Dimensions) -> Dimensions:
        """The dimensions, with the other reading of writes where the step contradicts itself: that sums were left out, or not."""
        if not dimensions.sums_left_out or self.whole == self.rows or not one_row.contradictions(dimensions):
            return dimensions
        other = self.found(order, ones=True, sure_writes=not dimensions.sure_writes)
        return other if one_row.contradictions(other) < one_row.contradictions(dimensions) else dimensions


def analyse(
    graph: Graph,
    rows: int,
    count: int = 1,
    *,
    policies: Mapping[str, str] | None = None,
    chosen: Mapping[str, bool] | None = None,
    nodes: analysis.NodeSet | None = None,
    split: SplitConstants | None = None,
) -> Placing:
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
    sources = _sources(graph, closed.shape_of)
    measured = measured_only(graph, device, sources.values()) if nodes is None else {}
    ordered = partial(_in_order, graph, nodes, measured, sources)
    order = ordered()
    read = read_from_host(graph, device | measured, closed.shape_of if nodes is None else {})
    fed = values_fed(graph, read, rows, None if split is not None else partial(_of_host, graph, rows))
    if nodes is None:
        fed.refuse_several_rows(graph.source)
    asked = _asked(graph, rows, rows * count, fed, closed, dict(chosen or {}), split)
    dimensions = asked.least_contradictory(order, asked.least_conflicting(order))
    if dimensions.ones and count > 1 and one_row.mend(graph, dimensions):
        order = ordered()
        dimensions = asked.found(order, ones=True, sure_writes=dimensions.sure_writes)
    if count > 1 and nodes is None and split is None and _made_anew(graph, dimensions, asked.settled):
        order = ordered()
        dimensions = asked.found(order, ones=dimensions.ones, sure_writes=dimensions.sure_writes)
    fed.place_constants(dimensions, graph.source)
    placed = [node for node in order if node not in measured] if measured else order
    return Placing(graph, placed, dimensions, fed.placements, policies=policies)


def _in_order(
    graph: Graph, nodes: analysis.NodeSet | None, measured: analysis.NodeSet, sources: Mapping[Node, Node]
) -> list[Node]:
    """The nodes to analyse, each source before the constant that holds its shape.

    Who asks whether a 1 is a row, or a number of the model, must find it settled.
    """
    inside = analysis.cluster_nodes(graph) if nodes is None else nodes
    return analysis.loop_order(graph, inside | measured, sources)


def _of_host(graph: Graph, rows: int, nodes: analysis.NodeSet) -> Placing:
    """The placements of nodes of the host."""
    return analyse(graph, rows, nodes=nodes)


def _asked(
    graph: Graph,
    rows: int,
    whole: int,
    fed: FedValues,
    closed: ClosedShapes,
    settled: dict[str, bool],
    split: SplitConstants | None,
) -> _Asked:
    """What is asked for of a step, with what is known of its constants."""
    dims, sizes = fed.dims, fed.elements
    only: set[str] | None = None
    if split is not None:
        dims |= {graph[name].out(): held for name, held in split.dims.items() if name in graph}
        sizes |= {graph[name].out(): held for name, held in split.elements.items() if name in graph}
        only = set(split.names())
    elif closed.ones is not None:  # no shape of the batch was a constant before
        only = {*closed.shape_of, *settled}
    return _Asked(graph, rows, whole, dims, sizes, closed, settled, only)


def _made_anew(graph: Graph, dimensions: Dimensions, settled: dict[str, bool]) -> bool:
    """Replace constants that Python made of the rows, and settle the divisors among what does; returns whether there were some."""
    divisors, computed = divide_instead(graph, dimensions), compute_instead(graph, dimensions)
    numbers = compute_chosen(graph, dimensions)
    settled |= dict.fromkeys([*divisors, *numbers], True)
    return bool(divisors or computed or numbers)


def _sources(graph: Graph, shape_of: Mapping[str, str]) -> dict[Node, Node]:
    """By constant the node whose shape it is."""
    made = {name: graph.get(tensor.partition(":")[0]) for name, tensor in shape_of.items()}
    return {graph[name]: source for name, source in made.items() if source is not None and name in graph}
