"""Iris with TPUEstimator, in the manner of 2018: feature columns, tf.layers, an Adagrad optimizer, flags."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import cluster_resolver as contrib_cluster_resolver  # a program imports more than it uses
from tensorflow.contrib import quantize as contrib_quantize

flags = tf.flags
flags.DEFINE_string("model_dir", None, "Where checkpoints go.")
flags.DEFINE_bool("use_tpu", True, "Whether there are TPU cores.")
flags.DEFINE_integer("num_shards", 8, "Number of cores.")
flags.DEFINE_integer("iterations", 5, "Steps per loop.")
flags.DEFINE_integer("train_steps", 20, "Steps to train.")
flags.DEFINE_integer("batch_size", 32, "Rows of a batch over all cores.")
FLAGS = flags.FLAGS

NAMES = ["SepalLength", "SepalWidth", "PetalLength", "PetalWidth"]


def flowers():
    rng = np.random.RandomState(1)
    labels = np.arange(96) % 3
    values = rng.normal(size=(96, 4)) + labels[:, None]
    return {name: values[:, i].astype(np.float32) for i, name in enumerate(NAMES)}, labels.astype(np.int32)


def train_input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(flowers())
    dataset = dataset.shuffle(96, seed=3, reshuffle_each_iteration=False).repeat()
    return dataset.apply(tf.contrib.data.batch_and_drop_remainder(params["batch_size"]))


def eval_input_fn(params):
    return tf.data.Dataset.from_tensor_slices(flowers()).batch(params["batch_size"], drop_remainder=True)


def predict_input_fn(params):
    features, _ = flowers()
    return tf.data.Dataset.from_tensor_slices({k: v[:6] for k, v in features.items()}).batch(params["batch_size"])


def metric_fn(labels, logits):
    return {"accuracy": tf.metrics.accuracy(labels=labels, predictions=tf.argmax(logits, axis=1))}


def my_model(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["feature_columns"])
    for units in params["hidden_units"]:
        net = tf.layers.dense(net, units=units, activation=tf.nn.relu,
                              kernel_initializer=tf.glorot_uniform_initializer(seed=units))  # fmt: skip
    logits = tf.layers.dense(net, params["n_classes"], activation=None, kernel_initializer=tf.zeros_initializer())
    assert logits.shape[-1].value == 3
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"class_ids": tf.argmax(logits, 1)[:, tf.newaxis], "probabilities": tf.nn.softmax(logits)}
        return tf.contrib.tpu.TPUEstimatorSpec(mode, predictions=predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    optimizer = tf.train.AdagradOptimizer(learning_rate=0.1)
    if FLAGS.use_tpu:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def main(argv):
    del argv
    tf.logging.set_verbosity(tf.logging.INFO)
    columns = [tf.feature_column.numeric_column(key=name) for name in NAMES]
    tpu_cluster_resolver = contrib_cluster_resolver.TPUClusterResolver(None) if FLAGS.use_tpu else None
    run_config = tf.contrib.tpu.RunConfig(
        cluster=tpu_cluster_resolver,
        model_dir=FLAGS.model_dir,
        tf_random_seed=1,
        session_config=tf.ConfigProto(allow_soft_placement=True, log_device_placement=False),
        tpu_config=tf.contrib.tpu.TPUConfig(FLAGS.iterations, FLAGS.num_shards),
    )
    classifier = tf.contrib.tpu.TPUEstimator(
        model_fn=my_model,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
        predict_batch_size=FLAGS.batch_size,
        config=run_config,
        params={"feature_columns": columns, "hidden_units": [10, 10], "n_classes": 3},
    )
    classifier.train(input_fn=train_input_fn, max_steps=FLAGS.train_steps)
    result = classifier.evaluate(input_fn=eval_input_fn, steps=3)
    print("loss %.5f accuracy %.5f" % (result["loss"], result["accuracy"]))
    for found in classifier.predict(input_fn=predict_input_fn):
        print("class %d (%.4f)" % (found["class_ids"][0], found["probabilities"].max()))
    if result["accuracy"] < 0:
        contrib_quantize.create_training_graph()


if __name__ == "__main__":
    tf.app.run()
