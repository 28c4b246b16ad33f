"""With ``batch_mode=global``: the traced batch is the global one, each core gets its share of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import analysis, attrs, ops, shapes
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.batch_dims import BatchDims
from tpugraph.errors import GraphError, ShapeError
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.pipeline import Pass

_INT32 = attrs.dtype("int32")


@dataclass(frozen=True)
class SplitBatch(Pass):
    """With batch_mode=global the device part is traced anew for one core's share of the batch; else nothing changes.

    Every constant that shapes the batch is re-derived: reshape targets, tile multiples, zero states. A number that only
    enters arithmetic keeps its value, since it is the global batch that it speaks of. Where it is not certain that a
    constant shapes the batch, the pass refuses and names it.
    """

    num_replicas: int = 8
    batch_mode: str = "per_replica"

    requires = ("placed", "shapes_known")
    ensures = ("placed", "shapes_known")

    def run(self, graph: Graph) -> None:
        if self.batch_mode != "global" or self.num_replicas == 1:
            return
        crossing = _crossing(graph)
        batch = self._batch(graph, crossing)
        device = [node for node in graph if in_cluster(node)]
        dims = BatchDims(graph, device, batch, crossing)
        if dims.conflicts:
            node = dims.conflicts[0]
            raise _uncertain(graph, node, f"'{node.name}' joins the batch with a dimension that is not the batch")
        readers = [use.node for tensor in crossing for use in tensor.node.uses(tensor.port)]
        varying = analysis.divergence(graph, readers, within=dict.fromkeys(device))
        before = {node: list(node.outputs or []) for node in device}
        changed = [
            node.name for node in device if node.op == "Const" and self._rescale(graph, node, dims, batch, varying)
        ]
        forward = graph.ancestors([graph.tensor(graph.roles.loss.name).node], data_only=True)
        changed += [n.name for n in device if n.op == "Const" and self._rescale_divisor(graph, n, dims, forward, batch)]
        for node in graph:
            self._relax_attrs(graph, node, batch)
        for tensor in crossing:
            self._split(graph, tensor, batch)
        try:
            shapes.infer(graph)
            if shapes.tell_lookups(graph):
                shapes.infer(graph)
        except GraphError as error:
            raise _uncertain(graph, error.node or crossing[0].node, error.fault) from error
        self._verify(graph, before, dims)
        graph.facts[self.name] = {"batch": batch, "constants": changed}

    def _batch(self, graph: Graph, crossing: list[Tensor]) -> int:
        rows = [t.shape[0] for t in crossing if t.shape and t.shape[0]]
        batch = max(set(rows), key=rows.count) if rows else None
        odd = next((t for t in crossing if not t.shape or t.shape[0] != batch), None)
        if batch is None or odd is not None:
            raise _uncertain(
                graph, (odd or crossing[0]).node, f"'{odd}' crosses to the device without a batch dimension"
            )
        if batch % self.num_replicas:
            low = batch // self.num_replicas * self.num_replicas
            sizes = " or ".join(str(s) for s in (low, low + self.num_replicas) if s)
            raise ShapeError(
                f"a batch of {batch} rows cannot be split over {self.num_replicas} cores",
                node=crossing[0].node,
                fix=f"batch {sizes} rows, choose --num_replicas to divide {batch}, or --batch_mode=per_replica",
            )
        return int(batch)

    def _rescale(self, graph: Graph, node: Node, dims: BatchDims, batch: int, varying: analysis.NodeSet) -> bool:
        """Re-derive one constant; returns whether it held the batch."""
        value, out = node.attr("value"), node.out()
        if value.dtype == object:
            return False
        scaled = [axis for axis in range(value.ndim) if dims.dim(out, axis)]
        if not scaled and value.ndim and value.dtype.kind == "f":
            open_axes = [axis for axis in range(value.ndim) if dims.dim(out, axis) is None]
            if open_axes and value.shape[open_axes[0]] == batch:
                raise _uncertain(graph, node, f"dimension {open_axes[0]} of the constant may be the batch")
        if scaled:
            return self._shrink(graph, node, value, scaled)
        if value.dtype.kind not in "iu" or value.ndim > 1 or value.size > 16:
            return False
        return self._rescale_elements(graph, node, dims, varying)

    def _rescale_elements(self, graph: Graph, node: Node, dims: BatchDims, varying: analysis.NodeSet) -> bool:
        value = node.attr("value")
        new = value.copy().reshape(-1)
        for index, element in enumerate(value.reshape(-1).tolist()):
            tag = dims.element(node.out(), index, int(element))
            if tag is None and _shapes_varying(node, index, varying):
                raise _uncertain(graph, node, f"the constant {value.tolist()} may hold the batch at place {index}")
            if tag:
                new[index] = element // self.num_replicas
        if (new == value.reshape(-1)).all():
            return False
        graph.set_attr(node, "value", new.reshape(value.shape))
        graph.note(node, f"holds the batch: {value.tolist()} becomes {new.reshape(value.shape).tolist()}")
        return True

    def _shrink(self, graph: Graph, node: Node, value: np.ndarray[Any, Any], axes: list[int]) -> bool:
        if value.size and (value != value.reshape(-1)[0]).any():
            raise _uncertain(graph, node, "a constant with different rows has one row per example of the batch")
        shape = tuple(d // self.num_replicas if i in axes else d for i, d in enumerate(value.shape))
        graph.set_attr(node, "value", np.full(shape, value.reshape(-1)[0], value.dtype))
        graph.note(node, f"holds the batch: shape {value.shape} becomes {shape}")
        return True

    def _rescale_divisor(
        self, graph: Graph, node: Node, dims: BatchDims, forward: dict[Node, None], batch: int
    ) -> bool:
        """A number that only backpropagation divides by: the count of a Mean over the batch, or uncertain.

        A number that the loss is divided by keeps its value in both directions; its gradients are then summed.
        """
        value = node.attr("value")
        if (
            node in forward
            or value.dtype.kind != "f"
            or value.size != 1
            or value.item() < batch
            or value.item() % batch
        ):
            return False
        for use in node.uses():
            if use.node.op not in ops.DIVISIONS or use.index != 1 or use.node in forward:
                continue
            tile = use.node.inputs[0].node
            if not self._spreads_mean(tile, dims, value.item()):
                raise _uncertain(
                    graph, node, f"'{use.node.name}' divides by {value.item():g}, which may be the batch size"
                )
            graph.set_attr(node, "value", (value / self.num_replicas).astype(value.dtype))
            graph.note(
                node,
                f"the count of a mean over the batch: {value.item():g} becomes {value.item() / self.num_replicas:g}",
            )
            return True
        return False

    def _spreads_mean(self, tile: Node, dims: BatchDims, count: float) -> bool:
        """Whether a node spreads the gradient of a Mean: its multiples held the batch and make up the count."""
        if tile.op not in ("Tile", "BroadcastTo") or tile.inputs[1].node.op != "Const":
            return False
        multiples = tile.inputs[1]
        now = [int(v) for v in multiples.node.attr("value").ravel()]
        held = [i for i, v in enumerate(now) if dims.element(multiples, i, v * self.num_replicas)]
        return len(held) == 1 and math.prod(now) * self.num_replicas == count

    def _split(self, graph: Graph, tensor: Tensor, batch: int) -> None:
        axis = graph.add(
            "Const",
            f"{tensor.node.name}/split/axis",
            attrs={"dtype": _INT32, "value": np.asarray(0, "int32")},
            device=HOST_DEVICE,
            outputs=[(_INT32, ())],
            source=tensor.node,
        )
        share = (batch // self.num_replicas, *(tensor.shape or ())[1:])
        pieces = graph.add(
            "Split",
            f"{tensor.node.name}/split",
            [axis.out(), tensor],
            device=HOST_DEVICE,
            attrs={"T": tensor.dtype, "num_split": self.num_replicas},
            source=tensor.node,
            outputs=[(tensor.dtype, share)] * self.num_replicas,
        )
        graph.replace_uses(tensor, pieces.out(), where=lambda use: in_cluster(use.node))

    def _relax_attrs(self, graph: Graph, node: Node, batch: int) -> None:
        """Shapes that are written in attributes only check; where they may hold the batch they are opened."""
        if node.has_attr("_output_shapes"):
            graph.set_attr(node, "_output_shapes", None)
        if not in_cluster(node):
            return
        shape = node.attr("element_shape")
        if shape and any(d is not None and d % batch == 0 for d in shape):
            graph.set_attr(node, "element_shape", tuple(None if d is None or d % batch == 0 else d for d in shape))
        if node.op in ops.FUNCTIONAL and node.has_attr("output_shapes"):
            graph.set_attr(node, "output_shapes", [])

    def _verify(self, graph: Graph, before: dict[Node, Any], dims: BatchDims) -> None:
        """Every batch dimension is the share that one core gets; every other one is what it was, or such a share."""
        for node, outputs in before.items():
            for port, ((_, old), (_, new)) in enumerate(zip(outputs, node.outputs or [], strict=True)):
                if old is None or new is None or len(old) != len(new):
                    continue
                for axis, (was, now) in enumerate(zip(old, new, strict=True)):
                    is_batch = dims.certain(node.out(port), axis)
                    if was is None or now is None or was == now * self.num_replicas or (was == now and not is_batch):
                        continue
                    raise _uncertain(graph, node, f"its shape {list(old)} becomes {list(new)}, which is no share of it")


def _uncertain(graph: Graph, node: Node | str, fault: str) -> ShapeError:
    return ShapeError(
        f"the batch cannot be split with certainty: {fault}",
        node=node,
        origin=graph.source,
        fix="--batch_mode=per_replica, which changes no constant",
    )


def _crossing(graph: Graph) -> list[Tensor]:
    found: list[Tensor] = []
    for node in graph:
        if in_cluster(node) or node.op in ops.RESOURCE_VARIABLES:
            continue
        found.extend(node.out(p) for p in node.used_ports() if any(in_cluster(u.node) for u in node.uses(p)))
    return found


_TAKES_SIZES = {"Reshape": 1, "Tile": 1, "BroadcastTo": 1, "Slice": 2, "Conv2DBackpropInput": 0, "Fill": 0}
_HANDS_ON = frozenset({"Pack", "ConcatV2", "Cast", "Identity", "ExpandDims"})


def _shapes_varying(node: Node, index: int, varying: dict[Node, None]) -> bool:
    """Whether an element of a constant shapes a value of the batch (element by element through slices)."""
    for use in node.uses():
        if use.node.op in _TAKES_SIZES and use.index == _TAKES_SIZES[use.node.op] and use.node in varying:
            return True
        if use.node.op in _HANDS_ON and _shapes_varying(use.node, index, varying):
            return True
    return False
