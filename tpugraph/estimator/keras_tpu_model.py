"""keras_to_tpu_model: a Keras model that fits, evaluates and predicts on cores."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.python.eager import context

from tpugraph.estimator.cluster import TPUClusterResolver
from tpugraph.estimator.hooks import StepLosses
from tpugraph.estimator.keras_model import LOSS_BY_ROWS, KerasEstimator, model_to_estimator
from tpugraph.estimator.reporting import say
from tpugraph.estimator.run_config import RunConfig
from tpugraph.estimator.tpu_config import TPUConfig
from tpugraph.support.errors import ArgumentError, ArgumentTypeError

tf1 = tf.compat.v1


Batches = tuple[Callable[[], Any], int | None]
"""An input function of ``(features, labels)``, or of features alone, and its batches in an epoch; None where only it knows."""


def batches_of(
    x: Any, y: Any, rows: int | None, steps: int | None, *, shuffle: bool = False, endless: bool = False
) -> Batches:
    """The batches of the arguments of ``fit``, ``evaluate`` or ``predict``; tensors of rank 1 become columns.

    Args:
        x: arrays, also in a list or dict; a function that returns a Dataset; a generator of batches; or a Keras ``Sequence``.
        y: labels, beside arrays.
        rows: batch size of arrays; 32 when None.
        steps: batches in an epoch; None takes all arrays.
        shuffle: shuffles arrays in each epoch.
        endless: repeats arrays, in whole batches only.
    """
    if isinstance(x, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
        raise ArgumentTypeError("a Dataset belongs to the graph that it was made in",
                                fix="give the function that makes it")  # fmt: skip
    if callable(x) and not hasattr(x, "__getitem__"):
        return _columned(x), steps
    if hasattr(x, "__next__") or (hasattr(x, "__getitem__") and hasattr(x, "on_epoch_end")):
        return _of_generator(x, steps)
    return _of_arrays(x, y, rows or 32, steps, shuffle=shuffle, endless=endless)


def _columned(input_fn: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        return input_fn().map(lambda *parts: tf.nest.map_structure(_column, parts if len(parts) > 1 else parts[0]))

    return made


def _column(part: Any) -> Any:
    return tf.expand_dims(part, 1) if part.shape.rank == 1 else part


def _of_arrays(x: Any, y: Any, rows: int, steps: int | None, *, shuffle: bool, endless: bool) -> Batches:
    parts = _arrays(x) if y is None else (_arrays(x), _arrays(y))
    arrays = tf.nest.flatten(parts)
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1 or not (count := lengths.pop()):
        raise ArgumentError(
            f"arrays of {sorted(len(array) for array in arrays)} rows: all must have as many, one at least"
        )
    rows = min(rows, count)
    end = count - count % rows if endless else count

    def batches() -> Iterator[Any]:
        for _ in itertools.count() if endless else range(1):
            order = np.random.permutation(count) if shuffle else np.arange(count)
            for start in range(0, end, rows):
                yield tf.nest.map_structure(lambda array: array[order[start : start + rows]], parts)  # noqa: B023

    leading = rows if end % rows == 0 else None
    return _columned(_generated(batches, parts, leading)), steps or -(-end // rows)


def _of_generator(source: Any, steps: int | None) -> Batches:
    if hasattr(source, "on_epoch_end"):
        steps = steps or len(source)
        source = (source[index] for index in itertools.cycle(range(len(source))))
    first = _batch(next(source))

    def batches() -> Iterator[Any]:
        yield from itertools.chain([first], map(_batch, source))

    return _columned(_generated(batches, first, len(tf.nest.flatten(first)[0]))), steps


def _batch(given: Any) -> Any:
    if not isinstance(given, tuple):
        return _arrays(given)
    if len(given) != 2:
        raise ArgumentError(f"a generator gave {len(given)} parts: weights of rows are not taken on cores",
                            fix="(x, y)")  # fmt: skip
    return tuple(_arrays(part) for part in given)


def _arrays(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _arrays(part) for name, part in given.items()}
    if isinstance(given, (list, tuple)) and any(isinstance(part, np.ndarray) for part in given):
        return tuple(_arrays(part) for part in given)
    array = np.asarray(given)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _generated(batches: Callable[[], Iterator[Any]], like: Any, rows: int | None) -> Callable[[], Any]:
    def made() -> Any:
        specs = tf.nest.map_structure(lambda array: tf.TensorSpec((rows, *array.shape[1:]), array.dtype), like)
        return tf.data.Dataset.from_generator(batches, output_signature=specs)

    return made


_LONGEST_LOOP = 100


class TPUDistributionStrategy:
    """Where a Keras model runs: on emulated cores without a resolver, on one core with ``using_single_core``."""

    def __init__(self, tpu_cluster_resolver: Any = None, using_single_core: bool = False) -> None:
        self.resolver = TPUClusterResolver("") if tpu_cluster_resolver is None else tpu_cluster_resolver
        self.cores = 1 if using_single_core else None


def keras_to_tpu_model(model: Any, strategy: TPUDistributionStrategy | None = None) -> KerasTPUModel:
    """A model that does on cores what a Keras model does on this machine.

    Args:
        model: a functional or sequential model of ``tf_keras``, which ``tf.keras`` is in programs for TensorFlow 1. It
            gets the weights at the end of each epoch.
        strategy: emulated cores when None.
    """
    return KerasTPUModel(model, strategy or TPUDistributionStrategy())


class KerasTPUModel:
    """A Keras model on cores; every other attribute is that of the model itself.

    A batch is split over as many cores as divide it; batch norm takes the statistics of the global batch, so that losses are
    those of one device. An epoch takes whole batches only. The logs of an epoch have the loss and the validation metrics;
    callbacks are called for training and epochs, not for batches.
    """

    def __init__(self, model: Any, strategy: TPUDistributionStrategy) -> None:
        self._model = model
        self._strategy = strategy
        self._dir = ""
        self._estimators: dict[int, KerasEstimator] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_model"], name)

    @property
    def cpu_model(self) -> Any:
        """The Keras model itself."""
        return self._model

    def sync_to_cpu(self) -> Any:
        """The Keras model itself, with the trained weights."""
        return self._model

    def compile(self, optimizer: Any, loss: Any = None, metrics: Any = None, **more: Any) -> None:
        """Compiles the model; training starts afresh from its weights."""
        self._model.compile(optimizer, loss, metrics=metrics, **more)
        self._forget()

    def set_weights(self, weights: Any) -> None:
        """Sets the weights; training starts afresh from them."""
        self._model.set_weights(weights)
        self._forget()

    def load_weights(self, *arguments: Any, **named: Any) -> Any:
        """Loads weights; training starts afresh from them."""
        found = self._model.load_weights(*arguments, **named)
        self._forget()
        return found

    def fit(self, x: Any = None, y: Any = None, batch_size: int | None = None, epochs: int = 1, verbose: int = 1,
            callbacks: Sequence[Any] | None = None, validation_split: float = 0.0, validation_data: Any = None,
            shuffle: bool = True, class_weight: Any = None, sample_weight: Any = None, initial_epoch: int = 0,
            steps_per_epoch: int | None = None, validation_steps: int | None = None) -> Any:  # fmt: skip
        """Trains; returns the History of Keras.

        Args:
            x: arrays, a function that returns a Dataset, a generator of batches, or a ``Sequence``.
            y: the labels of arrays.
            batch_size: global batch size of arrays; 32 when None.
            epochs: the last epoch.
            verbose: whether to log each epoch.
            callbacks: callbacks of Keras.
            validation_split: the share of the arrays, at their end, that is for validation.
            validation_data: ``(x, y)``, or a function that returns a Dataset.
            shuffle: shuffles arrays in each epoch.
            class_weight, sample_weight: refused unless None.
            initial_epoch: the epoch to begin with.
            steps_per_epoch: batches of an epoch; needed where x is a function or a generator.
            validation_steps: batches of a validation; all of them when None.
        """
        if class_weight is not None or sample_weight is not None:
            raise ArgumentError("weights of classes or rows are not taken on cores", fix="multiply the loss by them")
        if validation_split:
            (x, y), validation_data = _split(x, y, validation_split)
        input_fn, steps = batches_of(x, y, batch_size, steps_per_epoch, shuffle=shuffle, endless=True)
        if not steps:
            raise ArgumentError("steps_per_epoch is missing: how long a function or a generator goes on cannot be seen")
        watch = tf_keras.callbacks.CallbackList(list(callbacks or ()), add_history=True, model=self._model, epochs=epochs,
                                                steps=steps, verbose=verbose)  # fmt: skip
        estimator, losses = self._estimator(steps), StepLosses()
        ends = _Epochs(self._model, estimator, watch, losses, (initial_epoch, epochs),
                       lambda: self._validated(validation_data, batch_size, validation_steps), talks=bool(verbose))  # fmt: skip
        self._model.stop_training = False
        watch.on_train_begin()
        if initial_epoch < epochs:
            watch.on_epoch_begin(initial_epoch)
            estimator.train(input_fn, [losses], (epochs - initial_epoch) * steps, saving_listeners=[ends])
        watch.on_train_end()
        return self._model.history

    def fit_generator(self, generator: Any, steps_per_epoch: int | None = None, epochs: int = 1, **more: Any) -> Any:
        """Trains on the batches of a generator; see :meth:`fit`."""
        unused = ("max_queue_size", "workers", "use_multiprocessing")
        given = {name: value for name, value in more.items() if name not in unused}
        return self.fit(generator, epochs=epochs, steps_per_epoch=steps_per_epoch, **given)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int | None = None, verbose: int = 1,
                 sample_weight: Any = None, steps: int | None = None) -> Any:  # fmt: skip
        """The loss, or a list of loss and metrics in the order of ``metrics_names``; see :meth:`fit`."""
        del verbose
        if sample_weight is not None:
            raise ArgumentError("weights of rows are not taken on cores", fix="multiply the loss by them")
        input_fn, steps = batches_of(x, y, batch_size, steps)
        estimator = self._estimator()
        measured = estimator.evaluate(input_fn, steps)
        measured["loss"] = measured[LOSS_BY_ROWS]
        values = [float(measured[name]) for name in estimator.copied.metric_names]
        return values if len(values) > 1 else values[0]

    def predict(self, x: Any, batch_size: int | None = None, verbose: int = 0, steps: int | None = None) -> Any:
        """The outputs of the model: an array, or a list of them where there are several outputs."""
        del verbose
        rows = list(self._estimator().predict(batches_of(x, None, batch_size, steps)[0]))
        outputs = [np.stack([row[name] for row in rows]) for name in self._model.output_names]
        return outputs if len(outputs) > 1 else outputs[0]

    def _validated(self, data: Any, rows: int | None, steps: int | None) -> dict[str, float]:
        if data is None:
            return {}
        x, y = data if isinstance(data, tuple) else (data, None)
        values = np.atleast_1d(self.evaluate(x, y, rows, steps=steps)).tolist()
        names = self._estimator().copied.metric_names
        return {f"val_{name}": value for name, value in zip(names, values, strict=True)}

    def _estimator(self, steps: int = 1) -> KerasEstimator:
        """The estimator that saves a checkpoint after every epoch of so many steps."""
        if not self._dir:
            self._dir = tempfile.mkdtemp(prefix="keras_tpu_model")
            weakref.finalize(self, shutil.rmtree, self._dir, ignore_errors=True)
        if steps not in self._estimators:
            loop = max(length for length in range(1, _LONGEST_LOOP + 1) if steps % length == 0)
            config = RunConfig(TPUConfig(num_shards=self._strategy.cores), cluster=self._strategy.resolver, save_summary_steps=None,
                               save_checkpoints_steps=steps, log_step_count_steps=loop)  # fmt: skip
            self._estimators[steps] = model_to_estimator(self._model, model_dir=self._dir, config=config, use_tpu=True)
            self._estimators[steps].copied.by_rows = True
        return self._estimators[steps]

    def _forget(self) -> None:
        for estimator in self._estimators.values():
            estimator.close()
        self._estimators, self._dir = {}, ""


def _split(x: Any, y: Any, share: float) -> tuple[Any, Any]:
    at = int(len(tf.nest.flatten(y)[0]) * (1 - share))
    return (
        tf.nest.map_structure(lambda array: array[:at], (x, y)),
        tf.nest.map_structure(lambda array: array[at:], (x, y)),
    )


class _Epochs(tf.compat.v1.train.CheckpointSaverListener):  # type: ignore[misc]
    """Ends an epoch with each checkpoint: gives the model the weights, validates, and calls the callbacks.

    They run in the graph that the model lives in, or in eager mode.
    """

    def __init__(self, model: Any, estimator: KerasEstimator, watch: Any, losses: StepLosses, epochs: tuple[int, int],
                 validate: Callable[[], dict[str, float]], *, talks: bool) -> None:  # fmt: skip
        self._graph = None if tf.executing_eagerly() else tf1.get_default_graph()
        self._model = model
        self._estimator = estimator
        self._watch = watch
        self._losses = losses
        self._epoch, self._last = epochs
        self._validate = validate
        self._talks = talks
        self._step = estimator.saved_step

    def _home(self) -> Any:
        return context.eager_mode() if self._graph is None else self._graph.as_default()

    def after_save(self, session: Any, global_step_value: int) -> bool:
        if global_step_value > self._step and self._ended(global_step_value):
            return True
        self._set_rate(session)
        return False

    def _ended(self, step: int) -> bool:
        """Ends an epoch and begins the next; True where it was the last."""
        self._step = step
        copied = self._estimator.copied
        with self._home():
            self._model.set_weights([self._estimator.get_variable_value(name) for name in copied.weight_names])
            logs = {"loss": self._losses.mean(), **self._validate()}
            self._epoch += 1
            if self._talks:
                found = ", ".join(f"{name} {value:.6g}" for name, value in logs.items())
                say(f"epoch {self._epoch} of {self._last}: {found}")
            self._watch.on_epoch_end(self._epoch - 1, logs)
            if self._model.stop_training or self._epoch == self._last:
                return True
            self._watch.on_epoch_begin(self._epoch)
        return False

    def _set_rate(self, session: Any) -> None:
        """Copies the learning rate that callbacks or the program have set in the optimizer of the model."""
        with self._home():
            now = getattr(self._model.optimizer, "learning_rate", None)
            if now is None or isinstance(now, tf_keras.optimizers.schedules.LearningRateSchedule):
                return
            value = tf_keras.backend.get_value(now)
        self._estimator.copied.set_rate(session, value)
