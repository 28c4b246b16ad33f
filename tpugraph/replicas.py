"""Verbs for values that are spread over the cores: scale by the core's share, sum over cores, gather from cores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tpugraph import attrs, ops
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, NodeSet
from tpugraph.attrs import DType
from tpugraph.bounds import bounded_shape
from tpugraph.errors import ConversionError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.reduction import Reduction
from tpugraph.shapes import is_static

_INT32 = attrs.dtype("int32")
REPLICA_ID = "tpugraph/replica_id"


class Replicas:
    """Makes the nodes that combine values over cores, inside the cluster.

    Args:
        graph: the graph.
        count: number of cores.
        how: how the shards of the batch combine.
    """

    def __init__(self, graph: Graph, count: int, how: Reduction) -> None:
        self.graph = graph
        self.count = count
        self.how = how
        self._constants: dict[tuple[str, str], Tensor] = {}
        self._groups: Tensor | None = None
        self._id: Tensor | None = None

    def add(
        self,
        op: str,
        name: str,
        inputs: list[Tensor],
        attributes: dict[str, Any],
        kind: DType,
        shape: attrs.Shape,
        source: Node,
    ) -> Tensor:
        """A node of the cluster; returns its output."""
        node = self.graph.add(
            op, name, inputs, attrs={**attributes, CLUSTER_ATTR: CLUSTER}, outputs=[(kind, shape)], source=source
        )
        return node.out()

    def constant(self, name: str, value: Any, kind: DType, source: Node) -> Tensor:
        """A constant of the cluster."""
        array = np.asarray(value, "float32" if kind.name == "bfloat16" else kind.name)
        if kind.name == "bfloat16":
            base = self.constant(name + "/float32", value, attrs.dtype("float32"), source)
            return self.add("Cast", name, [base], {"SrcT": base.dtype, "DstT": kind}, kind, array.shape, source)
        return self.add("Const", name, [], {"dtype": kind, "value": array}, kind, array.shape, source)

    def scale(self, tensor: Tensor, kind: str | None = None) -> Tensor:
        """The tensor times this core's share of the batch; under a sum the share is one."""
        if (kind or self.how.kind) == "sum" or self.count == 1:
            return tensor
        return self.scale_evenly(tensor)

    def scale_evenly(self, tensor: Tensor) -> Tensor:
        """The tensor divided by the number of cores."""
        kind = tensor.dtype
        key = ("share", kind.name)
        if key not in self._constants:
            self._constants[key] = self.constant("CrossReplicaSum/share", 1.0 / self.count, kind, tensor.node)
        return self._times(tensor, self._constants[key])

    def _times(self, tensor: Tensor, factor: Tensor) -> Tensor:
        return self.add(
            "Mul",
            f"{tensor.node.name}/share",
            [tensor, factor],
            {"T": tensor.dtype},
            tensor.dtype,
            tensor.shape,
            tensor.node,
        )

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
        return self._cast(self.all_sum(self._cast(tensor, narrow)), tensor.dtype)

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
            return self._cast(self.from_first(self._cast(tensor, _INT32)), tensor.dtype)
        kind, shape, source = tensor.dtype, tensor.shape or (), tensor.node
        zero = self.constant(f"{source.name}/zero", np.zeros(1), _INT32, source)
        one = self.constant(f"{source.name}/one", np.ones(1), _INT32, source)
        mask = self._mask(kind, 0, source)
        first = self.add(
            "Slice", f"{source.name}/first", [mask, zero, one], {"T": kind, "Index": _INT32}, kind, (1,), source
        )
        factor = self._reshape(first, [])
        return self.all_sum(
            self.add("Mul", f"{source.name}/of_first", [tensor, factor], {"T": kind}, kind, shape, source)
        )

    # ------------------------------------------------------------------ gather

    def all_gather(self, tensor: Tensor) -> Tensor:
        """The rows of all cores, in the order of the cores.

        Every core writes its rows into its own place of a zero array and the arrays are summed. Where the number of
        rows is open, they are padded to its upper bound, and the padding is taken out behind the sum.

        Raises:
            ConversionError: the number of rows has no known bound.
        """
        if self.count == 1:
            narrow = _INT32 if tensor.dtype.name == "int64" else tensor.dtype
            return self._cast(self.all_sum(self._cast(tensor, narrow)), tensor.dtype)
        if is_static(tensor.shape):
            return self._gather_static(tensor)
        return self._gather_bounded(tensor)

    def _gather_static(self, tensor: Tensor) -> Tensor:
        kind, source = tensor.dtype, tensor.node
        shape = [int(d or 0) for d in tensor.shape or ()]
        narrow = attrs.dtype("int32") if kind.name == "int64" else kind
        rows = self._cast(tensor, narrow)
        wide = self._reshape(rows, [1, *shape])
        spread = self.add(
            "Mul",
            f"{source.name}/spread",
            [wide, self._mask(narrow, len(shape), source)],
            {"T": narrow},
            narrow,
            (self.count, *shape),
            source,
        )
        summed = self.all_sum(spread)
        flat = self._reshape(summed, [self.count * shape[0], *shape[1:]])
        return self._cast(flat, kind)

    def _gather_bounded(self, tensor: Tensor) -> Tensor:
        kind, source = tensor.dtype, tensor.node
        bound = bounded_shape(tensor)
        if not is_static(bound) or not bound:
            raise ConversionError(
                f"the number of rows of '{tensor}' has no known upper bound",
                node=source,
                fix="give the sparse input a fixed number of values per batch",
            )
        count = self._row_count(tensor)
        padded = self._pad(tensor, count, bound)
        every = self._gather_static(padded)
        counts = self._gather_static(self._reshape(count, [1]))
        return self._compress(every, counts, int(bound[0] or 0), kind, source)

    def _row_count(self, tensor: Tensor) -> Tensor:
        source = tensor.node
        shape = self.add(
            "Shape",
            f"{source.name}/shape",
            [tensor],
            {"T": tensor.dtype, "out_type": _INT32},
            _INT32,
            (len(tensor.shape or ()),),
            source,
        )
        ends = [
            self.constant(f"{source.name}/rows/{n}", [v], _INT32, source) for n, v in (("b", 0), ("e", 1), ("s", 1))
        ]
        mask = {
            "T": _INT32,
            "Index": _INT32,
            "begin_mask": 0,
            "end_mask": 0,
            "ellipsis_mask": 0,
            "new_axis_mask": 0,
            "shrink_axis_mask": 1,
        }
        return self.add("StridedSlice", f"{source.name}/rows", [shape, *ends], mask, _INT32, (), source)

    def _pad(self, tensor: Tensor, count: Tensor, bound: tuple[int | None, ...]) -> Tensor:
        source = tensor.node
        total = self.constant(f"{source.name}/bound", bound[0], _INT32, source)
        missing = self.add("Sub", f"{source.name}/missing", [total, count], {"T": _INT32}, _INT32, (), source)
        zero = self.constant(f"{source.name}/zero", 0, _INT32, source)
        first = self.add(
            "Pack", f"{source.name}/padding/0", [zero, missing], {"N": 2, "T": _INT32, "axis": 0}, _INT32, (2,), source
        )
        rest = [self.constant(f"{source.name}/padding/{i}", [0, 0], _INT32, source) for i in range(1, len(bound))]
        padding = self.add(
            "Pack",
            f"{source.name}/padding",
            [first, *rest],
            {"N": len(bound), "T": _INT32, "axis": 0},
            _INT32,
            (len(bound), 2),
            source,
        )
        return self.add(
            "Pad",
            f"{source.name}/padded",
            [tensor, padding],
            {"T": tensor.dtype, "Tpaddings": _INT32},
            tensor.dtype,
            bound,
            source,
        )

    def _compress(self, every: Tensor, counts: Tensor, bound: int, kind: DType, source: Node) -> Tensor:
        """Keep the rows that are no padding."""
        places = self.constant(f"{source.name}/places", np.arange(bound)[None, :], _INT32, source)
        column = self._reshape(counts, [self.count, 1])
        used = self.add(
            "Less",
            f"{source.name}/used",
            [places, column],
            {"T": _INT32},
            attrs.dtype("bool"),
            (self.count, bound),
            source,
        )
        flat = self._reshape(used, [self.count * bound])
        int64 = attrs.dtype("int64")
        where = self.add("Where", f"{source.name}/where", [flat], {"T": flat.dtype}, int64, (None, 1), source)
        return self.add(
            "GatherNd",
            f"{source.name}/gathered",
            [every, where],
            {"Tparams": kind, "Tindices": int64},
            kind,
            (None, *(every.shape or ())[1:]),
            source,
        )

    def _mask(self, kind: DType, rank: int, source: Node) -> Tensor:
        """One at this core's place and zero elsewhere, shaped [cores, 1, ...]."""
        key = ("mask", f"{kind.name}/{rank}")
        if key not in self._constants:
            depth = self.constant("replica/depth", self.count, _INT32, source)
            on, off = (self.constant(f"replica/{n}", v, kind, source) for n, v in (("on", 1), ("off", 0)))
            one_hot = self.add(
                "OneHot",
                "replica/one_hot",
                [self._replica_id(source), depth, on, off],
                {"T": kind, "TI": _INT32, "axis": -1},
                kind,
                (self.count,),
                source,
            )
            self._constants[key] = self._reshape(one_hot, [self.count] + [1] * rank)
        return self._constants[key]

    def _replica_id(self, source: Node) -> Tensor:
        """The number of this core: an argument of the cluster, as TPUEstimator passes it."""
        if self._id is None:
            graph = self.graph
            ids = [
                graph.add(
                    "Const",
                    f"{REPLICA_ID}/{r}",
                    attrs={"dtype": _INT32, "value": np.int32(r)},
                    outputs=[(_INT32, ())],
                    source=source,
                ).out()
                for r in range(self.count)
            ]
            merged = graph.add(
                "TPUReplicatedInput",
                REPLICA_ID,
                ids,
                attrs={"N": self.count, "T": _INT32},
                outputs=[(_INT32, ())],
                source=source,
            )
            self._id = self.add(
                "Identity", "replica/id", [merged.out()], {"T": _INT32, "_tpu_input_identity": True}, _INT32, (), source
            )
        return self._id

    def _cast(self, tensor: Tensor, kind: DType) -> Tensor:
        if tensor.dtype == kind:
            return tensor
        return self.add(
            "Cast",
            f"{tensor.node.name}/{kind.name}",
            [tensor],
            {"SrcT": tensor.dtype, "DstT": kind},
            kind,
            tensor.shape,
            tensor.node,
        )

    def _reshape(self, tensor: Tensor, shape: list[int]) -> Tensor:
        target = self.constant(f"{tensor.node.name}/shape", np.asarray(shape, "int32"), _INT32, tensor.node)
        return self.add(
            "Reshape",
            f"{tensor.node.name}/reshaped",
            [tensor, target],
            {"T": tensor.dtype, "Tshape": _INT32},
            tensor.dtype,
            tuple(shape),
            tensor.node,
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
