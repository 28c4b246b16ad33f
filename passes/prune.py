"""Prunes the graph to the step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tpugraph import ops
from tpugraph.ir import Graph, Node
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class Prune(Pass):
    """Only the step is left: train op, loss, summaries, metrics, checkpoints and initializers, with their ancestors."""

    requires = ("roles_known",)
    ensures = ("roles_known",)

    def run(self, graph: Graph) -> None:
        roles = graph.roles
        keep = [graph[name] for name in roles.roots]
        keep += [graph[f.name] for f in roles.summaries]
        keep += [graph.tensor(name).node for name in roles.values.values()]
        # checkpoints must stay compatible with the plain graph
        keep += [graph[v.name] for v in roles.variables.values() if v.key is not None]
        step = graph.ancestors(keep)
        queues = {node.name for node in step if node.op in ops.QUEUES}
        keep += [graph[name] for name in roles.enqueues if graph[name].inputs[0].node.name in queues]
        keep += _initializers(graph, graph.ancestors(keep))
        graph.remove_dead(keep)
        _forget(graph)
        # Colocation may name removed nodes; the pass placement decides again.
        graph.set_attr([node for node in graph if node.has_attr("_class")], "_class", None)


def _initializers(graph: Graph, step: dict[Node, None]) -> list[Node]:
    """The initializers of the variables, tables and iterators of the step, and of those that these read."""
    roles = graph.roles
    filled = {graph[v.initializer]: [graph[v.name]] for v in roles.variables.values() if v.initializer is not None}
    for node in (graph[name] for name in (*roles.table_initializers, *roles.iterator_initializers)):
        filled[node] = [t.node for t in node.inputs if t.node.op in ops.TABLES | ops.ITERATORS]
    needed: dict[Node, None] = {}
    cone = dict(step)
    while found := [n for n, targets in filled.items() if n not in needed and any(t in cone for t in targets)]:
        needed |= dict.fromkeys(found)
        cone |= graph.ancestors(found)
    return list(needed)


def _forget(graph: Graph) -> None:
    roles = graph.roles
    left: dict[str, Any] = {"variables": {name: v for name, v in roles.variables.items() if name in graph}}
    for field in ("table_initializers", "iterator_initializers", "enqueues"):
        left[field] = tuple(name for name in getattr(roles, field) if name in graph)
    for field in ("metrics", "updates", "savers", "inputs"):
        left[field] = tuple(finding for finding in getattr(roles, field) if finding.name in graph)
    graph.roles = replace(roles, **left)
