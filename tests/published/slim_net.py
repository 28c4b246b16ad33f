"""A net of tf.contrib.slim and tf.contrib.layers, HParams, and AdamW, as vision models on TPUs had them."""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib import training as contrib_training
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer
from tensorflow.python.framework import ops
from tensorflow.python.ops import math_ops

slim = tf.contrib.slim
FLAGS = tf.flags.FLAGS
tf.flags.DEFINE_string("model_dir", None, "Where checkpoints go.")
tf.flags.DEFINE_string("hparams", "rate=0.02,depths=[4,6]", "Changes of the hyperparameters.")
tf.flags.DEFINE_bool("use_tpu", True, "Whether there are TPU cores.")


def arg_scope(decay):
    return slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(decay),
                          weights_initializer=slim.variance_scaling_initializer(seed=7),
                          normalizer_fn=contrib_layers.layer_norm, activation_fn=tf.nn.relu)  # fmt: skip


def net_fn(images, hparams):
    with arg_scope(hparams.decay):
        net = images
        for depth in hparams.depths:
            net = slim.conv2d(net, depth, [3, 3], stride=2)
        net = slim.flatten(math_ops.reduce_mean(net, [1, 2], keepdims=True))
        return slim.fully_connected(net, 4, activation_fn=None, normalizer_fn=None, scope="logits")


def model_fn(features, labels, mode, params):
    logits = net_fn(features["image"], params)
    assert isinstance(logits, ops.Tensor)
    tf.losses.softmax_cross_entropy(tf.one_hot(labels, 4), logits, label_smoothing=0.1)
    loss = tf.losses.get_total_loss()
    metrics = None
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = (lambda labels, logits: {"top_1": tf.metrics.mean(tf.nn.in_top_k(logits, labels, 1))},
                   [labels, logits])  # fmt: skip
        return tpu_estimator.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=metrics)
    optimizer = tf.contrib.opt.AdamWOptimizer(weight_decay=1e-4, learning_rate=params.rate)
    if FLAGS.use_tpu:
        optimizer = tpu_optimizer.CrossShardOptimizer(optimizer)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    train_op = optimizer.apply_gradients(zip(gradients, variables), tf.train.get_or_create_global_step())
    return tpu_estimator.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def input_fn(params):
    rng = np.random.RandomState(4)
    labels = np.arange(32) % 4
    images = rng.normal(size=(32, 8, 8, 3)).astype(np.float32)
    images[np.arange(32), :, :, labels % 3] += labels[:, None, None]
    dataset = tf.data.Dataset.from_tensor_slices(({"image": images}, labels.astype(np.int32)))
    dataset = dataset.apply(tf.contrib.data.shuffle_and_repeat(32, seed=1)) if params.shuffled else dataset
    return dataset.batch(params.batch_size, drop_remainder=True).prefetch(tf.contrib.data.AUTOTUNE)


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    hparams = contrib_training.HParams(rate=0.1, decay=1e-4, depths=[2], shuffled=False)
    hparams.parse(FLAGS.hparams)
    config = tpu_config.RunConfig(model_dir=FLAGS.model_dir, tf_random_seed=3,
                                  tpu_config=tpu_config.TPUConfig(iterations_per_loop=2, num_shards=8,
                                                                  per_host_input_for_training=True))  # fmt: skip
    estimator = tpu_estimator.TPUEstimator(model_fn=model_fn, use_tpu=FLAGS.use_tpu, config=config, params=hparams,
                                           train_batch_size=32, eval_batch_size=32)  # fmt: skip
    for _ in range(2):
        estimator.train(input_fn, steps=1)
    found = estimator.evaluate(input_fn, steps=1)
    print("loss %.4f top_1 %.4f step %d" % (found["loss"], found["top_1"], found["global_step"]))


if __name__ == "__main__":
    tf.app.run(main)
