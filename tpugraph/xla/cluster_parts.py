"""The parts of a cluster that is made into a function: its arguments and results, its loop, and new nodes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpugraph.analysis import CLUSTER, CLUSTER_ATTR
from tpugraph.ir import Graph, Node, Output, Tensor, attrs

_INT32 = attrs.dtype("int32")
_MARK = {CLUSTER_ATTR: CLUSTER}


@dataclass
class Cluster:
    """The function of one core, as a graph that still has TF1 control flow.

    Attributes:
        graph: nothing but the cluster, its arguments as Placeholders.
        num_replicas: the number of cores.
        iterations: the most iterations of its loop, the rows of all buffers.
        count: the argument that says how many iterations to run, int32 [].
        infeed: the staged batches, each [iterations, ...] of one core.
        variables: the handles by the variable's name.
        host: other values that the host gives, by name.
        outfeed: what is sent each step, each [iterations, ...] of one core.
        outputs: what the cluster returns after the loop, by the name of the tensor in the TPU graph.
        written: the names of the variables that it writes, in the order of ``variables``.
        shards: of those variables that each core has one of, by their name, which is that of the first core's: the name that the
            whole variable has in the plain graph.
        frame: the frame of its loop.
        number: the number of the iteration, inside the loop, int32 [].
        streams: its random ops, and whether each core draws values of its own.
    """

    graph: Graph
    num_replicas: int
    iterations: int
    count: Tensor
    frame: str
    number: Tensor
    streams: dict[Node, bool]
    infeed: list[Tensor] = field(default_factory=list)
    variables: dict[str, Tensor] = field(default_factory=dict)
    host: dict[str, Tensor] = field(default_factory=dict)
    outfeed: list[Tensor] = field(default_factory=list)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    shards: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceLoop:
    """The loop of the device: its frame, condition and the number of the iteration inside its body."""

    frame: str
    condition: Node
    number: Tensor


def argument(graph: Graph, name: str, like: Output) -> Tensor:
    """An argument of the function, of this dtype and shape."""
    attributes = {"dtype": like[0], "shape": like[1], **_MARK}
    return graph.add("Placeholder", f"tpugraph/argument/{name}", attrs=attributes, outputs=[like]).out()


def core_number(graph: Graph) -> Tensor:
    """The number of the core that runs the function, int32 []."""
    return add(graph, "XlaReplicaId", [], (_INT32, ()), {})


def entered(graph: Graph, loop: DeviceLoop, tensor: Tensor, *, constant: bool = True) -> Tensor:
    """A tensor of outside as the body of the loop sees it; one that is not constant enters the first iteration alone."""
    attributes = {"T": tensor.dtype, "frame_name": loop.frame, "is_constant": constant, "parallel_iterations": 1}
    return add(graph, "Enter", [tensor], (tensor.dtype, tensor.shape), attributes)


def constant(graph: Graph, loop: DeviceLoop | None, value: np.ndarray[Any, Any] | np.generic) -> Tensor:
    """A constant, in the body of the loop where one is given."""
    kind = attrs.dtype(value.dtype.name)
    pivot = [] if loop is None else [add(graph, "Identity", [loop.number], (_INT32, ()), {"T": _INT32}).node]
    return graph.add("Const", "tpugraph/staged/Const", attrs={"dtype": kind, "value": np.asarray(value), **_MARK},
                     controls=pivot, outputs=[(kind, value.shape)]).out()  # fmt: skip


def add(graph: Graph, op: str, inputs: Sequence[Tensor], output: Output, attributes: dict[str, Any]) -> Tensor:
    """The output of a new node of the cluster."""
    return graph.add(op, f"tpugraph/staged/{op}", inputs, attrs={**attributes, **_MARK}, outputs=[output]).out()
