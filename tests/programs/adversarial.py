"""GANs with an optimizer for each network, multi-task heads, and virtual adversarial training."""

from .parts import *
from .statistics import fused


def losses_of(one, other) -> tuple[Any, Any, list[Any], list[Any]]:
    entropy = tf.nn.sigmoid_cross_entropy_with_logits
    against = mean(entropy(labels=tf.ones_like(one), logits=one))
    against += mean(entropy(labels=tf.zeros_like(other), logits=other))
    fooled = mean(entropy(labels=tf.ones_like(other), logits=other))
    own = [[v for v in tf1.trainable_variables() if v.op.name.startswith(name)] for name in ("critic", "generator")]
    return against, fooled, own[0], own[1]


def networks(rows) -> tuple[Any, Any, list[Any], list[Any]]:
    real, noise = batch(rows, floats(4), floats(3, seed=1))
    with tf1.variable_scope("generator"):
        made = dense(dense(noise, 3, 5, "one", tf.tanh), 5, 4, "two")

    def critic(x):
        with tf1.variable_scope("critic", reuse=tf1.AUTO_REUSE):
            return column(dense(x, 4, 5, "one", tf.tanh), 5)

    return losses_of(critic(real), critic(made))


def gradients(losses: tuple[Any, Any], variables: tuple[list[Any], list[Any]], optimizers) -> list[Any]:
    return [o.compute_gradients(x, var_list=v) for x, v, o in zip(losses, variables, optimizers, strict=True)]


@program(cases={"": {}, "adam": {"optimizer": adam}}, steps=4)
def gan_alternating(rows, optimizer=sgd):
    """The critic learns in even steps, the generator in odd ones."""
    against, fooled, critic, generator = networks(rows)
    optimizers = optimizer(), optimizer()
    made = gradients((against, fooled), (critic, generator), optimizers)
    step = tf1.train.get_or_create_global_step()
    with tf.control_dependencies([against, fooled, *(g for pairs in made for g, _ in pairs)]):
        turn = tf.equal(tf.identity(step) % 2, 0)
    train = tf1.cond(
        turn,
        lambda: optimizers[0].apply_gradients([(tf.identity(g), v) for g, v in made[0]]),
        lambda: optimizers[1].apply_gradients([(tf.identity(g), v) for g, v in made[1]]),
    )
    tf1.summary.scalar("loss", against)
    with tf.control_dependencies([train]):
        return against, tf1.assign_add(step, 1).op


@program(floats(4, 4, 1), floats(3, seed=1))
def dcgan(real, noise, rows):
    """Images from noise by transposed convolutions with batch norm, judged by strided convolutions; both learn in each step."""
    updates: list[Any] = []
    with tf1.variable_scope("generator"):
        small = fused(tf.reshape(dense(noise, 3, 16, "project"), [-1, 2, 2, 4]), 4, "norm", updates)
        filters = variable("up", 3, 3, 1, 4)
        made = tf.tanh(tf.nn.conv2d_transpose(tf.nn.relu(small), filters, [rows, 4, 4, 1], 2))

    def critic(images):
        with tf1.variable_scope("critic", reuse=tf1.AUTO_REUSE):
            seen = tf.nn.leaky_relu(tf.nn.conv2d(images, variable("down", 3, 3, 1, 4), 2, "SAME"))
            return column(tf.reshape(seen, [-1, 16]), 16)

    against, fooled, *own = losses_of(critic(real), critic(made))
    optimizers = sgd(), sgd()
    pairs = gradients((against, fooled), own, optimizers)
    with tf.control_dependencies([against, fooled, *(g for p in pairs for g, _ in p)]):
        trains = [o.apply_gradients([(tf.identity(g), v) for g, v in p])
                  for o, p in zip(optimizers, pairs, strict=True)]  # fmt: skip
    tf1.summary.scalar("loss", against)
    with tf.control_dependencies([*trains, *updates]):
        return against, tf1.assign_add(tf1.train.get_or_create_global_step(), 1).op


@program(floats(5), floats(seed=1), floats(seed=2))
def multi_task(x, y, z):
    """Two heads, two losses, two optimizers; the trunk belongs to the first."""
    h = dense(x, 5, 3, "trunk", tf.tanh)
    one, other = mean(tf.square(column(h, 3, "first") - y)), mean(tf.square(column(h, 3, "second") - z))
    trunk = [v for v in tf1.trainable_variables() if "second" not in v.op.name]
    head = [v for v in tf1.trainable_variables() if "second" in v.op.name]
    pairs = [*sgd().compute_gradients(one + other, trunk)], [*sgd().compute_gradients(other, head)]
    with tf.control_dependencies([one, other, *(g for p in pairs for g, _ in p)]):
        trains = [o.apply_gradients([(tf.identity(g), v) for g, v in p])
                  for o, p in zip((adam(), sgd(0.05)), pairs, strict=True)]  # fmt: skip
    tf1.summary.scalar("loss", one)
    with tf.control_dependencies(trains):
        return one + other, tf1.assign_add(tf1.train.get_or_create_global_step(), 1).op
