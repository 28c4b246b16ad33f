"""Parts of the entry points that every converted graph has: system, results under fixed names, initialisers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph.analysis import HOST_DEVICE
from tpugraph.ir import Graph, Node, Tensor, attrs

SYSTEM_DEVICE = "/device:TPU_SYSTEM:0"


def add_system(graph: Graph) -> None:
    """Add what configures the TPU system and shuts it down."""
    string = attrs.dtype("string")
    graph.add(
        "ConfigureDistributedTPU",
        "tpugraph/configure",
        device=SYSTEM_DEVICE,
        outputs=[(string, ())],
        attrs={"embedding_config": "", "tpu_embedding_config": "", "is_global_init": False},
    )
    graph.add("ShutdownDistributedTPU", "tpugraph/shutdown", device=SYSTEM_DEVICE, outputs=[])


def add_result(graph: Graph, name: str, tensor: Tensor, controls: Sequence[Node] = ()) -> Node:
    """Give a tensor a fixed name."""
    return graph.add(
        "Identity",
        name,
        [tensor],
        attrs={"T": tensor.dtype},
        controls=controls,
        device=HOST_DEVICE,
        outputs=[(tensor.dtype, tensor.shape)],
    )


def add_read(graph: Graph, name: str, handle: Node, kind: attrs.DType) -> None:
    """Read a scalar variable under a fixed name."""
    graph.add("ReadVariableOp", name, [handle.out()], attrs={"dtype": kind}, device=HOST_DEVICE, outputs=[(kind, ())])


def add_step(graph: Graph) -> None:
    """Add ``tpugraph/global_step``; a graph without a step counter reports -1, and the session counts for itself."""
    roles = graph.roles
    if roles.step is not None:
        step = graph[roles.step.name]
        add_read(graph, "tpugraph/global_step", step, step.attr("dtype"))
        return
    int64 = attrs.dtype("int64")
    graph.add(
        "Const",
        "tpugraph/global_step",
        attrs={"dtype": int64, "value": np.int64(-1)},
        device=HOST_DEVICE,
        outputs=[(int64, ())],
    )


def add_init(graph: Graph, more: list[Node]) -> None:
    """Add ``tpugraph/init`` and its parts ``.../init_input`` and ``.../init_local``."""
    roles = graph.roles
    initializers = [graph[v.initializer] for v in roles.variables.values() if v.initializer and v.initializer in graph]
    others = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
    graph.add("NoOp", "tpugraph/init_input", controls=others, device=HOST_DEVICE, outputs=[])
    graph.add(
        "NoOp",
        "tpugraph/init_local",
        controls=[*more, *local_initializers(graph)],
        device=HOST_DEVICE,
        outputs=[],
    )
    graph.add("NoOp", "tpugraph/init", controls=[*initializers, *others, *more], device=HOST_DEVICE, outputs=[])


def local_initializers(graph: Graph) -> list[Node]:
    """Initialisers of variables that no checkpoint holds, in a graph with a checkpoint."""
    variables = [v for v in graph.roles.variables.values() if v.initializer and v.initializer in graph]
    saved = {v.initializer for v in graph.roles.variables.values() if v.key is not None}
    if not saved and graph.roles.mode == "train":
        return []
    return [graph[v.initializer] for v in variables if v.initializer is not None and v.initializer not in saved]
