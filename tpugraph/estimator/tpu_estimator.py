"""TPUEstimator: trains a model function on cores, with the arguments of ``tf.contrib.tpu.TPUEstimator``."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpugraph.estimator import predict as predict_only
from tpugraph.estimator.arguments import check_choice, check_int, check_type
from tpugraph.estimator.checkpoints import check_listeners, warm_start_settings, warn
from tpugraph.estimator.cluster import refuse_to_train
from tpugraph.estimator.context import Batches, batches, check_batch_size, check_params
from tpugraph.estimator.embeddings import EmbeddingConfigSpec
from tpugraph.estimator.evaluate import add_metrics, check_names, evaluate, evaluate_on_cores
from tpugraph.estimator.exporting import Exports, export_trained, exports_of
from tpugraph.estimator.models import ModelCache, PlainModel, why_not
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.specs import ALL_MODES, ModeKeys, hooks_of
from tpugraph.estimator.tpu_config import InputPipelineConfig
from tpugraph.estimator.tpu_serving import ExportSavedModelApiVersion
from tpugraph.estimator.tracing import Request, trace_input, trace_model, trace_training
from tpugraph.estimator.train import CoresTraining, Goal, PlainTraining, TrainingModel
from tpugraph.estimator.user_functions import check_model_fn
from tpugraph.runtime.checkpoints.checkpoint_folder import FolderLock, collect, newest
from tpugraph.runtime.masters import reach
from tpugraph.runtime.tpu_op_fallback import CORES_OF_A_HOST, emulate_tpu_ops
from tpugraph.support.errors import ArgumentError, CheckpointError, ConversionError, RolesError


@dataclass(frozen=True)
class Requests:
    """What the methods of an estimator ask to have traced."""

    model_fn: Callable[..., Any]
    params: Any
    config: RunConfig
    use_tpu: bool  # whether training runs on cores
    eval_on_tpu: bool  # whether evaluation does
    batch_sizes: Mapping[str, int | None]  # mode to global batch size, or None
    batch_axis: Any = None  # the batch dimension of features and labels, or None
    embeddings: EmbeddingConfigSpec | None = None  # tables kept apart on cores, or None
    measured: list[Any] = field(default_factory=list)  # see tracing.Request

    @property
    def endless(self) -> bool:
        """Whether training may go on to the end of the data, without a number of steps."""
        return not self.use_tpu

    def check(self) -> None:
        """Checks batch sizes, cores per replica and embeddings."""
        if not self.use_tpu:
            if not self.eval_on_tpu:
                say("warning: eval_on_tpu has no effect with use_tpu=False")
            return
        check_batch_size(ModeKeys.TRAIN, self.batch_sizes[ModeKeys.TRAIN])
        for name, mode in (("eval_batch_size", ModeKeys.EVAL), ("predict_batch_size", ModeKeys.PREDICT)):
            if self.batch_sizes[mode] is not None:
                check_int(name, self.batch_sizes[mode], least=1)
        self._check_cores_per_replica()
        mode = self.config.tpu_config.per_host_input_for_training
        if self.embeddings is not None:
            self.embeddings.check_tables()
            if mode not in (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.PER_HOST_V2):
                raise ArgumentError(f"Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding; got {mode}.",
                                    fix="per_host_input_for_training=True")  # fmt: skip

    def _check_cores_per_replica(self) -> None:
        config, spanned = self.config.tpu_config, self._cores_per_replica
        if spanned == 1:
            return
        mode = config.per_host_input_for_training
        if mode == InputPipelineConfig.PER_SHARD_V1:
            raise ArgumentError("Model parallelism only supports input per host, "
                                f"but num_cores_per_replica is {spanned} with input per core (PER_SHARD_V1)",
                                fix="per_host_input_for_training=True")  # fmt: skip
        if spanned > CORES_OF_A_HOST and mode != InputPipelineConfig.PER_HOST_V2:
            raise ArgumentError(
                "Except the PER_HOST_V2 mode, the num of cores required by model parallelism specified by "
                "TPUConfig.num_cores_per_replica should be less than or equal to the num_cores_per_host. "
                f"num_cores_per_replica: {spanned}, num_cores_per_host: {CORES_OF_A_HOST}"
            )
        if not config.by_xla:
            say(
                f"note: the {spanned} cores of a replica compute it as one; TPUConfig(engine='xla') divides it among them"
            )

    @property
    def _cores_per_replica(self) -> int:
        return self.config.tpu_config.num_cores_per_replica or 1

    def of(self, input_fn: Any, mode: str, *, on_cores: bool = True) -> Request:
        """The request to trace the model in a mode; ``on_cores=False`` asks for the plain graph in any case."""
        on_tpu = self.use_tpu and (mode != ModeKeys.EVAL or self.eval_on_tpu)
        plan = self._plan(mode, on_cores=on_cores and on_tpu)
        read = self._input_mode(mode) if plan.cores or mode == ModeKeys.TRAIN else InputPipelineConfig.PER_HOST_V1
        one_program = bool(plan.cores) and mode == ModeKeys.TRAIN and self._asks_for_one_program
        return Request(self.model_fn, input_fn, mode, self.params, self.config, plan, one_program, read,
                       self.batch_axis, on_tpu=on_tpu, embeddings=self.embeddings, measured=self.measured)  # fmt: skip

    @property
    def _asks_for_one_program(self) -> bool:
        """Whether the model must be one program of the global batch: for shared tables, and for global batch norm."""
        config = self.config.tpu_config
        return self.embeddings is not None or bool(config.shard_tables) or config.batch_norm == "global"

    def _input_mode(self, mode: str) -> int:
        given: int = self.config.tpu_config.per_host_input_for_training
        if mode == ModeKeys.TRAIN or given == InputPipelineConfig.PER_HOST_V2:
            return given
        return InputPipelineConfig.PER_HOST_V1

    def _plan(self, mode: str, *, on_cores: bool) -> Batches:
        if not on_cores:
            return batches(mode, self.batch_sizes[mode], 0, InputPipelineConfig.PER_HOST_V1)
        hosts, given = self._hosts if mode == ModeKeys.TRAIN else 1, self.config.tpu_config
        cores = given.num_shards or max(CORES_OF_A_HOST * hosts // self._cores_per_replica, 1)
        if mode == ModeKeys.TRAIN and given.by_xla:
            cores = 1  # the step of the whole batch, which XLA divides
        if mode != ModeKeys.TRAIN and given.per_host_input_for_training == InputPipelineConfig.BROADCAST:
            cores = 1  # each core would compute the same, of which one was read
        return batches(mode, self.batch_sizes[mode], cores, self._input_mode(mode), hosts)

    @cached_property
    def _hosts(self) -> int:
        if self.config.workers:
            return len(self.config.workers)
        return reach(self.config.master, None).hosts if self.config.master else 1


class TPUEstimator:
    """Trains a model function on the cores of a TPU, or on emulated ones.

    Args:
        model_fn: takes ``features``, and any of ``labels``, ``mode``, ``params`` and ``config``; returns a
            :class:`TPUEstimatorSpec` or an :class:`EstimatorSpec`.
        model_dir: folder for checkpoints and event files; that of ``config``, else a temporary one.
        config: a :class:`RunConfig`.
        params: for the functions, which get a deep copy with ``batch_size``, ``use_tpu`` and, on cores, ``context`` set.
        use_tpu: False runs the plain graph on this machine, one Session.run per step.
        train_batch_size, eval_batch_size, predict_batch_size: global batch sizes, over all cores.
        batch_axis: the batch dimension of features and of labels, where it is not the first; PER_HOST_V1 only.
        eval_on_tpu: False evaluates on this machine.
        export_to_tpu, export_to_cpu: the graphs of a model that is exported for serving.
        warm_start_from: a checkpoint, a SavedModel or :class:`WarmStartSettings`.
        embedding_config_spec: an :class:`EmbeddingConfigSpec`, or None.
        export_saved_model_api_version: V2 where the model function itself calls ``inference_on_tpu``.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any] | None = None,
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Sequence[Any] | None = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: Any = None,
        export_saved_model_api_version: Any = ExportSavedModelApiVersion.V1,
    ) -> None:
        if not isinstance(config, RunConfig):
            raise ArgumentError(f"config must be a tpugraph.RunConfig, but is {config!r}", fix="config=RunConfig()")
        check_model_fn(model_fn, params)
        check_params(params)
        if embedding_config_spec is not None:
            check_type(
                "embedding_config_spec", embedding_config_spec, EmbeddingConfigSpec, what="an EmbeddingConfigSpec"
            )
            embedding_config_spec.check_machine(on_cores=use_tpu and eval_on_tpu)
        exports = exports_of(export_to_cpu, export_to_tpu, export_saved_model_api_version)
        sizes = {ModeKeys.TRAIN: train_batch_size, ModeKeys.EVAL: eval_batch_size, ModeKeys.PREDICT: predict_batch_size}
        assert model_fn is not None
        requests = Requests(model_fn, params, config, use_tpu, eval_on_tpu, sizes, batch_axis, embedding_config_spec)
        requests.check()
        self._open(requests, model_dir, warm_start_from)
        self._exports = exports

    def _open(self, requests: Requests, model_dir: Any, warm_start_from: Any) -> None:
        emulate_tpu_ops()  # what it exports for TPUs is loaded in sessions of the program
        self._config = requests.config.replace(model_dir=_folder(model_dir, requests.config.model_dir))
        self._requests = replace(requests, config=self._config)
        self._warm_start = warm_start_settings(warm_start_from)
        self._models = ModelCache(self._config)
        self._exports = Exports()

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints and event files."""
        return str(self._config.model_dir)

    @property
    def _model_dir(self) -> str:  # classes that programs derive from Estimator read it
        return self.model_dir

    def _create_and_assert_global_step(self, graph: Any) -> Any:
        return tf.compat.v1.train.create_global_step(graph)

    @property
    def config(self) -> RunConfig:
        """The run configuration, with the model_dir in use."""
        return self._config

    @property
    def params(self) -> Any:
        """A deep copy of the params."""
        return copy.deepcopy(self._requests.params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model function."""
        return self._requests.model_fn

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of the event files of an evaluation."""
        return os.path.join(self.model_dir, "eval" if not name else f"eval_{name}")

    def close(self) -> None:
        """Closes the sessions that are kept for the next call, which opens new ones."""
        self._models.close()

    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest whole checkpoint, or None.

        Raises:
            CheckpointError: there are checkpoints, and all are damaged.
        """
        found = newest(Path(self.model_dir), warn)
        return None if found is None else str(found)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the newest checkpoint.

        Raises:
            ArgumentError: nothing is trained yet (a ``ValueError``).
        """
        return [name for name, _ in tf.train.list_variables(self._newest())]

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the newest checkpoint, as a NumPy array.

        Raises:
            ArgumentError: nothing is trained yet, or there is no such variable (a ``ValueError``).
        """
        newest = self._newest()
        if name not in dict(tf.train.list_variables(newest)):
            raise ArgumentError(f"there is no variable '{name}' in '{newest}'",
                                fix=f"one of {', '.join(self.get_variable_names()[:5])}, ...")  # fmt: skip
        return tf.train.load_variable(newest, name)

    def _newest(self) -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ArgumentError(f"there is no checkpoint in '{self.model_dir}' yet", fix="train first")
        return found

    @property
    def saved_step(self) -> int:
        """The global step of the newest checkpoint; 0 where there is none."""
        found = self.latest_checkpoint()
        if found is None:
            return 0
        try:
            return int(tf.train.load_variable(found, tf.compat.v1.GraphKeys.GLOBAL_STEP))
        except tf.errors.OpError as error:
            raise CheckpointError(f"the checkpoint '{found}' cannot be read: {error.message}") from error

    def train(self, input_fn: Callable[..., Any], hooks: Sequence[Any] | None = None, steps: int | None = None,
              max_steps: int | None = None, saving_listeners: Sequence[Any] | None = None) -> TPUEstimator:  # fmt: skip
        """Trains from the newest checkpoint of the model_dir on.

        Training ends after ``steps`` steps, at the global step ``max_steps``, at the end of the data, or when a hook requests
        it. If the input is that of the last training, the model is neither traced nor converted again.

        Args:
            input_fn: takes any of ``params``, ``mode`` and ``config``; returns a ``tf.data.Dataset`` of batches of
                ``params['batch_size']`` examples, or tensors of one.
            hooks: ``tf.compat.v1.train.SessionRunHook`` objects, called around each loop.
            steps: number of steps; excludes max_steps.
            max_steps: global step to end at; nothing happens where it is reached already.
            saving_listeners: ``tf.compat.v1.train.CheckpointSaverListener`` objects.

        Returns:
            The estimator itself.

        Raises:
            ArgumentError: invalid steps or functions, or TF_CONFIG makes this process a parameter server (a ``ValueError``).
            NanLossDuringTrainingError: the loss is NaN or infinite.
            CheckpointError: another process trains in the model_dir, or all its checkpoints are damaged.
            TpuGraphError: the model cannot be converted, or a step failed.
        """
        refuse_to_train(self.config.task_type, self.config.task_id)
        goal = Goal(steps, max_steps, self._requests.endless)
        users = hooks_of("hooks", hooks)
        listeners = check_listeners(saving_listeners)
        if max_steps is not None and self.saved_step >= max_steps:
            say(f"the model_dir is at step {self.saved_step:,} already: nothing to train up to step {max_steps:,}")
            return self
        with FolderLock(self.model_dir):
            collect(Path(self.model_dir))
            self._train(input_fn, users, listeners, goal)
        return self

    def _train(self, input_fn: Callable[..., Any], users: Sequence[Any], listeners: Sequence[Any], goal: Goal) -> None:
        request = self._requests.of(input_fn, ModeKeys.TRAIN)
        if request.plan.cores:
            fed = trace_input(request)
            cores = self._models.kept(
                ModeKeys.TRAIN, fed.fingerprint, lambda: TrainingModel(trace_training(request, fed), self._config)
            )
            spec = cores.traced.spec
            every = (*users, *spec.training_hooks, *spec.training_chief_hooks)
            try:
                CoresTraining(cores, self.model_dir, self._config, every, listeners, self._warm_start).run(goal)
            except (RolesError, ConversionError) as error:
                if not request.plain or cores.session is not None:
                    raise
                say(f"note: the training runs on this machine, without cores: {why_not(error)}")
                request = self._requests.of(input_fn, ModeKeys.TRAIN, on_cores=False)
            else:
                return
        traced = trace_model(request, trace_input(request))
        own = (*traced.spec.training_hooks, *traced.spec.training_chief_hooks)
        model = PlainModel(traced, self._config.session_config, self._config.master)
        PlainTraining(model, self.model_dir, self._config, (*users, *own), listeners, self._warm_start).run(goal)

    def evaluate(self, input_fn: Callable[..., Any], steps: int | None = None, hooks: Sequence[Any] | None = None,
                 checkpoint_path: str | None = None, name: str | None = None) -> dict[str, Any]:  # fmt: skip
        """Evaluates every example of the data once, on the cores.

        A model that cannot be converted is evaluated on this machine, and a line says why; so is every model with
        ``eval_on_tpu=False`` or ``use_tpu=False``.

        Args:
            input_fn: as for :meth:`train`; ``params['batch_size']`` is the ``eval_batch_size``.
            steps: at most so many batches; all of the data when None.
            hooks: session hooks, called around each loop of ``iterations_per_loop`` batches.
            checkpoint_path: the newest one when None; initial values where there is none.
            name: a name for the folder of the event files.

        Returns:
            The metrics by name, with ``loss`` (the mean over batches) and ``global_step``.

        Raises:
            RunError: the input is empty.
        """
        users = hooks_of("hooks", hooks)
        if steps is not None:
            check_int("steps", steps, least=1)
        checkpoint = checkpoint_path or self.latest_checkpoint()
        if checkpoint is None:
            say(f"there is no checkpoint in {self.model_dir}: the model is evaluated with its first values")
        request, folder = self._requests.of(input_fn, ModeKeys.EVAL), self.eval_dir(name)
        model = self._models.on_cores(request, check_names) if request.plan.cores else None
        if model is not None:
            every = (*users, *model.traced.spec.evaluation_hooks)
            found = evaluate_on_cores(model, checkpoint, steps, every, folder)
            if found is not None:
                return found
        plain = self._models.plain(self._requests.of(input_fn, ModeKeys.EVAL, on_cores=False), add_metrics)
        return evaluate(plain, checkpoint, steps, (*users, *plain.traced.spec.evaluation_hooks), folder)

    def predict(self, input_fn: Callable[..., Any], predict_keys: Any = None, hooks: Sequence[Any] | None = None,
                checkpoint_path: str | None = None, yield_single_examples: bool = True) -> Iterator[Any]:  # fmt: skip
        """Predicts on the cores, in the order of the data; arguments are checked at once, not at the first value.

        A model that cannot be converted predicts on this machine, and a line says why; so does every model with
        ``use_tpu=False``. The generator may be left before its end.

        Args:
            input_fn: as for :meth:`train`; ``params['batch_size']`` is the ``predict_batch_size``, and labels are dropped.
                It must return a Dataset that ends, except with ``use_tpu=False``.
            predict_keys: names of the predictions; all when None.
            hooks: session hooks, called around each loop of ``iterations_per_loop`` batches, 32 at most.
            checkpoint_path: the newest one when None; initial values where there is none.
            yield_single_examples: False yields batches.

        Raises:
            ArgumentTypeError: predict_keys are no names, or no Dataset (a ``TypeError``).
        """
        keys, users = predict_only.check_keys(predict_keys), hooks_of("hooks", hooks)
        checkpoint, single = checkpoint_path or self.latest_checkpoint(), yield_single_examples
        if checkpoint is None:
            say(f"there is no checkpoint in {self.model_dir}: predictions are made with the model's first values")

        def plainly() -> Iterator[Any]:
            model = self._models.plain(self._requests.of(input_fn, ModeKeys.PREDICT, on_cores=False))
            spec = model.traced.spec
            found = predict_only.select_predictions(spec.predictions, keys)
            return predict_only.predict(model, checkpoint, found, (*users, *spec.prediction_hooks), single=single)

        request = self._requests.of(input_fn, ModeKeys.PREDICT)
        if not request.plan.cores:
            return plainly()
        wanted = None if keys is None else tuple(keys)
        model = self._models.on_cores(
            request,
            lambda t: predict_only.check_placeholders(predict_only.select_predictions(t.spec.predictions, keys)),
            wanted,
        )
        if model is None:
            return plainly()
        hooks = (*users, *model.traced.spec.prediction_hooks)
        return predict_only.predict_on_cores(model, checkpoint, hooks, plainly, single=single)

    def export_saved_model(self, export_dir_base: str | os.PathLike[str], serving_input_receiver_fn: Callable[[], Any],
                           assets_extra: dict[str, str] | None = None, as_text: bool = False,
                           checkpoint_path: str | None = None, experimental_mode: str = ModeKeys.PREDICT) -> str:  # fmt: skip
        """Writes a SavedModel with the tag ``serve``; with ``export_to_tpu`` also a graph for TPUs, tagged ``serve`` and ``tpu``.

        Args:
            export_dir_base: the parent of the new folder, which is named by the time.
            serving_input_receiver_fn: returns an :class:`export.ServingInputReceiver`.
            assets_extra: files to put beside the model: name there to path here.
            as_text: write the graph as text.
            checkpoint_path: the newest one when None.
            experimental_mode: EVAL and TRAIN take a receiver with labels, of
                :func:`export.build_raw_supervised_input_receiver_fn`, and are tagged ``eval`` or ``train``.

        Returns:
            The folder of the model.

        Raises:
            ArgumentError: nothing is trained yet, or no such mode (a ``ValueError``).
        """
        check_choice("experimental_mode", experimental_mode, ALL_MODES, why="see ModeKeys")
        checkpoint = checkpoint_path or self._newest()
        request = self._requests.of(serving_input_receiver_fn, experimental_mode, on_cores=False)
        return export_trained(request, self._exports, checkpoint, export_dir_base, assets_extra, as_text=as_text)

    def export_savedmodel(self, *arguments: Any, strip_default_attrs: bool = False, **named: Any) -> str:
        """The older name of :meth:`export_saved_model`; default attributes are always stripped."""
        del strip_default_attrs
        return self.export_saved_model(*arguments, **named)


def _folder(model_dir: Any, configured: str | None) -> str:
    given = None if not model_dir else os.fspath(model_dir)  # "" as a flag that was left out
    if given is not None and configured is not None and given != configured:
        raise ArgumentError(f"model_dir is '{given}', but that of the config is '{configured}'", fix="give one of them")
    found = given or configured
    if found is None:
        found = tempfile.mkdtemp(prefix="tpugraph-")
        say(f"model_dir is the temporary folder {found}")
    return check_type("model_dir", found, str, what="a folder")  # type: ignore[no-any-return]
