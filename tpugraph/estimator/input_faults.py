"""Names the batch of the input that makes a run fail, and its shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpugraph.estimator.tracing import Traced
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.failures import first_words
from tpugraph.runtime.workers import CLUSTER
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1
_SECONDS = 20.0  # limits how long the input is read again

_NOT_OF_DATA = (tf.errors.CancelledError, tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.OutOfRangeError,
                tf.errors.DeadlineExceededError, tf.errors.ResourceExhaustedError)  # fmt: skip


@contextmanager
def naming_bad_batch(traced: Traced, batches: int | Callable[[], int]) -> Iterator[None]:
    """Names the batch that makes a run fail; reads at most so many batches of the input again, without the model."""
    try:
        yield
    except (tf.errors.OpError, RunError) as error:
        if isinstance(error, RunError) and error.stage == CLUSTER:
            raise
        cause = error.__cause__ if isinstance(error, RunError) else error
        if not isinstance(cause, tf.errors.OpError) or isinstance(cause, _NOT_OF_DATA):
            raise
        found = _of_input(traced, batches() if callable(batches) else batches, cause)
        if found is None and isinstance(error, RunError):
            raise
        words = f"{type(cause).__name__.removesuffix('Error')}: {first_words(cause)}"
        raise found or RunError(words, node=getattr(cause.op, "name", None), origin=traced.source) from error


def _of_input(traced: Traced, batches: int, failure: Any) -> RunError | None:
    """The error of the batch that cannot be read, or differs from the first in shape; None where there is none."""
    takes = [op for op in traced.graph.get_operations() if op.type == "IteratorGetNext"]
    if len(takes) != 1:
        return None
    first, last, until = None, None, time.monotonic() + _SECONDS
    asked = _shapes(traced.graph, takes[0])
    with tf1.Session(graph=traced.graph, config=guarded(parts=True)) as session:
        session.run(traced.graph.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS))
        for index in range((batches + 1) * traced.reads):
            try:
                last = index, [tuple(map(int, shape)) for shape in session.run([asked, takes[0]])[0]]
            except tf.errors.OutOfRangeError:
                break
            except tf.errors.OpError as error:
                return _unreadable(traced, index // traced.reads + 1, first_words(error), first)
            first = first or last[1]
            if index >= batches * traced.reads - 1 or time.monotonic() > until:
                break
    if last is None or last[1] == first or traced.plan.cores:  # cores take one shape only, or the last rows
        return None
    number, found = last[0] // traced.reads + 1, _listed(last[1])
    return RunError(f"batch {number:,} of the input has the shapes {found}, but the first has {_listed(first)}: "
                    f"{first_words(failure)}", origin=traced.source, fix=_FIX)  # fmt: skip


_FIX = (
    "give all batches one shape: padded_batch with padded_shapes, a resize in map, or batch(..., drop_remainder=True)"
)


def _unreadable(traced: Traced, number: int, words: str, first: Any) -> RunError:
    if "pad to a smaller size" in words:
        return RunError(f"batch {number:,} of the input has a row that is longer than rows are padded to", origin=traced.source,
                        fix="TPUConfig(max_ids=N), or --max_ids=N in front of the program's name, the longest row")  # fmt: skip
    if "shape" not in words.lower():
        return RunError(f"batch {number:,} of the input cannot be read: {words}", origin=traced.source,
                        fix="look at what input_fn reads there")  # fmt: skip
    whose = "each core's part" if traced.reads > 1 else "the first one"
    before = "" if first is None else f" ({whose} had {_listed(first)})"
    return RunError(f"batch {number:,} of the input has another shape: {words.rstrip('.')}{before}",
                    origin=traced.source, fix=_FIX)  # fmt: skip


def _shapes(graph: Any, take: Any) -> list[Any]:
    with graph.as_default():
        return [tf.shape(t) for t in take.outputs if t.dtype not in (tf.variant, tf.resource)]


def _listed(found: Any) -> str:
    return ", ".join(str(list(shape)) for shape in found)
