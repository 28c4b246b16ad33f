"""The checkpoints of a folder: which is the newest whole one, how a new one gets its name, what dead runs have left.

A checkpoint comes into being in an order that a kill or a power cut can end anywhere: its files are written under other
names and flushed to disk, with a manifest of them, moved to their places, the index last, and only then named in the file
``checkpoint``, which is TensorFlow's. So whatever has an index and is whole is a checkpoint, named or not.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tpugraph.runtime.checkpoints.manifest import data_files, manifest_of, verify, write_manifest
from tpugraph.support import files
from tpugraph.support.errors import CheckpointError

KEEP = 5
"""How many checkpoints of a folder are kept where nobody says how many."""

_STAGED = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.(saving([._].*)?|tmp)")
_TENSORFLOWS = re.compile(r"[^.].*(\.(index|data-\d+-of-\d+)\.tempstate\d+|-\d+_temp_[0-9a-f]{32})")
_DATA = re.compile(r"(?P<name>[^.].*-\d+)\.(data-\d+-of-\d+|manifest)")


def step_of(prefix: Path) -> int:
    """The step in a checkpoint's name, 0 where the name has none."""
    digits = prefix.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def index_of(prefix: Path) -> Path:
    """The index file of a checkpoint."""
    return prefix.with_name(f"{prefix.name}.index")


# --------------------------------------------------------------------------- the newest


def newest(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The prefix of the newest whole checkpoint of a folder; None where there is no sign of any.

    The folder itself is looked at, and not only its file ``checkpoint``, which may be older than the files. The one with
    the highest step is the newest, but for those that the file lists before its last: a training that went back has left
    them behind. Where the file names another than its last, somebody has chosen that one.

    Args:
        folder: the folder.
        say: told of each checkpoint that is newer and damaged, in a sentence.

    Raises:
        CheckpointError: there are checkpoints, and none is whole.
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
    raise CheckpointError(
        f"no checkpoint in '{folder}' is whole: {faults[0]}{f', and {len(faults) - 1} more' if len(faults) > 1 else ''}",
        fix="restore its files from a copy, or train in another folder",
    )


def _candidates(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest first; some may have lost their files."""
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
    """What has an index, by step."""
    return sorted((p.with_suffix("") for p in folder.glob("*.index") if not p.name.startswith(".")), key=step_of)


def _history(folder: Path, keep: int | None) -> list[Path]:
    """The checkpoints of which the oldest go: those that the file ``checkpoint`` lists, and newer ones that a kill left unlisted.

    Older unlisted ones are somebody's own. Where the file is lost, as many are taken as are kept.
    """
    current, listed = _named(folder)
    there = _on_disk(folder)
    if current is None:
        return there[-keep:] if keep else there
    listed = listed or [current]
    return [*listed, *(path for path in there if path not in listed and step_of(path) > step_of(current))]


def _named(folder: Path) -> tuple[Path | None, list[Path]]:
    """The checkpoint that the file ``checkpoint`` names, and all that it lists; nothing where it cannot be read."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except (tf.errors.OpError, ValueError):
        return None, []
    if state is None or not state.model_checkpoint_path:
        return None, []

    def here(path: str) -> Path:
        """The path in this folder, to which checkpoints may have been moved, where they are not where the file says."""
        moved = folder / Path(path).name
        return moved if index_of(moved).exists() or not index_of(Path(path)).exists() else Path(path)

    return here(state.model_checkpoint_path), [here(path) for path in state.all_model_checkpoint_paths]


# --------------------------------------------------------------------------- writing


def staged(prefix: Path) -> Path:
    """The prefix under which this process writes a checkpoint before it has its name."""
    return prefix.with_name(f".{prefix.name}.{os.getpid()}.saving")


def put_in_place(prefix: Path) -> None:
    """Give the files that were written under :func:`staged` their names, for good.

    Raises:
        OSError: a file cannot be flushed or moved.
    """
    made = staged(prefix)
    write_manifest(made)
    beside = [*data_files(made), manifest_of(made)]
    for path in (*beside, index_of(made)):
        files.flush(path)
    index_of(prefix).unlink(missing_ok=True)  # that of an earlier training: it must not stand with these data
    for path in beside:
        os.replace(path, path.with_name(prefix.name + path.name.removeprefix(made.name)))
    os.replace(index_of(made), index_of(prefix))
    files.flush(prefix.parent)


def discard(prefix: Path) -> None:
    """Remove what was written under :func:`staged`."""
    made = staged(prefix)
    for path in list(made.parent.iterdir()):
        if path.name.startswith(made.name):
            _remove(path)


def name(prefix: Path, *, keep: int | None = KEEP, spare: Callable[[Path], bool] | None = None) -> None:
    """Name a checkpoint in its folder's ``checkpoint`` file, by relative names so that the folder can be moved.

    Older ones that are not kept are listed until their files are gone, so that whoever comes after a kill removes the rest.

    Args:
        prefix: the checkpoint.
        keep: how many of the newest are kept, this one counted; all when 0 or None.
        spare: asked of each that would be removed: whether it stays, unlisted, for good.

    Raises:
        LoadError: the file cannot be written.
        OSError: a file cannot be removed.
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
        files.flush(folder)  # they are gone before nothing lists them
        _write_state(folder, [*kept, prefix])


def _write_state(folder: Path, listed: list[Path]) -> None:
    names = [_escaped(path.name) for path in listed]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    files.write_atomically(folder / "checkpoint", ("\n".join(lines) + "\n").encode(), durable=True)


def _escaped(name: str) -> str:
    return name.replace("\\", r"\\").replace('"', r"\"")


def _remove_checkpoint(prefix: Path) -> None:
    """Remove the files of a checkpoint: the index first, so that what is left is no checkpoint."""
    index_of(prefix).unlink(missing_ok=True)
    if prefix.parent.is_dir():
        for path in (prefix.with_name(f"{prefix.name}.meta"), *data_files(prefix), manifest_of(prefix)):
            path.unlink(missing_ok=True)


# --------------------------------------------------------------------------- what dead runs left


def collect(folder: Path) -> list[str]:
    """Remove what runs that were killed have left: half-written files, and data that never got an index.

    Only who holds the folder's lock may do that. Data that the file ``checkpoint`` lists stay.

    Returns:
        The names of what was removed.

    Raises:
        CheckpointError: something cannot be removed.
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
