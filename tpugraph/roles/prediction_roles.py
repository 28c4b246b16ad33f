"""Roles of plain prediction graphs, found by structure: a prediction depends on the input and on a variable, and nothing reads it."""

from __future__ import annotations

from collections.abc import Mapping

from tpugraph import ops
from tpugraph.ir import Graph
from tpugraph.roles.findings import Roles, named
from tpugraph.roles.plain_step import NO_LOSS, PlainStep
from tpugraph.support.errors import RolesError


def find_prediction(graph: Graph, *, predictions: Mapping[str, str] | None = None) -> Roles:
    """Find the roles of a plain prediction graph.

    Args:
        graph: the graph as loaded.
        predictions: the tensor of each prediction by name; found by structure when None.

    Raises:
        RolesError: no input, no prediction, a graph that trains, or a name that is not in the graph.
    """
    found = PlainStep(graph)
    found.check_input()
    if predictions is None:
        found.check_no_training("predict", found.moving)
        tensors = _unread(found)
        if not tensors:
            raise RolesError(
                "the graph has no prediction: nothing that is left unread depends on the input and on a variable",
                origin=graph.source,
                fix="give the graph that Estimator.predict builds, or name them with --predictions=NAME=TENSOR",
            )
    else:
        tensors = {name: named(graph, tensor, f"prediction '{name}'").name for name, tensor in predictions.items()}
        _check_predictions(found, tensors)
    return found.roles("predict", loss=NO_LOSS, updates=[], more={"predictions": tensors})


def _unread(found: PlainStep) -> dict[str, str]:
    forward = found.graph.descendants(found.graph.of_type(*ops.VARIABLES), data_only=True)
    inner = ops.SUMMARIES | ops.SHAPE_OF | ops.CONTROL_FLOW | ops.ASSERTS
    nodes = [n for n in found.varying if n in forward and n.outputs and not n.uses() and n.op not in inner]
    return {
        str(node.out(port)): str(node.out(port))
        for node in nodes
        for port, (_, shape) in enumerate(node.outputs or [])
        if shape is None or len(shape) > 0
    }


def _check_predictions(found: PlainStep, tensors: dict[str, str]) -> None:
    for name, text in tensors.items():
        tensor = found.graph.tensor(text)
        if tensor.node not in found.varying:
            fault = f"the prediction '{name}' does not depend on the input"
        elif tensor.shape == ():
            fault = f"the prediction '{name}' is one number for the whole batch, not a row per example"
        else:
            continue
        raise RolesError(fault, node=tensor.node, origin=found.graph.source,
                         fix="name a tensor whose dimension 0 is the batch")  # fmt: skip
