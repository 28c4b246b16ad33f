"""Random edits keep a graph well formed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tpugraph import testing
from tpugraph.ir import Graph, attrs
from tpugraph.support.errors import GraphError
from tpugraph.tpu.invariants import INVARIANTS

EDITS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99), st.integers(0, 3)), max_size=60)


def apply(graph: Graph, edit: tuple[int, int, int, int]) -> None:
    kind, first, second, port = edit
    nodes = list(graph)
    a, b = nodes[first % len(nodes)], nodes[second % len(nodes)]
    if kind == 0:
        graph.add("Test", "new", [a.out(port), b.out()], controls=[b])
    elif kind == 1:
        graph.remove(a)
    elif kind == 2 and a.inputs:
        graph.set_input(a, port % len(a.inputs), b.out(port))
    elif kind == 3:
        graph.set_controls(a, [b])
    elif kind == 4:
        graph.replace_uses(a.out(port), b.out())
    elif kind == 5:
        graph.replace_uses(a.out(port), b.out(), where=lambda use: use.index > 0)
    elif kind == 6:
        graph.clone_subgraph([a, b], lambda name: f"{name}/copy", replace={a.out(): b.out(1)})
    elif kind == 7:
        graph.replace_control_uses(a, [b])
    elif kind == 8:
        inputs = [b.out(port)] if port else list(a.inputs)
        graph.retype(a, "IdentityN", inputs=inputs, attrs={"T": [attrs.dtype("float32")] * len(inputs)})
    else:
        graph.remove_dead([a, b])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(edits=EDITS)
def test_random_edits_keep_the_graph_whole(edits: list[tuple[int, int, int, int]]) -> None:
    graph = testing.parse("a = Test()\nb = Test(a)\nc = Test(a, b:1) ^b\nd = Test(c) ^a")
    for edit in edits:
        before, counted = testing.graph_text(graph), str(graph.edits)
        try:
            apply(graph, edit)
        except GraphError:
            assert (testing.graph_text(graph), str(graph.edits)) == (before, counted)
        INVARIANTS["well_formed"].verify(graph, "edit")
        data = {(t.node.name, t.port, n.name, i) for n in graph for i, t in enumerate(n.inputs)}
        assert data == {(n.name, p, u.node.name, u.index) for n in graph for p in n.used_ports() for u in n.uses(p)}
        waits = {(c.name, n.name) for n in graph for c in n.controls}
        assert waits == {(n.name, c.name) for n in graph for c in n.control_uses()}
        assert graph.edits.added - graph.edits.removed == len(graph) - 4
        if not np.all([t.node in graph for n in graph for t in n.inputs]):
            raise AssertionError("an input of a node that is gone")
    assert testing.graph_text(testing.parse(testing.graph_text(graph))) == testing.graph_text(graph)
