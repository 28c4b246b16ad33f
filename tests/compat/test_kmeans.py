"""``tf.estimator.experimental.KMeans``: its steps against the same steps in NumPy, and clusters that it has to find."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpugraph.compat.v1 as compat
from closeness import assert_close

tf1 = tf.compat.v1
RANDOM = np.random.default_rng(5)
CENTERS = np.asarray([[4.0, 0.0, 1.0], [-4.0, 1.0, 0.0], [0.0, 5.0, -3.0]], np.float32)
TRUTH = RANDOM.integers(3, size=96)
POINTS = (CENTERS[TRUTH] + 0.3 * RANDOM.normal(size=(96, 3))).astype(np.float32)


def repeated() -> Any:
    return tf1.data.Dataset.from_tensor_slices(POINTS).repeat().batch(32)


def once() -> Any:
    return tf1.data.Dataset.from_tensor_slices(POINTS).batch(96)


def kmeans(folder: Path, **given: Any) -> Any:
    return compat.estimator.experimental.KMeans(3, str(folder), **given)


def by_hand(start: Any, steps: int, *, mini_batch: bool, every: int) -> Any:
    """The centers after some steps: of mini batches running means, where each counts as a point of itself at first."""
    means, sizes = np.array(start, float), np.ones((3, 1)) * (every == 1)
    centers = means.copy()
    for step in range(steps):
        batch = POINTS[32 * (step % 3) : 32 * (step % 3) + 32].astype(float)
        if every > 1 and step and step % every == 0:
            centers, sizes = means.copy(), np.zeros((3, 1))
        nearest = np.argmin(((batch[:, None] - centers) ** 2).sum(-1), 1)
        counts = np.bincount(nearest, minlength=3)[:, None]
        sums = np.stack([batch[nearest == number].sum(0) for number in range(3)])
        sizes = sizes + counts if mini_batch else counts
        means = (means * (sizes - counts) + sums) / np.maximum(sizes, 1)
        centers = means if every == 1 else centers
    return centers


FAR = [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [50.0, 50.0, 50.0]]  # no point is ever nearest to the last one


@pytest.mark.parametrize(("mini_batch", "every", "start"), [(True, 1, FAR), (True, 2, CENTERS + 0.4), (False, 1, FAR)])
def test_each_step_is_that_of_the_definition(mini_batch: bool, every: int, start: Any, tmp_path: Path) -> None:
    made = kmeans(tmp_path, initial_clusters=np.asarray(start, np.float32), use_mini_batch=mini_batch,
                  mini_batch_steps_per_iteration=every)  # fmt: skip
    made.train(repeated, steps=5)
    assert_close(made.cluster_centers(), by_hand(start, 5, mini_batch=mini_batch, every=every), relative=1e-5)


@pytest.mark.parametrize(("start", "seed"), [("kmeans_plus_plus", 4), ("random", 1)])
def test_finds_clusters_scores_and_stops(start: str, seed: int, tmp_path: Path) -> None:
    made = kmeans(tmp_path, initial_clusters=start, seed=seed, use_mini_batch=False, kmeans_plus_plus_num_retries=5)
    made.train(once_and_again, steps=8)
    centers, found = made.cluster_centers(), np.asarray(list(made.predict_cluster_index(once)))
    apart = ((POINTS[:, None] - centers) ** 2).sum(-1)
    assert (found == apart.argmin(1)).all()
    assert made.score(once) == pytest.approx(apart.min(1).sum(), rel=1e-4)
    assert_close(np.stack(list(made.transform(once))), apart, relative=1e-5)
    if start == "kmeans_plus_plus":
        assert_close(np.sort(centers[:, 0]), np.sort(CENTERS[:, 0]), relative=0.05)
    made = kmeans(tmp_path / "settled", initial_clusters=CENTERS, use_mini_batch=False, relative_tolerance=1e-6)
    made.train(lambda: once().repeat(), steps=50)
    assert made.get_variable_value("global_step") == 3


def once_and_again() -> Any:
    return tf1.data.Dataset.from_tensor_slices({"x": POINTS[:, :1], "yz": POINTS[:, 1:]}).repeat().batch(96)


def test_directions_by_cosine_and_a_function_that_chooses(tmp_path: Path) -> None:
    made = kmeans(tmp_path, distance_metric="cosine", initial_clusters=lambda points,
                  count: points[0][:count] * 0 + CENTERS)  # fmt: skip
    made.train(repeated, steps=6)
    assert (np.asarray(list(made.predict_cluster_index(once))) == TRUTH).all()
