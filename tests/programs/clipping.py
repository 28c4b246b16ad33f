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
