"""Checkpoints of estimators: initial values, warm start, when to save, and under which name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import ops
from tpugraph.estimator.arguments import check_each
from tpugraph.estimator.hooks import HostSession
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.tracing import Traced
from tpugraph.ir import graphdef
from tpugraph.ir.walks import reached
from tpugraph.runtime.checkpoints.checkpoint_folder import PREFIX, newest, verify
from tpugraph.runtime.checkpoints.saver import compare_keys, resolve, write_durably
from tpugraph.runtime.event_files import Events
from tpugraph.support import files
from tpugraph.support.errors import ArgumentError, ArgumentTypeError, CheckpointError, LoadError
from tpugraph.support.wording import counted

tf1 = tf.compat.v1


@dataclass(frozen=True)
class WarmStartSettings:
    """What to restore from another model's checkpoint.

    Attributes:
        ckpt_to_initialize_from: a checkpoint's prefix, its folder, or a SavedModel's folder.
        vars_to_warm_start: a regular expression, or a list of them: variables are restored whose names match from the start.
            None and ``".*"`` restore the trainable variables and statistics such as moving averages.
        var_name_to_vocab_info: refused: vocabularies are not mapped.
        var_name_to_prev_var_name: variable name to its name in the checkpoint.

    Raises:
        ArgumentError: no checkpoint is named, or vocabularies are to be mapped (a ``ValueError``).
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None

    def __post_init__(self) -> None:
        if not self.ckpt_to_initialize_from:
            raise ArgumentError("ckpt_to_initialize_from is empty", fix="give a checkpoint or its folder")
        if self.var_name_to_vocab_info:
            raise ArgumentError("var_name_to_vocab_info: vocabularies are not mapped", fix="map the rows beforehand")


def warm_start_settings(warm_start_from: Any) -> WarmStartSettings | None:
    """The settings of a ``warm_start_from`` argument: None, a path or settings."""
    if warm_start_from is None or isinstance(warm_start_from, WarmStartSettings):
        return warm_start_from
    if isinstance(warm_start_from, (str, os.PathLike)):
        return WarmStartSettings(os.fspath(warm_start_from))
    raise ArgumentTypeError(f"warm_start_from must be a path or WarmStartSettings, but is {warm_start_from!r}",
                            fix="give a checkpoint")  # fmt: skip


def warm_start(traced: Traced, host: HostSession, settings: WarmStartSettings | None) -> None:
    """Restores the variables that the checkpoint has, and reports the others."""
    if settings is None:
        return
    prefix = resolve(_path(settings.ckpt_to_initialize_from), say)
    verify(prefix)
    reader = tf.train.load_checkpoint(str(prefix))
    held = reader.get_variable_to_shape_map()
    renamed = settings.var_name_to_prev_var_name or {}
    restored, missing, mismatched = {}, [], []
    for variable in _chosen(traced.graph, settings.vars_to_warm_start):
        name = variable.op.name
        key = renamed.get(name, name)
        if key not in held:
            missing.append(name)
        elif variable.shape.as_list() != list(held[key]):
            mismatched.append(f"{name} is {variable.shape.as_list()}, in the checkpoint {list(held[key])}")
        else:
            restored[name] = reader.get_tensor(key)
    if not restored:
        raise CheckpointError(
            f"warm start: the checkpoint '{prefix}' has none of the {len(missing) + len(mismatched)} variables chosen",
            fix=f"it has {', '.join(sorted(held)[:5])}; see vars_to_warm_start and var_name_to_prev_var_name",
        )
    host.set_values(restored)
    say(f"warm start from {prefix}: {counted(len(restored), 'variable')} restored{_listed('missing', missing)}"
        f"{_listed('of another shape', mismatched)}")  # fmt: skip


def _path(path: str) -> str:
    variables = Path(path, "variables", "variables")
    return str(variables) if Path(f"{variables}.index").exists() else path


def _chosen(graph: Any, patterns: Any) -> list[Any]:
    """The variables to restore; see ``WarmStartSettings.vars_to_warm_start``."""
    variables = graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
    if patterns in (None, ".*"):
        trained = {v.op.name for v in graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)}
        steps = {v.op.name for v in graph.get_collection(tf1.GraphKeys.GLOBAL_STEP)}
        slot_prefixes = tuple(f"{name}/" for name in trained)

        def of_optimizer(name: str) -> bool:
            return name.startswith(slot_prefixes) or re.fullmatch(r"(.*/)?beta[12]_power(_\d+)?", name) is not None

        left_out = {v.op.name for v in variables if v.op.name in steps or of_optimizer(v.op.name)} - trained
        return [v for v in variables if v.op.name not in left_out]
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    return [v for v in variables if any(re.match(pattern, v.op.name) for pattern in listed)]


def _listed(label: str, names: list[str]) -> str:
    if not names:
        return ""
    return f"; {len(names)} {label}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def restored(traced: Traced) -> Iterator[tuple[str, list[int] | None, list[str]]]:
    """Yields each key that the saver of a model restores, with the shape and the names of the variables that get its value.

    The shape is None where it is open, or where a part of the value, or what is made of it, is assigned.
    """
    path = traced.graph.get_tensor_by_name(traced.scaffold.saver.saver_def.filename_tensor_name)
    for read in (op for op in path.consumers() if op.type in ops.RESTORES):
        keys, slices = (np.ravel(tf.get_static_value(tensor)) for tensor in read.inputs[1:3])
        for key, part, value in zip(keys, slices, read.outputs, strict=True):
            users = reached(value.consumers(), lambda op: (user for out in op.outputs for user in out.consumers()))
            targets = [op.inputs[0].op for op in users if op.type in ops.WRITES]
            whole = not part and all(op.type in ops.WRITES or op.type in ops.IDENTITIES for op in users)
            shapes = [tf.TensorShape(target.get_attr("shape")) for target in targets if whole]
            shape = next((shape.as_list() for shape in shapes if shape.is_fully_defined()), None)
            yield key.decode(), shape, [target.name for target in targets]


def _saved_variables(traced: Traced) -> set[str]:
    return {name for _, _, names in restored(traced) for name in names}


def check_keys(traced: Traced, prefix: str) -> None:
    """Raise CheckpointError where a checkpoint lacks a key that the saver of a model reads, or has a variable of another shape."""
    try:
        compare_keys(Path(prefix), {key: shape for key, shape, _ in restored(traced)})
    except CheckpointError as error:
        error.origin = error.origin or traced.source
        raise


def unsaved(traced: Traced) -> list[Any]:
    """The variables that the saver of a model leaves out."""
    saved = _saved_variables(traced)
    return [v for v in traced.graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES) if v.op.name not in saved]


def first_checkpoint(traced: Traced, host: HostSession, model_dir: str, warm: WarmStartSettings | None) -> str:
    """The newest checkpoint; without one, writes the initial values.

    Initial values come from the scaffold's ``init_op`` (with its feeds) and ``init_fn``, then from the warm start.
    """
    scaffold = traced.scaffold
    latest = newest(Path(model_dir), warn)
    from_checkpoint: set[str] = set()
    if latest is None:
        initialize(scaffold, host)
        warm_start(traced, host, warm)
    else:
        check_keys(traced, str(latest))
        from_checkpoint = _saved_variables(traced)
    host.run(scaffold.local_init_op, feed_dict=scaffold.local_init_feed_dict)
    uninitialized = [] if scaffold.ready_op is None else [name.decode() for name in host.run(scaffold.ready_op)]
    if missing := [name for name in uninitialized if name not in from_checkpoint]:
        source = "init_op or init_fn" if latest is None else "saver hold them or its local_init_op"
        raise CheckpointError(f"nothing gives the variables {', '.join(missing[:5])} a first value",
                              fix=f"let the scaffold's {source} initialise them")  # fmt: skip
    if latest is not None:
        return str(latest)
    return write(traced, host, os.path.join(model_dir, PREFIX), keep=traced.keep)


def initialize(scaffold: Any, session: Any) -> None:
    """Gives the variables their initial values; ``init_fn`` is a function of the program."""
    if scaffold.init_op is not None:
        session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
    if scaffold.init_fn is not None:
        scaffold.init_fn(session)


def write(traced: Traced, session: Any, path: str, **kept: Any) -> str:
    """Writes a checkpoint with the saver of the model's graph; ``kept`` goes to ``write_durably``."""
    saver = traced.scaffold.saver.saver_def
    step = int(session.run(tf1.train.get_global_step(traced.graph)))
    prefix = f"{path}-{step}"

    def save(path: str) -> None:
        session.run(saver.save_tensor_name, {saver.filename_tensor_name: path})

    write_durably(Path(prefix), save, **kept)
    return prefix


class KeepEveryHours:
    """Keeps the first checkpoint after every ``keep_checkpoint_every_n_hours`` from being removed."""

    def __init__(self, hours: float) -> None:
        self._seconds = hours * 3600
        self._due = time.time() + self._seconds

    def __call__(self, prefix: Path) -> bool:
        if Path(f"{prefix}.index").stat().st_mtime <= self._due:
            return False
        self._due += self._seconds
        return True


def warn(text: str) -> None:
    say(f"warning: {text}")


class Checkpoints:
    """Saves the variables of a model in training, as often as the configuration says, and calls the listeners."""

    def __init__(self, model: Any, model_dir: str, config: RunConfig, listeners: Sequence[Any], events: Events) -> None:
        self._model = model
        self._traced: Traced = model.traced
        self._path = os.path.join(model_dir, PREFIX)
        self._config = config
        self._listeners = listeners
        self._events = events
        saver = self._traced.scaffold.saver.saver_def
        meta = tf1.train.export_meta_graph(graph_def=self._traced.graph_def(), saver_def=saver)
        self._meta = graphdef.serialize(meta)
        self._spare = KeepEveryHours(saver.keep_checkpoint_every_n_hours)
        self._saved_at = self._whole_at = -1
        self._saved_when = time.monotonic()
        self.stop_requested = False

    def begin(self, step: int) -> None:
        """Starts from a step that is saved already; listeners are called for it too."""
        for listener in self._listeners:
            listener.before_save(self._model.host, step)
        self._saved(step, f"{self._path}-{step}")
        self.stop_requested = False  # after the first checkpoint a listener stops nothing

    def save_if_due(self, step: int) -> None:
        """Saves if it is time to; training goes on if that fails."""
        steps, seconds = self._config.save_checkpoints_steps, self._config.save_checkpoints_secs
        by_steps = bool(steps) and step - self._saved_at >= steps
        if not by_steps and not (seconds and time.monotonic() - self._saved_when >= seconds):
            return
        try:
            self.save(step)
        except CheckpointError as error:
            self._saved_when = time.monotonic()
            say(f"warning: {error.fault}; training goes on, the last checkpoint is that of step {self._saved_at:,}")

    def save(self, step: int, *, last: bool = False) -> None:
        """Saves this step, unless it is saved; returns when the ``last`` one has been written."""
        self._wait_for_save()
        if step == self._saved_at:
            return
        for listener in self._listeners:
            listener.before_save(self._model.host, step)
        # a listener's after_save expects the files to be there
        in_background = self._config.async_save and not last and not self._listeners
        keeping = {"keep": self._traced.keep, "spare": self._spare}
        self._saved(step, self._model.save(self._path, in_background=in_background, **keeping))

    def _saved(self, step: int, prefix: str) -> None:
        try:
            files.write_atomically(Path(f"{prefix}.meta"), self._meta)
        except LoadError as error:
            raise CheckpointError(error.fault, fix="check the folder and the free space") from error
        self._saved_at, self._saved_when = step, time.monotonic()
        self._events.checkpoint(step, prefix)
        for listener in self._listeners:
            self.stop_requested |= bool(listener.after_save(self._model.host, step))

    def _wait_for_save(self) -> None:
        try:
            self._model.wait_for_save()
        except CheckpointError:
            self._saved_at = self._whole_at
            raise
        self._whole_at = self._saved_at

    def end(self, step: int) -> None:
        for listener in self._listeners:
            listener.end(self._model.host, step)


def check_listeners(listeners: Any) -> tuple[Any, ...]:
    kind, what = tf1.train.CheckpointSaverListener, "a tf.compat.v1.train.CheckpointSaverListener"
    return check_each("saving_listeners", listeners, kind, what=what)
