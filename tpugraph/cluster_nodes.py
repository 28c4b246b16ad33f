"""Nodes of the cluster: constants, casts, reshapes, and the number of the core that runs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tpugraph import attrs
from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.attrs import DType
from tpugraph.ir import Graph, Node, Tensor

_INT32 = attrs.dtype("int32")
REPLICA_ID = "tpugraph/replica_id"


class ClusterNodes:
    """Makes nodes inside the cluster.

    Args:
        graph: the graph.
        count: number of cores.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        self.graph = graph
        self.count = count
        self._masks: dict[tuple[str, int], Tensor] = {}
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

    def times(self, tensor: Tensor, factor: Tensor) -> Tensor:
        """A tensor times a number."""
        return self.add(
            "Mul",
            f"{tensor.node.name}/share",
            [tensor, factor],
            {"T": tensor.dtype},
            tensor.dtype,
            tensor.shape,
            tensor.node,
        )

    def mask(self, kind: DType, rank: int, source: Node) -> Tensor:
        """One at this core's place and zero elsewhere, shaped [cores, 1, ...]."""
        key = (kind.name, rank)
        if key not in self._masks:
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
            self._masks[key] = self.reshape(one_hot, [self.count] + [1] * rank)
        return self._masks[key]

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

    def cast(self, tensor: Tensor, kind: DType) -> Tensor:
        """A tensor in another dtype."""
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

    def reshape(self, tensor: Tensor, shape: list[int]) -> Tensor:
        """A tensor in another shape of as many elements."""
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
