"""Inputs that give other batches in each run: a comparison reads them in order, and says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import finish, rows_of, saved, squared_error, tf1, trace, variable
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph, attrs, graphdef
from tpugraph.testing import verification
from tpugraph.testing.plain_run import PlainRun
from tpugraph.testing.repeatable import repeatable

ROWS = rows_of(96, 3)
Input = Callable[[], Any]


def noisy(features: Any, target: Any, seed: int | None) -> Any:
    return features + tf1.random_normal([3], seed=seed), target


def in_order() -> Any:
    return tf1.data.Dataset.from_tensor_slices(ROWS).map(lambda f, t: (f * 2.0, t), num_parallel_calls=4)


def sloppy_files() -> Any:
    """Rows of several sources at once, each as soon as it is there."""
    parts = tf1.data.Dataset.range(4)
    read = lambda i: tf1.data.Dataset.from_tensor_slices(ROWS).shard(4, i)  # noqa: E731
    return parts.apply(tf1.data.experimental.parallel_interleave(read, cycle_length=4, sloppy=True))


def unordered_options() -> Any:
    options = tf1.data.Options()
    options.deterministic = False
    return in_order().with_options(options)


def mapped(seed: int | None, **options: Any) -> Input:
    """Rows with noise."""
    return lambda: tf1.data.Dataset.from_tensor_slices(ROWS).map(lambda f, t: noisy(f, t, seed), **options)


unseeded_map, seeded_map = mapped(None), mapped(5)
parallel_random_map = mapped(5, num_parallel_calls=4)


def graph(data: Input, *, words: bool = False, rows: int = 4) -> Graph:
    def build() -> None:
        batches = data().repeat().batch(rows, drop_remainder=True)
        if words:
            batches = batches.map(lambda f, t: (f, t, tf.strings.as_string(t)))
        drawn = tf1.data.make_initializable_iterator(batches).get_next()
        length = tf.cast(tf.reduce_max(tf.strings.length(drawn[2])), tf.float32) if words else 0.0
        loss = tf.reduce_mean(squared_error(drawn[0], drawn[1], variable("w", (3, 1)))) + 0.0 * length
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    return trace(build)


def read_on() -> Any:
    """Elements of an iterator of its own, as an input function that returns tensors becomes a Dataset."""
    inner = tf1.data.make_one_shot_iterator(tf1.data.Dataset.from_tensor_slices(ROWS).shuffle(96).repeat())
    return tf1.data.Dataset.range(96).map_with_legacy_function(lambda _: inner.get_next())


def unordered_map() -> Any:
    return tf1.data.Dataset.from_tensor_slices(ROWS).map(lambda f, t: (f, t), num_parallel_calls=2, deterministic=False)


def nested() -> Any:
    """Sloppy datasets that a function makes."""
    return tf1.data.Dataset.range(96).flat_map(lambda i: unordered_map().skip(i % 8).take(1))


def interleaved_noise() -> Any:
    parts = tf1.data.Dataset.range(4)
    read = lambda i: seeded_map().shard(4, i)  # noqa: E731
    return parts.interleave(read, cycle_length=4, num_parallel_calls=4)


def batches_of(plain: Graph) -> Any:
    run = PlainRun(plain)
    run.open({})
    found = run.batches(["IteratorGetNext:0", "IteratorGetNext:1"], 12)
    run.close()
    return found


SLOPPY = {"files": sloppy_files, "options": unordered_options, "random": parallel_random_map, "nested": nested,
          "interleaved": interleaved_noise, "read_on": read_on}  # fmt: skip


@pytest.mark.parametrize("data", SLOPPY.values(), ids=SLOPPY)
def test_each_run_has_the_same_batches(data: Input) -> None:
    notes: list[str] = []
    plain = repeatable(graph(data), notes)
    assert data is read_on or "hand elements on in order" in notes[0]
    once, again = batches_of(plain), batches_of(plain)
    assert len(once) == 12
    for (features, targets), (others, and_targets) in zip(once, again, strict=True):
        assert np.array_equal(features, others)
        assert np.array_equal(targets, and_targets)


def test_an_input_in_order_stays_as_it_is() -> None:
    for plain in (graph(seeded_map), graph(in_order)):
        notes: list[str] = []
        assert graphdef.to_graph_def(repeatable(plain, notes)) == graphdef.to_graph_def(plain)
        assert not notes


def test_a_rewrite_to_a_sloppy_pipeline_is_left_out() -> None:
    plain, notes = graph(in_order), list[str]()
    maker = plain.of_type("MakeIterator")[0]
    element = {key: plain["IteratorV2"].attr(key) for key in ("output_types", "output_shapes")}
    value = {"dtype": attrs.dtype("string"), "value": np.asarray([b"make_sloppy", b"noop"], object)}
    wish = plain.add("Const", "optimizations", attrs=value)
    rewritten = plain.add("OptimizeDataset", "rewritten", [maker.inputs[0], wish.out()], attrs=element)
    plain.set_input(maker, 0, rewritten.out())
    operand = repeatable(plain, notes)["rewritten"].inputs[1].node
    assert operand.attr("value").tolist() == [b"noop"]
    assert "'rewritten' hand elements on in order" in notes[0]


@pytest.mark.parametrize("data", [sloppy_files, parallel_random_map])
def test_verify_reads_the_same_batches(data: Input, tmp_path: Path) -> None:
    found = verification.verify(str(saved(graph(data), tmp_path)), 3, ConvertOptions(num_replicas=2))
    assert found.ok, found.comparisons
    assert [comparison.steps for comparison in found.comparisons] == [3, 3]
    assert "the input gives other batches in each run" in found.notes[0]
