"""The curves of a training from the command line: its event files, and the graph that it trains, in its ``model_dir``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.ir import graphdef
from tpugraph.ir.model_files import NAMES_IN_A_FOLDER
from tpugraph.runtime.event_files import Events, rates

MODEL = "model.meta"
"""The graph as it was given, in the folder: every command takes the folder as its MODEL."""


class Curves:
    """Event files of one training: the graph, and at each loop's end its loss, its rates and the graph's summaries.

    They are made at the first loop's end, so that a start that fails leaves the folder alone. The graph as it was given, ``model``,
    is kept beside them.
    """

    def __init__(self, folder: str, model: str, graph_def: Any, rows: int | None, step: int, *,
                 clock: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        self._folder, self._model, self._graph_def, self._began, self._rows = folder, model, graph_def, step, rows
        self._opened: Events | None = None
        self._clock, self._when = clock, clock()
        self._tags: set[str] = set()
        self._costs: tuple[int, Any] | None = None

    @property
    def _events(self) -> Events:
        if self._opened is None:
            keep_model(self._model, self._folder)
            self._opened = Events(self._folder)
            self._opened.start(self._began, self._graph_def)
        return self._opened

    def summary(self, step: int, serialized: bytes) -> None:
        """Write the summaries of a loop's last step, under the tags that the graph gives them."""
        self._tags = {value.tag for value in tf.compat.v1.Summary.FromString(serialized).value}
        self._events.summary(step, serialized)

    def loop(self, step: int, losses: list[float], costs: Any = None) -> None:
        """Write the loss of a loop's last step, unless a summary of the graph has its tag, and the rates of the loop.

        ``costs`` is the RunMetadata of the last loop that was measured; that of the last loop of all is written.
        """
        if costs is not None and (self._costs is None or costs is not self._costs[1]):
            self._costs = step, costs
        before, self._when = self._when, self._clock()
        shown = {"loss": losses[-1]} if losses and "loss" not in self._tags else {}
        self._events.scalars(step, **rates(len(losses), self._when - before, self._rows), **shown)

    def saved(self, step: int, checkpoint: str) -> None:
        """Write that a checkpoint was saved; what was written so far is on file then."""
        self._events.checkpoint(step, checkpoint)
        self._events.close()
        self._when = self._clock()  # saving is no part of the next loop

    def close(self) -> None:
        if self._costs is not None:
            self._events.costs(*self._costs)
        if self._opened is not None:
            self._opened.close()


def keep_model(model: str, folder: str) -> None:
    """Write the graph that is trained into the folder, as :data:`MODEL`, unless the folder has one of another program's."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    others = [*place.glob("*.meta"), *(place / name for names in NAMES_IN_A_FOLDER for name in names)]
    if not any(path.exists() for path in others if path.name != MODEL):
        graphdef.save_meta(graphdef.sniff(Path(model)), place / MODEL)
