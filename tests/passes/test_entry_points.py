from dataclasses import replace
from typing import Any

import evaluating
import tensorflow as tf

from models import by_hand, check, finish, linear, squared_error, tf1, trace
from tpugraph import testing
from tpugraph.analysis.step import Cut, Results
from tpugraph.ir import Graph, graphdef
from tpugraph.passes.entry_points import EntryPoints
from tpugraph.roles.findings import Finding, Variable
from tpugraph.tpu.form_check import missing_entry_points
from tpugraph.tpu.program import USER_NAME


def test_golden() -> None:
    graph = check(EntryPoints(), "step", num_replicas=2, iterations_per_loop=3)
    assert missing_entry_points(graph, "train") == []
    graph = evaluating.check(EntryPoints(), "evaluation", num_replicas=2, iterations_per_loop=3)
    assert missing_entry_points(graph, "eval") == []


def test_a_graph_without_saver_saves_every_variable() -> None:
    def build() -> None:
        finish(tf.reduce_mean(squared_error(*linear(4))), tf1.train.MomentumOptimizer(0.1, 0.9))

    graph = trace(build)
    for node in graph.of_type("SaveV2", "RestoreV2"):
        graph.remove_all(graph.descendants([node]))
    found = testing.run_on_cores(graphdef.from_graph_def(graphdef.to_graph_def(graph)), steps=2, num_replicas=2)
    assert set(found.variables) == {"w", "w/Momentum", "global_step"}


STEP = """
    meta = TPUReplicateMetadata() {num_replicas: 2}
    w = VarHandleOp() {dtype: float32, shape: [3], container: "", shared_name: "w"} : resource[]
    w/init = Const() {dtype: float32, value: float32[3][1.0, 2.0, 3.0]} : float32[3]
    w/Assign = AssignVariableOp(w, w/init) {dtype: float32}
    it = IteratorV2() {container: "", output_shapes: ([2]), output_types: (float32), shared_name: ""} : resource[]
    data = Test() : variant[]
    make = MakeIterator(data, it)
    tpugraph/iterations_per_loop = Test() : int32[]
    tpugraph/iterations_per_loop/Initializer = Test() : int32[]
    limit/Assign = NoOp()
    loss = Test() : float32[]
    losses = Test() : float32[?]
    counts = Test() : int32[?]
    fed = NoOp()
    train = NoOp() ^loss
    """
NAMES = {
    "train": "loss",
    "last_loss": "loss",
    "losses": "losses",
    "enqueue": "fed",
    "limit_init": "limit/Assign",
    "counts": "counts",
}


def entered(
    text: str = "", *, results: dict[str, str] | None = None, tail: tuple[str, ...] = (), **fields: Any
) -> Graph:
    """The step and more behind the pass, with roles of which some fields are given."""
    graph = testing.parse(STEP + text)
    graph.keep(Results(NAMES | (results or {})))
    graph.keep(Cut(tail=tail))
    variables = {"w": Variable("w", initializer="w/Assign", key="w")}
    found = replace(by_hand(graph), variables=variables, iterator_initializers=("make",))
    testing.run_pass(EntryPoints(), graph, roles=replace(found, **fields))
    return graph


def controls(graph: Graph, name: str) -> list[str]:
    return [node.name for node in graph[name].controls]


def test_what_runs_for_its_effect_alone_runs_with_the_losses() -> None:
    text = """
    word = Const() {dtype: string, value: object[]"x"} : string[]
    look = PrintV2(word) {end: "", output_stream: "stderr"}
    read = Print(loss, word) {T: float32, U: (string), first_n: -1, message: "", summarize: 3} : float32[]
    reader = Test(read)
    count = NoOp()
    beside = NoOp()
    """
    graph = entered(text, tail=("count", "reader"))
    assert controls(graph, "tpugraph/dequeue") == ["tpugraph/last_loss/Keep", "look", "reader", "count"]


def test_summaries_of_variables_alone_are_read_apart() -> None:
    """Cut out of what merges them with others; what merges nothing then goes."""
    text = """
    tag = Const() {dtype: string, value: object[]"tag"} : string[]
    sent = OutfeedDequeueTuple() {device_ordinal: 0, dtypes: (float32), shapes: ([])} : float32[]
    value = ReadVariableOp(w) {dtype: float32} : float32[3]
    of_w = HistogramSummary(tag, value) {T: float32} : string[]
    of_step = ScalarSummary(tag, sent) {T: float32} : string[]
    inner = MergeSummary(of_w) {N: 1} : string[]
    outer = MergeSummary(inner, of_step) {N: 2} : string[]
    """
    graph = entered(text, summaries=[Finding("outer", "")])
    assert [t.node.name for t in graph["tpugraph/summaries"].inputs] == ["outer"]
    assert [t.node.name for t in graph["outer"].inputs] == ["of_step"]
    assert graph["outer"].attr("N") == 1
    assert [t.node.name for t in graph["tpugraph/state_summaries"].inputs] == ["of_w"]
    assert "inner" not in graph


EVALUATION = """
    value = Test() : float32[]
    rows = Test() : float32[?,3]
    """


def test_metrics_and_predictions_have_names_that_tensorflow_takes() -> None:
    graph = entered(
        EVALUATION, mode="eval", values={"mean (all)": "value", "AUC/ä": "value"}, predictions={"class id": "rows"},
        results={"prediction/class id": "rows"},
    )  # fmt: skip
    metrics = [node for node in graph if node.name.startswith("tpugraph/metrics/")]
    assert {node.name: node.attr(USER_NAME) for node in metrics} == {
        "tpugraph/metrics/mean__all_": "mean (all)",
        "tpugraph/metrics/AUC/_": "AUC/ä",
    }
    assert graph["tpugraph/predictions/class_id"].attr(USER_NAME) == "class id"
    assert graph["tpugraph/predictions/class_id"].inputs[0].node.name == "rows"
