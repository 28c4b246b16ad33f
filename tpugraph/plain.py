"""Runs the plain graph with TensorFlow alone, one Session.run per step: what a converted graph is compared with."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops, roles, shapes
from tpugraph.errors import RunError, TpuGraphError
from tpugraph.ir import Graph
from tpugraph.runtime.rebind import missing_file_error

Values = dict[str, np.ndarray[Any, Any]]
"""Variables by their name in the graph."""


class PlainRun:
    """A plain training graph, ready to run.

    Args:
        graph: the graph as loaded.
        train_op: name of the train op; found by structure when None.
        loss: name of the loss; found by structure when None.

    Raises:
        TpuGraphError: the roles cannot be told, or TensorFlow refuses the graph.
    """

    def __init__(self, graph: Graph, *, train_op: str | None = None, loss: str | None = None) -> None:
        self.graph = graph
        self.roles = roles.find(graph, train_op=train_op, loss=loss)
        self._loss = graph.tensor(self.roles.loss.name)
        self._target = shapes.import_graph(graph)
        self._session: Any = None
        self._reads: dict[str, Any] = {}
        with self._target.as_default():
            for name in self.roles.variables:
                handle = self._target.get_operation_by_name(name).outputs[0]
                if graph[name].op in ops.RESOURCE_VARIABLES:
                    kind = tf.as_dtype(graph[name].raw_attrs["dtype"].type)
                    handle = tf.raw_ops.ReadVariableOp(resource=handle, dtype=kind)
                self._reads[name] = handle

    def close(self) -> None:
        """Release the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    # ------------------------------------------------------------------ questions

    def random_ops(self) -> list[str]:
        """The random ops of the step, without those of initialisers."""
        roots = [self.graph[finding.name] for finding in self.roles.train_ops]
        return [node.name for node in self.graph.ancestors([*roots, self._loss.node]) if node.op in ops.RANDOM]

    def has_queues(self) -> bool:
        """Whether the step reads a queue."""
        return any(self.graph[finding.name].op in ops.DEQUEUES for finding in self.roles.inputs)

    def why_loss_is_not_pure(self, kind: str) -> str:
        """Why the loss of several batches is not the mean or sum of their losses; "" where it is."""
        cone = self.graph.ancestors([self._loss.node])
        write = next((node for node in cone if node.op in ops.WRITES), None)
        if write is not None:
            return f"computing the loss runs '{write.name}', which writes a variable"
        if kind == "sum":
            varying = self.graph.descendants([self.graph[f.name] for f in self.roles.inputs], data_only=True)
            for node in cone:
                uniform = node in varying and node.op in ("Add", "AddV2", "AddN") and node.outputs is not None
                if uniform and any(t.node not in varying and t.shape == () for t in node.inputs):
                    return f"'{node.name}' adds a term that does not depend on the data and counts once"
        return ""

    # ------------------------------------------------------------------ running

    def initial_values(self, names: Sequence[str]) -> Values:
        """The first values of some variables."""
        self._open({})
        return self._values(names)

    def train(self, steps: int, start: Mapping[str, Any]) -> tuple[list[float], Values]:
        """Train from given values; returns the loss of each step and the variables after them."""
        fetches = [self._tensor(str(self._loss)), *(self._operation(f.name) for f in self.roles.train_ops)]
        self._open(start)
        losses: list[float] = []
        while len(losses) < steps:
            try:
                losses.append(float(self._run(fetches)[0]))
            except tf.errors.OutOfRangeError:
                break
        return losses, self._values(list(self._reads))

    def losses(self, count: int, start: Mapping[str, Any]) -> list[float]:
        """The losses of the first batches at given values; nothing is trained."""
        self._open(start)
        found: list[float] = []
        while len(found) < count:
            try:
                found.append(float(self._run(self._tensor(str(self._loss)))))
            except tf.errors.OutOfRangeError:
                break
        return found

    def _open(self, start: Mapping[str, Any]) -> None:
        """A new session with initialised variables, tables and input."""
        self.close()
        self._session = tf.compat.v1.Session(graph=self._target)
        variables = self.roles.variables.values()
        self._run([self._operation(v.initializer) for v in variables if v.initializer])
        for name, value in start.items():
            initializer = self.roles.variables[name].initializer
            if initializer is None:
                raise RunError("nothing in the graph gives the variable a value", node=self.graph[name],
                               origin=self.graph.source)  # fmt: skip
            operation = self._operation(initializer)
            self._run(operation, {operation.inputs[1]: value})
        for names in (self.roles.table_initializers, self.roles.iterator_initializers):
            self._run([self._operation(name) for name in names])
        for name in self.roles.enqueues:
            session, operation = self._session, self._operation(name)
            threading.Thread(target=_fill, args=(session, operation, self._target), daemon=True).start()

    def _values(self, names: Sequence[str]) -> Values:
        """The values of the variables among the names that have one."""
        found: Values = {}
        for name in names:
            try:
                found[name] = np.asarray(self._session.run(self._reads[name]))
            except tf.errors.FailedPreconditionError:  # never initialised, so the step does not read it
                continue
        return found

    def _tensor(self, name: str) -> Any:
        return self._target.get_tensor_by_name(name if ":" in name else f"{name}:0")

    def _operation(self, name: str) -> Any:
        return self._target.get_operation_by_name(name.partition(":")[0])

    def _run(self, fetch: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        try:
            return self._session.run(fetch, feed_dict=feed)
        except tf.errors.OutOfRangeError:
            raise
        except (tf.errors.OpError, RuntimeError) as error:
            raise self._translate(error) from error

    def _translate(self, error: BaseException) -> TpuGraphError:
        missing = missing_file_error(str(error), self.graph.source)
        if missing is not None:
            return missing
        words = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        node = getattr(getattr(error, "op", None), "name", None)
        return RunError(f"the plain graph fails: {words[:300]}", node=node, origin=self.graph.source)


def _fill(session: Any, enqueue: Any, graph: Any) -> None:
    """Fill a queue until its input ends, then close it, as a queue runner does."""
    try:
        while True:
            session.run(enqueue)
    except (tf.errors.OutOfRangeError, tf.errors.CancelledError, RuntimeError):
        closes = [
            op for op in graph.get_operations() if op.type in ops.QUEUE_CLOSES and op.inputs[0] is enqueue.inputs[0]
        ]
        try:
            if closes:
                session.run(closes[0])
        except (tf.errors.OpError, RuntimeError):
            return  # the session is closed
