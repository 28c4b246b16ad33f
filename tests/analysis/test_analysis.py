"""Loop frames, conditional regions, varying values and minimum cuts."""

import itertools

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpugraph import testing
from tpugraph.analysis import conditional, frames
from tpugraph.analysis.min_cut import minimum_cut
from tpugraph.analysis.varying_values import varying_from
from tpugraph.ir import Graph, Node

LOOPS = """
    x = Test()
    outer = Enter(x) {frame_name: "outer", T: int32, is_constant: false, parallel_iterations: 1}
    om = Merge(outer, on) {N: 2, T: int32}
    oc = LoopCond(om)
    os = Switch(om, oc) {T: int32}
    ob = Test(os:1)
    inner = Enter(ob) {frame_name: "inner", T: int32, is_constant: false, parallel_iterations: 1}
    im = Merge(inner, in) {N: 2, T: int32}
    ic = LoopCond(im)
    is = Switch(im, ic) {T: int32}
    ib = Test(is:1)
    pinned = Const() ^ib {dtype: int32, value: int32[]1}
    in = NextIteration(ib) {T: int32}
    ie = Exit(is) {T: int32}
    between = Test(ie)
    on = NextIteration(between) {T: int32}
    oe = Exit(os) {T: int32}
    after = Test(oe)
    """


def names(nodes) -> set[str]:
    return {node.name for node in nodes}


def test_frames_of_nested_loops() -> None:
    graph = testing.parse(LOOPS)
    found = {node.name: frame for node, frame in frames(graph).items()}
    assert found["x"] == found["after"] == ""
    assert found["outer"] == found["ob"] == found["between"] == found["on"] == "outer"
    assert found["inner"] == found["ib"] == found["pinned"] == found["in"] == "inner"
    assert found["oe"] == "outer"  # an Exit counts to the frame that it leaves


def varying(text: str, *sources: str) -> set[str]:
    graph = testing.parse(text)
    return names(varying_from(graph, [graph[name] for name in sources]))


@pytest.mark.parametrize("op", ["Shape", "Size", "Rank", "ZerosLike", "OnesLike"])
def test_the_shape_of_what_varies_is_replicated_where_it_is_static(op: str) -> None:
    assert varying(f"s = Test() : float32[2,3]\ny = {op}(s)", "s") == {"s"}
    assert varying(f"s = Test() : float32[?,3]\ny = {op}(s)", "s") == {"s", "y"}
    assert varying(f"s = Test()\ny = {op}(s)", "s") == {"s", "y"}


def test_predicates_and_containers_make_values_vary() -> None:
    assert varying("s = Test()\nx = Test(s)\ny = Test() ^x\nz = Test(y, x)", "s") == {"s", "x", "z"}, (
        "data, not control"
    )
    text = """
        s = Test()
        x = Test()
        side = Switch(x, s) {T: int32}
        a = Const() ^side
        b = Test(side:1)
        m = Merge(a, b) {N: 2, T: int32}
        y = Test(m)
        z = Test(x)
        """
    assert varying(text, "s") == {"s", "side", "a", "b", "m", "y"}
    text = """
        s = Test()
        size = Const()
        stack = StackV2(size) {elem_type: float32, stack_name: ""}
        handle = Enter(stack) {T: resource, frame_name: "f", is_constant: true, parallel_iterations: 1}
        push = StackPushV2(handle, s) {T: float32, swap_memory: false}
        pop = StackPopV2(stack) {elem_type: float32}
        y = Test(pop)
        other = StackV2(size) {elem_type: float32, stack_name: ""}
        """
    assert varying(text, "s") == {"s", "push", "stack", "handle", "pop", "y"}


def test_a_varying_trip_count_makes_the_whole_loop_vary() -> None:
    graph = testing.parse(
        LOOPS.replace("ic = LoopCond(im)", "ic = LoopCond(less)")
        + """
        limit = Test()
        around = Enter(limit) {frame_name: "outer", T: int32, is_constant: true, parallel_iterations: 1}
        entered = Enter(around) {frame_name: "inner", T: int32, is_constant: true, parallel_iterations: 1}
        less = Test(im, entered)
        """
    )
    found = names(varying_from(graph, [graph["limit"]]))
    assert {"inner", "im", "is", "ib", "pinned", "in", "ie", "between"} <= found
    assert "om" in found  # what leaves the loop varies, and so does the loop around that counts with it
    assert not found & {"x"}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] < e[1]), max_size=25),
    costs=st.dictionaries(st.integers(0, 9), st.integers(1, 9)),
)
def test_the_cost_is_networkx_and_the_cut_separates(edges: list[tuple[int, int]], costs: dict[int, int]) -> None:
    network = nx.DiGraph()
    for vertex in range(10):
        network.add_edge((vertex, 0), (vertex, 1), **({"capacity": costs[vertex]} if vertex in costs else {}))
    network.add_edges_from(((a, 1), (b, 0)) for a, b in edges)
    sources, sinks = [0, 1], [8, 9]
    network.add_edges_from(("s", (v, 0)) for v in sources)
    network.add_edges_from(((v, 1), "t") for v in sinks)
    try:
        wanted = nx.minimum_cut_value(network, "s", "t")
    except nx.NetworkXUnbounded:
        wanted = None
    found = minimum_cut(edges, costs, sources, sinks)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    cost, cut = found
    assert cost == wanted == sum(costs[vertex] for vertex in cut)
    left = nx.DiGraph([e for e in edges if not set(e) & set(cut)])
    left.add_nodes_from(set(range(10)) - set(cut))
    for source, sink in itertools.product(sources, sinks):
        assert not (source in left and sink in left and nx.has_path(left, source, sink))


def test_the_analysis_is_the_same_after_an_edit_that_it_does_not_see() -> None:
    """Analyses are remembered between edits: an edit must make them new."""
    graph = testing.parse(LOOPS)
    before = frames(graph)[graph["after"]]
    new: Node = graph.add("Test", "new", [graph["ob"].out()])
    assert before == ""
    assert frames(graph)[new] == "outer"
    other: Graph = testing.parse("p = Test()\nx = Test()\ns = Switch(x, p) {T: int32}\na = Test(s)")
    assert names(conditional(other)) == {"a"}
    other.add("Test", "b", [other["a"].out()])
    assert names(conditional(other)) == {"a", "b"}
