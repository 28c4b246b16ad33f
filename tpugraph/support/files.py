"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from tpugraph.support.errors import LoadError


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write a file whole, or leave what is there; see :func:`write_together`."""
    write_together({path: data}, durable=durable)


def write_together(contents: Mapping[Path, bytes], *, durable: bool = False) -> None:
    """Write files whole under temporary names beside their places, then move them there: none where one cannot be written.

    With ``durable`` they and their names are on disk when this returns, and a power cut leaves them.
    """
    written: dict[Path, Path] = {}
    try:
        for path, data in contents.items():
            written[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            written[path].write_bytes(data)
            if durable:
                flush(written[path])
        for path, temporary in written.items():
            os.replace(temporary, path)
        for folder in dict.fromkeys(path.parent for path in contents) if durable else ():
            flush(folder)
    except OSError as error:
        for temporary in written.values():
            with contextlib.suppress(OSError):  # it may be in its place already, or have no folder
                temporary.unlink()
        fix = "check the folder and the free space, or choose another place"
        raise LoadError(f"'{path}' cannot be written: {error.strerror}", fix=fix) from error


def flush(path: Path) -> None:
    """Have the disk keep a file's content, or the names in a folder, before this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
