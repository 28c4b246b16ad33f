"""Calls of functions are replaced by the bodies of the functions."""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import ops
from tpugraph.control_flow import inlining, optionals
from tpugraph.control_flow.inlining import Call
from tpugraph.control_flow.lower_functional import replace_call
from tpugraph.ir import Graph, Node, function_library
from tpugraph.tpu.pipeline import Pass


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """No node of the step calls a function: loops, conditionals and calls are TF1 control flow and the nodes of the functions.

    What follows then knows one form of a loop and one of a conditional, whatever version of TensorFlow wrote them, and
    sees what is in them. Functions that map the elements of a dataset stay functions.
    """

    requires = ("roles_known",)
    ensures = ("roles_known",)

    def run(self, graph: Graph) -> None:
        calls = inlining.calls_of(graph, graph)
        for call in calls:
            _dereference(graph, call)
        named = _named(graph)
        fed = graph.ancestors(call.node for call in calls)
        held = {call.node: inlining.hold(graph, call) for call in calls if call.node.name in named}
        replaced: list[Node] = []
        while calls:
            call = calls.pop(0)
            calls[:0] = replace_call(graph, call)
            replaced.append(call.node)
        if replaced:
            optionals.unwrap(graph)
        for node, reader in held.items():
            inlining.keep_name(graph, node, reader)
        graph.remove_all(node for node in replaced if node not in held)
        if replaced:  # what a function was given and did not need
            graph.remove_dead(n for n in graph if n.name in named or (n not in fed and n.made_by != self.name))
            function_library.remove_unused(graph)


def _dereference(graph: Graph, call: Call) -> None:
    """A call is given the value that a reference has when it is called, and not the reference."""
    node = call.node
    for index, (tensor, kind) in enumerate(zip(node.inputs, inlining.input_types(graph, node), strict=True)):
        outputs = ops.op_def(tensor.node.op).output_arg if ops.op_def(tensor.node.op) else ()
        if tensor.port < len(outputs) and outputs[tensor.port].is_ref:
            value = inlining.identity(graph, tensor, kind, f"{node.name}/value", call, call.starts)
            graph.set_input(node, index, value)
            for waiting in node.control_uses():
                graph.add_control(waiting, value.node)


# --------------------------------------------------------------------------- names that must stay


def _named(graph: Graph) -> set[str]:
    """The names of the nodes that the roles speak of."""
    roles = graph.roles
    found = [
        roles.loss,
        *roles.train_ops,
        *roles.inputs,
        *roles.updates,
        *roles.summaries,
        *roles.metrics,
        *roles.savers,
    ]
    names = [finding.name for finding in found]
    names += [v.initializer for v in roles.variables.values() if v.initializer is not None]
    names += [*roles.table_initializers, *roles.iterator_initializers, *roles.enqueues]
    names += [*roles.roots, *roles.variables, *roles.values.values(), *roles.predictions.values()]
    return {name.partition(":")[0] for name in names}
