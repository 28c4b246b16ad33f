"""Trains the plain graph by TensorFlow itself, one ``Session.run`` per step: the reference for cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops, roles
from tpugraph.analysis import shapes
from tpugraph.control_flow import lower_functional
from tpugraph.ir import Graph, graphdef
from tpugraph.ir.session_config import guarded
from tpugraph.ir.side_effects import file_names, missing_file_error, refuse_to_end
from tpugraph.roles.findings import Roles
from tpugraph.runtime.failures import first_words, stalled
from tpugraph.runtime.graph_session import QueueRunners, StallWatch
from tpugraph.runtime.pipelines import run_as_written
from tpugraph.runtime.variables import Variables
from tpugraph.support.errors import RunError, TpuGraphError

Values = dict[str, np.ndarray[Any, Any]]
"""Variables by their name in the graph."""


def checkpoint_values(found: Roles, path: str | os.PathLike[str]) -> Values:
    """The values of a graph's variables in a checkpoint, by name; each piece of a partitioned variable gets its slice."""
    return read_pieces(path, {v.name: (v.key, v.slice) for v in found.variables.values() if v.key is not None})


def read_pieces(path: str | os.PathLike[str], pieces: Mapping[str, tuple[str, str]]) -> Values:
    """The parts of a checkpoint that are asked for, each a key and a slice such as ``20 4 0,10:0,4`` (empty for all of it).

    Nothing else is read: TensorFlow 1 can save a slot of a partitioned variable as one slice of a whole whose other slices are
    missing, and then refuses to read the whole.
    """
    kinds = tf.train.load_checkpoint(str(path)).get_variable_to_dtype_map()
    keys, slices = [key for key, _ in pieces.values()], [part for _, part in pieces.values()]
    if not keys:
        return {}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        read = tf.raw_ops.RestoreV2(
            prefix=str(path),
            tensor_names=keys,
            shape_and_slices=slices,
            dtypes=[kinds.get(key, tf.float32) for key in keys],
        )
        return dict(zip(pieces, session.run(read), strict=True))


def by_key(found: Roles, values: Mapping[str, Any]) -> Values:
    """Values of variables by their checkpoint keys; the pieces of a partitioned variable are concatenated."""
    saved = any(v.key for v in found.variables.values())
    whole: Values = {}
    for variable in found.variables.values():
        if variable.name not in values or (saved and variable.key is None):
            continue
        key, value = variable.key or variable.name, values[variable.name]
        if not variable.slice:
            whole[key] = value
            continue
        *dims, piece = variable.slice.split()  # such as 20 4 0,10:0,4
        parts = [[int(n) for n in part.split(",")] for part in piece.replace("-", "0,-1").split(":")]
        place = tuple(slice(start, None if size < 0 else start + size) for start, size in parts)
        whole.setdefault(key, np.zeros([int(n) for n in dims], value.dtype))[place] = value
    return whole


class PlainRun:
    """A plain training graph, ready to run; its train op and loss are found by structure unless they are named."""

    def __init__(self, graph: Graph, *, train_op: str | None = None, loss: str | None = None) -> None:
        refuse_to_end(graph)
        self.graph = graph
        own = graphdef.copy(graph)
        run_as_written(own)  # the same elements, and closing the session never waits for autotuning
        self._target = shapes.import_graph(own)  # with its functions
        lower_functional.inline_updates(own, train_op)
        self.roles = roles.find(own, train_op=train_op, loss=loss)
        self._loss = graph.tensor(self.roles.loss.name)
        self._session: Any = None
        self._watch = StallWatch(lambda: None)
        self._variables = Variables(self._target, {}, self._run)

    def again(self) -> PlainRun:
        """The same graph in a session of its own, without another import."""
        other = copy(self)
        other._session, other._variables = None, Variables(self._target, {}, other._run)
        return other

    def close(self) -> None:
        if self._session is not None:
            self._watch.stop()
            self._queue_runners.stop()
            self._session.close()
            self._session = None

    def steps(
        self, start: Mapping[str, Any], tensors: Sequence[str] = (), variables: Sequence[str] = ()
    ) -> Iterator[tuple[float, Values]]:
        """Train from given values of some variables until the data end, one step per item.

        Yields the loss of a step, and by name the values of ``tensors`` in the step and of ``variables`` after it.
        """
        self.open(start)
        fetched = [self._tensor(name) for name in (str(self._loss), *tensors)]
        train = [self._operation(finding.name) for finding in self.roles.train_ops]
        while True:
            try:
                loss, *values = self._run([fetched, train])[0]
            except tf.errors.OutOfRangeError:
                return
            yield float(loss), dict(zip(tensors, values, strict=True)) | self.values(variables)

    def batches(self, names: Sequence[str], count: int) -> list[list[np.ndarray[Any, Any]]]:
        """The next batches as values of the input's tensors; fewer where the data end."""
        found: list[list[np.ndarray[Any, Any]]] = []
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while len(found) < count:
                found.append(self.compute(names, {}))
        return found

    def compute(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
        """The values of tensors, given values of others, with the current variables; nothing is trained."""
        return list(self._run([self._tensor(name) for name in names],
                              {self._tensor(name): value for name, value in feed.items()}))  # fmt: skip

    def open(self, start: Mapping[str, Any]) -> None:
        """A new session with initialised variables, tables and input."""
        self.close()
        self._session = tf.compat.v1.Session(graph=self._target, config=guarded())
        self._watch, self._queue_runners = StallWatch(self._session.close), QueueRunners(self._session)
        for initializers in self._initializers():
            self._run([self._operation(initializer) for initializer in initializers])
        self._variables.assign(start)
        for names in (self.roles.table_initializers, self.roles.iterator_initializers):
            self._run([self._operation(name) for name in names])
        self._queue_runners.start()

    def _initializers(self) -> list[list[str]]:
        """Initializers that read no other variable, to run first, and those that do, such as that of a moving average."""
        names = {v.initializer.partition(":")[0] for v in self.roles.variables.values() if v.initializer is not None}
        depths = {node.name: sum(n.op in ops.VARIABLES for n in self.graph.ancestors([node]))
                  for node in self.graph.topological_order() if node.name in names}  # fmt: skip
        alone = sorted((name for name in depths if depths[name] > 1), key=lambda name: depths[name])
        return [[name for name in depths if depths[name] <= 1], *([name] for name in alone)]

    def values(self, names: Sequence[str]) -> Values:
        """The values of the initialized variables among the names."""
        try:
            return self._variables.values(names)
        except RunError as error:
            if not isinstance(error.__cause__, tf.errors.FailedPreconditionError):
                raise
            if len(names) == 1:  # it is uninitialized, so the step does not read it
                return {}
            half = len(names) // 2
            return self.values(names[:half]) | self.values(names[half:])

    def _tensor(self, name: str) -> Any:
        return self._target.get_tensor_by_name(name if ":" in name else f"{name}:0")

    def _operation(self, name: str) -> Any:
        return self._target.get_operation_by_name(name.partition(":")[0])

    def _run(self, fetch: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        try:
            with self._watch.during():
                return self._session.run(fetch, feed_dict=feed)
        except tf.errors.OutOfRangeError:
            raise
        except (tf.errors.OpError, RuntimeError) as error:
            raise self._translate(error) from error

    def _translate(self, error: BaseException) -> TpuGraphError:
        missing = missing_file_error(str(error), self.graph.source, file_names(self.graph))
        if missing is not None:
            return missing
        words = first_words(error) or type(error).__name__
        node = getattr(getattr(error, "op", None), "name", None)
        found = RunError(f"the plain graph fails: {words[:300]}", node=node, origin=self.graph.source)
        return stalled(self._watch.why, found) if self._watch.why else found
