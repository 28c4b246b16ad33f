"""Models of evaluation and prediction: on cores where they can be converted, else plain; kept from call to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.estimator.checkpoints import check_keys, initialize, write
from tpugraph.estimator.compiling import converted
from tpugraph.estimator.hooks import HostSession
from tpugraph.estimator.host_call import HostCall, producers, split_by_batch
from tpugraph.estimator.inputs import definition
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.specs import ModeKeys
from tpugraph.estimator.tpu_config import loop_length
from tpugraph.estimator.tracing import Request, Traced, TracedInput, fingerprint, trace_input, trace_model
from tpugraph.ir.session_config import guarded
from tpugraph.ir.walks import reached
from tpugraph.runtime.checkpoints.checkpoint_folder import verify
from tpugraph.runtime.failures import first_words
from tpugraph.runtime.masters import reach
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import CheckpointError, ConversionError, RolesError, TpuGraphError
from tpugraph.support.wording import counted
from tpugraph.tpu.program import Program

tf1 = tf.compat.v1


class PlainModel:
    """A traced model with a session, which is kept while its input stays the same.

    Attributes:
        turn: how often the model was started; an older generator must not go on.
    """

    def __init__(self, traced: Traced, config: Any = None, master: str = "") -> None:
        self.traced = traced
        self.turn = 0
        self._config = config
        self._master = master

    @cached_property
    def session(self) -> Any:
        """Opened on first use, when hooks have begun: it finalizes the scaffold, which initialises their variables too."""
        self.traced.finalize()
        return tf1.Session(self._master, self.traced.graph, guarded(self._config))

    @property
    def host(self) -> Any:
        return self.session

    def start(self, checkpoint: str | None) -> None:
        """Initializes the input, and restores a checkpoint, or takes initial values where it is None."""
        self.turn += 1
        session, scaffold = self.session, self.traced.scaffold
        with self.traced.graph.as_default():
            if checkpoint is None:
                initialize(scaffold, session)
            else:
                self._restore(checkpoint)
            session.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)

    def _restore(self, checkpoint: str) -> None:
        verify(Path(checkpoint))
        check_keys(self.traced, checkpoint)
        try:
            self.traced.scaffold.saver.restore(self.session, checkpoint)
        except (tf.errors.OpError, ValueError) as error:
            raise CheckpointError(f"the checkpoint '{checkpoint}' does not match the model: {first_words(error)[:300]}",
                                  origin=self.traced.source, fix="take the checkpoint of this model") from error  # fmt: skip

    def save(self, path: str, *, in_background: bool, **kept: Any) -> str:
        """Writes a checkpoint, see :func:`tpugraph.estimator.checkpoints.write`; never in the background."""
        del in_background
        return write(self.traced, self.session, path, **kept)

    def wait_for_save(self) -> None:
        """Nothing is written in the background."""

    def close(self) -> None:
        self.turn += 1
        if "session" in vars(self):
            self.session.close()


_TIMED_LOOP = 100  # batches of a loop whose length is a time: evaluation and prediction do not measure their pace
_MODE_NAMES = {ModeKeys.EVAL: "evaluation", ModeKeys.PREDICT: "prediction"}


class CoresModel:
    """A converted model of evaluation or prediction, with a session that stays open.

    Attributes:
        turn: how often the model was started; an older generator must not go on.
        parts: how many batches of the model a batch of the estimator is read in.
    """

    def __init__(self, traced: Traced, program: Program, master: str, config: Any, parts: int = 1) -> None:
        self.traced = traced
        self.parts = parts
        self.session = TPUSession(program, master=master, config=config)
        self.turn = 0
        self._config = config
        self._initialized = False

    def call_host(self, collected: Mapping[str, Any]) -> None:
        """Runs the model's host call for each batch of a loop; see :func:`tpugraph.estimator.host_call.collect_batch_tensors`."""
        pair = self.traced.host_call
        if pair is not None:
            self._call.run(self.session.global_step, split_by_batch(pair, collected), trains=False)

    @cached_property
    def _call(self) -> HostCall:
        return HostCall(self.traced.host_call, 1, self._config)

    @cached_property
    def host(self) -> HostSession:
        """The session of hooks, whose variables are those of the cores."""
        made = HostSession(self.traced.graph, self._config)
        made.follow(self.session)
        return made

    def start(self, checkpoint: str | None) -> None:
        """Restores a checkpoint, or takes initial values where it is None."""
        self.turn += 1
        if not self._initialized or checkpoint is None:
            self.session.initialize()
            self._initialized = True
        if checkpoint is not None:
            self.session.restore(checkpoint, with_input=False)
            return
        self.host.follow(None)  # init_fn is a Python function, which runs on the host
        with self.traced.graph.as_default():
            initialize(self.traced.scaffold, self.host)
        self.session.assign(self.host.values(self.session.variable_names()))
        self.host.follow(self.session)

    def close(self) -> None:
        self.turn += 1
        for name in {"session", "host", "_call"} & vars(self).keys():
            getattr(self, name).close()


class ModelCache:
    """The models of one estimator, kept with their sessions while their input stays the same."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        # by slot, the key and the model, or a text that says why there is none
        self._kept: dict[Any, tuple[Any, Any]] = {}

    def close(self) -> None:
        while self._kept:
            _, (_, model) = self._kept.popitem()
            if not isinstance(model, str):
                model.close()

    def kept(self, slot: Any, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for the slot, if it was made for the same key; else closes that model and makes another."""
        known, found = self._kept.pop(slot, (None, ""))
        if known != key:
            if not isinstance(found, str):
                found.close()
            found = make()
        self._kept[slot] = key, found
        return found

    def plain(self, request: Request, prepare: Callable[[Traced], object] | None = None) -> PlainModel:
        """The plain model of a mode; the one at hand if the input is the same."""
        fed = trace_input(request)

        def make() -> PlainModel:
            traced = trace_model(request, fed)
            if prepare is not None:
                prepare(traced)
            return PlainModel(traced, self._config.session_config)

        found: PlainModel = self.kept((request.mode, "plain"), fed.fingerprint, make)
        return found

    def on_cores(
        self, request: Request, check: Callable[[Traced], object], keys: tuple[str, ...] | None = None
    ) -> CoresModel | None:
        """The model of a mode on cores; the one at hand if input and prediction keys are the same.

        ``check`` refuses models that neither cores nor this machine can run. Returns None, with a note, if the model or its input
        cannot be converted.
        """
        request = replace(request, one_program=True)
        fed = trace_input(request)
        model = self.kept(request.mode, (fed.fingerprint, keys), lambda: self._make(request, fed, check, keys))
        if isinstance(model, CoresModel):
            return model
        say(f"note: the {_MODE_NAMES[request.mode]} runs on this machine, without cores: {model}")
        return None

    def _make(
        self, request: Request, fed: TracedInput, check: Callable[[Traced], object], keys: Any
    ) -> CoresModel | str:
        """The model, or why it cannot be converted."""
        if why := _why_not_this_input(request, fed):
            return why
        traced = _trace(request, fed)
        check(traced)
        steps = loop_length(self._config.tpu_config.iterations_per_loop)[0] or _TIMED_LOOP
        traced.finalize()
        try:
            shared = self._config.tpu_config.least_shared(tables=traced.has_tables)
            program = converted(traced, steps, keys, shard_tables=shared)
        except (RolesError, ConversionError) as error:
            return why_not(error)
        for note in program.report["notes"]:
            say(f"note: {note}")
        parts = (request.plan.global_batch or 1) // (traced.plan.global_batch or 1)
        return CoresModel(traced, program, self._master, self._config.session_config, parts)

    @cached_property
    def _master(self) -> str:
        """The master of evaluation; this process if that has several workers, since one host evaluates."""
        given = "" if self._config.workers else self._config.evaluation_master
        return "" if not given or reach(given, None).hosts > 1 else given


def _why_not_this_input(request: Request, fed: TracedInput) -> str:
    """Why the input cannot be read for cores; "" where it can."""
    if not fed.is_dataset:
        return "input_fn returns tensors, whose end cannot be told; return the Dataset"
    if fed.placeholders:
        return "a hook feeds the input's placeholders, in the session that it is called with"
    if any(tf.nest.flatten(request.batch_axis)):
        return f"batch_axis is {request.batch_axis}; the rows must be the first dimension"
    return ""


def _trace(request: Request, fed: TracedInput) -> Traced:
    """Traces with an open batch dimension, or with a fixed one if the model holds its batch size or cannot be traced without.

    With an open one no constant can hold the batch size, so that a partial batch gives the right result. With a fixed one the
    partial batch is dropped in evaluation, and padded in prediction.
    """
    failure = None
    try:
        traced = trace_model(request, fed)
    except (TypeError, ValueError) as error:
        failure = first_words(error)[:120] or type(error).__name__
    else:
        if not (traced.reads_batch_size and _holds_batch_size(request, traced, fed)):
            return traced
    fixed = replace(request, fixed_batch_size=True)
    why = f" ({failure})" if failure is not None else ""
    partial = "is left out" if request.mode == ModeKeys.EVAL else "is padded"
    say(f"note: model_fn needs a batch with a fixed number of rows{why}: the last one {partial} where it is smaller")
    try:
        return trace_model(fixed, trace_input(fixed))
    except (TypeError, ValueError) as error:
        if request.mode != ModeKeys.PREDICT or request.plan.cores < 2:
            raise
        failure = first_words(error)[:120]
    rows = request.plan.per_core
    say(f"note: model_fn needs the rows of one core ({failure}): one core predicts, {counted(rows or 0, 'row')} a step")
    one = replace(fixed, plan=replace(request.plan, cores=1, global_batch=rows, per_host=rows))
    return trace_model(one, trace_input(one))


def _holds_batch_size(request: Request, traced: Traced, fed: TracedInput) -> bool:
    """Whether the step changes when the model, which reads its batch size, is traced with twice that size."""
    rows = 2 * (request.plan.global_batch or 0)
    twice = replace(request, plan=replace(request.plan, global_batch=rows, per_core=2 * (request.plan.per_core or 0)))
    fed_twice = trace_input(twice)
    try:
        return _step_fingerprint(traced, fed) != _step_fingerprint(trace_model(twice, fed_twice), fed_twice)
    except (TypeError, ValueError):
        return True


def _step_fingerprint(traced: Traced, fed: TracedInput) -> bytes:
    """The fingerprint of the ops behind the input."""
    spec = traced.spec
    host_call = None if traced.host_call is None else traced.host_call[1]
    results = tf.nest.flatten([spec.loss, spec.predictions, list(spec.eval_metric_ops.values()), host_call])
    starts = [result if isinstance(result, tf.Operation) else result.op for result in results if result is not None]
    behind = reached(starts, lambda op: (producer for producer in producers(op) if producer.name not in fed.ops))
    graph_def = definition(list(behind))
    for node in graph_def.node:
        if node.op in ops.PYTHON:
            node.attr.pop("token", None)  # the number that each trace gives its Python functions
    return fingerprint(graph_def)


def why_not(error: TpuGraphError) -> str:
    """An error of the conversion, in one line."""
    node = f" (node {error.node})" if error.node else ""
    return f"{error.fault}{node}; {error.fix}" if error.fix else f"{error.fault}{node}"
