"""Writes TensorBoard event files: curves, graph and costs of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

tf1 = tf.compat.v1


class Events:
    """Event files in a folder.

    With a graph to show, the writer is that of ``tf.compat.v1.summary.FileWriterCache``, so that the hooks of TensorFlow write to
    the same file. Without one the file is new, and :meth:`start` has the graph.
    """

    def __init__(self, folder: str, graph: Any = None) -> None:
        self.folder = folder
        with (graph or tf.Graph()).as_default():  # a FileWriter needs graph mode
            if graph is not None:
                self._writer = tf1.summary.FileWriterCache.get(folder)
            else:  # readers sort files by name, which has whole seconds; two runs may start in the same one
                self._writer = tf1.summary.FileWriter(folder, filename_suffix=f".{time.time_ns()}.{os.getpid()}")

    def start(self, step: int, graph_def: Any) -> None:
        """Write the graph, and a session start after ``step``, on which readers discard later events of earlier runs."""
        self._writer.add_session_log(tf1.SessionLog(status=tf1.SessionLog.START), step + 1)
        graph = tf1.Event(wall_time=time.time(), graph_def=graph_def.SerializeToString())
        self._writer.add_event(graph)  # add_graph warns of a GraphDef

    def costs(self, step: int, metadata: Any) -> None:
        """Write the RunMetadata of the loop that ended at a step, with the cost of each node."""
        self._writer.add_run_metadata(metadata, f"loop to step {step}", step)

    def scalars(self, step: int, **values: float) -> None:
        summary = tf1.Summary()
        for tag, value in values.items():
            summary.value.add(tag=tag, simple_value=value)
        self._writer.add_summary(summary, step)

    def results(self, step: int, found: Mapping[str, Any], checkpoint: str | None) -> None:
        """Write the results of an evaluation, as Estimator does: numbers, arrays, and summaries that are a metric's value."""
        summary = tf1.Summary()
        for key, value in found.items():
            array = np.asarray(value)
            if array.ndim == 0 and array.dtype.kind in "fiub":
                summary.value.add(tag=key, simple_value=float(array))
            elif isinstance(value, bytes):
                summary.value.extend(_summaries(key, value))
            else:
                summary.value.add(tag=key, node_name=key, tensor=tf.make_tensor_proto(array))
        if checkpoint is not None:
            shown = tf1.SummaryMetadata(plugin_data=tf1.SummaryMetadata.PluginData(plugin_name="text"))
            text = tf.make_tensor_proto(checkpoint, dtype=tf.string)
            summary.value.add(tag="checkpoint_path", metadata=shown, tensor=text)
        self._writer.add_summary(summary, step)

    def summary(self, step: int, serialized: bytes) -> None:
        self._writer.add_summary(serialized, step)

    def checkpoint(self, step: int, path: str) -> None:
        log = tf1.SessionLog(status=tf1.SessionLog.CHECKPOINT, checkpoint_path=path)
        self._writer.add_session_log(log, step)

    def close(self) -> None:
        self._writer.flush()


def rates(steps: int, seconds: float, rows: int | None) -> dict[str, float]:
    """Steps and, where the rows of a batch are known, examples per second, under the names that Estimator gives them."""
    rate = steps / max(seconds, 1e-9)
    return {"global_step/sec": rate} | ({} if rows is None else {"examples/sec": rate * rows})


def _summaries(key: str, serialized: bytes) -> list[Any]:
    """The values of a serialised summary, under the name of their metric; the text itself where it is none."""
    try:
        values = list(tf1.Summary.FromString(serialized).value)
    except DecodeError:
        return [tf1.Summary.Value(tag=key, node_name=key, tensor=tf.make_tensor_proto(serialized))]
    for index, value in enumerate(values):
        value.tag = f"{key}/{index}"
    return values
