"""A folder of checkpoints: the newest intact one, atomic writes, leftovers of killed runs, and the writer's lock.

A checkpoint is written in an order that survives a kill or power cut at any point: its files and their manifest are written
under temporary names, flushed to disk, and renamed, the index last; then TensorFlow's file ``checkpoint`` lists it. So any
intact files with an index are a checkpoint, listed or not.

The manifest has size and checksum of each file, which detects damage. A checkpoint without a manifest, from TensorFlow or an
earlier version, is verified by reading every tensor with TensorFlow.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tpugraph.runtime.failures import first_words
from tpugraph.support import files
from tpugraph.support.errors import CheckpointError

Stamp = tuple[tuple[int, int, int], ...]

_PART = re.compile(r"\.index|\.data-\d{5}-of-\d{5}")
_AT_ONCE = 1 << 20
_OPAQUE = (tf.variant, tf.resource)  # dtypes without NumPy values: the position of an input
_FAILURES = (tf.errors.OpError, RuntimeError, ValueError, IndexError)  # of TensorFlow's reader over damaged files
_verified: dict[Path, Stamp] = {}  # the files' stamps when a checkpoint was verified


def manifest_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.manifest")


def data_files(prefix: Path) -> list[Path]:
    return sorted(path for path in prefix.parent.iterdir() if path.name.startswith(f"{prefix.name}.data-"))


def write_manifest(prefix: Path) -> None:
    parts = [prefix.with_name(f"{prefix.name}.index"), *data_files(prefix)]
    facts = [{"bytes": path.stat().st_size, "crc32": _crc32(path)} for path in parts]
    held = {path.name.removeprefix(prefix.name): fact for path, fact in zip(parts, facts, strict=True)}
    manifest_of(prefix).write_text(json.dumps({"files": held}, indent=1) + "\n")


def trust(prefix: Path) -> None:
    """Mark a checkpoint as verified that this process has just written."""
    _verified[prefix.absolute()] = _stamp(prefix)


def verify(prefix: Path) -> None:
    """Check that a checkpoint is intact; its files are read once, and again only after they have changed."""
    try:
        stamp = _stamp(prefix)
        if _verified.get(prefix.absolute()) == stamp:
            return
        if manifest_of(prefix).exists():
            _compare(prefix)
        else:
            _read(prefix)
    except OSError as error:
        name = Path(error.filename or prefix).name
        raise CheckpointError(f"the checkpoint '{prefix}' cannot be read: {name}: {error.strerror}",
                              fix="take an earlier one") from error  # fmt: skip
    _verified[prefix.absolute()] = stamp


def _stamp(prefix: Path) -> Stamp:
    manifest = manifest_of(prefix)
    parts = [prefix.with_name(f"{prefix.name}.index"), *data_files(prefix), *([manifest] if manifest.exists() else [])]
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in (part.stat() for part in parts))


def _crc32(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while data := file.read(_AT_ONCE):
            checksum = zlib.crc32(data, checksum)
    return checksum


def _compare(prefix: Path) -> None:
    for suffix, (size, checksum) in _listed(prefix).items():
        path = prefix.with_name(f"{prefix.name}{suffix}")
        found = path.stat().st_size
        if found != size:
            raise _damaged(prefix, f"{path.name} has {found:,} bytes, and its manifest says {size:,}")
        if _crc32(path) != checksum:
            raise _damaged(prefix, f"{path.name} has not the checksum that its manifest says")


def _listed(prefix: Path) -> dict[str, tuple[int, int]]:
    path = manifest_of(prefix)
    try:
        files = json.loads(path.read_bytes())["files"]
        found = {suffix: (int(file["bytes"]), int(file["crc32"])) for suffix, file in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(prefix, f"{path.name} is no manifest") from error
    if ".index" not in found or not all(map(_PART.fullmatch, found)):
        raise _damaged(prefix, f"{path.name} is no manifest of a checkpoint")
    return found


def _read(prefix: Path) -> None:
    """Read every tensor with TensorFlow, which verifies the checksum of each."""
    where = ""
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        for key, kind in reader.get_variable_to_dtype_map().items():
            where = f"'{key}': "
            try:
                if kind not in _OPAQUE:
                    reader.get_tensor(key)
            except ValueError as error:
                if "sufficient slices" not in str(error):  # some pieces of a partitioned variable may not be saved
                    raise
                # a reader that has failed aborts the process at its next use
                reader = tf.train.load_checkpoint(str(prefix))
    except _FAILURES as error:
        raise _damaged(prefix, f"{where}{first_words(error)[:300]}") from error


def _damaged(prefix: Path, words: str) -> CheckpointError:
    fix = "take an earlier one"
    if manifest_of(prefix).exists():
        fix += f"; where another program wrote its files since, remove '{manifest_of(prefix).name}'"
    return CheckpointError(f"the checkpoint '{prefix}' is damaged: {words}", fix=fix)


KEEP = 5  # the default number of checkpoints to keep
PREFIX = "model.ckpt"  # of the checkpoints in a model_dir, as Estimator calls them
_STAGED = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.(saving([._].*)?|tmp)")
_TENSORFLOWS = re.compile(r"[^.].*(\.(index|data-\d+-of-\d+)\.tempstate\d+|-\d+_temp_[0-9a-f]{32})")
_DATA = re.compile(r"(?P<name>[^.].*-\d+)\.(data-\d+-of-\d+|manifest)")


def step_of(prefix: Path) -> int:
    """The step in a checkpoint's name, 0 where the name has none."""
    digits = prefix.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def index_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


# --------------------------------------------------------------------------- the newest


def newest(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The prefix of the newest intact checkpoint of a folder; None where there is no trace of any.

    The folder is scanned, since its file ``checkpoint`` may be older than the files. The newest has the highest step, except for
    those that the file lists before its last entry: they are from before a training went back. Where the file's current
    checkpoint is not its last entry, the user chose it.
    """
    faults: list[str] = []
    for prefix in _candidates(folder):
        try:
            verify(prefix)
        except CheckpointError as error:
            faults.append(error.fault)
            continue
        for fault in faults:
            say(f"{fault}; passed over")
        return prefix
    if not faults:
        return None
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    raise CheckpointError(f"no checkpoint in '{folder}' is whole: {faults[0]}{more}",
                          fix="restore its files from a copy, or train in another folder")  # fmt: skip


def _candidates(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest first; files of some may be missing."""
    current, listed = _named(folder)
    there = _on_disk(folder)
    if current is None:
        return there[::-1]
    if listed[-1:] != [current]:
        return [current, *(prefix for prefix in there[::-1] if step_of(prefix) < step_of(current))]
    unlisted = [prefix for prefix in there if prefix not in listed]
    newer = [prefix for prefix in unlisted if step_of(prefix) > step_of(current)]
    older = [prefix for prefix in unlisted if prefix not in newer]
    return [*older, *listed, *newer][::-1]


def _on_disk(folder: Path) -> list[Path]:
    return sorted((p.with_suffix("") for p in folder.glob("*.index") if not p.name.startswith(".")), key=step_of)


def _history(folder: Path, keep: int | None) -> list[Path]:
    """The checkpoints that rotation removes from: those in the file ``checkpoint``, and newer ones that a kill left unlisted.

    Older unlisted ones belong to the user. Without the file, the newest ``keep`` are taken.
    """
    current, listed = _named(folder)
    there = _on_disk(folder)
    if current is None:
        return there[-keep:] if keep else there
    listed = listed or [current]
    return [*listed, *(path for path in there if path not in listed and step_of(path) > step_of(current))]


def _named(folder: Path) -> tuple[Path | None, list[Path]]:
    """The current checkpoint and all listed ones of the file ``checkpoint``; empty where it cannot be read."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except (tf.errors.OpError, ValueError):
        return None, []
    if state is None or not state.model_checkpoint_path:
        return None, []

    def here(path: str) -> Path:
        """The path in this folder, in case the folder has been moved."""
        moved = folder / Path(path).name
        return moved if index_of(moved).exists() or not index_of(Path(path)).exists() else Path(path)

    return here(state.model_checkpoint_path), [here(path) for path in state.all_model_checkpoint_paths]


# --------------------------------------------------------------------------- writing


def staged(prefix: Path) -> Path:
    """The temporary prefix of a checkpoint that this process writes."""
    return prefix.with_name(f".{prefix.name}.{os.getpid()}.saving")


def put_in_place(prefix: Path) -> None:
    """Rename the files from :func:`staged`, durably."""
    made = staged(prefix)
    write_manifest(made)
    beside = [*data_files(made), manifest_of(made)]
    for path in (*beside, index_of(made)):
        files.flush(path)
    index_of(prefix).unlink(missing_ok=True)  # an earlier training's index must not be combined with these data
    for path in beside:
        os.replace(path, path.with_name(prefix.name + path.name.removeprefix(made.name)))
    os.replace(index_of(made), index_of(prefix))
    files.flush(prefix.parent)


def discard(prefix: Path) -> None:
    made = staged(prefix)
    for path in list(made.parent.iterdir()):
        if path.name.startswith(made.name):
            _remove(path)


def name(prefix: Path, *, keep: int | None = KEEP, spare: Callable[[Path], bool] | None = None) -> None:
    """List a checkpoint in its folder's ``checkpoint`` file, by relative paths so that the folder can be moved.

    The newest ``keep`` are kept, this one included (all when 0 or None); those that ``spare`` selects stay, unlisted. The others are
    listed until their files are removed, so that a run after a kill removes the rest.
    """
    folder = prefix.parent
    known = [path for path in _history(folder, keep) if path.name != prefix.name]
    others = [path for path in known if index_of(path).exists()]
    kept = others[max(0, len(others) - keep + 1) :] if keep else others
    spared = [path for path in others if path not in kept and spare is not None and spare(path)]
    doomed = [path for path in known if path not in kept and path not in spared]
    _write_state(folder, [*doomed, *kept, prefix])
    for path in doomed:
        _remove_checkpoint(path)
    if doomed:
        files.flush(folder)  # they are removed before they are unlisted
        _write_state(folder, [*kept, prefix])


def _write_state(folder: Path, listed: list[Path]) -> None:
    names = [path.name.replace("\\", r"\\").replace('"', r"\"") for path in listed]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    files.write_atomically(folder / "checkpoint", ("\n".join(lines) + "\n").encode(), durable=True)


def _remove_checkpoint(prefix: Path) -> None:
    """Remove the files of a checkpoint, the index first, so that the rest is no checkpoint."""
    index_of(prefix).unlink(missing_ok=True)
    if prefix.parent.is_dir():
        for path in (prefix.with_name(f"{prefix.name}.meta"), *data_files(prefix), manifest_of(prefix)):
            path.unlink(missing_ok=True)


# --------------------------------------------------------------------------- what dead runs left


def collect(folder: Path) -> list[str]:
    """Remove leftovers of killed runs, temporary files and data without an index; returns their names.

    The caller must hold the folder's lock. Data of listed checkpoints stay.
    """
    listed = {path.name for path in _named(folder)[1]}
    removed = []
    for path in sorted(folder.iterdir()):
        staged_by, data = _STAGED.fullmatch(path.name), _DATA.fullmatch(path.name)
        dead = staged_by is not None and not _alive(int(staged_by["pid"]))
        lost = data is not None and data["name"] not in listed and not index_of(folder / data["name"]).exists()
        if dead or lost or _TENSORFLOWS.fullmatch(path.name):
            try:
                _remove(path)
            except OSError as error:
                raise CheckpointError(f"'{path}', which a dead run left, cannot be removed: {error.strerror}",
                                      fix="check the folder's permissions") from error  # fmt: skip
            removed.append(path.name)
    return removed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


FILE = ".tpugraph.lock"  # locked by the folder's writer, whom it names
_held: set[Path] = set()  # the folders locked by this process: file locks do not exclude threads of one process


class FolderLock:
    """A context manager that holds the lock for writing checkpoints into a folder.

    A missing folder is created, and removed again if it stays empty.
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

    def __exit__(self, *_: object) -> None:
        if self._made and os.listdir(self._folder) == [FILE]:
            (self._folder / FILE).unlink()
            self._folder.rmdir()
        os.close(self._handle)  # releases the lock
        _held.discard(self._key)

    def _taken(self, owner: str) -> CheckpointError:
        return CheckpointError(f"{owner} writes checkpoints into '{self._folder}' already",
                               fix="wait until it has ended, or give another folder")  # fmt: skip


def _owner(content: bytes) -> str:
    try:
        found = json.loads(content)
        return f"process {int(found['pid'])} on the host {found['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
