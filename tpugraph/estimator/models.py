"""Models of evaluation and prediction: on cores where they can be converted, else plain; kept from call to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.checkpoints import check_keys
from tpugraph.estimator.compiling import compile_inference
from tpugraph.estimator.hooks import HostSession
from tpugraph.estimator.host_call import HostCall, producers, split_by_batch
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.specs import ModeKeys
from tpugraph.estimator.tpu_config import loop_length
from tpugraph.estimator.tracing import Request, Traced, TracedInput, trace_input, trace_model
from tpugraph.ir.session_config import guarded
from tpugraph.ir.walks import reached
from tpugraph.runtime.checkpoints.checkpoint_folder import verify
from tpugraph.runtime.masters import reach
from tpugraph.runtime.session import TPUSession
from tpugraph.support.errors import CheckpointError, ConversionError, RolesError, TpuGraphError
from tpugraph.support.wording import counted
from tpugraph.tpu.program import Program

tf1 = tf.compat.v1

_SIZES = 64  # a constant of more elements holds data, not sizes
_SIMPLE = 64  # the largest factor or divisor of the batch size that is looked for


def may_hold_batch_size(operation: Any, rows: int) -> bool:
    """Whether an attribute of an op may have been computed from the batch size: a multiple, one more or less, a part or a root.

    Errs on the side of True.
    """
    attributes = [value for name, value in operation.node_def.attr.items() if not name.startswith("_")]
    return any(_numbers_hold(_numbers(v), rows, near=v.WhichOneof("value") == "tensor") for v in attributes)


def _numbers(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "i":
        return np.asarray([value.i])
    if kind == "shape":
        return np.asarray([dim.size for dim in value.shape.dim])
    if kind == "list":
        return np.asarray([*value.list.i, *(dim.size for shape in value.list.shape for dim in shape.dim)])
    if kind != "tensor":
        return np.zeros(0)
    array = tf.make_ndarray(value.tensor)
    small = array.size <= _SIZES and array.dtype.kind in "iuf"
    return np.asarray([*array.shape, *(array.ravel() if small else ())])


def _numbers_hold(numbers: Any, rows: int, *, near: bool) -> bool:
    found = np.abs(np.asarray(numbers, np.float64))
    found = found[np.isfinite(found) & (found > 0)]
    whole = found == np.round(found)
    beside = (0, 1, rows - 1) if near else (0,)
    if np.any((found[whole] >= rows - 1) & np.isin(found[whole] % rows, beside)):
        return True
    parts = found[~whole]
    tried = (parts * rows, parts / rows, parts**2 * rows, parts**2 / rows, np.exp(np.minimum(parts, 50)) / rows)
    return any(bool(np.any(_is_simple(part))) for part in tried)


def _is_simple(numbers: Any) -> Any:
    """Which numbers are small integers or their reciprocals, up to rounding."""
    either = np.maximum(numbers, 1 / np.maximum(numbers, 1e-300))
    return (either < _SIMPLE + 0.5) & (np.abs(either - np.round(either)) < 1e-5 * either)


class PlainModel:
    """A traced model with an open session, which is kept while its input stays the same.

    Attributes:
        turn: how often the model was started; an older generator must not go on.
    """

    def __init__(self, traced: Traced, fingerprint: bytes, config: Any = None) -> None:
        self.traced = traced
        self.fingerprint = fingerprint
        self.turn = 0
        with traced.graph.as_default():
            traced.scaffold.finalize()
        self.host = self.session = tf1.Session(graph=traced.graph, config=guarded(config))

    def start(self, checkpoint: str | None) -> None:
        """Initializes the input, and restores a checkpoint, or takes initial values where it is None."""
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
        verify(Path(checkpoint))
        check_keys(self.traced, checkpoint)
        try:
            self.traced.scaffold.saver.restore(self.session, checkpoint)
        except (tf.errors.OpError, ValueError) as error:
            words = next(line for line in str(error).splitlines() if line.strip())
            raise CheckpointError(f"the checkpoint '{checkpoint}' does not match the model: {words[:300]}",
                                  origin=self.traced.source, fix="take the checkpoint of this model") from error  # fmt: skip

    def close(self) -> None:
        self.turn += 1
        self.session.close()


_TIMED_LOOP = 100  # batches of a loop whose length is a time: evaluation and prediction do not measure their pace
_MODE = {ModeKeys.EVAL: "eval", ModeKeys.PREDICT: "predict"}
_WHAT = {ModeKeys.EVAL: "evaluation", ModeKeys.PREDICT: "prediction"}


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
        self._host: HostSession | None = None
        self._call: HostCall | None = None
        self._initialized = False

    def call_host(self, collected: Mapping[str, Any]) -> None:
        """Runs the model's host call for each batch of a loop; see :func:`tpugraph.estimator.host_call.collect_batch_tensors`."""
        pair = self.traced.host_call
        if pair is None:
            return
        if self._call is None:
            self._call = HostCall(pair, 1, self._config)
        self._call.run(self.session.global_step, split_by_batch(pair, collected), trains=False)

    @property
    def host(self) -> HostSession:
        """The session of hooks, whose variables are those of the cores."""
        if self._host is None:
            self._host = HostSession(self.traced.graph, self._config)
            self._host.follow(self.session)
        return self._host

    def start(self, checkpoint: str | None) -> None:
        """Restores a checkpoint, or takes initial values where it is None."""
        self.turn += 1
        if not self._initialized or checkpoint is None:
            self.session.initialize()
            self._initialized = True
        if checkpoint is None:
            self._first_values()
        else:
            self.session.restore(checkpoint, with_input=False)

    def _first_values(self) -> None:
        """Runs the scaffold's initializers on the host: ``init_fn`` is a Python function."""
        scaffold, host = self.traced.scaffold, self.host
        host.follow(None)
        with self.traced.graph.as_default():
            host.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
            if scaffold.init_fn is not None:
                scaffold.init_fn(host)
        self.session.assign(host.values(self.session.variable_names()))
        host.follow(self.session)

    def close(self) -> None:
        self.turn += 1
        for session in (self.session, self._host, self._call):
            if session is not None:
                session.close()


@dataclass(frozen=True)
class _Cached:
    key: tuple[bytes, Any]
    model: CoresModel | None
    why: str = ""


class ModelCache:
    """The models of evaluation and prediction of one estimator, kept while their input stays the same."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._plain: dict[str, PlainModel] = {}
        self._cores: dict[str, _Cached] = {}
        self._master: str | None = None

    def close(self) -> None:
        for model in (*self._plain.values(), *(kept.model for kept in self._cores.values())):
            if model is not None:
                model.close()
        self._plain, self._cores = {}, {}

    def plain(self, request: Request, prepare: Callable[[Traced], object] | None = None) -> PlainModel:
        """The plain model of a mode; the one at hand if the input is the same."""
        fed = trace_input(request)
        known = self._plain.get(request.mode)
        if known is not None and known.fingerprint == fed.fingerprint:
            return known
        if known is not None:
            known.close()
        traced = trace_model(request, fed)
        if prepare is not None:
            prepare(traced)
        self._plain[request.mode] = PlainModel(traced, fed.fingerprint, self._config.session_config)
        return self._plain[request.mode]

    def on_cores(
        self, request: Request, check: Callable[[Traced], object], keys: tuple[str, ...] | None = None
    ) -> CoresModel | None:
        """The model of a mode on cores; the one at hand if input and prediction keys are the same.

        ``check`` refuses models that neither cores nor this machine can run. None with a note where the model or its input cannot be
        converted.
        """
        request = replace(request, one_program=True)
        fed = trace_input(request)
        known = self._cores.get(request.mode)
        if known is None or known.key != (fed.fingerprint, keys):
            if known is not None and known.model is not None:
                known.model.close()
            known = self._make(request, fed, check, keys)
            self._cores[request.mode] = known
        if known.model is None:
            say(f"note: the {_WHAT[request.mode]} runs on this machine, without cores: {known.why}")
        return known.model

    def _make(self, request: Request, fed: TracedInput, check: Callable[[Traced], object], keys: Any) -> _Cached:
        key = fed.fingerprint, keys
        why = _of_input(request, fed)
        if why:
            return _Cached(key, None, why)
        traced = _trace(request, fed)
        check(traced)
        steps = loop_length(self._config.tpu_config.iterations_per_loop)[0] or _TIMED_LOOP
        with traced.graph.as_default():
            traced.scaffold.finalize()
        try:
            shared = self._config.tpu_config.least_shared(tables=traced.has_tables)
            program = compile_inference(traced, _MODE[request.mode], steps, keys, shard_tables=shared)
        except (RolesError, ConversionError) as error:
            return _Cached(key, None, why_not(error))
        for note in program.report["notes"]:
            say(f"note: {note}")
        parts = (request.plan.global_batch or 1) // (traced.plan.global_batch or 1)
        return _Cached(key, CoresModel(traced, program, self._address(), self._config.session_config, parts))

    def _address(self) -> str:
        """The master of evaluation; this process if that has several workers, since one host evaluates."""
        if self._master is None:
            given = "" if self._config.workers else self._config.evaluation_master
            self._master = "" if not given or reach(given, None).hosts > 1 else given
        return self._master


def _of_input(request: Request, fed: TracedInput) -> str:
    """Why the cores cannot take the input; "" where they can."""
    if not fed.is_dataset:
        return "input_fn returns tensors, whose end cannot be told; return the Dataset"
    if fed.placeholders:
        return "a hook feeds the input's placeholders, in the session that it is called with"
    if any(tf.nest.flatten(request.batch_axis)):
        return f"batch_axis is {request.batch_axis}; the rows must be the first dimension"
    return ""


def _trace(request: Request, fed: TracedInput) -> Traced:
    """Traces with an open batch dimension; with a fixed one if the model reads its batch size, or fails without.

    With an open one no constant can hold the batch size, so that a partial batch gives the right result. With a fixed one the
    partial batch is dropped in evaluation, and padded in prediction.
    """
    failure = None
    try:
        traced = trace_model(request, fed)
    except (TypeError, ValueError) as error:
        failure = _first_line(error)
    else:
        if not (traced.reads_batch_size and _step_may_hold_batch_size(traced, fed)):
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
        rows = request.plan.per_core
        say(
            f"note: model_fn needs the rows of one core ({_first_line(error)}): one core predicts, {counted(rows or 0, 'row')} a step"
        )
    one = replace(fixed, plan=replace(request.plan, cores=1, global_batch=rows, per_host=rows))
    return trace_model(one, trace_input(one))


def _step_may_hold_batch_size(traced: Traced, fed: TracedInput) -> bool:
    """Whether an op of the model's step may hold the batch size that the model function read."""
    spec = traced.spec
    beside = None if traced.host_call is None else traced.host_call[1]
    ends = tf.nest.flatten([spec.loss, spec.predictions, list(spec.eval_metric_ops.values()), beside])
    starts = [end if isinstance(end, tf.Operation) else end.op for end in ends if end is not None]
    step = reached(starts, lambda op: (found for found in producers(op) if found.name not in fed.ops))
    return any(may_hold_batch_size(op, traced.plan.global_batch or 0) for op in step)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:120]


def why_not(error: TpuGraphError) -> str:
    """An error of the conversion, in one line."""
    node = f" (node {error.node})" if error.node else ""
    return f"{error.fault}{node}; {error.fix}" if error.fix else f"{error.fault}{node}"
