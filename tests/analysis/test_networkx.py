"""The view of a graph for networkx; what it finds there is what our own traversals find."""

import networkx as nx

from models import corpus
from tpugraph.analysis.networkx_view import as_networkx
from tpugraph.compiler import convert
from tpugraph.ir import graphdef


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
