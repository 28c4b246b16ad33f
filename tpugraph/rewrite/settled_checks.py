"""Assertions that constants alone decide, as those on shapes that a batch was closed for: what holds is checked no more.

TensorFlow's losses check so that their weights can be broadcast, with ops that XLA has no kernels for.
"""

from __future__ import annotations

import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, graphdef
from tpugraph.ir.session_config import guarded
from tpugraph.rewrite.unread import remove_unread

_CHANGING = ops.INPUTS | ops.VARIABLES | ops.ENTER


def remove_settled(graph: Graph) -> int:
    """Remove assertions on what is true whatever the input is; returns how many. One on what is false stays, and fails as before."""
    found = {check: _condition(check) for check in graph.of_type(*ops.ASSERTS)}
    settled = {check: condition for check, condition in found.items() if _is_settled(graph, condition)}
    holding = _values(graph, dict.fromkeys(settled.values())) if settled else {}
    held = [check for check, condition in settled.items() if holding[condition]]
    ends = [end for end in map(_end, held) if not end.used_ports()]
    for end in ends:
        graph.replace_control_uses(end, ())
    remove_unread(graph, ends)
    return len(ends)


def _condition(check: Node) -> Tensor:
    """What an assertion asserts; in the branch of a conditional that runs where it is false, what decides that."""
    condition = check.inputs[0]
    return condition.node.inputs[0] if condition.node.op in ops.SWITCH else condition


def _end(check: Node) -> Node:
    """The last node of the conditional that an assertion alone is a branch of, or the assertion itself."""
    branch = check.control_uses()
    merges = branch[0].consumers() if len(branch) == 1 and branch[0].op in ops.IDENTITIES else []
    return merges[0] if len(merges) == 1 and merges[0].op in ops.MERGE else check


def _is_settled(graph: Graph, condition: Tensor) -> bool:
    """Whether nothing that a tensor is made of or waits for reads an input or a variable, draws, or is in a loop."""
    made_of = (node.op for node in graph.ancestors([condition.node]))
    return not any(op in _CHANGING or (ops.is_stateful(op) and op not in ops.ASSERTS) for op in made_of)


def _values(graph: Graph, tensors: dict[Tensor, None]) -> dict[Tensor, bool]:
    """What TensorFlow makes of tensors that constants decide; none holds where it cannot compute one: that fails as before."""
    definition = graphdef.part(graph, graph.ancestors([tensor.node for tensor in tensors]))
    for node in definition.node:
        node.device = ""
        node.attr.pop("_class", None)
    with tf.Graph().as_default() as target:
        made = tf.graph_util.import_graph_def(
            definition, return_elements=[f"{t.node.name}:{t.port}" for t in tensors], name=""
        )
        with tf.compat.v1.Session(graph=target, config=guarded()) as session:
            try:
                values = session.run(made)
            except tf.errors.OpError:
                return dict.fromkeys(tensors, False)
    return {tensor: bool(value.all()) for tensor, value in zip(tensors, values, strict=True)}
