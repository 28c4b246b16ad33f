"""Lookups with a number of rows that only the batch decides: crossed columns, tables in pieces, several of one table."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, finish, tf1, trace, trains_on_cores
from tpugraph import testing
from tpugraph.support.errors import TpuGraphError

ROWS, WIDTH, IDS = 96, 4, 11


def next_batch(rows: int) -> tuple[Any, Any, Any, Any]:
    """Words, lists of numbers, their lengths and targets; some lists are empty."""
    random = np.random.default_rng(2)
    words = np.array([b"red", b"green", b"blue", b""], dtype=object)[random.integers(0, 4, ROWS)]
    numbers = random.integers(0, IDS, (ROWS, WIDTH))
    lengths = random.integers(0, WIDTH + 1, ROWS)
    return batches((words, numbers, lengths, random.normal(size=ROWS).astype(np.float32)), rows)


def table(name: str, pieces: int, width: int = 2) -> Any:
    start = np.sin(np.arange(IDS * width)).astype(np.float32).reshape(IDS, width)
    cut = tf1.fixed_size_partitioner(pieces) if pieces > 1 else None

    def part(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        first = partition_info.var_offset[0] if partition_info else 0
        return tf.constant(start[first : first + shape[0]])

    return tf1.get_variable(name, [IDS, width], initializer=part, partitioner=cut)


def listed(numbers: Any, lengths: Any) -> Any:
    mask = tf.sequence_mask(lengths, WIDTH)
    places = tf.where(mask)
    shape = tf.shape(numbers, out_type=tf.int64)
    return tf.SparseTensor(places, tf.gather_nd(numbers, places), shape)


def in_pieces(numbers: Any, lengths: Any) -> Any:
    found = tf1.nn.safe_embedding_lookup_sparse(table("pieces", 3), listed(numbers, lengths), combiner="mean")
    return tf.reduce_sum(found, 1)


def two_of_one(numbers: Any, lengths: Any) -> Any:
    weights, ids = table("two", 2), listed(numbers, lengths)
    added, rooted = (tf1.nn.safe_embedding_lookup_sparse(weights, ids, combiner=how) for how in ("sum", "sqrtn"))
    return tf.reduce_sum(added * rooted, 1)


def crossed(words: Any, numbers: Any) -> Any:
    """As ``crossed_column`` of a vocabulary column and a key: one column is sparse, one dense."""
    places = tf.where(tf.not_equal(words[:, None], ""))
    values = tf.strings.to_hash_bucket_fast(tf.gather_nd(words[:, None], places), 5)
    sparse = tf.SparseTensor(places, values, tf.shape(words[:, None], out_type=tf.int64))
    ids = tf.sparse.cross_hashed([sparse, numbers[:, :1]], num_buckets=IDS)
    return tf.reduce_sum(tf1.nn.safe_embedding_lookup_sparse(table("crossed", 1), ids, combiner="sum"), 1)


LOOKUPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "pieces": lambda words, numbers, lengths: in_pieces(numbers, lengths),
    "two of one": lambda words, numbers, lengths: two_of_one(numbers, lengths),
    "crossed": lambda words, numbers, lengths: crossed(words, numbers),
}


@pytest.mark.parametrize("case", sorted(LOOKUPS))
@trains_on_cores()
def test_cores_train_the_tables_as_the_whole_batch_does(rows: int, case: str) -> None:
    words, numbers, lengths, targets = next_batch(rows)
    outputs = tf.reshape(LOOKUPS[case](words, numbers, lengths), [rows])
    finish(tf.reduce_mean(tf.square(outputs - targets)), tf1.train.AdagradOptimizer(0.1))


@trains_on_cores(max_ids=2)
def test_texts_are_split_into_words_that_are_looked_up(rows: int) -> None:
    """How many texts are split is known, how many words there are not."""
    words, numbers, _, targets = next_batch(rows)
    split = tf1.string_split(tf1.string_join([words, tf.strings.as_string(numbers[:, 0])], " "))
    ids = tf.SparseTensor(split.indices, tf.strings.to_hash_bucket_fast(split.values, IDS), split.dense_shape)
    found = tf1.nn.safe_embedding_lookup_sparse(table("words", 1), ids, combiner="sqrtn")
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(found, 1) - targets))
    finish(loss, tf1.train.AdagradOptimizer(0.1))


def split(rows: int, how: str, *, weighted: bool, empty: bool = False) -> None:
    """Texts of one to four words, each with a number, looked up by the hash of the word; the number is its weight, or none."""
    random = np.random.default_rng(4)
    lengths = random.integers(1, 5, ROWS)
    lengths[3] = 0 if empty else 1
    texts = [" ".join(f"w{random.integers(0, 30)}:{random.uniform(0.2, 2):.2f}" for _ in range(n)) for n in lengths]
    texts, targets = batches((np.array(texts, object), random.normal(size=ROWS).astype(np.float32)), rows)
    words = tf1.string_split(texts)
    pairs = tf.reshape(tf1.string_split(words.values, ":").values, [-1, 2])
    numbers = tf1.string_to_hash_bucket_fast(pairs[:, 0], IDS)
    ids = tf.SparseTensor(words.indices, numbers, words.dense_shape)
    weights = tf.SparseTensor(words.indices, tf1.string_to_number(pairs[:, 1]), words.dense_shape)
    found = tf1.nn.embedding_lookup_sparse(table("words", 1), ids, weights if weighted else None, combiner=how)
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(found, 1) - targets))
    finish(loss, tf1.train.MomentumOptimizer(0.2, 0.9))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", ["sum", "mean", "sqrtn"])
def test_words_are_looked_up_without_filling_rows(how: str, *, weighted: bool) -> None:
    assert_same_on_cores(lambda rows: split(rows, how, weighted=weighted), resource=weighted, max_ids=4)


@pytest.mark.parametrize(
    ("max_ids", "empty", "words"),
    [(2, False, "a row has 4 ids"), (4, True, "a row of the batch has no id"), (0, False, "--max_ids=N")],
)
def test_a_row_without_ids_or_with_too_many_is_an_error(max_ids: int, words: str, *, empty: bool) -> None:
    with pytest.raises(TpuGraphError) as caught:
        testing.run_on_cores(trace(lambda: split(16, "mean", weighted=False, empty=empty)), steps=2, num_replicas=4,
                             max_ids=max_ids)  # fmt: skip
    assert words in caught.value.block()
    assert "/filled/" not in caught.value.block(), "a node of the program is named, not the one that was put behind it"
