"""The placements of a training step at the global batch, propagated from the tensors that the host feeds."""

from __future__ import annotations

from collections.abc import Mapping

from tpugraph import analysis, ops
from tpugraph.analysis.batched_input import commonest
from tpugraph.analysis.placements import REPLICATE, Placement, Shard
from tpugraph.analysis.step import PaddedBatches
from tpugraph.ir import Graph, Tensor
from tpugraph.spmd.demands import Demands
from tpugraph.spmd.placing import Placing
from tpugraph.spmd.rules.signature import size_of
from tpugraph.support.errors import ShapeError


def analyse(
    graph: Graph,
    cores: int,
    *,
    policies: Mapping[str, str] | None = None,
    seeds: Mapping[Tensor, Placement] | None = None,
) -> Demands:
    """The placements of the device part of a step with static shapes, and where its partial values are reduced.

    ``seeds`` are placements of fed tensors, where they are known.
    """
    device = analysis.cluster_nodes(graph)
    order = analysis.loop_order(graph, device)
    demands = Demands(Placing(graph, order, cores, fed(graph, cores) if seeds is None else seeds, policies=policies))
    demands.solve()
    return demands


def fed(graph: Graph, cores: int) -> dict[Tensor, Placement]:
    """The placements of fed tensors: rows of the batch are sharded, everything else is replicated.

    Values that the host computes from the batch are followed by the device's rules. The placement of a fed tensor does not
    change the result, only where it is stored.
    """
    crossing = fed_tensors(graph)
    rows, read = batch_of(graph), _elements(graph)
    takes = list(dict.fromkeys(t.node for t in read))
    elements = {t: Shard(0) for t in read if rows and size_of(t, 0) == rows}
    made = graph.ancestors([t.node for t in crossing], data_only=True)
    behind = graph.descendants(takes, data_only=True)
    between = {n: None for n in made if n in behind and n not in takes}
    host = Placing(graph, analysis.loop_order(graph, between), cores, elements)
    host.solve()
    placements = {t: host.read(t) for t in crossing}
    for tensor in crossing:  # host ops without a rule: an output with one element per example is sharded all the same
        if tensor.node in behind and placements[tensor] == REPLICATE and size_of(tensor, 0) == rows:
            placements[tensor] = Shard(0)
    return {t: _split_evenly(t, placement, cores) for t, placement in placements.items()}


def fed_tensors(graph: Graph) -> list[Tensor]:
    """The tensors that cross from the host to the device in each step, without variables."""
    device = analysis.cluster_nodes(graph)
    found = {t: None for n in device for t in n.inputs if t.node not in device and t.node.op not in ops.VARIABLES}
    return list(found)


def batch_of(graph: Graph) -> int | None:
    """The batch size: the most frequent leading dimension among the input's elements, the largest of several."""
    return commonest(size_of(tensor, 0) for tensor in _elements(graph))


def refuse_uneven(graph: Graph, rows: int | None, cores: int) -> None:
    """Refuse a batch that the cores do not divide."""
    if rows is None or rows % cores == 0:
        return
    low = rows // cores * cores
    batches = " or ".join(str(size) for size in (low, low + cores) if size)
    fits = ", ".join(str(n) for n in range(min(rows, cores), 0, -1) if rows % n == 0)
    raise ShapeError(f"a batch of {rows} rows cannot be split over {cores} cores", node=None, origin=graph.source,
                     fix=f"--num_replicas={fits.split(', ')[0]} (cores that divide {rows}: {fits}), "
                         f"or a batch of {batches} rows")  # fmt: skip


def _elements(graph: Graph) -> list[Tensor]:
    """The tensors of the batch that a step reads; in evaluation and prediction the padded ones."""
    padded = graph.kept(PaddedBatches)
    if padded is not None:
        names = [*padded.tensors, *(name for parts in padded.sparse for name in parts)]
        return [graph.tensor(name) for name in names if name.partition(":")[0] in graph]
    takes = [n for n in graph.of_type(*ops.INPUTS) if not analysis.in_cluster(n)]
    return [n.out(port) for n in takes for port in range(len(n.outputs or ()))]


def _split_evenly(tensor: Tensor, placement: Placement | None, cores: int) -> Placement:
    if isinstance(placement, Shard) and placement.outer == 1:
        size = size_of(tensor, placement.axis)
        if size and size % cores == 0:
            return placement
    return REPLICATE
