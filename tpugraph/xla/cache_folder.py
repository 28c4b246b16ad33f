"""The user's cache folder, whose entries are signed: JSON with an HMAC-SHA-256 of name and content.

The key is random and lies in the folder, readable by its owner alone. An entry of another user or machine, or under another
name, fails the check; a file that others own or may write is not read at all.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from tpugraph.support.errors import LoadError
from tpugraph.support.files import write_atomically

FOLDER = "TPUGRAPH_CACHE"
"""Environment variable: the folder, in place of ``$XDG_CACHE_HOME/tpugraph``; "" for none."""

_KEY = "key"
_KEY_BYTES = 32
_MOST_BYTES = 64 << 20
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Foreign(ValueError):
    """Why an entry is not trusted, as words that follow its name."""


def folder() -> Path | None:
    """The cache folder; None where the user wants none."""
    own = os.environ.get(FOLDER)
    if own is not None:
        return Path(own) if own else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpugraph"


def read(place: Path) -> Any:
    """The content of an entry; None where there is none.

    Raises:
        Foreign, OSError: it is not to be trusted, or cannot be read.
    """
    try:
        text = _own_file(place)
    except FileNotFoundError:
        return None
    try:
        held = json.loads(text)
        code, content = held["hmac"], held["content"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Foreign("is damaged") from error
    key = _key(place.parent)
    if key is None or not isinstance(code, str) or not hmac.compare_digest(code.encode(), _code(key, place, content)):
        raise Foreign("was not written by tpugraph for this user on this machine")
    return content


def write(place: Path, content: Any) -> None:
    """Write an entry, of values that JSON has.

    Raises:
        OSError, LoadError: the folder cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = _key(place.parent) or _new_key(place.parent)
    plain = json.loads(json.dumps(content))
    write_atomically(place, json.dumps({"hmac": _code(key, place, plain).decode(), "content": plain}).encode())
    place.chmod(0o600)


def _code(key: bytes, place: Path, content: Any) -> bytes:
    signed = json.dumps([place.name, content], sort_keys=True).encode()
    return hmac.new(key, signed, hashlib.sha256).hexdigest().encode()


def _key(parent: Path) -> bytes | None:
    """The folder's key; None where there is none that is secret."""
    try:
        key = _own_file(parent / _KEY)
    except (OSError, Foreign):
        return None
    return key if len(key) == _KEY_BYTES and stat.S_IMODE((parent / _KEY).stat().st_mode) & 0o077 == 0 else None


def _new_key(parent: Path) -> bytes:
    key, own = secrets.token_bytes(_KEY_BYTES), parent / f".{_KEY}.{os.getpid()}.tmp"
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(key)
    os.replace(own, parent / _KEY)
    kept = _key(parent)
    if kept is None:
        raise LoadError(
            f"the cache folder '{parent}' cannot keep a secret", fix="a folder of your own: TPUGRAPH_CACHE=DIR"
        )
    return kept


def _own_file(path: Path) -> bytes:
    """The content of a regular file that only this user may write."""
    around = path.parent.stat()
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            raise Foreign("is no file of tpugraph")
        if found.st_uid != os.geteuid() or around.st_uid != os.geteuid():
            raise Foreign("belongs to another user")
        if (found.st_mode | around.st_mode) & _OTHERS_MAY_WRITE:
            raise Foreign("can be written by other users")
        return file.read()
