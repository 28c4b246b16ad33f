"""TPUEstimator: trains a model function on cores, from the same arguments as ``tf.contrib.tpu.TPUEstimator``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tpugraph.estimator import predict as predict_only
from tpugraph.estimator.arguments import instance, one_of, whole
from tpugraph.estimator.context import as_dict, check_keys
from tpugraph.estimator.embedding_spec import EmbeddingConfigSpec
from tpugraph.estimator.estimator_state import EstimatorState
from tpugraph.estimator.evaluate import add_metrics, check_names, evaluate, evaluate_on_cores
from tpugraph.estimator.exporting import export_trained, exports_of
from tpugraph.estimator.input_tracing import trace_input
from tpugraph.estimator.modes import ALL_MODES, ModeKeys
from tpugraph.estimator.nan_blame import blamed
from tpugraph.estimator.nan_loss import NanLossDuringTrainingError
from tpugraph.estimator.plain_training import train_plain
from tpugraph.estimator.reporting import say
from tpugraph.estimator.requests import Requests
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.saving import check_listeners
from tpugraph.estimator.specs import hooks_of
from tpugraph.estimator.stop_criterion import Goal, goal_of
from tpugraph.estimator.tf_config import refuse_to_train
from tpugraph.estimator.tpu_serving import ExportSavedModelApiVersion
from tpugraph.estimator.tracing import trace_model
from tpugraph.estimator.train import Training
from tpugraph.estimator.user_functions import check_model_fn
from tpugraph.runtime.checkpoints.checkpoint_folder import collect
from tpugraph.runtime.checkpoints.folder_lock import FolderLock
from tpugraph.support.errors import ArgumentError


class TPUEstimator(EstimatorState):
    """Trains the model that a model function describes, on the cores of a TPU or on emulated ones.

    Args:
        model_fn: called with ``features``, and with those of ``labels``, ``mode``, ``params`` and ``config`` that it
            takes; returns a :class:`TPUEstimatorSpec` or a plain :class:`EstimatorSpec`.
        model_dir: folder for checkpoints and event files; that of ``config``, else a temporary one.
        config: a :class:`RunConfig`.
        params: a dict for the functions, which get a deep copy with ``batch_size``, ``use_tpu`` and ``context`` set.
        use_tpu: False runs the plain graph on this machine, one Session.run per step.
        train_batch_size: rows of a training batch over all cores.
        eval_batch_size: rows of an evaluation batch over all cores.
        predict_batch_size: rows of a prediction batch over all cores.
        batch_axis: of features and of labels the dimension of the batch, where it is not the first; PER_HOST_V1 only.
        eval_on_tpu: False evaluates on this machine.
        export_to_tpu: whether a model that is exported for serving has a graph for TPUs.
        export_to_cpu: whether it has a plain one.
        warm_start_from: a checkpoint, a SavedModel or :class:`WarmStartSettings` for the first values.
        embedding_config_spec: an :class:`EmbeddingConfigSpec`, or None.
        export_saved_model_api_version: V2 where the model function itself calls ``inference_on_tpu``.

    Raises:
        ArgumentError: a value that cannot be used (a ``ValueError``).
        ArgumentTypeError: a value of the wrong type (a ``TypeError``).
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
        check_keys(as_dict(params))
        if embedding_config_spec is not None:
            instance("embedding_config_spec", embedding_config_spec, EmbeddingConfigSpec, what="an EmbeddingConfigSpec")
            embedding_config_spec.check_machine(on_cores=use_tpu and eval_on_tpu)
        exports = exports_of(export_to_cpu, export_to_tpu, export_saved_model_api_version)
        sizes = {
            ModeKeys.TRAIN: train_batch_size,
            ModeKeys.EVAL: eval_batch_size,
            ModeKeys.PREDICT: predict_batch_size,
        }
        assert model_fn is not None
        requests = Requests(model_fn, params, config, use_tpu, eval_on_tpu, sizes, batch_axis, embedding_config_spec)
        self._open(requests, model_dir, warm_start_from)
        self._exports = exports

    # ------------------------------------------------------------------ training

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> TPUEstimator:
        """Train, from the newest checkpoint of the model_dir on.

        Training ends after ``steps`` steps, at the global step ``max_steps``, at the end of the data, or when a hook
        asks for it; the last loop is shorter where the steps do not divide. With the same input as the training before,
        the model is neither traced nor converted again.

        Args:
            input_fn: called with those of ``params``, ``mode`` and ``config`` that it takes; returns a
                ``tf.data.Dataset`` of batches of ``params['batch_size']`` rows, or tensors of one.
            hooks: ``tf.compat.v1.train.SessionRunHook`` objects, called around each loop.
            steps: number of steps; excludes max_steps.
            max_steps: global step to end at; nothing happens where it is reached already.
            saving_listeners: ``tf.compat.v1.train.CheckpointSaverListener`` objects.

        Returns:
            The estimator itself.

        Raises:
            ArgumentError: steps or functions that cannot be used, or TF_CONFIG calls this process a parameter server (a
                ``ValueError``).
            ArgumentTypeError: something of the wrong type (a ``TypeError``).
            NanLossDuringTrainingError: a loss is no number.
            CheckpointError: somebody else trains in the model_dir, or none of its checkpoints is whole.
            TpuGraphError: the model cannot be converted, or a step failed.
        """
        refuse_to_train(self.config.task_type, self.config.task_id)
        goal = goal_of(steps, max_steps, endless=self._requests.endless)
        users = hooks_of("hooks", hooks)
        listeners = check_listeners(saving_listeners)
        if max_steps is not None and self.saved_step >= max_steps:
            say(f"the model_dir is at step {self.saved_step:,} already: nothing to train up to step {max_steps:,}")
            return self
        try:
            with FolderLock(self.model_dir):
                collect(Path(self.model_dir))
                self._train(input_fn, users, listeners, goal)
        except NanLossDuringTrainingError as error:
            found = blamed(error, lambda: self._replayed(input_fn), lambda: (self._newest(), self.saved_step))
            if found is None:
                raise
            raise found from error
        return self

    def _train(self, input_fn: Callable[..., Any], users: Sequence[Any], listeners: Sequence[Any], goal: Goal) -> None:
        request = self._requests.of(input_fn, ModeKeys.TRAIN)
        if not request.plan.cores:
            traced = trace_model(request, trace_input(request))
            own = (*traced.spec.training_hooks, *traced.spec.training_chief_hooks)
            train_plain(traced, self.model_dir, self._config, (*users, *own), listeners, self._warm_start, goal)
            return
        cores = self._model_on_cores(request)
        spec = cores.traced.spec
        every = (*users, *spec.training_hooks, *spec.training_chief_hooks)
        Training(cores, self.model_dir, self._config, every, listeners, self._warm_start).run(goal)

    # ------------------------------------------------------------------ evaluation, prediction, export

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate every example of the data once, on the cores.

        What cannot be converted is evaluated on this machine, and a line says why; so is everything with
        ``eval_on_tpu=False`` or ``use_tpu=False``. With the same input as the evaluation before, the model is neither
        traced nor converted again.

        Args:
            input_fn: as for :meth:`train`; ``params['batch_size']`` is the ``eval_batch_size``.
            steps: at most so many batches; all of the data when None.
            hooks: session hooks, called around each loop of ``iterations_per_loop`` batches.
            checkpoint_path: the checkpoint; the newest one when None, and first values where there is none.
            name: a name for the folder of the event files.

        Returns:
            The metrics by name, with ``loss`` (the mean over batches) and ``global_step``.

        Raises:
            ArgumentError: a batch size or steps that cannot be used (a ``ValueError``).
            RunError: the input is empty.
        """
        users = hooks_of("hooks", hooks)
        if steps is not None:
            whole("steps", steps, least=1)
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

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Any = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Predict on the cores; what is wrong with the arguments is said at once, not at the first value.

        What cannot be converted is predicted on this machine, and a line says why; so is everything with
        ``use_tpu=False``.

        Args:
            input_fn: as for :meth:`train`; ``params['batch_size']`` is the ``predict_batch_size``, and labels are not
                used. It must return a Dataset that ends, except with ``use_tpu=False``.
            predict_keys: names of the predictions that are wanted; all when None.
            hooks: session hooks, called around each loop of ``iterations_per_loop`` batches, 32 at most.
            checkpoint_path: the checkpoint; the newest one when None, and first values where there is none.
            yield_single_examples: example by example; else batch by batch.

        Returns:
            A generator of predictions, in the order of the data. It may be left before its end.

        Raises:
            ArgumentError: no such predictions (a ``ValueError``).
            ArgumentTypeError: predict_keys that are no names, or no Dataset (a ``TypeError``).
        """
        keys, users = predict_only.check_keys(predict_keys), hooks_of("hooks", hooks)
        checkpoint, single = checkpoint_path or self.latest_checkpoint(), yield_single_examples
        if checkpoint is None:
            say(f"there is no checkpoint in {self.model_dir}: predictions are made with the model's first values")

        def plainly() -> Iterator[Any]:
            model = self._models.plain(self._requests.of(input_fn, ModeKeys.PREDICT, on_cores=False))
            spec = model.traced.spec
            found = predict_only.chosen(spec.predictions, keys)
            return predict_only.predict(model, checkpoint, found, (*users, *spec.prediction_hooks), single=single)

        request = self._requests.of(input_fn, ModeKeys.PREDICT)
        if not request.plan.cores:
            return plainly()
        wanted = None if keys is None else tuple(keys)
        model = self._models.on_cores(
            request, lambda t: predict_only.check_fed(predict_only.chosen(t.spec.predictions, keys)), wanted
        )
        if model is None:
            return plainly()
        hooks = (*users, *model.traced.spec.prediction_hooks)
        return predict_only.predict_on_cores(model, checkpoint, hooks, plainly, single=single)

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> str:
        """Write a SavedModel that plain TensorFlow loads and serves by its tag ``serve``.

        With ``export_to_tpu`` it has a second graph with the tags ``serve`` and ``tpu``, whose computation a TPU runs. The
        functions get no ``batch_size``.

        Args:
            export_dir_base: a folder; the model goes into a new one below it, named by the time.
            serving_input_receiver_fn: returns an :class:`export.ServingInputReceiver`.
            assets_extra: files to put beside the model: name there to path here.
            as_text: write the graph as text.
            checkpoint_path: the checkpoint; the newest one when None.
            experimental_mode: the mode of the model; EVAL and TRAIN take a receiver with labels, as
                :func:`export.build_raw_supervised_input_receiver_fn` makes one, and have the tag ``eval`` or ``train``.

        Returns:
            The folder of the model.

        Raises:
            ArgumentError: nothing is trained yet, or no such mode (a ``ValueError``).
            ArgumentTypeError: a function that returns no receiver (a ``TypeError``).
        """
        one_of("experimental_mode", experimental_mode, ALL_MODES, why="see ModeKeys")
        checkpoint = checkpoint_path or self._newest()
        request = self._requests.of(serving_input_receiver_fn, experimental_mode, on_cores=False)
        return export_trained(request, self._exports, checkpoint, export_dir_base, assets_extra, as_text=as_text)

    def export_savedmodel(self, *arguments: Any, strip_default_attrs: bool = False, **named: Any) -> str:
        """The older name of :meth:`export_saved_model`, with its arguments; default attributes are always stripped."""
        del strip_default_attrs
        return self.export_saved_model(*arguments, **named)
