"""What an estimator asks to have traced, in which batches and for how many cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tpugraph.estimator.arguments import whole
from tpugraph.estimator.context import Batches, batches, check_batch_size
from tpugraph.estimator.embedding_spec import EmbeddingConfigSpec
from tpugraph.estimator.modes import ModeKeys
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.estimator.tracing import Request
from tpugraph.runtime.cluster.masters import reach
from tpugraph.runtime.emulator.device_mesh import CORES_OF_A_HOST
from tpugraph.support.errors import ArgumentError


@dataclass(frozen=True)
class Requests:
    """The requests of one estimator.

    Attributes:
        model_fn: the model function.
        params: the user's params.
        config: the run configuration.
        use_tpu: whether there are cores.
        eval_on_tpu: whether evaluation uses them.
        batch_sizes: the global batch of each mode, or None.
        batch_axis: of each part of the input the dimension of its batch, or None.
        embeddings: the tables that are kept apart on cores, or None.
    """

    model_fn: Callable[..., Any]
    params: Any
    config: RunConfig
    use_tpu: bool
    eval_on_tpu: bool
    batch_sizes: Mapping[str, int | None]
    batch_axis: Any = None
    embeddings: EmbeddingConfigSpec | None = None

    @property
    def endless(self) -> bool:
        """Whether training may go on to the end of the data, with no number of steps given."""
        return not self.use_tpu

    def check(self) -> None:
        """Check what must be right before anything is asked for.

        Raises:
            ArgumentError: a batch size, or cores per replica, that cannot be (a ``ValueError``).
            ArgumentTypeError: a batch size that is no whole number (a ``TypeError``).
        """
        if not self.use_tpu:
            if not self.eval_on_tpu:
                say("warning: eval_on_tpu has no effect with use_tpu=False")
            return
        check_batch_size(ModeKeys.TRAIN, self.batch_sizes[ModeKeys.TRAIN])
        for name, mode in (("eval_batch_size", ModeKeys.EVAL), ("predict_batch_size", ModeKeys.PREDICT)):
            if self.batch_sizes[mode] is not None:
                whole(name, self.batch_sizes[mode], least=1)
        self._check_cores_per_replica()
        if self.embeddings is not None:
            self._check_embeddings(self.embeddings)

    def _check_embeddings(self, embeddings: EmbeddingConfigSpec) -> None:
        embeddings.check_tables()
        mode = self.config.tpu_config.per_host_input_for_training
        if mode not in (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.PER_HOST_V2):
            raise ArgumentError(
                f"Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; got {mode}.",
                fix="per_host_input_for_training=True",
            )

    def _check_cores_per_replica(self) -> None:
        config, spanned = self.config.tpu_config, self._cores_per_replica
        if spanned == 1:
            return
        mode = config.per_host_input_for_training
        if mode == InputPipelineConfig.PER_SHARD_V1:
            raise ArgumentError(
                "Model parallelism only supports input per host, "
                f"but num_cores_per_replica is {spanned} with input per core (PER_SHARD_V1)",
                fix="per_host_input_for_training=True",
            )
        if spanned > CORES_OF_A_HOST and mode != InputPipelineConfig.PER_HOST_V2:
            raise ArgumentError(
                "Except the PER_HOST_V2 mode, the num of cores required by model parallelism specified by "
                "TPUConfig.num_cores_per_replica should be less than or equal to the num_cores_per_host. "
                f"num_cores_per_replica: {spanned}, num_cores_per_host: {CORES_OF_A_HOST}"
            )
        say(f"note: the {spanned} cores of a replica compute it as one: no mesh splits it")

    @property
    def _cores_per_replica(self) -> int:
        return self.config.tpu_config.num_cores_per_replica or 1

    def of(self, input_fn: Any, mode: str, *, on_cores: bool = True) -> Request:
        """The request to trace the model in a mode.

        Args:
            input_fn: the input function.
            mode: a ModeKeys value.
            on_cores: False asks for the plain graph whatever the estimator says.

        Raises:
            ArgumentError: a batch that is missing, or does not divide by the cores (a ``ValueError``).
        """
        plan = self._plan(mode, on_cores=on_cores and self.use_tpu and (mode != ModeKeys.EVAL or self.eval_on_tpu))
        mode_of_input = (
            self._input_mode(mode) if plan.cores or mode == ModeKeys.TRAIN else InputPipelineConfig.PER_HOST_V1
        )
        whole = bool(plan.cores) and mode == ModeKeys.TRAIN and self._asks_for_one_program
        return Request(self.model_fn, input_fn, mode, self.params, self.config, plan, whole, mode_of_input,
                       self.batch_axis, embeddings=self.embeddings)  # fmt: skip

    @property
    def _asks_for_one_program(self) -> bool:
        """Whether something is asked for that replicas do not have in common: shared tables, statistics of all rows."""
        config = self.config.tpu_config
        return self.embeddings is not None or bool(config.shard_tables) or config.batch_norm == "global"

    def _input_mode(self, mode: str) -> int:
        """How the input of a mode is read; beside training each host's batch is split, or each core's read."""
        given: int = self.config.tpu_config.per_host_input_for_training
        if mode == ModeKeys.TRAIN or given == InputPipelineConfig.PER_HOST_V2:
            return given
        return InputPipelineConfig.PER_HOST_V1

    def _plan(self, mode: str, *, on_cores: bool) -> Batches:
        if not on_cores:
            return batches(mode, self.batch_sizes[mode], 0, InputPipelineConfig.PER_HOST_V1)
        hosts, given = self._hosts if mode == ModeKeys.TRAIN else 1, self.config.tpu_config
        cores = given.num_shards or max(CORES_OF_A_HOST * hosts // self._cores_per_replica, 1)
        if mode != ModeKeys.TRAIN and given.per_host_input_for_training == InputPipelineConfig.BROADCAST:
            cores = 1  # each core would compute the same, of which one was read
        return batches(mode, self.batch_sizes[mode], cores, self._input_mode(mode), hosts)

    @cached_property
    def _hosts(self) -> int:
        """How many workers share the cores."""
        workers, master = self.config.workers, self.config.master
        return len(workers) if workers else reach(master, None).hosts if master else 1
