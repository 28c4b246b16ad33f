"""RunConfig: where a TPUEstimator runs, where its files go and how often."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpugraph.estimator.arguments import check_number
from tpugraph.estimator.cluster import EVALUATOR, PARAMETER_SERVER, Task, current_task
from tpugraph.estimator.tpu_config import TPUConfig
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

_SAVE_SECONDS = 600
_INTERVALS = ("save_checkpoints_steps", "save_checkpoints_secs")
_UNSET: Any = type("unset", (), {"__repr__": lambda self: "<not given>"})()


class RunConfig:
    """How a TPUEstimator runs.

    Args:
        tpu_config: ``TPUConfig()`` when None.
        evaluation_master: address of the TensorFlow server for evaluation; that of TF_CONFIG or ``master`` when None.
        master: address of the TensorFlow server; "" runs in this process. That of TF_CONFIG when None.
        cluster: a :class:`~tpugraph.estimator.cluster.TPUClusterResolver`; gives the master instead.
        model_dir: folder for checkpoints and event files.
        tf_random_seed: seed of each graph.
        save_summary_steps: steps between summaries.
        save_checkpoints_steps: steps between checkpoints.
        save_checkpoints_secs: seconds between checkpoints; 600 where neither this nor the steps are given. Both None:
            only the first and the last are written.
        session_config: a ``tf.compat.v1.ConfigProto``.
        keep_checkpoint_max: how many of the newest checkpoints are kept; 0 keeps all.
        keep_checkpoint_every_n_hours: one checkpoint per so many hours is kept besides.
        log_step_count_steps: steps between two lines of progress.
        train_distribute, eval_distribute, experimental_distribute: a strategy; for an Estimator it means cores, whatever devices
            it names.
        device_fn: a function of an op, to place it.
        protocol: ``grpc`` or None.
        experimental_max_worker_delay_secs: ignored.
        session_creation_timeout_secs: seconds to wait for a session.
        async_save: writes checkpoints in the background; not the last one, not with saving listeners, and not with
            ``use_tpu=False``.

    Attributes:
        master, evaluation_master: addresses of the TensorFlow servers for training and for evaluation; "" is this process.
        cluster: the cluster resolver, or None.
        task_type, task_id: type and index of this task in TF_CONFIG; ``worker`` 0 without.
        global_id_in_cluster: the number of this task in the cluster, the chief being 0; None for an evaluator.
        service: ``service`` of TF_CONFIG, or None.
        is_chief: whether this process writes the checkpoints: the chief of TF_CONFIG, or the only one.
        num_worker_replicas: how many tasks of TF_CONFIG train, the chief among them; 1 without a cluster.
        num_ps_replicas: how many parameter servers TF_CONFIG names.
    """

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        *,
        model_dir: str | os.PathLike[str] | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100,
        save_checkpoints_steps: int | None = _UNSET,
        save_checkpoints_secs: float | None = _UNSET,
        session_config: Any = None,
        keep_checkpoint_max: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100,
        train_distribute: Any = None,
        device_fn: Any = None,
        protocol: str | None = None,
        eval_distribute: Any = None,
        experimental_distribute: Any = None,
        experimental_max_worker_delay_secs: float | None = None,
        session_creation_timeout_secs: float = 7200,
        async_save: bool = False,
    ) -> None:
        values: dict[str, Any] = dict(locals())  # the arguments
        for name in ("self", "evaluation_master", "master", "cluster"):
            del values[name]
        steps, seconds = save_checkpoints_steps, save_checkpoints_secs
        values.update(
            save_checkpoints_steps=None if steps is _UNSET else steps,
            save_checkpoints_secs=(_SAVE_SECONDS if steps is _UNSET else None) if seconds is _UNSET else seconds,
            model_dir=None if model_dir is None else os.fspath(model_dir),
            async_save=bool(async_save),
            tpu_config=TPUConfig() if tpu_config is None else tpu_config,
        )
        _check(values)
        self._values, task = values, current_task()
        trains, evaluates = _masters(master, evaluation_master, cluster, session_config, task)
        self._jobs = task.jobs
        self._told = {
            "master": trains, "evaluation_master": evaluates, "cluster": cluster, "task_type": task.kind, "task_id": task.index,
            "global_id_in_cluster": task.number, "service": None if task.service is None else dict(task.service),
            "is_chief": task.is_chief, "num_worker_replicas": task.workers,
            "num_ps_replicas": len(task.jobs.get(PARAMETER_SERVER, [])),
        }  # fmt: skip

    def replace(self, **kwargs: Any) -> RunConfig:
        """A copy with some values changed."""
        for name in kwargs:
            if name not in self._values:
                raise ArgumentError(f"RunConfig has no '{name}' to replace", fix=f"one of {', '.join(self._values)}")
        for name, other in (_INTERVALS, _INTERVALS[::-1]):
            if kwargs.get(name) is not None:
                kwargs.setdefault(other, None)
        changed = copy.copy(self)
        changed._values = {**self._values, **kwargs}
        _check(changed._values)
        return changed

    def __getattr__(self, name: str) -> Any:
        for known in (self.__dict__.get("_values", {}), self.__dict__.get("_told", {})):
            if name in known:
                return known[name]
        raise AttributeError(f"RunConfig has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values, *self._told})

    def __repr__(self) -> str:
        defaults = {k: p.default for k, p in inspect.signature(RunConfig.__init__).parameters.items()}
        shown = [f"{k}={v!r}" for k, v in self._values.items() if defaults.get(k) is not v and v != defaults.get(k)]
        return f"RunConfig({', '.join(shown)})"

    @property
    def cluster_spec(self) -> Any:
        """The cluster of the resolver, else of TF_CONFIG, else None."""
        if self.cluster is not None:
            return self.cluster.cluster_spec()
        return tf.train.ClusterSpec(dict(self._jobs)) if self._jobs else None

    @property
    def workers(self) -> list[str] | None:
        """The addresses of the workers, where there are several."""
        spec = None if self.cluster is None else self.cluster.cluster_spec()
        jobs = {} if spec is None else spec.as_dict()
        found = list(jobs.get("worker") or next(iter(jobs.values()), []))
        return found if len(found) > 1 else None


def _check(values: dict[str, Any]) -> None:
    steps, seconds = values["save_checkpoints_steps"], values["save_checkpoints_secs"]
    if steps is not None and seconds is not None:
        raise ArgumentError(f"RunConfig has both save_checkpoints_steps ({steps}) and save_checkpoints_secs ({seconds})",
                            fix="give one")  # fmt: skip
    if values["model_dir"] == "":
        raise ArgumentError("RunConfig model_dir is empty", fix="give a folder, or None for a temporary one")
    for name in ("save_summary_steps", "save_checkpoints_steps", "save_checkpoints_secs", "keep_checkpoint_max",
                 "experimental_max_worker_delay_secs"):  # fmt: skip
        if values[name] is not None:
            check_number(f"RunConfig {name}", values[name])
    for name in ("keep_checkpoint_every_n_hours", "log_step_count_steps", "session_creation_timeout_secs"):
        if values[name] is not None:
            check_number(f"RunConfig {name}", values[name], above=True)
    seed = values["tf_random_seed"]
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ArgumentError(f"RunConfig tf_random_seed must be a whole number, but is {seed!r}")
    config = values["session_config"]
    if config is not None and type(config).__name__ != "ConfigProto":
        raise ArgumentError(f"RunConfig session_config must be a tf.compat.v1.ConfigProto, but is {config!r}")
    if values["protocol"] not in (None, "grpc", "grpc+verbs"):
        raise ArgumentError(f"RunConfig protocol is {values['protocol']!r}, but must be 'grpc' or 'grpc+verbs'")
    if (place := values["device_fn"]) is not None:
        names = inspect.signature(place).parameters.values() if callable(place) else ()
        if sum(parameter.default is parameter.empty for parameter in names) != 1:
            raise ArgumentError(f"RunConfig device_fn must be a function of one op, but is {place!r}")
    for name in ("train_distribute", "eval_distribute", "experimental_distribute"):
        if values[name] is not None and not is_strategy(values[name]):
            raise ArgumentError(f"RunConfig {name} must be a distribution strategy, but is {values[name]!r}")
    if not isinstance(values["tpu_config"], TPUConfig):
        raise ArgumentTypeError(f"RunConfig tpu_config must be a TPUConfig, but is {values['tpu_config']!r}")


def _masters(master: Any, evaluation_master: Any, cluster: Any, session_config: Any, told: Task) -> tuple[str, str]:
    """The masters of training and evaluation: the arguments, else TF_CONFIG; an evaluator has its own."""
    if cluster is not None and master:
        raise ArgumentError(f"RunConfig has both a cluster and the master '{master}'", fix="give one")
    if cluster is not None and session_config is not None and session_config.HasField("cluster_def"):
        raise ArgumentError("RunConfig has both a cluster and a session_config with a cluster_def",
                            fix="leave the cluster_def out")  # fmt: skip
    address = told.master if master is None else master
    if cluster is not None:
        address = cluster.master()
    if evaluation_master is not None:
        return address, evaluation_master
    return address, told.evaluation_master or ("" if told.kind == EVALUATOR else address)


# --------------------------------------------------------------------------- strategies, whose devices become cores


class CoreStrategy:
    """A strategy that splits each batch over at most ``count`` cores; the estimator's default when None."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    @property
    def num_replicas_in_sync(self) -> int:
        return self.count or 8

    @contextmanager
    def scope(self) -> Iterator[CoreStrategy]:
        """Variables are on the cores anyway."""
        yield self


def cores_of(config: Any) -> int | None:
    """The most cores that a RunConfig's strategy asks for; None without a strategy, 0 for one of TensorFlow's own."""
    strategy = config.train_distribute or getattr(config.experimental_distribute, "train_distribute", None)
    if isinstance(strategy, CoreStrategy):
        return strategy.count or 0
    return 0 if is_strategy(strategy) else None


def is_strategy(value: Any) -> bool:
    """Whether a value is a distribution strategy, or a DistributeConfig."""
    whole = (CoreStrategy, tf.distribute.Strategy, tf.compat.v1.distribute.Strategy)
    return isinstance(value, whole) or (hasattr(value, "train_distribute") and hasattr(value, "eval_distribute"))
