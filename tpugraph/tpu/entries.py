"""Parts of the entry points that every converted graph has: system, results under fixed names, initialisers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph.analysis import HOST_DEVICE
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder

SYSTEM_DEVICE = "/device:TPU_SYSTEM:0"


def add_system(graph: Graph) -> None:
    """Add what configures the TPU system and shuts it down."""
    make = Builder(graph, device=SYSTEM_DEVICE)
    make.node("ConfigureDistributedTPU", name="tpugraph/configure", shapes=[()], embedding_config="",
              tpu_embedding_config="", is_global_init=False)  # fmt: skip
    make.node("ShutdownDistributedTPU", name="tpugraph/shutdown")


def add_result(graph: Graph, name: str, tensor: Tensor, controls: Sequence[Node] = ()) -> Node:
    """Give a tensor a fixed name."""
    return Builder(graph, device=HOST_DEVICE).identity(tensor, name=name, controls=controls).node


def add_read(graph: Graph, name: str, handle: Node, kind: attrs.DType) -> None:
    """Read a scalar variable under a fixed name."""
    Builder(graph, device=HOST_DEVICE).add("ReadVariableOp", [handle.out()], (), name=name, dtype=kind)


def add_step(graph: Graph) -> None:
    """Add ``tpugraph/global_step``; a graph without a step counter reports -1, and the session counts for itself."""
    roles = graph.roles
    if roles.step is not None:
        step = graph[roles.step.name]
        add_read(graph, "tpugraph/global_step", step, step.attr("dtype"))
        return
    Builder(graph, device=HOST_DEVICE).constant(np.int64(-1), name="tpugraph/global_step")


def add_init(graph: Graph, more: list[Node]) -> None:
    """Add ``tpugraph/init`` and its parts ``.../init_input`` and ``.../init_local``."""
    roles = graph.roles
    initializers = [graph[v.initializer] for v in roles.variables.values() if v.initializer and v.initializer in graph]
    others = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
    make = Builder(graph, device=HOST_DEVICE)
    make.node("NoOp", name="tpugraph/init_input", controls=others)
    make.node("NoOp", name="tpugraph/init_local", controls=[*more, *local_initializers(graph)])
    make.node("NoOp", name="tpugraph/init", controls=[*initializers, *others, *more])


def local_initializers(graph: Graph) -> list[Node]:
    """Initialisers of variables that no checkpoint holds, in a graph with a checkpoint."""
    variables = [v for v in graph.roles.variables.values() if v.initializer and v.initializer in graph]
    saved = {v.initializer for v in graph.roles.variables.values() if v.key is not None}
    if not saved and graph.roles.mode == "train":
        return []
    return [graph[v.initializer] for v in variables if v.initializer is not None and v.initializer not in saved]
