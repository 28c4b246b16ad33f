"""What the host hands to the device lives where the ops of the host put it, whatever its sizes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import assert_cores_are_the_whole_batch, batches, finish, tf1, trace, variable
from programs.parts import minimise
from tpugraph import testing
from tpugraph.analysis import shapes
from tpugraph.analysis.placements import REPLICATE, Entries, PerCore, Shard
from tpugraph.compiler import convert
from tpugraph.ir import Graph
from tpugraph.partition import analyse
from tpugraph.partition.fed_values import values_fed
from tpugraph.support.errors import ConversionError

WORDS = np.array([b"red", b"green", b"blue"], object)[np.random.default_rng(0).integers(0, 3, (96, 3))]
NUMBERS = np.random.default_rng(1).normal(size=96).astype(np.float32)


def hashed(text: Any) -> Any:
    return tf.strings.to_hash_bucket_fast(text, 9)


def model(made: Callable[[Any], Any]) -> Graph:
    """A model whose loss is made of words, numbers and a variable; 4 rows."""

    def build() -> None:
        words, numbers = batches((WORDS, NUMBERS), 4)
        finish(tf.reduce_mean(made(words) * tf.square(numbers * variable("w", (1,)) - 0.3)), tf1.train.AdamOptimizer())

    return trace(build)


def refused(made: Callable[[Any], Any]) -> ConversionError:
    error = testing.assert_raises_block(
        lambda: convert(model(made), num_replicas=2), max_length=700, kind=ConversionError,
        words=["takes the rows of a batch together on the host", "of the whole batch it would be another value"],
    )  # fmt: skip
    assert isinstance(error, ConversionError)
    return error


TOGETHER: dict[str, Callable[[Any], Any]] = {
    "UniqueWithCounts": lambda words: tf.gather(*tf.unique_with_counts(words[:, 0])[:0:-1]),
    "ReverseV2": lambda words: hashed(tf.reverse(words[:, 0], [0])),
    "Equal": lambda words: tf.equal(words[:, 0], words[:, :1]),
    "StridedSlice": lambda words: tf.equal(words[:, 0], words[0, 0]),
}


@pytest.mark.parametrize("op", TOGETHER)
def test_what_the_host_makes_of_several_rows_is_refused(op: str) -> None:
    error = refused(lambda words: tf.cast(TOGETHER[op](words), tf.float32))
    assert f"({op})" in str(error.node)


def test_a_number_of_distinct_values_is_that_of_all_cores() -> None:
    """How many different words the whole batch has is not the sum of what cores have."""
    error = refused(lambda words: 1.0 / tf.cast(tf.size(tf.unique(words[:, 0])[0]), tf.float32))
    assert error.node == "Unique (Unique)"


def test_rows_of_distinct_words_are_taken_together_of_all_cores_or_not_at_all() -> None:
    def build() -> None:
        words, numbers = batches((WORDS, NUMBERS), 4)
        table = variable("table", (9, 3))
        found, places = tf.unique(words[:, 0])
        rows = tf.gather(table, hashed(found))
        error = tf.square(tf.reduce_sum(tf.gather(rows, places), 1) - numbers)
        finish(tf.reduce_mean(error) + 0.1 * tf.nn.l2_loss(rows), tf1.train.AdamOptimizer())

    testing.assert_raises_block(
        lambda: convert(trace(build), num_replicas=2), max_length=700, kind=ConversionError,
        words=["takes together what belongs to the distinct values of a core's own rows", "numbers instead of strings"],
    )  # fmt: skip


def test_layouts_of_the_rows_are_told_by_the_ops_that_make_them() -> None:
    def build() -> None:
        words, numbers = batches((WORDS, NUMBERS), 4)
        for name, text in {"plain": words, "turned": tf.transpose(words), "listed": tf.reshape(words, [-1]),
                           "behind": tf.concat([words, words], 0), "reversed": tf.reverse(words, [0])}.items():  # fmt: skip
            tf.identity(hashed(text), name=name)
        tf.constant(3.0, name="constant")
        minimise(tf.reduce_mean(numbers * variable("w", (1,))))

    graph = trace(build)
    shapes.infer(graph)
    tensors = {name: graph[name].inputs[0] for name in ("plain", "turned", "listed", "behind", "reversed")}
    tensors["constant"] = graph["constant"].out()
    fed = values_fed(graph, tensors.values(), 4, lambda nodes: analyse(graph, 4, nodes=nodes))
    found = {name: fed.placements[tensor] for name, tensor in tensors.items()}
    assert isinstance(found.pop("reversed"), PerCore)
    assert found == {"plain": Shard(0), "turned": Shard(1), "listed": Shard(0, 1, 3), "behind": Shard(0, 2),
                     "constant": REPLICATE}  # fmt: skip
    assert {t.node.inputs[0].node.op for t in fed.together} == {"ReverseV2"}
    by_size = values_fed(graph, tensors.values(), 4, None)
    assert by_size.placements[tensors["reversed"]] == Shard(0)
    behind = f"each core reads its own '{tensors['behind']}', which has no row for each example"
    assert by_size.placements[tensors["behind"]] == PerCore(behind)
    assert by_size.placements[tensors["listed"]] == Entries("shape")


def of_input(number: Callable[[Any], Any], use: Callable[[Any, Any], Any]) -> Graph:
    """A model of numbers and of one number for each batch that a dataset function makes of them; 4 rows."""

    def build() -> None:
        data = tf1.data.Dataset.from_tensor_slices(NUMBERS).batch(4, drop_remainder=True).map(lambda x: (x, number(x)))
        numbers, one = tf1.data.make_initializable_iterator(data).get_next()
        finish(use(numbers, one), tf1.train.AdamOptimizer())

    return trace(build)


OF_A_BATCH: dict[str, Callable[[Any, Any], Any]] = {
    "on the device": lambda x, one: tf.reduce_mean(tf.square(x * variable("w", (1,)) * one)),
    "on the host": lambda x, one: tf.reduce_mean(tf.square(x * one - variable("w", (1,)))),
}


@pytest.mark.parametrize("number", [lambda x: tf.random.uniform([], seed=3), tf.reduce_mean], ids=["random", "mean"])
@pytest.mark.parametrize("where", OF_A_BATCH)
def test_a_number_that_the_input_makes_for_each_batch_is_refused(where: str, number: Callable[[Any], Any]) -> None:
    """The batch of all cores would have one such number, and each core's batch has its own."""
    error = testing.assert_raises_block(
        lambda: convert(of_input(number, OF_A_BATCH[where]), num_replicas=2), max_length=700, kind=ConversionError,
        words=["each core reads its own 'IteratorGetNext:1', which has no row for each example"],
    )  # fmt: skip
    assert isinstance(error, ConversionError)
    assert str(error.fix).startswith("give each example a row of it; numbers that are drawn in the model")


def test_rows_that_the_input_counts_are_refused_on_several_cores() -> None:
    def graph() -> Graph:
        return of_input(
            lambda x: tf.cast(tf.shape(x)[0], tf.float32),
            lambda x, count: tf.reduce_sum(tf.square(x * variable("w", (1,)))) / count,
        )

    testing.assert_raises_block(
        lambda: convert(graph(), num_replicas=2), max_length=700, kind=ConversionError,
        words=["'IteratorGetNext:1' is 4 in each batch of the input, and a core's batch has 4 rows"],
    )  # fmt: skip
    assert convert(graph(), num_replicas=1)


def test_places_that_are_read_as_numbers_are_those_of_all_cores() -> None:
    def build(rows: int) -> None:
        words, numbers = batches((WORDS, NUMBERS), rows)
        places = tf.cast(tf.where(tf.equal(words[:, 0], "red")), tf.float32)
        finish(tf.reduce_sum(tf.square(places * variable("w", (1,)) - numbers[0])), tf1.train.AdamOptimizer())

    assert_cores_are_the_whole_batch(build, cores=2, steps=3, relative=1e-4, absolute=1e-6)


def test_what_was_taken_of_all_cores_is_put_at_the_places_of_all() -> None:
    """A softmax of chosen rows takes those of all cores, and so its gradient has them."""

    def build(rows: int) -> None:
        words, numbers = batches((WORDS, NUMBERS), rows)
        logits = tf.tile(numbers[:, None, None], [1, 3, 3]) * variable("w", (3,))
        places = tf.where(tf.not_equal(words, "red"))
        chosen = tf.gather_nd(logits, places)
        finish(tf.reduce_mean(tf.matmul(chosen, chosen, transpose_b=True)), tf1.train.AdamOptimizer())

    assert_cores_are_the_whole_batch(build, cores=2, steps=3, relative=1e-4, absolute=1e-6)
