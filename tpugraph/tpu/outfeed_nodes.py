"""Both ends of the outfeed: one tuple that a core sends each step, and one that the host takes from each core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR, CORE_DEVICE, HOST_DEVICE
from tpugraph.ir import Graph, Node, Tensor, attrs

_INT32 = attrs.dtype("int32")


def send(graph: Graph, tensors: Iterable[Tensor], *, vector: tuple[str, str], controls: Iterable[Node] = ()) -> Node:
    """The OutfeedEnqueueTuple of a core; its inputs are the tensors, scalars as vectors of one element.

    Args:
        graph: the graph.
        tensors: what is sent, of the cluster.
        vector: the names, below a scalar's own, of the shape of its vector and of the vector.
        controls: nodes of the cluster to wait for.
    """
    sent = [_at_least_vector(graph, tensor, *vector) for tensor in tensors]
    return graph.add(
        "OutfeedEnqueueTuple",
        "tpugraph/outfeed/enqueue",
        sent,
        controls=controls,
        attrs={"dtypes": [t.dtype for t in sent], CLUSTER_ATTR: CLUSTER},
        device=CORE_DEVICE,
        outputs=[],
    )


def receive(graph: Graph, sent: Sequence[Tensor], cores: int) -> list[Node]:
    """The OutfeedDequeueTuple of each core, for what a core sends."""
    kinds = {"dtypes": [t.dtype for t in sent], "shapes": [tuple(t.shape or ()) for t in sent]}
    encoded = {name: attrs.encode(value) for name, value in kinds.items()}  # once for all cores
    return [
        graph.add(
            "OutfeedDequeueTuple",
            f"tpugraph/outfeed/dequeue/{core}",
            attrs={**encoded, "device_ordinal": core},
            device=HOST_DEVICE,
            outputs=[(t.dtype, t.shape) for t in sent],
        )
        for core in range(cores)
    ]


def _at_least_vector(graph: Graph, tensor: Tensor, shape: str, vector: str) -> Tensor:
    """The outfeed takes no scalars."""
    if tensor.shape != ():
        return tensor
    name, mark = tensor.node.name, {CLUSTER_ATTR: CLUSTER}
    one = {"dtype": _INT32, "value": np.ones(1, "int32"), **mark}
    target = graph.add("Const", f"{name}/{shape}", attrs=one, outputs=[(_INT32, (1,))], source=tensor.node)
    return graph.add(
        "Reshape",
        f"{name}/{vector}",
        [tensor, target.out()],
        attrs={"T": tensor.dtype, "Tshape": _INT32, **mark},
        outputs=[(tensor.dtype, (1,))],
        source=tensor.node,
    ).out()
