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
    """The initializers of the variables and tables of the step, transitively."""
    roles = graph.roles
    needed: dict[Node, None] = {}
    cone = dict(step)
    pending = [name for name in roles.variables if graph[name] in cone]
    tables = [graph[name] for name in roles.table_initializers]
    iterators = [graph[name] for name in roles.iterator_initializers]
    done: set[str] = set()
    while pending:
        done.update(pending)
        found = [roles.variables[name].initializer for name in pending]
        initializers = dict.fromkeys(graph[name] for name in found if name is not None)
        needed |= initializers
        reached = graph.ancestors(initializers)
        cone |= reached
        pending = [node.name for node in reached if node.name in roles.variables and node.name not in done]
    waiting, kinds = [*tables, *iterators], ops.TABLES | ops.ITERATORS
    while found := [n for n in waiting if any(t.node in cone and t.node.op in kinds for t in n.inputs)]:
        needed |= dict.fromkeys(found)
        cone |= graph.ancestors(found)  # an initializer's dataset may read further tables and iterators
        waiting = [n for n in waiting if n not in needed]
    return list(needed)


def _forget(graph: Graph) -> None:
    roles = graph.roles
    left: dict[str, Any] = {"variables": {name: v for name, v in roles.variables.items() if name in graph}}
    for field in ("table_initializers", "iterator_initializers", "enqueues"):
        left[field] = tuple(name for name in getattr(roles, field) if name in graph)
    for field in ("metrics", "updates", "savers", "inputs"):
        left[field] = tuple(finding for finding in getattr(roles, field) if finding.name in graph)
    graph.roles = replace(roles, **left)
