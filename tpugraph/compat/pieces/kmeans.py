"""``tf.estimator.experimental.KMeans``: clusters of points, by steps over batches, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model.model_utils.export_output import PredictOutput

from tpugraph.estimator.arguments import check_choice, check_int
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys
from tpugraph.support.errors import ArgumentError

tf1 = tf.compat.v1
_EUCLID, _COSINE = "squared_euclidean", "cosine"
_RANDOM, _PLUS_PLUS = "random", "kmeans_plus_plus"


class KMeans(Estimator):
    """Finds ``num_clusters`` centers; each batch moves them towards the points that are nearest to them.

    Args:
        initial_clusters: ``random`` or ``kmeans_plus_plus`` (points of the first batches), an array
            ``[num_clusters, dimension]``, or a function of a batch of points and the number that gives such.
        distance_metric: ``squared_euclidean`` or ``cosine``.
        seed: of the first choice.
        use_mini_batch: whether a center is the running mean of its points over all batches; else it is the mean of one batch.
        mini_batch_steps_per_iteration: how many steps the nearest center is told by the same centers.
        kmeans_plus_plus_num_retries: how many points ``kmeans_plus_plus`` tries for each center.
        relative_tolerance: training stops where the loss changes by less, relative to itself; None goes on.
        feature_columns: which features are used; all of them, by their sorted names, when None.

    Raises:
        ArgumentError: an unknown distance or choice, or a number below 1 (a ``ValueError``).
    """

    SQUARED_EUCLIDEAN_DISTANCE, COSINE_DISTANCE = _EUCLID, _COSINE
    RANDOM_INIT, KMEANS_PLUS_PLUS_INIT = _RANDOM, _PLUS_PLUS
    SCORE, CLUSTER_INDEX, ALL_DISTANCES = "score", "cluster_index", "all_distances"
    CLUSTER_CENTERS_VAR_NAME = "clusters"

    def __init__(self, num_clusters: int, model_dir: Any = None, initial_clusters: Any = _RANDOM,
                 distance_metric: str = _EUCLID, seed: int | None = None, use_mini_batch: bool = True,
                 mini_batch_steps_per_iteration: int = 1, kmeans_plus_plus_num_retries: int = 2,
                 relative_tolerance: float | None = None, config: Any = None, feature_columns: Any = None) -> None:  # fmt: skip
        check_int("num_clusters", num_clusters, least=1)
        check_int("mini_batch_steps_per_iteration", mini_batch_steps_per_iteration, least=1)
        check_choice("distance_metric", distance_metric, (_EUCLID, _COSINE))
        if isinstance(initial_clusters, str):
            check_choice("initial_clusters", initial_clusters, (_RANDOM, _PLUS_PLUS))
        every = mini_batch_steps_per_iteration if use_mini_batch else 1
        start = _Start(num_clusters, initial_clusters, seed, kmeans_plus_plus_num_retries)
        clustering = _Clustering(
            start, distance_metric == _COSINE, use_mini_batch, every, relative_tolerance, feature_columns
        )
        super().__init__(clustering.model_fn, model_dir, config, use_tpu=False)

    def predict_cluster_index(self, input_fn: Callable[..., Any]) -> Iterator[Any]:
        """Yield the number of the nearest center of each point."""
        return (found[self.CLUSTER_INDEX] for found in self.predict(input_fn, [self.CLUSTER_INDEX]))

    def score(self, input_fn: Callable[..., Any]) -> float:
        """The sum over the points of the first batch of the distances to their nearest centers."""
        return float(self.evaluate(input_fn, steps=1)[self.SCORE])

    def transform(self, input_fn: Callable[..., Any]) -> Iterator[Any]:
        """Yield the distances of each point to all centers ``[num_clusters]``."""
        return (found[self.ALL_DISTANCES] for found in self.predict(input_fn, [self.ALL_DISTANCES]))

    def cluster_centers(self) -> Any:
        """The centers ``[num_clusters, dimension]``."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)


@dataclass(frozen=True)
class _Start:
    """Where the centers begin; see :class:`KMeans`."""

    count: int
    initial: Any
    seed: int | None
    retries: int

    def chosen(self, points: Any, centers: Any, taken: Any) -> tuple[Any, Any]:
        """The centers with more of them chosen from a batch, and how many are chosen then."""
        if not isinstance(self.initial, str):
            given = self.initial(points, self.count) if callable(self.initial) else self.initial
            return tf.reshape(tf.cast(given, tf.float32), tf.shape(centers)), tf.constant(self.count)
        more = tf.minimum(self.count - taken, tf.shape(points)[0])
        if self.initial == _RANDOM:
            rows = tf.random.shuffle(points, self.seed)[:more]
        else:
            seed = np.random.default_rng(self.seed).integers(2**31)
            rows = tf.raw_ops.KmeansPlusPlusInitialization(
                points=points, num_to_sample=tf.cast(more, tf.int64), seed=seed, num_retries_per_sample=self.retries
            )
        places = tf.range(taken, taken + more)[:, None]
        return tf.tensor_scatter_nd_update(centers, places, rows), taken + more


def _kept(name: str, shape: Any, dtype: Any = tf.float32) -> Any:
    zeros = tf1.zeros_initializer()
    return tf1.get_variable(name, shape, dtype, initializer=zeros, trainable=False, use_resource=True)


@dataclass(frozen=True)
class _Clustering:
    """The model function of :class:`KMeans`."""

    start: _Start
    cosine: bool
    mean_of_all: bool
    every: int
    tolerance: float | None
    columns: Any

    def model_fn(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        """Assign points to centers; in TRAIN move the centers."""
        del labels
        points = self._points(features)
        width = points.shape.as_list()[-1]
        if width is None:
            raise ArgumentError("the points have no fixed number of columns", fix="features of shape [batch, columns]")
        shape = [self.start.count, width]
        centers = _kept(KMeans.CLUSTER_CENTERS_VAR_NAME, shape)
        distances = self._distances(points, centers)
        index = tf.argmin(distances, 1, output_type=tf.int32)
        score = tf.reduce_sum(tf.reduce_min(distances, 1))
        if mode == ModeKeys.PREDICT:
            found = {KMeans.ALL_DISTANCES: distances, KMeans.CLUSTER_INDEX: index}
            answers = {"all_distances": PredictOutput(distances), "cluster_index": PredictOutput(index),
                       "serving_default": PredictOutput(index)}  # fmt: skip
            return EstimatorSpec(mode, predictions=found, export_outputs=answers)
        if mode == ModeKeys.EVAL:
            return EstimatorSpec(mode, loss=score, eval_metric_ops={KMeans.SCORE: tf1.metrics.mean(score)})
        hooks = [_ChooseFirst(*self._choosing(points, centers))]
        if self.tolerance is not None:
            hooks.append(_StopWhereSettled(score, self.tolerance))
        return EstimatorSpec(mode, loss=score, train_op=self._moved(points, index, centers), training_hooks=hooks)

    def _points(self, features: Any) -> Any:
        if self.columns is not None:
            points = tf1.feature_column.input_layer(features, self.columns)
        elif isinstance(features, Mapping):
            points = tf.concat([tf.cast(features[key], tf.float32) for key in sorted(features)], 1)
        else:
            points = tf.cast(features, tf.float32)
        return tf.nn.l2_normalize(points, 1) if self.cosine else points

    def _distances(self, points: Any, centers: Any) -> Any:
        """``[batch, num_clusters]``, none below zero."""
        products = tf.matmul(points, centers, transpose_b=True)
        if self.cosine:
            return tf.maximum(1.0 - products, 0.0)
        squares = tf.reduce_sum(points**2, 1, keepdims=True) + tf.reduce_sum(centers**2, 1)
        return tf.maximum(squares - 2.0 * products, 0.0)

    def _choosing(self, points: Any, centers: Any) -> tuple[Any, Any]:
        """The op that chooses centers from a batch and counts them, and the tensor that says whether all are chosen."""
        taken = _kept("chosen", [], tf.int32)
        rows, count = self.start.chosen(points, centers.read_value(), taken.read_value())
        rows = tf.nn.l2_normalize(rows, 1) if self.cosine else rows
        return tf.group(centers.assign(rows), taken.assign(count)), taken >= self.start.count

    def _moved(self, points: Any, index: Any, centers: Any) -> Any:
        """The op of a step: updates the means, and now and then the centers, with the points of the batch."""
        count = self.start.count
        sums, sizes = tf.math.unsorted_segment_sum(points, index, count), tf.math.bincount(index, minlength=count)
        sizes = tf.cast(sizes, tf.float32)[:, None]
        seen, total = _kept("points", [count, 1]), _kept("sums", centers.shape.as_list())
        step = tf1.train.get_global_step()
        before = (total.read_value(), seen.read_value()) if self.mean_of_all else (0.0, 0.0)
        all_sums, all_seen = before[0] + sums, before[1] + sizes
        means = tf.where(all_seen > 0, all_sums / tf.maximum(all_seen, 1.0), centers)
        means = tf.nn.l2_normalize(means, 1) if self.cosine else means
        due = tf.equal((step.read_value() + 1) % self.every, 0)
        moved = centers.assign(tf.where(due, means, centers.read_value()))
        updates = [moved, total.assign(all_sums), seen.assign(all_seen)]
        with tf.control_dependencies([update.op for update in updates]):
            return step.assign_add(1).op


class _ChooseFirst(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Chooses the first centers before the first step, from as many batches as that takes."""

    def __init__(self, choose: Any, done: Any) -> None:
        self._choose, self._done = choose, done

    def after_create_session(self, session: Any, coord: Any) -> None:
        while not session.run(self._done):
            session.run(self._choose)


class _StopWhereSettled(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Stops where the loss of a step is nearly that of the step before."""

    def __init__(self, loss: Any, tolerance: float) -> None:
        self._loss, self._tolerance = loss, tolerance
        self._before: float | None = None

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now, before = float(run_values.results), self._before
        if before is not None and abs(now - before) / (1 + abs(before)) < self._tolerance:
            run_context.request_stop()
        self._before = now
