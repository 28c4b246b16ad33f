"""TPUConfig: how TPUEstimator uses the cores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from tpugraph.analysis.races import ORDERS, READS_FIRST
from tpugraph.estimator.arguments import check_choice, check_int
from tpugraph.estimator.cluster import tpu_job_name
from tpugraph.runtime.engines import device_count
from tpugraph.support.errors import ArgumentError
from tpugraph.xla.mesh import DATA, Layout, Mesh

_TIME = re.compile(r"([1-9]\d*)([smh]?)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# bytes: with Adam a table takes three times as much, and four or five in an update; a core has 8 GiB or more
LARGE_TABLE = 1 << 30


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
        max_ids: the most ids in a row of a sparse column, or the size of a dimension that ``padded_batch`` leaves open, where no
            shape tells; 0 measures the first batches.
        shard_tables: tables of at least so many bytes that are accessed by rows are sharded over the cores; 0 for none. None is
            1 GiB with an EmbeddingConfigSpec in one process, else 0.
        step_order: ``reads_first`` or ``writes_first``, where the model does not order a read and a write of a variable,
            such as the step counter.
        engine: what trains: ``emulator``, or ``xla``, which divides the step at the global batch among devices of
            ``platform`` by XLA's own partitioner; ``batch_norm`` is then of the global batch. Where None, ``xla`` with a
            ``platform`` or a ``mesh``, else ``emulator``. Evaluation and prediction stay on emulated cores.
        mesh: with ``xla``, the axes of the devices, such as ``data:4,model:2``. None puts ``num_shards`` devices, or as many as
            divide the batch, along ``data``, and adds an axis for each dimension that ``input_partition_dims`` splits, such as
            ``dim1`` for the rows of an image.
        shard: how variables are sharded, as ``REGEX=model,-``.
        shard_optimizer: the axis along which the optimizer's variables are sharded.
        platform: ``cpu`` for virtual devices, as where None, ``gpu`` or ``tpu``.
        tf32: whether GPUs round the operands of float32 products to TensorFloat-32, which is faster.
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
    engine: str | None = None
    mesh: str | None = None
    shard: Sequence[str] = ()
    shard_optimizer: str = ""
    platform: str | None = None
    tf32: bool = False

    def __post_init__(self) -> None:
        loop_length(self.iterations_per_loop)
        if self.num_shards is not None:
            check_int("TPUConfig num_shards", self.num_shards, least=1, example="num_shards=8")
        check_choice("TPUConfig num_cores_per_replica", self.num_cores_per_replica, (None, 1, 2, 4, 8, 16, 32, 64, 128))
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
        check_choice("TPUConfig engine", self.engine, (None, "emulator", "xla"), why="emulator or xla")
        check_choice("TPUConfig platform", self.platform, (None, "cpu", "gpu", "tpu"), why="cpu, gpu or tpu")
        if not self.by_xla and (self.mesh or self.shard or self.shard_optimizer or self.platform):
            raise ArgumentError("TPUConfig platform, mesh, shard and shard_optimizer are for XLA's own partitioner",
                                fix='engine="xla"')  # fmt: skip

    @property
    def by_xla(self) -> bool:
        """Whether XLA divides the step of training."""
        return self.engine == "xla" or (self.engine is None and bool(self.mesh or self.platform))

    def layout(self, parts: Mapping[tuple[int, ...], Sequence[int]]) -> Layout | None:
        """How the step lies on devices; None on emulated cores.

        Args:
            parts: of ``input_partition_dims``, by the shape of an example, into how many parts each dimension is split.
        """
        if not self.by_xla:
            return None
        spatial = {f"dim{d}": count for sizes in parts.values() for d, count in enumerate(sizes) if count > 1}
        replicas = device_count(self.platform or "cpu") // (self.num_cores_per_replica or 1)
        mesh = self.mesh or str(Mesh({DATA: self.num_shards or max(replicas, 1), **spatial}))
        found = Layout.parse(mesh, self.shard, self.shard_optimizer)
        inputs = {
            shape: tuple((DATA,) * (d == 0) + (f"dim{d}",) * (count > 1) for d, count in enumerate(sizes))
            for shape, sizes in parts.items()
        }
        return replace(found, inputs=inputs, tf32=self.tf32, shrinks=not (self.mesh or self.num_shards))

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
