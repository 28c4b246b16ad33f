"""Optimizers of TensorFlow's own and by hand."""

from .parts import *


def loss_of(rows, *, width=5, hidden=3):
    p, y, _ = regression(rows, width=width, hidden=hidden)
    return mean(tf.square(p - y))


OWN: dict[str, Callable[[], Any]] = {
    "sgd": sgd,
    "adam": adam,
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.02, momentum=0.5, epsilon=1e-2),
    "proximal": lambda: tf1.train.ProximalGradientDescentOptimizer(0.1, l2_regularization_strength=0.01),
}


@program(cases=each(optimizer=OWN))
def optimizer(rows, optimizer):
    return minimise(loss_of(rows), optimizer())


def slots(v, *names, value=0.0) -> list[Any]:
    return [state(f"{v.op.name}/{name}", *v.shape.as_list(), value=value) for name in names]


def kept(slot, value):
    return tf.identity(tf1.assign(slot, value))


@program()
def weight_decay(rows):
    """AdamW: decay beside Adam's own step."""

    def update(g, v):
        m, s = slots(v, "m", "s")
        new = kept(m, 0.9 * m + 0.1 * g), kept(s, 0.99 * s + 0.01 * g * g)
        return 0.02 * (new[0] / (tf.sqrt(new[1]) + 1e-2) + 0.1 * v)

    return by_hand(loss_of(rows), update)


@program()
def lamb(rows):
    def update(g, v):
        m, s = slots(v, "m", "s")
        step = kept(m, 0.9 * m + 0.1 * g) / (tf.sqrt(kept(s, 0.99 * s + 0.01 * g * g)) + 1e-2) + 0.01 * v
        long, far = tf.norm(v), tf.norm(step)
        return 0.05 * tf.where(tf.logical_and(long > 0, far > 0), long / tf.maximum(far, 1e-6), 1.0) * step

    return by_hand(loss_of(rows), update)


@program(steps=4)
def lookahead(rows):
    """Every second step the slow weights follow, and the fast ones start from them, in a branch."""
    loss = loss_of(rows)
    variables, step = tf1.trainable_variables(), tf1.train.get_or_create_global_step()
    slow = [
        tf1.get_variable(f"slow/{v.op.name}", initializer=tf.identity(v.initial_value), trainable=False)
        for v in variables
    ]
    tf1.summary.scalar("loss", loss)
    with tf.control_dependencies([loss]):
        train = sgd().minimize(loss, var_list=variables)

    def follow():
        new = [s + 0.5 * (v - s) for s, v in zip(slow, variables, strict=True)]
        with tf.control_dependencies(new):
            writes = [tf1.assign(s, n) for s, n in zip(slow, new, strict=True)]
            return tf.group(*writes, *(tf1.assign(v, n) for v, n in zip(variables, new, strict=True)))

    with tf.control_dependencies([train]):
        now = tf.identity(tf1.assign_add(step, 1))
    with tf.control_dependencies([now]):
        return loss, tf1.cond(tf.equal(now % 2, 0), follow, tf.no_op)
