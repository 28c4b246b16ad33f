"""Session hooks: the session that they get, and their calls around a loop or a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.training import monitored_session

from tpugraph import ops
from tpugraph.estimator.reporting import say
from tpugraph.estimator.tracing import Traced
from tpugraph.ir.session_config import guarded
from tpugraph.ir.walks import reached
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import RunError

tf1 = tf.compat.v1


@dataclass(frozen=True)
class _Cone:
    variables: tuple[str, ...]
    written: tuple[str, ...]
    takes: Any


class HostSession(tf.compat.v1.Session):  # type: ignore[misc]
    """Runs parts of the plain graph that do not depend on the input.

    Variables are copied from the cores before a run, and those that it writes are copied back.
    """

    _with_tpu = True  # nothing is added for its TPU ops to the graph, which checkpoints hold

    def __init__(self, graph: Any, config: Any = None) -> None:
        super().__init__(graph=graph, config=guarded(config, parts=True))
        self.fed: dict[str, Any] = {}  # without cores, by the name of the op
        self._cores: TPUSession | None = None
        self._cones: dict[tuple[str, ...], _Cone] = {}
        keys = (tf1.GraphKeys.GLOBAL_VARIABLES, tf1.GraphKeys.LOCAL_VARIABLES)
        self._by_name = {v.op.name: v for key in keys for v in graph.get_collection(key)}

    def follow(self, cores: TPUSession | None) -> None:
        """Copies variables from and to the cores from now on; keeps its own when None."""
        self._cores = cores

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        if self._cores is None:
            self.fed |= {key.op.name: v for key, v in (feed_dict or {}).items() if isinstance(key, tf.Tensor)}
            return super().run(fetches, feed_dict, options, run_metadata)
        cone = self._cone(fetches, feed_dict)
        if cone.takes is not None:
            raise RunError(
                f"{_names(fetches)} depends on the input, which the cores take inside the training loop",
                node=f"{cone.takes.name} ({cone.takes.type})",
                fix="fetch the loss, variables or what is made of them; log others with tf.summary; or use_tpu=False",
            )
        held = self._by_name.keys() & self._cores.variable_names(local=True)
        self.set_values(self._cores.values([name for name in cone.variables if name in held]))
        results = super().run(fetches, feed_dict, options, run_metadata)
        written = [name for name in cone.written if name in held]
        if written:
            self._cores.assign(self.values(written))
        return results

    def takes_input(self, tensor: Any) -> bool:
        return self._cone(tensor, None).takes is not None

    def set_values(self, values: Mapping[str, Any]) -> None:
        """Assigns variables by name; unknown names are skipped."""
        assign(super().run, [(self._by_name[name], value) for name, value in values.items() if name in self._by_name])

    def values(self, names: list[str]) -> dict[str, Any]:
        found = super().run({name: self._by_name[name] for name in names})
        return dict(found)

    def _cone(self, fetches: Any, feed_dict: Any) -> _Cone:
        ends = [self._element(fetch) for fetch in tf.nest.flatten(fetches)]
        fed = {self._element(key).name for key in feed_dict or {}}
        key = (*sorted(str(end.name) for end in ends if end is not None), "fed", *sorted(fed))
        if key not in self._cones:
            self._cones[key] = self._walk([end for end in ends if end is not None], fed)
        return self._cones[key]

    def _element(self, value: Any) -> Any:
        if isinstance(value, (tf.SparseTensor, tf1.SparseTensorValue)):
            value = value.values
        return None if value is None else self.graph.as_graph_element(value)

    def _walk(self, ends: list[Any], fed: set[str]) -> _Cone:
        starts = [end if isinstance(end, tf.Operation) else end.op for end in ends if end.name not in fed]
        run = reached(starts, lambda op: [*(t.op for t in op.inputs if t.name not in fed), *op.control_inputs])
        variables = [op.name for op in run if op.type in ops.VARIABLES]
        writes = [(op, ops.WRITES[op.type].variables) for op in run if op.type in ops.WRITES]
        written = dict.fromkeys(op.inputs[i].op.name for op, indices in writes for i in indices)
        takes = [op for op in run if op.type in ops.INPUTS and op.type not in ops.PLACEHOLDERS]
        return _Cone(tuple(variables), tuple(written), takes[0] if takes else None)


def assign(run: Callable[..., Any], values: Sequence[tuple[Any, Any]]) -> None:
    """Assigns variables, with ``Session.run``."""
    given = [variable.initializer for variable, _ in values]
    if given:
        run(given, {initializer.inputs[1]: value for initializer, (_, value) in zip(given, values, strict=True)})


def _names(fetches: Any) -> str:
    found = [f"'{getattr(fetch, 'name', fetch)}'" for fetch in tf.nest.flatten(fetches)]
    return ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")


class StepLosses(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A hook that gets the loss of every step of a loop, not of the last one alone."""

    def __init__(self) -> None:
        self._losses: list[float] = []

    def add(self, losses: Sequence[float]) -> None:
        self._losses += losses

    def mean(self) -> float:
        """The mean of the losses since the last call."""
        found, self._losses = float(np.mean(self._losses)), []
        return found


class LoopHooks:
    """Calls hooks around each loop, in the context of the traced graph.

    ``begin`` comes before the conversion; ``before_run`` and ``after_run`` around each loop, as around a Session.run.
    ``after_run`` gets the values after the last step. Tensors that depend on the input leave the cores as summaries; the first
    loop settles which. ``run_context.session`` is a :class:`HostSession`. A stop takes effect at the end of the loop.
    ``fetches`` are those of the run that hooks see; the train op and the loss when None.
    """

    def __init__(self, hooks: Sequence[Any], model: Any, fetches: Any = None) -> None:
        self._hooks = list(hooks)
        self._model = model
        self._traced: Traced = model.traced
        self._loss = self._traced.spec.loss
        self._fetches = [self._traced.spec.train_op, self._loss] if fetches is None else fetches
        self._asked: list[tuple[Any, Any, Any]] = []
        self._coordinator = tf1.train.Coordinator()
        self.stop_requested = False

    def begin(self) -> None:
        with self._traced.graph.as_default():
            for hook in self._hooks:
                hook.begin()

    def after_create_session(self) -> None:
        with self._traced.graph.as_default():
            for hook in self._hooks:
                hook.after_create_session(self._model.host, self._coordinator)

    def before_loop(self) -> None:
        original = tf1.train.SessionRunArgs(self._fetches)
        self._asked = []
        for hook in self._hooks:
            context = tf1.train.SessionRunContext(original, self._model.host)
            wanted = hook.before_run(context)
            self.stop_requested |= context.stop_requested
            if wanted is not None and wanted.feed_dict:
                raise RunError(f"the hook {type(hook).__name__} feeds values, which a loop on cores does not take",
                               fix="make the value a variable and assign it in after_run, or use_tpu=False")  # fmt: skip
            self._asked.append((hook, context, wanted))

    def of_input(self) -> dict[str, tuple[Any, Any]]:
        """The fetches that depend on the input, without the loss: name to tensor or op, and the hook."""
        found: dict[str, tuple[Any, Any]] = {}
        for hook, _, wanted in self._asked:
            for fetch in tf.nest.flatten(None if wanted is None else wanted.fetches):
                element = None if fetch is None else self._traced.graph.as_graph_element(fetch)
                if element is not None and element is not self._loss and self._model.host.takes_input(element):
                    found[element.name] = element, hook
        return found

    def wants_batches(self, what: str) -> bool:
        """Whether a hook fetches tensors of a batch, which evaluation and prediction do not export; a note says which."""
        for name, (_, hook) in self.of_input().items():
            say(f"note: the {what} runs on this machine, without cores: the hook {type(hook).__name__} asks for "
                f"'{name}' of each batch")  # fmt: skip
            return True
        return False

    def after_loop(self, known: Mapping[str, Any], losses: Sequence[float] = ()) -> None:
        """Hands the hooks what they fetched; ``known`` has values of the global batch by the tensor's name."""
        for hook in self._hooks:
            if isinstance(hook, StepLosses):
                hook.add(losses)
        for hook, context, wanted in self._asked:
            results = None if wanted is None else self._results(wanted.fetches, known)
            hook.after_run(context, tf1.train.SessionRunValues(results, None, None))
            self.stop_requested |= context.stop_requested or self._coordinator.should_stop()

    def end(self) -> None:
        with self._traced.graph.as_default():
            for hook in self._hooks:
                hook.end(self._model.host)

    def _results(self, fetches: Any, known: Mapping[str, Any]) -> Any:
        ended = self._traced.spec.train_op
        train = None if ended is None else self._traced.graph.get_operation_by_name(self._traced.train_op)
        flat = tf.nest.flatten(fetches)
        elements = [None if f is None else self._traced.graph.as_graph_element(f) for f in flat]
        names = [str(getattr(element, "name", "")) for element in elements]
        done: list[Any] = [known.get(name) for name in names]
        ran = [i for i, e in enumerate(elements) if e is not None and e is not train and names[i] not in known]
        if ran:
            fed = {n: v for n, v in known.items() if self._traced.graph.get_tensor_by_name(n).shape == np.shape(v)}
            found = self._model.host.run([flat[i] for i in ran], fed)
            for index, value in zip(ran, found, strict=True):
                done[index] = value
        return tf.nest.pack_sequence_as(fetches, done)


class HookedRuns(LoopHooks):
    """Session.run with session hooks around it, which may feed it."""

    def before_loop(self) -> None:
        """The hooks are called within :meth:`run`."""

    def after_create_session(self) -> None:
        for runner in self._traced.graph.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
            runner.create_threads(self._model.host, self._coordinator, daemon=True, start=True)
        super().after_create_session()

    def run(self, fetches: Any) -> Any:
        with self._traced.graph.as_default():
            session = monitored_session._HookedSession(self._model.host, self._hooks)
            try:
                found = session.run(fetches)
            finally:
                self._coordinator.raise_requested_exception()  # that of a thread that fills a queue
        self.stop_requested |= session.should_stop() or self._coordinator.should_stop()
        return found
