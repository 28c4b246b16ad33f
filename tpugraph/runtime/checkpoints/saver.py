"""Saves and restores a session's variables and input position, under the keys of the plain graph."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.runtime.checkpoints import checkpoint_folder, input_position
from tpugraph.runtime.checkpoints.checkpoint_folder import KEEP, index_of, newest, trust, verify
from tpugraph.runtime.engine import Engine
from tpugraph.runtime.failures import first_words
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.variables import Saved
from tpugraph.support.errors import CheckpointError, LoadError, RunError
from tpugraph.support.process import ended, in_thread
from tpugraph.support.suggestions import near_nodes
from tpugraph.support.wording import first_few

_MOST_NAMED = 5
_INPUT = "tpugraph/input/"
_NO_POSITION = (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError, tf.errors.InvalidArgumentError)
"""TensorFlow's message for an input whose position it cannot save."""


def resolve(path: str | os.PathLike[str], say: Callable[[str], None]) -> Path:
    """The prefix of a checkpoint: the path itself, or the newest intact one of a folder.


    ``say`` is told of each newer one of a folder that is damaged.
    """
    if Path(path).is_dir():
        latest = newest(Path(path), say)
        if latest is None:
            raise CheckpointError(
                f"the folder '{path}' holds no checkpoint", fix="give the prefix, such as model.ckpt-100"
            )
        return latest
    prefix = Path(str(path).removesuffix(".index").removesuffix(".meta"))
    if not index_of(prefix).exists():
        near = sorted(p.name.removesuffix(".index") for p in prefix.parent.glob("*.index"))[:4]
        fix = f"there is: {', '.join(near)}" if near else "check the path"
        raise CheckpointError(f"there is no checkpoint '{prefix}'", fix=fix)
    return prefix


def check(prefix: Path, saved: Mapping[str, Saved]) -> bool:
    """Check that a checkpoint has every variable with its shape; returns whether it has the input's position."""
    verify(prefix)
    held = compare_keys(prefix, {one.key: one.shape for one in saved.values()})
    return any(key.startswith(_INPUT) for key in held)


def compare_keys(prefix: Path, wanted: Mapping[str, Any]) -> dict[str, list[int]]:
    """The keys of a checkpoint with their shapes; an error where wanted keys are missing or of another shape (None: any)."""
    held: dict[str, list[int]] = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
    extra = [key for key in set(held) - set(wanted) if not key.startswith(_INPUT)]
    other = [f"{key} is {held[key]}, not {list(shape)}" for key, shape in wanted.items()
             if key in held and shape is not None and list(shape) != held[key]]  # fmt: skip
    missing = sorted(set(wanted) - set(held), key=lambda key: (key.count("/"), key))  # slots after their variables
    if missing or other:
        for i, key in enumerate(missing[:_MOST_NAMED]):
            missing[i] += "".join(f" (nearest: {near})" for near in near_nodes(key, held)[:1])
        groups = {"missing": missing, "of another shape": sorted(other), "extra": sorted(extra)}
        said = "; ".join(f"{label}: {first_few(names, _MOST_NAMED)}" for label, names in groups.items() if names)
        raise CheckpointError(
            f"the checkpoint '{prefix}' does not match the graph; {said}",
            fix="a checkpoint of this model; or another model_dir, where training starts anew, or with warm_start_from from the "
            "variables that this checkpoint has",
        )
    return held


def write_durably(
    prefix: Path, write: Callable[[str], None], *, keep: int | None = KEEP, spare: Callable[[Path], bool] | None = None
) -> None:
    """Write a checkpoint atomically, also under a kill or power cut, and list it.

    ``write`` writes its files under a given prefix. ``keep`` and ``spare`` are those of
    :func:`tpugraph.runtime.checkpoints.checkpoint_folder.name`.
    """
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        write(str(checkpoint_folder.staged(prefix)))
        checkpoint_folder.put_in_place(prefix)
        trust(prefix)
        checkpoint_folder.name(prefix, keep=keep, spare=spare)
    except (tf.errors.OpError, OSError, LoadError) as error:
        with contextlib.suppress(OSError):  # the folder may have been removed
            checkpoint_folder.discard(prefix)
        raise CheckpointError(f"the checkpoint '{prefix}' cannot be written: {first_words(error)}",
                              fix="check the folder and the free space") from error  # fmt: skip


class Saver:
    """Saves and restores one session.

    ``forms`` are those of :func:`tpugraph.runtime.checkpoints.input_position.save_forms`; ``run`` runs fetches with feeds on the
    newest values.
    """

    def __init__(self, host: GraphSession, engine: Engine, saved: Mapping[str, Saved], forms: Mapping[str, str],
                 run: Callable[..., Any], note: Callable[[str], None]) -> None:  # fmt: skip
        self.saved = saved
        self._forms = forms
        self._host = host
        self._engine = engine
        self._run = run
        self._note = note
        self._copies: dict[str, _Copies] = {}
        self._writing: Future[None] | None = None

    def find(self, path: str | os.PathLike[str]) -> tuple[Path, bool]:
        """The prefix of a checkpoint, or of the newest in a folder, and whether it has the input's position."""
        prefix = resolve(path, self._note)
        return prefix, check(prefix, self.saved)

    def restore(self, prefix: Path) -> None:
        try:
            self._run(["tpugraph/restore"], {"tpugraph/checkpoint:0": str(prefix)})
        except RunError as error:
            fault = f"the checkpoint '{prefix}' cannot be restored: {error.fault}"
            raise CheckpointError(fault, fix="take an earlier one: files of this one may be cut off") from error
        self._engine.variables_changed()

    def restore_input(self, prefix: Path) -> str:
        """Restore the input's position from a checkpoint; returns why that is impossible, or ""."""
        if "tpugraph/restore_input" not in self._host.names:
            return "the position of the input is that of another graph"
        why = input_position.why_not(prefix, self._forms)
        if not why:
            try:
                self._run(["tpugraph/restore_input"], {"tpugraph/checkpoint:0": str(prefix)})
            except RunError as error:
                why = f"the input cannot go on from its position: {error.fault}"
        self._engine.input_changed()
        return why

    # ------------------------------------------------------------------ saving

    def save(self, prefix: Path, *, with_input: bool, in_background: bool, **kept: Any) -> None:
        """Write a checkpoint; of several processes only the writing one does.

        With ``with_input`` it has the input's position where that can be saved. With ``in_background`` this returns once the values
        are copied, and :meth:`wait` raises later failures.
        """
        self._host.require_open()
        self._engine.flush_variables()
        why_not = self._engine.save_position() if with_input else ""
        if why_not:
            self._note_no_position(why_not)
        if not self._engine.writes_files:
            return
        with_input = with_input and not why_not
        if in_background:
            self._save_in_background(prefix, with_input, kept)
        else:
            write_durably(prefix, lambda path: self._through(lambda entry: self._save(entry, path), with_input), **kept)

    def _through(self, save: Callable[[str], None], with_input: bool) -> None:
        """Save by the entry point with the input's position, or by the one without."""
        if with_input:
            why = "it is no dataset iterator"
            try:
                if "tpugraph/save_with_input" in self._host.names:
                    return save("tpugraph/save_with_input")
            except _NO_POSITION as error:
                why = first_words(error)[:160]
            self._note_no_position(why)
        return save("tpugraph/save")

    def _note_no_position(self, why: str) -> None:
        self._note(f"the input's position cannot be saved: {why}")

    def _save(self, entry: Any, path: str) -> None:
        self._host.session.run(entry, feed_dict={"tpugraph/checkpoint:0": path})

    def _save_in_background(self, prefix: Path, with_input: bool, kept: Mapping[str, Any]) -> None:
        """Copy the values, and write the copies in a thread, after the previous save has ended."""
        taken: list[_Copies] = []
        try:
            self._through(lambda entry: taken.append(self._take(entry)), with_input)
        except tf.errors.OpError as error:
            raise CheckpointError(f"the variables cannot be copied for the checkpoint '{prefix}': {first_words(error)}",
                                  fix="leave out --async_save") from error  # fmt: skip

        def write(path: str) -> None:
            try:
                self._save(taken[0].write, path)
            finally:
                self._host.session.run(taken[0].drop)

        self._writing = in_thread(lambda: write_durably(prefix, write, **kept), "tpugraph-save")

    def _take(self, entry: str) -> _Copies:
        if entry not in self._copies:
            with self._host.graph.as_default():
                self._copies[entry] = _copies_of(self._host.graph.get_operation_by_name(entry))
        self._host.session.run(self._copies[entry].take)
        return self._copies[entry]

    def wait(self) -> None:
        """Wait for the background save; raises its CheckpointError."""
        if self._writing is not None and ended(self._writing):
            written, self._writing = self._writing, None
            written.result()


@dataclass(frozen=True)
class _Copies:
    """Variables with copies of a save op's tensors: the ops that copy, write and free them.

    TensorFlow shares a buffer between two variables until one is updated (copy-on-write): the copy is nearly free, and the next
    step pays for the variables that it changes.
    """

    take: Any
    write: Any
    drop: Any


def _copies_of(save: Any) -> _Copies:
    prefix, keys, slices, *values = save.inputs
    takes, held, drops = [], [], []
    with tf.device(save.device):
        for number, value in enumerate(values):
            name = f"tpugraph/copies/{save.name.rpartition('/')[2]}/{number}"
            handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)
            takes.append(tf.raw_ops.AssignVariableOp(resource=handle, value=value))
            held.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype))
            drops.append(tf.raw_ops.DestroyResourceOp(resource=handle))
        write = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=keys, shape_and_slices=slices, tensors=held)
    return _Copies(tf.group(*takes), write, tf.group(*drops))
