"""Patterns of nodes: what they bind, and what they say where they do not match."""

import pytest

from tpugraph import testing
from tpugraph.ir import Graph, Node
from tpugraph.ir.pattern import Match, Rule, anything, apply, behind, either, handed_on, match, number, op, when

GRAPH = """
    x = Test()
    y = Test()
    one = Const() {dtype: float32, value: float32[]1.0}
    few = Const() {dtype: float32, value: float32[2][1.0, 2.0]}
    same = Identity(x) {T: float32}
    cast = Cast(same) {SrcT: float32, DstT: int32, Truncate: false}
    sum = AddV2(same, one) {T: float32}
    twice = Mul(sum, sum) {T: float32}
    other = Mul(sum, x) {T: float32}
    split = Split(one, x) {T: float32, num_split: 2}
    """


@pytest.fixture
def graph() -> Graph:
    return testing.parse(GRAPH)


def test_what_a_pattern_binds(graph: Graph) -> None:
    found = match(op("AddV2", anything("value"), number(1, "by"), name="sum"), graph["sum"].out())
    assert found
    assert (found["value"], found["by"], found["sum"]) == tuple(graph[n].out() for n in ("same", "one", "sum"))
    assert found.why == ""
    sum_ = graph["sum"].out()
    assert not match(op("AddV2", number(1), anything()), sum_)
    assert match(op("AddV2", number(1), anything("value"), swaps=True), sum_)["value"] == graph["same"].out()
    square = op("Mul", anything("x"), anything("x"))
    assert match(square, graph["twice"].out())["x"] == graph["sum"].out()
    assert match(square, graph["other"].out()).why == "'x' (Test) is no 'sum', which stands there too"
    assert match(handed_on(anything("x")), graph["same"].out())["x"] == graph["x"].out()
    assert match(behind({"Cast", "Identity"}, op("Test", name="x")), graph["cast"].out())["x"] == graph["x"].out()


@pytest.mark.parametrize(
    ("name", "pattern", "why"),
    [
        ("sum", op(("Sub", "Mul")), "'sum' (AddV2) is no Mul or Sub"),
        ("sum", op("AddV2", op("Cast")), "'same' (Identity) is no Cast"),
        ("sum", op("AddV2", anything(), number(2)), "'one' (Const) is no constant 2"),
        ("few", number(), "'few' (Const) is no constant number"),
        ("cast", op("Cast", attrs={"Truncate": True}), "'cast' (Cast) is no Cast with Truncate=True"),
        ("x", op("Test", anything(), anything()), "'x' (Test) is no Test with at least 2 inputs"),
        ("split", op("Split", port=1), "'split' (Split) is no Split whose output 1 is read"),
    ],
)
def test_a_failed_match_says_which_node_is_another(name: str, pattern, why: str) -> None:
    found = match(pattern, testing.parse(GRAPH)[name].out())
    assert not found
    assert found.why == why
    assert found.bound == {}


def test_of_several_ways_the_one_that_went_furthest_is_told(graph: Graph) -> None:
    far = op("Mul", op("AddV2", anything(), number(7)))
    found = match(either(op("Sub"), far, op("Div")), graph["twice"].out())
    assert found.why == "'one' (Const) is no constant 7"
    assert match(either(far, anything("all")), graph["twice"].out())["all"] == graph["twice"].out()


PLUS_ONE = op("AddV2", anything("x"), number(1), swaps=True)


def test_which_nodes_rules_rewrite(graph: Graph) -> None:
    square = Rule(op("Mul", anything("x"), anything("x")), _square)
    found = apply(graph, [Rule(PLUS_ONE, lambda graph, node, found: found["x"]), square])
    assert {node.name: why for node, why in found.items()} == {
        "sum": "", "twice": "", "other": "'x' (Test) is no 'same', which stands there too",
    }  # fmt: skip
    assert graph["twice"].op == "Square"
    assert graph["twice"].inputs == (graph["same"].out(),), "the sum was rewritten before what reads it"
    assert graph["other"].inputs[0] == graph["same"].out()
    again = Rule(anything("x"), lambda graph, node, found: graph.remove_all([graph["twice"], graph["other"]]) and None)
    assert list(apply(graph, [again], [graph["x"], graph["twice"]])) == [graph["x"]]
    assert apply(graph, [Rule(PLUS_ONE, lambda graph, node, found: None)], [graph["x"], graph["few"]]) == {}


def _square(graph: Graph, node: Node, found: Match) -> None:
    graph.retype(node, "Square", inputs=[found["x"]], attrs={"T": node.attr("T")})


def test_a_pattern_with_a_condition_says_what_it_expected(graph: Graph) -> None:
    few = when(either(number(), op("Const")), lambda tensor: tensor.node.attr("value").size == 2, "pair")
    assert match(few, graph["few"].out())
    assert match(few, graph["one"].out()).why == "'one' (Const) is no pair"
