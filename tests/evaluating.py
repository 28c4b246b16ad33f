"""Evaluation and prediction graphs made here, and TensorFlow's own run of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from models import GOLDEN, tf1, variable
from tpugraph import testing
from tpugraph.analysis.shapes import import_graph
from tpugraph.ir import Graph
from tpugraph.ir.session_config import guarded
from tpugraph.passes import WITHOUT_TRAINING
from tpugraph.roles import evaluation_roles
from tpugraph.roles.findings import Roles
from tpugraph.tpu.pipeline import Pass

ROLES: dict[str, Any] = {"eval": evaluation_roles.find_evaluation, "predict": evaluation_roles.find_prediction}


def data(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels of two classes and weights; no two rows alike."""
    random = np.random.default_rng(5)
    features = random.normal(size=(count, 4)).astype(np.float32)
    labels = (features[:, 0] + 0.7 * random.normal(size=count) > 0).astype(np.int64)
    return features, labels, random.uniform(0.1, 2, size=count).astype(np.float32)


def area(labels: np.ndarray, chance: np.ndarray) -> float:
    """The area under the ROC curve at the 200 thresholds that tf.metrics.auc takes, by trapezoids."""
    thresholds = [-1e-7, *((i + 1) / 199 for i in range(198)), 1 + 1e-7]
    above = chance.astype(np.float32)[None] > np.float32(thresholds)[:, None]
    hits = (above & (labels == 1)).sum(1) / (labels == 1).sum()
    alarms = (above & (labels == 0)).sum(1) / (labels == 0).sum()
    return float(((alarms[:-1] - alarms[1:]) * (hits[:-1] + hits[1:]) / 2).sum())


def take(arrays: tuple[np.ndarray, ...], rows: int, *, drop_remainder: bool = False) -> Any:
    dataset = tf1.data.Dataset.from_tensor_slices(arrays).batch(rows, drop_remainder=drop_remainder)
    return tf1.data.make_initializable_iterator(dataset).get_next()


def probabilities(features: Any) -> Any:
    hidden = tf.tanh(features @ variable("w", (4, 3)) + variable("b", (3,)))
    return tf.sigmoid(tf.squeeze(hidden @ variable("out", (3, 1)), 1))


def evaluation(rows: int, *, count: int = 77, drop_remainder: bool = False) -> Callable[[], None]:
    """Builds a model with metrics and the mean of the loss, as Estimator adds it."""

    def build() -> None:
        features, labels, weights = take(data(count), rows, drop_remainder=drop_remainder)
        chance = probabilities(features)
        guess = tf.cast(chance > 0.5, tf.int64)
        loss = tf1.losses.log_loss(labels, chance, weights)
        tf1.metrics.accuracy(labels, guess, name="accuracy")
        tf1.metrics.auc(labels, chance, name="auc")
        tf1.metrics.mean(chance, weights, name="chance")
        tf1.metrics.precision(labels, guess, name="precision")
        tf1.metrics.mean(loss, name="loss_of_batches")

    return build


def prediction(rows: int, count: int) -> Callable[[], None]:
    def build() -> None:
        features, _, _ = take(data(count), rows)
        chance = probabilities(features)
        tf.stack([chance, 1 - chance], 1, name="both")
        tf.cast(chance > 0.5, tf.int64, name="guess")

    return build


def run_plain(graph: Graph, roles: Roles, fetches: list[str]) -> list[Any]:
    """TensorFlow's own run of a plain graph: updates until the data end, then the fetches; once without updates."""
    target = import_graph(graph)
    first = [v.initializer for v in roles.variables.values() if v.initializer] + roles.iterator_initializers
    with tf1.Session(graph=target, config=guarded()) as session:
        session.run([target.get_operation_by_name(name) for name in first])
        try:
            while roles.updates:
                session.run([target.get_operation_by_name(finding.name) for finding in roles.updates])
        except tf.errors.OutOfRangeError:
            pass
        return session.run([f"{name}:0" for name in fetches])


def plain_metrics(graph: Graph) -> dict[str, float]:
    roles = evaluation_roles.find_evaluation(graph)
    return dict(zip(roles.values, map(float, run_plain(graph, roles, list(roles.values.values()))), strict=True))


def check(step: Pass, case: str, *, mode: str = "eval", **values: Any) -> Graph:
    """One golden file, behind the passes before this one."""
    before = WITHOUT_TRAINING[: WITHOUT_TRAINING.index(type(step))]
    earlier = [cls(**{key: value for key, value in values.items() if key in cls.parameters()}) for cls in before]
    return testing.check_golden(step, GOLDEN / step.name / f"{case}.txt", roles=ROLES[mode], after=earlier)
