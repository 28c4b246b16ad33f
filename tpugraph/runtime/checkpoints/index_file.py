"""The index file of a checkpoint, read without trust: TensorFlow's own reader may end the process over a damaged one.

An index is a sorted table of blocks. Each block is followed by a byte that says how it is compressed (TensorFlow's are not)
and by a checksum; a footer of 48 bytes says where the last block is, which lists the others. The table's values are
messages: a header under the key "", and one entry for each tensor, or slice of a tensor, with its place in the data files.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import tensor_bundle_pb2

from tpugraph.support.errors import CheckpointError

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_MOST_BYTES = 1 << 28
"""More than any index has: a checkpoint of a million tensors has one of 100 MB."""


@dataclass(frozen=True)
class Index:
    """What a checkpoint's index says.

    Attributes:
        shards: the number of data files.
        entries: the ``BundleEntryProto`` of each tensor by its key; a slice of a tensor has a key that begins with a zero.
    """

    shards: int
    entries: dict[bytes, tensor_bundle_pb2.BundleEntryProto]

    @property
    def tensors(self) -> list[str]:
        """The keys of whole tensors."""
        return [key.decode() for key in self.entries if not key.startswith(b"\0")]


class _Damaged(Exception):
    """What is wrong with an index."""


def data_files(prefix: Path, shards: int) -> list[Path]:
    """The data files of a checkpoint with so many shards."""
    return [prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{shards:05d}") for i in range(shards)]


def read_index(prefix: Path) -> Index:
    """Read a checkpoint's index, and check it: checksums, keys, sizes, and that the data files are as long as it says.

    The tensors themselves are not read.

    Args:
        prefix: the checkpoint's path without ``.index``.

    Raises:
        CheckpointError: a file is missing or damaged; the sentence says which and how.
    """
    path = prefix.with_name(f"{prefix.name}.index")
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise _Damaged(f"it has {size:,} bytes, more than any index")
        index = _parsed(path.read_bytes())
        _check_data_files(prefix, index)
    except _Damaged as error:
        raise CheckpointError(f"the checkpoint '{prefix}' is damaged: {path.name}: {error}",
                              fix="take an earlier one") from error  # fmt: skip
    except OSError as error:
        raise CheckpointError(f"the checkpoint '{prefix}' cannot be read: {Path(error.filename or path).name}: {error.strerror}",
                              fix="take an earlier one") from error  # fmt: skip
    return index


def _parsed(data: bytes) -> Index:
    if len(data) < _FOOTER_BYTES or data[-8:] != _MAGIC:
        raise _Damaged("it does not end as an index ends; it may be cut off")
    footer = data[-_FOOTER_BYTES:-8]
    _, at = _handle(footer, 0)
    where, _ = _handle(footer, at)
    found: dict[bytes, bytes] = {}
    for _, handle in _items(_block(data, *where)):
        for key, value in _items(_block(data, *_handle(handle, 0)[0])):
            if key in found:
                raise _Damaged(f"the key {key!r} stands there twice")
            found[key] = value
    header = tensor_bundle_pb2.BundleHeaderProto()
    entries = {}
    try:
        header.ParseFromString(found.pop(b"", b""))
        for key, value in found.items():
            entries[key] = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    except DecodeError as error:
        raise _Damaged("an entry cannot be parsed") from error
    if not 1 <= header.num_shards <= max(1, len(entries)):
        raise _Damaged(f"it speaks of {header.num_shards} data files and {len(entries)} tensors")
    if header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
        raise _Damaged("its numbers have their highest byte first, which this machine does not read")
    for key, entry in entries.items():
        _check_entry(key, entry, header.num_shards)
    return Index(header.num_shards, entries)


# --------------------------------------------------------------------------- entries


def _check_entry(key: bytes, entry: tensor_bundle_pb2.BundleEntryProto, shards: int) -> None:
    """See that an entry says nothing that cannot be."""
    try:
        name = key.decode() if not key.startswith(b"\0") else repr(key)
        kind = tf.as_dtype(entry.dtype)
    except (UnicodeDecodeError, TypeError) as error:
        raise _Damaged(f"the entry {key!r} has no name or no type") from error
    dims = [dim.size for dim in entry.shape.dim]
    elements = math.prod(dims)
    if entry.shape.unknown_rank or len(dims) > 254 or min(dims, default=0) < 0 or elements >= 1 << 62:
        raise _Damaged(f"'{name}' has the shape {dims[:8]}")
    if entry.slices:  # the whole of a tensor that was saved in slices: its values stand under their keys
        _check_slices(name, dims, entry)
        return
    if not 0 <= entry.shard_id < shards or entry.offset < 0 or entry.size < 0:
        raise _Damaged(f"'{name}' is at no place of the data files")
    counted = kind in (tf.string, tf.variant)
    if (entry.size < elements) if counted else (entry.size != elements * kind.size):
        raise _Damaged(f"'{name}' has {entry.size:,} bytes for {elements:,} elements of {kind.name}")


def _check_slices(name: str, dims: list[int], entry: tensor_bundle_pb2.BundleEntryProto) -> None:
    """See that slices lie in the shape of their tensor; an extent without a length is a whole dimension."""
    for piece in entry.slices:
        held = [(e.start, e.length if e.HasField("length") else None) for e in piece.extent]
        fits = len(held) == len(dims) > 0 and all(
            start == 0 if length is None else start >= 0 and length > 0 and start + length <= dim
            for (start, length), dim in zip(held, dims, strict=True)
        )
        if not fits:
            raise _Damaged(f"a slice of '{name}' does not lie in its shape {dims[:8]}")


def _check_data_files(prefix: Path, index: Index) -> None:
    """See that each data file is there, with all the bytes that the index asks for."""
    wanted = [0] * index.shards
    for entry in index.entries.values():
        if not entry.slices:
            wanted[entry.shard_id] = max(wanted[entry.shard_id], entry.offset + entry.size)
    for path, least in zip(data_files(prefix, index.shards), wanted, strict=True):
        size = path.stat().st_size
        if size < least:
            raise _Damaged(f"{path.name} has {size:,} bytes of {least:,}")


# --------------------------------------------------------------------------- blocks


def _block(data: bytes, offset: int, size: int) -> bytes:
    """The content of a block, whose checksum is right."""
    end = offset + size
    if end + _TRAILER_BYTES > len(data) - _FOOTER_BYTES:
        raise _Damaged("a block lies behind its end")
    (stored,) = struct.unpack_from("<I", data, end + 1)
    if stored != masked_crc32c(data[offset : end + 1]):
        raise _Damaged("the checksum of a block is wrong")
    if data[end]:
        raise _Damaged("a block is compressed, which TensorFlow does not do")
    return data[offset:end]


def _items(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block; a key says how much of the one before it it shares."""
    if len(block) < 4:
        raise _Damaged("a block is too short")
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end, at, key = len(block) - 4 * (restarts + 1), 0, b""
    if end < 0:
        raise _Damaged("a block is too short for its restarts")
    while at < end:
        shared, at = _varint(block, at)
        more, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + more + length > end:
            raise _Damaged("a key or a value is longer than its block")
        key = key[:shared] + block[at : at + more]
        yield key, block[at + more : at + more + length]
        at += more + length


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and where the text goes on behind them."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = read_varint(data, at)
    if found is None:
        raise _Damaged("a number has no end")
    return found


def read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """A number in groups of seven bits, lowest first, and where the text goes on behind it; None where it has no end."""
    number = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            return None
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    return None


# --------------------------------------------------------------------------- checksums


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> int:
    """The checksum that TensorFlow puts behind a block: CRC-32C, turned and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
