"""Which scalar is the loss: by its summary, else by structure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.analysis.state import reaching, written_variables
from tpugraph.ir import Graph, Node
from tpugraph.ir.walks import source_of
from tpugraph.roles.findings import Finding, named
from tpugraph.support.errors import RolesError

_LOSS_TAG = re.compile(r"(?:.*/)?(?:loss|total_loss|batch_loss)(?:_(\d+))?$")


def find_loss(
    graph: Graph, varying: Iterable[Node], moving: list[Node], name: str | None
) -> tuple[Finding, list[Finding]]:
    """The loss, and the scalars that come next.

    Args:
        graph: the graph as loaded.
        varying: the nodes that depend on the input.
        moving: the writes of a step.
        name: what the user named, or None.

    Raises:
        RolesError: there is none, or what the user named is none.
    """
    if name is not None:
        return _named_loss(graph, varying, name), []
    varying = varying if isinstance(varying, dict) else dict.fromkeys(varying)
    ranked = _summarised_losses(graph, varying)
    if not ranked:
        ranked = _unread_scalars(graph, varying, moving)
    if not ranked and not moving:
        raise no_train_op(graph)
    if not ranked:
        raise RolesError(
            "no loss was found: no scalar depends on both the input and a variable",
            origin=graph.source,
            fix="name it with --loss=TENSOR, or give a training graph",
        )
    return ranked[0], ranked[1:4]


def _named_loss(graph: Graph, varying: Iterable[Node], name: str) -> Finding:
    """The loss that the user named: a number that depends on the input."""
    finding = named(graph, name, "loss")
    tensor = graph.tensor(finding.name)
    if tensor.node.outputs is None:
        shapes.infer(graph)
    outputs = tensor.node.outputs or []
    if tensor.port >= len(outputs):
        fault = f"'{name}' is no loss: '{tensor.node.name}' has {len(outputs)} outputs"
    elif not tensor.dtype.floating:
        fault = f"'{name}' is no loss: it holds {tensor.dtype}"
    elif shapes.element_count(tensor.shape) not in (1, None):
        fault = f"'{name}' is no loss: it has {shapes.element_count(tensor.shape)} elements, not one"
    elif tensor.node not in dict.fromkeys(varying):
        fault = f"'{name}' is no loss: it does not depend on the input"
    else:
        return finding
    raise RolesError(fault, node=tensor.node, origin=graph.source, fix="name the scalar that training makes smaller")


def _summarised_losses(graph: Graph, varying: dict[Node, None]) -> list[Finding]:
    """Losses by their summary: Estimator writes one under the tag ``loss`` (``loss_1`` where the model has its own)."""
    found: list[tuple[tuple[int, int, int], Finding]] = []
    for position, node in enumerate(graph.of_type("ScalarSummary")):
        tag_node = node.inputs[0].node
        if tag_node.op not in ops.CONSTANTS or tag_node.attr("value").size != 1 or node.inputs[1].node not in varying:
            continue
        tag = tag_node.attr("value").item()
        tag = tag.decode() if isinstance(tag, bytes) else str(tag)
        match = _LOSS_TAG.match(tag)
        if match is None:
            continue
        plain = int("/" not in tag and tag.startswith("loss"))
        rank = (plain, int(match[1] or 0), position)
        found.append((rank, Finding(str(node.inputs[1]), f"summarised under the tag '{tag}'")))
    return [finding for _, finding in sorted(found, key=lambda item: item[0], reverse=True)]


_LOOKS_ON = ops.SUMMARIES | ops.IDENTITIES
_HANDED_ON = ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION | ops.SWITCH | ops.MERGE
_FLOWS = ops.CONTENTS.keys() | ops.CONTAINERS | ops.CONTAINER_GRADIENTS
"""Ops of containers: a number that they give, as an array's flow, only puts them into order."""


def _unread_scalars(graph: Graph, varying: dict[Node, None], moving: list[Node]) -> list[Finding]:
    """Losses by structure: a scalar of the input that covers the trained variables and that nothing computes on."""
    if any(node.outputs is None for node in varying):
        shapes.infer(graph)
    backward = graph.ancestors(moving, data_only=True)
    candidates = [
        (position, node)
        for position, node in enumerate(varying)
        if node not in backward and _unread_scalar(node) and not _unread_gradient(node, backward)
    ]
    trained = _bits(v for node in moving for v in written_variables(node)[:1])
    apart = _bits(node for node in varying if node not in backward)
    covered = reaching(graph, [node for _, node in candidates], trained, data_only=True)
    beside = reaching(graph, [node for _, node in candidates if covered.get(node)], apart, data_only=True)
    found: list[tuple[tuple[int, int, int], Finding]] = []
    for position, node in candidates:
        count = covered.get(node, 0).bit_count()
        if count:
            rank = (count, -beside.get(node, 0).bit_count(), -position)
            found.append((rank, Finding(node.name, f"a scalar of the input that reads {count} trained variables")))
    return [finding for _, finding in sorted(found, key=lambda item: item[0], reverse=True)]


def _unread_scalar(node: Node) -> bool:
    """Whether a node yields one floating number that nothing computes on."""
    if not node.outputs or len(node.outputs) != 1 or any(reader.op not in _LOOKS_ON for reader, _ in node.uses()):
        return False
    kind, shape = node.outputs[0]
    return kind.floating and shape == () and source_of(node.out(), _HANDED_ON).node.op not in _FLOWS


def _unread_gradient(node: Node, backward: Mapping[Node, None]) -> bool:
    """Whether a node is the gradient of an operand that nothing trains: it was made together with one that is read.

    The gradients of an op's operands are handed on together, each once all of them are there (``tf.tuple``).
    """
    node = source_of(node.out()).node
    for group in node.control_uses():
        together = group.controls if group.op in ops.GROUPS else ()
        handed_on = {
            reader.inputs[0].node
            for reader in group.control_uses()
            if reader.op in ops.IDENTITIES and reader in backward
        }
        if handed_on.intersection(together):
            return True
    return False


def _bits(nodes: Iterable[Node]) -> dict[Node, int]:
    """A bit for each node."""
    return {node: 1 << number for number, node in enumerate(dict.fromkeys(nodes))}


def no_train_op(graph: Graph) -> RolesError:
    """The error of a graph in which no step changes a variable."""
    apart = next(iter(graph.of_type(*ops.APART)), None)
    if apart is not None:
        what, fix = ops.APART[apart.op]
        return RolesError(f"the train op cannot be found: {what}", node=apart, origin=graph.source, fix=fix)
    fix = "give the training graph (not one for evaluation or prediction), or name it with --train_op"
    if graph.signatures:
        fix = "`tpugraph run --mode=predict` computes what a signature of the SavedModel names; training needs the training graph"
    return RolesError("the graph has no train op: no variable is updated from the input", origin=graph.source, fix=fix)
