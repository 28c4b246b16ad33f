"""Frames, regions and parts of TF1 loops and conditionals, as one reader of each finds them."""

import pytest

from tpugraph import testing
from tpugraph.ir import Graph
from tpugraph.ir.conditionals import behind, conditional, joins_branches, sides
from tpugraph.ir.loops import carried, check_loops, counted, frames, frames_around, why_not_counted
from tpugraph.support.errors import GraphError

COUNTED = """
    limit = VarHandleOp() {dtype: int32, shape: [], shared_name: "n", container: ""}
    zero = Const() {dtype: int32, value: int32[]0}
    enter = Enter(zero) {T: int32, frame_name: "f", is_constant: false, parallel_iterations: 1}
    most = Enter(limit) {T: resource, frame_name: "f", is_constant: true, parallel_iterations: 1}
    merge = Merge(enter, next) {N: 2, T: int32}
    read = ReadVariableOp(most) ^merge {dtype: int32}
    less = Less(merge, read) {T: int32}
    cond = LoopCond(less)
    switch = Switch(merge, cond) {T: int32}
    body = Identity(switch:1) {T: int32}
    one = Const() ^body {dtype: int32, value: int32[]1}
    more = AddV2(body, one) {T: int32}
    next = NextIteration(more) {T: int32}
    exit = Exit(switch) {T: int32}
    after = Test(exit)
    """

BRANCHES = """
    p = Test()
    q = Identity(p) {T: bool}
    x = Test()
    s = Switch(x, q) {T: float32}
    yes = Neg(s:1) {T: float32}
    no = Neg(s) {T: float32}
    join = Merge(yes, no) {N: 2, T: float32}
    after = Test(join)
    """

NESTED = """
    x = Test()
    a = Enter(x) {T: int32, frame_name: "outer", is_constant: true, parallel_iterations: 1}
    b = Enter(a) {T: int32, frame_name: "inner", is_constant: true, parallel_iterations: 1}
    c = Exit(b) {T: int32}
    d = Exit(c) {T: int32}
    """


def test_a_frame_stands_in_the_frame_that_it_is_entered_from() -> None:
    graph = testing.parse(NESTED)
    assert frames_around(graph) == {"": "", "outer": "", "inner": "outer"}
    assert frames(graph)[graph["c"]] == "inner"
    assert frames(graph)[graph["d"]] == "outer"


def test_what_a_loop_carries() -> None:
    graph = testing.parse(COUNTED)
    loop = carried(graph["merge"])
    assert loop is not None
    assert (loop.initial, loop.following) == (graph["zero"].out(), graph["more"].out())
    assert (loop.switches, loop.exits, loop.inside) == ([graph["switch"]], [graph["exit"]], [graph["body"]])
    assert loop.holds(graph["body"].out())
    assert not loop.holds(graph["more"].out())
    assert carried(graph["less"]) is None


def test_a_loop_that_counts_to_a_variable() -> None:
    graph = testing.parse(COUNTED)
    loop = counted(graph["cond"])
    assert loop is not None
    assert (loop.counter.merge, loop.limit) == (graph["merge"], graph["limit"])
    graph.set_input(graph["less"], 1, graph["merge"].out())
    assert counted(graph["cond"]) is None


def test_a_branch_ends_where_its_values_are_joined() -> None:
    graph = testing.parse(BRANCHES)
    assert {node.name for node in conditional(graph)} == {"yes", "no"}
    assert {node.name for node in behind([graph["s"]], until=())} == {"yes", "no", "join", "after"}
    assert {node.name: [(str(p), side) for p, side in found] for node, found in sides(graph).items()} == {
        "yes": [("p", 1)],
        "no": [("p", 0)],
    }
    assert joins_branches(graph["join"])
    assert not joins_branches(testing.parse(COUNTED)["merge"])


def without_condition(graph: Graph) -> None:
    graph.replace_uses(graph["cond"].out(), graph["less"].out())
    graph.remove(graph["cond"])


def entered_twice(graph: Graph) -> None:
    other = {"T": graph["enter"].attr("T"), "frame_name": "g", "is_constant": True, "parallel_iterations": 1}
    first = graph.add("Enter", "other", [graph["zero"].out()], attrs=other)
    graph.add("LoopCond", "its_condition", [first.out()])
    graph.add("Enter", "again", [first.out()], attrs={**other, "frame_name": "f"})


def reads_past_the_frame(graph: Graph) -> None:
    graph.set_input(graph["more"], 1, graph["zero"].out())


def leaves_nothing(graph: Graph) -> None:
    graph.add("Exit", "lost", [graph["zero"].out()], attrs={"T": graph["enter"].attr("T")})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without_condition, "the loop 'f' has no condition"),
        (entered_twice, "the loop 'f' is entered from two loops"),
        (reads_past_the_frame, "'body' and 'zero' are in different loops, and one node reads both"),
        (leaves_nothing, "Exit stands outside of any loop"),
    ],
)
def test_a_loop_that_is_not_whole_is_refused(damage, words: str) -> None:
    graph = testing.parse(COUNTED)
    check_loops(graph)
    damage(graph)
    with pytest.raises(GraphError, match=words):
        check_loops(graph)


def test_a_node_of_a_loop_may_wait_for_one_around_it_and_not_the_other_way() -> None:
    """As the nodes that TPUEstimator puts into the loop of a device wait for the pivot of the cluster."""
    graph = testing.parse(COUNTED)
    graph.add("NoOp", "pivot", outputs=[])
    graph.add("ControlTrigger", "trigger", controls=[graph["pivot"], graph["more"]], outputs=[])
    graph.add_control(graph["more"], graph["pivot"])
    check_loops(graph)
    assert frames(graph)[graph["trigger"]] == frames(graph)[graph["more"]] == "f"
    graph.add(
        "Identity", "late", [graph["zero"].out()], controls=[graph["more"]], attrs={"T": graph["enter"].attr("T")}
    )
    with pytest.raises(GraphError, match="'zero' and 'more' are in different loops"):
        check_loops(graph)


def test_a_loop_says_why_it_does_not_count_to_a_variable() -> None:
    graph = testing.parse(COUNTED)
    assert why_not_counted(graph["cond"]) == ""
    graph.set_input(graph["less"], 1, graph["one"].out())
    assert why_not_counted(graph["cond"]).startswith("'one' (Const) is no VarHandleOp")
