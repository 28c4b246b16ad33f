"""Nodes that save and restore, under the keys of the plain graph's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.roles.findings import Variable
from tpugraph.tables.sharding import ROWS, padded, table_of

_STRING, _INT32 = attrs.dtype("string"), attrs.dtype("int32")
ITERATOR_KEY = "tpugraph/input/{}"
"""Checkpoint key of the state of an iterator."""


def add_checkpoint_ops(graph: Graph) -> dict[str, str]:
    """Add ``tpugraph/save`` and ``tpugraph/restore``, fed the prefix by ``tpugraph/checkpoint``; returns the keys by variable."""
    make = Builder(graph, device=HOST_DEVICE)
    prefix = make.placeholder(_STRING, (), name="tpugraph/checkpoint")
    saved = [v for v in graph.roles.variables.values() if v.name in graph and v.key is not None]
    if not saved:  # a graph without a saver: every variable of the step, under its own name
        saved = [v for v in graph.roles.variables.values() if v.name in graph and not v.name.startswith("tpugraph/")]
    iterators = [n for n in graph.of_type(*ops.ITERATORS) if any(u.node.op in ops.MAKE_ITERATOR for u in n.uses())]
    values = [_value(make, graph[variable.name]) for variable in saved]
    keys = [v.key or table_of(graph[v.name]) for v in saved]
    slices = [v.slice for v in saved]
    _save(make, prefix, keys, slices, values, "tpugraph/save")
    _restore(make, prefix, saved)
    if iterators:
        keys += [ITERATOR_KEY.format(node.name) for node in iterators]
        slices += [""] * len(iterators)
        values += [_position(make, node) for node in iterators]
        _save(make, prefix, keys, slices, values, "tpugraph/save_with_input")
        _restore_input(make, prefix, iterators)
    return {v.name: v.key or v.name for v in saved}


def _strings(make: Builder, name: str, values: Sequence[str]) -> Tensor:
    return make.constant(np.asarray([value.encode() for value in values], dtype=object), _STRING, name=name)


def _value(make: Builder, handle: Node) -> Tensor:
    kind, shape = handle.attr("dtype"), handle.attr("shape")
    value = make.add("ReadVariableOp", [handle.out()], shape, name="tpugraph/save/read", dtype=kind)
    if not handle.has_attr(ROWS):
        return value
    begin = make.constant([0] * len(shape), _INT32, name="tpugraph/save/begin")
    held = (handle.attr(ROWS), *shape[1:])
    return make.add(
        "Slice", [value, begin, make.constant(held, _INT32, name="tpugraph/save/size")], held, name="tpugraph/save/rows"
    )


def _position(make: Builder, iterator: Node) -> Tensor:
    name = "tpugraph/save_with_input/input"
    return make.add("SerializeIterator", [iterator.out()], (None,), name=name, external_state_policy=0)


def _save(make: Builder, prefix: Tensor, keys: list[str], slices: list[str], values: list[Tensor], name: str) -> None:
    inputs = [prefix, _strings(make, f"{name}/keys", keys), _strings(make, f"{name}/slices", slices), *values]
    make.node("SaveV2", inputs, name=name)


def _restore(make: Builder, prefix: Tensor, variables: list[Variable]) -> None:
    name, handles = "tpugraph/restore", [make.graph[v.name] for v in variables]
    keys = _strings(
        make, f"{name}/keys", [v.key or table_of(handle) for v, handle in zip(variables, handles, strict=True)]
    )
    slices = _strings(make, f"{name}/slices", [v.slice for v in variables])
    kinds = [handle.attr("dtype") for handle in handles]
    read = make.node("RestoreV2", [prefix, keys, slices], name=f"{name}/read", dtypes=kinds)
    assigns = [
        make.node("AssignVariableOp", [handle.out(), _filled(make, handle, read.out(port))], name=f"{name}/assign")
        for port, handle in enumerate(handles)
    ]
    make.node("NoOp", name=name, controls=assigns)


def _filled(make: Builder, handle: Node, value: Tensor) -> Tensor:
    """The value of a checkpoint, padded with zeros to the size of a shard."""
    if not handle.has_attr(ROWS):
        return value
    return padded(make, value, handle.attr(ROWS), handle.attr("shape"), name="tpugraph/restore/padded")


def _restore_input(make: Builder, prefix: Tensor, iterators: list[Node]) -> None:
    name = "tpugraph/restore_input"
    keys = _strings(make, f"{name}/keys", [ITERATOR_KEY.format(i.name) for i in iterators])
    slices = _strings(make, f"{name}/slices", [""] * len(iterators))
    kinds = [attrs.dtype("variant")] * len(iterators)
    read = make.node("RestoreV2", [prefix, keys, slices], name=f"{name}/read", dtypes=kinds)
    done = [
        make.node("DeserializeIterator", [iterator.out(), read.out(port)], name=f"{name}/state")
        for port, iterator in enumerate(iterators)
    ]
    make.node("NoOp", name=name, controls=done)
