"""Our minimum cut and traversals against networkx, on random networks and on a real graph."""

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from models import corpus
from tpugraph.analysis.min_cut import minimum_cut
from tpugraph.analysis.networkx_view import as_networkx
from tpugraph.compiler import convert
from tpugraph.ir import graphdef


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(3, 12), st.data())
def test_the_minimum_cut_is_that_of_networkx(size: int, data: st.DataObject) -> None:
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    capacity = {vertex: data.draw(st.integers(1, 9)) for vertex in range(1, size - 1)}
    network = nx.DiGraph()
    for vertex in range(size):
        cost = {"capacity": capacity[vertex]} if vertex in capacity else {}
        network.add_edge((vertex, "in"), (vertex, "out"), **cost)
    for a, b in edges:
        network.add_edge((a, "out"), (b, "in"))
    found = minimum_cut(edges, capacity, [0], [size - 1])
    try:
        expected, _ = nx.minimum_cut(network, (0, "in"), (size - 1, "out"))
    except nx.NetworkXUnbounded:
        assert found is None
        return
    assert found is not None
    cost, cut = found
    assert cost == expected == sum(capacity[vertex] for vertex in cut)
    network.remove_nodes_from((vertex, "in") for vertex in cut)
    assert not nx.has_path(network, (0, "in"), (size - 1, "out"))


def test_the_view_has_the_loops_and_the_cones() -> None:
    graph = corpus("lstm_dynamic").graph()
    view = as_networkx(graph)
    assert len(view) == len(graph)
    back = [(a, b) for a, b, kind in view.edges(data="kind") if kind == "back"]
    assert len(back) == len(graph.of_type("NextIteration"))
    loss = graph["sparse_softmax_cross_entropy_loss/value"]
    assert set(nx.ancestors(view, loss.name)) == {node.name for node in graph.ancestors([loss]) if node is not loss}
    view.remove_edges_from([edge[:3] for edge in view.edges(keys=True, data="kind") if edge[3] == "back"])
    assert nx.is_directed_acyclic_graph(view)


def test_nodes_have_dtypes_shapes_and_a_placement_and_edges_the_output_that_is_read() -> None:
    plain = as_networkx(corpus("while_cond").graph())
    switch = next(name for name, op in plain.nodes(data="op") if op == "Switch")
    read = [
        (edge["output"], edge["operand"]) for _, _, edge in plain.out_edges(switch, data=True) if edge["kind"] == "data"
    ]
    assert {output for output, _ in read} <= {0, 1}
    assert set(nx.get_node_attributes(plain, "placement").values()) == {"host"}
    view = as_networkx(graphdef.from_graph_def(convert(corpus("iris_dnn").folder / "model.pb").graph_def))
    product = view.nodes["dense/MatMul"]
    assert product == {"op": "MatMul", "dtypes": ("float32",), "shapes": ((4, 10),), "placement": "device"}
    assert view.nodes["IteratorGetNext"]["placement"] == "host"
    operands = {edge["operand"]: a for a, _, edge in view.in_edges("dense/MatMul", data=True) if edge["kind"] == "data"}
    assert operands[0] == "input_layer/concat"
