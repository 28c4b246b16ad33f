"""Builds the outfeed of training."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE, in_cluster, shapes
from tpugraph.analysis.placements import REPLICATE
from tpugraph.analysis.step import Cut, Outfed, Partitioned
from tpugraph.analysis.values import known_value
from tpugraph.ir import Graph
from tpugraph.ir.builder import Builder
from tpugraph.support.errors import ShapeError
from tpugraph.tpu.evaluation_split import ALL_ROWS, TIMES
from tpugraph.tpu.outfeed import HostSide, receive, send
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class Outfeed(Pass):
    """The tensors that the host reads leave the device in one OutfeedEnqueueTuple per step, the core's share of the loss first.

    The host combines the values of all cores by their placements into the plain graph's values: shards are concatenated,
    partial sums added, partial maxima reduced.
    """

    num_replicas: int = 8

    requires = ("placed", "gradients_reduced", "uniform_writes")
    ensures = ("fed_to_outfeed",)
    reads = (Cut, Partitioned)
    gives = (Outfed,)

    def run(self, graph: Graph) -> None:
        roles = graph.roles
        partitioned = graph.result(Partitioned)
        share = graph.tensor(partitioned.loss_share)
        for tensor in (graph.tensor(roles.loss.name), share):
            if tensor.shape is None:  # its rank is unknown in loops; a loss is a scalar
                graph.set_outputs(tensor.node, [(tensor.dtype, ())])
        read = analysis.read_by_host(graph)
        crossing = list(dict.fromkeys([share, *read]))
        for tensor in crossing:
            if not shapes.is_static(tensor.shape):
                reader = next(
                    (u.node.name for u in tensor.node.uses(tensor.port) if not in_cluster(u.node)), "the host"
                )
                raise ShapeError(f"'{tensor}', which '{reader}' reads on the host, leaves the device with an open shape",
                                 node=tensor.node, fix="give it a fixed shape (set_shape does not travel in a file, reshape "
                                                       "does), or drop what reads it")  # fmt: skip
        ends = [graph[f.name] for f in roles.train_ops]
        enqueue = send(graph, crossing, vector=("outfeed/shape", "outfeed"), controls=ends)
        host = HostSide(graph, receive(graph, enqueue.inputs, self.num_replicas))
        loss = host.total(0)
        combined = {}
        for tensor in read:
            placement = partitioned.leaving.get(str(tensor), REPLICATE)
            combined[str(tensor)] = host.deliver(crossing.index(tensor), tensor, placement, loss)
        for mark in [node for node in graph.of_type(ALL_ROWS) if node.has_attr(TIMES)]:
            graph.replace_uses(mark.out(), mark.inputs[0])
            graph.remove(mark)
        if roles.replica:
            _count_all_rows(graph, self.num_replicas)
        size = sum(shapes.byte_size(t) or 0 for t in enqueue.inputs)
        graph.keep(Outfed(enqueue.name, combined, size * self.num_replicas, str(loss)))


def _count_all_rows(graph: Graph, count: int) -> None:
    """Scale a metric's constant count from one core's rows to those of all cores."""
    gathered = graph.descendants(graph.of_type("OutfeedDequeueTuple"), data_only=True)
    rows = graph.result(Partitioned).rows
    for name in graph.result(Cut).tail:
        node = graph.get(name)
        fact = None if node is None else ops.WRITES.get(node.op)
        if node is None or fact is None or not (fact.kind == "assign" and fact.additive):
            continue
        value = node.inputs[fact.value]
        if value.node in gathered:
            continue
        known = known_value(value)
        if known is None or rows is None or known.size != 1 or known.item() % rows or known.item() < rows:
            continue
        make = Builder(graph, name, device=HOST_DEVICE, source=node)
        factor = make.constant(count, value.dtype, name="cores")
        graph.set_input(node, 1, make.add("Mul", [value, factor], value.shape, name="all_cores"))
