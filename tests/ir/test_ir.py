"""The graph: every edit checks first, keeps the use-lists, is counted and remembers where a node came from."""

from collections.abc import Callable

import pytest

from tpugraph import testing
from tpugraph.ir import Edits, Graph, Tensor, attrs
from tpugraph.ir.builder import Builder
from tpugraph.ir.walks import readers, source_of, variable_of
from tpugraph.support.errors import GraphError
from tpugraph.tpu.invariants import INVARIANTS

CHAIN = """
    a = Test()
    b = Test(a, a:1) ^a
    c = Test(b) ^b
    d = Test(c, b)
    """
LOOP = """
    start = Test()
    enter = Enter(start) {T: int32, frame_name: "f", is_constant: false, parallel_iterations: 1}
    merge = Merge(enter, next) {N: 2, T: int32}
    less = Test(merge)
    cond = LoopCond(less)
    switch = Switch(merge, cond) {T: int32}
    body = Test(switch:1)
    next = NextIteration(body) {T: int32}
    exit = Exit(switch) {T: int32}
    after = Test(exit)
    """


@pytest.fixture
def graph() -> Graph:
    return testing.parse(CHAIN)


def uses_agree(graph: Graph) -> None:
    seen = {(t.node.name, t.port, n.name, i) for n in graph for i, t in enumerate(n.inputs)}
    listed = {(n.name, p, u.node.name, u.index) for n in graph for p in n.used_ports() for u in n.uses(p)}
    assert seen == listed
    waits = {(c.name, n.name) for n in graph for c in n.controls}
    assert waits == {(n.name, c.name) for n in graph for c in n.control_uses()}


# ------------------------------------------------------------------ reading


def test_names_and_membership(graph: Graph) -> None:
    graph, other = testing.parse(CHAIN), testing.parse(CHAIN)
    assert "a" in graph
    assert graph["a"] in graph
    assert other["a"] not in graph
    assert 3 not in graph
    assert graph.get("nothing") is None
    assert graph.tensor("a:1") == Tensor(graph["a"], 1)
    assert [str(t) for t in graph["b"].inputs] == ["a", "a:1"]
    assert repr(graph["a"]) == "<a (Test)>"
    graph = testing.parse("x = Test()\nx_1 = Test()")
    assert graph.fresh_name("y") == "y"
    assert [graph.add("Test", "x").name for _ in range(3)] == ["x_2", "x_3", "x_4"]


def test_topological_order() -> None:
    graph = testing.parse(LOOP)
    names = [n.name for n in graph.topological_order()]
    assert sorted(names) == sorted(n.name for n in graph)
    assert names.index("merge") < names.index("switch") < names.index("next")
    assert names[-1] == "after"
    graph = testing.parse("a = Test()\nw = Test(a)\nx = Test(a)\ny = Test(x)\nz = Test(w)")
    assert [n.name for n in graph.topological_order([graph["z"], graph["w"]])] == ["w", "z"]
    assert [n.name for n in graph.topological_order(last=[graph["w"]])] == ["a", "x", "y", "w", "z"]
    graph = testing.parse("n0 = Test()\n" + "\n".join(f"n{i} = Test(n{i - 1})" for i in range(1, 10_000)))
    assert len(graph.topological_order()) == len(graph.ancestors([graph["n9999"]])) == 10_000


def test_a_cycle_that_is_no_loop_names_its_nodes() -> None:
    graph = testing.parse("a = Test(c)\nb = Test(a)\nc = Test() ^b")
    testing.assert_raises_block(graph.topological_order, kind=GraphError,
                                words=["cycle that is no loop", "a", "b", "c", " <- "])  # fmt: skip
    lines = ["n0 = Test(n199)", *(f"n{i} = Test(n{i - 1})" for i in range(1, 200))]
    testing.assert_raises_block(testing.parse("\n".join(lines)).topological_order, words=["<- ..."])


# ------------------------------------------------------------------ editing


EDITS: dict[str, tuple[Callable[[Graph], object], str]] = {
    "add": (lambda g: g.add("Test", "e", [g["d"].out()], controls=[g["a"], g["a"]]), "+1 -0 ~0"),
    "remove": (lambda g: g.remove(g["d"]), "+0 -1 ~0"),
    "remove_all": (lambda g: g.remove_all([g["c"], g["d"]]), "+0 -2 ~0"),
    "remove_dead": (lambda g: g.remove_dead([g["b"]]), "+0 -2 ~0"),
    "set_input": (lambda g: g.set_input(g["d"], 1, g["a"].out(3)), "+0 -0 ~1"),
    "set_input to what it is": (lambda g: g.set_input(g["d"], 1, g["b"].out()), "+0 -0 ~0"),
    "set_inputs": (lambda g: g.set_inputs(g["d"], []), "+0 -0 ~1"),
    "set_controls": (lambda g: g.set_controls(g["d"], [g["a"], g["b"]]), "+0 -0 ~1"),
    "set_controls to what they are": (lambda g: g.set_controls(g["c"], [g["b"]]), "+0 -0 ~0"),
    "add_control": (lambda g: g.add_control(g["d"], g["a"]), "+0 -0 ~1"),
    "add_controls": (lambda g: g.add_controls(g["d"], [g["a"], g["b"], g["a"]]), "+0 -0 ~2"),
    "add_control again": (lambda g: g.add_control(g["c"], g["b"]), "+0 -0 ~0"),
    "remove_control": (lambda g: g.remove_control(g["c"], g["b"]), "+0 -0 ~1"),
    "replace_uses": (lambda g: g.replace_uses(g["b"].out(), g["a"].out()), "+0 -0 ~2"),
    "replace_uses where": (
        lambda g: g.replace_uses(g["b"].out(), g["a"].out(), where=lambda u: u.node.name == "d"), "+0 -0 ~1"),
    "replace_control_uses": (lambda g: g.replace_control_uses(g["b"], [g["a"]]), "+0 -0 ~1"),
    "retype": (lambda g: g.retype(g["d"], "IdentityN", attrs={"T": [attrs.dtype("int32")] * 2}), "+0 -0 ~1"),
    "set_attr": (lambda g: g.set_attr(g["d"], "x", 1), "+0 -0 ~1"),
    "set_device": (lambda g: g.set_device(g["d"], "/cpu:0"), "+0 -0 ~1"),
    "set_device to what it is": (lambda g: g.set_device(g["d"], ""), "+0 -0 ~0"),
    "set_outputs": (lambda g: g.set_outputs(g["d"], [(attrs.dtype("int32"), ())]), "+0 -0 ~0"),
    "clone_subgraph": (lambda g: g.clone_subgraph([g["b"], g["c"]], lambda n: f"{n}/copy"), "+2 -0 ~0"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_counts_and_keeps_the_use_lists(graph: Graph, name: str) -> None:
    edit, counts = EDITS[name]
    edit(graph)
    assert str(graph.edits) == counts
    uses_agree(graph)
    INVARIANTS["well_formed"].verify(graph, "test")


REFUSED: dict[str, tuple[Callable[[Graph, Graph], object], list[str]]] = {
    "remove a node in use": (lambda g, _: g.remove(g["b"]), ["cannot remove", "'c'", "b (Test)"]),
    "remove_all with a use outside": (lambda g, _: g.remove_all([g["a"], g["b"]]), ["'c' uses"]),
    "remove a stranger": (lambda g, o: g.remove(o["d"]), ["not in this graph"]),
    "add with a stranger's tensor": (lambda g, o: g.add("Test", "e", [o["a"].out()]), ["new node 'e'", "not in this graph"]),
    "add behind a stranger": (lambda g, o: g.add("Test", "e", controls=[o["a"]]), ["not in this graph"]),
    "set_input that is not there": (lambda g, _: g.set_input(g["d"], 2, g["a"].out()), ["there is no input 2", "d (Test)"]),
    "set_input to a stranger": (lambda g, o: g.set_input(g["d"], 0, o["a"].out()), ["input 0 of 'd'"]),
    "set_inputs to a stranger": (lambda g, o: g.set_inputs(g["d"], [g["a"].out(), o["a"].out()]), ["inputs of 'd'"]),
    "set_controls to a stranger": (lambda g, o: g.set_controls(g["d"], [g["a"], o["a"]]), ["control inputs of 'd'"]),
    "replace_uses by a stranger": (lambda g, o: g.replace_uses(g["b"].out(), o["a"].out()), ["not in this graph"]),
    "retype to what is no op": (lambda g, _: g.retype(g["d"], "Matmul"),
                                ["'d' cannot become Matmul: this TensorFlow does not know that op", "did you mean MatMul?"]),
    "retype with a stranger": (lambda g, o: g.retype(g["d"], "X", inputs=[o["a"].out()]), ["not in this graph"]),
    "set_attr of a stranger": (lambda g, o: g.set_attr(o["d"], "x", 1), ["attribute 'x'"]),
    "a node that is not there": (lambda g, _: g["nothing"], ["there is no node 'nothing'"]),
    "a tensor that is not there": (lambda g, _: g.tensor("nothing:1"), ["there is no node 'nothing'"]),
    "an output before inference": (lambda g, _: g["a"].out().shape, ["output 0 is unknown"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_edit_leaves_the_graph_as_it_was(name: str) -> None:
    graph, other = testing.parse(CHAIN), testing.parse(CHAIN)
    before = testing.graph_text(graph)
    edit, words = REFUSED[name]
    testing.assert_raises_block(edit, graph, other, words=words, max_length=200, kind=GraphError)
    assert testing.graph_text(graph) == before
    assert graph.edits == Edits()
    uses_agree(graph)


def test_attributes_and_provenance(graph: Graph) -> None:
    with pytest.raises(TypeError, match="no attribute holds a object"):
        graph.set_attr(graph["a"], "x", object())
    assert not graph["a"].has_attr("x")
    graph.stage = "first"
    node = graph.add("Test", "e", source=graph["b"])
    graph.stage = "second"
    (copy,) = graph.clone_subgraph([node], lambda name: name).values()
    assert [(n.made_by, n.origin) for n in (node, copy)] == [("first", "b"), ("second", "b")]
    assert (graph["b"].made_by, graph["b"].origin) == (None, None)


def test_clone_follows_replacements(graph: Graph) -> None:
    other = graph.add("Test", "other")
    copies = graph.clone_subgraph(
        [graph["b"], graph["c"]],
        lambda name: f"{name}/copy",
        replace={graph["a"].out(1): other.out(2)},
        replace_controls={graph["a"]: [other]},
    )
    assert testing.graph_text(graph).splitlines()[-2:] == [
        "b/copy = Test(a, other:2) ^other",
        "c/copy = Test(b/copy) ^b/copy",
    ]
    assert copies[graph["c"]].name == "c/copy"
    uses_agree(graph)


def test_retype() -> None:
    graph = testing.parse('x = Old() {T: int32, _mark: "m", _output_shapes: ([2])}')
    graph.retype(graph["x"], "NoOp", attrs={"U": 1})
    assert testing.graph_text(graph) == 'x = NoOp() {U: 1, _mark: "m"}\n'
    graph = testing.parse("a = NoOp()\nx = Neg(a) {T: float32}\ny = Neg(a) {T: float32}")
    with pytest.raises(GraphError, match="'x' cannot become AddV2: it has 1 inputs, and AddV2 takes 2"):
        graph.retype(graph["x"], "AddV2")
    assert graph["x"].op == "Neg"
    graph.retype(graph["x"], "AddN", attrs={"N": 1, "T": attrs.dtype("float32")})
    with pytest.raises(GraphError, match="it has 1 inputs, and AddN takes 3"):
        graph.retype(graph["y"], "AddN", attrs={"N": 3, "T": attrs.dtype("float32")})


def test_touched_nodes_are_told_once(graph: Graph) -> None:
    assert graph.take_touched() == []
    node = graph.add("Test", "e")
    graph.set_attr(graph["a"], "x", 1)
    gone = graph.add("Test", "gone")
    graph.remove(gone)
    assert graph.take_touched() == [node, graph["a"]]
    assert graph.take_touched() == []


def test_well_formed_names_what_is_wrong() -> None:
    graph = testing.parse("x = Const()")
    graph.set_inputs(graph["x"], [])
    testing.assert_raises_block(INVARIANTS["well_formed"].verify, graph, "after p", max_length=200,
                                words=["after p: well_formed", "is missing", "and 1 more", "x (Const)"])  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "fix"),
    [
        ("op", "X", "graph.retype(node, op)"),
        ("name", "X", "graph.add(op, name)"),
        ("device", "/cpu:0", "graph.set_device(node, device)"),
        ("inputs", (), "graph.set_inputs(node, tensors)"),
        ("controls", (), "graph.set_controls(node, nodes)"),
    ],
)
def test_a_node_is_changed_through_its_graph_alone(field: str, value: object, fix: str) -> None:
    graph = testing.parse("x = Test()")
    with pytest.raises(GraphError, match=f"the {field} of a node cannot be set") as caught:
        setattr(graph["x"], field, value)
    assert caught.value.node == "x (Test)"
    assert fix in (caught.value.fix or "")
    assert testing.graph_text(graph) == "x = Test()\n"


def test_what_reads_a_reference_works_on_its_values() -> None:
    graph = testing.parse("variable = VariableV2() {dtype: float32, shape: [2]} : float32_ref[2]")
    half = Builder(graph).add("L2Loss", [graph["variable"].out()])
    assert half.node.attr("T") == half.dtype == attrs.dtype("float32")


def test_a_builder_refuses_what_cannot_be_known() -> None:
    make = Builder(Graph())
    with pytest.raises(GraphError, match="TensorFlow has no op 'NoSuchOp'"):
        make.node("NoSuchOp")
    with pytest.raises(GraphError, match=r"a new ReadVariableOp lacks the attribute .dtype."):
        make.node("ReadVariableOp", [make.variable(attrs.dtype("int32"), (), name="v").out()])


def test_the_source_of_a_tensor_is_behind_identities() -> None:
    graph = testing.parse("""
    x = Test()
    one = Identity(x:1) {T: float32}
    two = StopGradient(one) ^x {T: float32}
    pair = IdentityN(x, two) {T: (float32; float32)}
    """)
    assert source_of(graph["pair"].out(1)) == graph.tensor("x:1")
    assert source_of(graph["pair"].out(0)) == graph["x"].out()
    assert source_of(graph["two"].out(), where=lambda node: not node.controls) == graph["two"].out()
    graph.set_input(graph["one"], 0, graph["two"].out())
    assert source_of(graph["two"].out()).node.name in ("one", "two"), "a circle has an end"


def test_a_variable_and_its_readers_are_found_through_aliases() -> None:
    graph = testing.parse("""
    v = VarHandleOp() {dtype: float32, shape: [], shared_name: "v", container: ""}
    alias = Identity(v) {T: resource}
    enter = Enter(alias) {T: resource, frame_name: "loop", is_constant: true, parallel_iterations: 1}
    read = ReadVariableOp(enter) {dtype: float32}
    other = ReadVariableOp(v) {dtype: float32}
    behind = Neg(read) {T: float32}
    """)
    assert variable_of(graph["enter"].out()) is graph["v"]
    assert variable_of(graph["read"].out()) is None
    assert {node.name for node in readers(graph["v"])} == {"alias", "enter", "read", "other"}
