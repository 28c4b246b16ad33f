"""MNIST on TPU, in the manner of 2018: TFRecord files, a convolutional net of tf.layers classes, a host call of summaries."""

from __future__ import absolute_import, division, print_function

import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib import summary as contrib_summary

tf.flags.DEFINE_string("tpu", default=None, help="Name of the TPU.")
tf.flags.DEFINE_string("data_dir", "", "Where train.tfrecords is, or goes.")
tf.flags.DEFINE_string("model_dir", None, "Where checkpoints go.")
tf.flags.DEFINE_integer("batch_size", 32, "Rows of a batch over all cores.")
tf.flags.DEFINE_integer("train_steps", 8, "Steps to train.")
tf.flags.DEFINE_integer("iterations", 4, "Steps per loop.")
tf.flags.DEFINE_bool("use_tpu", True, "Whether there are TPU cores.")
FLAGS = tf.flags.FLAGS


def write_records(path):
    rng = np.random.RandomState(3)
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(64):
            image = rng.randint(0, 50, size=(8, 8)).astype(np.uint8)
            image[i % 8] += 150
            feature = {"image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                       "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 8]))}  # fmt: skip
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def parse(serialized):
    features = tf.parse_single_example(serialized, features={"image_raw": tf.FixedLenFeature([], tf.string),
                                                             "label": tf.FixedLenFeature([], tf.int64)})  # fmt: skip
    image = tf.decode_raw(features["image_raw"], tf.uint8)
    image.set_shape([64])
    return tf.cast(image, tf.float32) * (1.0 / 255) - 0.5, tf.cast(features["label"], tf.int32)


def train_input_fn(params):
    path = os.path.join(params["data_dir"], "train.tfrecords")
    files = tf.data.Dataset.list_files(path)
    dataset = files.apply(tf.contrib.data.parallel_interleave(tf.data.TFRecordDataset, cycle_length=1))
    dataset = dataset.repeat().map(parse, num_parallel_calls=2)
    return dataset.apply(tf.contrib.data.map_and_batch(lambda x, y: (x, y), params["batch_size"], drop_remainder=True))


def eval_input_fn(params):
    dataset = tf.data.TFRecordDataset(os.path.join(params["data_dir"], "train.tfrecords")).map(parse)
    return dataset.batch(params["batch_size"], drop_remainder=True)


class Model(object):
    def __init__(self):
        self.conv = tf.layers.Conv2D(4, 3, padding="same", activation=tf.nn.relu, kernel_initializer=seeded(1))
        self.norm = tf.layers.BatchNormalization(axis=-1)
        self.fc = tf.layers.Dense(16, activation="relu", kernel_initializer=seeded(2))
        self.out = tf.layers.Dense(8, kernel_initializer=seeded(3))

    def __call__(self, inputs, training):
        y = tf.reshape(inputs, [-1, 8, 8, 1])
        y = tf.layers.max_pooling2d(self.conv(y), (2, 2), (2, 2), padding="same")
        y = tf.layers.flatten(y)
        y = self.fc(y)
        return self.out(tf.layers.dropout(y, rate=0.0, training=training))


def seeded(seed):
    return tf.variance_scaling_initializer(seed=seed)


def metric_fn(labels, logits):
    return {"accuracy": tf.metrics.accuracy(labels=labels, predictions=tf.argmax(logits, axis=1))}


def host_call_fn(global_step, loss, rate):
    step = global_step[0]
    with contrib_summary.create_file_writer(FLAGS.model_dir, max_queue=4).as_default():
        with contrib_summary.always_record_summaries():
            contrib_summary.scalar("host/loss", tf.reduce_mean(loss), step=step)
            contrib_summary.scalar("host/rate", rate[0], step=step)
            return contrib_summary.all_summary_ops()


def model_fn(features, labels, mode, params):
    model = Model()
    logits = model(features, training=mode == tf.estimator.ModeKeys.TRAIN)
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    rate = tf.train.exponential_decay(0.05, tf.train.get_or_create_global_step(), 10, decay_rate=0.96)
    optimizer = tf.train.GradientDescentOptimizer(learning_rate=rate)
    if params["use_tpu"]:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    step = tf.train.get_global_step()
    host_call = (host_call_fn, [tf.reshape(step, [1]), tf.reshape(loss, [1]), tf.reshape(rate, [1])])
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=step)
    return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op, host_call=host_call)


def main(argv):
    del argv
    tf.logging.set_verbosity(tf.logging.INFO)
    if not tf.gfile.Exists(FLAGS.data_dir):
        tf.gfile.MakeDirs(FLAGS.data_dir)
        write_records(os.path.join(FLAGS.data_dir, "train.tfrecords"))
    resolver = tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu, zone=None, project=None)
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn=model_fn,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
        params={"data_dir": FLAGS.data_dir},
        config=tf.contrib.tpu.RunConfig(
            cluster=resolver,
            model_dir=FLAGS.model_dir,
            save_summary_steps=4,
            tf_random_seed=5,
            tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=FLAGS.iterations, num_shards=8),
        ),
    )
    estimator.train(input_fn=train_input_fn, max_steps=FLAGS.train_steps)
    found = estimator.evaluate(input_fn=eval_input_fn, steps=2)
    print("loss %.4f accuracy %.4f" % (found["loss"], found["accuracy"]))
    names = sorted(estimator.get_variable_names())
    print(" ".join(names))


if __name__ == "__main__":
    tf.app.run()
