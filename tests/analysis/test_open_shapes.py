"""Shapes that a graph leaves open: --set_shape, and iterators whose dataset a function makes."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tpugraph
from closeness import assert_close
from tpugraph import testing
from tpugraph.analysis import batched_input
from tpugraph.compiler import ConvertOptions
from tpugraph.support.errors import ConversionError, ShapeError, TpuGraphError
from tpugraph.testing.verification import verify

tf1 = tf.compat.v1
ROWS = np.random.RandomState(0).randn(64, 2).astype(np.float32)


def _losses(model: Path, cores: int, **options: object) -> list[float]:
    with tpugraph.TPUSession(tpugraph.convert(str(model), num_replicas=cores, **options)) as session:
        return session.train(3)


def _save(folder: Path, *, one_shot: bool, rows: int = 16) -> Path:
    with tf.Graph().as_default():
        dataset = tf1.data.Dataset.from_tensor_slices(ROWS).repeat()
        dataset = (
            dataset.batch(rows, drop_remainder=True)
            if one_shot
            else dataset.batch(tf.constant(8, tf.int64) + (rows - 8))
        )
        make = tf1.data.make_one_shot_iterator if one_shot else tf1.data.make_initializable_iterator
        w = tf1.get_variable("w", initializer=np.float32([[1], [2]]))
        rows = tf.identity(make(dataset).get_next(), name="again")
        loss = tf.reduce_mean(tf.square(rows @ w - 1))
        tf1.summary.scalar("loss", loss)
        tf1.train.GradientDescentOptimizer(0.1).minimize(loss, tf1.train.get_or_create_global_step())
        tf1.train.export_meta_graph(str(folder / "m.meta"))
    return folder / "m.meta"


def test_a_shape_that_is_set_is_split(tmp_path: Path) -> None:
    model = _save(tmp_path, one_shot=False)
    set_shape = ("IteratorGetNext:16,2",)
    assert_close(_losses(model, 4, set_shape=set_shape), _losses(model, 1, set_shape=set_shape), 1e-6)


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("node", ["IteratorGetNext", "again"])
def test_batches_of_another_shape_than_was_set_end_the_run(tmp_path: Path, node: str, queues: bool) -> None:
    model = _save(tmp_path, one_shot=False)
    program = tpugraph.convert(str(model), num_replicas=4, set_shape=(f"{node}:32,2",))
    with tpugraph.TPUSession(program, queues=queues) as session, pytest.raises(TpuGraphError) as caught:
        session.train(3)
    assert caught.value.fault == f"--set_shape says that '{node}' has the shape [32,2], and a batch has [16,2] there"
    assert (caught.value.node, caught.value.origin) == (node, "m.meta")
    assert f"--set_shape={node}:16,2" in str(caught.value.fix)


def test_a_refusal_names_the_tensor_to_tell_the_shape_of(tmp_path: Path) -> None:
    """The advice names the padded table alone; the list of words has another length in each batch."""
    texts = np.array([b"red green", b"deep blue sea", b"", b"red"] * 16)

    def lengths(dataset: tf.data.Dataset) -> tf.Tensor:
        words = tf.sparse.to_dense(tf1.string_split(tf1.data.make_initializable_iterator(dataset).get_next()), "")
        padded = tf.pad(words[:, :4], [[0, 0], [0, 4 - tf.minimum(tf.shape(words)[1], 4)]], name="padded")
        return tf.cast(tf.strings.length(tf.ensure_shape(padded, [None, 4])), tf.float32)

    with tf.Graph().as_default():
        dataset = tf1.data.Dataset.from_tensor_slices(texts).repeat().batch(16, drop_remainder=True)
        loss = tf.reduce_mean(tf.square(lengths(dataset) @ tf1.get_variable("w", initializer=np.ones((4, 1), "f")) - 1))
        tf1.train.GradientDescentOptimizer(0.01).minimize(loss, tf1.train.get_or_create_global_step(), name="train")
        tf1.train.export_meta_graph(str(tmp_path / "m.meta"))
        options = {"loss": loss.name, "train_op": "train"}
    with pytest.raises(TpuGraphError, match=r"--set_shape=(EnsureShape|padded):SIZE,4") as refusal:
        _losses(tmp_path / "m.meta", 4, **options)
    (told,) = re.findall(r"--set_shape=([^ ]+):SIZE,4", str(refusal.value))
    assert str(refusal.value).count("--set_shape=") == 1
    set_shape = (f"{told}:16,4",)
    assert_close(*(_losses(tmp_path / "m.meta", cores, set_shape=set_shape, **options) for cores in (4, 1)), 1e-6)


def test_the_open_batch_of_a_one_shot_iterator_is_closed(tmp_path: Path) -> None:
    """Estimator saves the iterator, too, by its handle as a text."""
    with tf.Graph().as_default():
        data = tf1.data.Dataset.from_tensor_slices(ROWS).repeat().batch(16)
        iterator = tf1.data.make_one_shot_iterator(data)
        iterator.string_handle()
        w = tf1.get_variable("w", initializer=np.float32([[1], [2]]))
        loss = tf.reduce_mean(tf.square(iterator.get_next() @ w - 1))
        tf1.summary.scalar("loss", loss)
        tf1.train.GradientDescentOptimizer(0.1).minimize(loss, tf1.train.get_or_create_global_step())
        tf1.train.export_meta_graph(str(tmp_path / "m.meta"))
    assert verify(str(tmp_path / "m.meta"), 3, ConvertOptions(num_replicas=4)).ok


BATCHED = """
    rows = Const() {dtype: int64, value: int64[]8}
    data = Test()
    batched = BatchDatasetV2(data, rows, rows) {output_types: (float32), output_shapes: ([?,3])}
    on = PrefetchDataset(batched, rows) {output_types: (float32), output_shapes: ([?,3])}
    iterator = IteratorV2() {output_types: (float32), output_shapes: ([?,3]), shared_name: "", container: ""}
    maker = MakeIterator(on, iterator)
    take = IteratorGetNext(iterator) {output_types: (float32), output_shapes: ([?,3])}
    """


def test_the_dataset_behind_a_batch_and_its_rows() -> None:
    graph = testing.parse(BATCHED)
    assert batched_input.dataset_of(graph["take"]) == (graph["iterator"], graph["on"])
    assert [node.name for node in batched_input.stages(graph["on"])] == ["on", "batched"]
    assert batched_input.rows_of(graph["take"], graph["batched"]) == 8
    with pytest.raises(ShapeError, match="the number of rows of a batch is not known"):
        batched_input.rows_of(graph["take"], None)
    graph.remove(graph["maker"])
    with pytest.raises(ConversionError, match="'iterator' is an iterator of 0 datasets of the graph, not of one"):
        batched_input.dataset_of(graph["take"])
