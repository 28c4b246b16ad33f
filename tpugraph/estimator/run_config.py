"""TPUConfig and RunConfig: how the cores are used, where files go and how often."""

from __future__ import annotations

import copy
import inspect
import os
import re
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import tensorflow as tf

from tpugraph.analysis.races import ORDERS, READS_FIRST
from tpugraph.estimator.arguments import check_choice, check_int, check_number
from tpugraph.estimator.cluster import EVALUATOR, Task, current_task, tpu_job_name
from tpugraph.estimator.core_strategy import is_strategy
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

_TIME = re.compile(r"([1-9]\d*)([smh]?)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# bytes: with Adam a table takes three times as much, and four or five in an update; a core has 8 GiB or more
LARGE_TABLE = 1 << 30
_CORES_PER_REPLICA = (1, 2, 4, 8, 16, 32, 64, 128)


class InputPipelineConfig:
    """How often the input function is called, and for which batch; see ``TPUConfig.per_host_input_for_training``.

    PER_SHARD_V1: for each core's batch; it returns ``(features, labels)``.
    PER_HOST_V1: once per host, for the host's batch, which the host splits.
    PER_HOST_V2: once per host, for one core's batch; it returns a Dataset that is read once per core.
    BROADCAST: once, for the global batch; every core gets all of it.
    SLICED: evaluation and prediction only: once, for the global batch, which the host splits.
    """

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


@dataclass(frozen=True)
class TPUConfig:
    """How TPUEstimator uses the cores.

    Attributes:
        iterations_per_loop: training steps per Session.run: a number, or a time such as ``"30s"``, ``"5m"``, ``"1h"``.
        num_shards: number of cores; 8 when None.
        num_cores_per_replica: cores per replica, which compute it as one.
        per_host_input_for_training: an :class:`InputPipelineConfig` value; True is PER_HOST_V1, False PER_SHARD_V1.
        tpu_job_name: name of the TPU job in a cluster; that of TF_CONFIG when None.
        initial_infeed_sleep_secs: seconds to wait before the first batch is sent.
        input_partition_dims: how inputs are split over the cores of one replica.
        eval_training_input_configuration: PER_HOST_V1 or SLICED.
        experimental_host_call_every_n_steps: steps between two host calls.
        experimental_allow_per_host_v2_parallel_get_next: ignored: batches are read in order.
        experimental_feed_hook: refused unless None: there is no infeed hook.
        batch_norm: ``per_core`` normalises each core's rows by their own statistics, as models on a TPU do; ``global`` by those
            of the global batch. tpugraph's own, as are those below.
        max_ids: the most ids in a row of a sparse column, where no shape tells; 0 leaves it open.
        shard_tables: tables of at least so many bytes that are accessed by rows are sharded over the cores; 0 for none. None is
            1 GiB with an EmbeddingConfigSpec in one process, else 0.
        step_order: ``reads_first`` or ``writes_first``, where the model does not order a read and a write of a variable,
            such as the step counter.
    """

    iterations_per_loop: int | str = 2
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: Any = True
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: int | None = None
    input_partition_dims: Any = None
    eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1
    experimental_host_call_every_n_steps: int = 1
    experimental_allow_per_host_v2_parallel_get_next: bool = False
    experimental_feed_hook: Any = None
    _: KW_ONLY
    batch_norm: str = "per_core"
    max_ids: int = 0
    shard_tables: int | None = None
    step_order: str = READS_FIRST

    def __post_init__(self) -> None:
        loop_length(self.iterations_per_loop)
        if self.num_shards is not None:
            check_int("TPUConfig num_shards", self.num_shards, least=1, example="num_shards=8")
        if self.num_cores_per_replica is not None:
            self._check_cores_per_replica()
        if self.initial_infeed_sleep_secs is not None:
            check_int("TPUConfig initial_infeed_sleep_secs", self.initial_infeed_sleep_secs, least=0)
        check_int("TPUConfig experimental_host_call_every_n_steps", self.experimental_host_call_every_n_steps, least=1)
        object.__setattr__(self, "per_host_input_for_training", _input_mode(self.per_host_input_for_training))
        check_int("TPUConfig max_ids", self.max_ids, least=0)
        if self.shard_tables is not None:
            check_int("TPUConfig shard_tables", self.shard_tables, least=0)
        check_choice("TPUConfig batch_norm", self.batch_norm, ("per_core", "global"))
        check_choice("TPUConfig step_order", self.step_order, ORDERS)
        object.__setattr__(self, "tpu_job_name", self.tpu_job_name or tpu_job_name())
        allowed = (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.SLICED)
        check_choice("TPUConfig eval_training_input_configuration", self.eval_training_input_configuration, allowed,
               why="PER_HOST_V1 or SLICED")  # fmt: skip
        if self.experimental_feed_hook is not None:
            raise ArgumentError("TPUConfig experimental_feed_hook: there is no infeed hook to replace",
                                fix="leave it out")  # fmt: skip
        if self.input_partition_dims is not None:
            self._check_partition_dims()

    def choices(self, *, tables: bool) -> dict[str, Any]:
        """The fields of ConvertOptions; ``tables``: whether the model has tables of an EmbeddingConfigSpec that can be sharded."""
        return {"batch_norm": self.batch_norm, "max_ids": self.max_ids, "shard_tables": self.least_shared(tables=tables),
                "step_order": self.step_order}  # fmt: skip

    def least_shared(self, *, tables: bool) -> int:
        """The least size in bytes of a table that is sharded; 0 for none."""
        if self.shard_tables is not None:
            return self.shard_tables
        return LARGE_TABLE if tables else 0

    def _replace(self, **changes: Any) -> TPUConfig:
        """``dataclasses.replace``, under the name that it has in TF 1.15, where the class is a named tuple."""
        return replace(self, **changes)

    def _check_cores_per_replica(self) -> None:
        spanned = self.num_cores_per_replica
        if spanned not in _CORES_PER_REPLICA:
            listed = ", ".join(map(str, _CORES_PER_REPLICA))
            raise ArgumentError(f"TPUConfig num_cores_per_replica must be {listed}; got {spanned}")

    def _check_partition_dims(self) -> None:
        dims = self.input_partition_dims
        if not isinstance(dims, (list, tuple)) or len(dims) not in (1, 2):
            raise ArgumentError(
                f"TPUConfig input_partition_dims must be a list/tuple with one or two elements. It is {dims!r}"
            )
        if self.per_host_input_for_training != InputPipelineConfig.PER_HOST_V2:
            raise ArgumentError("TPUConfig input_partition_dims is only supported in PER_HOST_V2 mode.",
                                fix="per_host_input_for_training=InputPipelineConfig.PER_HOST_V2")  # fmt: skip
        if self.num_cores_per_replica is None:
            raise ArgumentError("TPUConfig input_partition_dims requires setting num_cores_per_replica.",
                                fix="set it as well")  # fmt: skip


def loop_length(value: Any) -> tuple[int | None, float | None]:
    """Parses iterations_per_loop: (steps, None) or (None, seconds)."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value, None
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ArgumentError(
            f"TPUConfig iterations_per_loop is {value!r}, but must be positive: a number of steps, or a time",
            fix='iterations_per_loop=100, or "30s", "5m", "1h"',
        )
    if not match[2]:
        return int(match[1]), None
    return None, int(match[1]) * _UNITS[match[2]]


def _input_mode(value: Any) -> int:
    if isinstance(value, bool):
        return InputPipelineConfig.PER_HOST_V1 if value else InputPipelineConfig.PER_SHARD_V1
    modes = {v: k for k, v in vars(InputPipelineConfig).items() if not k.startswith("_")}
    if value not in modes:
        raise ArgumentError(
            f"TPUConfig per_host_input_for_training is {value!r}, but must be True, False or an InputPipelineConfig",
            fix=f"InputPipelineConfig.{modes[InputPipelineConfig.PER_HOST_V1]}",
        )
    return int(value)


_SAVE_SECONDS = 600
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
        values.update(
            _saving(save_checkpoints_steps, save_checkpoints_secs),
            model_dir=None if model_dir is None else os.fspath(model_dir),
            async_save=bool(async_save),
            tpu_config=TPUConfig() if tpu_config is None else tpu_config,
        )
        _check(values)
        self._values = values
        self._cluster = cluster
        self._task = current_task()
        self._master, self._evaluation_master = _masters(master, evaluation_master, cluster, session_config, self._task)

    def replace(self, **kwargs: Any) -> RunConfig:
        """A copy with some values changed."""
        for name in kwargs:
            if name not in self._values:
                raise ArgumentError(f"RunConfig has no '{name}' to replace", fix=f"one of {', '.join(self._values)}")
        if kwargs.get("save_checkpoints_steps") is not None and "save_checkpoints_secs" not in kwargs:
            kwargs["save_checkpoints_secs"] = None
        if kwargs.get("save_checkpoints_secs") is not None and "save_checkpoints_steps" not in kwargs:
            kwargs["save_checkpoints_steps"] = None
        values = {**self._values, **kwargs}
        _refuse_both(values["save_checkpoints_steps"], values["save_checkpoints_secs"])
        _check(values)
        changed = copy.copy(self)
        changed._values = values
        return changed

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"RunConfig has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values})

    def __repr__(self) -> str:
        defaults = {k: p.default for k, p in inspect.signature(RunConfig.__init__).parameters.items()}
        shown = [f"{k}={v!r}" for k, v in self._values.items() if defaults.get(k) is not v and v != defaults.get(k)]
        return f"RunConfig({', '.join(shown)})"

    @property
    def master(self) -> str:
        """Address of the TensorFlow server; "" is this process."""
        return self._master

    @property
    def evaluation_master(self) -> str:
        """Address of the TensorFlow server for evaluation."""
        return self._evaluation_master

    @property
    def cluster(self) -> Any:
        """The cluster resolver, or None."""
        return self._cluster

    @property
    def cluster_spec(self) -> Any:
        """The cluster of the resolver, else of TF_CONFIG, else None."""
        if self._cluster is not None:
            return self._cluster.cluster_spec()
        return tf.train.ClusterSpec(dict(self._task.jobs)) if self._task.jobs else None

    @property
    def workers(self) -> list[str] | None:
        """The addresses of the workers, where there are several."""
        spec = None if self._cluster is None else self._cluster.cluster_spec()
        jobs = {} if spec is None else spec.as_dict()
        found = list(jobs.get("worker") or next(iter(jobs.values()), []))
        return found if len(found) > 1 else None

    @property
    def task_type(self) -> str:
        """The type of this task in TF_CONFIG; ``worker`` without."""
        return self._task.kind

    @property
    def task_id(self) -> int:
        """The index of this task in TF_CONFIG; 0 without."""
        return self._task.index

    @property
    def global_id_in_cluster(self) -> int | None:
        """The number of this task in the cluster, the chief being 0; None for an evaluator."""
        return self._task.number

    @property
    def service(self) -> dict[str, Any] | None:
        """``service`` of TF_CONFIG, or None."""
        return None if self._task.service is None else dict(self._task.service)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the checkpoints: the chief of TF_CONFIG, or the only one."""
        return self._task.is_chief

    @property
    def num_worker_replicas(self) -> int:
        """How many tasks of TF_CONFIG train, the chief among them; 1 without a cluster."""
        return self._task.workers

    @property
    def num_ps_replicas(self) -> int:
        """How many parameter servers TF_CONFIG names."""
        return len(self._task.jobs.get("ps", []))


def _saving(steps: Any, seconds: Any) -> dict[str, Any]:
    if steps is _UNSET and seconds is _UNSET:
        steps, seconds = None, _SAVE_SECONDS
    steps, seconds = None if steps is _UNSET else steps, None if seconds is _UNSET else seconds
    _refuse_both(steps, seconds)
    return {"save_checkpoints_steps": steps, "save_checkpoints_secs": seconds}


def _refuse_both(steps: Any, seconds: Any) -> None:
    if steps is not None and seconds is not None:
        raise ArgumentError(f"RunConfig has both save_checkpoints_steps ({steps}) and save_checkpoints_secs ({seconds})",
                            fix="give one")  # fmt: skip


def _check(values: dict[str, Any]) -> None:
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
    if values["device_fn"] is not None and not _takes_one(values["device_fn"]):
        raise ArgumentError(f"RunConfig device_fn must be a function of one op, but is {values['device_fn']!r}")
    for name in ("train_distribute", "eval_distribute", "experimental_distribute"):
        if values[name] is not None and not is_strategy(values[name]):
            raise ArgumentError(f"RunConfig {name} must be a distribution strategy, but is {values[name]!r}")
    if not isinstance(values["tpu_config"], TPUConfig):
        raise ArgumentTypeError(f"RunConfig tpu_config must be a TPUConfig, but is {values['tpu_config']!r}")


def _takes_one(function: Any) -> bool:
    if not callable(function):
        return False
    names = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    return len(names) == 1


def _masters(master: Any, evaluation_master: Any, cluster: Any, session_config: Any, told: Task) -> tuple[str, str]:
    """The masters of training and evaluation: the arguments, else TF_CONFIG; an evaluator has its own."""
    if cluster is not None and master:
        raise ArgumentError(f"RunConfig has both a cluster and the master '{master}'", fix="give one")
    if cluster is not None and session_config is not None and session_config.HasField("cluster_def"):
        raise ArgumentError("RunConfig has both a cluster and a session_config with a cluster_def",
                            fix="leave the cluster_def out")  # fmt: skip
    address = cluster.master() if cluster is not None else told.master if master is None else master
    if evaluation_master is not None:
        return address, evaluation_master
    return address, told.evaluation_master or ("" if told.kind == EVALUATOR else address)
