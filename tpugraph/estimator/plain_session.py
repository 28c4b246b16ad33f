"""A plain graph in a session that stays open: evaluation and prediction on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator.tracing import Traced
from tpugraph.ir.session_config import guarded
from tpugraph.runtime.checkpoints.whole import read_checked
from tpugraph.support.errors import CheckpointError

tf1 = tf.compat.v1


class PlainModel:
    """A traced model with an open session; it is used again while its input stays the same.

    Args:
        traced: the model.
        fingerprint: that of its input.
        config: a ``tf.compat.v1.ConfigProto``, or None.

    Attributes:
        turn: how often the model was started; who started earlier must not go on.
    """

    def __init__(self, traced: Traced, fingerprint: bytes, config: Any = None) -> None:
        self.traced = traced
        self.fingerprint = fingerprint
        self.turn = 0
        with traced.graph.as_default():
            traced.scaffold.finalize()
        self.session = tf1.Session(graph=traced.graph, config=guarded(config))

    def start(self, checkpoint: str | None) -> None:
        """Open the input, and give the variables the values of a checkpoint; first values where it is None.

        Raises:
            CheckpointError: the checkpoint is damaged, or does not have the model's variables.
        """
        self.turn += 1
        scaffold = self.traced.scaffold
        with self.traced.graph.as_default():
            if checkpoint is None:
                self.session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
                if scaffold.init_fn is not None:
                    scaffold.init_fn(self.session)
            else:
                self._restore(checkpoint)
            self.session.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)

    def _restore(self, checkpoint: str) -> None:
        read_checked(Path(checkpoint))
        try:
            self.traced.scaffold.saver.restore(self.session, checkpoint)
        except (tf.errors.OpError, ValueError) as error:
            words = next(line for line in str(error).splitlines() if line.strip())
            raise CheckpointError(
                f"the checkpoint '{checkpoint}' does not match the model: {words[:300]}",
                origin=self.traced.source,
                fix="take the checkpoint of this model",
            ) from error

    def close(self) -> None:
        """Close the session."""
        self.turn += 1
        self.session.close()


class HookedRuns:
    """Session.run with session hooks around it.

    Args:
        session: the session.
        hooks: ``tf.compat.v1.train.SessionRunHook`` objects.
    """

    def __init__(self, session: Any, hooks: Sequence[Any]) -> None:
        self._session = session
        self._hooks = hooks
        self._coordinator = tf1.train.Coordinator()
        self.stop_requested = False

    def begin(self) -> None:
        """Let the hooks prepare the graph."""
        with self._session.graph.as_default():
            for hook in self._hooks:
                hook.begin()

    def started(self) -> None:
        """Tell them that the session is ready."""
        with self._session.graph.as_default():
            for hook in self._hooks:
                hook.after_create_session(self._session, self._coordinator)

    def run(self, fetches: Any) -> Any:
        """Run, with what the hooks ask for."""
        original = tf1.train.SessionRunArgs(fetches)
        asked = []
        feed: dict[Any, Any] = {}
        with self._session.graph.as_default():
            for hook in self._hooks:
                context = tf1.train.SessionRunContext(original, self._session)
                wanted = hook.before_run(context)
                feed.update((wanted and wanted.feed_dict) or {})
                asked.append((hook, context, () if wanted is None or wanted.fetches is None else wanted.fetches))
            results = self._session.run([fetches, *(fetch for _, _, fetch in asked)], feed_dict=feed)
            for (hook, context, fetch), found in zip(asked, results[1:], strict=True):
                values = None if isinstance(fetch, tuple) and not fetch else found
                hook.after_run(context, tf1.train.SessionRunValues(values, None, None))
                self.stop_requested |= context.stop_requested or self._coordinator.should_stop()
        return results[0]

    def end(self) -> None:
        """Tell them that it is over."""
        with self._session.graph.as_default():
            for hook in self._hooks:
                hook.end(self._session)
