"""``tf.contrib.summary`` for the host calls of TPUEstimator: its summaries go the way of all others.

The original wrote each summary where the op ran, into the folder of a writer. Here it is a summary of ``tf.summary``: it
leaves the cores with the step, and is written to the folder of the estimator as often as its RunConfig says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1
_recording = [True]


class Writer:
    """A writer that writes nothing by itself; see the module."""

    @contextmanager
    def as_default(self) -> Iterator[Writer]:
        """Make it the writer of the block."""
        yield self

    def set_as_default(self) -> None:
        """Make it the writer from here on."""

    def init(self) -> Any:
        """An op that has nothing to do."""
        return tf.no_op()

    flush = close = init


def create_file_writer(logdir: Any, max_queue: Any = None, flush_millis: Any = None, filename_suffix: Any = None,
                       name: Any = None) -> Writer:  # fmt: skip
    """A writer; where it would write to does not matter."""
    del logdir, max_queue, flush_millis, filename_suffix, name
    return Writer()


create_summary_file_writer = create_file_writer


def create_db_writer(db_uri: Any, experiment_name: Any = None, run_name: Any = None, user_name: Any = None,
                     name: Any = None) -> Writer:  # fmt: skip
    """A writer; where it would write to does not matter."""
    del db_uri, experiment_name, run_name, user_name, name
    return Writer()


@contextmanager
def _record(on: bool) -> Iterator[None]:
    _recording.append(on)
    try:
        yield
    finally:
        _recording.pop()


def always_record_summaries() -> Any:
    """Within the block summaries are recorded."""
    return _record(True)


def never_record_summaries() -> Any:
    """Within the block no summaries are recorded."""
    return _record(False)


def record_summaries_every_n_global_steps(n: int, global_step: Any = None) -> Any:
    """Within the block summaries are recorded, as often as the RunConfig says."""
    del n, global_step
    return _record(True)


def should_record_summaries() -> bool:
    """Whether summaries are recorded here."""
    return _recording[-1]


def _added(make: Callable[[], Any]) -> Any:
    """The summary op that ``make`` makes, without the scopes of its place, so that it has the tag that it was given."""
    if not should_record_summaries():
        return tf.no_op()
    with tf1.name_scope(None):
        return make()


def _tag(name: str, family: str | None) -> str:
    return f"{family}/{name}" if family else name


def scalar(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """A summary of one number."""
    del step
    return _added(lambda: tf1.summary.scalar(_tag(name, family), tensor))


def histogram(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """A summary of how values are spread."""
    del step
    return _added(lambda: tf1.summary.histogram(_tag(name, family), tensor))


def image(name: str, tensor: Any, bad_color: Any = None, max_images: int = 3, family: str | None = None,
          step: Any = None) -> Any:  # fmt: skip
    """A summary of images ``[batch, height, width, channels]``."""
    del bad_color, step
    return _added(lambda: tf1.summary.image(_tag(name, family), tensor, max_outputs=max_images))


def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int, family: str | None = None, step: Any = None
) -> Any:
    """A summary of sounds ``[batch, frames, channels]``."""
    del step
    return _added(lambda: tf1.summary.audio(_tag(name, family), tensor, sample_rate, max_outputs=max_outputs))


def generic(name: str, tensor: Any, metadata: Any = None, family: str | None = None, step: Any = None) -> Any:
    """A summary of a tensor as it is."""
    del step
    return _added(lambda: tf1.summary.tensor_summary(_tag(name, family), tensor, summary_metadata=metadata))


def all_summary_ops() -> list[Any]:
    """The summaries of the graph; running them writes nothing by itself."""
    return list(tf1.get_collection(tf1.GraphKeys.SUMMARIES))


def flush(writer: Any = None, name: Any = None) -> Any:
    """An op that has nothing to do: the estimator flushes its event files."""
    del writer, name
    return tf.no_op()


def initialize(graph: Any = None, session: Any = None) -> None:
    """Nothing to do: the estimator opens its event files."""
    del graph, session


def summary_writer_initializer_op() -> list[Any]:
    """The ops that open the writers: none."""
    return []


def graph(param: Any, step: Any = None, name: Any = None) -> Any:
    """An op that has nothing to do: the estimator writes the graph to its event file."""
    del param, step, name
    return tf.no_op()
