"""Training from the command line: losses on file, checkpoints at loop ends, progress, and an answer to signals."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from concurrent.futures import Future, wait
from pathlib import Path
from types import FrameType
from typing import Any

from tpugraph.cli.console import Console, loss_line
from tpugraph.cli.convert import check_writable
from tpugraph.cli.curves import Curves
from tpugraph.runtime.checkpoints.checkpoint_folder import PREFIX
from tpugraph.runtime.session import SummaryCallback, TPUSession
from tpugraph.runtime.timeline import OFF, SAVE, Timeline
from tpugraph.support import files
from tpugraph.support.errors import RunError
from tpugraph.support.process import in_thread, signals_to
from tpugraph.support.progress import Progress
from tpugraph.support.wording import counted

_SAVE_SECONDS = 600.0
_PATIENCE = 20.0  # seconds that the loop at work may go on after the first signal
_LAST_SECONDS = 0.3  # for each of the parts that are given up to end


# --------------------------------------------------------------------------- losses


class LossFile:
    """The file with a line per step, if any; it is opened at the first loop's end, so that a failed start leaves it alone."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._opened = False
        if self._path is not None:
            check_writable(self._path, "--losses")

    def write(self, first_step: int, losses: list[float]) -> None:
        if self._path is None or not losses:
            return
        lines = [loss_line(step, loss) for step, loss in enumerate(losses, first_step)]
        try:
            if not self._opened:
                files.write_atomically(self._path, "".join(self._kept(first_step)).encode())
                self._opened = True
            with self._path.open("a") as file:
                file.writelines(lines)
        except OSError as error:
            raise RunError(
                f"--losses={self._path} cannot be written: {error.strerror}", fix="check the free space"
            ) from error

    def _kept(self, first_step: int) -> list[str]:
        """The lines of an earlier run that this one goes on from."""
        if self._path is None or first_step <= 1 or not self._path.exists():
            return []
        kept = []
        for line in self._path.read_text(errors="replace").splitlines(keepends=True):
            try:
                if json.loads(line)["step"] < first_step:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
        return kept


# --------------------------------------------------------------------------- training


def _leave(step: int, summaries: bytes) -> None:
    """Leave summaries to the process that writes them."""


class _Stopped(Exception):
    """Raised at a loop's end after a signal."""


class Training:
    """Trains in a thread of its own, so that signals are answered while a loop runs, which may be ``abandoned`` while at work."""

    def __init__(self, session: TPUSession, console: Console, steps: int, losses: LossFile, model_dir: str | None,
                 save_steps: int | None, curves: Curves | None = None, timeline: Timeline = OFF, *,
                 in_background: bool = False) -> None:  # fmt: skip
        self.session, self.console, self.steps, self.losses = session, console, steps, losses
        self.model_dir, self.save_steps, self.in_background = model_dir, save_steps, in_background
        self.curves, self.timeline = curves, timeline
        self.done, self.seconds, self.abandoned, self._finite = 0, 0.0, False, True
        resumed = session.restored_from
        own = (
            model_dir is not None
            and resumed is not None
            and Path(resumed).parent.resolve() == Path(model_dir).resolve()
        )
        self.checkpoint = resumed if own else None
        self._under_way: str | None = None
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self._counted, self._begin = session.global_step >= 0, max(session.global_step, 0)
        self._saved_at, self._saved_when = 0, time.monotonic()
        self._notes_said = len(session.notes)
        self._signals: list[int] = []
        self._progress = Progress(console.stream, steps, start=self._begin)

    @property
    def step(self) -> int:
        """The global step; counted here for a graph without a counter of its own."""
        return self._begin + self.done

    def run(self) -> int:
        """Train to the end, the end of the data or a signal; returns the exit code."""
        started = time.monotonic()
        on_summary: SummaryCallback | None = None if self.curves is None else self.curves.summary
        if not self.session.writes_files:  # what the first process reads, all gather
            on_summary = _leave
        with signals_to(self._on_signal, (signal.SIGINT, signal.SIGTERM)):
            running = in_thread(
                lambda: self.session.train(self.steps, on_loop=self._after_loop, on_summary=on_summary),
                "tpugraph-train",
            )
            first_signal = 0.0
            while not wait([running], 0.1).done:
                first_signal = first_signal or (time.monotonic() if self._signals else 0.0)
                if len(self._signals) > 1 or (first_signal and time.monotonic() - first_signal > _PATIENCE):
                    return self._abandon(running)
            self.seconds = time.monotonic() - started
            self._progress.close()
            failure = running.exception()
            if failure is not None and not isinstance(failure, _Stopped):
                raise failure
            if self._unsaved():
                self._save()
            self._wait_for_save()
        self._say_notes()
        self._say_end()
        return 128 + self._signals[0] if self._signals else 0

    def summary(self) -> dict[str, Any]:
        return {
            "steps": self.done,
            "global_step": self.step,
            "first_loss": self.first_loss,
            "last_loss": self.last_loss,
            "num_replicas": self.session.num_replicas,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(self.done / self.seconds, 3) if self.seconds else None,
            "checkpoint": self.checkpoint,
            "interrupted": bool(self._signals),
        }

    def _after_loop(self, global_step: int, losses: list[float]) -> None:
        first = self.step + 1 if not self._counted else global_step - len(losses) + 1
        self.losses.write(first, losses)
        self.done += len(losses)
        if losses:
            self.first_loss = losses[0] if self.first_loss is None else self.first_loss
            self.last_loss = losses[-1]
            self._progress.update(self.done, losses[-1])
            self._check_finite(first, losses)
            if self.curves is not None:
                self.curves.loop(self.step, losses, self.session.loop_costs)
        # processes that were joined stop and save at the same loop's end: sharded variables are gathered by all of them
        asked = 2 * (self._signals[0] if self._signals else 0) + self._due()
        agreed = self.session.agree(asked)
        if agreed > 1:
            self._signals = self._signals or [agreed // 2]
            raise _Stopped
        if agreed:
            self._save()

    def _check_finite(self, first: int, losses: list[float]) -> None:
        bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if bad is not None and self._finite:
            self._finite = False
            self._progress.message(f"note: the loss is {losses[bad]} at step {first + bad:,}")

    def _due(self) -> bool:
        if self.model_dir is None or self.done >= self.steps:
            return False
        if self.save_steps is not None:
            return self.done - self._saved_at >= self.save_steps
        return time.monotonic() - self._saved_when >= _SAVE_SECONDS

    def _unsaved(self) -> bool:
        """Whether the model_dir lacks the trained state."""
        return self.model_dir is not None and (self._saved_at != self.done or not (self.checkpoint or self._under_way))

    def _save(self) -> None:
        assert self.model_dir is not None
        self._wait_for_save()
        in_background = self.in_background and self.done < self.steps and not self._signals
        with self.timeline.span(SAVE):
            self._under_way = self.session.save(os.path.join(self.model_dir, PREFIX), in_background=in_background)
            if not in_background:
                self._wait_for_save()
        self._saved_at, self._saved_when = self.done, time.monotonic()
        if self.curves is not None:
            self.curves.saved(self.step, self._under_way)
        self._say_notes()

    def _wait_for_save(self) -> None:
        """Wait until the checkpoint under way is written whole."""
        self.session.wait_for_save()
        self.checkpoint = self._under_way or self.checkpoint

    def _say_notes(self) -> None:
        for note in dict.fromkeys(self.session.notes[self._notes_said :]):
            if note not in self.session.notes[: self._notes_said]:
                self._progress.message(f"note: {note}")
        self._notes_said = len(self.session.notes)

    def _say_end(self) -> None:
        rate = f" in {self.seconds:.1f} s ({self.done / self.seconds:,.1f} steps/s)" if self.seconds else ""
        loss = "" if self.last_loss is None else f", loss {self.last_loss:.6g}"
        stopped = f"{signal.Signals(self._signals[0]).name}: stopped after " if self._signals else "trained "
        self.console.say(f"{stopped}{counted(self.done, 'step')}{rate}{loss}")
        if self.checkpoint is not None:
            self.console.say(f"saved {self.checkpoint}")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if len(self._signals) == 1:
            self._progress.message("stopping at the end of this loop; once more to stop at once")

    def _abandon(self, running: Future[Any]) -> int:
        """Give up the loop at work; the last checkpoint stays as it is."""
        self.abandoned = True
        self._progress.close()
        wait([in_thread(self.session.close, "tpugraph-close")], _LAST_SECONDS)
        wait([running], _LAST_SECONDS)
        kept = f"the last checkpoint is {self.checkpoint}" if self.checkpoint else "no checkpoint was written"
        self.console.say(f"stopped in the middle of a loop after {counted(self.done, 'step')}; {kept}")
        return 128 + self._signals[0]
