"""Programs of several views of each row in one list, of lists that loops make longer, and of as many segments as rows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import batch, closed_and_open, column, dense, floats, minimise, program, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum


def views(rows: int, count: int, **options: Any) -> Any:
    """So many views of each row, one behind the other in one list."""
    parts = batch(rows, *[floats(5, seed=seed) for seed in range(count)], **options)
    return tf.concat(parts, 0) * variable("scale", 5)


@program(variants=closed_and_open(2, 3, of={"two": 2, "three": 3}))
def largest_of_views(rows: int, of: int, **options: Any) -> Any:
    """The views are taken apart again by their number, which is that of the rows as well; the rows are left open."""
    return minimise(mean(tf.square(tf.reduce_max(tf.reshape(views(rows, of, **options), [of, -1, 5]), 0))))


@program(variants=closed_and_open(2, 3))
def views_and_their_mean(rows: int, **options: Any) -> Any:
    apart = tf.reshape(views(rows, 2, **options), [2, -1, 5])
    return minimise(mean(tf.square(tf.tanh(apart) - 0.5 * mean(apart, 0)[None])))


@program(variants=closed_and_open(2, 3))
def heads_in_front_of_rows(rows: int, **options: Any) -> Any:
    """The heads of attention are columns that are put in front of the batch, and taken apart there."""
    x, _ = batch(rows, floats(4, 6), floats(seed=1), **options)
    heads = tf.concat(tf.split(x * variable("scale", 6), 2, 2), 0)
    return minimise(mean(tf.square(tf.reduce_max(tf.reshape(heads, [2, -1, 4, 3]), 0) - 0.1)))


@program(variants=closed_and_open(2, 3, doubtful=("2",)))
def views_taken_apart_by_both_numbers(rows: int, **options: Any) -> Any:
    """Of two views of two rows both numbers are two, and one of them may be either."""
    h = views(rows, 2, **options)
    count = rows if options.get("drop_remainder", True) else tf.shape(h)[0] // 2
    return minimise(mean(tf.square(tf.reduce_max(tf.reshape(h, [2, count, 5]), 0) - 0.1)))


@program(
    variants={"": {}, "open": {"drop_remainder": False}, "two": {"rows": 2, "doubtful": True}}, doubtful=True, rows=3
)
def groups_of_as_many_as_rows(rows: int, **options: Any) -> Any:
    """Neighbours are a group, as anchors and those like and unlike them: each core's batch is one, or all rows are one."""
    x, _ = batch(rows, floats(5), floats(seed=1), **options)
    grouped = tf.reshape(x, [-1, rows, 5])
    return minimise(mean(tf.square(mean(grouped, 1) * variable("scale", 5) - 0.1)))


@program(variants=closed_and_open(2, 3, doubtful=("2", "2_open")))
def views_interleaved(rows: int, **options: Any) -> Any:
    """Rows of both views take turns for a layer, and are put back; of two rows the number of views may be that of the rows."""
    turned = tf.transpose(tf.reshape(views(rows, 2, **options), [-1, 2, 5]), [1, 0, 2])
    h = dense(tf.reshape(turned, [-1, 5]), 5, 3, "h")
    back = tf.reshape(tf.transpose(tf.reshape(h, [2, -1, 3]), [1, 0, 2]), [-1, 3])
    return minimise(mean(tf.square(back)))


@program(variants={"": {}, "three": {"rows": 3}}, rows=2, doubtful=True)
def views_beside_the_rows(rows: int) -> Any:
    """The rows are written where the views are taken apart, and the views are left open."""
    return minimise(mean(tf.square(tf.reduce_max(tf.reshape(views(rows, 2), [-1, rows, 5]), 0))))


@program(variants=closed_and_open(2, 3))
def rows_beside_the_best(rows: int, **options: Any) -> Any:
    """One row, of which data say which it is, is broadcast to all of them: it is one however many rows there are."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    best = tf.argmax(y, output_type=tf.int32)
    one = 1 + tf.cast(0.0 * total(y), tf.int32)
    h = dense(x, 5, 5, "h")
    return minimise(mean(tf.square(h - x[best : best + 1] - 0.1)) + mean(tf.square(h - x[:one])))


@program(variants={"": {}, "three": {"rows": 3}}, rows=2, doubtful=True)
def rows_beside_the_next(rows: int) -> Any:
    """The gradient of what is put together takes the shapes of the parts, of one row and of all but one."""
    x, _ = batch(rows, floats(5), floats(seed=1))
    h = x * variable("scale", 5)
    after = tf.concat([h[1:], h[:1]], 0)
    return minimise(mean(tf.maximum(0.0, 1.0 + total(h, 1) - total(tf.square(after), 1))))


@program(variants=closed_and_open(2, 3))
def rows_beside_the_last_one(rows: int, **options: Any) -> Any:
    """A row of zeros is put in front, and the last one cut off: of three rows with four columns there are four of each then."""
    x, _ = batch(rows, floats(4), floats(seed=1), **options)
    h = dense(x, 4, 4, "h", tf.tanh)
    return minimise(mean(tf.square(h + 0.5 * tf.pad(h, [[1, 0], [0, 0]])[:-1] - 0.1)))


# --------------------------------------------------------------------------- lists that loops make longer


@program(variants=closed_and_open(2, 3, of={"one": 1, "none": 0}))
def rows_in_an_array_that_grows(rows: int, of: int, **options: Any) -> Any:
    """A mask that a loop over the images makes, as detectors do: the array is made for one element, or for none."""
    x, y = batch(rows, floats(6), floats(6, seed=1), **options)
    grown = tf.TensorArray(tf.float32, of, dynamic_size=True)
    count = tf.shape(x)[0]
    _, grown = tf1.while_loop(
        lambda i, _: i < count, lambda i, t: (i + 1, t.write(i, tf.cast(y[i] > 0.5, tf.float32))), (0, grown)
    )
    return minimise(mean(tf.square(x * variable("scale", 6) - grown.stack())))


@program(variants=closed_and_open(2, 3))
def arrays_that_grow_in_one_list(rows: int, **options: Any) -> Any:
    x, y = batch(rows, floats(4, 3), floats(4, 3, seed=1), **options)
    grown, count = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False), tf.shape(x)[0]
    _, grown = tf1.while_loop(
        lambda i, _: i < count, lambda i, t: (i + 1, t.write(i, tf.reverse(x[i], [0]))), (0, grown)
    )
    return minimise(mean(tf.square(tf.reshape(grown.concat(), [-1, 4, 3]) * variable("scale", 3) - y)))


@program(variants=closed_and_open(2, 3))
def chosen_of_each_image(rows: int, **options: Any) -> Any:
    """Each image has up to three places; TensorFlow does not know how many there are, and data say how many rows come out."""
    boxes, scores, y = batch(rows, floats(6, 4, seed=1), floats(6, seed=2), floats(seed=3), **options)

    def chosen(of: Any) -> Any:
        found = tf.boolean_mask(of[0], of[1] > 0)[:3]
        return tf.pad(found, [[0, 3 - tf.shape(found)[0]], [0, 0]])

    flat = tf.reshape(tf.map_fn(chosen, (boxes, scores), fn_output_signature=tf.float32), [-1, 12])
    return minimise(mean(tf.square(total(flat, 1) * variable("scale") - y)))


# --------------------------------------------------------------------------- as many segments as rows


@program(variants=closed_and_open(2, 3, of={"largest": "max", "least": "min", "product": "prod"}))
def segments_for_rows(rows: int, of: str, **options: Any) -> Any:
    """One number of the nodes of each graph; there are as many segments as rows."""
    x, _ = batch(rows, floats(4, 3), floats(seed=1), **options)
    count = tf.shape(x)[0]
    owner = tf.reshape(tf.tile(tf.range(count)[:, None], [1, 4]), [-1])
    kinds = {"max": tf.math.unsorted_segment_max, "min": tf.math.unsorted_segment_min}
    nodes = tf.reshape(x * variable("scale", 3), [-1, 3])
    found = kinds.get(of, tf.math.unsorted_segment_prod)(nodes, owner, count)
    return minimise(mean(tf.square(found - 0.1)))


@program(variants=closed_and_open(2, 3))
def largest_of_marked_nodes(rows: int, **options: Any) -> Any:
    """Of the nodes of each graph those that a mask leaves, whose owners are found with them."""
    x, sizes = batch(rows, floats(4, 3), 1 + whole(4, seed=2), **options)
    marked = tf.sequence_mask(sizes, 4)
    owner = tf.cast(tf.where(marked)[:, 0], tf.int32)
    nodes = tf.boolean_mask(x * variable("scale", 3), marked)
    return minimise(mean(tf.square(tf.math.unsorted_segment_max(nodes, owner, tf.shape(x)[0]) - 0.1)))


@program(variants=closed_and_open(2, 3))
def columns_of_a_mask(rows: int, **options: Any) -> Any:
    """A mask that the graph holds says how many columns there are."""
    x, _ = batch(rows, floats(5, 3), floats(seed=1), **options)
    chosen = tf.boolean_mask(x, tf.constant([True, False, True, True, False]), axis=1)
    return minimise(mean(tf.square(total(tf.reshape(chosen, [-1, 9]) * variable("scale", 9), 1) - 0.1)))


@program(variants={"": {}, "three": {"rows": 3}}, rows=2)
def bins_for_rows(rows: int) -> Any:
    """How often each row is named weighs it."""
    x, by = batch(rows, floats(4), whole(2, seed=1), drop_remainder=False)
    count = tf.shape(x)[0]
    named = tf.math.floormod(tf.range(count) + by, count)
    often = tf.cast(tf.math.bincount(named, minlength=count, maxlength=count), tf.float32)
    return minimise(mean(tf.square(dense(x, 4, 3, "h")) * often[:, None]))


# --------------------------------------------------------------------------- shapes that hold the rows elsewhere


@program(variants={"": {}, "three": {"rows": 3}}, rows=2)
def filters_of_rows(rows: int) -> Any:
    """Each row's image is filtered by what the row says: rows are the channels of one image."""
    x, k, y = batch(rows, floats(5, 5), floats(3, 3, seed=3), floats(5, 5, seed=1), drop_remainder=False)
    filters = tf.transpose(k * variable("kernel", 3, 3), [1, 2, 0])[..., None]
    made = tf.nn.depthwise_conv2d(tf.transpose(x, [1, 2, 0])[None], filters, [1, 1, 1, 1], "SAME")
    return minimise(mean(tf.square(tf.transpose(made[0], [2, 0, 1]) - y)))


@program(variants=closed_and_open(2, 3))
def put_back_by_places(rows: int, **options: Any) -> Any:
    """What is pooled goes back to the places where it was found, which count the rows, too."""
    x, y = batch(rows, floats(4, 4, 2), floats(4, 4, 2, seed=1), **options)
    pooled, places = tf.nn.max_pool_with_argmax(x, 2, 2, "SAME", include_batch_in_index=True)
    values = tf.reshape(pooled * variable("scale", 2), [-1])
    back = tf.scatter_nd(tf.reshape(places, [-1, 1]), values, tf.cast(tf.reshape(tf.size(x), [1]), tf.int64))
    return minimise(mean(tf.square(tf.reshape(back, tf.shape(x)) - y)))


@program(variants=closed_and_open(1, 2))
def signs_of_rows(rows: int, **options: Any) -> Any:
    """Codes of zeros and ones: the gradient of a sign is zero, however many rows there are."""
    x, _ = batch(rows, floats(5), floats(seed=1), **options)
    h = dense(x, 5, 4, "h")
    return minimise(mean(tf.square(h - tf.sign(h))) + mean(tf.square(column(x, 5, "other"))))
