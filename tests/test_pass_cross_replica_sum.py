"""The pass cross-replica-sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import (
    assert_cores_are_the_whole_batch,
    batches,
    check,
    finish,
    linear,
    rows_of,
    squared_error,
    tf1,
    trace,
    variable,
)
from tpugraph import testing
from tpugraph.analysis.step import Partitioned
from tpugraph.compiler import convert
from tpugraph.passes.cross_replica_sum import CrossReplicaSum
from tpugraph.support.errors import ConversionError, UsageError

TWO = CrossReplicaSum(num_replicas=2)
CLOSE = {"relative": 2e-5, "absolute": 2e-6}  # 4 cores sum 4 batches in another order
SGD = tf1.train.GradientDescentOptimizer


def report(build: Callable[[], Any], **options: Any) -> dict[str, Any]:
    return convert(trace(build), num_replicas=2, **options).report


def mean_loss(rows: int) -> Any:
    return tf.reduce_mean(squared_error(*linear(rows)))


def test_golden_step() -> None:
    graph = check(TWO, "step", num_replicas=2)
    (summed,) = graph.of_type("CrossReplicaSum")
    assert graph["update"].inputs[2] == summed.out()
    assert summed.inputs[1].node.attr("value").tolist() == [[0, 1]]
    assert graph.result(Partitioned).loss_reduction == "mean"


def test_golden_clip() -> None:
    graph = check(TWO, "clip", num_replicas=2)
    (summed,) = graph.of_type("CrossReplicaSum")
    assert {use.node.name for use in summed.uses()} == {"squared", "clipped"}


# ------------------------------------------------------------------ processing


@pytest.mark.parametrize("resource", [False, True])
def test_clip_by_global_norm_sees_the_global_gradient(resource: bool) -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        bias = variable("bias", ())
        loss = tf.reduce_mean(squared_error(features, targets + bias, weights))
        optimizer = tf1.train.AdamOptimizer(0.1)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.5)
        step = tf1.train.get_or_create_global_step()
        optimizer.apply_gradients(zip(clipped, variables, strict=True), global_step=step)

    assert_cores_are_the_whole_batch(build, **CLOSE, resource=resource)
    assert len(report(lambda: build(4))["collectives"]["combined"]) == 2


def test_each_gradient_clipped_and_decayed() -> None:
    def build(rows: int) -> None:
        optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
        pairs = optimizer.compute_gradients(mean_loss(rows))
        pairs = [(tf.clip_by_norm(g, 0.3) + 0.01 * v, v) for g, v in pairs]
        optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())

    assert_cores_are_the_whole_batch(build, **CLOSE)


def test_clip_by_value_of_the_global_gradient() -> None:
    def build(rows: int) -> None:
        optimizer = SGD(0.1)
        pairs = [(tf.clip_by_value(g, -0.2, 0.2), v) for g, v in optimizer.compute_gradients(mean_loss(rows))]
        optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())

    assert_cores_are_the_whole_batch(build, **CLOSE)


def test_a_rate_that_depends_on_the_gradient() -> None:
    """Each core alone would take another step length."""

    def build(rows: int) -> None:
        loss = mean_loss(rows)
        (weights,) = tf1.trainable_variables()
        (gradient,) = tf.gradients(loss, [weights])
        length = 0.1 / (1.0 + tf.norm(gradient))
        train = tf1.assign_sub(weights, length * gradient)
        with tf.control_dependencies([train]):
            tf1.assign_add(tf1.train.get_or_create_global_step(), 1)

    assert_cores_are_the_whole_batch(build, **CLOSE, resource=True)


def test_a_gradient_shared_by_two_optimizers() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        shadow = variable("shadow", (3, 1))
        loss = tf.reduce_mean(squared_error(features, targets, weights))
        (gradient,) = tf.gradients(loss, [weights])
        one = SGD(0.1).apply_gradients([(gradient, weights)])
        with tf.control_dependencies([one]):
            two = tf1.train.AdamOptimizer(0.05).apply_gradients([(gradient * 0.5, shadow)])
        with tf.control_dependencies([two]):
            tf1.assign_add(tf1.train.get_or_create_global_step(), 1)

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert len(report(lambda: build(4))["collectives"]["combined"]) == 1


def test_one_variable_with_two_applies() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        error = squared_error(features, targets, weights)
        first, second = tf.reduce_mean(error), tf.reduce_mean(tf.abs(features @ weights))
        gradients = [tf.gradients(loss, [weights])[0] for loss in (first, second)]
        one = SGD(0.1).apply_gradients([(gradients[0], weights)])
        with tf.control_dependencies([one]):
            two = tf1.train.MomentumOptimizer(0.01, 0.5).apply_gradients([(gradients[1], weights)])
        tf1.summary.scalar("loss", first + second)
        with tf.control_dependencies([two]):
            tf1.assign_add(tf1.train.get_or_create_global_step(), 1)

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert len(report(lambda: build(4))["collectives"]["combined"]) == 2


def test_the_norm_of_each_row_of_a_gradient() -> None:
    """A reduction of a gradient that is no backpropagation of a broadcast."""

    def build(rows: int) -> None:
        features, targets = batches(rows_of(96, 3), rows)
        weights = variable("w", (3, 2))
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(features @ weights, 1) - targets))
        optimizer = SGD(0.1)
        ((gradient, _),) = optimizer.compute_gradients(loss)
        unit = gradient / tf.sqrt(1e-3 + tf.reduce_sum(tf.square(gradient), 1, keepdims=True))
        optimizer.apply_gradients([(unit, weights)], global_step=tf1.train.get_or_create_global_step())

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert len(report(lambda: build(4))["collectives"]["combined"]) == 1


@pytest.mark.parametrize("kind", [tf.reduce_max, tf.reduce_sum])
def test_scalar_variables_under_norms_of_other_kinds(kind: Callable[..., Any]) -> None:
    """The norm is a scalar like the variable, and no gradient of it."""

    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        scale = variable("scale", ())
        loss = tf.reduce_mean(squared_error(features * scale, targets, weights))
        optimizer = SGD(0.1)
        pairs = optimizer.compute_gradients(loss)
        norm = tf.add_n([kind(tf.abs(gradient)) for gradient, _ in pairs])
        pairs = [(gradient / (0.5 + norm), v) for gradient, v in pairs]
        optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())

    assert_cores_are_the_whole_batch(build, **CLOSE)


# ------------------------------------------------------------------ mean, sum, weights


def test_a_sum_with_l2_counts_the_l2_once() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        loss = tf.reduce_sum(squared_error(features, targets, weights)) + 3.0 * tf.nn.l2_loss(weights)
        finish(loss, SGD(0.002))

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert report(lambda: build(4))["reduction"]["kind"] == "sum"


def test_a_sum_with_l2_of_a_function_of_the_variable_counts_the_l2_once() -> None:
    """The l2 joins the gradient before TanhGrad; the loss is named behind a scale and an Identity."""

    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        bounded = tf.tanh(weights)
        loss = 0.5 * (tf.reduce_sum(squared_error(features, targets, bounded)) + 3.0 * tf.nn.l2_loss(bounded))
        finish(tf.identity(loss), SGD(0.002))

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert report(lambda: build(4))["reduction"]["kind"] == "sum"


def test_a_mean_with_l2() -> None:
    def build(rows: int) -> None:
        loss = mean_loss(rows)
        finish(loss + 0.3 * tf.nn.l2_loss(tf1.trainable_variables()[0]), SGD(0.1))

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert report(lambda: build(4))["reduction"]["kind"] == "mean"


def test_a_sum_divided_by_the_traced_batch_is_a_mean() -> None:
    def build(rows: int) -> None:
        finish(tf.reduce_sum(squared_error(*linear(rows))) / float(rows), SGD(0.1))

    assert_cores_are_the_whole_batch(build, **CLOSE)
    assert report(lambda: build(4))["reduction"]["kind"] == "mean"


def test_weights_with_zeros_average_over_what_counts() -> None:
    """Some cores see no example that counts at all."""
    random = np.random.default_rng(5)
    weight = np.where(random.random(96) < 0.75, 0.0, random.random(96) * 2).astype(np.float32)

    def build(rows: int) -> None:
        features, targets, counts = batches((*rows_of(96, 3), weight), rows)
        error = tf.squeeze(features @ variable("w", (3, 1)), 1)
        loss = tf1.losses.mean_squared_error(targets, error, weights=counts)
        finish(loss, SGD(0.1))

    assert_cores_are_the_whole_batch(build, **CLOSE, rows=2)
    assert report(lambda: build(4))["reduction"]["kind"] in ("joint", "mean")


def test_a_loss_of_both_kinds() -> None:
    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        error = squared_error(features, targets, weights)
        finish(tf.reduce_mean(error) + tf.reduce_sum(tf.abs(features @ weights)), SGD(0.01))

    assert_cores_are_the_whole_batch(build, **CLOSE)
    found = report(lambda: build(4), loss_reduction="sum")
    assert found["reduction"] == {"kind": "sum", "reason": "chosen with --loss_reduction"}
    assert "--loss_reduction=sum decides how cores combine" in "".join(found["notes"])


def test_an_unknown_reduction_names_the_known_ones() -> None:
    testing.assert_raises_block(
        convert, trace(lambda: finish(mean_loss(4), SGD(0.1))), loss_reduction="median",
        words=["'median' is no loss reduction", "auto, mean or sum"], max_length=200, kind=UsageError,
    )  # fmt: skip


# ------------------------------------------------------------------ rows of embeddings


IDS = np.random.default_rng(8).integers(0, 9, (96, 3)).astype(np.int32)

OPTIMIZERS = {
    "sgd": lambda: SGD(0.3),
    "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "adagrad": lambda: tf1.train.AdagradOptimizer(0.3),
    "adam": lambda: tf1.train.AdamOptimizer(0.05),
    "ftrl": lambda: tf1.train.FtrlOptimizer(0.3, l1_regularization_strength=0.01),
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.05),
}


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_static_rows(name: str, resource: bool) -> None:
    def build(rows: int) -> None:
        ids, targets = batches((IDS, rows_of(96, 1)[1]), rows)
        picked = tf.nn.embedding_lookup(variable("table", (12, 2)), ids)
        finish(tf.reduce_mean(tf.square(tf.reduce_sum(picked, [1, 2]) - targets)), OPTIMIZERS[name]())

    assert_cores_are_the_whole_batch(build, **CLOSE, resource=resource)
    found = report(lambda: build(4))["collectives"]
    assert found["sums"] == len(found["combined"])


@pytest.mark.parametrize("name", ["adagrad", "momentum"])
def test_open_rows(name: str) -> None:
    """``embedding_lookup_sparse`` looks up as many rows as there are values, which differs from batch to batch."""

    def build(rows: int) -> None:
        ids, targets = batches((IDS, rows_of(96, 1)[1]), rows)
        kept = tf1.where(tf.greater(ids, 3))
        sparse = tf.SparseTensor(kept, tf.gather_nd(ids, kept), tf.shape(ids, out_type=tf.int64))
        picked = tf1.nn.safe_embedding_lookup_sparse([variable("table", (12, 2))], sparse, combiner="mean")
        finish(tf.reduce_mean(tf.square(tf.reduce_sum(picked, 1) - targets)), OPTIMIZERS[name]())

    assert_cores_are_the_whole_batch(build, **CLOSE)


def test_rows_under_a_sum() -> None:
    def build(rows: int) -> None:
        ids, targets = batches((IDS, rows_of(96, 1)[1]), rows)
        picked = tf.nn.embedding_lookup(variable("table", (12, 2)), ids)
        finish(tf.reduce_sum(tf.square(tf.reduce_sum(picked, [1, 2]) - targets)), SGD(0.01))

    assert_cores_are_the_whole_batch(build, **CLOSE)


# ------------------------------------------------------------------ updates of other kinds


def test_an_update_that_is_no_gradient() -> None:
    """The variable is written from what the loss reads, not from a gradient."""

    def build(rows: int) -> None:
        features, targets, weights = linear(rows)
        row = tf.transpose(features[:1])
        loss = tf.reduce_mean(squared_error(features, targets, weights + row))
        with tf.control_dependencies([loss]):
            train = tf1.assign(weights, row)
        with tf.control_dependencies([train]):
            tf1.assign_add(tf1.train.get_or_create_global_step(), 1)

    assert_cores_are_the_whole_batch(build, **CLOSE)


def test_a_random_noise_of_the_gradient_is_one_for_all_cores() -> None:
    def build(rows: int) -> None:
        optimizer = SGD(0.1)
        pairs = optimizer.compute_gradients(mean_loss(rows))
        pairs = [(g + tf.random.normal([3, 1], stddev=0.1, seed=11), v) for g, v in pairs]
        optimizer.apply_gradients(pairs, global_step=tf1.train.get_or_create_global_step())

    assert_cores_are_the_whole_batch(build, **CLOSE)


@pytest.mark.parametrize("optimizer", [SGD(0.1), tf1.train.AdagradOptimizer(0.1)], ids=["scatter", "unique"])
@pytest.mark.parametrize("reduce", [tf.reduce_mean, tf.reduce_sum], ids=["mean", "sum"])
def test_rows_that_are_alike_go_to_places_that_differ(reduce: Callable[[Any], Any], optimizer: Any) -> None:
    """The gradient of a sum of embeddings: ones on every core, and each core has places of its own."""
    ids = np.random.default_rng(0).integers(0, 32, (96,)).astype(np.int32)

    def build(rows: int) -> None:
        (places,) = batches((ids,), rows)
        loss = reduce(tf.reduce_sum(tf.gather(variable("table", (32, 3)), places), 1))
        with tf.control_dependencies([loss]):  # no gradient waits for it, so it might read the table after the update
            finish(loss, optimizer)

    assert_cores_are_the_whole_batch(build, relative=1e-5, absolute=1e-6, resource=True)


# ------------------------------------------------------------------ constants in doubt


COUNTED: dict[str, Callable[[Any, Any], Any]] = {
    "added": lambda seen, four: tf1.assign_add(seen, four),
    "assigned": lambda seen, four: tf1.assign(seen, seen + four),
    "through other numbers": lambda seen, four: tf1.assign(seen, tf.cast(four + tf.cast(seen, tf.float64), tf.float32)),
    "as ones": lambda seen, four: tf1.assign(seen, seen + tf.reduce_sum(tf.ones(four))),
}


def counted(rows: int, how: str = "added") -> None:
    """A counter that a constant is added to, as many as a batch has rows."""
    loss = mean_loss(rows)
    seen = variable("seen", (), trainable=False)
    kinds = {"through other numbers": tf.float64, "as ones": tf.int32}
    shape = [1] if how == "as ones" else []
    four = tf.constant(4, kinds.get(how, tf.float32), shape, name="four")
    with tf.control_dependencies([COUNTED[how](seen, four)]):
        loss = tf.identity(loss)
    finish(loss, SGD(0.1))


def seen(how: str, **options: Any) -> float:
    found = testing.run_on_cores(trace(lambda: counted(4, how)), steps=3, num_replicas=2, **options)
    return float(found.variables["seen"])


@pytest.mark.parametrize("how", COUNTED)
def test_a_constant_in_doubt_is_refused_with_the_flags_that_settle_it(how: str) -> None:
    with pytest.raises(ConversionError, match="a core's batch has 4 rows: if 'four' counts rows") as caught:
        report(lambda: counted(4, how))
    assert caught.value.fix == "--batch_constants=four if it counts rows, --literals=four if it does not"
    told = seen(how, batch_constants=("four",)) - seen(how, literals=("four",))
    assert told == pytest.approx(3 * (8 - 4), rel=1e-6)


def hardest(rows: int, many: int = 2) -> None:
    """The two hardest of four rows."""
    error = tf.nn.top_k(squared_error(*linear(rows)), tf.constant(many, name="many"))
    finish(tf.reduce_mean(error.values), SGD(0.01))


def shown_alone(rows: int) -> None:
    """The first two rows are part of a summary, and of nothing that is trained."""
    error = squared_error(*linear(rows))
    tf1.summary.histogram("first", tf.slice(error, [0], tf.constant([2], name="few")))
    finish(tf.reduce_mean(error), SGD(0.01))


def two_numbers(rows: int) -> None:
    """A counter that a vector is added to, neither of whose numbers is one of rows."""
    loss = mean_loss(rows)
    seen = variable("seen", (2,), trainable=False)
    with tf.control_dependencies([tf1.assign_add(seen, tf.constant([5.0, 7.0], name="pair"))]):
        loss = tf.identity(loss)
    finish(loss, SGD(0.1))


def test_a_constant_that_may_be_a_share_of_the_rows_is_refused_with_the_flags() -> None:
    with pytest.raises(
        ConversionError, match="takes rows of the batch up to 2, and a core's batch has 4 rows"
    ) as caught:
        report(lambda: hardest(4))
    assert caught.value.fix == "--batch_constants=many if it is a share of the rows, --literals=many if it is not"
    close = {"relative": 1e-5, "absolute": 1e-6}
    assert_cores_are_the_whole_batch(lambda rows: hardest(rows, rows // 2), **close, batch_constants=("many",))
    assert_cores_are_the_whole_batch(hardest, **close, literals=("many",))
    assert not [note for note in report(lambda: hardest(4), literals=("many",))["notes"] if "many" in note]
    shown = [note for note in report(lambda: shown_alone(4))["notes"] if "--literals=few if it does not" in note]
    assert "takes 2 of the 4 rows of a core's batch: read as a number of the model; --batch_constants=few" in shown[0]


def test_half_of_two_rows_is_settled_by_more_rows() -> None:
    """Every other 1 of the graph might be that half, too."""

    def first(rows: int) -> None:
        error = squared_error(*linear(rows))
        finish(tf.reduce_mean(tf.slice(error, [0], tf.constant([1], name="many"))), SGD(0.01))

    with pytest.raises(
        ConversionError, match="takes rows of the batch up to 1, and a core's batch has 2 rows"
    ) as caught:
        report(lambda: first(2))
    assert str(caught.value.fix).startswith(
        "write it as tf.shape(x)[0] // 2, or the graph with more rows a core, if it"
    )
    assert_cores_are_the_whole_batch(first, rows=2, relative=1e-5, absolute=1e-6, literals=("many",))
    (third,) = [note for note in report(lambda: first(3))["notes"] if "many" in note]
    assert "takes 1 of the 3 rows of a core's batch: read as a number of the model; write tf.shape(x)[0] // 2" in third
    largest = [note for note in report(lambda: hardest(2, 1))["notes"] if "--batch_constants=many" in note]
    assert "takes 1 of the 2 rows of a core's batch: read as a number of the model" in largest[0]


def test_of_two_rows_a_reshape_may_be_one_to_halves_and_the_report_says_so() -> None:
    def apart(rows: int) -> None:
        error = squared_error(*linear(rows))
        finish(tf.reduce_mean(tf.square(tf.reshape(error, [2, rows // 2]) - 1.0)), SGD(0.01))

    notes = " ".join(report(lambda: apart(2))["notes"])
    assert "'Reshape' reshapes the two rows of a core's batch to [2, 1]: the 2 is read as the rows" in notes


def multiplied(rows: int, by: float) -> None:
    """A sum, written as a mean times the rows that it is of, or a mean with a weight."""
    finish(tf.reduce_mean(squared_error(*linear(rows))) * tf.constant(by, name="weight"), SGD(0.01))


def test_a_mean_times_as_many_as_it_is_of_is_refused_with_the_flags() -> None:
    with pytest.raises(
        ConversionError, match="multiplies a mean over the batch by 4, and a core's batch has 4 rows"
    ) as caught:
        report(lambda: multiplied(4, 4.0))
    assert (
        caught.value.fix
        == "--batch_constants=weight if it counts what the mean is of, --literals=weight if it does not"
    )
    close = {"relative": 1e-5, "absolute": 1e-6}
    assert_cores_are_the_whole_batch(lambda rows: multiplied(rows, float(rows)), **close, batch_constants=("weight",))
    assert_cores_are_the_whole_batch(lambda rows: multiplied(rows, 4.0), **close, literals=("weight",))
    assert "weight" not in " ".join(report(lambda: multiplied(4, 8.0))["notes"])


def test_constants_that_cannot_be_settled_so_are_named() -> None:
    with pytest.raises(UsageError, match="there is no constant 'five' in the step"):
        report(lambda: counted(4), literals=("five",))
    with pytest.raises(UsageError, match="'four' is named by --batch_constants and by --literals"):
        report(lambda: counted(4), literals=("four",), batch_constants=("four",))
    with pytest.raises(UsageError, match=r"'pair' holds no number of rows: \[5.0, 7.0\] has"):
        report(lambda: two_numbers(4), batch_constants=("pair",))


def by_twice(rows: int) -> None:
    """The cost of a textbook, with the number of rows as Python has it."""
    finish(tf.reduce_sum(squared_error(*linear(rows))) / tf.constant(2.0 * rows, name="twice"), SGD(0.1))


def test_several_times_the_rows_below_a_sum_are_refused_with_the_flags_that_settle_them() -> None:
    with pytest.raises(
        ConversionError, match="by 8, which is 2 times the 4 rows of a core's batch: if 'twice'"
    ) as caught:
        report(lambda: by_twice(4))
    assert caught.value.fix == "--batch_constants=twice if it grows with the batch, --literals=twice if it does not"
    assert_cores_are_the_whole_batch(by_twice, relative=1e-5, absolute=1e-6, batch_constants=("twice",))
    assert report(lambda: by_twice(4), literals=("twice",))["reduction"]["kind"] == "sum"


def test_what_a_sum_over_the_batch_is_divided_by_is_named_where_it_equals_the_rows() -> None:
    def halved(rows: int) -> None:
        finish(tf.reduce_sum(squared_error(*linear(rows))) / tf.constant(4.0, name="four"), SGD(0.01))

    (note,) = report(lambda: halved(4))["notes"]
    assert "divides a sum over the batch by 'four', which equals the number of rows or elements that are summed" in note
    assert note.endswith("--batch_constants=four if it is, --literals=four if it is of the model")
    assert_cores_are_the_whole_batch(halved, relative=1e-5, absolute=1e-6, literals=("four",))
    for flags in ({"literals": ("four",)}, {"batch_constants": ("four",)}):
        assert report(lambda: halved(4), **flags)["notes"] == []
    assert report(lambda: halved(7))["notes"] == []


def by_factor(rows: int, factor: float) -> None:
    finish(tf.reduce_sum(squared_error(*linear(rows))) * tf.constant(factor, name="factor"), SGD(0.01))


@pytest.mark.parametrize(("rows", "factor", "divisor"), [(4, 1 / 4, 4), (8, 1 / 16, 16)])
def test_a_factor_that_may_be_one_over_the_rows_is_refused_with_the_flags(
    rows: int, factor: float, divisor: int
) -> None:
    """A quarter, which people write as well; and a sixteenth, of eight rows."""
    with pytest.raises(ConversionError, match=f"'mul' multiplies a sum over the batch by 1/{divisor}") as caught:
        report(lambda: by_factor(rows, factor))
    assert str(caught.value.fix).startswith("--batch_constants=factor if it is, --literals=factor if")


def test_a_flag_says_what_a_factor_is() -> None:
    assert_cores_are_the_whole_batch(
        lambda rows: by_factor(rows, 1 / rows), relative=1e-5, absolute=1e-6, batch_constants=("factor",)
    )
    assert_cores_are_the_whole_batch(
        lambda rows: by_factor(rows, 0.25), relative=1e-5, absolute=1e-6, literals=("factor",)
    )
    assert "factor" not in " ".join(report(lambda: by_factor(4, 0.3))["notes"])


def one_by_one(rows: int, kind: str) -> None:
    error = squared_error(*linear(rows))
    each = (
        tf.unstack(error)
        if kind == "unstack"
        else [error[i] if kind == "slice" else tf.gather(error, i) for i in range(rows)]
    )
    finish(tf.add_n(each), SGD(0.01))


@pytest.mark.parametrize(
    ("kind", "node"), [("unstack", "unstack"), ("slice", "strided_slice_3"), ("gather", "GatherV2_3")]
)
def test_rows_taken_one_by_one_are_refused(kind: str, node: str) -> None:
    with pytest.raises(
        ConversionError, match=f"'{node}' .* takes one row of the batch, and beside it each of the 4 rows"
    ):
        report(lambda: one_by_one(4, kind))


def test_a_constant_with_rows_of_its_own_is_refused() -> None:
    def build(weights: Any) -> None:
        finish(tf.reduce_mean(squared_error(*linear(4)) * tf.constant(weights, tf.float32, name="weights")), SGD(0.1))

    with pytest.raises(
        ConversionError, match="the constant 'weights' has 4 rows of its own, one for each row of a core's batch"
    ):
        report(lambda: build([0.1, 0.2, 0.3, 0.5]))
    assert report(lambda: build([0.5, 0.5, 0.5, 0.5]))


def test_a_sum_divided_by_one_less_than_the_rows_is_refused() -> None:
    def build() -> None:
        finish(tf.reduce_sum(squared_error(*linear(4))) / tf.constant(3.0, name="less"), SGD(0.1))

    with pytest.raises(
        ConversionError, match="'truediv' divides a sum over the batch by 3, one less than 4, the number"
    ) as caught:
        report(build)
    assert "--literals=less if it does not" in str(caught.value.fix)
    assert report(build, literals=("less",))["reduction"]["kind"] == "sum"


def hardest_half(rows: int) -> None:
    """The hardest of four rows, as many as arithmetic of floating numbers makes of their number."""
    error = squared_error(*linear(rows))
    half = tf.cast(tf.cast(tf.constant(rows, name="all"), tf.float32) * 0.5, tf.int32)
    finish(tf.reduce_mean(tf.nn.top_k(error, half).values), SGD(0.01))


def test_a_bound_made_of_what_may_be_the_rows_by_other_arithmetic_is_refused() -> None:
    with pytest.raises(
        ConversionError, match=r"\(TopKV2\) takes rows of the batch up to a number made of 'all', which is 4"
    ):
        report(lambda: hardest_half(4))
    assert report(lambda: hardest_half(4), literals=("all",))
