from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from evaluating import check, data, probabilities, take

from models import rows_of, tf1, trace
from tpugraph import TPUSession, convert, testing
from tpugraph.analysis.step import PaddedBatches
from tpugraph.passes.pad_batches import PadBatches
from tpugraph.support.errors import ConversionError, ShapeError


def test_golden_step() -> None:
    graph = check(PadBatches(num_replicas=2), "step")
    assert graph.result(PaddedBatches).rows == 2
    assert graph["score"].inputs[0].shape == (2, 3)


def test_text_is_padded_too_and_numbers_made_of_it_are_zero() -> None:
    """The table gives -1 for padding text, which no loss takes as a label. The host looks up for its metric, too."""
    words = np.array([b"no", b"yes"], object)[data(21)[1]]

    def build(rows: int) -> Callable[[], None]:
        def inner() -> None:
            features, word = take((data(21)[0], words), rows)
            keys, values = tf.constant(["no", "yes"]), tf.constant([0, 1], tf.int64)
            table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
            chance = probabilities(features)
            logits = tf.stack([1 - chance, chance], 1)
            label = table.lookup(word)
            tf1.metrics.mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits), name="mean")
            tf1.metrics.mean(label, chance, name="weighted")

        return inner

    with TPUSession(convert(trace(build(4)), mode="eval", num_replicas=4)) as session:
        found = session.evaluate()
    with TPUSession(convert(trace(build(21)), mode="eval", num_replicas=1)) as session:
        whole = session.evaluate()
    assert found.examples == whole.examples == 21
    assert dict(found) == pytest.approx(dict(whole), rel=1e-6)
    assert 0 < found["weighted"] < 1


def test_words_are_predicted_of_numbers() -> None:
    """No shape function says how many words a table gives."""

    def build() -> None:
        chance = probabilities(take(data(21), 4)[0])
        names = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1], tf.int64), ["no", "yes"]), "?"
        )
        names.lookup(tf.cast(tf.stack([chance, 1 - chance], 1) > 0.5, tf.int64), name="words")
        tf.cast(chance > 0.5, tf.int64, name="guess")

    wanted = {"words": "words/LookupTableFindV2:0", "guess": "guess:0"}
    program = convert(trace(build), mode="predict", num_replicas=2, predictions=wanted)
    with TPUSession(program) as session:
        rows = list(session.predict())
    words, guess = (np.stack([row[name] for row in rows]) for name in wanted)
    np.testing.assert_array_equal(words, np.where(np.stack([guess, 1 - guess], 1), b"yes", b"no"))


def queue() -> None:
    features, targets = tf1.train.batch(list(tf1.train.slice_input_producer(rows_of(8, 3))), 4)
    tf1.metrics.mean(features[:, 0] * targets, name="mean")


def two_iterators() -> None:
    first, second = take(data(8), 4)[0], take(data(8), 4)[0]
    tf1.metrics.mean(probabilities(first) * second[:, 0], name="mean")


def computed_size() -> None:
    size = tf.cast(tf.random.uniform([], 2, 3, tf.int32), tf.int64)
    dataset = tf1.data.Dataset.from_tensor_slices(data(8)[0]).batch(size)
    tf1.metrics.mean(probabilities(tf1.data.make_initializable_iterator(dataset).get_next()), name="mean")


def open_dimension() -> None:
    rows = tf1.data.Dataset.range(6).map(lambda n: tf.fill([n], 1.0)).padded_batch(2, [None])
    tf1.metrics.mean(tf1.data.make_initializable_iterator(rows).get_next(), name="mean")


@pytest.mark.parametrize(
    ("build", "kind", "words"),
    [
        (queue, ConversionError, ["QueueDequeue", "tf.data"]),
        (two_iterators, ConversionError, ["takes 2 batches", "Dataset.zip"]),
        (computed_size, ShapeError, ["number of rows of a batch is not known", "dataset.batch(64)"]),
        (open_dimension, ShapeError, ["open dimension 1", "padded_shapes"]),
    ],
)
def test_what_cannot_be_padded(build: Callable[[], Any], kind: Any, words: list[str]) -> None:
    testing.assert_raises_block(convert, trace(build), mode="eval", kind=kind, max_length=500,
                                words=["pad-batches", *words])  # fmt: skip
