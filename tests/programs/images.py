"""Programs of images: convolutions with holes, whose blocks of places lie in front of the rows, and boxes that are cut out."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import adam, batch, closed_and_open, column, dense, floats, minimise, program, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum

SIZES: dict[str, dict[str, Any]] = {
    "": {},
    "open": {"drop_remainder": False},
    "two_rows": {"rows": 2},
    "as_many_places": {"rows": 4},
    "one_row": {"rows": 1},
}


@program(variants=SIZES, rows=3)
def dilated_steps(rows: int, **options: Any) -> Any:
    """The steps of each row are two places apart for one layer, and three for the next one."""
    x, y = batch(rows, floats(9, 3), floats(seed=1), **options)
    h = tf.tanh(tf1.nn.convolution(x, variable("near", 2, 3, 2), "VALID", dilation_rate=[2]))
    h = tf.nn.relu(tf1.nn.convolution(h, variable("far", 2, 2, 2), "SAME", dilation_rate=[3]) + variable("bias", 2))
    return minimise(mean(tf.square(mean(h, [1, 2]) - y)), adam())


@program(variants=SIZES, rows=3)
def dilated_images(rows: int, **options: Any) -> Any:
    x, y = batch(rows, floats(8, 8, 2), floats(seed=1), **options)
    h = tf.nn.atrous_conv2d(x, variable("filter", 2, 2, 2, 3), 2, "SAME")
    return minimise(mean(tf.square(total(tf.tanh(h), [1, 2, 3]) - y)), adam())


@program(variants=SIZES, rows=3)
def blocks_of_images(rows: int, **options: Any) -> Any:
    """Each place of a block of each image goes through the layers by itself, and comes back; a border is put around, and cut."""
    x, y = batch(rows, floats(4, 4, 1), floats(seed=1), **options)
    apart = tf1.space_to_batch_nd(x, [2, 2], [[1, 1], [0, 2]])
    h = tf.tanh(tf.nn.conv2d(apart, variable("filter", 2, 2, 1, 2), 1, "SAME"))
    back = tf1.batch_to_space_nd(h, [2, 2], [[1, 1], [0, 2]])
    return minimise(mean(tf.square(total(back * variable("scale", 2), [1, 2, 3]) - y)) + mean(tf.square(h)))


@program(variants=SIZES, rows=3)
def blocks_alone(rows: int, **options: Any) -> Any:
    """The op of images alone, of blocks that are square."""
    x = batch(rows, floats(4, 4, 2), **options)
    return minimise(mean(tf.square(tf1.space_to_batch(x * variable("scale", 2), [[0, 0], [0, 0]], 2))))


@program(variants={"": {}, "two_rows": {"rows": 2}, "four_rows": {"rows": 4}}, rows=3)
def rows_as_places(rows: int) -> Any:
    """Four neighbouring rows of a list make up one square: no place of a block has rows of its own, and cores exchange them."""
    x = batch(rows, floats(8), floats(seed=1))[0]
    lists = tf.reshape(x * variable("scale", 8), [-1, 1, 1, 2])
    return minimise(mean(tf.square(tf.tanh(tf.cumsum(tf1.batch_to_space_nd(lists, [2, 2], [[0, 0], [0, 0]]), 1)))))


# --------------------------------------------------------------------------- boxes


def corners(x: Any, size: int, name: str) -> Any:
    """Boxes that depend on what is trained: where each begins, and where it ends."""
    places = tf.sigmoid(dense(x, size, 4, name))
    return tf.concat([places[:, :2] * 0.4, 0.5 + places[:, 2:] * 0.5], 1)


@program(
    variants={
        "": {},
        "by_python": {"numbers": "python"},
        "other_images": {"numbers": "others"},
        "first_image": {"numbers": "first"},
        "by_python_of_two_rows": {"numbers": "python", "rows": 2},
        "by_python_of_one_row": {"numbers": "python", "rows": 1},
        "open": {"drop_remainder": False},
        "open_of_one_row": {"drop_remainder": False, "rows": 1},
    },
    rows=3,
)
def box_of_each_image(rows: int, numbers: str = "shape", **options: Any) -> Any:
    """A box for each row, of the image with its number: that of the row itself, of any other one, or of the first."""
    x, z, other = batch(rows, floats(6, 6, 2), floats(3, seed=1), whole(2**20, seed=2), **options)
    count = tf.shape(x)[0]
    chosen = {
        "shape": lambda: tf.range(count),
        "python": lambda: tf.range(rows),
        "others": lambda: other % count,
        "first": lambda: tf.zeros_like(other),
    }[numbers]()
    boxes = tf.image.crop_and_resize(x * variable("scale", 2), corners(z, 3, "corners"), chosen, [3, 3])
    return minimise(mean(tf.square(total(boxes, [1, 2, 3]) - 1.0)))


@program(variants={"": {}, "as_many_rows": {"rows": 2}, "open": {"drop_remainder": False}}, rows=3)
def boxes_of_each_image(rows: int, **options: Any) -> Any:
    """Two boxes for each row, in a list."""
    x, z = batch(rows, floats(6, 6, 2), floats(2, 3, seed=1), **options)
    owners = tf.reshape(tf.tile(tf.range(tf.shape(x)[0])[:, None], [1, 2]), [-1])
    places = corners(tf.reshape(z, [-1, 3]), 3, "corners")
    boxes = tf.image.crop_and_resize(x * variable("scale", 2), places, owners, [3, 3])
    best = tf.reduce_max(tf.reshape(total(boxes, [1, 2, 3]), [-1, 2]), 1)
    return minimise(mean(tf.square(best - 1.0)))


@program(variants={"": {}, "two_rows": {"rows": 2}}, rows=3)
def one_box_for_all(rows: int) -> Any:
    """The same box of each image, which Python numbers, and whose corners it makes."""
    x, y = batch(rows, floats(6, 6, 2), floats(seed=1))
    places = tf.ones([rows, 1]) * [0.1, 0.2, 0.7, 0.9]
    boxes = tf.image.crop_and_resize(x * variable("scale", 2), places, tf.range(rows), [3, 3])
    return minimise(mean(tf.square(total(boxes, [1, 2, 3]) - y)))


@program(variants=closed_and_open(1, 2, 3, doubtful={"1"}))
def padded_images(rows: int, **options: Any) -> Any:
    """The gradient of a pad takes a part that is as large as what was padded, and says so by a constant."""
    x, y = batch(rows, floats(4, 4, 1), floats(seed=3), **options)
    wide = tf.image.resize_with_crop_or_pad(x * variable("u", 1), 6, 6)
    return minimise(tf.reduce_mean(tf.square(wide * variable("z", 1) - y[:, None, None, None])))


@program(variants=SIZES, rows=3)
def smoothed_images(rows: int, **options: Any) -> Any:
    """Images are made smaller without patterns that they do not have."""
    x, y = batch(rows, floats(6, 6, 2), floats(seed=1), **options)
    h = tf.image.resize(x * variable("scale", 2), [3, 4], antialias=True)
    return minimise(mean(tf.square(total(h, [1, 2, 3]) - y)))


@program(variants=SIZES, rows=3)
def turned_images(rows: int, **options: Any) -> Any:
    """All images are turned alike, by an op type of which nothing is known but what TensorFlow says of its shapes."""
    x, y = batch(rows, floats(6, 6, 2), floats(seed=1), **options)
    turned = tf.raw_ops.ImageProjectiveTransformV3(
        images=x * variable("scale", 2), transforms=[[0.9, 0.1, 0.0, -0.1, 0.9, 0.0, 0.0, 0.0]], output_shape=[5, 6],
        interpolation="BILINEAR", fill_value=0.0,
    )  # fmt: skip
    return minimise(mean(tf.square(mean(turned, [1, 2, 3]) - y)))


@program(variants=SIZES, rows=3)
def images_turned_each(rows: int, **options: Any) -> Any:
    """Each image has an angle of its own."""
    x, y, angle = batch(rows, floats(6, 6, 2), floats(seed=1), floats(seed=2), **options)
    zeros = tf.zeros_like(angle)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    by = tf.stack([cosine, -sine, zeros, sine, cosine, zeros, zeros, zeros], 1)
    turned = tf.raw_ops.ImageProjectiveTransformV2(
        images=x * variable("scale", 2), transforms=by, output_shape=[6, 6], interpolation="BILINEAR"
    )
    return minimise(mean(tf.square(mean(turned, [1, 2, 3]) - y)))


@program(variants=SIZES, rows=3)
def images_turned_alike_one_by_one(rows: int, **options: Any) -> Any:
    """One transform, repeated as often as Python counts rows, and a box that is drawn into each image, repeated so as well."""
    x, y = batch(rows, floats(6, 6, 3), floats(seed=1), **options)
    count = rows if options.get("drop_remainder", True) else tf.shape(x)[0]
    turned = tf.raw_ops.ImageProjectiveTransformV3(
        images=x, transforms=tf.tile([[1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]], [count, 1]), output_shape=[6, 6],
        interpolation="BILINEAR", fill_value=0.0,
    )  # fmt: skip
    drawn = tf.image.draw_bounding_boxes(turned, tf.tile([[[0.1, 0.1, 0.8, 0.8]]], [count, 1, 1]), [[1.0, 0.0, 0.0]])
    return minimise(mean(tf.square(column(mean(drawn, [1, 2]), 3) - y)))


@program(variants=SIZES | {"of_rows": {"flat": True}}, rows=3)
def rounded_to_steps(rows: int, flat: bool = False, **options: Any) -> Any:
    """Numbers are rounded as if they had eight bits, between the least and the largest of the whole batch: by no known op type."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    h = tf.quantization.quantize_and_dequantize_v2(dense(x, 5, 3, "h"), -1.0, 1.0, range_given=flat)
    return minimise(mean(tf.square(tf.reshape(h, [-1]))) if flat else mean(tf.square(mean(h, 1) - y)))


@program(variants=closed_and_open(1, 2, 3, 4))
def depthwise_kernels_of_rows(rows: int, **options: Any) -> Any:
    """A tracker: each row has a kernel of its own, for the channel that its image is."""
    x, k, y = batch(rows, floats(5, 5), floats(3, 3, seed=3), floats(5, 5, seed=1), **options)
    kernels = tf.transpose(k * variable("k", 3, 3), [1, 2, 0])[..., None]
    z = tf.nn.depthwise_conv2d(tf.transpose(x, [1, 2, 0])[None], kernels, [1, 1, 1, 1], "SAME")
    return minimise(mean(tf.square(tf.transpose(z[0], [2, 0, 1]) - y)))


@program(variants=closed_and_open(1, 2, 3, 4))
def depthwise_kernels_of_all_rows(rows: int, **options: Any) -> Any:
    """The kernels of all rows are laid over each row: there are as many channels as these make."""
    x, k, y = batch(rows, floats(6, 6, 2), floats(3, 3, 2), floats(seed=1), **options)
    kernels = tf.transpose(k * variable("v", 2), [1, 2, 3, 0])
    z = tf.nn.depthwise_conv2d(x * variable("w", 2), kernels, [1, 1, 1, 1], "VALID")
    return minimise(mean(tf.square(mean(z, [1, 2, 3]) - y)))
