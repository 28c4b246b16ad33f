"""Checkpoints at loop ends: when, under which name, and who is told."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import instance
from tpugraph.estimator.host_session import HostSession
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.tracing import Traced
from tpugraph.estimator.warm_start import WarmStartSettings, warm_start
from tpugraph.ir import graphdef
from tpugraph.runtime import checkpoint
from tpugraph.runtime.event_files import Events
from tpugraph.runtime.session import TPUSession
from tpugraph.support import files
from tpugraph.support.errors import CheckpointError, LoadError

tf1 = tf.compat.v1
PREFIX = "model.ckpt"


def first_checkpoint(traced: Traced, host: HostSession, model_dir: str, warm: WarmStartSettings | None) -> str:
    """The checkpoint to start from: the newest one, or one of the model's first values that is written now.

    First values come from the scaffold's ``init_op`` (with its feeds) and ``init_fn``, then from the warm start.

    Raises:
        CheckpointError: it cannot be written.
        RunError: variables that nothing initialises.
    """
    scaffold = traced.scaffold
    latest = tf.train.latest_checkpoint(model_dir)
    if latest is None:
        if scaffold.init_op is not None:
            host.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
        if scaffold.init_fn is not None:
            scaffold.init_fn(host)
        warm_start(traced, host, warm)
    host.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)
    if latest is not None:
        return str(latest)
    _check_ready(host, scaffold)
    return _save_first(traced, host, model_dir)


def _check_ready(host: HostSession, scaffold: Any) -> None:
    if scaffold.ready_op is None:
        return
    missing = [name.decode() for name in host.run(scaffold.ready_op)]
    if missing:
        raise CheckpointError(
            f"nothing gives the variables {', '.join(missing[:5])} a first value",
            fix="let the scaffold's init_op or init_fn initialise them",
        )


def _save_first(traced: Traced, host: HostSession, model_dir: str) -> str:
    step = int(host.run(tf1.train.get_global_step(traced.graph)))
    prefix = Path(model_dir, f"{PREFIX}-{step}")
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with traced.graph.as_default():
            traced.scaffold.saver.save(host, str(prefix), write_meta_graph=False, write_state=False)
        checkpoint.name(prefix, keep=traced.keep)
    except (tf.errors.OpError, OSError) as error:
        words = str(error).splitlines()[0]
        raise CheckpointError(f"the checkpoint '{prefix}' cannot be written: {words}",
                              fix="check model_dir and the free space") from error  # fmt: skip
    return str(prefix)


class Checkpoints:
    """Writes checkpoints of the cores' variables into a folder.

    Args:
        traced: the model, whose MetaGraph goes beside each checkpoint.
        session: the cores.
        host: the session that listeners get.
        model_dir: the folder.
        config: how often, and how many are kept.
        listeners: ``tf.compat.v1.train.CheckpointSaverListener`` objects.
        events: where it is written that a checkpoint was saved.
    """

    def __init__(self, traced: Traced, session: TPUSession, host: HostSession, model_dir: str, config: RunConfig,
                 listeners: Sequence[Any], events: Events) -> None:  # fmt: skip
        self._traced = traced
        self._session = session
        self._host = host
        self._path = os.path.join(model_dir, PREFIX)
        self._config = config
        self._listeners = listeners
        self._events = events
        self._saved_at = -1
        self._saved_when = time.monotonic()
        self._meta: bytes | None = None
        self.stop_requested = False

    def begin(self, step: int) -> None:
        """Start from a step that is saved already."""
        self._saved_at, self._saved_when = step, time.monotonic()
        self._write_meta(f"{self._path}-{step}")

    def follow(self, session: TPUSession) -> None:
        """Save the variables of another session from now on."""
        self._session = session

    def save_if_due(self, step: int) -> None:
        """Write one if it is time to; a failure is said, and training goes on."""
        steps, seconds = self._config.save_checkpoints_steps, self._config.save_checkpoints_secs
        due = steps is not None and step - self._saved_at >= steps
        if not due and (seconds is None or time.monotonic() - self._saved_when < seconds):
            return
        try:
            self.save(step)
        except CheckpointError as error:
            self._saved_when = time.monotonic()
            say(f"warning: {error.fault}; training goes on, the last checkpoint is that of step {self._saved_at:,}")

    def save(self, step: int) -> None:
        """Write one, unless this step is saved already.

        Raises:
            CheckpointError: it cannot be written; earlier ones are left whole.
        """
        if step == self._saved_at:
            return
        for listener in self._listeners:
            listener.before_save(self._host, step)
        prefix = self._session.save(self._path, with_input=False, keep=self._traced.keep)
        self._write_meta(prefix)
        self._saved_at, self._saved_when = step, time.monotonic()
        self._events.checkpoint(step, prefix)
        for listener in self._listeners:
            self.stop_requested |= bool(listener.after_save(self._host, step))

    def end(self, step: int) -> None:
        """Tell the listeners that training is over."""
        for listener in self._listeners:
            listener.end(self._host, step)

    def _write_meta(self, prefix: str) -> None:
        if self._meta is None:
            with self._traced.graph.as_default():
                meta = tf1.train.export_meta_graph(saver_def=self._traced.scaffold.saver.saver_def)
            self._meta = graphdef.serialize(meta)
        try:
            files.write_atomically(Path(f"{prefix}.meta"), self._meta)
        except LoadError as error:
            raise CheckpointError(error.fault, fix="check the folder and the free space") from error


def check_listeners(listeners: Any) -> tuple[Any, ...]:
    """Saving listeners as a tuple.

    Raises:
        ArgumentTypeError: something that is no CheckpointSaverListener.
    """
    kind = tf1.train.CheckpointSaverListener
    for listener in listeners or ():
        instance("saving_listeners: each", listener, kind, what="a tf.compat.v1.train.CheckpointSaverListener")
    return tuple(listeners or ())
