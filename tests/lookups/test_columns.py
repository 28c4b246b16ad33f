"""Sparse columns and tables in pieces on a TPU: padded lists train what the plain graph trains, on both engines."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import assert_same_on_cores, batches, check, corpus, finish, tf1, trace, trains_on_cores
from tpugraph import TPUSession, cli, testing
from tpugraph.analysis.step import JoinedTables, PaddedLookups
from tpugraph.compiler import convert
from tpugraph.compiler.tpu_check import check as check_for_tpu
from tpugraph.ir import Graph, graphdef
from tpugraph.passes.join_tables import JoinTables
from tpugraph.passes.pad_lookups import PadLookups
from tpugraph.support.errors import ShapeError, UsageError

pytestmark = [pytest.mark.filterwarnings("ignore:`layer.add_variable`")]

ROWS = 96
WORDS = [b"red", b"green", b"blue", b""]
fc, fc1 = tf.feature_column, tf1.feature_column
SGD = tf1.train.GradientDescentOptimizer
SPARSE = frozenset(
    "SparseReshape SparseFillEmptyRows SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN Where SegmentSum "
    "SparseSegmentMeanGrad SparseSegmentMeanGradV2 DynamicPartition ParallelDynamicStitch".split()
)
"""What a TPU does not take."""


def examples(rows: int) -> tuple[dict[str, Any], Any]:
    """Lists of ids, weights and words, none to three in each row, a key, a number and a class."""
    random, written = np.random.default_rng(5), []
    for index in range(ROWS):
        example, count = tf.train.Example(), index % 4
        feature = example.features.feature
        feature["ids"].int64_list.value.extend(random.integers(0, 10, count).tolist())
        feature["weights"].float_list.value.extend(random.uniform(0.1, 2, count).tolist())
        feature["words"].bytes_list.value.extend(WORDS[i] for i in random.integers(0, 3, count))
        feature["key"].bytes_list.value.append(WORDS[random.integers(0, 4)])
        feature["x"].float_list.value.append(random.normal())
        feature["y"].float_list.value.append(random.integers(0, 2))
        written.append(example.SerializeToString())
    kinds: dict[str, Any] = {"ids": tf.int64, "weights": tf.float32, "words": tf.string}
    parsed = {name: tf.io.VarLenFeature(kind) for name, kind in kinds.items()}
    parsed["key"] = tf.io.FixedLenFeature([1], tf.string)
    parsed["x"], parsed["y"] = tf.io.FixedLenFeature([1], tf.float32), tf.io.FixedLenFeature([], tf.float32)
    dataset = tf1.data.Dataset.from_tensor_slices(np.array(written, object)).batch(rows, drop_remainder=True)
    dataset = dataset.map(lambda batch: tf.io.parse_example(batch, parsed)).repeat()
    features = tf1.data.make_initializable_iterator(dataset).get_next()
    return features, features.pop("y")


def dense(rows: int) -> tuple[dict[str, Any], Any]:
    """Words and a list of three, some of them missing, as dense tensors."""
    random = np.random.default_rng(2)
    words = np.array(WORDS, object)[random.integers(0, 4, (ROWS, 4))]
    word, listed, x, y = batches((words[:, 0], words[:, 1:], random.normal(size=(ROWS, 1)).astype(np.float32),
                                  random.integers(0, 2, ROWS).astype(np.float32)), rows)  # fmt: skip
    return {"word": word, "list": listed, "x": x}, y


def trained(source: Callable[[int], Any], optimizer: Any, *, deep: Callable[[], Any] = list, wide: Callable[[], Any] = list,
            pieces: int = 1, average: bool = False) -> Callable[[int], None]:  # fmt: skip
    """A model of columns: embeddings under a layer, and a linear one beside it; gradients may wait for an average's update."""

    def build(rows: int) -> None:
        features, targets = source(rows)
        with tf1.variable_scope("", partitioner=tf1.fixed_size_partitioner(pieces) if pieces > 1 else None):
            outputs: Any = 0.0
            if columns := deep():
                outputs += tf.reduce_sum(tf.tanh(fc1.input_layer(features, columns)), 1)
            if columns := wide():
                outputs += tf.squeeze(fc1.linear_model(features, columns), 1)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=outputs))
        moving = tf1.get_variable("average", [], initializer=tf1.zeros_initializer(), trainable=False)
        waits = [tf1.assign_add(moving, tf.reduce_mean(outputs))] if average else []
        with tf.control_dependencies(waits):  # as those of batch norm, in the collection UPDATE_OPS
            finish(loss, optimizer)

    return build


def hashed(name: str) -> Any:
    return fc.categorical_column_with_hash_bucket(name, 10)


def embedded(column: Any, combiner: str, size: int = 2) -> Any:
    start = tf1.initializers.random_normal(seed=3)
    return fc.embedding_column(column, size, combiner, initializer=start)


def numbered() -> Any:
    return fc.categorical_column_with_identity("ids", 10)


def weighted() -> Any:
    return fc.weighted_categorical_column(numbered(), "weights")


def shared() -> Any:
    start = tf1.initializers.random_normal(seed=3)
    return fc1.shared_embedding_columns([hashed("word"), hashed("list")], 2, initializer=start)


MODELS: dict[str, Callable[[int], None]] = {
    "mean of a list, Momentum": trained(dense, tf1.train.MomentumOptimizer(0.3, 0.9), deep=lambda: [
        embedded(hashed("list"), "mean")]),
    "one table for two columns, Adagrad": trained(dense, tf1.train.AdagradOptimizer(0.3), deep=shared),
    "root of any number, weighted mean, RMSProp": trained(examples, tf1.train.RMSPropOptimizer(0.05), deep=lambda: [
        embedded(hashed("words"), "sqrtn"), embedded(weighted(), "mean")]),
    "a list beside a number, behind an update, Adam": trained(examples, tf1.train.AdamOptimizer(0.05), average=True,
        deep=lambda: [fc.numeric_column("x"), embedded(hashed("words"), "mean")]),
    "crossed, hashed and weighted sums, Ftrl": trained(examples, tf1.train.FtrlOptimizer(0.5), wide=lambda: [
        hashed("words"), fc.crossed_column(["key", numbered()], 20), weighted(),
        fc.bucketized_column(fc.numeric_column("x"), [-0.5, 0.5])]),
    "wide and deep in pieces, Adagrad": trained(dense, tf1.train.AdagradOptimizer(0.3), pieces=3,
        deep=lambda: [embedded(hashed("list"), "mean", 4)], wide=lambda: [hashed("word")]),
}  # fmt: skip


def graph(name: str, rows: int = 4) -> Graph:
    return trace(lambda: MODELS[name](rows))


@pytest.mark.parametrize("name", MODELS)
def test_cores_train_columns_as_the_plain_graph_does_and_a_tpu_takes_them(name: str) -> None:
    assert_same_on_cores(MODELS[name], max_ids=3, rows=4)
    program = convert(graph(name), num_replicas=4, max_ids=3)
    device = {n.op for n in graphdef.from_graph_def(program.graph_def) if n.has_attr("_tpu_replicate")}
    assert not device & SPARSE
    assert check_for_tpu(graphdef.from_graph_def(program.graph_def)).compiles


# ------------------------------------------------------------------ tables in pieces


def looked_up(strategy: str, optimizer: Any) -> Callable[[int], None]:
    def build(rows: int) -> None:
        features, targets = dense(rows)
        start = tf.constant(np.sin(np.arange(22)).astype(np.float32).reshape(11, 2))

        def part(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
            return tf.slice(start, partition_info.var_offset, shape)

        table = tf1.get_variable("table", [11, 2], initializer=part, partitioner=tf1.fixed_size_partitioner(3))
        ids = tf.strings.to_hash_bucket_fast(features["word"] + features["list"][:, 0], 11)
        found = tf1.nn.embedding_lookup(table, ids, partition_strategy=strategy)
        finish(tf.reduce_mean(tf.square(tf.reduce_sum(found, 1) - targets)), optimizer)

    return build


@pytest.mark.parametrize(("strategy", "optimizer"), [("div", tf1.train.MomentumOptimizer(0.1, 0.9)), ("mod", SGD(0.3))])
def test_tables_in_pieces_are_looked_up_as_one(strategy: str, optimizer: Any) -> None:
    build = looked_up(strategy, optimizer)
    assert_same_on_cores(build)
    program = convert(trace(lambda: build(4)), num_replicas=4)
    assert list(program.report["lookups"]["joined"].values()) == [3]
    assert "joined      1 lookup of tables in pieces" in program.summary()
    assert check_for_tpu(graphdef.from_graph_def(program.graph_def)).compiles


def test_golden() -> None:
    made = check(PadLookups(), "mean", num_replicas=2)
    assert made.result(PaddedLookups).most == {"fill": 3}
    made = check(JoinTables(), "two_pieces", num_replicas=2)
    assert made.result(JoinedTables).steps == ("update", "update_1")


# ------------------------------------------------------------------ how many ids


def test_the_report_says_who_tells_how_many_ids_a_row_has() -> None:
    shaped = convert(graph("mean of a list, Momentum"), num_replicas=4)
    assert "padded      1 list of ids, to 3 a row, as shapes tell" in shaped.summary()
    flagged = convert(graph("root of any number, weighted mean, RMSProp"), num_replicas=4, max_ids=5)
    assert set(flagged.report["lookups"]["padded"].values()) == {5}
    assert "padded      3 lists of ids, to 5 a row by --max_ids=5: a row with more ends the run" in flagged.summary()


def test_lists_of_any_length_ask_for_the_flag() -> None:
    error = testing.assert_raises_block(lambda: convert(graph("root of any number, weighted mean, RMSProp"), num_replicas=4),
                                        max_length=700, kind=ShapeError,
                                        words=["makes lists of any length, and a TPU takes none", "--max_ids=N"])  # fmt: skip
    assert "SparseFillEmptyRows" in str(error.node)
    with pytest.raises(UsageError, match="max_ids is -1"):
        convert("nothing.pb", max_ids=-1)


@pytest.mark.parametrize("queues", [False, True])
def test_a_row_with_more_ids_ends_the_run_and_says_how_many_it_has(queues: bool) -> None:
    program = convert(graph("root of any number, weighted mean, RMSProp"), num_replicas=2, max_ids=2)
    with TPUSession(program, queues=queues) as session:
        session.initialize()
        testing.assert_raises_block(lambda: session.train(3), max_length=700,
                                    words=["a row has 3 ids for", "rows are padded to 2", "convert with --max_ids=3"])  # fmt: skip


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "model.pb", tmp_path / "out.pb"
    graphdef.save(graph("crossed, hashed and weighted sums, Ftrl"), model)
    assert cli.main(["convert", str(model), "-o", str(out), "--num_replicas=2", "--max_ids=2"]) == 0
    assert "by --max_ids=" in capsys.readouterr().out
    assert cli.main(["run", str(out), "--steps=3"]) == 2
    said = capsys.readouterr().err
    assert "and rows are padded to 2" in said
    assert "--max_ids=3, or more" in said
    assert cli.main(["run", str(model), "--steps=3", "--num_replicas=2", "--max_ids=3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 3


# ------------------------------------------------------------------ what is left alone


def test_a_list_that_is_no_lookup_stays_as_it_is() -> None:
    """Rows without entries are filled and nothing is looked up: no flag is asked for."""

    def build() -> None:
        features, targets = examples(4)
        filled, _ = tf.sparse.fill_empty_rows(features["weights"], 1.0)
        total = tf.sparse.reduce_sum(filled, 1)
        w = tf1.get_variable("w", [], initializer=tf1.ones_initializer())
        finish(tf.reduce_mean(tf.square(tf.reshape(total, [4]) * w - targets)), SGD(0.1))

    assert not convert(trace(build), num_replicas=2).report["lookups"]["padded"]


def test_a_gradient_that_is_not_only_summed_keeps_its_list() -> None:
    """A norm of the rows of distinct ids is another one than that of the rows of all entries."""

    def build() -> None:
        features, targets = dense(4)
        places = tf.where(tf.not_equal(features["list"], ""))
        ids = tf.gather_nd(tf.strings.to_hash_bucket_fast(features["list"], 10), places)
        listed = tf.SparseTensor(places, ids, tf.shape(features["list"], out_type=tf.int64))
        table = tf1.get_variable("table", [10, 2], initializer=tf1.ones_initializer())
        found = tf1.nn.safe_embedding_lookup_sparse(table, listed, combiner="mean")
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(found, 1) - targets))
        gradients, variables = zip(*SGD(0.1).compute_gradients(loss), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.1)
        tf1.summary.scalar("loss", loss)
        SGD(0.1).apply_gradients(zip(clipped, variables, strict=True), tf1.train.get_or_create_global_step(), "train")

    program = convert(trace(build), num_replicas=2)
    assert not program.report["lookups"]["padded"]
    assert [n["text"] for n in program.report["why"] if "not padded" in n["text"]] == [
        "not padded: 'global_norm/L2Loss' L2Loss does not process entries independently"
    ]


# ------------------------------------------------------------------ recorded truth


@pytest.mark.parametrize("name", ["dnn_classifier", "linear_classifier"])
def test_recorded_classifiers_can_run_on_a_tpu(name: str) -> None:
    assert check_for_tpu(corpus(name).graph()).compiles


# ------------------------------------------------------------------ norms


class Clipped(tf1.train.GradientDescentOptimizer):
    """Gradient descent by gradients whose norm is bounded, that of all together or of each."""

    def __init__(self, together: bool) -> None:
        super().__init__(0.5)
        self.together = together

    def apply_gradients(self, grads_and_vars: Any, **options: Any) -> Any:
        gradients, variables = zip(*grads_and_vars, strict=True)
        if self.together:
            clipped = tf.clip_by_global_norm(gradients, 0.05)[0]
        else:
            clipped = [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]
        return super().apply_gradients(list(zip(clipped, variables, strict=True)), **options)


@pytest.mark.parametrize("together", [True, False])
def test_the_norm_of_rows_of_ids_is_that_of_their_sums_over_all_cores(together: bool) -> None:
    """Two cores may have rows of one id: the squares of both are not the square of their sum."""
    assert_same_on_cores(trained(dense, Clipped(together), deep=shared), rows=8)


# --------------------------------------------------------------------------- lists that the model makes


@pytest.mark.parametrize("lookup", [tf.nn.embedding_lookup_sparse, tf.nn.safe_embedding_lookup_sparse])
@trains_on_cores(cores=2, steps=3)
def test_lists_whose_places_python_knows(rows: int, lookup: Any) -> None:
    """All ids of each row as a list."""
    numbers, targets = batches((np.arange(384).reshape(96, 4) % 7, np.arange(96, dtype=np.float32) / 96), rows)
    places = tf.where(tf.ones_like(numbers) > 0)
    ids = tf.SparseTensor(places, tf.reshape(numbers, [-1]), [rows, 4])
    found = lookup(tf1.get_variable("table", initializer=np.ones((7, 3), np.float32)), ids, None, combiner="sum")
    return finish(tf.reduce_mean(tf.square(tf.reduce_sum(found, 1) - targets)), SGD(0.01))
