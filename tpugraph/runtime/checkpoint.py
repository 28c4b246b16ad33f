"""Checkpoints: find, check against the graph, save whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.saves import saved_by
from tpugraph.support import files
from tpugraph.support.errors import CheckpointError, GraphError

KEEP = 5
_INPUT = "tpugraph/input/"
_AGAIN = "convert the plain graph again"


def reads_of(graph: Graph) -> dict[str, str]:
    """Of each saved variable: the tensor that reads it for the graph's save op."""
    return {_handle(tensor).name: f"{tensor.node.name}:{tensor.port}" for _, _, tensor in _saved(graph)}


def keys_of(graph: Graph) -> dict[str, tuple[str, str, tuple[int | None, ...] | None]]:
    """Of each saved variable: its checkpoint key, its slice and its shape, read from the graph's save op."""
    found = {}
    for key, piece, tensor in _saved(graph):
        handle = _handle(tensor)
        found[handle.name] = (key, piece, handle.attr("shape"))
    return found


def _saved(graph: Graph) -> list[tuple[str, str, Tensor]]:
    save = graph.get("tpugraph/save")
    found = [] if save is None else saved_by(save)
    if found is None:
        raise GraphError("the keys of the checkpoint are no constants", node=save, origin=graph.source, fix=_AGAIN)
    return found


def _handle(tensor: Tensor) -> Node:
    """The variable that a saved tensor is read from."""
    handle = tensor.node.inputs[0].node if tensor.node.inputs else tensor.node
    if handle.op not in ops.RESOURCE_VARIABLES:
        raise GraphError("what is saved is read from no variable", node=tensor.node, fix=_AGAIN)
    return handle


def resolve(path: str | os.PathLike[str]) -> Path:
    """The prefix of a checkpoint: the path itself, or the newest one of a folder.

    Raises:
        CheckpointError: there is none.
    """
    if Path(path).is_dir():
        latest = tf.train.latest_checkpoint(str(path))
        if latest is None:
            raise CheckpointError(
                f"the folder '{path}' holds no checkpoint", fix="give the prefix, such as model.ckpt-100"
            )
        return Path(latest)
    prefix = str(path).removesuffix(".index").removesuffix(".meta")
    if not Path(f"{prefix}.index").exists():
        near = sorted(p.name.removesuffix(".index") for p in Path(prefix).parent.glob("*.index"))[:4]
        raise CheckpointError(
            f"there is no checkpoint '{prefix}'", fix=f"there is: {', '.join(near)}" if near else "check the path"
        )
    return Path(prefix)


def step_of(prefix: Path) -> int:
    """The step in a checkpoint's name, 0 where the name has none."""
    digits = prefix.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def check(prefix: Path, saved: Mapping[str, tuple[str, str, Any]]) -> bool:
    """Check that a checkpoint holds every variable in its shape; returns whether it holds the input's position.

    Raises:
        CheckpointError: what is missing, extra or of another shape is named.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        held = reader.get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint '{prefix}' cannot be read: {str(error).splitlines()[0]}", fix="take an earlier one"
        ) from error
    wanted = {key: _whole_shape(piece, shape) for key, piece, shape in saved.values()}
    missing = sorted(set(wanted) - set(held))
    extra = sorted(key for key in set(held) - set(wanted) if not key.startswith(_INPUT))
    other = [
        f"{key} is {held[key]}, not {list(shape)}"
        for key, shape in sorted(wanted.items())
        if key in held and shape is not None and list(shape) != list(held[key])
    ]
    if missing or other:
        parts = []
        for label, names in (("missing", missing), ("of another shape", other), ("extra", extra)):
            if names:
                parts.append(
                    f"{label}: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
                )
        raise CheckpointError(
            f"the checkpoint '{prefix}' does not match the graph; {'; '.join(parts)}",
            fix="take the checkpoint of this model",
        )
    return any(key.startswith(_INPUT) for key in held)


def _whole_shape(piece: str, shape: Any) -> Any:
    """A slice spec such as ``20 4 0,10:0,4`` starts with the whole variable's dimensions."""
    if not piece:
        return shape
    return tuple(int(d) for d in piece.split()[:-1])


def save(
    session: Any, names: set[str], prefix: Path, *, keep: int | None = KEEP, with_input: bool = True
) -> str | None:
    """Write a checkpoint and point the folder's ``checkpoint`` file at it; returns a note about the input, if any.

    The data and the index are written under temporary names and moved into place, the index last, and only then is the
    checkpoint named: a kill at any moment leaves the last complete one usable.

    Raises:
        CheckpointError: it cannot be written.
    """
    feed = {"tpugraph/checkpoint:0": str(prefix)}
    note = None
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        if "tpugraph/save_with_input" in names:
            try:
                session.run("tpugraph/save_with_input", feed_dict=feed)
            except (
                tf.errors.FailedPreconditionError,
                tf.errors.UnimplementedError,
                tf.errors.InvalidArgumentError,
            ) as error:
                note = f"the input's position cannot be saved: {str(error).splitlines()[0][:160]}"
                session.run("tpugraph/save", feed_dict=feed)
        else:
            note = "the input's position cannot be saved: it is no dataset iterator" if with_input else None
            session.run("tpugraph/save", feed_dict=feed)
        name(prefix, keep=keep)
    except (tf.errors.OpError, OSError) as error:
        raise CheckpointError(
            f"the checkpoint '{prefix}' cannot be written: {str(error).splitlines()[0]}",
            fix="check the folder and the free space",
        ) from error
    return note


def name(prefix: Path, *, keep: int | None = KEEP) -> None:
    """Name the checkpoint in its folder's ``checkpoint`` file, by relative names so that the folder can be moved.

    Args:
        prefix: the checkpoint.
        keep: how many of the newest are kept, this one counted; all when 0 or None.
    """
    state = tf.train.get_checkpoint_state(str(prefix.parent))
    known = [Path(p) for p in state.all_model_checkpoint_paths] if state is not None else []
    others = [p for p in known if p.name != prefix.name and Path(f"{p}.index").exists()]
    kept = [*(others[max(0, len(others) - keep + 1) :] if keep else others), prefix]
    names = [p.name for p in kept]
    lines = [f'model_checkpoint_path: "{prefix.name}"', *(f'all_model_checkpoint_paths: "{n}"' for n in names)]
    files.write_atomically(prefix.parent / "checkpoint", ("\n".join(lines) + "\n").encode())
    for old in known:
        if old.name not in names:
            for file in old.parent.glob(f"{old.name}.*"):
                file.unlink(missing_ok=True)
