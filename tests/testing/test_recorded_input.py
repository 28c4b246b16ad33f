"""``verify`` on inputs that give other batches in each run: both sides read one recorded stream, and it says so."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import finish, rows_of, saved, squared_error, tf1, trace, variable
from tpugraph import cli
from tpugraph.compiler import ConvertOptions
from tpugraph.ir import Graph, attrs
from tpugraph.testing import verification
from tpugraph.testing.recorded_input import changing_inputs

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


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (sloppy_files, "hands elements on as soon as they are there"),
        (unordered_options, "hands elements on as soon as they are there"),
        (parallel_random_map, "draws random numbers for several elements at a time"),
    ],
)
def test_what_changes_from_run_to_run(data: Input, reason: str) -> None:
    found = changing_inputs(graph(data))
    assert len(found) == 1
    assert reason in found[0]


def read_on() -> Any:
    """Elements of an iterator of its own, as an input function that returns tensors becomes a Dataset."""
    inner = tf1.data.make_one_shot_iterator(tf1.data.Dataset.from_tensor_slices(ROWS).shuffle(96).repeat())
    return tf1.data.Dataset.range(96).map_with_legacy_function(lambda _: inner.get_next())


def test_what_changes_between_reads() -> None:
    (reason,) = changing_inputs(graph(read_on))
    assert "is read on from where it stands" in reason

    def unseeded() -> list[str]:
        return changing_inputs(trace(lambda: tf1.data.make_initializable_iterator(unseeded_map()), seed=None))

    assert "draws random numbers without a seed" in unseeded()[0]
    assert changing_inputs(graph(seeded_map)) == []
    assert changing_inputs(graph(in_order)) == []
    within = graph(lambda: tf1.data.Dataset.range(3).flat_map(lambda i: unordered_map().skip(i)))
    assert "in the function" in changing_inputs(within)[0]
    plain = graph(in_order)
    maker = plain.of_type("MakeIterator")[0]
    element = {key: plain["IteratorV2"].attr(key) for key in ("output_types", "output_shapes")}
    value = {"dtype": attrs.dtype("string"), "value": np.asarray([b"make_sloppy"], object)}
    wish = plain.add("Const", "optimizations", attrs=value)
    rewritten = plain.add("OptimizeDataset", "rewritten", [maker.inputs[0], wish.out()], attrs=element)
    plain.set_input(maker, 0, rewritten.out())
    assert changing_inputs(plain) == ["'rewritten' hands elements on as soon as they are there"]


def unordered_map() -> Any:
    return tf1.data.Dataset.from_tensor_slices(ROWS).map(lambda f, t: (f, t), num_parallel_calls=2, deterministic=False)


@pytest.mark.parametrize("data", [sloppy_files, parallel_random_map])
def test_both_sides_read_one_stream(data: Input, tmp_path: Path) -> None:
    found = verification.verify(str(saved(graph(data), tmp_path)), 3, ConvertOptions(num_replicas=2))
    assert found.ok, found.comparisons
    assert [comparison.steps for comparison in found.comparisons] == [3, 3]
    assert found.recorded == 3


def test_strings_and_data_that_end_are_recorded_too(tmp_path: Path) -> None:
    def ending() -> Any:
        return unordered_map().take(18)

    def build() -> None:
        batches = ending().batch(4, drop_remainder=True).map(lambda f, t: (f, t, tf.strings.as_string(t)))
        features, targets, words = tf1.data.make_initializable_iterator(batches).get_next()
        weights = tf.cast(tf.strings.length(words), tf.float32)
        loss = tf.reduce_mean(weights * squared_error(features, targets, variable("w", (3, 1))))
        finish(loss, tf1.train.GradientDescentOptimizer(0.01))

    found = verification.verify(str(saved(trace(build), tmp_path)), 9, ConvertOptions(num_replicas=1))
    assert found.ok, found.comparisons
    assert found.recorded == 4
    assert {comparison.steps for comparison in found.comparisons} == {4}


def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(graph(sloppy_files), tmp_path))
    assert cli.main(["verify", path, "--steps=2", "--num_replicas=2", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["recorded_batches"] == 2
    assert "note: the input gives other batches in each run ('" in captured.err
    assert (
        "hands elements on as soon as they are there): both sides read one recorded stream of batches (2 in all)"
        in captured.err
    )
    assert cli.main(["verify", path, "--steps=2", "--num_replicas=2", "--dry_run"]) == 0
    assert "would run   the input alone, whose batches are recorded for all runs" in capsys.readouterr().out


def test_what_cannot_be_recorded_is_said(tmp_path: Path) -> None:
    def build() -> None:
        data = parallel_random_map().repeat().batch(4, drop_remainder=True)
        iterator = tf1.data.make_initializable_iterator(data)
        (features, _), (_, targets) = iterator.get_next(), iterator.get_next()
        loss = tf.reduce_mean(squared_error(features, targets, variable("w", (3, 1))))
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    found = verification.verify(str(saved(trace(build), tmp_path)), 1, ConvertOptions(num_replicas=1))
    assert found.recorded is None
    assert any("cannot be recorded, since a step takes its batch from a queue, or two from one iterator: a difference" in note
               for note in found.notes)  # fmt: skip
