"""Constant folding of Shape, Size and Rank of tensors with static shapes, and of assertions that always hold."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tpugraph import analysis, ops
from tpugraph.analysis import shapes
from tpugraph.analysis.values import known_value, partial_value
from tpugraph.ir import Graph, Node, Tensor, attrs, graphdef
from tpugraph.ir.builder import Builder
from tpugraph.ir.session_config import guarded
from tpugraph.rewrite.step_nodes import remove_unread

_NUMBERS = frozenset({"int32", "int64", "float32", "float64"})


def fold(graph: Graph) -> None:
    """Replace the Shape of a tensor with a static shape by a constant."""
    inside = analysis.nested(graph)
    for node in graph.of_type(*ops.SHAPE_OF):
        kind = node.attr("out_type", attrs.dtype("int32"))
        for port in node.used_ports():
            tensor = node.inputs[port]
            if not shapes.is_static(tensor.shape) or tensor.node.op in ops.MERGE:
                continue
            value = known_value(node.out(port))
            constant = _builder_near(graph, node).constant(value, kind, name="folded", controls=node.controls).node
            if tensor.node in inside or tensor.node.op in ops.SWITCH:
                graph.add_control(constant, _pivot(graph, tensor))  # else it would leave its loop body or branch
            graph.replace_uses(node.out(port), constant.out())
        if not node.used_ports() and not node.control_uses():
            graph.remove(node)


def fold_numbers(graph: Graph) -> None:
    """Replace integers that follow from known dimensions of partly unknown shapes by constants."""
    inside = analysis.nested(graph)
    stack = graph.of_type(*ops.SHAPES)
    seen = dict.fromkeys(stack)
    for node in stack:  # grows while it is walked
        for reader in dict.fromkeys(use.node for use in node.uses()):
            if (
                reader in seen
                or reader in inside
                or len(reader.outputs or ()) != 1
                or reader.out().dtype.name not in _NUMBERS
            ):
                continue
            seen[reader] = None
            value = partial_value(reader.out())
            if value is None:
                continue
            if np.isnan(value).any():
                stack.append(reader)
                continue
            kind = reader.out().dtype
            graph.replace_uses(
                reader.out(), _builder_near(graph, reader).constant(value.astype(kind.name), kind, name="folded")
            )
    remove_unread(graph, seen)


def _pivot(graph: Graph, tensor: Tensor) -> Node:
    """A node that runs only where the tensor is alive; a Switch itself runs for both branches."""
    if tensor.node.op not in ops.SWITCH:
        return tensor.node
    readers = (use.node for use in tensor.node.uses(tensor.port))
    found = next((node for node in readers if node.op in ops.IDENTITIES), None)
    return found or _builder_near(graph, tensor.node).identity(tensor, name="alive").node


def _builder_near(graph: Graph, node: Node) -> Builder:
    return Builder(graph, node.name, device=node.device, source=node)


# TensorFlow's losses assert that their weights broadcast, with ops that XLA has no kernels for.

_CHANGING = ops.INPUTS | ops.VARIABLES | ops.ENTER


def remove_settled(graph: Graph) -> int:
    """Remove assertions that hold for every input; returns their number. One that always fails stays."""
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
    """The asserted condition; for an assertion in the false branch of a conditional, the conditional's predicate."""
    condition = check.inputs[0]
    return condition.node.inputs[0] if condition.node.op in ops.SWITCH else condition


def _end(check: Node) -> Node:
    """The Merge of a conditional whose branch is only the assertion, or the assertion itself."""
    branch = check.control_uses()
    merges = branch[0].consumers() if len(branch) == 1 and branch[0].op in ops.IDENTITIES else []
    return merges[0] if len(merges) == 1 and merges[0].op in ops.MERGE else check


def _is_settled(graph: Graph, condition: Tensor) -> bool:
    """Whether no ancestor of a tensor reads an input or a variable, draws random numbers, or is in a loop."""
    made_of = (node.op for node in graph.ancestors([condition.node]))
    return not any(op in _CHANGING or (ops.is_stateful(op) and op not in ops.ASSERTS) for op in made_of)


def _values(graph: Graph, tensors: dict[Tensor, None]) -> dict[Tensor, bool]:
    """The values of tensors that depend on constants alone, by TensorFlow; none where one of them fails, as it will at run time."""
    definition = graphdef.to_graph_def(graph, graph.ancestors([tensor.node for tensor in tensors]))
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
