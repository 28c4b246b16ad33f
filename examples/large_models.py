"""Graphs of models that one device does not hold: docs/meshes.md fits them to eight.

    python examples/large_models.py bert --batch=1024 -o bert.pb
    python examples/large_models.py table -o table.pb

A graph is all that is made: its variables are nowhere initialized, so that it takes no more than a small machine.
"""

import argparse
import math

import tensorflow as tf

tf1 = tf.compat.v1
normal = tf1.truncated_normal_initializer(stddev=0.02)


def records(batch: int, **features: tuple[tuple[int, ...], tf.DType]) -> dict[str, tf.Tensor]:
    """A batch of the examples in ``train.tfrecord``; int64 becomes int32, as TPUs have it."""
    form = {name: tf1.FixedLenFeature(shape, dtype) for name, (shape, dtype) in features.items()}
    data = tf.data.TFRecordDataset("train.tfrecord").repeat().batch(batch, drop_remainder=True)
    found = tf1.data.make_one_shot_iterator(data.map(lambda lines: tf1.parse_example(lines, form))).get_next()
    return {name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value for name, value in found.items()}


def dense(x: tf.Tensor, width: int, name: str) -> tf.Tensor:
    with tf1.variable_scope(name):
        kernel = tf1.get_variable("kernel", [x.shape[-1], width], initializer=normal)
        return tf.matmul(x, kernel) + tf1.get_variable("bias", [width], initializer=tf1.zeros_initializer())


def normalize(x: tf.Tensor, name: str) -> tf.Tensor:
    with tf1.variable_scope(name):
        gamma = tf1.get_variable("gamma", [x.shape[-1]], initializer=tf1.ones_initializer())
        beta = tf1.get_variable("beta", [x.shape[-1]], initializer=tf1.zeros_initializer())
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)


def gelu(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def attention(x: tf.Tensor, batch: int, heads: int, hide: tf.Tensor) -> tf.Tensor:
    words, width = x.shape[0] // batch, x.shape[1]

    def split(name: str) -> tf.Tensor:
        return tf.transpose(tf.reshape(dense(x, width, name), [batch, words, heads, width // heads]), [0, 2, 1, 3])

    scores = tf.matmul(split("query"), split("key"), transpose_b=True) / math.sqrt(width / heads) + hide
    read = tf.matmul(tf.nn.softmax(scores), split("value"))
    return tf.reshape(tf.transpose(read, [0, 2, 1, 3]), [batch * words, width])


def bert(batch: int, words: int = 128, width: int = 1024, layers: int = 24, vocabulary: int = 30522) -> tf.Tensor:
    """Pretraining of BERT large (https://arxiv.org/abs/1810.04805): 340 million parameters, 20 masked words of 128."""
    given = records(batch, words=((words,), tf.int64), segments=((words,), tf.int64), mask=((words,), tf.int64),
                    places=((20,), tf.int64), targets=((20,), tf.int64), weights=((20,), tf.float32),
                    follows=((), tf.int64))  # fmt: skip
    table = tf1.get_variable("word_embeddings", [vocabulary, width], initializer=normal)
    segments = tf1.get_variable("token_type_embeddings", [2, width], initializer=normal)
    positions = tf1.get_variable("position_embeddings", [512, width], initializer=normal)
    x = tf.nn.embedding_lookup(table, given["words"]) + tf.matmul(tf.one_hot(given["segments"], 2), segments)
    x = normalize(tf.reshape(x + positions[:words], [batch * words, width]), "embeddings")
    hide = (1.0 - tf.cast(given["mask"], tf.float32)[:, None, None, :]) * -10000.0
    for layer in range(layers):
        with tf1.variable_scope(f"layer_{layer}"):
            x = normalize(x + dense(attention(x, batch, width // 64, hide), width, "attention"), "attention_norm")
            x = normalize(x + dense(gelu(dense(x, 4 * width, "intermediate")), width, "output"), "output_norm")
    masked = tf.gather(x, tf.reshape(given["places"] + tf.range(batch)[:, None] * words, [-1]))
    masked = normalize(gelu(dense(masked, width, "transform")), "transform_norm")
    each = tf1.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(given["targets"], [-1]), logits=tf.matmul(masked, table, transpose_b=True)
    )
    weights = tf.reshape(given["weights"], [-1])
    first = tf.tanh(dense(tf.reshape(x, [batch, words, width])[:, 0], width, "pooler"))
    follows = tf1.nn.sparse_softmax_cross_entropy_with_logits(
        labels=given["follows"], logits=dense(first, 2, "follows")
    )
    return tf.reduce_sum(each * weights) / (tf.reduce_sum(weights) + 1e-5) + tf.reduce_mean(follows)


def table(batch: int, rows: int = 40_000_000, width: int = 128) -> tf.Tensor:
    """Clicks from 26 ids of one table and 13 numbers: 5,120 million parameters, nearly all of them in the table."""
    given = records(batch, ids=((26,), tf.int64), numbers=((13,), tf.float32), clicked=((1,), tf.float32))
    ids = tf1.get_variable("ids/embeddings", [rows, width], initializer=normal)
    x = tf.reshape(tf.nn.embedding_lookup(ids, given["ids"]), [batch, 26 * width])
    x = tf.concat([x, tf.nn.relu(dense(given["numbers"], width, "numbers"))], 1)
    for layer, units in enumerate((1024, 512, 256)):
        x = tf.nn.relu(dense(x, units, f"dense_{layer}"))
    return tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(labels=given["clicked"], logits=dense(x, 1, "logits"))
    )


def main() -> None:
    models = {"bert": (bert, 1024), "table": (table, 8192)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=models)
    parser.add_argument("--batch", type=int, help="examples of a step; 1024 of bert, 8192 of the table if not given")
    parser.add_argument("-o", dest="output", required=True, help="the file to write")
    asked = parser.parse_args()
    build, batch = models[asked.model]
    with tf.Graph().as_default() as graph:
        loss = tf.identity(build(asked.batch or batch), "loss")
        step = tf1.train.get_or_create_global_step()
        tf1.train.AdamOptimizer(1e-4).minimize(loss, step, name="train")
    with open(asked.output, "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())


if __name__ == "__main__":
    main()
