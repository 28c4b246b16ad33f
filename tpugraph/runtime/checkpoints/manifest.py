"""The manifest beside a checkpoint: size and checksum of each of its files, by which a whole checkpoint is told from a damaged one.

A checkpoint without a manifest, as TensorFlow and earlier versions write them, is read by TensorFlow instead, tensor by tensor.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import tensorflow as tf

from tpugraph.runtime.failures import first_words
from tpugraph.support.errors import CheckpointError

Stamp = tuple[tuple[int, int, int], ...]

_PART = re.compile(r"\.index|\.data-\d{5}-of-\d{5}")
_AT_ONCE = 1 << 20

_OPAQUE = (tf.variant, tf.resource)
"""Types of which NumPy has no values: the position of an input."""

_FAILURES = (tf.errors.OpError, RuntimeError, ValueError, IndexError)
"""What TensorFlow's reader raises over damaged files."""

_verified: dict[Path, Stamp] = {}
"""What the files of checkpoints were like when they were found to be whole."""


def manifest_of(prefix: Path) -> Path:
    """The manifest of a checkpoint."""
    return prefix.with_name(f"{prefix.name}.manifest")


def data_files(prefix: Path) -> list[Path]:
    """The data files of a checkpoint that are there."""
    return sorted(path for path in prefix.parent.iterdir() if path.name.startswith(f"{prefix.name}.data-"))


def write_manifest(prefix: Path) -> None:
    """Write the manifest of the files that are there under a prefix.

    Raises:
        OSError: a file cannot be read, or the manifest not be written.
    """
    parts = [prefix.with_name(f"{prefix.name}.index"), *data_files(prefix)]
    held = {
        path.name.removeprefix(prefix.name): {"bytes": path.stat().st_size, "crc32": _crc32(path)} for path in parts
    }
    manifest_of(prefix).write_text(json.dumps({"files": held}, indent=1) + "\n")


def trust(prefix: Path) -> None:
    """Take a checkpoint for whole that this process has just written."""
    _verified[prefix.absolute()] = _stamp(prefix)


def verify(prefix: Path) -> None:
    """See that a checkpoint is whole; its files are read once, and a second call costs nothing while they stay as they are.

    Args:
        prefix: the checkpoint's path without ``.index``.

    Raises:
        CheckpointError: a file is missing, cut off or changed; the sentence says which.
    """
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
    """Compare the files with the manifest."""
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
    """Let TensorFlow read every tensor, which checks the checksum of each."""
    where = ""
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        for key, kind in reader.get_variable_to_dtype_map().items():
            where = f"'{key}': "
            try:
                if kind not in _OPAQUE:
                    reader.get_tensor(key)
            except ValueError as error:
                if "sufficient slices" not in str(error):  # of a variable in pieces some may be saved nowhere
                    raise
                reader = tf.train.load_checkpoint(str(prefix))  # one that has failed ends the process at its next use
    except _FAILURES as error:
        raise _damaged(prefix, f"{where}{first_words(error)[:300]}") from error


def _damaged(prefix: Path, words: str) -> CheckpointError:
    fix = "take an earlier one"
    if manifest_of(prefix).exists():
        fix += f"; where another program wrote its files since, remove '{manifest_of(prefix).name}'"
    return CheckpointError(f"the checkpoint '{prefix}' is damaged: {words}", fix=fix)
