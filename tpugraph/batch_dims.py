"""Which dimensions, and which elements of shape constants, are the batch.

Each dimension of each tensor, and each element of each small integer vector, is either batch (it scales when the batch
does) or not. Ops tie them together: an element-wise op has the dimensions of its operands, a Reshape those its operand
names. What follows from the input and from the variables is certain; what does not is not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tpugraph import batch_rules, ops
from tpugraph.analysis import fed_to_device
from tpugraph.attrs import Shape
from tpugraph.batch_ties import BATCH, FIXED, Key, Ties, vector_value
from tpugraph.ir import Graph, Node, Tensor


class BatchDims(Ties):
    """The analysis.

    Args:
        graph: the graph, with shapes.
        nodes: the nodes to analyse.
        batch: the batch size that is written into the graph.
        seeds: tensors whose dimension 0 is the batch.
        fixed: tensors none of whose dimensions is the batch.
    """

    def __init__(
        self, graph: Graph, nodes: Iterable[Node], batch: int, seeds: Iterable[Tensor], fixed: Iterable[Tensor] = ()
    ) -> None:
        super().__init__(batch)
        self.graph = graph
        self.nodes = list(nodes)
        for tensor in seeds:
            for axis in range(len(tensor.shape or ())):
                self.unite(("d", tensor, axis), BATCH if axis == 0 else FIXED)
        for tensor in fixed:
            for axis in range(len(tensor.shape or ())):
                self.unite(("d", tensor, axis), FIXED)
        for node in self.nodes:
            self.where = node
            batch_rules.tie(self, node)
        self._settle_reshapes()

    def dim(self, tensor: Tensor, axis: int) -> bool | None:
        """Whether a dimension is the batch; None where nothing decides."""
        return self._known(("d", tensor, axis), (tensor.shape or ())[axis])

    def certain(self, tensor: Tensor, axis: int) -> bool:
        """Whether a dimension is certainly the batch."""
        return bool(self.find(("d", tensor, axis)) == BATCH)

    def element(self, tensor: Tensor, index: int, value: int) -> bool | None:
        """Whether an element of a shape constant is the batch; None where nothing decides."""
        return self._known(("v", tensor, index), value)

    def _known(self, key: Key, value: int | None) -> bool | None:
        root = self.find(key)
        if root == BATCH:
            return True
        if root == FIXED or value is None or value % self.batch or value == 0:
            return False
        return None

    # ------------------------------------------------------------------ reshapes

    def _settle_reshapes(self) -> None:
        pending = [node for node in self.nodes if node.op == "Reshape"]
        while pending:
            left = [node for node in pending if not self._settle(node)]
            if len(left) == len(pending):
                return
            pending = left

    def _settle(self, node: Node) -> bool:
        self.where = node
        source, target, out = node.inputs[0], node.inputs[1], node.out()
        done = self._carry(source, out)
        if not done:
            done = self._carry(out, source)
        value = vector_value(target)
        for axis in range(len(out.shape or ())):
            if value is None or value[axis] >= 0:
                self.unite(("v", target, axis), ("d", out, axis))
        return done

    def _carry(self, a: Tensor, b: Tensor) -> bool:
        if a.shape is None or b.shape is None or None in a.shape or None in b.shape:
            return False
        tags = [self.dim(a, axis) for axis in range(len(a.shape))]
        if None in tags or sum(map(bool, tags)) > 1:
            return False
        axis = tags.index(True) if True in tags else None
        found = None if axis is None else _axis_after_reshape(a.shape, axis, b.shape, self.batch)
        if axis is not None and found is None:
            return False
        for other in range(len(b.shape)):
            self.unite(("d", b, other), BATCH if other == found else FIXED)
        return True


def batch_rows(graph: Graph) -> int | None:
    """Rows of one core's batch: the commonest leading dimension of what crosses to the device."""
    found = commonest_rows(fed_to_device(graph))
    if found is not None:
        return found
    rows = [s[0] for n in graph.of_type(*ops.GET_NEXT) for _, s in n.outputs or [] if s and s[0]]
    return rows[0] if rows else None


def commonest_rows(tensors: Iterable[Tensor]) -> int | None:
    """The commonest leading dimension; of several, the largest. None where no tensor has one."""
    counts: dict[int, int] = {}
    for tensor in tensors:
        if tensor.shape and tensor.shape[0]:
            counts[tensor.shape[0]] = counts.get(tensor.shape[0], 0) + 1
    return max(counts, key=lambda rows: (counts[rows], rows), default=None)


def _axis_after_reshape(a: Shape, axis: int, b: Shape, batch: int) -> int | None:
    """Where the batch axis of a row-major array is after a reshape, or None where that is not certain."""
    before = [int(d or 0) for d in a or ()]
    after = [int(d or 0) for d in b or ()]
    prefix, size = math.prod(before[:axis]), before[axis]
    holding = []
    for i, dim in enumerate(after):
        start = math.prod(after[:i])
        if dim % batch == 0 and dim > 0 and start <= prefix * size and start * dim > prefix:
            holding.append((i, start, dim))
    exact = [i for i, start, dim in holding if start == prefix and dim == size]
    if exact:
        return exact[0]
    if size == batch:  # the whole batch is one axis: the axis that starts at or before it and ends at or behind it
        holding = [h for h in holding if h[1] <= prefix and h[1] * h[2] >= prefix * size]
    return holding[0][0] if len(holding) == 1 else None
