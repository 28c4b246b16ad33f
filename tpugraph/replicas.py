"""What the cores make of their values together: sums, shares of a batch, divisors that speak of all of it."""

from __future__ import annotations

import math

import numpy as np

from tpugraph import attrs, ops
from tpugraph.analysis import NodeSet
from tpugraph.cluster_nodes import ClusterNodes
from tpugraph.errors import ConversionError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.reduction import Reduction

_INT32 = attrs.dtype("int32")


class Replicas(ClusterNodes):
    """Combines values over the cores, inside the cluster.

    Args:
        graph: the graph.
        count: number of cores.
        how: how the shards of the batch combine.
    """

    def __init__(self, graph: Graph, count: int, how: Reduction) -> None:
        super().__init__(graph, count)
        self.how = how
        self._shares: dict[str, Tensor] = {}
        self._groups: Tensor | None = None

    def scale(self, tensor: Tensor, kind: str | None = None) -> Tensor:
        """The tensor times this core's share of the batch; under a sum the share is one."""
        if (kind or self.how.kind) == "sum" or self.count == 1:
            return tensor
        return self.scale_evenly(tensor)

    def scale_evenly(self, tensor: Tensor) -> Tensor:
        """The tensor divided by the number of cores."""
        kind = tensor.dtype
        if kind.name not in self._shares:
            self._shares[kind.name] = self.constant("CrossReplicaSum/share", 1.0 / self.count, kind, tensor.node)
        return self.times(tensor, self._shares[kind.name])

    def globalise(self, divisor: Tensor, varying: NodeSet, *, mean: bool = False) -> None:
        """Let a divisor that the batch decides speak of the global batch, on every core.

        The counts that it is made of are summed over the cores; what guards it against zero sees the sum; one core's
        part of it is what its readers divide by. A mean over the cores of what is divided so is exact. Where the
        divisor is made of means, these are averaged over the cores, and its readers divide by it as it is.

        Raises:
            ConversionError: the divisor depends on a variable, so that its gradient would be another one.
        """
        graph = self.graph
        if _carries_gradient(divisor):
            raise ConversionError(
                f"the loss is divided by '{divisor}', which depends on variables and differs between cores",
                node=divisor.node,
                fix="--loss_reduction=mean averages over cores, which is not the same as training on the whole batch",
            )
        for count in _counts(divisor, varying):
            uses = count.node.uses(count.port)
            total = self.all_sum(self.scale_evenly(count) if mean else count)
            for use in uses:
                graph.set_input(use.node, use.index, total)
            if count == divisor:
                divisor = total
        if mean:
            return
        uses = divisor.node.uses(divisor.port)
        share = self.scale_evenly(divisor)
        for use in uses:
            if use.node is not share.node:
                graph.set_input(use.node, use.index, share)

    def all_reduce(self, tensor: Tensor, kind: str | None = None) -> Tensor:
        """The gradient of the global batch, as ``how`` says or as the ``kind`` of its own loss."""
        return self.all_sum(self.scale(tensor, kind))

    def all_sum(self, tensor: Tensor) -> Tensor:
        """The sum over all cores."""
        kind = tensor.dtype
        if kind.name not in ops.REDUCE_DTYPES:
            raise ConversionError(
                f"a value of dtype {kind} cannot be summed over cores", node=tensor.node, fix="cast it to float32 first"
            )
        if self._groups is None:
            groups = [list(range(self.count))]
            self._groups = self.constant("CrossReplicaSum/group_assignment", groups, _INT32, tensor.node)
        return self.add(
            "CrossReplicaSum", "CrossReplicaSum", [tensor, self._groups], {"T": kind}, kind, tensor.shape, tensor.node
        )

    def total(self, tensor: Tensor, varying: NodeSet) -> Tensor:
        """A sum over the batch, summed over all cores; what is uniform in it counts once."""
        node = tensor.node
        if node not in varying:
            return tensor
        if node.op in ops.AFFINE and any(t.node not in varying for t in node.inputs):
            parts = [self.total(t, varying) for t in node.inputs]
            attributes = {k: v for k, v in node.raw_attrs.items() if k[0] != "_"}
            return self.add(node.op, f"{node.name}/total", parts, attributes, tensor.dtype, tensor.shape, node)
        narrow = _INT32 if tensor.dtype.name == "int64" else tensor.dtype
        return self.cast(self.all_sum(self.cast(tensor, narrow)), tensor.dtype)

    def share_of_sum(self, tensor: Tensor, varying: NodeSet) -> Tensor:
        """This core's share of a sum over the batch: what is uniform in it is shared evenly. The shares sum up to it."""
        node = tensor.node
        if node not in varying:
            return self.scale_evenly(tensor)
        places = _addends(node, varying)
        parts = [self.share_of_sum(t, varying) if i in places else t for i, t in enumerate(node.inputs)]
        if tuple(parts) == node.inputs:
            return tensor
        attributes = {k: v for k, v in node.raw_attrs.items() if k[0] != "_"}
        return self.add(node.op, f"{node.name}/share", parts, attributes, tensor.dtype, tensor.shape, node)

    def from_first(self, tensor: Tensor) -> Tensor:
        """The value of core 0, on every core."""
        if tensor.dtype.name == "bool":
            return self.cast(self.from_first(self.cast(tensor, _INT32)), tensor.dtype)
        kind, shape, source = tensor.dtype, tensor.shape or (), tensor.node
        zero = self.constant(f"{source.name}/zero", np.zeros(1), _INT32, source)
        one = self.constant(f"{source.name}/one", np.ones(1), _INT32, source)
        mask = self.mask(kind, 0, source)
        first = self.add(
            "Slice", f"{source.name}/first", [mask, zero, one], {"T": kind, "Index": _INT32}, kind, (1,), source
        )
        factor = self.reshape(first, [])
        return self.all_sum(
            self.add("Mul", f"{source.name}/of_first", [tensor, factor], {"T": kind}, kind, shape, source)
        )


def _addends(node: Node, varying: NodeSet) -> list[int]:
    """The inputs of a node that it adds up; or the only one that differs between cores, which it hands on or scales."""
    if node.op in ops.SUMS:
        return list(range(len(node.inputs)))
    differing = [i for i, t in enumerate(node.inputs) if t.node in varying]
    if differing == [0]:
        linear = ops.AFFINE | ops.IDENTITIES | {"Neg", "Reshape", "Squeeze", "CheckNumerics", "DivNoNan"}
        return differing if node.op in linear else []
    return differing if differing == [1] and node.op == "Mul" else []


def _carries_gradient(tensor: Tensor) -> bool:
    """Whether backpropagation goes through the value to variables: whole numbers and StopGradient end it."""
    stack, seen = [tensor], {tensor}
    while stack:
        node = stack.pop().node
        if node.op in ops.READS | ops.GATHERS:
            return True
        found = [t for t in node.inputs if t not in seen and t.dtype.floating]
        if node.op != "StopGradient" and node.op not in ops.SHAPE_OF:
            stack += found
            seen.update(found)
    return False


def _counts(divisor: Tensor, varying: NodeSet) -> list[Tensor]:
    """The reductions over the batch that a scalar divisor is made of."""
    found: dict[Tensor, None] = {}
    stack, seen = [divisor], {divisor}
    while stack:
        tensor = stack.pop()
        if tensor.node not in varying:
            continue
        inputs = [t for t in tensor.node.inputs if t.shape is not None and math.prod(d or 0 for d in t.shape) == 1]
        if tensor.node.op in ops.REDUCTIONS or not inputs or not tensor.dtype.floating:
            if tensor.dtype.floating or tensor.dtype.name == "int32":
                found[tensor] = None
            continue
        for source in inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return list(found)
