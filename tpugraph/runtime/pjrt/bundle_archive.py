"""The archives of a bundle, read within bounds: no member is longer than it may be, and no array is made before its size is known."""

from __future__ import annotations

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpugraph.xla import jax_client
from tpugraph.xla.module import SIZES, Value

Array = np.ndarray[Any, Any]
MANIFEST, MODULE, VARIABLES = "manifest.json", "module.mlirbc", "variables.npz"

BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    KeyError,
)
"""What zipfile raises of damaged content: a bit may turn one way to pack into another, or ask for a password."""

MOST = {MANIFEST: 64 << 20, MODULE: 2 << 30}
"""The most bytes of a member; of the variables it is what the manifest says of them."""

_RATIO = 1100
"""No deflated byte stands for more than about 1,032 others."""
_HEADER = 4096
"""More than the header of an array takes, and what the archive of the arrays says of it."""
_BITS = {1: np.uint8, 2: np.uint16}


class Archive:
    """The zip file of a bundle.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be read.
        BadZipFile, or another of :data:`BROKEN`: it is no whole zip file, or its directory claims what cannot be.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._zip = zipfile.ZipFile(path)
        self._members = {info.filename: info for info in self._zip.infolist()}
        odd = sorted(set(self._members) - {MANIFEST, MODULE, VARIABLES})
        if odd or len(self._members) != len(self._zip.infolist()):
            self.close()
            raise zipfile.BadZipFile(
                f"it holds '{odd[0][:100]}', which no bundle does" if odd else "a member is there twice"
            )

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def read(self, name: str, most: int) -> bytes:
        """A member; empty where it is not there.

        Raises:
            BadZipFile, or another of :data:`BROKEN`: it is damaged, or longer than it may be.
        """
        info = self._members.get(name)
        if info is None:
            return b""
        if info.file_size > most or info.file_size > _RATIO * (info.compress_size + 1):
            raise zipfile.BadZipFile(f"{name} claims {info.file_size:,} bytes")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{name} is packed in a way that no bundle is")
        return self._zip.read(info)


def most_bytes(values: Sequence[Value]) -> int:
    """The most bytes of an archive of these variables."""
    return sum(value.bytes + _HEADER for value in values) + _HEADER


def pack(arrays: Sequence[Array]) -> bytes:
    """An archive of arrays; one of a dtype that NumPy's files do not have is stored as bits."""
    held = io.BytesIO()
    np.savez(
        held, *(array if array.dtype.kind in "biufc" else array.view(_BITS[array.dtype.itemsize]) for array in arrays)
    )
    return held.getvalue()


def unpack(data: bytes, values: Sequence[Value]) -> list[Array]:
    """The arrays of an archive, each of the dtype and shape of its variable.

    Raises:
        ValueError, or another of :data:`BROKEN`: it holds others.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as stored:
        members = {info.filename: info for info in stored.infolist()}
        if sorted(members) != sorted(f"arr_{number}.npy" for number in range(len(values))):
            raise ValueError(f"{VARIABLES} holds {len(members)} arrays, and there are {len(values)} variables")
        for number, value in enumerate(values):
            info = members[f"arr_{number}.npy"]
            if info.compress_type != zipfile.ZIP_STORED or not 0 <= info.file_size - value.bytes <= _HEADER:
                raise ValueError(f"{value.name} has {info.file_size:,} bytes")
        return [_array(stored.read(members[f"arr_{number}.npy"]), value) for number, value in enumerate(values)]


def _array(content: bytes, value: Value) -> Array:
    """The array in an ``.npy`` file."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"{value.name} is of version {version}")
    shape, by_columns, kind = readers[version](file)
    known = value.dtype != "bfloat16"
    wanted = np.dtype(value.dtype if known else _BITS[SIZES[value.dtype]])
    if shape != value.shape or kind != wanted:
        raise ValueError(f"{value.name} is {kind}{shape}")
    array = np.frombuffer(content, wanted, offset=file.tell()).reshape(shape, order="F" if by_columns else "C").copy()
    return array if known else array.view(jax_client.load("ml_dtypes", "pjrt").bfloat16)
