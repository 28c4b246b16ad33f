"""Save and restore as part of the graph: the keys of the plain graph's checkpoints, so that they go both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.roles.findings import Variable

_STRING = attrs.dtype("string")
ITERATOR_KEY = "tpugraph/input/{}"
"""Checkpoint key of the state of an iterator."""


def add_checkpoint_ops(graph: Graph) -> dict[str, str]:
    """Add ``tpugraph/save``, ``tpugraph/restore`` (and ``.../input``), fed with the prefix by ``tpugraph/checkpoint``.

    Returns:
        The checkpoint key of each saved variable, by the variable's name.
    """
    prefix = _add(graph, "Placeholder", "tpugraph/checkpoint", [], {"dtype": _STRING, "shape": ()}, [(_STRING, ())])
    saved = [v for v in graph.roles.variables.values() if v.name in graph and v.key is not None]
    if not saved:  # a graph without a saver: every variable of the step, under its own name
        saved = [v for v in graph.roles.variables.values() if v.name in graph and not v.name.startswith("tpugraph/")]
    iterators = [n for n in graph.of_type(*ops.ITERATORS) if any(u.node.op in ops.MAKE_ITERATOR for u in n.uses())]
    values = [_value(graph, graph[variable.name]) for variable in saved]
    keys = [v.key or v.name for v in saved]
    slices = [v.slice for v in saved]
    _save(graph, prefix.out(), keys, slices, values, "tpugraph/save")
    _restore(graph, prefix.out(), saved)
    if iterators:
        keys += [ITERATOR_KEY.format(node.name) for node in iterators]
        slices += [""] * len(iterators)
        values += [_position(graph, node) for node in iterators]
        _save(graph, prefix.out(), keys, slices, values, "tpugraph/save_with_input")
        _restore_input(graph, prefix.out(), iterators)
    return {v.name: v.key or v.name for v in saved}


def _add(
    graph: Graph,
    op: str,
    name: str,
    inputs: Sequence[Tensor],
    attributes: dict[str, Any],
    outputs: list[Any],
    controls: Sequence[Node] = (),
) -> Node:
    return graph.add(op, name, inputs, attrs=attributes, outputs=outputs, controls=controls, device=HOST_DEVICE)


def _strings(graph: Graph, name: str, values: Sequence[str]) -> Tensor:
    array = np.asarray([v.encode() for v in values], dtype=object)
    return _add(graph, "Const", name, [], {"dtype": _STRING, "value": array}, [(_STRING, array.shape)]).out()


def _value(graph: Graph, handle: Node) -> Tensor:
    kind, shape = handle.attr("dtype"), handle.attr("shape")
    return _add(graph, "ReadVariableOp", "tpugraph/save/read", [handle.out()], {"dtype": kind}, [(kind, shape)]).out()


def _position(graph: Graph, iterator: Node) -> Tensor:
    outputs = [(attrs.dtype("variant"), (None,))]
    policy = {"external_state_policy": 0}
    return _add(graph, "SerializeIterator", "tpugraph/save_with_input/input", [iterator.out()], policy, outputs).out()


def _save(graph: Graph, prefix: Tensor, keys: list[str], slices: list[str], values: list[Tensor], name: str) -> None:
    inputs = [prefix, _strings(graph, f"{name}/keys", keys), _strings(graph, f"{name}/slices", slices), *values]
    _add(graph, "SaveV2", name, inputs, {"dtypes": [t.dtype for t in values]}, [])


def _restore(graph: Graph, prefix: Tensor, variables: list[Variable]) -> None:
    name = "tpugraph/restore"
    kinds = [graph[v.name].attr("dtype") for v in variables]
    keys = _strings(graph, f"{name}/keys", [v.key or v.name for v in variables])
    slices = _strings(graph, f"{name}/slices", [v.slice for v in variables])
    read = _add(
        graph, "RestoreV2", f"{name}/read", [prefix, keys, slices], {"dtypes": kinds}, [(k, None) for k in kinds]
    )
    assigns = []
    for port, variable in enumerate(variables):
        assigns.append(
            _add(
                graph,
                "AssignVariableOp",
                f"{name}/assign",
                [graph[variable.name].out(), read.out(port)],
                {"dtype": kinds[port]},
                [],
            )
        )
    _add(graph, "NoOp", name, [], {}, [], assigns)


def _restore_input(graph: Graph, prefix: Tensor, iterators: list[Node]) -> None:
    name = "tpugraph/restore_input"
    variant = attrs.dtype("variant")
    keys = _strings(graph, f"{name}/keys", [ITERATOR_KEY.format(i.name) for i in iterators])
    slices = _strings(graph, f"{name}/slices", [""] * len(iterators))
    read = _add(
        graph,
        "RestoreV2",
        f"{name}/read",
        [prefix, keys, slices],
        {"dtypes": [variant] * len(iterators)},
        [(variant, None)] * len(iterators),
    )
    done = [
        _add(graph, "DeserializeIterator", f"{name}/state", [iterator.out(), read.out(port)], {}, [])
        for port, iterator in enumerate(iterators)
    ]
    _add(graph, "NoOp", name, [], {}, [], done)
