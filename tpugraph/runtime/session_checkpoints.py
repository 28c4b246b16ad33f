"""What a session saves and restores: its variables, wherever the engine holds them, and the position of its input."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tpugraph.runtime import checkpoint, input_forms
from tpugraph.runtime.checkpoints.background_save import BackgroundSave
from tpugraph.runtime.engine import Engine
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.support.errors import CheckpointError, RunError


class SessionCheckpoints:
    """The checkpoints of one session.

    Args:
        host: the session of what TensorFlow runs.
        engine: what runs the steps.
        keys: of each saved variable its checkpoint key, slice and shape; see :func:`tpugraph.runtime.checkpoint.keys_of`.
        forms: the form of each input; see :func:`tpugraph.runtime.input_forms.save_forms`.
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
        prefix = checkpoint.resolve(path, self._note)
        return prefix, checkpoint.check(prefix, self.keys)

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
        why = input_forms.why_not(prefix, self._forms)
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
            note = checkpoint.save_beside(self._background, names, prefix, with_input=with_input, **kept)
        else:
            note = checkpoint.save(self._host.session, names, prefix, with_input=with_input, **kept)
        if note:
            self._note(note)

    def wait(self) -> None:
        """Wait until no checkpoint is being written.

        Raises:
            CheckpointError: the one that was written beside training could not be.
        """
        self._background.wait()
