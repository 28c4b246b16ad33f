"""A convolutional network that reads digits, trained on 8 cores with TPUEstimator.

It is the program of the guide "TPUEstimator API on Cloud TPU" with another import: tf.contrib.tpu is tpugraph. Evaluation,
prediction and an exported model are added, and the data are drawn by mnist_data.py.

    python examples/mnist.py                      8 emulated cores, about a minute
    python examples/mnist.py --use_tpu=false      the plain graph on this machine
    python examples/mnist.py --train_steps=1000   better digits
"""

from __future__ import annotations

import os

import mnist_data
import tensorflow.compat.v1 as tf

import tpugraph

tf.flags.DEFINE_string("tpu", default="local", help="The address of the TPU; local for emulated cores.")
tf.flags.DEFINE_string("model_dir", default="/tmp/tpugraph_mnist", help="Where data, checkpoints and event files go.")
tf.flags.DEFINE_integer("batch_size", default=128, help="The global batch, not that of one core.")
tf.flags.DEFINE_integer("train_steps", default=100, help="Training steps.")
tf.flags.DEFINE_integer("iterations", default=20, help="Steps per training loop.")
tf.flags.DEFINE_integer("train_examples", default=6000, help="Examples to train on.")
tf.flags.DEFINE_integer("test_examples", default=1000, help="Examples to test with.")
tf.flags.DEFINE_float("learning_rate", default=0.1, help="Learning rate.")
tf.flags.DEFINE_bool("use_tpu", default=True, help="Cores, or the plain graph on this machine.")
FLAGS = tf.flags.FLAGS


def metric_fn(labels, logits):
    """The metrics of an evaluation."""
    return {"accuracy": tf.metrics.accuracy(labels=labels, predictions=tf.argmax(logits, 1))}


def model_fn(features, labels, mode, params):
    """A simple CNN."""
    del params  # unused

    input_layer = tf.reshape(features, [-1, 28, 28, 1])
    conv1 = tpugraph.layers.conv2d(
        inputs=input_layer, filters=32, kernel_size=[5, 5], padding="same", activation=tf.nn.relu
    )
    pool1 = tpugraph.layers.max_pooling2d(inputs=conv1, pool_size=[2, 2], strides=2)
    conv2 = tpugraph.layers.conv2d(inputs=pool1, filters=64, kernel_size=[5, 5], padding="same", activation=tf.nn.relu)
    pool2 = tpugraph.layers.max_pooling2d(inputs=conv2, pool_size=[2, 2], strides=2)
    pool2_flat = tf.reshape(pool2, [-1, 7 * 7 * 64])
    dense = tpugraph.layers.dense(inputs=pool2_flat, units=128, activation=tf.nn.relu)
    dropout = tpugraph.layers.dropout(inputs=dense, rate=0.4, training=mode == tpugraph.ModeKeys.TRAIN)
    logits = tpugraph.layers.dense(inputs=dropout, units=10)

    if mode == tpugraph.ModeKeys.PREDICT:
        predictions = {"digit": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
        return tpugraph.TPUEstimatorSpec(mode=mode, predictions=predictions)

    onehot_labels = tf.one_hot(indices=tf.cast(labels, tf.int32), depth=10)
    loss = tf.losses.softmax_cross_entropy(onehot_labels=onehot_labels, logits=logits)
    if mode == tpugraph.ModeKeys.EVAL:
        return tpugraph.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))

    learning_rate = tf.train.exponential_decay(FLAGS.learning_rate, tf.train.get_global_step(), 100000, 0.96)
    optimizer = tpugraph.CrossShardOptimizer(tf.train.GradientDescentOptimizer(learning_rate=learning_rate))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tpugraph.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def make_input_fn(filename, *, training):
    """Returns an `input_fn`: for ever when training, else every example once."""

    def input_fn(params):
        """An input_fn to parse 28x28 images from filename using tf.data."""
        batch_size = params["batch_size"]

        def parser(serialized_example):
            """Parses a single tf.Example into image and label tensors."""
            features = tf.parse_single_example(
                serialized_example,
                features={
                    "image_raw": tf.FixedLenFeature([], tf.string),
                    "label": tf.FixedLenFeature([], tf.int64),
                },
            )
            image = tf.decode_raw(features["image_raw"], tf.uint8)
            image.set_shape([28 * 28])
            # Normalize the values of the image from the range [0, 255] to [-0.5, 0.5]
            image = tf.cast(image, tf.float32) * (1.0 / 255) - 0.5
            label = tf.cast(features["label"], tf.int32)
            return image, label

        dataset = tf.data.TFRecordDataset(filename).map(parser).cache()
        if training:
            dataset = dataset.shuffle(1000, seed=1).repeat()
        return dataset.batch(batch_size, drop_remainder=training)

    return input_fn


def serving_input_fn():
    """What a served model is fed."""
    images = tf.placeholder(tf.float32, [None, 28 * 28], name="images")
    return tpugraph.export.TensorServingInputReceiver(images, {"images": images})


def main(argv):
    """Train, evaluate, predict and export."""
    del argv
    data = os.path.join(FLAGS.model_dir, "data")
    train_file = mnist_data.write(f"{data}/train-{FLAGS.train_examples}.tfrecords", FLAGS.train_examples, seed=1)
    test_file = mnist_data.write(f"{data}/test-{FLAGS.test_examples}.tfrecords", FLAGS.test_examples, seed=2)

    run_config = tpugraph.RunConfig(
        model_dir=FLAGS.model_dir,
        cluster=tpugraph.TPUClusterResolver(FLAGS.tpu),
        session_config=tf.ConfigProto(allow_soft_placement=True),
        tpu_config=tpugraph.TPUConfig(FLAGS.iterations),
        tf_random_seed=1,
        log_step_count_steps=20,
    )
    estimator = tpugraph.TPUEstimator(
        model_fn=model_fn,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
        predict_batch_size=FLAGS.batch_size,
        config=run_config,
    )
    estimator.train(input_fn=make_input_fn(train_file, training=True), max_steps=FLAGS.train_steps)
    found = estimator.evaluate(input_fn=make_input_fn(test_file, training=False))
    print("\nTest set accuracy: {accuracy:0.3f}\n".format(**found))

    predictions = estimator.predict(input_fn=make_input_fn(test_file, training=False))
    for _, prediction in zip(range(5), predictions, strict=False):
        digit = prediction["digit"]
        print(f"Prediction is {digit} ({100 * prediction['probabilities'][digit]:.1f}%)")

    print(f"exported to {estimator.export_saved_model(os.path.join(FLAGS.model_dir, 'export'), serving_input_fn)}")


if __name__ == "__main__":
    tf.app.run(main)
