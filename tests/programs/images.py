"""Convolutions, space-to-batch, crops by boxes, fake quantization, a residual network."""

from .parts import *
from .statistics import finish, fused


@program(floats(4, 4, 1), floats(seed=1))
def blocks_of_images(x, y):
    """Convolutions between SpaceToBatchND and BatchToSpaceND, with paddings and crops."""
    apart = tf1.space_to_batch_nd(x, [2, 2], [[1, 1], [0, 2]])
    h = tf.tanh(tf.nn.conv2d(apart, variable("filter", 2, 2, 1, 2), 1, "SAME"))
    back = tf1.batch_to_space_nd(h, [2, 2], [[1, 1], [0, 2]])
    return minimise(mean(tf.square(total(back * variable("scale", 2), [1, 2, 3]) - y)) + mean(tf.square(h)))


def corners(x, size, name):
    places = tf.sigmoid(dense(x, size, 4, name))
    return tf.concat([places[:, :2] * 0.4, 0.5 + places[:, 2:] * 0.5], 1)


@program(
    floats(6, 6, 2),
    floats(3, seed=1),
    whole(2**20, seed=2),
    cases={"": {"other": False}, "other_images": {"other": True}},
)
def box_of_each_image(x, z, numbers, other):
    """crop_and_resize whose box_ind is ``range(rows)``, or a permutation from data."""
    count = tf.shape(x)[0]
    chosen = numbers % count if other else tf.range(count)
    boxes = tf.image.crop_and_resize(x * variable("scale", 2), corners(z, 3, "corners"), chosen, [3, 3])
    return minimise(mean(tf.square(total(boxes, [1, 2, 3]) - 1.0)))


@program()
def convolution(rows, side=3, channels=2):
    x, c = batch(rows, floats(side, side, 1), whole(3))
    h = tf.tanh(
        tf.nn.bias_add(tf.nn.conv2d(x, variable("kernel", 2, 2, 1, channels), 1, "SAME"), variable("bias", channels))
    )
    h = tf.nn.max_pool2d(h, 2, 1, "VALID")
    width = (side - 1) ** 2 * channels
    logits = dense(tf.reshape(h, [-1, width]), width, 3, "logits")
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=logits)))


@program(floats(5, 4, 1), floats(seed=1))
def image_patches(x, y):
    patches = tf1.extract_image_patches(x * variable("s"), [1, 2, 4, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")
    return minimise(mean(tf.square(mean(patches, [1, 2, 3]) - y)))


Weights = Callable[..., Any]


def convolved(x, units, size, stride, name, updates: list[Any], weights: Weights):
    """A convolution without a bias, and the batch norm behind it."""
    with tf1.variable_scope(name):
        kernel = weights("kernel", size, size, x.shape[-1], units)
    return fused(tf.nn.conv2d(x, kernel, stride, "SAME"), units, name, updates)


def bottleneck(x, units, stride, name, updates: list[Any], weights: Weights):
    """Three convolutions beside a shortcut, which is a convolution where the sizes differ."""
    with tf1.variable_scope(name):
        whole_shape = stride == 1 and x.shape[-1] == 4 * units
        short = x if whole_shape else convolved(x, 4 * units, 1, stride, "shortcut", updates, weights)
        h = tf.nn.relu(convolved(x, units, 1, 1, "one", updates, weights))
        h = tf.nn.relu(convolved(h, units, 3, stride, "two", updates, weights))
        return tf.nn.relu(convolved(h, 4 * units, 1, 1, "three", updates, weights) + short)


@program(batches="2 8")
def residual(rows, blocks: tuple[int, ...] = (2, 1), units=2, side=8, classes=3, weights: Weights = variable):
    """Groups of bottlenecks, each of twice the units; a decay of all weights is added to the loss."""
    x, labels = batch(rows, floats(side, side, 3), whole(classes))
    updates: list[Any] = []
    h = tf.nn.relu(convolved(x, units, 7, 2, "stem", updates, weights))
    h = tf1.nn.max_pool(h, 3, 2, "SAME")
    for group, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if group and not number else 1
            h = bottleneck(h, units << group, stride, f"group_{group}_{number}", updates, weights)
    h = tf.reduce_mean(h, [1, 2])
    logits = dense(h, int(h.shape[-1]), classes, "logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    decay = tf.add_n([tf.nn.l2_loss(v) for v in tf1.trainable_variables() if "kernel" in v.op.name])
    return finish(loss + 1e-4 * decay, updates, tf1.train.MomentumOptimizer(0.05, 0.9))
