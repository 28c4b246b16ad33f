"""Flowers to learn from: 150 irises of three species, drawn at random around the measures of the species.

The numbers are made here, always the same ones; no file is read.
"""

from __future__ import annotations

import numpy as np

FEATURES = ["SepalLength", "SepalWidth", "PetalLength", "PetalWidth"]
SPECIES = ["Setosa", "Versicolor", "Virginica"]

PREDICTION_INPUT_DATA = {
    "SepalLength": np.array([5.1, 5.9, 6.9], np.float32),
    "SepalWidth": np.array([3.3, 3.0, 3.1], np.float32),
    "PetalLength": np.array([1.7, 4.2, 5.4], np.float32),
    "PetalWidth": np.array([0.5, 1.5, 2.1], np.float32),
}
PREDICTION_OUTPUT_DATA = ["Setosa", "Versicolor", "Virginica"]

_CENTRES = [[5.0, 3.4, 1.5, 0.25], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]]
_SPREADS = [[0.35, 0.38, 0.17, 0.11], [0.5, 0.3, 0.45, 0.2], [0.6, 0.3, 0.55, 0.27]]


def load_data() -> tuple[tuple[dict[str, np.ndarray], np.ndarray], tuple[dict[str, np.ndarray], np.ndarray]]:
    """(features, species) of 120 flowers to train on, and of 30 others to test with."""
    random = np.random.default_rng(20)
    species = random.permutation(np.repeat(np.arange(3, dtype=np.int32), 50))
    measures = random.normal(np.array(_CENTRES)[species], np.array(_SPREADS)[species]).astype(np.float32)
    columns = {name: measures[:, index] for index, name in enumerate(FEATURES)}
    train = {name: column[:120] for name, column in columns.items()}, species[:120]
    test = {name: column[120:] for name, column in columns.items()}, species[120:]
    return train, test


def train_input_fn(features, labels, batch_size):
    """Batches of shuffled flowers, for ever."""
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((dict(features), labels))
    dataset = dataset.shuffle(1000).repeat()
    return dataset.batch(batch_size, drop_remainder=True)


def eval_input_fn(features, labels, batch_size):
    """Every flower once."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((dict(features), labels)).batch(batch_size)


def predict_input_fn(features, batch_size):
    """Flowers without their species; there may be fewer than a batch."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(features).batch(batch_size)
