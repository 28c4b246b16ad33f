"""Values of a checkpoint for the variables of a plain graph, piece by piece where a variable is partitioned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.roles.findings import Roles

Values = dict[str, np.ndarray[Any, Any]]
"""Variables by their name in the graph."""


def checkpoint_values(found: Roles, path: str | os.PathLike[str]) -> Values:
    """What a checkpoint holds for the variables of a graph, by name; of a partitioned variable each piece its part."""
    return read_pieces(path, {v.name: (v.key, v.slice) for v in found.variables.values() if v.key is not None})


def read_pieces(path: str | os.PathLike[str], pieces: Mapping[str, tuple[str, str]]) -> Values:
    """The parts of a checkpoint that are asked for, each a key and a slice such as ``20 4 0,10:0,4`` (empty for all of it).

    No more is read than that: TensorFlow 1 can save a slot of a partitioned variable as one part of a whole whose other
    parts are nowhere, and then refuses the whole.
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
    """Values of variables by their keys in checkpoints; the pieces of a partitioned variable are put together."""
    saved = any(v.key for v in found.variables.values())
    whole: Values = {}
    for variable in found.variables.values():
        if variable.name not in values or (saved and variable.key is None):
            continue
        key, value = variable.key or variable.name, values[variable.name]
        if not variable.slice:
            whole[key] = value
            continue
        dims = [int(n) for n in variable.slice.split()[:-1]]
        _piece(whole.setdefault(key, np.zeros(dims, value.dtype)), variable.slice)[...] = value
    return whole


def _piece(value: Any, piece: str) -> Any:
    """The part of a partitioned variable that ``piece`` (such as ``20 4 0,10:0,4``) names."""
    if not piece:
        return value
    parts = [[int(n) for n in part.split(",")] for part in piece.split()[-1].replace("-", "0,-1").split(":")]
    return value[tuple(slice(start, None if size < 0 else start + size) for start, size in parts)]
