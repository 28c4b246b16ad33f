"""Estimator: the one of ``tf.estimator``, on this machine or, through the same compiler, on cores."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpugraph import ops
from tpugraph.estimator import inputs
from tpugraph.estimator.arguments import check_type
from tpugraph.estimator.context import batches
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig, cores_of
from tpugraph.estimator.specs import ModeKeys
from tpugraph.estimator.tpu_config import InputPipelineConfig, TPUConfig
from tpugraph.estimator.tpu_estimator import Requests, TPUEstimator
from tpugraph.estimator.tracing import Request, tensorflow_1_ops
from tpugraph.estimator.user_functions import call_input_fn, check_model_fn

tf1 = tf.compat.v1
_LONGEST_LOOP = 100
_WINDOWS_READ = 16  # batches that are looked at where data decide how many rows each has
_SIZES: dict[str, int | None] = dict.fromkeys((ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT))
_cores: int | None = None
_max_ids = 0


def use_cores(count: int | None, max_ids: int = 0) -> None:
    """Sets the most cores of Estimators without ``use_tpu``: 0 for this machine, None for cores if a strategy is configured.

    ``max_ids`` is theirs where their configuration has none.
    """
    global _cores, _max_ids
    _cores, _max_ids = count, max_ids


class PlainRunConfig(RunConfig):
    """A :class:`RunConfig` that takes the arguments of ``tf.estimator.RunConfig``, in its order."""

    _ORDER = ("save_checkpoints_steps", "save_checkpoints_secs", "session_config", "keep_checkpoint_max",
              "keep_checkpoint_every_n_hours", "log_step_count_steps", "train_distribute", "device_fn", "protocol",
              "eval_distribute", "experimental_distribute", "experimental_max_worker_delay_secs",
              "session_creation_timeout_secs")  # fmt: skip

    def __init__(self, model_dir: str | os.PathLike[str] | None = None, tf_random_seed: int | None = None,
                 save_summary_steps: int | None = 100, *more: Any, **named: Any) -> None:  # fmt: skip
        given = dict(zip(self._ORDER, more, strict=False))
        super().__init__(model_dir=model_dir, tf_random_seed=tf_random_seed, save_summary_steps=save_summary_steps,
                         **given, **named)  # fmt: skip


class Estimator(TPUEstimator):
    """Trains a model function in the batches that its input function gives.

    On cores each batch is split, over the most cores that divide it; batch norm takes the statistics of the whole batch, so
    that losses are those of one device.

    Args:
        model_fn: takes ``features``, and any of ``labels``, ``mode``, ``params`` and ``config``; returns an
            :class:`EstimatorSpec`.
        model_dir: folder for checkpoints and event files; that of ``config``, else a temporary one.
        config: a :class:`RunConfig`.
        params: for the functions, which get a deep copy; nothing is added to them.
        warm_start_from: a checkpoint, a SavedModel or :class:`WarmStartSettings`.
        use_tpu: whether to train on cores; None is what ``python -m tpugraph.compat --use_tpu`` says, else whether the config
            has a distribution strategy.
    """

    def __init__(self, model_fn: Callable[..., Any], model_dir: str | os.PathLike[str] | None = None,
                 config: RunConfig | None = None, params: Any = None, warm_start_from: Any = None, *,
                 use_tpu: bool | None = None) -> None:  # fmt: skip
        found = PlainRunConfig() if config is None else check_type("config", config, RunConfig, what="a RunConfig")
        check_model_fn(model_fn, params)
        asked = cores_of(found)
        if use_tpu is None:
            use_tpu = bool(_cores) if _cores is not None else asked is not None
        cores = (_cores or asked or found.tpu_config.num_shards or 8) if use_tpu else 0
        # loops as long as what happens between steps allows, and batch norm as on one device
        every = (found.save_summary_steps, found.save_checkpoints_steps, found.log_step_count_steps, _LONGEST_LOOP)
        loops = TPUConfig(min(count for count in every if count), batch_norm="global",
                          max_ids=found.tpu_config.max_ids or _max_ids)  # fmt: skip
        looped = found.replace(tpu_config=loops) if cores else found
        self._open(
            PlainRequests(model_fn, params, looped, bool(cores), True, _SIZES, cores=cores), model_dir, warm_start_from
        )


@dataclass(frozen=True)
class PlainRequests(Requests):
    """The requests of a plain estimator, whose batches are those of its input; ``cores``: at most so many."""

    cores: int = 0

    @property
    def endless(self) -> bool:
        return True

    def of(self, input_fn: Any, mode: str, *, on_cores: bool = True) -> Request:
        rows = self._rows(input_fn, mode) if on_cores and self.cores else None
        cores = max((n for n in range(1, self.cores + 1) if rows and rows % n == 0), default=0)
        plan = batches(mode, rows, cores, InputPipelineConfig.PER_HOST_V1)
        one_program = bool(cores) and mode == ModeKeys.TRAIN
        return Request(self.model_fn, input_fn, mode, self.params, self.config, plan, one_program, plain=True,
                       measured=self.measured)  # fmt: skip

    def _rows(self, input_fn: Any, mode: str) -> int | None:
        """The batch size of the input; None, with a note, if no batch tells it or batches differ."""
        with tf.Graph().as_default(), tensorflow_1_ops():
            returned = call_input_fn(input_fn, mode, copy.deepcopy(self.params), self.config)
            windows = any(op.type in ops.WINDOWS for op in tf1.get_default_graph().get_operations())
            count = _WINDOWS_READ if windows else 1
            first = inputs.next_element(returned.take(count)) if inputs.is_dataset(returned) else returned
            if (known := inputs.batch_size_of(first)) is not None:
                return known
            made = tf1.get_default_graph().get_operations()
            fed = any(op.type in ops.PLACEHOLDERS for op in made)
            sizes_read = [op.inputs[ops.BATCHING[op.type].size] for op in made if op.type in ops.BATCHING]
            sizes = {str(tf.get_static_value(size)) for size in sizes_read}
            if fed and len(sizes) == 1 and sizes != {"None"}:
                return int(sizes.pop())
            tensors = [t for t in tf.nest.flatten(first) if isinstance(t, tf.Tensor)]
            if fed or not tensors or tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS):
                why = "a hook feeds it" if fed else "queues fill it" if tensors else "it gives no dense tensor"
                say(f"note: no cores: the rows of the input's batches are in no shape, and {why}")
                return None
            found = [int(rows) for rows in inputs.first_values(tf.shape(tensors[0])[0], count)[0]]
            if len(set(found[:-1])) > 1:  # the last one may be a rest
                say(f"note: no cores: the input's batches have {min(found)} to {max(found)} rows")
                return None
            return found[0] if found else None
