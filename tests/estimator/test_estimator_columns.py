"""Evaluation and prediction on the cores of models with text, sparse and categorical columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from test_estimator_cores import COUNT, X, Y, on, tf1

from closeness import assert_close
from estimators import example
from tpugraph import EstimatorSpec, ModeKeys, TPUSession, convert
from tpugraph.ir import graphdef

WORDS, KEYS = [b"red", b"green", b"blue", b""], [b"red", b"no", b"blue"]
fc, fc1 = tf.feature_column, tf1.feature_column


def examples(params: Any) -> Any:
    """Two texts, one of them missing at times, a list of numbers of any length, and a number."""
    serialized = [example(word=[WORDS[index % 4]], key=[KEYS[index % 3]], numbers=range(index % 4), x=X[index, :1],
                          y=Y[index : index + 1]) for index in range(COUNT)]  # fmt: skip
    kinds = {name: tf.io.FixedLenFeature([], kind) for name, kind in
             (("word", tf.string), ("key", tf.string), ("x", tf.float32), ("y", tf.float32))}  # fmt: skip

    def parse(batch: Any) -> Any:
        features = tf.io.parse_example(batch, {**kinds, "numbers": tf.io.VarLenFeature(tf.int64)})
        return features, features.pop("y")

    return tf.data.Dataset.from_tensor_slices(serialized).batch(params["batch_size"]).map(parse)


def columns() -> tuple[dict[str, Any], dict[str, Any]]:
    word = fc.categorical_column_with_hash_bucket("word", 10)
    key = fc.categorical_column_with_vocabulary_list("key", ["red", "blue"], num_oov_buckets=1)
    numbers = fc.categorical_column_with_identity("numbers", 10)
    buckets = fc.bucketized_column(fc.numeric_column("x"), [-0.5, 0.5])
    deep = {"hashed": fc.embedding_column(word, 3), "vocabulary": fc.embedding_column(key, 2, "sqrtn"),
            "list": fc.indicator_column(numbers), "mean list": fc.embedding_column(numbers, 3),
            "sqrtn list": fc.embedding_column(numbers, 2, "sqrtn"), "sum list": fc.embedding_column(numbers, 1, "sum")}  # fmt: skip
    return deep, {"linear": word, "linear table": key, "linear list": numbers,
                  "crossed": fc.crossed_column(["word", "key"], 20), "bucket": buckets}  # fmt: skip


def model_of(names: list[str]) -> Any:
    def model(features: Any, labels: Any, mode: str) -> Any:
        deep, wide = columns()
        net: Any = tf.zeros_like(features["x"])
        if chosen := [deep[name] for name in names if name in deep]:
            hidden = fc1.input_layer(features, chosen)
            hidden = tf.nn.relu(hidden @ tf1.get_variable("hidden", [hidden.shape[1], 4]))
            net += tf.squeeze(hidden @ tf1.get_variable("out", [4, 1]), 1)
        if chosen := [wide[name] for name in names if name in wide]:
            net += tf.squeeze(fc1.linear_model(features, chosen), 1)
        if mode == ModeKeys.PREDICT:
            said = {"word": features["word"], "loud": tf.strings.upper(features["key"])}
            return EstimatorSpec(mode, predictions={"y": net, "class": tf.as_string(tf.cast(net > 0, tf.int64)),
                                                    **said})  # fmt: skip
        red = tf.cast(tf.equal(features["word"], "red"), tf.float32)
        metrics = {"mean": tf1.metrics.mean(net), "red": tf1.metrics.mean(red)}
        moved = [v.assign(tf.random.normal(v.shape, seed=3)) for v in tf1.trainable_variables()]
        train = tf.group(tf1.assign_add(tf1.train.get_or_create_global_step(), 1), *moved)
        return EstimatorSpec(mode, loss=tf.reduce_mean(tf.square(net - labels)), train_op=train,
                             eval_metric_ops=metrics)  # fmt: skip

    return model


@pytest.mark.filterwarnings("ignore:`layer.add_variable`")
@pytest.mark.parametrize("names", [["hashed", "vocabulary", "list", "linear", "linear table"], ["crossed", "bucket", "sum list"],
                                   ["mean list", "linear list"], ["sqrtn list", "hashed"]])  # fmt: skip
def test_columns_on_cores_give_what_the_plain_graph_gives(tmp_path: Path, names: list[str], said: list[str]) -> None:
    plain = on(tmp_path, model_of(names), use_tpu=False)
    plain.train(examples, max_steps=1)
    wanted, rows = plain.evaluate(examples), list(plain.predict(examples))
    made = on(tmp_path, model_of(names))
    found, predicted = made.evaluate(examples), list(made.predict(examples))
    assert not [line for line in said if "without cores" in line]
    assert f"evaluated {COUNT} examples in 5 batches on 4 cores" in "".join(said)
    assert abs(wanted["mean"]) > 0.01
    assert found == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose([row["y"] for row in predicted], [row["y"] for row in rows], rtol=1e-5, atol=1e-6)
    for name in ("class", "word", "loud"):
        assert [row[name] for row in predicted] == [row[name] for row in rows]
    assert [row["word"] for row in predicted] == [WORDS[index % 4] for index in range(COUNT)]


def predicted(graph: tf.Graph, *names: str, queues: bool) -> tuple[Any, list[dict[str, Any]]]:
    """A graph converted for three cores with loops of two steps, and what it predicts."""
    plain = graphdef.from_graph_def(graph.as_graph_def(add_shapes=True))
    program = convert(plain, mode="predict", predictions={name: f"{name}:0" for name in names}, num_replicas=3,
                      iterations_per_loop=2)  # fmt: skip
    with TPUSession(program, queues=queues) as session:
        session.initialize()
        return program, list(session.predict())


@pytest.mark.parametrize("queues", [False, True])
def test_lists_of_any_length_are_looked_up_on_the_host(queues: bool) -> None:
    """Empty ones too. What is made of sparse rows follows them, as long as no rule of their ops says that they stay apart.

    Text goes from host to host in step order, through a queue or directly where one loop does everything.
    """
    table, numbers = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(19, dtype=np.float32)
    lists = [list(range(index % 4)) for index in range(19)]
    with tf.Graph().as_default() as graph:
        ragged = tf.ragged.constant(lists, tf.int64)
        dataset = tf1.data.Dataset.from_tensor_slices((ragged, numbers)).batch(2).map(lambda a, b: (a.to_sparse(), b))
        found, number = tf1.data.make_initializable_iterator(dataset).get_next()
        rows = tf1.get_variable("rows", initializer=table, use_resource=True)
        mean = tf.nn.safe_embedding_lookup_sparse(rows, found, combiner="mean")
        tf.add(mean @ tf.transpose(rows), number[:, tf.newaxis], name="score")
        tf.strings.as_string(number, 0, name="text")
    program, rows = predicted(graph, "score", "text", queues=queues)
    on_device = [n.op for n in graphdef.from_graph_def(program.graph_def) if n.has_attr("_tpu_replicate")]
    assert "ResourceGather" not in on_device
    assert any("'matmul' runs on the host" in note for note in program.report["notes"])
    assert [float(row["text"]) for row in rows] == numbers.tolist()
    wanted = [table[one].mean(0) if one else np.zeros(3) for one in lists]
    assert_close([row["score"] for row in rows], np.array(wanted) @ table.T + numbers[:, np.newaxis], 1e-5)
