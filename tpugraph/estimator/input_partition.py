"""input_partition_dims of a TPUConfig: whether they fit the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpugraph.support.errors import ArgumentError


def check_partition(dims: Sequence[Any], features: Any, labels: Any, cores_per_replica: int) -> None:
    """Check how the input is to be split over the cores of a replica.

    Args:
        dims: for the features, and for the labels where there are two: None, or a structure like theirs whose leaves say
            into how many parts each dimension is split, or None.
        features: what the model function gets.
        labels: that of the labels, or None.
        cores_per_replica: cores that a replica spans.

    Raises:
        ArgumentError: other names or another structure than the input's, or parts that do not make up a replica.
    """
    for index, (part, what) in enumerate(((features, "feature"), (labels, "label"))):
        if index < len(dims) and part is not None and dims[index] is not None:
            for tensor, parts in _pairs(index, dims[index], part, what):
                _check_parts(tensor, parts, cores_per_replica)


def _pairs(index: int, dims: Any, part: Any, what: str) -> Iterator[tuple[Any, Any]]:
    """The tensors of a part of the input, each with the parts of its dimensions."""
    name = f"TPUConfig.input_partition_dims[{index}]"
    if not isinstance(part, Mapping) and not isinstance(dims, Mapping):
        yield part, dims
        return
    if not isinstance(dims, Mapping) or not isinstance(part, Mapping) or set(dims) != set(part):
        raise ArgumentError(f"{name} mismatched {what} keys: {dims!r} for {part!r}")
    for key in part:
        if isinstance(part[key], Mapping) != isinstance(dims[key], Mapping):
            raise ArgumentError(
                f"{name} mismatched the structure of {what}s. '{key}' is {dims[key]!r} for {part[key]!r}"
            )
        yield from _pairs(index, dims[key], part[key], what)


def _check_parts(tensor: Any, parts: Any, cores_per_replica: int) -> None:
    if parts is None:
        return
    if any(count < 1 for count in parts):
        raise ArgumentError(f"All input partition dims must be >= 1. They are {list(parts)}")
    if math.prod(parts) not in (1, cores_per_replica):
        raise ArgumentError(
            "The product of each input partition dim should equal to num_cores_per_replica. "
            f"{list(parts)} make {math.prod(parts)}, but num_cores_per_replica is {cores_per_replica}"
        )
    rank = tf.TensorShape(tensor.shape).rank
    if rank is not None and rank != len(parts):
        raise ArgumentError(
            f"Input partition dims must have the same number of dimensions as the tensor: {list(parts)} for {tensor.shape}"
        )
