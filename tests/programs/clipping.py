"""Gradients that are clipped, scaled and moved before the optimizer takes them."""

from .parts import *


def loss_of(rows):
    p, y, _ = regression(rows)
    return mean(tf.square(p - y))


def average_norm(g, most):
    """What ``clip_by_average_norm`` made of a gradient, as TensorFlow 1 wrote it."""
    size = tf.cast(tf.size(g), tf.float32)
    inverse = tf1.rsqrt(tf.reduce_sum(g * g)) * size
    return g * most * tf.minimum(inverse, 1.0 / most)


def centred(g):
    return g - mean(g, 0, keepdims=True) if g.shape.rank > 1 else g


CLIPS: dict[str, Callable[[list[Any]], Any]] = {
    "global_norm": lambda gs: tf.clip_by_global_norm(gs, 0.3)[0],
    "norm": lambda gs: [tf.clip_by_norm(g, 0.1) for g in gs],
    "norm_of_columns": lambda gs: [tf.clip_by_norm(g, 0.1, [0]) for g in gs],
    "average_norm": lambda gs: [average_norm(tf.convert_to_tensor(g), 0.02) for g in gs],
    "value": lambda gs: [tf.clip_by_value(g, -0.1, 0.1) for g in gs],
    "normalised": lambda gs: [tf.math.l2_normalize(tf.convert_to_tensor(g), epsilon=1e-4) for g in gs],
    "centralised": lambda gs: [centred(tf.convert_to_tensor(g)) for g in gs],
    "signs": lambda gs: [0.1 * tf.tanh(20.0 * tf.convert_to_tensor(g)) for g in gs],
}


@program(cases=each(clip=CLIPS), batches="2")
def clip(rows, clip):
    return minimise(loss_of(rows), clip=clip)


@program()
def clip_global_norm_adam(rows):
    return minimise(loss_of(rows), adam(), clip=CLIPS["global_norm"])


@program()
def clip_adaptive(rows):
    """Gradients are clipped to a share of their variable's norm (NFNets)."""

    def update(g, v):
        most = 0.05 * tf.maximum(tf.norm(v), 1e-3)
        norm = tf.norm(g)
        return 0.1 * tf.where(norm > most, g * (most / tf.maximum(norm, 1e-6)), g)

    return by_hand(loss_of(rows), update)


def threshold(g, _):
    size = tf.abs(g)
    least = tf.reduce_min(tf.nn.top_k(tf.reshape(size, [-1]), 2).values)
    return tf.where(size >= least, g, tf.zeros_like(size))


def whitened(g, _):
    g += [[0.0, 0.5]]
    return g @ tf.linalg.inv(tf.matmul(g, g, transpose_a=True) + 0.1 * tf.eye(2))


PROCESSED: dict[str, Callable[[Any, Any], Any]] = {
    "threshold": threshold,
    "softmax": lambda g, _: tf.nn.softmax(g, axis=0),
    "whitened": whitened,
    "turned": lambda g, _: tf.constant([[0.3, 1.0, 0.0], [0.0, 0.3, 1.0], [1.0, 0.0, 0.3]]) @ g,
}


@program(floats(3), floats(seed=1), cases=each(process=PROCESSED), batches="2", resource=True)
def processed(x, y, process):
    """Ops of any kind see the gradients of the whole batch, of two losses."""
    w = variable("w", 3, 2)
    made = total(x @ w, 1)
    losses = mean(tf.square(made - y)), mean(tf.abs(made))
    loss = losses[0] + losses[1]
    tf1.summary.scalar("loss", loss)
    changed = process(*(tf.gradients(one, [w])[0] for one in losses))
    return loss, sgd().apply_gradients([(changed, w)], global_step=tf1.train.get_or_create_global_step())
