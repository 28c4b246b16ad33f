"""The state of a graph in a session: its variables and where its input stands, from the first value to the last checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tpugraph.ir import Graph
from tpugraph.runtime import checkpoint, input_forms
from tpugraph.runtime.checkpoint import SessionCheckpoints
from tpugraph.runtime.checkpoints.checkpoint_folder import KEEP, step_of
from tpugraph.runtime.engine import Engine
from tpugraph.runtime.graph_session import GraphSession
from tpugraph.runtime.variables import Variables
from tpugraph.support.errors import CheckpointError


class StatefulSession:
    """A session on a graph whose variables can be initialized, restored, saved, read and written.

    Args:
        graph: what TensorFlow runs of the graph.
        engine: what runs the steps; it may hold newer values than TensorFlow.
        start: makes the TensorFlow session on the ``tf.Graph``.
        files: the names of files in the graph.
        stall_seconds: see :class:`tpugraph.runtime.session.TPUSession`.

    Attributes:
        engine: as given.
        notes: what is worth knowing, as sentences.
        restored_from: the prefix of the checkpoint that was restored last; None before.
    """

    def __init__(self, graph: Graph, engine: Engine, start: Callable[[Any], Any], files: set[str], *,
                 stall_seconds: float | None = None) -> None:  # fmt: skip
        self.engine = engine
        self.notes = list(engine.notes)
        self.restored_from: str | None = None
        held, keys, forms = checkpoint.held_by(graph), checkpoint.keys_of(graph), input_forms.save_forms(graph)
        self._host = GraphSession(graph, start, files=files, note=self.notes.append, stall_seconds=stall_seconds)
        engine.attach(self._host)
        self._variables = Variables(self._host.graph, held, self._run)
        self._checkpoints = SessionCheckpoints(self._host, engine, keys, forms, self._run, self.notes.append)
        self._trained = 0
        self._initialized = False
        self._run(["tpugraph/configure"])

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Shut the system down and release the session, once a save beside training has ended; closing twice is fine."""
        if self._host.closed:
            return
        try:
            self.wait_for_save()
        except CheckpointError as error:
            self.notes.append(error.fault)
        try:
            self._host.close()
        finally:
            self.engine.close()

    def initialize(self) -> None:
        """Give every variable its first value and open the input."""
        self._run(["tpugraph/init"])
        self.engine.input_changed()
        self.engine.variables_changed()
        self._host.steps_were_reset()
        self._initialized = True
        self._host.fill_queues()

    def restore(self, path: str | os.PathLike[str], *, with_input: bool = True) -> int:
        """Restore variables, and the position of the input where the checkpoint has it and the graph trains.

        Args:
            path: a checkpoint prefix such as ``model_dir/model.ckpt-100``, or a folder whose newest one is taken.
            with_input: whether the input goes on where it was; else it starts anew.

        Returns:
            The global step restored.

        Raises:
            CheckpointError: no checkpoint, or one that does not match; what is missing or differs is named.
        """
        prefix, has_input = self._checkpoints.find(path)
        trains = "tpugraph/train" in self._host.names  # others begin with the first batch, of an input of their own
        used = self._initialized
        if not used:
            self._run(["tpugraph/init_local"])
            self._start_input()
            self._initialized = True
        self._checkpoints.restore(prefix)
        why_anew = "" if has_input else "the checkpoint holds no position of the input"
        if has_input and with_input and trains:
            used, why_anew = True, self._checkpoints.restore_input(prefix)
        if trains and used and (why_anew or not with_input):
            self._start_input()
        self._trained = step_of(prefix)
        self.restored_from = str(prefix)
        step = self.global_step
        if why_anew and step > 0 and with_input and trains:
            self.notes.append(f"{why_anew}: it starts anew at step {step}")
        self._host.fill_queues()
        return step

    def _start_input(self) -> None:
        """Let the input begin with its first batch."""
        self._run(["tpugraph/init_input"])
        self.engine.input_changed()

    def save(self, path: str | os.PathLike[str], *, with_input: bool = True, keep: int | None = KEEP,
             spare: Callable[[Path], bool] | None = None, beside: bool = False) -> str:  # fmt: skip
        """Write a checkpoint ``path-STEP`` and name it in the folder's ``checkpoint`` file; returns its prefix.

        A save that still goes on beside is waited for first, and what it failed at is raised.

        Args:
            path: the prefix without the step.
            with_input: whether it holds the position of the input.
            keep: how many of the newest checkpoints of the folder are kept; all when 0 or None.
            spare: asked for each older checkpoint that would be removed, by its prefix: whether it stays for good.
            beside: return as soon as the variables are copied, and write them beside training; :meth:`wait_for_save`
                tells whether that worked.

        Raises:
            CheckpointError: the folder cannot be written; earlier checkpoints are left whole.
        """
        self.wait_for_save()
        step = f"-{self.global_step}"
        prefix = str(path).removesuffix(step) + step
        self._checkpoints.save(Path(prefix), with_input=with_input, keep=keep, spare=spare, beside=beside)
        return prefix

    def wait_for_save(self) -> None:
        """Wait until no checkpoint is being written.

        Raises:
            CheckpointError: the one that was written beside training could not be.
        """
        self._checkpoints.wait()

    @property
    def global_step(self) -> int:
        """The step counter; for a graph without one, the steps that this session and its checkpoint have trained."""
        counted = int(self._run("tpugraph/global_step:0"))
        return self._trained if counted < 0 else counted

    # ------------------------------------------------------------------ variables

    def value(self, name: str) -> np.ndarray[Any, Any]:
        """The value of a variable, by its name in the plain graph.

        Raises:
            RunError: there is no such variable.
        """
        return self.values([name])[name]

    def values(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """The values of several variables of the graph in one run; all that a checkpoint holds when ``names`` is None.

        Raises:
            RunError: there is no such variable.
        """
        return self._variables.values(names)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Give variables that a checkpoint holds new values, by their name in the plain graph.

        Raises:
            RunError: there is no such variable, or a value of another shape.
        """
        self._variables.assign(values)
        self.engine.variables_changed()

    def variable_names(self) -> list[str]:
        """The variables that a checkpoint holds, by their name in the graph."""
        return list(self._checkpoints.keys)

    def _run(self, fetch: Any, feed: Mapping[Any, Any] | None = None) -> Any:
        self._host.require_open()
        self.engine.give_back(fetch)
        return self._host.run(fetch, feed)
