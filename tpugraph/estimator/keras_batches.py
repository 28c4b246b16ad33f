"""What a Keras model learns from, as input functions: arrays, generators, and functions that make a Dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.support.errors import ArgumentError, ArgumentTypeError


@dataclass(frozen=True)
class Batches:
    """Batches of ``(features, labels)``, or of features alone.

    Attributes:
        input_fn: makes the Dataset of them in the current graph; what has one dimension becomes a column.
        steps: how many there are in a round; None where the input alone knows.
    """

    input_fn: Callable[[], Any]
    steps: int | None


def batches_of(
    x: Any, y: Any, rows: int | None, steps: int | None, *, shuffle: bool = False, endless: bool = False
) -> Batches:
    """The batches of what ``fit``, ``evaluate`` or ``predict`` is given.

    Args:
        x: arrays, several of them in a list or by name; a function that returns a Dataset; a generator of batches; or a
            ``Sequence`` of Keras.
        y: arrays of labels beside the arrays; None otherwise.
        rows: rows of a batch of arrays; 32 when None.
        steps: batches in a round; None takes all arrays.
        shuffle: whether each round has the rows of arrays in an order of its own.
        endless: whether round follows on round, each of whole batches only: rows that fill none are left out of a round.

    Raises:
        ArgumentError: arrays of different lengths, empty ones, or a source that needs ``steps`` (a ``ValueError``).
        ArgumentTypeError: a Dataset, which belongs to another graph (a ``TypeError``).
    """
    if isinstance(x, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
        raise ArgumentTypeError(
            "a Dataset belongs to the graph that it was made in", fix="give the function that makes it"
        )
    if callable(x) and not hasattr(x, "__getitem__"):
        return Batches(_columned(x), steps)
    if hasattr(x, "__next__") or (hasattr(x, "__getitem__") and hasattr(x, "on_epoch_end")):
        return _of_generator(x, steps)
    return _of_arrays(x, y, rows or 32, steps, shuffle=shuffle, endless=endless)


def _columned(input_fn: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        return input_fn().map(lambda *parts: tf.nest.map_structure(_column, parts if len(parts) > 1 else parts[0]))

    return made


def _column(part: Any) -> Any:
    return tf.expand_dims(part, 1) if part.shape.rank == 1 else part


def _of_arrays(x: Any, y: Any, rows: int, steps: int | None, *, shuffle: bool, endless: bool) -> Batches:
    parts = _arrays(x) if y is None else (_arrays(x), _arrays(y))
    arrays = tf.nest.flatten(parts)
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1 or not (count := lengths.pop()):
        raise ArgumentError(
            f"arrays of {sorted(len(array) for array in arrays)} rows: all must have as many, one at least"
        )
    rows = min(rows, count)
    end = count - count % rows if endless else count

    def batches() -> Iterator[Any]:
        for _ in itertools.count() if endless else range(1):
            order = np.random.permutation(count) if shuffle else np.arange(count)
            for start in range(0, end, rows):
                yield tf.nest.map_structure(lambda array: array[order[start : start + rows]], parts)  # noqa: B023

    leading = rows if end % rows == 0 else None
    return Batches(_columned(_generated(batches, parts, leading)), steps or -(-end // rows))


def _of_generator(source: Any, steps: int | None) -> Batches:
    """Batches as the generator gives them; the first one is taken now, for its shapes."""
    if hasattr(source, "on_epoch_end"):
        steps = steps or len(source)
        source = (source[index] for index in itertools.cycle(range(len(source))))
    first = _batch(next(source))

    def batches() -> Iterator[Any]:
        yield from itertools.chain([first], map(_batch, source))

    return Batches(_columned(_generated(batches, first, len(tf.nest.flatten(first)[0]))), steps)


def _batch(given: Any) -> Any:
    if not isinstance(given, tuple):
        return _arrays(given)
    if len(given) != 2:
        raise ArgumentError(
            f"a generator gave {len(given)} parts: weights of rows are not taken on cores", fix="(x, y)"
        )
    return tuple(_arrays(part) for part in given)


def _arrays(given: Any) -> Any:
    """Arrays of numbers in the structure that they are given in, without lists and doubles."""
    if isinstance(given, dict):
        return {name: _arrays(part) for name, part in given.items()}
    if isinstance(given, (list, tuple)) and any(isinstance(part, np.ndarray) for part in given):
        return tuple(_arrays(part) for part in given)
    array = np.asarray(given)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _generated(batches: Callable[[], Iterator[Any]], like: Any, rows: int | None) -> Callable[[], Any]:
    def made() -> Any:
        specs = tf.nest.map_structure(lambda array: tf.TensorSpec((rows, *array.shape[1:]), array.dtype), like)
        return tf.data.Dataset.from_generator(batches, output_signature=specs)

    return made
