"""One writer per folder: a lock that the system takes from a process that ends, however it ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from types import TracebackType

from tpugraph.support.errors import CheckpointError

FILE = ".tpugraph.lock"
"""The file in a folder that its writer holds locked; it says who that is."""

_held: set[Path] = set()
"""The folders that this process writes: the system's locks do not hold between parts of one process."""


class FolderLock:
    """Holds the right to write checkpoints into a folder, for the time of a ``with`` block.

    A folder that is not there is made, and goes again where nothing was written into it.

    Args:
        folder: the folder.

    Raises:
        CheckpointError: another writer has it, who is named; or it cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._key = self._folder.resolve()
        self._handle = -1
        self._made = False

    def __enter__(self) -> FolderLock:
        path = self._folder / FILE
        if self._key in _held:
            raise self._taken("another training of this process")
        try:
            self._made = not self._folder.exists()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CheckpointError(f"the folder '{self._folder}' cannot be written: {error.strerror}",
                                  fix="check its permissions, or choose another") from error  # fmt: skip
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            owner = _owner(os.pread(self._handle, 1024, 0))
            os.close(self._handle)
            raise self._taken(owner) from error
        except OSError as error:
            os.close(self._handle)
            raise CheckpointError(f"the folder '{self._folder}' cannot be locked: {error.strerror}",
                                  fix="choose a folder on a file system with locks; a copy elsewhere is made "
                                  "afterwards") from error  # fmt: skip
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n", 0)
        _held.add(self._key)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made and os.listdir(self._folder) == [FILE]:
            (self._folder / FILE).unlink()
            self._folder.rmdir()
        os.close(self._handle)  # which gives the lock back
        _held.discard(self._key)

    def _taken(self, owner: str) -> CheckpointError:
        return CheckpointError(f"{owner} writes checkpoints into '{self._folder}' already",
                               fix="wait until it has ended, or give another folder")  # fmt: skip


def _owner(content: bytes) -> str:
    """Who holds a lock, by what the file says."""
    try:
        found = json.loads(content)
        return f"process {int(found['pid'])} on the host {found['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
