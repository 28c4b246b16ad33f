"""Where rows of the batch meet on the way to the loss, other than in a sum or a mean.

A core knows the rows of its own batch only. A loss that pairs rows, ranks them, or bends a sum over them (the root of a
mean, a product of two means) is another number on the whole batch, and no mean or sum of what the cores have.

Each value that differs between cores is ``rows`` (it has rows of the batch, or that is not certain), a ``total`` (a sum
or mean over the batch, and what is linear in such), or ``bent`` (another function of totals or of all rows).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tpugraph import joined, ops
from tpugraph.analysis import NodeSet, reads_host
from tpugraph.batch_dims import BatchDims
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.processing import is_linear
from tpugraph.shapes import element_count

_ADDS_ROWS = frozenset({"Sum", "Mean", "L2Loss", "Size", "Shape", *ops.SCATTERED_SUMS})
_COMBINES = ops.ELEMENTWISE | ops.MULTILINEAR
_BENDS = "is no sum or mean over the rows of the batch"


@dataclass
class Mixing:
    """What was found.

    Attributes:
        faults: nodes at which the result is certainly not that of the whole batch, each with the reason.
        divisors: nodes that divide rows by a number made of all rows, and that number.
        own_statistics: nodes that normalise each core's rows by statistics of these rows alone, as batch norm does.
        joins: nodes that put rows of the batch beside other rows, as a bank of the newest rows does.
        by_number: nodes that give each row what belongs to its number in the batch; each core counts its own rows.
        own_gradients: nodes that are the gradient of a mean over the batch, read by the loss itself.
        causes: of those of the faults that only show it, the node that bends a number made of all rows, with the words.
    """

    faults: dict[Node, str] = field(default_factory=dict)
    divisors: dict[Node, Tensor] = field(default_factory=dict)
    own_statistics: list[Node] = field(default_factory=list)
    joins: list[Node] = field(default_factory=list)
    by_number: list[Node] = field(default_factory=list)
    own_gradients: list[Node] = field(default_factory=list)
    causes: dict[Node, tuple[Node, str]] = field(default_factory=dict)

    def note(self) -> str | None:
        """The line of the report, or None where the result is that of the whole batch."""
        if self.faults:
            node, fault = next(iter(self.faults.items()))
            return f"'{node.name}' {fault}, each core among its own: the result is not that of the whole batch"
        if self.by_number:
            return (
                f"'{self.by_number[0].name}' gives each row a value by its number in the batch, and each core counts "
                "its own rows from 0: the result is not that of the whole batch"
            )
        if self.own_gradients:
            return (
                f"the loss reads '{self.own_gradients[0].name}', the gradient of a mean over the rows of one core: where "
                "its size matters, and not only its direction, the result is not that of the whole batch"
            )
        if self.own_statistics:
            more = f" (and {len(self.own_statistics) - 1} more)" if len(self.own_statistics) > 1 else ""
            return (
                f"'{self.own_statistics[0].name}'{more} normalises the rows of each core by their own statistics: "
                "the result is not exactly that of the whole batch"
            )
        return None


@dataclass(frozen=True)
class Undecided:
    """In place of BatchDims, where a batch of one row, or of an unknown number, leaves open which dimension it is."""

    batch: int | None

    def dim(self, tensor: Tensor, axis: int) -> bool | None:
        """Any dimension of the right size may be the batch."""
        return None if self.batch is None or (tensor.shape or ())[axis] in (self.batch, None) else False

    def certain(self, tensor: Tensor, axis: int) -> bool:
        """None is certainly."""
        return False


def find(graph: Graph, loss: Tensor, varying: NodeSet, dims: BatchDims | Undecided) -> Mixing:
    """Look at everything that the loss is computed from.

    Args:
        graph: the graph, with shapes.
        loss: the loss.
        varying: the replica-varying nodes.
        dims: which dimensions are the batch.
    """
    forward = graph.ancestors([loss.node], data_only=True)
    walk = visited(graph, (n for n in forward if n in varying), varying, dims)
    if loss in walk.bent:
        node, fault = walk.bent[loss]
        walk.found.faults.setdefault(node, fault)
    walk.found.own_gradients = [node for node in forward if _is_gradient_of_mean(node, dims)]
    return walk.found


def _is_gradient_of_mean(node: Node, dims: BatchDims | Undecided) -> bool:
    """Whether a node spreads a number over the rows and divides it by their count, as backpropagation of a Mean does."""
    if node.op not in ops.DIVISIONS or node.inputs[0].node.op not in ops.SPREADS or not node.out().shape:
        return False
    rows, count = (node.out().shape or ())[0], node.inputs[1].node
    if count.op != "Const" or count.attr("value").size != 1 or not rows or not dims.certain(node.out(), 0):
        return False
    return bool(count.attr("value").item() % rows == 0)


def visited(graph: Graph, nodes: Iterable[Node], varying: NodeSet, dims: BatchDims | Undecided) -> Walk:
    """Look at some of the replica-varying nodes."""
    order = graph.topological_order(nodes)
    walk = Walk(graph, varying, dims, dict.fromkeys(order))
    for node in order:
        walk.visit(node)
    return walk


class Walk:
    """Visits nodes in order and tells what each value is."""

    def __init__(self, graph: Graph, varying: NodeSet, dims: BatchDims | Undecided, within: NodeSet) -> None:
        self.graph = graph
        self.varying = varying
        self.dims = dims
        self.within = within
        self.found = Mixing()
        self.bent: dict[Tensor, tuple[Node, str]] = {}
        self.totals: dict[Tensor, None] = {}
        self.spread: dict[Tensor, tuple[Node, str] | None] = {}  # rows to which a total was added, and what bent it
        self._rows: dict[Tensor, bool] = {}
        self._drawn: dict[Tensor, None] = {}  # random numbers of a core, and what is made of nothing else

    def visit(self, node: Node) -> None:
        """Tell what the outputs of a node are."""
        operands = [t for t in node.inputs if self._varies(t)]
        if any(t.dtype.name in ("resource", "variant") for t in node.inputs):
            return  # a container: what is in it is told where it is read
        if node.op in ops.BATCH_NORMS and node.attr("is_training", True):
            self.found.own_statistics.append(node)
            return
        self._along_the_batch(node)
        self._by_number(node, operands)
        self._beside_others(node)
        for port in range(len(node.outputs or ())):
            tensor = node.out(port)
            pairs = len(self._certain(tensor)) > 1
            if pairs and not any(len(self._certain(t)) > 1 for t in operands):
                self.found.faults[node] = f"({node.op}) pairs rows of the batch"
            if self._has_rows(tensor):
                self._with_rows(node, tensor, operands)
            else:
                self._without_rows(node, tensor, operands)

    def _is_drawn(self, node: Node, operands: list[Tensor]) -> bool:
        """Whether what has no rows here is drawn by the core, and says nothing of its rows."""
        if operands and all(t in self._drawn for t in operands):
            return True
        return node.op in ops.CANDIDATE_SAMPLERS or (node.op in ops.RANDOM and not operands)

    def _varies(self, tensor: Tensor) -> bool:
        return tensor.node in self.varying or reads_host(tensor)

    def _has_rows(self, tensor: Tensor) -> bool:
        """Whether a value has rows of the batch, or may have."""
        if tensor not in self._rows:
            shape = tensor.shape
            self._rows[tensor] = shape is None or any(
                d is None or self.dims.dim(tensor, axis) is not False for axis, d in enumerate(shape)
            )
        return self._rows[tensor]

    def _certain(self, tensor: Tensor) -> list[int]:
        return [axis for axis in range(len(tensor.shape or ())) if self.dims.certain(tensor, axis)]

    def _along_the_batch(self, node: Node) -> None:
        """Ops that work along an axis: softmax, top_k, cumulative sums, reversal."""
        if not node.inputs or not node.inputs[0].shape:
            return
        source = node.inputs[0]
        axes: list[int] = []
        if node.op in ops.ALONG_LAST_AXIS:
            axes = [-1]
        elif node.op in ops.ALONG_AXES and node.inputs[ops.ALONG_AXES[node.op]].node.op == "Const":
            axes = node.inputs[ops.ALONG_AXES[node.op]].node.attr("value").ravel().tolist()
        elif node.op in ops.PICKS and not self._varies(node.inputs[1]) and not node.attr("batch_dims", 0):
            axes = [0]
        elif node.op == "StridedSlice" and node.inputs[3].node.op == "Const":
            axes = [axis for axis, step in enumerate(node.inputs[3].node.attr("value").ravel()) if step < 0]
        if {axis % len(source.shape or ()) for axis in axes} & set(self._certain(source)):
            self.found.faults[node] = f"({node.op}) works across the rows of the batch"

    def _by_number(self, node: Node, operands: list[Tensor]) -> None:
        """What all cores have alike and tells rows apart, as weights made of ``tf.range``; an index of rows is none."""
        if node.op not in _COMBINES or not operands:
            return
        alike = [t for t in node.inputs if not self._varies(t) and t.dtype.floating and self._certain(t)]
        if any(self._tells_apart(t) for t in alike):
            self.found.by_number.append(node)

    def _beside_others(self, node: Node) -> None:
        if node.op != "ConcatV2" or node.inputs[-1].node.op != "Const" or not node.out().shape:
            return
        axis = int(node.inputs[-1].node.attr("value").item()) % len(node.out().shape or ())
        of_batch = {axis in self._certain(part) for part in node.inputs[:-1]}
        if len(of_batch) == 1:
            return
        apart = joined.taken_apart(node, self.within)
        self._rows.update(dict.fromkeys(apart, True))
        if not apart:
            self.found.joins.append(node)

    def _tells_apart(self, tensor: Tensor) -> bool:
        for node in self.graph.ancestors([tensor.node], data_only=True):
            axes = self._certain(node.out()) if node.op in ("Const", "Range") else []
            if axes and (node.op == "Range" or np.ptp(node.attr("value"), axis=axes[0]).any()):
                return True
        return False

    def _with_rows(self, node: Node, tensor: Tensor, operands: list[Tensor]) -> None:
        """Rows may meet a statistic of all rows: batch norm where it has channels, else a fault."""
        statistics = [t for t in operands if self._is_statistic(node, t)]
        spread = [t for t in operands if t in self.spread]
        if not statistics and not spread and any(t in self.bent for t in operands) and is_linear(node, operands):
            spread = [t for t in operands if t in self.bent]  # put into places of rows
        if any(element_count(t.shape) != 1 for t in statistics):
            self.found.own_statistics.append(node)
        elif (statistics or spread) and is_linear(node, operands) and not self._bent_beside_rows(statistics, operands):
            self.spread[tensor] = self._cause([*statistics, *spread])
        elif (statistics or spread) and node.op in _COMBINES:
            self._fault(node, [*statistics, *spread])

    def _bent_beside_rows(self, statistics: list[Tensor], operands: list[Tensor]) -> bool:
        return any(t in self.bent for t in statistics) and len(statistics) < len(operands)

    def _cause(self, numbers: list[Tensor]) -> tuple[Node, str] | None:
        causes = (self.bent.get(t) or self.spread.get(t) for t in numbers)
        return next((cause for cause in causes if cause is not None), None)

    def _fault(self, node: Node, numbers: list[Tensor]) -> None:
        beside = f"; '{self.found.joins[0].name}' puts rows of the batch beside others" if self.found.joins else ""
        self.found.faults[node] = f"({node.op}) combines rows of the batch with a number made of all rows{beside}"
        cause = self._cause(numbers)
        if cause is not None:
            self.found.causes[node] = cause

    def _is_statistic(self, node: Node, tensor: Tensor) -> bool:
        """Whether rows meet a number that all rows made; what divides them is a weight and made global elsewhere."""
        if node.op not in _COMBINES | ops.SPREADS or not tensor.dtype.floating or self._has_rows(tensor):
            return False
        places = [index for index, operand in enumerate(node.inputs) if operand == tensor]
        if tensor in self.totals and places == [1] and node.op in ops.DIVISIONS and element_count(tensor.shape) == 1:
            self.found.divisors[node] = tensor
            return False
        return tensor in self.bent or tensor in self.totals

    def _without_rows(self, node: Node, tensor: Tensor, operands: list[Tensor]) -> None:
        kinds = [t for t in (tensor, *operands) if t.dtype.floating]
        if self._is_drawn(node, operands):
            self._drawn[tensor] = None
            return
        if any(self._has_rows(t) for t in operands):
            spread = [t for t in operands if t in self.spread]
            if spread and node.op in _COMBINES and not is_linear(node, operands):
                self._fault(node, spread)
            if node.op in _ADDS_ROWS:
                self.totals[tensor] = None
            elif tensor.dtype.floating and any(self._certain(t) for t in operands):
                self.bent[tensor] = (node, f"({node.op}) {_BENDS}")
            return
        if not operands:
            return  # it varies by itself, or because its loop does
        if node.op in ops.SELECTS:
            operands = [t for t in operands if t != node.inputs[0]]
        bent = [self.bent[t] for t in operands if t in self.bent]
        if bent:
            self.bent[tensor] = bent[0]
        elif node.op in ops.CONTROL_FLOW or is_linear(node, operands) or _is_guard(node, operands):
            self.totals[tensor] = None
        elif node.op in ops.DIVISIONS:
            self.totals[tensor] = None
            self.found.divisors[node] = node.inputs[1]
        elif kinds:
            self.bent[tensor] = (node, f"({node.op}) {_BENDS}")


def _is_guard(node: Node, operands: list[Tensor]) -> bool:
    """Whether a node keeps a divisor from being zero."""
    if node.op in ops.SELECTS:
        return True
    return node.op in ("Maximum", "Minimum") and len(operands) == 1 and _only_divides(node.out())


def _only_divides(tensor: Tensor) -> bool:
    return all(
        _only_divides(use.node.out())
        if use.node.op in ops.IDENTITIES
        else use.node.op in ops.DIVISIONS and use.index == 1
        for use in tensor.node.uses(tensor.port)
    )
