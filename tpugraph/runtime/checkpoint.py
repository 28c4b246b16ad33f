"""Checkpoints of a graph: found, checked against it, saved whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.saves import saved_by
from tpugraph.ir.walks import source_of
from tpugraph.runtime import input_position
from tpugraph.runtime.checkpoints import checkpoint_folder
from tpugraph.runtime.checkpoints.background_save import BackgroundSave
from tpugraph.runtime.checkpoints.checkpoint_folder import KEEP, index_of, newest
from tpugraph.runtime.checkpoints.manifest import trust, verify
from tpugraph.runtime.engine import Engine
from tpugraph.runtime.failures import first_words
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.support.errors import CheckpointError, GraphError, LoadError, RunError
from tpugraph.support.suggestions import near_nodes
from tpugraph.tables.sharding import ROWS, table_of

_INPUT = "tpugraph/input/"
_AGAIN = "convert the plain graph again"
_NO_POSITION = (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError, tf.errors.InvalidArgumentError)
"""What TensorFlow says of an input whose position it cannot save."""


@dataclass(frozen=True)
class Held:
    """A variable of the graph that holds a saved variable, or some of its rows.

    Attributes:
        variable: its name.
        read: the tensor that reads what is saved.
        rows: how many rows it holds of the saved variable; None where it holds all.
        room: the shape of what it has room for, with ``rows``.
    """

    variable: str
    read: str
    rows: int | None = None
    room: tuple[int, ...] = ()


def held_by(graph: Graph) -> dict[str, tuple[Held, ...]]:
    """What holds each saved variable, by its name in the plain graph: one variable, or the shards of a table in their order."""
    found: dict[str, tuple[Held, ...]] = {}
    for _, _, tensor in _saved(graph):
        handle = _handle(tensor)
        room = tuple(handle.attr("shape")) if handle.has_attr(ROWS) else ()
        held = Held(handle.name, f"{tensor.node.name}:{tensor.port}", handle.attr(ROWS, None), room)
        found[table_of(handle)] = (*found.get(table_of(handle), ()), held)
    return found


def keys_of(graph: Graph) -> dict[str, tuple[str, str, tuple[int | None, ...] | None]]:
    """Of each saved variable: its checkpoint key, its slice and its shape, read from the graph's save op."""
    found = {}
    for key, piece, tensor in _saved(graph):
        handle = _handle(tensor)
        whole = (key, "", _whole_shape(piece, ())) if handle.has_attr(ROWS) else (key, piece, handle.attr("shape"))
        found[table_of(handle)] = whole
    return found


def _saved(graph: Graph) -> list[tuple[str, str, Tensor]]:
    save = graph.get("tpugraph/save")
    found = [] if save is None else saved_by(save)
    if found is None:
        raise GraphError("the keys of the checkpoint are no constants", node=save, origin=graph.source, fix=_AGAIN)
    return found


def _handle(tensor: Tensor) -> Node:
    """The variable that a saved tensor is read from, perhaps some of its rows."""
    handle = source_of(tensor, ops.SLICES | ops.READS).node
    if handle.op not in ops.RESOURCE_VARIABLES:
        raise GraphError("what is saved is read from no variable", node=tensor.node, fix=_AGAIN)
    return handle


def resolve(path: str | os.PathLike[str], say: Callable[[str], None]) -> Path:
    """The prefix of a checkpoint: the path itself, or the newest whole one of a folder.

    Args:
        path: a prefix or a folder.
        say: told of each newer one of a folder that is damaged.

    Raises:
        CheckpointError: there is none.
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
        raise CheckpointError(
            f"there is no checkpoint '{prefix}'", fix=f"there is: {', '.join(near)}" if near else "check the path"
        )
    return prefix


def check(prefix: Path, saved: Mapping[str, tuple[str, str, Any]]) -> bool:
    """Check that a checkpoint holds every variable in its shape; returns whether it holds the input's position.

    Raises:
        CheckpointError: it is damaged, or does not match: what is missing, extra or of another shape is named.
    """
    verify(prefix)
    held = compare_keys(prefix, {key: _whole_shape(piece, shape) for key, piece, shape in saved.values()})
    return any(key.startswith(_INPUT) for key in held)


def compare_keys(prefix: Path, wanted: Mapping[str, Any]) -> dict[str, list[int]]:
    """The keys of a checkpoint with their shapes.

    Args:
        prefix: the checkpoint.
        wanted: the keys that it must have, with their shapes; None where any will do.

    Raises:
        CheckpointError: what is missing, with the nearest key that is there, extra or of another shape is named.
    """
    held: dict[str, list[int]] = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
    extra = [key for key in set(held) - set(wanted) if not key.startswith(_INPUT)]
    other = [
        f"{key} is {held[key]}, not {list(shape)}"
        for key, shape in wanted.items()
        if key in held and shape is not None and list(shape) != held[key]
    ]
    missing = sorted(set(wanted) - set(held), key=lambda key: (key.count("/"), key))  # slots behind their variables
    if missing or other:
        missing[:_MOST_NAMED] = [_with_nearest(key, held) for key in missing[:_MOST_NAMED]]
        said = [
            f"{label}: {_some(names)}"
            for label, names in (("missing", missing), ("of another shape", sorted(other)), ("extra", sorted(extra)))
            if names
        ]
        raise CheckpointError(
            f"the checkpoint '{prefix}' does not match the graph; {'; '.join(said)}",
            fix="a checkpoint of this model; or another model_dir, where training starts anew, or with warm_start_from from the "
            "variables that this checkpoint has",
        )
    return held


_MOST_NAMED = 5


def _with_nearest(key: str, held: Mapping[str, Any]) -> str:
    near = near_nodes(key, held)
    return f"{key} (nearest: {near[0]})" if near else key


def _some(names: list[str]) -> str:
    return (
        f"{', '.join(names[:_MOST_NAMED])}{f' and {len(names) - _MOST_NAMED} more' if len(names) > _MOST_NAMED else ''}"
    )


def _whole_shape(piece: str, shape: Any) -> Any:
    """A slice spec such as ``20 4 0,10:0,4`` starts with the whole variable's dimensions."""
    if not piece:
        return shape
    return tuple(int(d) for d in piece.split()[:-1])


def save(session: Any, names: set[str], prefix: Path, *, with_input: bool = True, **kept: Any) -> str | None:
    """Write a checkpoint and point the folder's ``checkpoint`` file at it; returns a note about the input, if any.

    Args:
        session: the TensorFlow session.
        names: the ops of its graph.
        prefix: the checkpoint.
        with_input: whether the position of the input belongs to it.
        **kept: which older ones are kept, as of :func:`write_durably`.

    Raises:
        CheckpointError: it cannot be written.
    """
    notes: list[str | None] = []

    def write(path: str) -> None:
        feed = {"tpugraph/checkpoint:0": path}
        notes.append(_with_position(names, lambda entry: session.run(entry, feed_dict=feed), wanted=with_input))

    write_durably(prefix, write, **kept)
    return notes[0]


def save_beside(
    background: BackgroundSave, names: set[str], prefix: Path, *, with_input: bool = True, **kept: Any
) -> str | None:
    """As :func:`save`, but return once the values are copied; ``background.wait()`` raises what fails later.

    Raises:
        CheckpointError: the values cannot be copied.
    """
    writers: list[Callable[[str], None]] = []
    try:
        note = _with_position(names, lambda entry: writers.append(background.take(entry)), wanted=with_input)
    except tf.errors.OpError as error:
        raise CheckpointError(f"the variables cannot be copied for the checkpoint '{prefix}': {first_words(error)}",
                              fix="leave out --async_save") from error  # fmt: skip
    background.start(lambda: write_durably(prefix, writers[0], **kept))
    return note


def _with_position(names: set[str], attempt: Callable[[str], object], *, wanted: bool) -> str | None:
    """Save through the entry point that has the input's position, or else through the other; returns why not."""
    why = "it is no dataset iterator" if wanted else None
    if "tpugraph/save_with_input" in names:
        try:
            attempt("tpugraph/save_with_input")
            return None
        except _NO_POSITION as error:
            why = first_words(error)[:160]
    attempt("tpugraph/save")
    return None if why is None else f"the input's position cannot be saved: {why}"


def write_durably(
    prefix: Path, write: Callable[[str], None], *, keep: int | None = KEEP, spare: Callable[[Path], bool] | None = None
) -> None:
    """Make a checkpoint that a kill or a power cut leaves either whole or not there, and name it.

    Args:
        prefix: the checkpoint.
        write: writes its files under the prefix that it is given.
        keep: how many of the newest of the folder are kept, this one counted; all when 0 or None.
        spare: asked of each that would be removed: whether it stays for good.

    Raises:
        CheckpointError: it cannot be written; earlier ones are left whole.
    """
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        write(str(checkpoint_folder.staged(prefix)))
        checkpoint_folder.put_in_place(prefix)
        trust(prefix)
        checkpoint_folder.name(prefix, keep=keep, spare=spare)
    except (tf.errors.OpError, OSError, LoadError) as error:
        with contextlib.suppress(OSError):  # the folder may be gone
            checkpoint_folder.discard(prefix)
        raise CheckpointError(
            f"the checkpoint '{prefix}' cannot be written: {first_words(error)}",
            fix="check the folder and the free space",
        ) from error


class SessionCheckpoints:
    """The checkpoints of one session.

    Args:
        host: the session of what TensorFlow runs.
        engine: what runs the steps.
        keys: of each saved variable its checkpoint key, slice and shape; see :func:`tpugraph.runtime.checkpoint.keys_of`.
        forms: the form of each input; see :func:`tpugraph.runtime.input_position.save_forms`.
        run: runs fetches with feeds on the newest values.
        note: told what is worth knowing, in sentences.

    Attributes:
        keys: as given.
    """

    def __init__(self, host: GraphSession, engine: Engine, keys: Mapping[str, Any], forms: Mapping[str, str],
                 run: Callable[..., Any], note: Callable[[str], None]) -> None:  # fmt: skip
        self.keys = keys
        self._forms = forms
        self._host = host
        self._engine = engine
        self._run = run
        self._note = note
        self._background = BackgroundSave(host.session)

    def find(self, path: str | os.PathLike[str]) -> tuple[Path, bool]:
        """The prefix of a checkpoint that fits the graph, and whether it holds the position of the input.

        Args:
            path: the prefix, or a folder whose newest one is taken.

        Raises:
            CheckpointError: there is none, or it does not match.
        """
        prefix = resolve(path, self._note)
        return prefix, check(prefix, self.keys)

    def restore(self, prefix: Path) -> None:
        """Give variables the values of a checkpoint that fits.

        Raises:
            CheckpointError: a file of it cannot be read.
        """
        try:
            self._run(["tpugraph/restore"], {"tpugraph/checkpoint:0": str(prefix)})
        except RunError as error:
            fault = f"the checkpoint '{prefix}' cannot be restored: {error.fault}"
            raise CheckpointError(fault, fix="take an earlier one: files of this one may be cut off") from error
        self._engine.variables_changed()

    def restore_input(self, prefix: Path) -> str:
        """Let the input go on where a checkpoint has it; returns why it cannot, else ""."""
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

    def save(self, prefix: Path, *, with_input: bool, beside: bool, **kept: Any) -> None:
        """Write a checkpoint, from the one process of several that writes.

        Args:
            prefix: the checkpoint.
            with_input: whether it holds the position of the input, where that can be told.
            beside: return once the values are copied.
            **kept: which older ones are kept, as of :func:`tpugraph.runtime.checkpoint.write_durably`.

        Raises:
            CheckpointError: it cannot be written; earlier ones are left whole.
        """
        self._host.require_open()
        self._engine.give_back()
        why_not = self._engine.hold_position() if with_input else ""
        if why_not:
            self._note(f"the input's position cannot be saved: {why_not}")
        if not self._engine.writes_files:
            return
        with_input = with_input and not why_not
        names = set(self._host.names) if with_input else {"tpugraph/save"}
        if beside:
            note = save_beside(self._background, names, prefix, with_input=with_input, **kept)
        else:
            note = save(self._host.session, names, prefix, with_input=with_input, **kept)
        if note:
            self._note(note)

    def wait(self) -> None:
        """Wait until no checkpoint is being written.

        Raises:
            CheckpointError: the one that was written beside training could not be.
        """
        self._background.wait()
