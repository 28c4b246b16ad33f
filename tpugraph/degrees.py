"""How the values that lead to a loss grow when the batch grows: in proportion, as a sum over it, or not, as a mean."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tpugraph import mixing, ops, shapes
from tpugraph.analysis import NodeSet, reads_host
from tpugraph.batch_dims import BatchDims, of_batch
from tpugraph.constants import evaluate, is_read_from_shapes
from tpugraph.errors import RolesError
from tpugraph.ir import Graph, Node, Tensor

_TRANSPARENT = ops.IDENTITIES | {
    "Cast",
    "Neg",
    "CheckNumerics",
    "Reshape",
    "Squeeze",
    "ExpandDims",
    "Print",
    "Exit",
    "Enter",
    "Switch",
    "NextIteration",
}


class Degrees:
    """Degrees: how a value grows when the batch grows (1: in proportion, 0: not)."""

    def __init__(
        self, graph: Graph, loss: Tensor, varying: NodeSet, batch: int | None, rescaled: Collection[str] | None
    ) -> None:
        self.graph = graph
        self.loss = loss
        self.rescaled = rescaled
        self._dims: BatchDims | None = None
        self.varying = varying
        self.batch = batch
        self.weights: list[Tensor] = []
        self.means: list[Tensor] = []
        self.doubt: str | None = None
        self.divides_rows: dict[Tensor, float] = {}  # literals that equal the batch and divide what is no sum over it
        self.averaged_by: str | None = None
        self.summed_by: str | None = None
        self._memo: dict[Tensor, int] = {}
        self._most_terms = 0  # of a sum over the batch

    def addends(self, tensor: Tensor) -> list[tuple[int, Tensor]]:
        """The varying addends of a sum with the degree of each."""
        if tensor.node not in self.varying:
            return []
        node = tensor.node
        if node.op in ops.SUMS and self._scalar(tensor):
            return [found for t in node.inputs for found in self.addends(t)]
        if node.op in ops.IDENTITIES | {"Print", "CheckNumerics"}:
            return self.addends(node.inputs[0])
        return [(self.degree(tensor), tensor)]

    def degree(self, tensor: Tensor) -> int:
        """How a value grows with the batch."""
        if tensor not in self._memo:
            self._memo[tensor] = 0  # closes loops
            self._memo[tensor] = self._degree(tensor)
        return self._memo[tensor]

    def _scalar(self, tensor: Tensor) -> bool:
        return shapes.element_count(tensor.shape) == 1

    def _degree(self, tensor: Tensor) -> int:
        node = tensor.node
        if node not in self.varying:
            return 0
        if node.op in ("Mean", "Sum", "L2Loss"):
            return self._reduction(node)
        if self._adds_rows_up(node):
            return 1 + max((self.degree(t) for t in node.inputs if t.node in self.varying), default=0)
        if _counts_rows(node):
            return 1
        if node.op in ops.DIVISIONS:
            return self._quotient(node)
        if node.op in ("Mul", "MulNoNan"):
            return self._product(node)
        if node.op in ops.SUMS or node.op in ("Maximum", "Minimum", "Merge", "Pack", "ConcatV2"):
            return max((self.degree(t) for t in node.inputs if t.node in self.varying), default=0)
        if node.op in ("Select", "SelectV2"):
            return max(self.degree(t) for t in node.inputs[1:])
        if node.op in _TRANSPARENT:
            return self.degree(node.inputs[0])
        self._refuse_what_mixes_rows(tensor)
        return 0

    def _adds_rows_up(self, node: Node) -> bool:
        """Whether a node adds numbers of rows up at places that the rows choose, as a confusion matrix does."""
        if node.op not in ops.SCATTERED_SUMS or self.batch is None:
            return False
        places = node.inputs[ops.SCATTERED_SUMS[node.op]]
        if places.node not in self.varying and not reads_host(places):
            return False
        rows = bool(places.shape) and (places.shape or (0,))[0] == self.batch
        return rows and not self.holds_rows(node.out())

    def _quotient(self, node: Node) -> int:
        above, below = node.inputs
        degree = self.degree(above)
        if below.node not in self.varying and degree < 1:
            value = self._constant(below)  # what divides a mean is no batch size
            if value is not None and (self.batch or 1) > 1 and self._grows(below, value):
                self.divides_rows.setdefault(below, value)
            return degree
        return degree - self._divisor(below)

    def _product(self, node: Node) -> int:
        factors = [t for t in node.inputs if t.node in self.varying]
        degree = sum(self.degree(t) for t in factors)
        if degree < 1 or len(factors) == len(node.inputs):
            return degree
        return degree + sum(self._factor(t) for t in node.inputs if t not in factors)

    def _refuse_what_mixes_rows(self, tensor: Tensor) -> None:
        """An op of another kind may not turn rows into something that has none: how the rows combine is not known."""
        if self.batch is None or self.batch < 2 or tensor.shape is None or self._has_rows(tensor):
            return
        node = tensor.node
        for source in node.inputs:
            if source.node not in self.varying or source.shape is None or not source.dtype.floating:
                continue
            collapsed = self._scalar(source) and self._scalar(tensor) and self._reduces_below(source.node)
            if collapsed or (source.shape and source.shape[0] == self.batch and len(source.shape) < 3):
                raise unclear(
                    self.graph,
                    node,
                    f"how the rows of the batch combine in the loss cannot be told from '{node.name}' ({node.op})",
                )

    def _has_rows(self, tensor: Tensor) -> bool:
        return any(d is None or (d and self.batch and d % self.batch == 0) for d in tensor.shape or ())

    def _reduces_below(self, node: Node) -> bool:
        """Whether a reduction over rows leads to a scalar."""
        stack, seen = [node], {node}
        while stack:
            current = stack.pop()
            if current.op in ("Mean", "Sum", "L2Loss", "Max", "Min", "Prod"):
                return True
            for tensor in current.inputs:
                if tensor.node in self.varying and tensor.node not in seen and self._scalar(tensor):
                    seen.add(tensor.node)
                    stack.append(tensor.node)
        return False

    def _reduction(self, node: Node) -> int:
        source = node.inputs[0]
        inner = self.degree(source)
        if not self._over_batch(node):
            return inner
        if node.op == "Mean" and self._chosen_rows(source):
            raise unclear(
                self.graph,
                node,
                f"'{node.name}' averages over rows that a mask chooses, not the same number on each core",
                fix="write it as tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32), which is exact",
            )
        if node.op == "Mean":
            self.averaged_by = self.averaged_by or f"'{node.name}' averages over it"
            return inner
        self.summed_by = self.summed_by or node.name
        terms = (shapes.element_count(source.shape) or 0) // (shapes.element_count(node.out().shape) or 1)
        self._most_terms = max(self._most_terms, terms)
        return inner + 1

    def _over_batch(self, node: Node) -> bool:
        """Whether a reduction goes over the batch: its input has more elements in batch rows than its output."""
        source = node.inputs[0]
        if source.node not in self.varying and not reads_host(source):
            return False
        if source.shape is None or self.batch is None:
            return True
        rows = [axis for axis, d in enumerate(source.shape) if d is None or (d and d % self.batch == 0)]
        reduced = _reduced_axes(node)
        if not rows or not reduced:
            return False
        if len(source.shape) == 1:
            return True
        if not set(rows) & reduced:
            return False
        return any(self._is_batch(source, axis) for axis in reduced if axis in rows)

    def _chosen_rows(self, tensor: Tensor) -> bool:
        """Whether the rows were picked by a mask (a gather at what Where found)."""
        node = tensor.node
        for _ in range(20):
            if node.op in ("GatherNd", "GatherV2", "Gather"):
                index = node.inputs[1].node
                while index.op in ops.IDENTITIES | {"Squeeze", "Reshape", "Cast"}:
                    index = index.inputs[0].node
                return index.op == "Where"
            following = next((t.node for t in node.inputs if t.node in self.varying), None)
            if following is None or node.op not in ops.ELEMENTWISE | {"Reshape", "Squeeze", "ExpandDims"}:
                return False
            node = following
        return False

    def _is_batch(self, tensor: Tensor, axis: int) -> bool:
        if (tensor.shape or ())[axis] is None:
            return True
        dims = self._batch_dims()
        if any(other != axis and dims.certain(tensor, other) for other in range(len(tensor.shape or ()))):
            return dims.certain(tensor, axis)  # the batch is one dimension
        found = dims.dim(tensor, axis)
        if found is None and self.batch == 1:  # any dimension of one looks like it; the batch comes first
            return not any(
                (tensor.shape or ())[other] == 1 and dims.dim(tensor, other) is not False for other in range(axis)
            )
        if found is None and (self.batch or 1) > 1:
            self.doubt = f"dimension {axis} of '{tensor}' is taken for the batch, since it is as large"
        return found is not False

    def _batch_dims(self) -> BatchDims:
        if self._dims is None:
            self._dims = of_batch(self.graph, self.graph.ancestors([self.loss.node], data_only=True), self.batch or 1)
        return self._dims

    def holds_rows(self, tensor: Tensor) -> bool:
        """Whether a dimension is certainly the batch."""
        if self.batch is None or self.batch < 2:
            return False
        if reads_host(tensor):
            return bool(tensor.shape) and (tensor.shape or (0,))[0] == self.batch
        return any(self._batch_dims().certain(tensor, axis) for axis in range(len(tensor.shape or ())))

    def mixing(self) -> mixing.Mixing:
        """Where rows of the batch meet other than in a sum or a mean; see ``knows_rows``."""
        dims = self._batch_dims() if self.knows_rows else mixing.Undecided(self.batch)
        return mixing.find(self.graph, self.loss, self.varying, dims)

    @property
    def knows_rows(self) -> bool:
        """Whether rows can be told from other dimensions; one row looks like none."""
        return self.batch is not None and self.batch > 1

    def _factor(self, tensor: Tensor) -> int:
        """The degree of a factor; the reciprocal of something that grows with the batch counts as a divisor."""
        if tensor.node in self.varying:
            return self.degree(tensor)
        value = self._constant(tensor)
        if value is None or not 0 < abs(value) < 1 or not self._grows(tensor, 1 / value):
            return 0
        # Any weight is one over something: only one over a number of terms that are added up is one over the batch.
        if not self._most_terms or self._most_terms % round(1 / value) == 0 or self.rescaled is not None:
            self._doubt(tensor, 1 / value)
            self.averaged_by = self.averaged_by or f"it is multiplied by '{tensor}', one over the batch size"
            return -1
        return 0

    def _divisor(self, tensor: Tensor) -> int:
        if tensor.node in self.varying:
            degree = self._count_degree(tensor)
            if degree or self._scalar(tensor):
                (self.weights if degree else self.means).append(tensor)
            return degree
        value = self._constant(tensor)
        if value is None or not self._grows(tensor, value):
            if not self._adds_constant_rows(tensor):
                return 0
            self.doubt = f"'{tensor}' is taken for a sum over the rows of the batch of {self.batch}"
            self.averaged_by = self.averaged_by or f"it is divided by '{tensor}', a sum over as many constants"
            return 1
        self._doubt(tensor, value)
        self.averaged_by = self.averaged_by or f"it is divided by '{tensor}', which is {value:g} for {self.batch} rows"
        return 1

    def _adds_constant_rows(self, tensor: Tensor) -> bool:
        """Whether a divisor adds up constants of as many rows as the batch has, such as weights that are all one."""
        if self.rescaled is not None or (self.batch or 1) < 2 or evaluate(self.graph, tensor) is None:
            return False
        sums = (n for n in self.graph.ancestors([tensor.node], data_only=True) if n.op == "Sum")
        return any((n.inputs[0].shape or (0,))[0] == self.batch and 0 in _reduced_axes(n) for n in sums)

    def _doubt(self, tensor: Tensor, value: float) -> None:
        """A literal number in the graph is taken for the batch size because it equals it."""
        if self.rescaled is None and not is_read_from_shapes(self.graph, tensor):
            self.doubt = doubt_of(tensor, value, self.batch)

    def _count_degree(self, tensor: Tensor) -> int:
        node = tensor.node
        if node.op in ("Select", "SelectV2"):  # a guard against division by zero
            return max(self._count_degree(t) if t.node in self.varying else 0 for t in node.inputs[1:])
        if node.op in ("Maximum",):
            return max(self._count_degree(t) if t.node in self.varying else 0 for t in node.inputs)
        return self.degree(tensor)

    def _grows(self, tensor: Tensor, value: float) -> bool:
        if self.rescaled is not None:
            return any(node.name in self.rescaled for node in self.graph.ancestors([tensor.node], data_only=True))
        if self.batch is None or self.batch < 2:
            return value == self.batch
        ratio = value / self.batch
        return ratio >= 1 and abs(ratio - round(ratio)) < 1e-6

    def _constant(self, tensor: Tensor) -> float | None:
        """The number that a value is made of, however often."""
        value = evaluate(self.graph, tensor)
        return None if value is None or not value.size or np.ptp(value) else float(value.flat[0])


def _counts_rows(node: Node) -> bool:
    """Whether a node is the number of rows that a mask chose, which differs from core to core."""
    return node.op == "Size" or (node.op == "StridedSlice" and node.inputs[0].node.op == "Shape")


def _reduced_axes(node: Node) -> set[int]:
    rank = len(node.inputs[0].shape or ())
    if node.op == "L2Loss":
        return set(range(rank))
    axes = node.inputs[1].node
    if axes.op != "Const":
        return set(range(rank))
    return {int(a) % rank for a in axes.attr("value").ravel()} if rank else set()


def doubt_of(number: Tensor, value: float, batch: int | None) -> str:
    """What is said of a literal that is taken for the batch size because it equals it."""
    return f"'{number}' ({value:g}) is taken for the size of the batch of {batch}"


def unclear(graph: Graph, node: Node, fault: str, fix: str = "") -> RolesError:
    """How the shards combine cannot be told; the user may know."""
    choice = "choose with --loss_reduction=mean or --loss_reduction=sum, if one of them is exact"
    return RolesError(fault, node=node, origin=graph.source, fix=f"{fix}; or {choice}" if fix else choice)
