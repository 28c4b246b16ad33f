"""Saving beside training: the step waits until the variables are copied, and not until they are on disk.

The copies are variables of their own. TensorFlow shares the buffer of a value between two variables until one of them is
updated, so that the copy itself costs next to nothing and the next step pays for what it changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph.support.errors import CheckpointError


@dataclass(frozen=True)
class _Copies:
    """Ops of the copies of what a save op writes: to take them, to write them, and to give their memory back."""

    take: Any
    write: Any
    drop: Any


class BackgroundSave:
    """Writes one checkpoint at a time beside what else a session does.

    Args:
        session: the TensorFlow session.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._copies: dict[str, _Copies] = {}
        self._thread: threading.Thread | None = None
        self._error: CheckpointError | None = None

    def take(self, entry: str) -> Callable[[str], None]:
        """Copy what an entry point saves; returns what writes the copies under a prefix and drops them.

        Args:
            entry: name of the ``SaveV2`` op.
        """
        if entry not in self._copies:
            with self._session.graph.as_default():
                self._copies[entry] = _copies_of(self._session.graph.get_operation_by_name(entry))
        copies = self._copies[entry]
        self._session.run(copies.take)

        def write(path: str) -> None:
            try:
                self._session.run(copies.write, feed_dict={"tpugraph/checkpoint:0": path})
            finally:
                self._session.run(copies.drop)

        return write

    def start(self, work: Callable[[], None]) -> None:
        """Do the rest of a save in a thread; the one before it has ended."""

        def run() -> None:
            try:
                work()
            except CheckpointError as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="tpugraph-save", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written.

        Raises:
            CheckpointError: what was being written could not be.
        """
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.1)  # not for good: a signal that another thread is given wakes up nobody
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


def _copies_of(save: Any) -> _Copies:
    prefix, keys, slices, *values = save.inputs
    takes, held, drops = [], [], []
    with tf.device(save.device):
        for number, value in enumerate(values):
            name = f"tpugraph/copies/{save.name.rpartition('/')[2]}/{number}"
            handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)
            takes.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
            held.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype))
            drops.append(tf.raw_ops.DestroyResourceOp(resource=handle))
        write = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=keys, shape_and_slices=slices, tensors=held)
    return _Copies(tf.group(*takes), write, tf.group(*drops))
