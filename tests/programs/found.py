"""Programs in which testers found a fault once: what follows the batch, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .parts import adam, batch, column, dense, floats, minimise, program, sgd, squares, tf1, variable, whole

mean, total = tf.reduce_mean, tf.reduce_sum

# --------------------------------------------------------------------------- pairs of rows


@program(variants={"": {}, "two_rows": {"rows": 2}})
def normalised_temperature(rows: int) -> Any:
    """Two views of each row against all others, its own place left out."""
    a, b = batch(rows, floats(3), floats(3, seed=1))
    one, other = (tf.nn.l2_normalize(dense(t, 3, 3, "view", tf.tanh, reuse=t is b), 1) for t in (a, b))
    views, count = tf.concat([one, other], 0), tf.shape(a)[0]
    alike = tf.linalg.set_diag(2.0 * tf.matmul(views, views, transpose_b=True), tf.fill([2 * count], -1e4))
    labels = tf.concat([tf.range(count) + count, tf.range(count)], 0)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=alike)), adam())


@program(rows=3)
def clipped_products(rows: int) -> Any:
    h = dense(batch(rows, floats(4)), 4, 3, "h", tf.tanh)
    return minimise(mean(tf.clip_by_value(tf.matmul(h, h, transpose_b=True), -0.5, 0.5)))


@program(variants={"": {}, "sides_as_rows": {"rows": 4}}, rows=3)
def own_product(rows: int) -> Any:
    x, y = batch(rows, floats(4), floats(4, seed=1))
    products = tf.matmul(dense(x, 4, 4, "h", tf.tanh), y, transpose_b=True)
    return minimise(mean(tf.square(tf.linalg.diag_part(products) - 1.0)))


@program(variants={"": {}, "three_rows": {"rows": 3}})
def margin_at_the_label(rows: int) -> Any:
    """The logit of each label is made smaller before the softmax."""
    x, y = batch(rows, floats(4), whole(4, seed=1))
    logits = tf.clip_by_value(tf.nn.l2_normalize(dense(x, 4, 4, "h"), 1), -0.95, 0.95)
    places = tf.stack([tf.range(tf.shape(logits)[0]), y], 1)
    harder = tf.cos(tf.acos(tf.gather_nd(logits, places)) + 0.3)
    logits = 5.0 * tf.tensor_scatter_nd_update(logits, places, harder)
    return minimise(mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)))


# --------------------------------------------------------------------------- parts of the rows


@program(variants={"last": {"rows": 3}, "middle": {"middle": True}})
def row_by_number(rows: int, middle: bool = False) -> Any:
    h = dense(batch(rows, floats(4)), 4, 3, "h")
    count = tf.shape(h)[0]
    return minimise(mean(tf.square(h[count // 2 if middle else count - 1] - 0.3)))


@program(variants={"three": {"rows": 3}, "two": {"rows": 2}})
def half_of_few_rows(rows: int) -> Any:
    h = dense(batch(rows, floats(4)), 4, 3, "h")
    return minimise(mean(tf.square(h[: tf.shape(h)[0] // 2] - 0.3)))


@program(rows=2)
def halves_of_two_rows(rows: int) -> Any:
    one, other = tf.split(batch(rows, floats(4)) @ variable("w", 4, 2), 2, axis=0)
    return minimise(mean(tf.square(one - other - 0.3)))


@program(rows=2, variants={"": {}, "open": {"whole_batches": False}})
def neighbours_of_two_rows(rows: int, whole_batches: bool = True) -> Any:
    error = squares(rows, drop_remainder=whole_batches)
    return minimise(mean(tf.square(error[1:] - error[:-1])), sgd(0.01))


@program(variants={"": {}, "three_rows": {"rows": 3}})
def every_second_row(rows: int) -> Any:
    return minimise(0.1 * total(squares(rows)[::2]))


@program(rows=2)
def rows_of_even_number(rows: int) -> Any:
    error = squares(rows)
    even = tf.equal(tf.range(tf.shape(error)[0]) % 2, 0)
    return minimise(0.1 * total(error * tf.cast(even, tf.float32)))


# --------------------------------------------------------------------------- counts


@program(resource=True, variants={"bins": {"kind": "bins"}, "scattered": {"kind": "scattered"}})
def share_of_each_class(rows: int, kind: str) -> Any:
    x, y, c = batch(rows, floats(4), floats(seed=1), whole(5, seed=2))
    counts = {
        "bins": lambda: tf.cast(tf.histogram_fixed_width(y, [-2.0, 2.0], 5), tf.float32),
        "scattered": lambda: tf.scatter_nd(c[:, None], tf.ones_like(y), [5]),
    }[kind]()
    share = counts / tf.cast(tf.size(y), tf.float32)
    return minimise(mean(tf.square(column(x, 4) - y)) + total(share * tf.square(variable("w", 5))))


@program(variants={"mean": {"by_size": False}, "size": {"by_size": True}})
def as_long_as_the_longest(rows: int, by_size: bool) -> Any:
    """Rows are cut to a length that only the data say."""
    x, lengths = batch(rows, floats(5), whole(5, seed=1) + 1)
    kept = tf.square(x * variable("w", 5))[:, : tf.reduce_max(lengths)]
    return minimise(total(kept) / tf.cast(tf.size(kept), tf.float32) if by_size else mean(kept))


@program()
def chosen_rows_normalised(rows: int) -> Any:
    """The gradient of a mean over the features of chosen rows divides by their number, which is no number of rows."""
    x, kept = batch(rows, floats(3), whole(2, seed=6))
    h = tf.tanh(tf.boolean_mask(x, tf.equal(kept, 1)) * variable("w", 3) + variable("b", 3))
    middle, spread = tf.nn.moments(h, [-1], keepdims=True)
    h = (h - middle) * tf.math.rsqrt(spread + 1e-2) * variable("gamma", 3)
    return minimise(mean(tf.square(h - 0.1)))


@program(variants={"mean": {}, "largest": {"largest": True}})
def chosen_places(rows: int, largest: bool = False) -> Any:
    x, kept = batch(rows, floats(5, 3), whole(2, 5, seed=6))
    h = tf.tanh(tf.boolean_mask(x, tf.equal(kept, 1)) * variable("w", 3) + variable("b", 3))
    means = mean(h, -1)
    return minimise(tf.reduce_max(tf.square(means)) if largest else mean(tf.square(means - 0.1)))


@program(rows=3)
def gradient_of_a_root_in_the_loss(rows: int) -> Any:
    x, y = batch(rows, floats(), floats(seed=1))
    w = variable("w")
    slope = tf.gradients(tf.sqrt(mean(tf.square(x * w - y))), [w])[0]
    return minimise(tf.square(slope), sgd(0.01))


@program(rows=3)
def mapped_rows_alone(rows: int) -> Any:
    means = tf.map_fn(mean, batch(rows, floats(4)))
    return minimise(mean(tf.square(means - variable("w"))))


# --------------------------------------------------------------------------- rows in another order


@program(variants={"": {}, "open": {"open_batch": True, "rows": 3}})
def sorted_columns(rows: int, open_batch: bool = False) -> Any:
    """Each column is sorted by itself: the places of the rows are numbers of the whole batch."""
    x, y = batch(rows, floats(3), floats(3, seed=1), drop_remainder=not open_batch)
    return minimise(mean(tf.abs(tf.sort(x * variable("w", 3), 0) - tf.sort(y, 0))))


@program(rows=6)
def rows_in_pairs(rows: int) -> Any:
    pairs = tf.reshape(dense(batch(rows, floats(3)), 3, 3, "h", tf.tanh), [-1, 2, 3])
    return minimise(mean(tf.square(total(pairs, 1) - 1.0)))


@program()
def every_second_number(rows: int) -> Any:
    error = squares(rows)
    return minimise(0.1 * total(tf.gather(error, tf.range(0, tf.shape(error)[0], 2))))


# --------------------------------------------------------------------------- small vectors that are as long as the batch


@program(rows=2)
def weighted_by_column_open(rows: int) -> Any:
    x, y, weights = batch(rows, floats(4), floats(3, seed=1), abs(floats(1, seed=3)), drop_remainder=False)
    return minimise(tf1.losses.mean_squared_error(y, dense(x, 4, 3, "layer"), weights=weights))


@program(rows=2)
def contracted_over_two_axes(rows: int) -> Any:
    x = batch(rows, floats(3, 4), drop_remainder=False)
    p = tf.tensordot(x, variable("w", 3, 4), [[1, 2], [0, 1]])
    return minimise(mean(tf.square(p[:, None] - p[None] - 0.1)), sgd(0.01))


@program(rows=3)
def image_patches(rows: int) -> Any:
    x, y = batch(rows, floats(5, 4, 1), floats(seed=1))
    patches = tf1.extract_image_patches(x * variable("s"), [1, 2, 4, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")
    return minimise(mean(tf.square(mean(patches, [1, 2, 3]) - y)))


@program(rows=3)
def counts_of_equal_ids(rows: int) -> Any:
    """How often each id stands in the batch, which no core knows alone."""
    ids, y = batch(rows, whole(6, 3), floats(seed=1))
    _, place, count = tf.unique_with_counts(ids[:, 0])
    often = tf.cast(tf.gather(count, place), tf.float32)
    return minimise(mean(tf.square(variable("k") - y * often)))


# --------------------------------------------------------------------------- places of a sequence


@program(variants={"": {}, "places_as_rows": {"places": 12}})
def slice_of_places(rows: int, places: int = 20) -> Any:
    """The first places of a longer table are added to a sequence that was looked up as one list."""
    ids = batch(rows, whole(9, 6))
    words, table = variable("words", 9, 4), variable("places", places, 4)
    h = tf.reshape(tf.gather(words, tf.reshape(ids, [-1])), [rows, 6, 4])
    h = dense(tf.reshape(h + tf.slice(table, [0, 0], [6, -1])[None], [-1, 4]), 4, 4, "h", tf.tanh)
    return minimise(mean(tf.square(h)))


@program(variants={"": {}, "two_rows": {"rows": 2, "seq": 8}}, rows=3)
def shifted_scores(rows: int, seq: int = 6) -> Any:
    """Scores by distance with time first, moved along by a reshape between two slices whose sizes TensorFlow folds."""
    x = tf.transpose(batch(rows, floats(seq, 4)), [1, 0, 2])
    distances = tf.tile(tf.range(-1.0, 1.0, 1.0 / seq)[:, None, None] * variable("places", 1, 1, 4), [1, rows, 1])
    scores = tf.einsum("ibd,jbd->ijb", x, distances)
    size = tf.shape(scores)
    scores = tf.slice(tf.reshape(scores, [size[1], size[0], size[2]]), [1, 0, 0], [-1, -1, -1])
    scores = tf.slice(tf.reshape(scores, [size[0], size[1] - 1, size[2]]), [0, 0, 0], [-1, seq, -1])
    return minimise(mean(tf.square(tf.nn.softmax(scores, 1) - 0.1)))


@program(
    variants={
        f"{kind}_of_{rows}{'_open' * opened}": {"rows": rows, "step": step, "drop_remainder": not opened}
        for kind, step in (("two", 2), ("three", 3))
        for rows in (step, 2 * step)
        for opened in (False, True)
    }
)
def alternating_rows(rows: int, step: int, **options: Any) -> Any:
    """Anchors, positives and negatives lie one behind the other in the batch; each first one is as well compared by itself."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    h = dense(x, 5, 3, "embed", tf.tanh)
    anchors, *others = (h[k::step] for k in range(step))
    apart = sum(mean(tf.square(anchors - (0.5 - k) * other)) for k, other in enumerate(others))
    return minimise(apart + mean(tf.square(h[1::step])) + mean(tf.square(column(h, 3)[::step] - y[step - 1 :: step])))


# --------------------------------------------------------------------------- numbers of entries beside sums of them

_SHARES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "of_a_mean": lambda x, m, y, n: mean(tf.square(column(x, 6) - y)) * n / total(m),
    "of_features": lambda x, m, y, n: mean(tf.square(column(x * m * n / total(m), 6) - y)),
    "after_the_sum": lambda x, m, y, n: mean(tf.square(column(x * m / total(m) * n, 6) - y)),
    "of_a_product": lambda x, m, y, n: mean(tf.square((1.0 / total(m)) * column(x * m * n, 6) - y)),
}
"""Shares of what a mask leaves, multiplied by how many entries there are before."""


@program(
    doubtful=True,
    variants={
        f"{name}{'_by_size' * sized}_{rows}": {"of": of, "sized": sized, "rows": rows}
        for name, of in _SHARES.items()
        for sized in (False, True)
        for rows in (2, 3)
    },
)
def shares_of_entries(rows: int, of: Any, sized: bool) -> Any:
    """Such a number may be made of the rows, or be one of the model."""
    x, m, y = batch(rows, floats(6), whole(2, 6, seed=3).astype("f"), floats(seed=1))
    return minimise(of(x, m, y, tf.cast(tf.size(m), tf.float32) if sized else float(6 * rows)))


_ONES: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "rows": lambda h, y, n, k: mean(tf.square(column(h, 3) * (tf.ones([n]) / float(k)) - y)),
    "scores": lambda h, y, n, k: mean(tf.square(column(h, 3) * tf.ones([n]) / float(k) - y)),
    "classes": lambda h, y, n, k: mean(
        tf.nn.softmax_cross_entropy_with_logits(labels=tf.ones([n, k]) / float(k), logits=dense(h, 3, k, "logits"))
    ),
}
"""Ones of all rows over as many classes."""


@program(
    variants={
        f"{name}_{rows}{'_open' * opened}": {"of": of, "rows": rows, "classes": rows, "drop_remainder": not opened}
        for name, of in _ONES.items()
        for rows in (2, 4)
        for opened in (False, True)
    },
)
def ones_over_classes(rows: int, of: Any, classes: int, **options: Any) -> Any:
    """A batch has as many rows as there are classes: ones of the rows that are divided by these are no mean of them."""
    x, y = batch(rows, floats(5), floats(seed=1), **options)
    return minimise(of(dense(x, 5, 3, "embed", tf.tanh), y, tf.shape(x)[0], classes))


@program(doubtful=True, variants={"two": {"rows": 2}, "three": {"rows": 3}})
def labels_over_rows(rows: int) -> Any:
    """Labels that are as small as there are rows: the report names their number."""
    x = batch(rows, floats(5), drop_remainder=False)
    labels = tf.ones([tf.shape(x)[0], 4]) / float(rows)
    return minimise(mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=dense(x, 5, 4, "logits"))))
