"""``host_call``: a function that runs on the host in each step, on tensors of the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from tpugraph import ops
from tpugraph.ir.session_config import guarded
from tpugraph.ir.walks import reached
from tpugraph.support.errors import ArgumentTypeError

tf1 = tf.compat.v1
# tags of tensors that leave the cores as summaries: those that hooks fetch, and those of the host call
FETCHED, _CALL = "tpugraph_fetch_", "tpugraph_host_call_"
_ROWS = "_rows"


def call_pair(name: str, pair: Any) -> Any:
    function, tensors = pair
    try:
        return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)
    except TypeError as error:
        raise ArgumentTypeError(f"{name}: calling its function fails: {error}") from error


class HostCallHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Runs the ops that a host call returned with each step, in the same session."""

    def __init__(self, returned: Any) -> None:
        self._ops = _runnable(returned)
        self._opened = summary_ops_v2.summary_writer_initializer_op()
        self._flushed = [tf.raw_ops.FlushSummaryWriter(writer=op.inputs[0]) for op in self._opened]

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._opened)

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self._ops)

    def end(self, session: Any) -> None:
        session.run(self._flushed)


def producers(op: Any) -> list[Any]:
    """The ops that an op of a ``tf.Graph`` waits for."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def order_before_step_update(tensors: Sequence[Any]) -> None:
    """Makes the update of the global step depend on the tensors, which may read it."""
    step = tf1.train.get_global_step()
    handle = None if step is None else getattr(step, "handle", None)
    made = reached((tensor.op for tensor in tensors), producers)
    for writer in () if handle is None else handle.consumers():
        if writer.type in ops.WRITES and writer not in made and writer is not step.initializer:
            writer._add_control_inputs([tensor.op for tensor in tensors])


def _runnable(returned: Any) -> list[Any]:
    return [op for op in tf.nest.flatten(returned) if isinstance(op, tf.Operation) or tf.is_tensor(op)]


def _tensors(pair: Any) -> list[Any]:
    return list(pair[1].values() if isinstance(pair[1], Mapping) else pair[1])


def export_training_tensors(pair: Any, train_op: Any) -> tuple[list[str], Any]:
    """Exports the tensors of a training host call from the cores as summaries, which must run in every step.

    Returns their names; and the train op, grouped with tensors that depend on writes such as the updates of batch norm.
    """
    names = [str(tf1.summary.tensor_summary(f"{_CALL}{i}", tensor).op.name) for i, tensor in enumerate(_tensors(pair))]
    writing = [t for t in _tensors(pair) if any(op.type in ops.WRITES for op in reached((t.op,), producers))]
    return names, tf.group(train_op, *writing) if writing else train_op


def collect_batch_tensors(pair: Any) -> dict[str, str]:
    """Collects the tensors of an evaluation's host call from each batch, and their numbers of rows: tag to tensor name."""
    found = {}
    for i, tensor in enumerate(_tensors(pair)):
        rows = tf.reshape(tensor, [1]) if tensor.shape.rank == 0 else tf.identity(tensor)
        found[f"{_CALL}{i}"] = str(rows.name)
        found[f"{_CALL}{i}{_ROWS}"] = str(tf.reshape(tf.shape(rows)[0], [1]).name)
    return found


def split_by_batch(pair: Any, collected: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Splits what :func:`collect_batch_tensors` collected by batch, in the shapes of the call's tensors."""
    found = {}
    for i, tensor in enumerate(_tensors(pair)):
        ends = np.cumsum(collected[f"{_CALL}{i}{_ROWS}"])
        parts = np.split(np.asarray(collected[f"{_CALL}{i}"]), ends[:-1])
        found[f"{_CALL}{i}"] = [part[0] for part in parts] if tensor.shape.rank == 0 else parts
    return found


class HostCall:
    """A host call on cores: its function in a graph of its own, fed with the steps' tensors after each loop.

    It runs in the first step of a loop and ``every`` so many steps after.
    """

    def __init__(self, pair: Any, every: int, config: Any) -> None:
        function, tensors = pair
        self._every = every
        with tf.Graph().as_default() as graph:
            self._step = tf1.train.create_global_step(graph).initializer
            arriving = tf.nest.map_structure(
                _placeholder, dict(tensors) if isinstance(tensors, Mapping) else list(tensors)
            )
            self._placeholders = list(arriving.values() if isinstance(arriving, dict) else arriving)
            self._ops = _runnable(call_pair("host_call", (function, arriving)))
            self._merged = tf1.summary.merge_all()
            writers = summary_ops_v2.summary_writer_initializer_op()
            self._flushed = [tf.raw_ops.FlushSummaryWriter(writer=op.inputs[0]) for op in writers]
            self._session = tf1.Session(graph=graph, config=guarded(config))
            variables = tf1.global_variables_initializer(), tf1.local_variables_initializer()
            self._session.run([*variables, tf1.tables_initializer(), *writers])

    def run(self, last: int, values: Mapping[str, Any], *, trains: bool = True) -> bytes | None:
        """Runs the call for the steps of a loop that ended at the global step ``last``; returns the last summary, serialised.

        ``values`` has each tensor in every step, by the tags of :func:`export_training_tensors`.
        """
        stacked = [values[f"{_CALL}{i}"] for i in range(len(self._placeholders))]
        steps, summary = len(stacked[0]) if stacked else 0, None
        for index in range(0, steps, self._every):
            self._session.run(self._step, {self._step.inputs[1]: np.int64(last - (steps - index) * trains)})
            fed = {p: part[index] for p, part in zip(self._placeholders, stacked, strict=True)}
            summary = self._session.run([self._ops, [] if self._merged is None else self._merged], fed)[1]
        self._session.run(self._flushed)
        return summary if isinstance(summary, bytes) else None

    def close(self) -> None:
        self._session.close()


def _placeholder(tensor: Any) -> Any:
    shape = tf.TensorShape(tensor.shape)
    open_rows = shape if shape.rank in (None, 0) else tf.TensorShape([None, *shape.as_list()[1:]])
    return tf1.placeholder(tensor.dtype, open_rows)


def split_summary(summary: Any) -> tuple[dict[str, Any], Any]:
    """Splits a summary: the tensors for hooks and the host call by tag, and the rest, for TensorBoard."""
    found, rest = {}, tf1.Summary()
    for value in summary.value:
        if value.tag.startswith((FETCHED, _CALL)):
            found[value.tag] = tf.make_ndarray(value.tensor)
        else:
            rest.value.append(value)
    return found, rest


def host_call_hooks(pair: Any) -> Sequence[Any]:
    if pair is None:
        return ()
    order_before_step_update(_tensors(pair))
    return (HostCallHook(call_pair("host_call", pair)),)
