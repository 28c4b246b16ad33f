"""Whether a checkpoint is whole: its index, the sizes of its files, and the checksum of every tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.ir.session_config import guarded
from tpugraph.runtime.checkpoints.index_file import Index, data_files, read_index, read_varint
from tpugraph.runtime.failures import first_words
from tpugraph.support.errors import CheckpointError

tf1 = tf.compat.v1
Stamp = tuple[tuple[int, int, int], ...]
_AT_ONCE = 64 << 20
"""How many bytes of tensors are read at a time; a larger tensor is read alone."""

_verified: dict[Path, Stamp] = {}
"""What the files of checkpoints were like when they were found to be whole."""


def verify(prefix: Path) -> None:
    """See that a checkpoint is whole; its tensors are read once and forgotten. A second call costs nothing.

    Args:
        prefix: the checkpoint's path without ``.index``.

    Raises:
        CheckpointError: a file is missing, cut off or changed; the sentence says which.
    """
    index = read_checked(prefix)
    stamp = _stamp(prefix, index)
    key = prefix.absolute()
    if _verified.get(key) == stamp:
        return
    _read_all(prefix, index)
    _verified[key] = stamp


def trust(prefix: Path) -> None:
    """Take a checkpoint for whole that this process has just written."""
    _verified[prefix.absolute()] = _stamp(prefix, read_index(prefix))


def read_checked(prefix: Path) -> Index:
    """The index of a checkpoint that TensorFlow can read without harm; most checksums of tensors are left to TensorFlow.

    Raises:
        CheckpointError: a file is missing, cut off or changed.
    """
    index = read_index(prefix)
    try:
        for key, entry in index.entries.items():
            if entry.dtype == tf.variant.as_datatype_enum:
                path = data_files(prefix, index.shards)[entry.shard_id]
                _check_lengths(_bytes_of(path, entry.offset, entry.size), key.decode(), path.name)
    except (OSError, CheckpointError) as error:
        words = error.strerror if isinstance(error, OSError) else error.fault
        raise CheckpointError(f"the checkpoint '{prefix}' is damaged: {words}", fix="take an earlier one") from error
    return index


def _check_lengths(data: bytes, name: str, file: str) -> None:
    """See that lengths are right, for which TensorFlow would ask the machine for memory: a length, bytes, a checksum of 4."""
    at = 0
    while at < len(data):
        length, at = read_varint(data, at) or (len(data), at)
        at += length + 4
    if at != len(data):
        raise CheckpointError(f"{file}: '{name}' is not as long as it says")


def _bytes_of(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _read_all(prefix: Path, index: Index) -> None:
    """Let TensorFlow read every tensor, which checks the checksums, with little memory at a time."""
    with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
        before: list[tf.Operation] = []
        for pieces in _portions(index):
            names, slices, kinds, _ = zip(*pieces, strict=True)
            with tf.control_dependencies(before):
                read = tf.raw_ops.RestoreV2(
                    prefix=str(prefix), tensor_names=names, shape_and_slices=slices, dtypes=kinds
                )
            before = [read[0].op]
        try:
            with tf1.Session(graph=graph, config=guarded()) as session:
                session.run(before)
        except tf.errors.OpError as error:
            words = first_words(error)[:300]
            raise CheckpointError(
                f"the checkpoint '{prefix}' is damaged: {words}", fix="take an earlier one"
            ) from error


Piece = tuple[str, str, Any, int]
"""The key of a tensor, which slice of it (empty for all), its type and its bytes."""


def _portions(index: Index) -> list[list[Piece]]:
    """All that a checkpoint holds, in portions of some bytes each."""
    found: list[list[Piece]] = []
    held = 0
    for piece in _pieces(index):
        if not found or held + piece[3] > _AT_ONCE:
            found.append([])
            held = 0
        found[-1].append(piece)
        held += piece[3]
    return found


def _pieces(index: Index) -> Iterator[Piece]:
    """Each tensor, or of one that was saved in slices each slice: the other slices of its whole may be nowhere."""
    for key in index.tensors:
        entry = index.entries[key.encode()]
        kind = tf.as_dtype(entry.dtype)
        dims = [dim.size for dim in entry.shape.dim]
        if not entry.slices:
            yield key, "", kind, entry.size
        for piece in entry.slices:
            lengths = [e.length if e.HasField("length") else dim for e, dim in zip(piece.extent, dims, strict=True)]
            parts = [f"{e.start},{e.length}" if e.HasField("length") else "-" for e in piece.extent]
            yield key, f"{' '.join(map(str, dims))} {':'.join(parts)}", kind, math.prod(lengths) * kind.size


def _stamp(prefix: Path, index: Index) -> Stamp:
    files = [prefix.with_name(f"{prefix.name}.index"), *data_files(prefix, index.shards)]
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in (file.stat() for file in files))
