"""Adds the nodes that save and restore checkpoints under the plain graph's keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpugraph import ops
from tpugraph.analysis import HOST_DEVICE
from tpugraph.ir import Graph, Node, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.tables.sharding import ROWS, padded, table_of

_STRING, _INT32 = attrs.dtype("string"), attrs.dtype("int32")
ITERATOR_KEY = "tpugraph/input/{}"
"""Checkpoint key of the state of an iterator."""


def add_checkpoint_ops(graph: Graph) -> None:
    """Add ``tpugraph/save`` and ``tpugraph/restore``, fed the prefix by ``tpugraph/checkpoint``."""
    make = Builder(graph, device=HOST_DEVICE)
    prefix = make.placeholder(_STRING, (), name="tpugraph/checkpoint")
    saved = [v for v in graph.roles.variables.values() if v.name in graph and v.key is not None]
    if not saved:  # without a saver every variable of the step is saved under its name
        saved = [v for v in graph.roles.variables.values() if v.name in graph and not v.name.startswith("tpugraph/")]
    iterators = [n for n in graph.of_type(*ops.ITERATORS) if any(u.node.op in ops.MAKE_ITERATOR for u in n.uses())]
    values = [_value(make, graph[variable.name]) for variable in saved]
    keys = [v.key or table_of(graph[v.name]) for v in saved]
    slices = [v.slice for v in saved]
    _save(make, prefix, keys, slices, values, "tpugraph/save")
    _restore(make, prefix, keys, slices, [graph[v.name] for v in saved], "tpugraph/restore")
    if iterators:
        iterator_keys = [ITERATOR_KEY.format(node.name) for node in iterators]
        no_slices = [""] * len(iterators)
        name = "tpugraph/save_with_input"
        states = [make.add("SerializeIterator", [node.out()], (None,), name=f"{name}/input", external_state_policy=0)
                  for node in iterators]  # fmt: skip
        _save(make, prefix, keys + iterator_keys, slices + no_slices, values + states, name)
        _restore(make, prefix, iterator_keys, no_slices, iterators, "tpugraph/restore_input")


def _strings(make: Builder, name: str, values: Sequence[str]) -> Tensor:
    return make.constant(np.asarray([value.encode() for value in values], dtype=object), _STRING, name=name)


def _value(make: Builder, handle: Node) -> Tensor:
    kind, shape = handle.attr("dtype"), handle.attr("shape")
    value = make.add("ReadVariableOp", [handle.out()], shape, name="tpugraph/save/read", dtype=kind)
    if not handle.has_attr(ROWS):
        return value
    begin = make.constant([0] * len(shape), _INT32, name="tpugraph/save/begin")
    rows = (handle.attr(ROWS), *shape[1:])
    size = make.constant(rows, _INT32, name="tpugraph/save/size")
    return make.add("Slice", [value, begin, size], rows, name="tpugraph/save/rows")


def _save(make: Builder, prefix: Tensor, keys: list[str], slices: list[str], values: list[Tensor], name: str) -> None:
    inputs = [prefix, _strings(make, f"{name}/keys", keys), _strings(make, f"{name}/slices", slices), *values]
    make.node("SaveV2", inputs, name=name)


def _restore(make: Builder, prefix: Tensor, keys: list[str], slices: list[str], handles: list[Node], name: str) -> None:
    inputs = [prefix, _strings(make, f"{name}/keys", keys), _strings(make, f"{name}/slices", slices)]
    kinds = [node.attr("dtype", attrs.dtype("variant")) for node in handles]
    read = make.node("RestoreV2", inputs, name=f"{name}/read", dtypes=kinds)
    assigned = [_assign(make, node, read.out(port), name) for port, node in enumerate(handles)]
    make.node("NoOp", name=name, controls=assigned)


def _assign(make: Builder, handle: Node, value: Tensor, name: str) -> Node:
    """Restore a checkpoint value into an iterator or a variable; into a shard zero-padded."""
    if handle.op in ops.ITERATORS:
        return make.node("DeserializeIterator", [handle.out(), value], name=f"{name}/state")
    if handle.has_attr(ROWS):
        value = padded(make, value, handle.attr(ROWS), handle.attr("shape"), name=f"{name}/padded")
    return make.node("AssignVariableOp", [handle.out(), value], name=f"{name}/assign")
