"""Each module of the roles by itself: the loss, the writes that train, the step counter and the variables."""

import pytest

from tpugraph import testing
from tpugraph.analysis.state import flows_from
from tpugraph.ir import Graph
from tpugraph.roles import training_roles
from tpugraph.roles.evaluation_roles import PlainStep
from tpugraph.support.errors import RolesError

STEP = """
    x = Placeholder() {dtype: float32, shape: []} : float32[]
    w = VarHandleOp() {dtype: float32, shape: [], shared_name: "w", container: ""} : resource[]
    read = ReadVariableOp(w) {dtype: float32} : float32[]
    loss = Mul(read, x) {T: float32} : float32[]
    tag = Const() {dtype: string, value: object[]"loss"} : string[]
    said = ScalarSummary(tag, loss) {T: float32} : string[]
    rate = Const() {dtype: float32, value: float32[]0.1} : float32[]
    slope = Mul(x, rate) {T: float32} : float32[]
    update = AssignSubVariableOp(w, slope) ^read {dtype: float32}
    step = VarHandleOp() {dtype: int64, shape: [], shared_name: "step", container: ""} : resource[]
    one = Const() {dtype: int64, value: int64[]1} : int64[]
    count = AssignAddVariableOp(step, one) ^update {dtype: int64}
    train = NoOp() ^count
    """


def read() -> Graph:
    return testing.parse(STEP)


def test_the_loss_is_the_scalar_that_is_summarised_as_one() -> None:
    graph = read()
    varying = flows_from(graph, [graph["x"]])
    finding, others = training_roles.find_loss(graph, varying, [graph["update"]], None)
    assert (finding.name, others) == ("loss", [])
    assert "summarised under the tag 'loss'" in finding.reason
    with pytest.raises(RolesError, match="'nowhere'"):
        training_roles.find_loss(graph, varying, [graph["update"]], "nowhere")


def test_the_writes_of_what_the_loss_reads_train() -> None:
    graph = read()
    assert training_roles.find_updates(graph, [graph["update"]], graph["loss"].out()) == [graph["update"]]
    found, _ = training_roles.find_train_op(graph, [graph["update"]], [graph["update"], graph["count"]])
    assert [finding.name for finding in found] == ["train"]


def test_the_step_counter_is_the_whole_scalar_that_grows_by_one() -> None:
    graph = read()
    writes, cone = [graph["update"], graph["count"]], graph.ancestors([graph["train"]])
    step = training_roles.find_step(graph, writes, cone)
    assert step is not None
    assert (step.name, step.reason) == ("step", "a scalar int64 that 'count' increments by one")
    graph.set_input(graph["count"], 1, graph["x"].out())
    assert training_roles.find_step(graph, writes, cone) is None


def test_all_roles_of_a_step() -> None:
    found = training_roles.find(read())
    assert (found.loss.name, [f.name for f in found.train_ops], found.trained) == ("loss", ["train"], ["w"])


def test_a_graph_that_trains_nothing_says_so() -> None:
    error = training_roles.no_train_op(testing.parse("x = Test()"))
    assert "the graph has no train op: no variable is updated from the input" in error.block()


def test_a_step_that_is_to_be_evaluated_trains_nothing_and_reads_an_input() -> None:
    found = PlainStep(read())
    assert [node.name for node in found.moving] == ["update", "count"]
    found.kept.add("w")
    with pytest.raises(RolesError, match="the graph trains: 'update' writes 'w'"):
        found.check_no_training("eval", found.moving)
    with pytest.raises(RolesError, match="the graph reads no input"):
        PlainStep(testing.parse("x = Const() {dtype: float32, value: float32[]1.0} : float32[]")).check_input()
