"""Rewrites the step for the cores: local sizes, collectives, and the tensors that leave the device."""

from __future__ import annotations

from collections.abc import Mapping

from tpugraph import analysis, ops
from tpugraph.analysis import REPLICATED_ATTR
from tpugraph.analysis.placements import REPLICATE, SUM, Entries, Partial, PerCore, Placement, Replicate, Shard
from tpugraph.ir import Node, Tensor, attrs
from tpugraph.rewrite.collectives import Collectives
from tpugraph.rewrite.convert import Conversions
from tpugraph.rewrite.local_sizes import LocalSizes
from tpugraph.spmd.placing import COUNT, Placing, Verdict
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")


class Rewriting:
    """The rewrite of one step."""

    def __init__(self, placing: Placing, varying_updates: str = "mean") -> None:
        self.placing, self.graph = placing, placing.graph
        self.c = Collectives(self.graph, placing.cores)
        self.conversions = Conversions(placing, self.c, varying_updates)

    def apply(self) -> None:
        placing, graph = self.placing, self.graph
        verdicts = dict(placing.verdicts)
        wanted = {(n, i): (n.inputs[i], want) for n, verdict in verdicts.items() for i, want in verdict.wants.items()}
        LocalSizes(placing, self.c).write()
        for node, verdict in verdicts.items():
            self._mark_same(node, verdict)
            self._share_draw(node)
            self._average(node, verdict)
            self._cut(node, verdict)
        whole = {tensor: self.conversions.reduced(tensor) for tensor in placing.reduced}
        for tensor, result in whole.items():
            source = self.conversions.behind.get(tensor, tensor)
            for use in source.node.uses(source.port):
                if use.node in verdicts:
                    graph.set_input(use.node, use.index, result)
            self.conversions.behind[tensor] = result
        for (node, index), (tensor, want) in wanted.items():
            if not (tensor in placing.reduced and isinstance(want, Replicate)):
                self._edit(node, index, tensor, want)

    def _replace_uses(self, tensor: Tensor, made: Tensor, uses: list) -> None:  # type: ignore[type-arg]
        self.conversions.behind[tensor] = made
        for use in uses:
            self.graph.set_input(use.node, use.index, made)

    def _mark_same(self, node: Node, verdict: Verdict) -> None:
        """Mark the sizes of ragged tensors that are equal on all cores: those that do not count ragged rows."""
        counts = [i for i, t in enumerate(node.inputs) if self.placing.read(t) == COUNT and i not in verdict.wants]
        if counts and verdict.outputs and isinstance(verdict.outputs[0], Replicate):
            self.graph.set_attr(node, REPLICATED_ATTR, True)

    def _share_draw(self, node: Node) -> None:
        """Give every core the draw of core 0, since each core has its own random stream."""
        if node.op not in ops.RANDOM:
            return
        for port in node.used_ports():
            tensor = node.out(port)
            if isinstance(self.placing.made(tensor), Replicate):
                uses = node.uses(port)
                self.conversions.note(tensor, "what core 0 draws")
                self._replace_uses(tensor, self.c.sum(self.c.first(tensor)), uses)

    def _average(self, node: Node, verdict: Verdict) -> None:
        for port in verdict.averaged:
            tensor = node.out(port)
            uses = node.uses(port)
            ragged = isinstance(self.placing.read(node.inputs[0]), Entries)
            made = self._mean_of_ragged(node) if ragged else self.c.scaled(tensor, 1.0 / self.placing.cores)
            self._replace_uses(tensor, made, uses)

    def _mean_of_ragged(self, node: Node) -> Tensor:
        """A mean over ragged rows: this core's sum divided by the global count."""
        tensor, c = node.out(), self.c
        total = c.add(tensor, "Sum", "sum", node.inputs, tensor.shape, keep_dims=bool(node.attr("keep_dims", False)))
        size = c.add(tensor, "Size", "size", node.inputs[:1], (), out_type=_INT32)
        own = c.add(tensor, "Size", "own_size", [tensor], (), out_type=_INT32)
        each = c.add(tensor, "FloorDiv", "count", [c.sum(size), own], ())
        return c.add(tensor, "RealDiv", "share", [total, c.cast(each, tensor.dtype)], tensor.shape)

    def _cut(self, node: Node, verdict: Verdict) -> None:
        for port in verdict.cuts:
            tensor, rows, uses = node.out(port), verdict.outputs[port], node.uses(port)
            assert isinstance(rows, Shard)
            self._replace_uses(tensor, self.c.own_rows(tensor, rows), uses)

    def _edit(self, node: Node, index: int, tensor: Tensor, want: Placement) -> None:
        if node.op in ops.MERGE and tensor.node.op in ops.NEXT_ITERATION | ops.ENTER:
            self._edit(tensor.node, 0, tensor.node.inputs[0], want)  # a Merge reads no other tensor
            self.graph.expect_outputs(tensor.node, [(tensor.dtype, tensor.node.inputs[0].shape)])
            return
        self.graph.set_input(node, index, self.conversions.converted(node, tensor, want))

    def share_of_loss(self, loss: Tensor) -> Tensor:
        """The loss as a partial sum over the cores."""
        placement = self.placing.made(loss)
        source = self.conversions.behind.get(loss, loss)
        if placement == SUM and loss not in self.placing.reduced:
            return source
        if placement is None or isinstance(placement, Replicate) or loss in self.placing.reduced:
            return self.c.share(source)
        if isinstance(placement, Partial):
            return self.c.share(self.c.extreme(source, placement.reduce_op))
        raise ConversionError(f"the loss is not a scalar of the whole batch: it is {placement}", node=loss.node,
                              origin=self.graph.source, fix="reduce it over the examples: tf.reduce_mean")  # fmt: skip

    def leaving(self) -> Mapping[Tensor, Placement]:
        """The placements of the tensors that the host reads."""
        device, graph = analysis.cluster_nodes(self.graph), self.graph
        origin = {made: tensor for tensor, made in self.conversions.behind.items()}
        found: dict[Tensor, Placement] = {}
        for node in [n for n in graph if n not in device]:
            for index, tensor in enumerate(node.inputs):
                if tensor.node not in device:
                    continue
                plain = origin.get(tensor, tensor)
                placement = REPLICATE if plain in self.placing.reduced and tensor != plain else self.placing.made(plain)
                if (isinstance(placement, Shard) and placement.outer > 1) or isinstance(placement, Entries):
                    whole = self.conversions.converted(plain.node, plain, REPLICATE)
                    graph.set_input(node, index, whole)
                    tensor, placement = whole, REPLICATE
                found[tensor] = placement or REPLICATE
        return found

    def notes(self) -> tuple[str, ...]:
        """Notes for the user: policies that are not exact."""
        own = {p.policy for v in self.placing.verdicts.values() for p in v.outputs if isinstance(p, PerCore)}
        return tuple(f"{policy}: the result is not that of the whole batch" for policy in sorted(own))
