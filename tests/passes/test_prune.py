from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

from models import batches, by_hand, check, finish, linear, rows_of, squared_error, tf1, trace, trains_on_cores
from tpugraph import roles, testing
from tpugraph.ir import Graph
from tpugraph.passes.prune import Prune
from tpugraph.roles.findings import Finding, Variable
from tpugraph.support.errors import RolesError


def test_golden_step() -> None:
    graph = check(Prune(), "step")
    assert graph.roles.variables.keys() == {"w", "step", "decay"}


def test_what_initialisers_need_stays() -> None:
    """The first value of one variable is computed from another that the step does not read."""
    graph = testing.parse(
        """
        base = VariableV2() {dtype: float32, shape: []}
        base/init = Test()
        base/Assign = Assign(base, base/init) {T: float32}
        w = VariableV2() {dtype: float32, shape: []}
        w/init = Identity(base) {T: float32}
        w/Assign = Assign(w, w/init) {T: float32}
        loss = Test(w)
        train = NoOp() ^loss
        """
    )

    def find(graph):
        found = by_hand(graph)
        for name in ("base", "w"):
            found.variables[name].initializer = f"{name}/Assign"
        return found

    assert str(testing.run_pass(Prune(), graph, roles=find)) == "+0 -0 ~0"


def test_colocation_with_what_is_gone_is_forgotten() -> None:
    graph = testing.parse('gone = Test()\nloss = Test() {_class: ("loc:@gone")}\ntrain = NoOp() ^loss')
    assert str(testing.run_pass(Prune(), graph, roles=by_hand)) == "+0 -1 ~1"
    assert not graph["loss"].has_attr("_class")


def test_the_queue_that_feeds_the_step_keeps_its_enqueues() -> None:
    def build() -> None:
        queues = [tf1.FIFOQueue(10, tf.float32, [3, 3], name=name) for name in ("used", "unused")]
        values, _ = rows_of(3, 3)
        for queue in queues:
            queue.enqueue(tf.constant(values), name=f"fill_{queue.name}")
        loss = tf.reduce_mean(tf.square(queues[0].dequeue() @ linear(4)[2]))
        finish(loss, tf1.train.GradientDescentOptimizer(0.1))

    graph = trace(build)
    testing.run_pass(Prune(), graph, roles=roles.find)
    assert graph.roles.enqueues == ("fill_used",)
    assert "used" in graph
    assert "unused" not in graph


def test_a_graph_that_trains_nothing_is_refused() -> None:
    words = ["the graph has no train op", "--train_op"]
    testing.assert_raises_block(testing.run_pass, Prune(), testing.parse("x = Test()"), max_length=200, kind=RolesError,
                                words=words)  # fmt: skip


@trains_on_cores(relative=1e-5, absolute=1e-6)
def test_numbers_do_not_change(rows: int) -> None:
    features, targets, weights = linear(rows)
    error = squared_error(features, targets, weights)
    tf.identity(tf.reduce_max(error), name="unread")
    finish(tf.reduce_mean(error), tf1.train.GradientDescentOptimizer(0.1))
    batches(rows_of(8, 2), 2)  # an input that nothing reads


STEP = """
    w = VarHandleOp() {dtype: float32, shape: [], container: "", shared_name: "w"} : resource[]
    loss = Test(w)
    train = NoOp() ^loss
    """


def pruned(text: str, **fields: Any) -> Graph:
    """The step and more behind the pass, with roles of which some fields are given."""
    graph = testing.parse(STEP + text)
    testing.run_pass(Prune(), graph, roles=replace(by_hand(graph), **fields))
    return graph


def test_summaries_metrics_and_variables_of_checkpoints_stay() -> None:
    text = """
    kept = VarHandleOp() {dtype: float32, shape: [], container: "", shared_name: "kept"} : resource[]
    gone = VarHandleOp() {dtype: float32, shape: [], container: "", shared_name: "gone"} : resource[]
    summary = Test(loss)
    mean/value = Test(loss)
    unread = Test(loss)
    """
    variables = {"w": Variable("w"), "kept": Variable("kept", key="average"), "gone": Variable("gone")}
    graph = pruned(text, summaries=[Finding("summary", "")], values={"mean": "mean/value:0"}, variables=variables)
    assert {node.name for node in graph} == {"w", "loss", "train", "kept", "summary", "mean/value"}
    assert graph.roles.variables.keys() == {"w", "kept"}


@pytest.mark.parametrize("mode", ["eval", "predict"])
def test_without_training_the_train_op_is_no_part_of_the_step(mode: str) -> None:
    text = "score = Test(w)\nupdate = Test(loss)"
    graph = pruned(text, mode=mode, updates=[Finding("update", "")], predictions={"score": "score:0"})
    assert {node.name for node in graph} == {"w", "loss", "score", "update"}


TABLE = "HashTableV2() {key_dtype: string, value_dtype: int64} : resource[]"
TABLES = f"""
    names = Const() {{dtype: string, value: object[1]["a"]}} : string[1]
    used = {TABLE}
    fill_used = InitializeTableV2(used, names, names) {{Tkey: string, Tval: string}}
    unused = {TABLE}
    fill_unused = InitializeTableV2(unused, names, names) {{Tkey: string, Tval: string}}
    found = Test(used)
    summary = Test(found)
    """


def test_a_table_that_the_step_looks_up_is_filled_and_no_other() -> None:
    graph = pruned(TABLES, table_initializers=("fill_used", "fill_unused"), summaries=[Finding("summary", "")])
    assert graph.roles.table_initializers == ("fill_used",)
    assert "unused" not in graph


def test_an_iterator_that_the_step_reads_is_started_and_no_other() -> None:
    iterator = (
        'IteratorV2() {container: "", output_shapes: ([2]), output_types: (float32), shared_name: ""} : resource[]'
    )
    text = "\n".join(
        f"{name} = {iterator}\n{name}/data = Test({read})\n{name}/make = MakeIterator({name}/data, {name})"
        for name, read in (("one", ""), ("behind", ""), ("two", "behind"))
    )
    batch = "batch = IteratorGetNext(two) {output_shapes: ([2]), output_types: (float32)} : float32[2]\nmetric = Test(batch)"
    graph = pruned(
        f"{text}\n{batch}", iterator_initializers=("one/make", "behind/make", "two/make"), values={"m": "metric:0"},
        inputs=[Finding("batch", ""), Finding("one", "")],
    )  # fmt: skip
    assert graph.roles.iterator_initializers == ("behind/make", "two/make")
    assert [finding.name for finding in graph.roles.inputs] == ["batch"]
    assert "one" not in graph


def test_a_second_time_nothing_is_left_to_prune() -> None:
    graph = testing.parse(f"{STEP}unread = Test(loss)\nmore = Test(unread)")
    assert str(testing.run_pass(Prune(), graph, roles=by_hand)) == "+0 -2 ~0"
    assert str(testing.run_pass(Prune(), graph)) == "+0 -0 ~0"


def test_what_is_read_inside_a_loop_stays_with_the_whole_loop() -> None:
    text = """
    first = Enter(w) {T: resource, frame_name: "f", is_constant: false, parallel_iterations: 10}
    merge = Merge(first, next) {N: 2, T: resource}
    test = Test(merge)
    end = LoopCond(test)
    switch = Switch(merge, end) {T: resource}
    next = NextIteration(switch:1) {T: resource}
    exit = Exit(switch) {T: resource}
    watch = Test(switch:1)
    summary = Test(exit)
    """
    graph = pruned(text, summaries=[Finding("summary", "")])
    assert "watch" not in graph
    assert {"first", "merge", "test", "end", "switch", "next", "exit"} <= {node.name for node in graph}
