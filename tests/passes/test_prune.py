from dataclasses import replace
from typing import Any

from models import by_hand, check
from tpugraph import testing
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


def test_what_is_gone_is_forgotten() -> None:
    graph = testing.parse('gone = Test()\nloss = Test() {_class: ("loc:@gone")}\ntrain = NoOp() ^loss')
    assert str(testing.run_pass(Prune(), graph, roles=by_hand)) == "+0 -1 ~1"
    assert not graph["loss"].has_attr("_class")
    words = ["the graph has no train op", "--train_op"]
    testing.assert_raises_block(testing.run_pass, Prune(), testing.parse("x = Test()"), max_length=200, kind=RolesError,
                                words=words)  # fmt: skip


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
