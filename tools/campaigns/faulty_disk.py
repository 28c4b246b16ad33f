"""A disk that fails: every file operation of a save can fail, be the last one of the process, or be the last one before a power cut.

What a power cut leaves is what POSIX promises and no more: the content of a file as of its last flush, anything at all where it
was never flushed; of the names that were made, moved or removed since their folder was flushed, any selection.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tpugraph.support import files

FAULTS = ("fail", "kill", "power")
"""What can happen at an operation: it fails, the process ends before it, the machine stops before it."""


class Ended(BaseException):
    """The process or the machine is at its end; nothing may catch it."""


@dataclass
class _File:
    """A file, by whatever names: its content now, and as of its last flush, None before the first."""

    now: bytes
    flushed: bytes | None


class FaultyDisk:
    """Counts the file operations in a folder, which has been flushed, and lets one of them be the last; a context manager.

    Operation ``at`` (from 0; None lets all pass) has the fault. ``end`` ends the process, or an exception that nothing catches.
    """

    def __init__(self, folder: Path, at: int | None = None, fault: str = "fail", *, seed: int = 0,
                 end: Callable[[], Any] | None = None) -> None:  # fmt: skip
        self._folder = folder
        self._at = at
        self._fault = fault
        self._random = random.Random(seed)
        self._end = end
        self.operations: list[str] = []
        self._names: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._pending: list[tuple[str, _File | None]] = []
        self._patches: list[Any] = []

    def __enter__(self) -> FaultyDisk:
        for path in self._regular():
            self._names[path.name] = _File(path.read_bytes(), path.read_bytes())
        self._durable = dict(self._names)
        flush, replace, unlink = files.flush, os.replace, os.unlink
        wrapped = {
            "flush": (files, "flush", lambda path: self._flush(flush, path)),
            "replace": (os, "replace", lambda old, new: self._move(replace, old, new)),
            "unlink": (os, "unlink", lambda path, **more: self._unlink(unlink, path, **more)),
        }
        for module, name, function in wrapped.values():
            patch = mock.patch.object(module, name, function)
            patch.start()
            self._patches.append(patch)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for patch in self._patches:
            patch.stop()

    # ------------------------------------------------------------------ operations

    def _flush(self, real: Callable[[Path], None], path: Path) -> None:
        self._operation(f"flush {Path(path).name}", path)
        real(path)
        if Path(path) == self._folder:
            self._durable, self._pending = dict(self._names), []
        elif Path(path).parent == self._folder:
            file = self._names[Path(path).name]
            file.flushed = file.now

    def _move(self, real: Callable[..., None], old: Any, new: Any) -> None:
        self._operation(f"move {Path(old).name} to {Path(new).name}", new)
        real(old, new)
        if Path(new).parent == self._folder:
            file = self._names.pop(Path(old).name)
            self._names[Path(new).name] = file
            self._pending += [(Path(old).name, None), (Path(new).name, file)]

    def _unlink(self, real: Callable[..., None], path: Any, **more: Any) -> None:
        if os.path.lexists(path):
            self._operation(f"remove {Path(path).name}", path)
        real(path, **more)
        if Path(path).parent == self._folder and self._names.pop(Path(path).name, None) is not None:
            self._pending.append((Path(path).name, None))

    def _operation(self, words: str, path: Any) -> None:
        """Take notice of what was written since the last one, and let this one be the last where it is its turn."""
        if Path(path) != self._folder and Path(path).parent != self._folder:
            return
        for there in self._regular():
            content, known = there.read_bytes(), self._names.get(there.name)
            if known is None:
                self._names[there.name] = _File(content, None)
                self._pending.append((there.name, self._names[there.name]))
            else:
                known.now = content
        self.operations.append(words)
        if len(self.operations) - 1 != self._at:
            return
        if self._fault == "fail":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if self._fault == "power":
            self.cut_power()
        if self._end is not None:
            self._end()
        raise Ended(words)

    # ------------------------------------------------------------------ power cut

    def cut_power(self, seed: int | None = None) -> None:
        """Make the folder what a power cut could leave of it."""
        if seed is not None:
            self._random.seed(seed)
        left = dict(self._durable)
        reached = self._random.choice(("none", "all", "some"))
        for name, file in self._pending:
            if reached == "none" or (reached == "some" and self._random.random() < 0.5):
                continue
            if file is None:
                left.pop(name, None)
            else:
                left[name] = file
        for path in self._regular():
            os.remove(path)
        for name, file in left.items():
            (self._folder / name).write_bytes(self._content(file))

    def _content(self, file: _File) -> bytes:
        if file.flushed == file.now:
            return file.now
        torn = file.now[: self._random.randrange(len(file.now) + 1)]
        choices = [file.now, b"", torn, torn + bytes(len(file.now) - len(torn))]
        return self._random.choice(choices if file.flushed is None else [*choices, file.flushed])

    def _regular(self) -> list[Path]:
        return [path for path in sorted(self._folder.iterdir()) if path.is_file() and path.name != ".tpugraph.lock"]
