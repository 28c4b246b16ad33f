"""The variables that a checkpoint holds: by their keys, and read and written by their names in the plain graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.walks import source_of
from tpugraph.roles.findings import saved_by
from tpugraph.support.errors import GraphError, RunError
from tpugraph.tables.sharding import ROWS, table_of

_AGAIN = "convert the plain graph again"


@dataclass(frozen=True)
class Shard:
    """A variable of the graph that holds a saved variable, or some of its rows."""

    variable: str  # its name
    read: str  # the tensor that reads what is saved
    rows: int | None = None  # of the saved variable; None where it holds all
    room: tuple[int, ...] = ()  # its shape where it holds some


@dataclass(frozen=True)
class Saved:
    """A variable of the plain graph, as the save op of a TPU graph has it."""

    key: str  # in the checkpoint
    slice: str  # of the variable under that key; "" where it is all of it
    shape: tuple[int | None, ...] | None  # of what is under the key
    shards: tuple[Shard, ...]  # one variable, or the shards of a table in their order


def saved_variables(graph: Graph) -> dict[str, Saved]:
    """Each saved variable by its name in the plain graph."""
    found: dict[str, Saved] = {}
    for key, piece, tensor in _saved(graph):
        handle = _handle(tensor)
        name, rows, shape = table_of(handle), handle.attr(ROWS, None), handle.attr("shape")
        held = Shard(handle.name, f"{tensor.node.name}:{tensor.port}", rows, () if rows is None else tuple(shape))
        others = found[name].shards if name in found else ()
        # a slice spec such as ``20 4 0,10:0,4`` starts with the whole variable's dimensions
        whole = tuple(int(d) for d in piece.split()[:-1]) if piece else shape
        found[name] = Saved(key, piece if rows is None else "", whole, (*others, held))
    return found


def _saved(graph: Graph) -> list[tuple[str, str, Tensor]]:
    save = graph.get("tpugraph/save")
    found = [] if save is None else saved_by(save)
    if found is None:
        raise GraphError("the keys of the checkpoint are no constants", node=save, origin=graph.source, fix=_AGAIN)
    return found


def _handle(tensor: Tensor) -> Node:
    """The variable that a saved tensor is read from, perhaps some of its rows."""
    handle = source_of(tensor, ops.SLICES | ops.READS).node
    if handle.op not in ops.RESOURCE_VARIABLES:
        raise GraphError("what is saved is read from no variable", node=tensor.node, fix=_AGAIN)
    return handle


Run = Callable[[Any, Mapping[Any, Any] | None], Any]  # fetches, and what is fed to them


class Variables:
    """Reads and writes the variables of a session's graph, those of ``held`` by their names in the plain graph."""

    def __init__(self, graph: Any, held: Mapping[str, Saved], run: Run) -> None:
        self._graph = graph
        self._held = held
        self._reads = {name: [shard.read for shard in one.shards] for name, one in held.items()}
        self._run = run
        self._setters: dict[str, tuple[Any, list[Any]]] = {}

    def values(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The values of several variables in one run; of all that a checkpoint holds when ``names`` is None."""
        wanted = list(self._held if names is None else names)
        for name in wanted:
            if name not in self._reads:
                self._reads[name] = [self._read_of(name)]
        found = self._run([self._reads[name] for name in wanted], None) if wanted else []
        return {name: np.concatenate(parts) if len(parts) > 1 else np.asarray(parts[0])
                for name, parts in zip(wanted, found, strict=True)}  # fmt: skip

    def assign(self, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self._setters:
                self._setters[name] = self._setter_of(name)
        chosen = {name: self._setters[name] for name in values}
        # in one run: an op that is added between two runs, or a new fetch, costs a walk over the whole graph
        if chosen:
            feed = {given: values[name] for name, (given, _) in chosen.items()}
            self._run([writes for _, writes in chosen.values()], feed)

    @cached_property
    def local(self) -> dict[str, Any]:
        """The handles of the variables that no checkpoint holds, by name."""
        found = [op for op in self._graph.get_operations() if op.type in ops.VARIABLES]
        return {op.name: op.outputs[0] for op in found if op.name not in self._held}

    def _handle(self, name: str) -> Any:
        if name not in self.local:
            known = ", ".join(list(self._reads)[:5])
            raise RunError(f"there is no variable '{name}'", fix=f"one of {known}, ...")
        return self.local[name]

    def _read_of(self, name: str) -> str:
        handle = self._handle(name)
        if handle.op.type in ops.REF_VARIABLES:
            return str(handle.name)
        with self._graph.as_default():
            kind = tf.as_dtype(handle.op.get_attr("dtype"))
            return str(tf.raw_ops.ReadVariableOp(resource=handle, dtype=kind).name)

    def _setter_of(self, name: str) -> tuple[Any, list[Any]]:
        """What is fed with a new value, and the ops that write it."""
        pieces = self._held[name].shards if name in self._held else ()
        named = [self._graph.get_operation_by_name(held.variable).outputs[0] for held in pieces]
        handles = named or [self._handle(name)]
        with self._graph.as_default():
            given = tf.compat.v1.placeholder(handles[0].op.get_attr("dtype"))
            parts = [given] if not pieces or pieces[0].rows is None else _shards(given, pieces)
            pairs = zip(handles, parts, strict=True)
            return given, [_written(handle, part) for handle, part in pairs]


def _written(handle: Any, value: Any) -> Any:
    """The op that assigns a value to a variable."""
    if handle.op.type in ops.REF_VARIABLES:
        return tf.raw_ops.Assign(ref=handle, value=value).op
    return tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def _shards(value: Any, pieces: Sequence[Shard]) -> list[Any]:
    """A whole value split into pieces of rows, each zero-padded to its size."""
    rows, width = [held.rows or 0 for held in pieces], pieces[0].room[1:]
    parts = tf.split(tf.ensure_shape(value, (sum(rows), *width)), rows)
    return [
        tf.pad(part, [[0, held.room[0] - count], *[[0, 0]] * len(width)])
        for part, held, count in zip(parts, pieces, rows, strict=True)
    ]
