"""A network of three layers that tells irises apart, trained on 8 cores with TPUEstimator.

It is the program of the tutorial "Migrating to the TPUEstimator API" with another import: tf.contrib.tpu is tpugraph.

    python examples/iris.py                    8 emulated cores
    python examples/iris.py --use_tpu=false    the plain graph on this machine
"""

from __future__ import annotations

import iris_data
import tensorflow as tensorflow2
import tensorflow.compat.v1 as tf

import tpugraph

tf.flags.DEFINE_string("tpu", default="local", help="The address of the TPU; local for emulated cores.")
tf.flags.DEFINE_string("model_dir", default=None, help="Where checkpoints and event files go.")
tf.flags.DEFINE_integer("batch_size", default=128, help="The global batch, not that of one core.")
tf.flags.DEFINE_integer("train_steps", default=1000, help="Training steps.")
tf.flags.DEFINE_integer("iterations", default=500, help="Steps per training loop.")
tf.flags.DEFINE_bool("use_tpu", default=True, help="Cores, or the plain graph on this machine.")
FLAGS = tf.flags.FLAGS


def metric_fn(labels, logits):
    """The metrics of an evaluation."""
    predicted_classes = tf.argmax(logits, 1)
    return {"accuracy": tf.metrics.accuracy(labels=labels, predictions=predicted_classes, name="acc_op")}


def my_model(features, labels, mode, params):
    """A network with hidden layers of ``params["hidden_units"]``."""
    net = tf.feature_column.input_layer(features, params["feature_columns"])
    for units in params["hidden_units"]:
        net = tpugraph.layers.dense(net, units=units, activation=tf.nn.relu)
    logits = tpugraph.layers.dense(net, params["n_classes"], activation=None)

    predicted_classes = tf.argmax(logits, 1)
    if mode == tpugraph.ModeKeys.PREDICT:
        predictions = {
            "class_ids": predicted_classes[:, tf.newaxis],
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }
        return tpugraph.TPUEstimatorSpec(mode, predictions=predictions)

    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tpugraph.ModeKeys.EVAL:
        return tpugraph.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))

    optimizer = tf.train.AdagradOptimizer(learning_rate=0.1)
    if FLAGS.use_tpu:
        optimizer = tpugraph.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tpugraph.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main(argv):
    """Train, evaluate, predict and export."""
    del argv
    (train_x, train_y), (test_x, test_y) = iris_data.load_data()
    feature_columns = [tensorflow2.feature_column.numeric_column(key=key) for key in train_x]

    run_config = tpugraph.RunConfig(
        model_dir=FLAGS.model_dir,
        cluster=tpugraph.TPUClusterResolver(FLAGS.tpu),
        session_config=tf.ConfigProto(allow_soft_placement=True),
        tpu_config=tpugraph.TPUConfig(FLAGS.iterations),
        tf_random_seed=1,
    )
    classifier = tpugraph.TPUEstimator(
        model_fn=my_model,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
        predict_batch_size=FLAGS.batch_size,
        config=run_config,
        params={"feature_columns": feature_columns, "hidden_units": [10, 10], "n_classes": 3},
    )

    classifier.train(
        input_fn=lambda params: iris_data.train_input_fn(train_x, train_y, params["batch_size"]),
        max_steps=FLAGS.train_steps,
    )
    eval_result = classifier.evaluate(
        input_fn=lambda params: iris_data.eval_input_fn(test_x, test_y, params["batch_size"])
    )
    print("\nTest set accuracy: {accuracy:0.3f}\n".format(**eval_result))

    predictions = classifier.predict(
        input_fn=lambda params: iris_data.predict_input_fn(iris_data.PREDICTION_INPUT_DATA, params["batch_size"])
    )
    for found, expected in zip(predictions, iris_data.PREDICTION_OUTPUT_DATA, strict=True):
        class_id = found["class_ids"][0]
        probability = 100 * found["probabilities"][class_id]
        print(f'Prediction is "{iris_data.SPECIES[class_id]}" ({probability:.1f}%), expected "{expected}"')

    examples = {key: tensorflow2.TensorSpec([None], tf.float32) for key in train_x}
    receive = tpugraph.export.build_raw_serving_input_receiver_fn(examples)
    print(f"exported to {classifier.export_saved_model(classifier.model_dir + '/export', receive)}")


if __name__ == "__main__":
    tf.app.run(main)
