"""The variables of a session: read and written by their names in the plain graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.runtime.checkpoint import Held
from tpugraph.support.errors import RunError

Run = Callable[[Any, Mapping[Any, Any] | None], Any]
"""Fetches, and what is fed to them."""


class Variables:
    """Reads and writes variables of a graph.

    Args:
        graph: the ``tf.Graph``.
        held: what holds each variable that a checkpoint holds, by name.
        run: runs fetches in the session.
    """

    def __init__(self, graph: Any, held: Mapping[str, tuple[Held, ...]], run: Run) -> None:
        self._graph = graph
        self._held = held
        self._reads = {name: [piece.read for piece in pieces] for name, pieces in held.items()}
        self._run = run
        self._setters: dict[str, tuple[Any, list[Any]]] = {}

    def values(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The values of several variables in one run; of all that a checkpoint holds when ``names`` is None.

        Raises:
            RunError: there is no such variable.
        """
        wanted = list(self._held if names is None else names)
        for name in wanted:
            if name not in self._reads:
                self._reads[name] = [self._read_of(name)]
        found = self._run([self._reads[name] for name in wanted], None) if wanted else []
        return {name: np.concatenate(parts) if len(parts) > 1 else np.asarray(parts[0])
                for name, parts in zip(wanted, found, strict=True)}  # fmt: skip

    def assign(self, values: Mapping[str, Any]) -> None:
        """Give variables new values.

        Raises:
            RunError: there is no such variable, or a value of another shape.
        """
        for name in values:
            if name not in self._setters:
                self._setters[name] = self._setter_of(name)
        if (
            values
        ):  # in one run: each op that is added between two runs, and each new fetch, costs a walk over the whole graph
            chosen = {name: self._setters[name] for name in values}
            self._run(
                [setter for _, setter in chosen.values()], {held: values[name] for name, (held, _) in chosen.items()}
            )

    @cached_property
    def local(self) -> dict[str, Any]:
        """The handles of the variables that no checkpoint holds, by name."""
        found = [op for op in self._graph.get_operations() if op.type in ops.RESOURCE_VARIABLES]
        return {op.name: op.outputs[0] for op in found if op.name not in self._held}

    def _handle(self, name: str) -> Any:
        if name not in self.local:
            known = ", ".join(list(self._reads)[:5])
            raise RunError(f"there is no variable '{name}'", fix=f"one of {known}, ...")
        return self.local[name]

    def _read_of(self, name: str) -> str:
        handle = self._handle(name)
        with self._graph.as_default():
            kind = tf.as_dtype(handle.op.get_attr("dtype"))
            return str(tf.raw_ops.ReadVariableOp(resource=handle, dtype=kind).name)

    def _setter_of(self, name: str) -> tuple[Any, list[Any]]:
        """What is fed with a new value, and the ops that write it."""
        pieces = self._held.get(name, ())
        named = [self._graph.get_operation_by_name(held.variable).outputs[0] for held in pieces]
        handles = named or [self._handle(name)]
        with self._graph.as_default():
            given = tf.compat.v1.placeholder(handles[0].op.get_attr("dtype"))
            parts = [given] if not pieces or pieces[0].rows is None else _shards(given, pieces)
            writes = [
                tf.raw_ops.AssignVariableOp(resource=handle, value=part)
                for handle, part in zip(handles, parts, strict=True)
            ]
        return given, writes


def _shards(value: Any, pieces: Sequence[Held]) -> list[Any]:
    """A whole value dealt out: to each piece its rows, with zeros where it has room for more."""
    rows, width = [held.rows or 0 for held in pieces], pieces[0].room[1:]
    parts = tf.split(tf.ensure_shape(value, (sum(rows), *width)), rows)
    return [
        tf.pad(part, [[0, held.room[0] - count], *[[0, 0]] * len(width)])
        for part, held, count in zip(parts, pieces, rows, strict=True)
    ]
