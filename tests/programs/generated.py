"""Random valid training programs: each is a choice for every field, printed as the choices that are not the first.

    rows=2 first=loop_max loss=pairs clip=global_norm

A matrix with a row for each example runs through a front, up to three layers, and one or two losses; the sizes are small
and often equal, so that what only looks like the batch is there to be mistaken for it.
"""

import random

from . import layers
from .clipping import CLIPS
from .parts import *

Spec = dict[str, Any]


# --------------------------------------------------------------------------- fronts


def front(kind, rows, spec: Spec) -> tuple[Any, Any, Any]:
    width, units, time, vocabulary = (spec[key] for key in ("width", "units", "time", "vocabulary"))
    ids = whole(vocabulary, time) if kind in ("bag", "positions") else whole(vocabulary)
    feature = floats(width) if kind == "dense" else floats(2, 2, width) if kind == "conv" else ids
    x, y, c = batch(rows, feature, floats(seed=1), whole(3, seed=2))
    if kind == "dense":
        return dense(x, width, units, "front", tf.tanh), y, c
    if kind == "conv":
        h = tf.nn.bias_add(
            tf.nn.conv2d(x, variable("filter", 2, 2, width, units), 1, "SAME"), variable("offset", units)
        )
        return mean(tf.tanh(h), [1, 2]), y, c
    table = variable("table", vocabulary, units)
    if kind == "one_hot":
        return tf.one_hot(x, vocabulary) @ table, y, c
    h = tf.nn.embedding_lookup(table, x)
    if kind == "positions":
        h = tf.tanh(h + tf.nn.embedding_lookup(variable("places", time + 1, units), tf.range(time)))
    return mean(h, 1) if kind in ("bag", "positions") else h, y, c


FRONTS = ("dense", "embedding", "one_hot", "bag", "positions", "conv")


# --------------------------------------------------------------------------- losses

LOSSES: dict[str, Callable[[Any, Any, Any, Any, Spec], Any]] = {
    "mean": lambda p, y, c, h, s: mean(tf.square(p - y)),
    "sum": lambda p, y, c, h, s: 0.1 * total(tf.square(p - y)),
    "sum_by_size": lambda p, y, c, h, s: total(tf.square(p - y)) / tf.cast(layers.count(p), tf.float32),
    "classes": lambda p, y, c, h, s: mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=c, logits=dense(h, s["units"], 3, "classes"))
    ),
    "sigmoid": lambda p, y, c, h, s: tf1.losses.sigmoid_cross_entropy(tf.cast(y > 0, tf.float32), p),
    "weighted": lambda p, y, c, h, s: tf1.losses.mean_squared_error(y, p, weights=tf.cast(c, tf.float32) + 0.5),
    "nonzero": lambda p, y, c, h, s: tf1.losses.mean_squared_error(y, p, weights=tf.cast(c, tf.float32)),
    "sum_of_means": lambda p, y, c, h, s: 0.3 * total(mean(tf.square(h - y[:, None]), 0)),
    "row_maxima": lambda p, y, c, h, s: mean(tf.reduce_max(tf.square(h - y[:, None]), 1)),
    "root": lambda p, y, c, h, s: tf.sqrt(mean(tf.square(p - y)) + 0.01),
    "logarithm": lambda p, y, c, h, s: tf.math.log(mean(tf.square(p - y)) + 0.2),
    "log_sum_exp": lambda p, y, c, h, s: tf.reduce_logsumexp(tf.square(p - y)),
    "maximum": lambda p, y, c, h, s: tf.reduce_max(tf.square(p - y)),
    "product": lambda p, y, c, h, s: mean(tf.square(p - y)) * (0.5 + mean(tf.square(h))),
    "variance": lambda p, y, c, h, s: mean(tf.square(p - y)) + mean(tf.square(p - mean(p))),
    "softmax_of_rows": lambda p, y, c, h, s: total(tf.nn.softmax(p) * tf.square(p - y)),
    "learnt_weights": lambda p, y, c, h, s: (lambda w: total(w * tf.square(p - y)) / total(w))(tf.nn.softplus(p) + 0.1),
    "pairs": lambda p, y, c, h, s: mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.range(layers.count(h)), logits=tf.matmul(h, tf.tanh(h + y[:, None]), transpose_b=True)
        )
    ),
    "triplets": lambda p, y, c, h, s: layers.triplets(h, c),
    "top_k": lambda p, y, c, h, s: mean(tf.nn.top_k(tf.square(p - y), k=(layers.count(p) + 1) // 2).values),
    "sorted": lambda p, y, c, h, s: mean(tf.square(tf.sort(p) - tf.sort(y))),
    "running_sum": lambda p, y, c, h, s: 0.2 * mean(tf.square(tf.cumsum(p - y))),
    "chosen": lambda p, y, c, h, s: total(tf.boolean_mask(tf.square(p - y), y > 0)) / (total(tf.cast(y > 0, tf.float32)) + 1.0),
    "covariance": lambda p, y, c, h, s: mean(tf.square(p - y)) + layers.correlation(h, s["units"]),
    "slope": lambda p, y, c, h, s: mean(tf.square(p - y)) + 0.1 * mean(total(tf.square(tf.gradients(p, h)[0]), 1)),
    "tiled_pairs": lambda p, y, c, h, s: mean(tf.square(layers.tiled_pairs(p, y))),
    "repeated_pairs": lambda p, y, c, h, s: mean(tf.square(layers.repeated_pairs(p, y))),
    "pairs_of_two": lambda p, y, c, h, s: total(tf.square(layers.pairs_of_two(p, y))),
    "critic": lambda p, y, c, h, s: mean(tf.square(p)) + mean(y * p),
}  # fmt: skip


HIDDEN = ("classes", "sum_of_means", "row_maxima", "pairs", "triplets")
"""Losses that have no need of one number per row."""


# --------------------------------------------------------------------------- train ops


def lars(g, v):
    return 0.02 * g * (tf.norm(v) + 0.1) / (tf.norm(g) + 0.1)


OPTIMIZERS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "sgd": lambda loss, clip: minimise(loss, sgd(0.05), clip=clip),
    "adam": lambda loss, clip: minimise(loss, adam(), clip=clip),
    "momentum": lambda loss, clip: minimise(loss, tf1.train.MomentumOptimizer(0.03, 0.9, use_nesterov=True), clip=clip),
    "adagrad": lambda loss, clip: minimise(loss, tf1.train.AdagradOptimizer(0.05, 0.1), clip=clip),
    "rmsprop": lambda loss, clip: minimise(loss, tf1.train.RMSPropOptimizer(0.02, epsilon=1e-2), clip=clip),
    "hand": lambda loss, clip: by_hand(loss, lambda g, v: 0.05 * (clip([g])[0] if clip else g)),
    "tangent": lambda loss, clip: by_hand(loss, lambda g, v: 0.03 * tf.tanh(5.0 * g)),
    "lars": lambda loss, clip: by_hand(loss, lars),
}


# --------------------------------------------------------------------------- beside the train op


def after(loss, train, updates: Callable[[], Any]):
    with tf.control_dependencies([train, loss]):
        return tf.group(updates(), name="all")


EXTRAS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "none": lambda loss, train, y: train,
    "count": lambda loss, train, y: after(
        loss, train, lambda: tf1.assign_add(state("seen", kind=tf.int32), tf.shape(y)[0]).op
    ),
    "sum": lambda loss, train, y: after(loss, train, lambda: tf1.assign_add(state("seen"), total(y)).op),
    "maximum": lambda loss, train, y: after(
        loss, train, lambda: (lambda v: tf1.assign(v, tf.maximum(v, tf.reduce_max(y))).op)(state("high"))
    ),
    "metric": lambda loss, train, y: after(loss, train, lambda: tf1.metrics.mean(y)[1].op),
    "average": lambda loss, train, y: after(
        loss, train, lambda: tf1.train.ExponentialMovingAverage(0.9).apply(tf1.trainable_variables())
    ),
    "loss_average": lambda loss, train, y: after(
        loss, train, lambda: (lambda v: tf1.assign_sub(v, 0.1 * (tf.convert_to_tensor(v) - loss)).op)(state("past"))
    ),
}  # fmt: skip


# --------------------------------------------------------------------------- programs

SIZES = (2, 3, 1, 4)
FIELDS: dict[str, tuple[Any, ...]] = {
    "rows": SIZES,
    "front": FRONTS,
    "first": tuple(layers.LAYERS),
    "second": tuple(layers.LAYERS),
    "third": tuple(layers.LAYERS),
    "loss": tuple(LOSSES),
    "other": ("none", *LOSSES),
    "tied": (False, True),
    "decay": (False, True),
    "clip": ("none", *CLIPS),
    "optimizer": tuple(OPTIMIZERS),
    "extra": tuple(EXTRAS),
    "open": (False, True),
    "resource": (False, True),
    "width": (4, 3, 2, 1),
    "units": (3, 4, 2, 1),
    "time": (2, 3, 4, 1),
    "vocabulary": (4, 3, 2),
}
DEFAULT: Spec = {key: choices[0] for key, choices in FIELDS.items()}
USUAL = 0.45
"""How often a field takes its first choice, beside its share of the draws."""


def draw(source: random.Random, usual=USUAL) -> Spec:
    sized = ("rows", "width", "units", "time", "vocabulary")
    return {key: choices[0] if key not in sized and source.random() < usual else source.choice(choices)
            for key, choices in FIELDS.items()}  # fmt: skip


def text(spec: Mapping[str, Any]):
    """The choices that are not the first ones; :func:`parse` reads them."""
    return " ".join(f"{key}={value}" for key, value in spec.items() if value != DEFAULT[key]) or "plain"


def parse(source) -> Spec:
    """The program that :func:`text` printed."""
    spec = dict(DEFAULT)
    for word in source.replace(",", " ").split():
        key, _, value = word.partition("=")
        if word != "plain":
            spec[key] = next(choice for choice in FIELDS[key] if str(choice) == value)
    return spec


def head(kind, h, y, c, spec: Spec):
    """A loss of hidden values, and of a number per row that is made of them where it has need of one."""
    p = None if kind in HIDDEN else column(h, spec["units"])
    return LOSSES[kind](p, y, c, h, spec)


def build(rows, spec: Spec) -> tuple[Any, Any]:
    units, updates = spec["units"], []
    h, y, c = front(spec["front"], rows, spec)
    for place in ("first", "second", "third"):
        tied = spec["tied"] and "norm" not in spec[place]  # averages that are moved twice would race
        with tf1.variable_scope("tied" if tied else place, reuse=tf1.AUTO_REUSE):
            h = layers.LAYERS[spec[place]](h, layers.Context(units, spec["time"], rows, y, updates))
    loss = head(spec["loss"], h, y, c, spec)
    if spec["other"] != "none":
        with tf1.variable_scope("other"):
            loss += 0.3 * head(spec["other"], tf.tanh(h), y, c, spec)
    if spec["decay"]:
        with tf.control_dependencies([loss]):
            loss += 0.02 * tf.add_n([tf.nn.l2_loss(tf.convert_to_tensor(v)) for v in tf1.trainable_variables()])
    with tf.control_dependencies([*updates, loss]):
        loss, train = OPTIMIZERS[spec["optimizer"]](loss, CLIPS.get(spec["clip"]))
    return loss, EXTRAS[spec["extra"]](loss, train, y)


def made(spec: Spec) -> Program:
    return Program(text(spec), build, spec["rows"], spec["open"], sizes={"spec": spec}, resource=spec["resource"])


def shrunk(source, fails: Callable[[str], bool], tries=60):
    """A simpler program that fails too: field by field, the first choice is tried, until no more can be had."""
    spec, again = parse(source), True
    while again:
        again = False
        for key, first in DEFAULT.items():
            if spec[key] != first and tries > 0:
                tries -= 1
                simpler = {**spec, key: first}
                if fails(text(simpler)):
                    spec, again = simpler, True
    return text(spec)
