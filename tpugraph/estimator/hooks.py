"""Session hooks around training loops: what they do per Session.run happens once per loop, with its last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.host_session import HostSession
from tpugraph.estimator.reporting import say
from tpugraph.estimator.tracing import Traced
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1


class StepLosses(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that gets the loss of every step, not of the last one of a loop alone."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def add(self, losses: Sequence[float]) -> None:
        """Take the losses of the steps of a loop."""
        self._losses += losses

    def mean(self) -> float:
        """The mean of the losses since it was last asked for."""
        found, self._losses = float(np.mean(self._losses)), []
        return found


class LoopHooks:
    """The user's hooks, called around each loop, in the context of the traced graph.

    ``begin`` comes before the conversion; ``before_run`` and ``after_run`` around each loop, as around a Session.run.
    What ``before_run`` asks for is handed to ``after_run`` as it is after the loop's last step. Tensors that depend on the
    input leave the cores with the summaries; which ones is settled before the first loop. ``run_context.session`` is a
    :class:`HostSession`. A stop is done at the loop's end.

    Args:
        hooks: the hooks.
        traced: the model.
        fetches: what hooks are told that a loop runs for; the train op and the loss when None.
    """

    def __init__(self, hooks: Sequence[Any], traced: Traced, fetches: Any = None) -> None:
        self._hooks = list(hooks)
        self._traced = traced
        self._fetches = [traced.spec.train_op, traced.spec.loss] if fetches is None else fetches
        self._loss = traced.spec.loss
        self._asked: list[tuple[Any, Any, Any]] = []
        self._coordinator = tf1.train.Coordinator()
        self.stop_requested = False

    def begin(self) -> None:
        """Let the hooks prepare the graph."""
        for hook in self._hooks:
            hook.begin()

    def after_create_session(self, session: HostSession) -> None:
        """Tell them that the session is there."""
        for hook in self._hooks:
            hook.after_create_session(session, self._coordinator)

    def before_loop(self, session: HostSession) -> None:
        """Ask them what they want of the loop that comes.

        Raises:
            RunError: a hook wants to feed the loop.
        """
        original = tf1.train.SessionRunArgs(fetches=self._fetches)
        self._asked = []
        for hook in self._hooks:
            context = tf1.train.SessionRunContext(original, session)
            wanted = hook.before_run(context)
            self.stop_requested |= context.stop_requested
            if wanted is not None and wanted.feed_dict:
                raise RunError(
                    f"the hook {type(hook).__name__} feeds values, which a loop on cores does not take",
                    fix="make the value a variable and assign it in after_run, or use_tpu=False",
                )
            self._asked.append((hook, context, wanted))

    def of_input(self, session: HostSession) -> list[Any]:
        """The tensors among what they asked for that depend on the input, without the loss."""
        found: dict[str, Any] = {}
        for _, _, wanted in self._asked:
            for fetch in tf.nest.flatten(None if wanted is None else wanted.fetches):
                element = None if fetch is None else self._traced.graph.as_graph_element(fetch)
                if isinstance(element, tf.Tensor) and element is not self._loss and session.takes_input(element):
                    found[element.name] = element
        return list(found.values())

    def wants_batches(self, session: HostSession, what: str) -> bool:
        """Whether a hook asks for what depends on the batch, which evaluation and prediction do not hand out; it is said."""
        for hook, _, wanted in self._asked:
            for fetch in tf.nest.flatten(None if wanted is None else wanted.fetches):
                element = None if fetch is None else self._traced.graph.as_graph_element(fetch)
                if element is not None and element is not self._loss and session.takes_input(element):
                    say(f"note: the {what} runs on this machine, without cores: the hook {type(hook).__name__} asks for "
                        f"'{element.name}' of each batch")  # fmt: skip
                    return True
        return False

    def after_loop(self, session: HostSession, known: Mapping[str, Any], losses: Sequence[float] = ()) -> None:
        """Hand them what they asked for.

        Args:
            session: where it is computed.
            known: values of tensors by name, the loss among them, as the cores sent them: of all rows of the batch.
            losses: those of the steps of a training loop.
        """
        for hook, context, wanted in self._asked:
            if isinstance(hook, StepLosses):
                hook.add(losses)
            results = None if wanted is None else self._results(session, wanted.fetches, known)
            hook.after_run(context, tf1.train.SessionRunValues(results, None, None))
            self.stop_requested |= context.stop_requested or self._coordinator.should_stop()

    def end(self, session: HostSession) -> None:
        """Tell them that training is over."""
        for hook in self._hooks:
            hook.end(session)

    def _results(self, session: HostSession, fetches: Any, known: Mapping[str, Any]) -> Any:
        ended = self._traced.spec.train_op
        train = None if ended is None else self._traced.graph.get_operation_by_name(self._traced.train_op)
        flat = tf.nest.flatten(fetches)
        elements = [None if f is None else self._traced.graph.as_graph_element(f) for f in flat]
        names = [str(getattr(element, "name", "")) for element in elements]
        done: list[Any] = [known.get(name) for name in names]
        ran = [i for i, e in enumerate(elements) if e is not None and e is not train and names[i] not in known]
        if ran:
            fed = {n: v for n, v in known.items() if self._traced.graph.get_tensor_by_name(n).shape == np.shape(v)}
            found = session.run([flat[i] for i in ran], fed)
            for index, value in zip(ran, found, strict=True):
                done[index] = value
        return tf.nest.pack_sequence_as(fetches, done)
