"""``tf.estimator.experimental.KMeans``: TensorFlow's own k-means, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import clustering_ops
from tensorflow.python.saved_model.model_utils.export_output import PredictOutput

from tpugraph.estimator.arguments import check_choice, check_int
from tpugraph.estimator.plain_estimator import Estimator
from tpugraph.estimator.specs import EstimatorSpec, ModeKeys

tf1 = tf.compat.v1


class KMeans(Estimator):
    """Finds ``num_clusters`` centers; each batch moves them towards the points that are nearest to them.

    Args:
        initial_clusters: ``random``, ``kmeans_plus_plus`` or ``kmc2`` (points of the first batches), an array
            ``[num_clusters, dimension]``, or a function of a list with one batch of points and of the number of centers that
            are missing, which gives at most so many.
        distance_metric: ``squared_euclidean`` or ``cosine``.
        seed: of the first choice.
        use_mini_batch: whether a center is the running mean of its points; else it is their mean in one batch.
        mini_batch_steps_per_iteration: after how many steps the centers to which points are assigned are replaced by the means,
            which then begin anew; with 1 the first centers count as a point each.
        kmeans_plus_plus_num_retries: how many points ``kmeans_plus_plus`` tries for each center.
        relative_tolerance: training stops where the loss changes by less, relative to itself; None goes on.
        feature_columns: which features are used; all of them, by their sorted names, when None.

    Raises:
        ArgumentError: an unknown distance or choice, or a number below 1 (a ``ValueError``).
    """

    SQUARED_EUCLIDEAN_DISTANCE, COSINE_DISTANCE = "squared_euclidean", "cosine"
    RANDOM_INIT, KMEANS_PLUS_PLUS_INIT, KMC2_INIT = "random", "kmeans_plus_plus", "kmc2"
    SCORE, CLUSTER_INDEX, ALL_DISTANCES = "score", "cluster_index", "all_distances"
    CLUSTER_CENTERS_VAR_NAME = clustering_ops.CLUSTERS_VAR_NAME

    def __init__(self, num_clusters: int, model_dir: Any = None, initial_clusters: Any = RANDOM_INIT,
                 distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE, seed: int | None = None, use_mini_batch: bool = True,
                 mini_batch_steps_per_iteration: int = 1, kmeans_plus_plus_num_retries: int = 2,
                 relative_tolerance: float | None = None, config: Any = None, feature_columns: Any = None) -> None:  # fmt: skip
        check_int("num_clusters", num_clusters, least=1)
        check_int("mini_batch_steps_per_iteration", mini_batch_steps_per_iteration, least=1)
        check_choice("distance_metric", distance_metric, (self.SQUARED_EUCLIDEAN_DISTANCE, self.COSINE_DISTANCE))
        if isinstance(initial_clusters, str):
            check_choice(
                "initial_clusters", initial_clusters, (self.RANDOM_INIT, self.KMEANS_PLUS_PLUS_INIT, self.KMC2_INIT)
            )

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            """Assigns points to centers; in TRAIN moves the centers."""
            points = _points(features, feature_columns)
            made = _Clustering(points, num_clusters, initial_clusters, distance_metric, use_mini_batch,
                               mini_batch_steps_per_iteration, seed or 0, kmeans_plus_plus_num_retries)  # fmt: skip
            (distances,), (index,), nearest, chosen, choose, move = made.training_graph()
            loss, step = tf.reduce_sum(nearest), tf1.train.get_global_step()
            if mode == ModeKeys.PREDICT:
                found = {self.ALL_DISTANCES: distances, self.CLUSTER_INDEX: index}
                answers = {name: PredictOutput(tensor) for name, tensor in {**found, "serving_default": index}.items()}
                return EstimatorSpec(mode, predictions=found, export_outputs=answers)
            if mode == ModeKeys.EVAL:
                return EstimatorSpec(mode, loss=loss, eval_metric_ops={self.SCORE: tf1.metrics.mean(loss)})
            with tf.control_dependencies([move, loss]):
                moved = tf1.assign_add(step, 1)
            hooks = [_ChooseFirst(choose, chosen)]
            if relative_tolerance is not None:
                hooks.append(_StopWhereSettled(loss, relative_tolerance))
            return EstimatorSpec(mode, loss=loss, train_op=tf.group(moved), training_hooks=hooks)

        super().__init__(model_fn, model_dir, config, use_tpu=False)

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


def _points(features: Any, columns: Any) -> Any:
    if columns is not None:
        return tf1.feature_column.input_layer(features, columns)
    if isinstance(features, Mapping):
        return tf.concat([tf.cast(features[key], tf.float32) for key in sorted(features)], 1)
    return tf.cast(features, tf.float32)


class _Clustering(clustering_ops.KMeans):  # type: ignore[misc]
    """TensorFlow's k-means, whose steps with mini batches read the counts and the centers in no order with their updates."""

    def _infer_graph(self, inputs: Any, clusters: Any) -> Any:
        found = list(super()._infer_graph(inputs, clusters))
        self._nearest = found[-1]
        return found

    def _mini_batch_sync_updates_op(self, *variables: Any) -> Any:
        with tf.control_dependencies(self._nearest):
            return super()._mini_batch_sync_updates_op(*variables)

    def _mini_batch_training_op(
        self, inputs: Any, cluster_idx_list: Any, cluster_centers: Any, total_counts: Any
    ) -> Any:
        (points,), (index,) = inputs, cluster_idx_list
        before, clusters = tf.identity(cluster_centers), tf.shape(total_counts)[0]
        counts = tf.math.bincount(tf.cast(index, tf.int32), minlength=clusters, dtype=tf.int64)
        total = total_counts + counts
        assigned = tf.cast(counts, points.dtype)[:, None]
        weight = tf.cast(tf.maximum(total, 1), points.dtype)[:, None]
        moved = before + (tf.math.unsorted_segment_sum(points, index, clusters) - assigned * before) / weight
        return tf.group(tf1.assign(cluster_centers, moved), tf1.assign(total_counts, total))


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
