"""A classifier of texts behind a small transformer, in the manner of BERT's run_classifier: records, predictions."""

from __future__ import absolute_import, division, print_function

import collections
import os

import numpy as np
import tensorflow as tf

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", None, "Where checkpoints and records go.")
flags.DEFINE_bool("use_tpu", False, "Whether to use TPU or GPU/CPU.")
tf.flags.DEFINE_string("tpu_name", None, "The Cloud TPU to use.")
flags.DEFINE_integer("num_tpu_cores", 8, "Number of cores.")
flags.DEFINE_integer("iterations_per_loop", 3, "Steps per loop.")
SEQ, HIDDEN, HEADS, VOCAB = 12, 16, 2, 40


def get_shape_list(tensor):
    sizes = tf.shape(tensor)
    return [sizes[i] if size is None else size for i, size in enumerate(tensor.shape.as_list())]


def create_initializer(seed):
    return tf.truncated_normal_initializer(stddev=0.1, seed=seed)


def layer_norm(values, name=None):
    return tf.contrib.layers.layer_norm(inputs=values, begin_norm_axis=-1, begin_params_axis=-1, scope=name)


def gelu(x):
    return x * 0.5 * (1.0 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))


def embedding_lookup(ids, one_hot):
    batch, seq = get_shape_list(ids)
    table = tf.get_variable("word_embeddings", [VOCAB, HIDDEN], initializer=create_initializer(1))
    flat = tf.reshape(ids, [-1])
    output = tf.matmul(tf.one_hot(flat, depth=VOCAB), table) if one_hot else tf.gather(table, flat)
    position = tf.get_variable("position_embeddings", [SEQ, HIDDEN], initializer=create_initializer(2))
    return tf.reshape(output, [batch, seq, HIDDEN]) + tf.reshape(tf.slice(position, [0, 0], [seq, -1]),
                                                                 [1, seq, HIDDEN])  # fmt: skip


def attention(values, mask):
    batch, seq, _ = get_shape_list(values)
    size = HIDDEN // HEADS
    flat = tf.reshape(values, [-1, HIDDEN])

    def heads(name, seed):
        made = tf.layers.dense(flat, HIDDEN, name=name, kernel_initializer=create_initializer(seed))
        return tf.transpose(tf.reshape(made, [batch, seq, HEADS, size]), [0, 2, 1, 3])

    scores = tf.matmul(heads("query", 3), heads("key", 4), transpose_b=True) / np.sqrt(size).astype(np.float32)
    scores += tf.expand_dims((1.0 - tf.cast(mask[:, tf.newaxis, :], tf.float32)) * -10000.0, axis=[1])
    context = tf.matmul(tf.nn.softmax(scores), heads("value", 5))
    return tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [batch, seq, HIDDEN])


def transformer(ids, mask, use_one_hot):
    with tf.variable_scope("bert"):
        with tf.variable_scope("embeddings"):
            hidden = layer_norm(embedding_lookup(ids, use_one_hot))
        for layer in range(1):
            with tf.variable_scope("layer_%d" % layer):
                attended = tf.layers.dense(attention(hidden, mask), HIDDEN, kernel_initializer=create_initializer(6))
                hidden = layer_norm(hidden + attended, "attention")
                inner = tf.layers.dense(hidden, 32, activation=gelu, kernel_initializer=create_initializer(7))
                outer = tf.layers.dense(inner, HIDDEN, kernel_initializer=create_initializer(8))
                hidden = layer_norm(hidden + outer, "output")
        with tf.variable_scope("pooler"):
            first = tf.squeeze(hidden[:, 0:1, :], axis=1)
            return tf.layers.dense(first, HIDDEN, activation=tf.tanh, kernel_initializer=create_initializer(9))


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam without bias correction, with weight decay beside the gradient."""

    def __init__(self, learning_rate, decay=0.01, name="AdamWeightDecayOptimizer"):
        super(AdamWeightDecayOptimizer, self).__init__(False, name)
        self.rate, self.decay = learning_rate, decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            if grad is None or param is None:
                continue
            scope = param.op.name
            m = tf.get_variable(scope + "/adam_m", param.shape.as_list(), trainable=False,
                                initializer=tf.zeros_initializer())  # fmt: skip
            v = tf.get_variable(scope + "/adam_v", param.shape.as_list(), trainable=False,
                                initializer=tf.zeros_initializer())  # fmt: skip
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, grad)
            next_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(grad))
            update = next_m / (tf.sqrt(next_v) + 1e-6) + self.decay * param
            assignments.extend([param.assign(param - self.rate * update), m.assign(next_m), v.assign(next_v)])
        return tf.group(*assignments, name=name)


def create_optimizer(loss, use_tpu):
    step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(tf.constant(0.01, shape=[], dtype=tf.float32), step, 12, end_learning_rate=0.0)
    warm = tf.cast(tf.cast(step, tf.int32) < tf.constant(2), tf.float32)
    rate = (1.0 - warm) * rate + warm * 0.01 * tf.cast(step, tf.float32) / 2.0
    optimizer = AdamWeightDecayOptimizer(rate)
    if use_tpu:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), clip_norm=1.0)
    train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=step)
    return tf.group(train_op, [step.assign(step + 1)])


def model_fn_builder(use_tpu):
    def model_fn(features, labels, mode, params):
        del labels, params
        pooled = transformer(features["input_ids"], features["input_mask"], use_tpu)
        weights = tf.get_variable("output_weights", [2, HIDDEN], initializer=create_initializer(10))
        bias = tf.get_variable("output_bias", [2], initializer=tf.zeros_initializer())
        with tf.variable_scope("loss"):
            logits = tf.nn.bias_add(tf.matmul(pooled, weights, transpose_b=True), bias)
            one_hot = tf.one_hot(features["label_ids"], depth=2, dtype=tf.float32)
            rows = -tf.reduce_sum(one_hot * tf.nn.log_softmax(logits, axis=-1), axis=-1)
            loss = tf.reduce_mean(rows)
        Spec = tf.contrib.tpu.TPUEstimatorSpec
        if mode == tf.estimator.ModeKeys.TRAIN:
            return Spec(mode=mode, loss=loss, train_op=create_optimizer(loss, use_tpu))
        if mode == tf.estimator.ModeKeys.EVAL:

            def metric_fn(per_example_loss, label_ids, logits, is_real_example):
                predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
                accuracy = tf.metrics.accuracy(labels=label_ids, predictions=predictions, weights=is_real_example)
                return {
                    "eval_accuracy": accuracy,
                    "eval_loss": tf.metrics.mean(per_example_loss, weights=is_real_example),
                }

            real = tf.cast(features["is_real_example"], dtype=tf.float32)
            return Spec(mode=mode, loss=loss, eval_metrics=(metric_fn, [rows, features["label_ids"], logits, real]))
        return Spec(mode=mode, predictions={"probabilities": tf.nn.softmax(logits)})

    return model_fn


def write_examples(path, count, pad_to):
    rng = np.random.RandomState(8)
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(pad_to):
            ids, label = rng.randint(1, VOCAB, size=SEQ), i % 2
            ids[0] = 1 + label
            features = collections.OrderedDict()
            for name, value in (("input_ids", ids), ("input_mask", (np.arange(SEQ) < 10).astype(int)),
                                ("label_ids", [label]), ("is_real_example", [int(i < count)])):  # fmt: skip
                features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=list(value)))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def file_based_input_fn_builder(path, is_training, drop_remainder):
    name_to_features = {
        "input_ids": tf.FixedLenFeature([SEQ], tf.int64),
        "input_mask": tf.FixedLenFeature([SEQ], tf.int64),
        "label_ids": tf.FixedLenFeature([], tf.int64),
        "is_real_example": tf.FixedLenFeature([], tf.int64),
    }

    def _decode_record(record, name_to_features):
        example = tf.parse_single_example(record, name_to_features)
        for name in list(example.keys()):
            t = example[name]
            if t.dtype == tf.int64:
                t = tf.to_int32(t)
            example[name] = t
        return example

    def input_fn(params):
        d = tf.data.TFRecordDataset(path)
        if is_training:
            d = d.repeat()
        return d.apply(tf.contrib.data.map_and_batch(lambda record: _decode_record(record, name_to_features),
                                                     batch_size=params["batch_size"], drop_remainder=drop_remainder))  # fmt: skip

    return input_fn


def main(_):
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.gfile.MakeDirs(FLAGS.output_dir)
    tpu_cluster_resolver = None
    if FLAGS.use_tpu and FLAGS.tpu_name:
        tpu_cluster_resolver = tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name, zone=None, project=None)
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    run_config = tf.contrib.tpu.RunConfig(
        cluster=tpu_cluster_resolver,
        master=None,
        model_dir=FLAGS.output_dir,
        save_checkpoints_steps=3,
        tf_random_seed=2,
        tpu_config=tf.contrib.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=FLAGS.num_tpu_cores,
            per_host_input_for_training=is_per_host,
        ),
    )
    estimator = tf.contrib.tpu.TPUEstimator(use_tpu=FLAGS.use_tpu,
                                            model_fn=model_fn_builder(FLAGS.use_tpu),
                                            config=run_config, train_batch_size=16, eval_batch_size=16,
                                            predict_batch_size=16)  # fmt: skip
    train_file = os.path.join(FLAGS.output_dir, "train.tf_record")
    write_examples(train_file, 32, 32)
    estimator.train(input_fn=file_based_input_fn_builder(train_file, True, True), max_steps=6)
    eval_file = os.path.join(FLAGS.output_dir, "eval.tf_record")
    write_examples(eval_file, 22, 32)
    eval_steps = 2 if FLAGS.use_tpu else None
    result = estimator.evaluate(file_based_input_fn_builder(eval_file, False, FLAGS.use_tpu), steps=eval_steps)
    print(" ".join("%s %.4f" % (key, result[key]) for key in sorted(result) if key.startswith("eval_")))
    for i, prediction in enumerate(estimator.predict(file_based_input_fn_builder(eval_file, False, FLAGS.use_tpu))):
        if i >= 3:
            break
        print("\t".join("%.3f" % p for p in prediction["probabilities"]))


if __name__ == "__main__":
    flags.mark_flag_as_required("output_dir")
    tf.app.run()
