"""Fixed shapes for an input whose dimensions differ from batch to batch: the first batches are measured, and rows padded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import padded_batch_op
from tensorflow.python.ops import gen_math_ops

from tpugraph.estimator import inputs
from tpugraph.estimator.reporting import say
from tpugraph.ir.session_config import guarded

tf1 = tf.compat.v1
_BATCHES, _SECONDS = 1000, 20.0  # limit how much is read to measure it
_Dims = tuple[int | None, ...]
Noted = dict[int, tuple[list[list[int | None]], list[Any]]]
"""By the number of a call of ``padded_batch``: the dimensions of its tensors behind the rows, and the shapes of its batches."""


@dataclass(frozen=True)
class FixedShapes:
    """What the shapes of an input are fixed to.

    Attributes:
        padded: the shapes of rows, by the number of the call of ``padded_batch``.
        batches: the shapes of the tensors of a batch, without their rows; None where they differ.
        longest: the one length that open dimensions of ``padded_batch`` have now, which sequence masks get; 0 where there is none.
    """

    padded: dict[int, list[_Dims]] = field(default_factory=dict)
    batches: list[_Dims] = field(default_factory=list)
    longest: int = 0

    def close(self, dataset: Any) -> Any:
        """Checks each batch for the dimensions that were the same in all batches measured, which its shapes then say."""
        if not is_open(dataset):
            return dataset

        def checked(*element: Any) -> Any:
            flat = [tf.ensure_shape(t, [t.shape[0], *dims]) if _open_dims(t.shape) else t
                    for t, dims in zip(tf.nest.flatten(element), self.batches, strict=True)]  # fmt: skip
            packed = tf.nest.pack_sequence_as(element, flat)
            return packed if len(element) > 1 else packed[0]

        return dataset.map(checked)


def is_open(dataset: Any) -> bool:
    """Whether batches of dense tensors of known ranks have an open dimension besides their rows."""
    specs = tf.nest.flatten(dataset.element_spec)
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in specs):
        return False
    return any(_open_dims(spec.shape) for spec in specs)


def _open_dims(shape: Any) -> bool:
    return None in shape.as_list()[1:]


@contextmanager
def padded_batches(shapes: FixedShapes | None, *, measures: bool) -> Iterator[Noted]:
    """Has ``Dataset.padded_batch`` pad to ``shapes``; with None and ``measures`` note the shapes of its batches in what it yields."""
    plain: Callable[..., Any] = padded_batch_op._padded_batch
    noted: Noted = {}
    calls = 0

    def padded_batch(dataset: Any, batch_size: Any, padded_shapes: Any = None, *more: Any, **named: Any) -> Any:
        nonlocal calls
        calls, number = calls + 1, calls
        if shapes is not None and number in shapes.padded:
            padded_shapes = tf.nest.pack_sequence_as(tf1.data.get_output_types(dataset), shapes.padded[number])
        made = plain(dataset, batch_size, padded_shapes, *more, **named)
        if shapes is not None or not measures or not is_open(made):
            return made
        batches: list[Any] = []
        noted[number] = [spec.shape.as_list()[1:] for spec in tf.nest.flatten(made.element_spec)], batches
        return made.map(_noting(batches))

    padded_batch_op._padded_batch = padded_batch
    try:
        yield noted
    finally:
        padded_batch_op._padded_batch = plain


def _noting(found: list[Any]) -> Callable[..., Any]:
    def note(*shapes: Any) -> Any:
        found.append(shapes)
        return np.int64(0)

    def run(*element: Any) -> Any:
        with tf.control_dependencies([tf.numpy_function(note, _shapes(element), tf.int64)]):
            same = tf.nest.map_structure(tf.identity, element)
        return same if len(element) > 1 else same[0]

    return run


def _shapes(element: Any) -> list[Any]:
    return [tf.shape(tensor) for tensor in tf.nest.flatten(element)]


def measure(dataset: Any, noted: Noted, room: int, config: Any) -> FixedShapes:
    """Reads the first batches of a Dataset that was made within :func:`padded_batches`; says to what rows are padded.

    A dimension that is the same in all of them keeps its size. All others get one length: the longest row where the data ended,
    else the next power of two; or ``room`` where it is not 0.
    """
    found: list[Any] = []
    ended, until = False, time.monotonic() + _SECONDS
    shapes = _shapes(inputs.next_element(dataset))
    with tf1.Session(config=guarded(config)) as session:
        session.run(tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS))
        while not ended and len(found) < _BATCHES and time.monotonic() < until:
            try:
                found.append(session.run(shapes))
            except tf.errors.OutOfRangeError:
                ended = True
    columns = {number: _columns(batches) for number, (_, batches) in noted.items() if batches}
    open_dims = [sizes for number, parts in columns.items() for known, part in zip(noted[number][0], parts, strict=True)
                 for size, sizes in zip(known, part, strict=True) if size is None]  # fmt: skip
    longest = max((max(sizes) for sizes in open_dims if len(sizes) > 1), default=0)
    length = room or (longest if ended else 2 ** math.ceil(math.log2(max(longest, 1))))
    if longest:
        say(f"note: every batch is padded to {length}, not to its own longest row: no row of {'all' if ended else 'the first'} "
            f"{len(found):,} batches has more than {longest}. Results are the same where the model masks the padding; max_ids=N "
            "sets the length")  # fmt: skip
    lengths = {length if len(sizes) > 1 else min(sizes) for sizes in open_dims}
    padded = {number: _dims(parts, length) for number, parts in columns.items()}
    return FixedShapes(
        padded, _dims(_columns(found), None), length if longest else lengths.pop() if len(lengths) == 1 else 0
    )


def _columns(batches: Sequence[Any]) -> list[list[set[int]]]:
    """The sizes of each dimension behind the rows, of each tensor of the batches."""
    return [[set(map(int, sizes)) for sizes in np.transpose(shapes)[1:]] for shapes in zip(*batches, strict=True)]


def _dims(columns: list[list[set[int]]], length: int | None) -> list[_Dims]:
    """The size of each dimension; ``length`` where batches differ."""
    return [tuple(length if len(sizes) > 1 else min(sizes) for sizes in part) for part in columns]


@contextmanager
def sequence_masks(length: int) -> Iterator[None]:
    """Makes ``tf.sequence_mask(lengths)`` as long as rows are padded, not as the longest of the batch; 0 leaves it."""
    plain = gen_math_ops._range

    def within(start: Any, limit: Any, delta: Any, name: str | None = None) -> Any:
        if length and limit.op.type == "Maximum" and limit.op.inputs[1].op.type == "Max":
            limit = tf.constant(length, limit.dtype)
        return plain(start, limit, delta, name)

    gen_math_ops._range = within
    try:
        yield
    finally:
        gen_math_ops._range = plain
