"""Updates in conditionals, such as gradients that are gathered over steps and applied every k-th."""

from typing import Any

import pytest
import tensorflow as tf

from models import assert_same_on_cores, linear, squared_error, tf1, trains_on_cores, variable


def after(ops: list[Any]) -> Any:
    with tf.control_dependencies(ops):
        return tf.no_op()


def shown(rows: int, kind: Any = tf.reduce_mean) -> tuple[Any, Any]:
    """The loss of a linear model, with a summary, and the weights."""
    features, targets, weights = linear(rows)
    loss = kind(squared_error(features, targets, weights))
    tf1.summary.scalar("loss", loss)
    return loss, weights


def build(rows: int, every: int, kind: Any = tf.reduce_mean, *, clip: bool = False) -> None:
    """Add up the gradients in one variable; every k-th step, in a cond, apply their mean and start anew."""
    loss, weights = shown(rows, kind)
    gathered = variable("gathered", (3, 1), scale=0.0, trainable=False)
    optimizer = tf1.train.AdamOptimizer(0.05)
    step = tf1.train.get_or_create_global_step()
    added = tf1.assign_add(gathered, tf.gradients(loss, [weights])[0])
    counted = tf1.assign_add(step, 1)

    def apply() -> Any:
        mean = gathered.read_value() / every
        update = optimizer.apply_gradients([(tf.clip_by_norm(mean, 0.3) if clip else mean, weights)])
        with tf.control_dependencies([update]):
            return after([tf1.assign(gathered, tf.zeros_like(gathered))])

    with tf.control_dependencies([added, counted]):
        due = tf.equal(tf.math.floormod(step.read_value(), every), 0)
        tf.group(tf.cond(due, apply, tf.no_op), name="train")


@pytest.mark.parametrize("form", [{}, {"resource": True}, {"resource": True, "functional": True}])
@pytest.mark.parametrize("every", [2, 3])
def test_every_few_steps(every: int, form: dict[str, bool]) -> None:
    assert_same_on_cores(lambda rows: build(rows, every, clip=True), **form)


@pytest.mark.parametrize("resource", [False, True])
@trains_on_cores()
def test_the_gathered_gradient_is_read_by_its_variable(rows: int, resource: bool) -> None:
    """A ref variable has one snapshot for all readers, which shares its memory: who reads it late sees what was added."""
    loss, weights = shown(rows)
    gathered = variable("gathered", (3, 1), scale=0.0, trainable=False)
    optimizer, step = tf1.train.AdamOptimizer(0.05), tf1.train.get_or_create_global_step()

    def apply() -> Any:
        update = optimizer.apply_gradients([(gathered / 3, weights)])
        with tf.control_dependencies([update]):
            return after([tf1.assign(gathered, tf.zeros_like(gathered))])

    with tf.control_dependencies([tf1.assign_add(gathered, tf.gradients(loss, [weights])[0])]):
        done = tf.cond(tf.equal(tf.math.floormod(step + 1, 3), 0), apply, tf.no_op)
    with tf.control_dependencies([done]):
        tf1.assign_add(step, 1, name="train")


FUNCTIONAL = {"resource": True, "functional": True}


@trains_on_cores(**FUNCTIONAL)
def test_a_scale_of_the_loss_that_follows_whether_gradients_are_finite(rows: int) -> None:
    """Of the conditional there is one node, which is the train op; the weights move in a function."""
    loss, weights = shown(rows)
    scale = tf1.get_variable("scale", initializer=tf.constant(2.0**126), trainable=False)
    optimizer, step = tf1.train.AdamOptimizer(0.05), tf1.train.get_or_create_global_step()
    gradient = tf.gradients(loss * scale, [weights])[0] / scale
    finite = tf.reduce_all(tf.math.is_finite(gradient))

    def apply() -> Any:
        with tf.control_dependencies([optimizer.apply_gradients([(gradient, weights)], global_step=step)]):
            return tf.cond(step.read_value() > 2, lambda: after([scale.assign(scale * 2.0)]), tf.no_op)

    tf.cond(finite, apply, lambda: after([scale.assign(scale / 4.0), step.assign_add(1)]))


@trains_on_cores(**FUNCTIONAL)
def test_a_case_chooses_what_trains(rows: int) -> None:
    loss, weights = shown(rows)
    gradient, step = tf.gradients(loss, [weights])[0], tf1.train.get_or_create_global_step()
    choices = [tf1.train.GradientDescentOptimizer(0.1), tf1.train.AdagradOptimizer(0.1)]
    updates = [lambda o=o: after([o.apply_gradients([(gradient, weights)])]) for o in choices]
    with tf.control_dependencies([tf.switch_case(tf.cast(step % 3, tf.int32), [*updates, tf.no_op])]):
        tf1.assign_add(step, 1)


@trains_on_cores(**FUNCTIONAL)
def test_a_function_that_trains(rows: int) -> None:
    loss, weights = shown(rows)
    step = tf1.train.get_or_create_global_step()

    @tf.function
    def train(gradient: Any) -> Any:
        weights.assign_sub(0.1 * gradient)
        return step.assign_add(1)

    train(tf.gradients(loss, [weights])[0])
