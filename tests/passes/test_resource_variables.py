import pytest
import tensorflow as tf

from models import by_hand, check, finish, linear, squared_error, tf1, trains_on_cores, variable
from tpugraph import testing
from tpugraph.passes.resource_variables import ResourceVariables
from tpugraph.support.errors import RolesError


def test_golden_step() -> None:
    check(ResourceVariables(), "step", after=False)


@pytest.mark.parametrize("case", ["average", "assign_output", "ref_switch"])
def test_golden_order(case: str) -> None:
    """The average is of the value after the update and the loss of that before; a value assigned is read behind the writes."""
    check(ResourceVariables(), case, find=by_hand, after=False)


def test_resource_variables_are_left_alone() -> None:
    text = """
        w = VarHandleOp() {dtype: float32, shape: []}
        read = ReadVariableOp(w) {dtype: float32}
        loss = Test(read)
        train = NoOp() ^loss
        """
    testing.check_pass(ResourceVariables(), text, text, edits="+0 -0 ~0", roles=by_hand)


def test_a_ref_variable_that_is_left_breaks_the_promise() -> None:
    graph = testing.parse("w = TemporaryVariable() {dtype: float32, shape: []}\nloss = Test(w)\ntrain = NoOp() ^loss")
    testing.run_pass(ResourceVariables(), graph, roles=by_hand)  # a known ref op is converted
    assert graph["w"].op == "VarHandleOp"


def test_a_graph_that_trains_nothing_is_refused() -> None:
    words = ["the graph has no train op", "--train_op"]
    testing.assert_raises_block(testing.run_pass, ResourceVariables(), testing.parse("x = Test()"), max_length=200,
                                kind=RolesError, words=words)  # fmt: skip


@pytest.mark.parametrize("resource", [False, True])
@trains_on_cores(relative=1e-5, absolute=1e-6)
def test_weight_average_by_control_dependency(rows: int, resource: bool) -> None:
    loss = tf.reduce_mean(squared_error(*linear(rows)))
    update = finish(loss, tf1.train.MomentumOptimizer(0.05, 0.9))
    average = tf1.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([update]):
        average.apply(tf1.trainable_variables())


@trains_on_cores(relative=1e-5, absolute=1e-6)
def test_the_result_of_an_assignment_enters_the_loss(rows: int) -> None:
    features, targets, weights = linear(rows)
    count = variable("count", (), trainable=False)
    scale = tf1.assign_add(count, 1.0)
    finish(tf.reduce_mean(squared_error(features, targets, weights)) * scale, tf1.train.GradientDescentOptimizer(0.01))


def test_a_read_beside_a_branch_comes_before_the_write_in_it() -> None:
    text = """
        w = VarHandleOp() {dtype: float32, shape: []}
        c = Const() {dtype: bool, value: true}
        two = Const() {dtype: float32, value: 2.0}
        read = ReadVariableOp(w) {dtype: float32}
        loss = Test(read)
        side = Switch(two, c) {T: float32}
        write = AssignVariableOp(w, side:1) {dtype: float32}
        train = NoOp() ^loss ^write
        """
    graph = testing.parse(text)
    testing.run_pass(ResourceVariables(), graph, roles=by_hand)
    assert graph["write"].controls == (graph["read"],)


@trains_on_cores(relative=1e-5, absolute=1e-6)
def test_a_variable_written_in_a_branch(rows: int) -> None:
    features, targets, weights = linear(rows)
    best = variable("best", (), trainable=False)
    loss = tf.reduce_mean(squared_error(features, targets, weights))
    train = finish(loss, tf1.train.GradientDescentOptimizer(0.1))
    step = tf1.train.get_global_step()
    with tf.control_dependencies([train]):
        odd = tf.equal(step % 2, 1)
        tf1.cond(odd, lambda: tf1.assign_add(best, 2.0), lambda: tf.identity(best))
