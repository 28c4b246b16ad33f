"""Fixed names for what a session runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpugraph import attrs, ops
from tpugraph.analysis import HOST_DEVICE, in_cluster
from tpugraph.checkpoints import add_checkpoint_ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.loops import local_variable
from tpugraph.pipeline import Pass

SYSTEM_DEVICE = "/device:TPU_SYSTEM:0"


@dataclass(frozen=True)
class EntryPoints(Pass):
    """The graph runs by name alone: configure, init, enqueue, train, dequeue, save, restore, shutdown are fixed."""

    requires = ("replicated",)
    ensures = ("entry_points",)

    def run(self, graph: Graph) -> None:
        roles = graph.roles
        results = roles.results
        self._system(graph)
        loss = graph.tensor(results["last_loss"])
        handle, first = local_variable(graph, "tpugraph/last_loss", 0.0, loss.dtype)
        kept = graph.add(
            "AssignVariableOp",
            "tpugraph/last_loss/Keep",
            [handle.out(), loss],
            attrs={"dtype": loss.dtype},
            device=HOST_DEVICE,
            outputs=[],
        )
        self._identity(graph, "tpugraph/train", graph.tensor(results["train"]))
        graph.add("NoOp", "tpugraph/enqueue", controls=[graph[results["enqueue"]]], device=HOST_DEVICE, outputs=[])
        watched = [
            n
            for n in graph
            if (n.op in ops.PRINTS or n.name in roles.tail)
            and not in_cluster(n)
            and n.op not in ops.SUMMARIES
            and not n.consumers()
        ]
        self._identity(graph, "tpugraph/dequeue", graph.tensor(results["losses"]), [kept, *watched])
        self._read(graph, "tpugraph/loss", handle, loss.dtype)
        if roles.step is not None:
            step = graph[roles.step.name]
            self._read(graph, "tpugraph/global_step", step, step.attr("dtype"))
        else:
            self._counter(graph)
        if roles.summaries:
            self._summaries(graph)
        self._init(graph, [first, graph[results["limit_init"]]])
        saved = add_checkpoint_ops(graph)
        graph.facts[self.name] = {"saved_variables": saved}

    def _system(self, graph: Graph) -> None:
        string = attrs.dtype("string")
        graph.add(
            "ConfigureDistributedTPU",
            "tpugraph/configure",
            device=SYSTEM_DEVICE,
            outputs=[(string, ())],
            attrs={"embedding_config": "", "tpu_embedding_config": "", "is_global_init": False},
        )
        graph.add("ShutdownDistributedTPU", "tpugraph/shutdown", device=SYSTEM_DEVICE, outputs=[])

    def _identity(self, graph: Graph, name: str, tensor: Tensor, controls: Sequence[Node] = ()) -> Node:
        return graph.add(
            "Identity",
            name,
            [tensor],
            attrs={"T": tensor.dtype},
            controls=controls,
            device=HOST_DEVICE,
            outputs=[(tensor.dtype, tensor.shape)],
        )

    def _read(self, graph: Graph, name: str, handle: Node, kind: attrs.DType) -> None:
        graph.add(
            "ReadVariableOp", name, [handle.out()], attrs={"dtype": kind}, device=HOST_DEVICE, outputs=[(kind, ())]
        )

    def _counter(self, graph: Graph) -> None:
        """A graph without a step counter reports -1; the session counts for itself."""
        int64 = attrs.dtype("int64")
        graph.add(
            "Const",
            "tpugraph/global_step",
            attrs={"dtype": int64, "value": np.int64(-1)},
            device=HOST_DEVICE,
            outputs=[(int64, ())],
        )

    def _summaries(self, graph: Graph) -> None:
        tensors = [graph[f.name].out() for f in graph.roles.summaries]
        merged = tensors[0]
        if len(tensors) > 1:
            merged = graph.add(
                "MergeSummary",
                "tpugraph/summaries/merge",
                tensors,
                attrs={"N": len(tensors)},
                device=HOST_DEVICE,
                outputs=[(attrs.dtype("string"), ())],
            ).out()
        self._identity(graph, "tpugraph/summaries", merged)

    def _init(self, graph: Graph, more: list[Node]) -> None:
        roles = graph.roles
        initializers = [
            graph[v.initializer] for v in roles.variables.values() if v.initializer and v.initializer in graph
        ]
        others = [graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)]
        graph.add("NoOp", "tpugraph/init_input", controls=others, device=HOST_DEVICE, outputs=[])
        graph.add(
            "NoOp",
            "tpugraph/init_local",
            controls=[*more, *_local(graph, initializers)],
            device=HOST_DEVICE,
            outputs=[],
        )
        graph.add("NoOp", "tpugraph/init", controls=[*initializers, *others, *more], device=HOST_DEVICE, outputs=[])


def _local(graph: Graph, initializers: list[Node]) -> list[Node]:
    """Initialisers of variables that no checkpoint holds."""
    keyed = [v for v in graph.roles.variables.values() if v.key is not None]
    if not keyed:
        return []
    saved = {v.initializer for v in keyed}
    return [node for node in initializers if node.name not in saved]
