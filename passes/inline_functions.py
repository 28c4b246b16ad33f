"""Inlines calls of library functions."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph.control_flow import inlining, lower_functional
from tpugraph.ir import Graph, function_library
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """No node of the step calls a function: functional control flow is lowered to TF1's, and all calls are inlined.

    Later passes see one form of loop and one of conditional, from any version of TensorFlow, with their contents. Functions
    that map the elements of a dataset stay functions.
    """

    requires = ("roles_known",)
    ensures = ("roles_known",)

    def run(self, graph: Graph) -> None:
        calls = inlining.calls_of(graph, graph)
        named = graph.roles.kept
        fed = graph.ancestors(call.node for call in calls)
        if lower_functional.replace_calls(graph, calls, named):  # unused arguments
            graph.remove_dead(n for n in graph if n.name in named or (n not in fed and n.made_by != self.name))
            function_library.remove_unused(graph)
