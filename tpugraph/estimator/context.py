"""Batch sizes per host and core, and ``params['context']``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from tpugraph.estimator.arguments import check_int
from tpugraph.estimator.specs import ModeKeys
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.runtime.tpu_op_fallback import assignment
from tpugraph.support.errors import ArgumentError, ArgumentTypeError, RunError
from tpugraph.support.wording import counted

_ARGUMENT = {
    ModeKeys.TRAIN: "train_batch_size",
    ModeKeys.EVAL: "eval_batch_size",
    ModeKeys.PREDICT: "predict_batch_size",
}


@dataclass(frozen=True)
class Batches:
    cores: int  # 0 without TPU
    global_batch: int | None  # None where unknown (without TPU only)
    per_host: int | None  # params['batch_size'] of the input function
    per_core: int | None  # params['batch_size'] of a model function that is traced as one replica
    hosts: int = 1  # hosts that share the cores

    @property
    def line(self) -> str:
        if not self.cores:
            return "" if self.global_batch is None else f"batch {self.global_batch}, without TPU"
        if self.cores > 1 and self.per_core == self.global_batch:
            return f"batch {self.global_batch}, the same on each of {self.cores} cores"
        shared = f" on {self.hosts} workers" if self.hosts > 1 else ""
        return f"global batch {self.global_batch} = {counted(self.cores, 'core')} x {self.per_core}{shared}"


class WholeBatch(int):
    """The global batch size; it equals the batch size of one core as well, for programs that check theirs."""

    per_core: int | None = None

    def __eq__(self, other: object) -> bool:
        return int(self) == other or self.per_core == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def check_batch_size(mode: str, size: object) -> int:
    if size is None:
        # tf.contrib.tpu's words, which programs match
        missing = "`train_batch_size`" if mode == ModeKeys.TRAIN else f"{_ARGUMENT[mode]} in TPUEstimator constructor"
        raise ArgumentError(f"{missing} cannot be `None`: the cores need a batch of a known size",
                            fix=f"TPUEstimator(..., {_ARGUMENT[mode]}=1024), or use_tpu=False")  # fmt: skip
    return check_int(_ARGUMENT[mode], size, least=1)


def batches(mode: str, size: object, cores: int, input_mode: int, hosts: int = 1) -> Batches:
    if not cores:
        rows = None if size is None else check_batch_size(mode, size)
        return Batches(0, rows, rows, rows)
    rows = check_batch_size(mode, size)
    if input_mode == InputPipelineConfig.BROADCAST:
        return Batches(cores, rows, rows, rows, hosts)
    if rows % cores:
        low = rows // cores * cores
        near = " or ".join(str(n) for n in (low, low + cores) if n)
        raise ArgumentError(f"{_ARGUMENT[mode]} is {rows}, but must be divisible by the {cores} cores",
                            fix=f"{near}, or num_shards")  # fmt: skip
    share = rows // cores
    per_core_input = input_mode in (InputPipelineConfig.PER_SHARD_V1, InputPipelineConfig.PER_HOST_V2)
    if cores % hosts:
        raise ArgumentError(f"{cores} cores (num_shards) cannot be divided evenly among {hosts} workers",
                            fix=f"num_shards={8 * hosts}")  # fmt: skip
    return Batches(cores, rows, share if per_core_input else rows // hosts, share, hosts)


@dataclass(frozen=True)
class Deployment:
    """Which call of the input function this is."""

    host: int = 0
    call: int = 0
    calls: int = 1
    replicas: int = 1


@dataclass(frozen=True)
class TPUContext:
    """``params['context']``: how the function that gets it is deployed.

    Attributes:
        num_hosts: hosts with cores.
        num_replicas: replicas over all hosts.
        asked: ``current_host`` is appended when it is read.
    """

    num_hosts: int
    num_replicas: int
    _deployment: Deployment | None = None
    _cores_per_replica: int = 1
    asked: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def num_of_replicas_per_host(self) -> int:
        return max(self.num_replicas // self.num_hosts, 1)

    @property
    def current_host(self) -> int:
        """The host whose input function is called.

        Raises:
            RunError: asked for in a model function (a ``RuntimeError``).
        """
        if self._deployment is None:
            _wrong_side("current_host", "input_fn")
        self.asked.append(self._deployment.host)
        return self._deployment.host

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """The host's device, the number of this call of the input function, the number of calls, and the replicas per call.

        Raises:
            RunError: asked for in a model function (a ``RuntimeError``).
        """
        if self._deployment is None:
            _wrong_side("current_input_fn_deployment()", "input_fn")
        device, of = f"/replica:0/task:{self.current_host}/device:CPU:0", self._deployment
        return device, of.call, of.calls, of.replicas

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        """The host device of a replica, and the ordinal of its first core there."""
        if self._cores_per_replica > 1:
            cores = assignment(self.num_replicas, self._cores_per_replica)
            return cores.host_device(replica=replica_id), int(cores.tpu_ordinal(replica=replica_id))
        host, ordinal = divmod(replica_id, self.num_of_replicas_per_host)
        return f"/task:{host}/device:CPU:0", ordinal

    @property
    def device_assignment(self) -> Any:
        """A ``tf.tpu.experimental.DeviceAssignment``; None unless replicas span several cores.

        Raises:
            RunError: asked for in an input function (a ``RuntimeError``).
        """
        if self._deployment is not None:
            _wrong_side("device_assignment", "model_fn")
        return None if self._cores_per_replica == 1 else assignment(self.num_replicas, self._cores_per_replica)


class ContextError(RunError, RuntimeError):
    pass


def _wrong_side(what: str, where: str) -> NoReturn:
    other = "model_fn" if where == "input_fn" else "input_fn"
    raise ContextError(
        f"params['context'].{what} is known in {where} only. This TPUContext instance must not be called from {other}."
    )


def check_params(params: object) -> None:
    """Refuses params that are neither a dict nor an HParams object, and reserved keys in them."""
    values = params if params is None or isinstance(params, dict) else getattr(params, "values", None)
    keys = values() if callable(values) else {} if params is None else values
    if not isinstance(keys, dict):
        raise ArgumentTypeError(f"params must be a dict, but is {params!r} ({type(params).__name__})")
    for key in [key for key in ("batch_size", "context") if key in keys]:
        fix = "give the batch size as train_batch_size" if key == "batch_size" else "rename the key"
        raise ArgumentError(f"params has the key '{key}', but 'batch_size' and 'context' are reserved keys: TPUEstimator "
                            "sets them", fix=fix)  # fmt: skip
