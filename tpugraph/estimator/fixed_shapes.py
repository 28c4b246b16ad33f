"""Fixed shapes for an input whose dimensions differ from batch to batch: the first batches are measured, and rows padded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import padded_batch_op
from tensorflow.python.ops import gen_math_ops

from tpugraph.estimator import inputs
from tpugraph.estimator.reporting import say
from tpugraph.support.process import replaced

tf1 = tf.compat.v1
_BATCHES, _SECONDS = 1000, 20.0  # limit how much is read to measure it
_Dims = tuple[int | None, ...]
Noted = dict[int, tuple[list[list[int | None]], list[Any]]]
"""For each call of ``padded_batch``, by its number: the example shapes of its tensors, and the shapes of its batches."""


@dataclass(frozen=True)
class FixedShapes:
    """The fixed shapes of an input."""

    # the shapes of rows, by the number of the call of padded_batch
    padded: dict[int, list[_Dims]] = field(default_factory=dict)
    # the shapes of the tensors of a batch, without their rows; None where they differ
    batches: list[_Dims] = field(default_factory=list)
    # the largest size that an open dimension of padded_batch has now, by its number in a batch
    longest: dict[int, int] = field(default_factory=dict)

    def close(self, dataset: Any) -> Any:
        """Makes sizes static that were the same in all measured batches; each batch is checked for them."""
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
    """Makes ``Dataset.padded_batch`` pad to ``shapes``; where None and ``measures``, yields a record of its batches' shapes."""
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

    with replaced(padded_batch_op, "_padded_batch", padded_batch):
        yield noted


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
    """Measures the first batches of a Dataset made within :func:`padded_batches`; a note says what rows are padded to.

    A dimension that is the same in all of them keeps its size. Others get one length for all tensors: the longest where the data
    ended, else the next power of two; or ``room`` where it is not 0.
    """
    found, ended = inputs.first_values(_shapes(inputs.next_element(dataset)), _BATCHES, config, _SECONDS)
    columns = {number: _columns(batches) for number, (_, batches) in noted.items() if batches}
    opened = [(axis, sizes) for number, parts in columns.items() for known, part in zip(noted[number][0], parts, strict=True)
              for axis, (size, sizes) in enumerate(zip(known, part, strict=True), 1) if size is None]  # fmt: skip
    longest: dict[int, int] = {}
    for axis, sizes in opened:
        if len(sizes) > 1:
            longest[axis] = max(longest.get(axis, 0), *sizes)
    lengths = {a: room or (size if ended else 2 ** math.ceil(math.log2(max(size, 1)))) for a, size in longest.items()}
    if longest:
        to, most = (" x ".join(str(sizes[axis]) for axis in sorted(sizes)) for sizes in (lengths, longest))
        say(f"note: every batch is padded to {to}, not to its own longest row: of {'all' if ended else 'the first'} "
            f"{len(found):,} batches no row has more than {most}. Results are the same where the model masks the padding; max_ids=N "
            "sets the length")  # fmt: skip
    padded = {number: _dims(parts, lengths) for number, parts in columns.items()}
    now: dict[int, int] = {}
    for axis, sizes in opened:
        now[axis] = max(now.get(axis, 0), lengths[axis] if len(sizes) > 1 else min(sizes))
    return FixedShapes(padded, _dims(_columns(found), {}), now)


def _columns(batches: Sequence[Any]) -> list[list[set[int]]]:
    """The sizes of each dimension behind the rows, of each tensor of the batches."""
    return [[set(map(int, sizes)) for sizes in np.transpose(shapes)[1:]] for shapes in zip(*batches, strict=True)]


def _dims(columns: list[list[set[int]]], lengths: Mapping[int, int]) -> list[_Dims]:
    """The size of each dimension behind the rows; that of ``lengths`` where batches differ."""
    return [
        tuple(lengths.get(axis) if len(sizes) > 1 else min(sizes) for axis, sizes in enumerate(part, 1))
        for part in columns
    ]


def sequence_masks(longest: Mapping[int, int]) -> AbstractContextManager[None]:
    """Makes ``tf.sequence_mask(lengths)`` as long as rows are padded, not as the longest of the batch.

    Lengths ``[rows]`` are those of dimension 1, ``[rows, steps]`` those of dimension 2.
    """
    plain = gen_math_ops._range

    def within(start: Any, limit: Any, delta: Any, name: str | None = None) -> Any:
        made = isinstance(limit, tf.Tensor)  # tf.transpose of an unknown rank gives a number
        if made and limit.op.type == "Maximum" and limit.op.inputs[1].op.type == "Max":
            length = longest.get(limit.op.inputs[1].op.inputs[0].shape.rank)
            limit = limit if length is None else tf.constant(length, limit.dtype)
        return plain(start, limit, delta, name)

    return replaced(gen_math_ops, "_range", within)
