"""The user's cache folder of JSON files; a file that others own or may write is not read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tpugraph.support.files import write_atomically

FOLDER = "TPUGRAPH_CACHE"
"""Environment variable: the folder, in place of ``$XDG_CACHE_HOME/tpugraph``; "" for none."""

_MOST_BYTES = 64 << 20
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Foreign(ValueError):
    """An entry is not trusted; the message follows its name."""


def folder() -> Path | None:
    own = os.environ.get(FOLDER)
    if own is not None:
        return Path(own) if own else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpugraph"


def read(place: Path) -> Any:
    """The content of an entry, or None."""
    try:
        around = place.parent.stat()
        handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise Foreign("is no file of tpugraph")
        if found.st_uid != os.geteuid() or around.st_uid != os.geteuid():
            raise Foreign("belongs to another user")
        if (found.st_mode | around.st_mode) & _OTHERS_MAY_WRITE:
            raise Foreign("can be written by other users")
        try:
            return json.load(file)
        except (ValueError, RecursionError) as error:
            raise Foreign("is damaged") from error


def write(place: Path, content: Any) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(place, json.dumps(content).encode())
    place.chmod(0o600)
