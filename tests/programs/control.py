"""Loops and branches: trip counts that the batch decides, recurrent networks, accumulation of gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .parts import (
    batch,
    column,
    dense,
    floats,
    minimise,
    program,
    regression,
    sgd,
    state,
    tf1,
    variable,
    whole,
)

mean = tf.reduce_mean


@program()
def loop_max(rows: int) -> Any:
    """A loop that runs while a maximum over the batch is above 1."""
    x, y = batch(rows, floats(6, scale=3.0), floats(seed=1))
    _, h = tf.while_loop(
        lambda k, v: tf.logical_and(k < 10, tf.reduce_max(tf.abs(v)) > 1.0),
        lambda k, v: (k + 1, v * 0.6), [tf.constant(0), x @ variable("w", 6, 6)],
    )  # fmt: skip
    return minimise(mean(tf.square(column(h, 6) - y)), sgd(0.02))


@program()
def loop_longest(rows: int) -> Any:
    """As many trips as the longest row of the batch says; shorter rows are masked."""
    x, y, lengths = batch(rows, floats(6, 3), floats(seed=1), whole(6, seed=2) + 1)
    w = variable("w", 3, 3)

    def body(k: Any, h: Any) -> Any:
        new = tf.tanh(x[:, k] + h @ w)
        return k + 1, tf.where(tf.tile((k < lengths)[:, None], [1, 3]), new, h)

    longest = tf.reduce_max(lengths)
    _, h = tf.while_loop(lambda k, h: k < longest, body, [tf.constant(0), tf.zeros([rows, 3])])
    return minimise(mean(tf.square(column(h, 3) - y)))


@program()
def loop_until_mean_settles(rows: int) -> Any:
    """The condition is a mean over the batch, and the loop has a variable in its body."""
    x, y = batch(rows, floats(3, scale=2.0), floats(seed=1))
    w = variable("w", 3, 3, scale=0.3)
    _, h = tf.while_loop(
        lambda k, v: tf.logical_and(k < 6, mean(tf.square(v)) > 0.2),
        lambda k, v: (k + 1, tf.tanh(v @ w)), [tf.constant(0), x],
    )  # fmt: skip
    return minimise(mean(tf.square(column(h, 3) - y)))


@program()
def loop_normalises(rows: int) -> Any:
    """Each trip divides by a root of a mean over the batch."""
    x, y = batch(rows, floats(3), floats(seed=1))
    w = variable("w", 3, 3)

    def body(k: Any, v: Any) -> Any:
        v = tf.tanh(v @ w)
        return k + 1, v * tf1.rsqrt(mean(tf.square(v)) + 0.1)

    _, h = tf.while_loop(lambda k, v: k < 3, body, [tf.constant(0), x])
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(variants={"": {}, "one_row": {"rows": 1}})
def map_over_batch(rows: int) -> Any:
    """A function of one row, mapped over the rows."""
    x, y = batch(rows, floats(4), floats(seed=1))
    w, out = variable("w", 4, 3), variable("out", 3, 1)
    each = tf1.map_fn(lambda row: tf.squeeze(tf.tanh(row[None] @ w) @ out), x)
    return minimise(mean(tf.square(each - y)))


@program()
def scan_over_batch(rows: int) -> Any:
    """A state that runs through the rows of the batch, one after the other."""
    x, y = batch(rows, floats(3), floats(seed=1))
    w = variable("w", 3, 3)
    h = tf1.scan(lambda a, row: tf.tanh(row + tf.squeeze(a[None] @ w, 0)), x, initializer=tf.zeros([3]))
    return minimise(mean(tf.square(column(h, 3) - y)))


_BACK = {"open": False, "first": False}
_BACK_VARIANTS = {
    "": _BACK,
    "one_row": {**_BACK, "rows": 1},
    "two_rows": {**_BACK, "rows": 2},
    "open": {**_BACK, "open": True},
    "from_last": {**_BACK, "first": True},
    "from_last_of_two": {**_BACK, "first": True, "rows": 2},
}


@program(variants=_BACK_VARIANTS)
def scan_back_over_batch(rows: int, open: bool, first: bool) -> Any:
    """A state that runs through the rows from the last one to the first; with ``first`` the last one is what it begins with."""
    x, y = batch(rows, floats(3), floats(seed=1), drop_remainder=not open)
    w = variable("w", 3, 3)
    start = None if first else tf.zeros([3])
    h = tf1.scan(lambda a, row: tf.tanh(row + tf.squeeze(a[None] @ w, 0)), x, initializer=start, reverse=True)
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(variants={**_BACK_VARIANTS, "forward": {**_BACK, "right": False}})
def fold_over_batch(rows: int, open: bool, first: bool, right: bool = True) -> Any:
    """One number made of all rows, one after the other."""
    p, y, _ = regression(rows, drop_remainder=not open)
    fold, start = (tf1.foldr if right else tf1.foldl), None if first else tf.constant(0.1)
    return minimise(tf.square(fold(lambda a, e: 0.8 * a + e, p - y, initializer=start)))


@program()
def branch_by_step(rows: int) -> Any:
    p, y, h = regression(rows)
    even = tf.equal(tf.identity(tf1.train.get_or_create_global_step()) % 2, 0)
    loss = tf1.cond(even, lambda: mean(tf.square(p - y)), lambda: mean(tf.abs(p - y) + tf.reduce_sum(tf.square(h), 1)))
    return minimise(loss)


@program()
def branch_by_batch(rows: int) -> Any:
    """A mean over the batch decides which network is used."""
    p, y, h = regression(rows)
    loss = tf1.cond(
        mean(y) > 0.0, lambda: mean(tf.square(p - y)), lambda: mean(tf.square(p + column(h, 3, "other") - y))
    )
    return minimise(loss + 0.1 * mean(tf.square(column(h, 3, "third") - y)))


@program()
def branch_by_any(rows: int) -> Any:
    p, y, h = regression(rows)
    loss = tf1.cond(tf.reduce_any(y > 1.2), lambda: 0.5 * mean(tf.square(p - y)), lambda: mean(tf.square(p - y)))
    return minimise(loss + 0.1 * mean(tf.square(h)))


@program()
def skip_bad_steps(rows: int) -> Any:
    """The step is applied only where the norm of the gradients is small enough, as with loss scaling."""
    p, y, _ = regression(rows)
    loss, optimizer = mean(tf.square(p - y)), sgd()
    tf1.summary.scalar("loss", loss)
    pairs = optimizer.compute_gradients(loss)
    good = tf.linalg.global_norm([g for g, _ in pairs]) < 1.0
    with tf.control_dependencies([loss]):
        train = tf1.cond(good, lambda: optimizer.apply_gradients(pairs), tf.no_op)
    with tf.control_dependencies([train]):
        return loss, tf1.assign_add(tf1.train.get_or_create_global_step(), 1).op


@program(variants={"": {}, "with_average": {"average": True}}, steps=4)
def accumulate_in_cond(rows: int, average: bool = False) -> Any:
    """Gradients of two steps are added up and applied in a branch."""
    x, y = batch(rows, floats(4), floats(seed=1))
    w = variable("w", 4, 1)
    loss = mean(tf.square(tf.squeeze(x @ w, 1) - y))
    tf1.summary.scalar("loss", loss)
    step, optimizer, kept = tf1.train.get_or_create_global_step(), sgd(), state("kept", 4, 1)
    ((g, _),) = optimizer.compute_gradients(loss)
    with tf.control_dependencies([tf1.assign_add(kept, g), loss]):

        def apply() -> Any:
            with tf.control_dependencies([optimizer.apply_gradients([(tf.identity(kept) / 2.0, w)])]):
                return tf.group(tf1.assign(kept, tf.zeros_like(kept)))

        done = tf1.cond(tf.equal((step + 1) % 2, 0), apply, tf.no_op)
    with tf.control_dependencies([done]):
        train = tf1.assign_add(step, 1).op
    if not average:
        return loss, train
    with tf.control_dependencies([train]):
        return loss, tf1.train.ExponentialMovingAverage(0.9).apply([w])


@program(steps=4)
def accumulate_by_arithmetic(rows: int) -> Any:
    """The same without a branch: what is applied is multiplied by 0 or 1."""
    p, y, _ = regression(rows)
    loss = mean(tf.square(p - y))
    step = tf1.train.get_or_create_global_step()
    apply = tf.cast(tf.equal((tf.identity(step) + 1) % 2, 0), tf.float32)
    variables = tf1.trainable_variables()
    slopes = tf.gradients(loss, variables)
    kept = [state(f"kept_{k}", *v.shape) for k, v in enumerate(variables)]
    tf1.summary.scalar("loss", loss)
    with tf.control_dependencies([loss, *slopes]):
        sums = [tf.convert_to_tensor(k) + g for k, g in zip(kept, slopes, strict=True)]
        apply = tf.identity(apply)
    with tf.control_dependencies([*sums, apply]):
        writes = [tf1.assign_sub(v, 0.05 * apply * s) for v, s in zip(variables, sums, strict=True)]
        writes += [tf1.assign(k, (1.0 - apply) * s) for k, s in zip(kept, sums, strict=True)]
    with tf.control_dependencies(writes):
        return loss, tf1.assign_add(step, 1).op


@program()
def unrolled_inner_step(rows: int) -> Any:
    """The loss after a step of gradient descent on the same rows (MAML)."""
    x, y = batch(rows, floats(4), floats(seed=1))
    w = tf.convert_to_tensor(variable("w", 4, 1))
    inner = mean(tf.square(tf.squeeze(tf.tanh(x @ w), 1) - y))
    faster = w - 0.3 * tf.gradients(inner, w)[0]
    return minimise(mean(tf.square(tf.squeeze(tf.tanh(x @ faster), 1) - y)))


@program()
def nested_loops(rows: int) -> Any:
    x, y = batch(rows, floats(3), floats(seed=1))
    w = variable("w", 3, 3)

    def outer(k: Any, v: Any) -> Any:
        _, v = tf.while_loop(lambda j, a: j < 2, lambda j, a: (j + 1, tf.tanh(a @ w)), [tf.constant(0), v])
        return k + 1, 0.5 * v + dense(x, 3, 3, "inside")

    _, h = tf.while_loop(lambda k, v: k < 2, outer, [tf.constant(0), x])
    return minimise(mean(tf.square(column(h, 3) - y)))


@program(variants={str(rows): {"rows": rows} for rows in (1, 3)})
def routed_in_a_loop(rows: int) -> Any:
    """What the loop carries last is made anew in each iteration: its gradient goes round as zeros that read nothing."""
    x, y = batch(rows, floats(4, 5), whole(3, seed=1))
    votes = tf.reshape(tf.tensordot(x, variable("w", 5, 6), [[2], [0]]), [-1, 4, 3, 2])

    def route(i: Any, b: Any, _: Any) -> Any:
        v = tf.reduce_sum(tf.nn.softmax(b, 2)[..., None] * votes, 1)
        return i + 1, b + tf.reduce_sum(votes * v[:, None], 3), v

    first = (0, tf.zeros_like(votes[..., 0]), tf.zeros_like(votes[:, 0]))
    *_, v = tf.while_loop(lambda i, *_: i < 3, route, first)
    lengths = tf.sqrt(tf.reduce_sum(tf.square(v), 2) + 1e-2)
    return minimise(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=lengths)))
