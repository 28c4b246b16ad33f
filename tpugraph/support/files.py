"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from tpugraph.support.errors import LoadError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole, or leave what is there.

    Raises:
        LoadError: it cannot be written.
    """
    write_together({path: data})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files whole under temporary names beside their places, then move them there: none where one cannot be written.

    Raises:
        LoadError: one of them cannot be written.
    """
    written: dict[Path, Path] = {}
    try:
        for path, data in contents.items():
            written[path] = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            written[path].write_bytes(data)
        for path, temporary in written.items():
            os.replace(temporary, path)
    except OSError as error:
        for temporary in written.values():
            with contextlib.suppress(OSError):  # it may be in its place already, or have no folder
                temporary.unlink()
        fix = "check the folder and the free space, or choose another place"
        raise LoadError(f"'{path}' cannot be written: {error.strerror}", fix=fix) from error
