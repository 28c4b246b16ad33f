"""The dataflow engine: sparse, in topological order, to a fixpoint through loops, each fact with its reason."""

from tpugraph import testing
from tpugraph.analysis.dataflow import Says, Solver
from tpugraph.ir import Graph, Node

LOOP = """
start = Placeholder() {dtype: int32}
other = Placeholder() {dtype: int32}
enter = Enter(start) {T: int32, frame_name: "f", is_constant: false, parallel_iterations: 10} : int32[]
merge = Merge(enter, next) {N: 2, T: int32} : int32[], int32[]
step = Identity(merge) {T: int32} : int32[]
next = NextIteration(step) {T: int32} : int32[]
out = Exit(merge) {T: int32} : int32[]
beside = Identity(other) {T: int32} : int32[]
"""


class Reaches:
    """Which placeholders reach a tensor; visits are counted."""

    def __init__(self, graph: Graph) -> None:
        self.visits: list[str] = []
        order = graph.topological_order(graph)
        self.fixed = {graph["beside"].out()}
        self.flow: Solver[frozenset[str], Says[frozenset[str]]] = Solver(order, self._says, fixed=self.fixed)

    def _says(self, node: Node) -> Says[frozenset[str]] | None:
        self.visits.append(node.name)
        if node.op == "Placeholder":
            return Says([frozenset({node.name})], "it starts here")
        found = [self.flow.facts[t] for t in node.inputs if t in self.flow.facts]
        if not found or (len(found) < len(node.inputs) and node.op != "Merge"):
            return None
        joined = frozenset().union(*found)
        return Says([joined, *[None] * (len(node.outputs or ()) - 1)], f"of {len(found)}")


def solved() -> tuple[Graph, Reaches]:
    graph = testing.parse(LOOP)
    for name in ("start", "other"):
        graph.set_outputs(graph[name], graph["enter"].outputs or ())
    analysis = Reaches(graph)
    analysis.flow.wake(graph)
    analysis.flow.run()
    return graph, analysis


def test_facts_go_round_a_loop_until_nothing_changes() -> None:
    graph, analysis = solved()
    for name in ("enter", "merge", "step", "next", "out"):
        assert analysis.flow.facts[graph[name].out()] == {"start"}, name
    assert analysis.flow.said[graph["merge"]].why == "of 2", "the last word of a node is kept, with its reason"


def test_a_node_is_visited_again_only_where_a_fact_that_it_reads_changes() -> None:
    _, analysis = solved()
    assert analysis.visits.count("merge") == 2
    assert all(
        analysis.visits.count(name) == 1 for name in ("start", "other", "enter", "step", "next", "out", "beside")
    )


def test_a_fixed_fact_and_an_output_of_which_nothing_is_said_stay_as_they_are() -> None:
    graph, analysis = solved()
    assert graph["beside"].out() not in analysis.flow.facts
    assert graph["merge"].out(1) not in analysis.flow.facts


def test_what_is_woken_is_followed_and_what_is_foreign_passed_over() -> None:
    graph, analysis = solved()
    analysis.visits.clear()
    analysis.flow.wake([graph["step"], *testing.parse(LOOP)])
    analysis.flow.run()
    assert analysis.visits == ["step"], "it says what it said before"


def test_what_is_forgotten_is_found_again() -> None:
    graph, analysis = solved()
    before = dict(analysis.flow.facts)
    analysis.flow.forget()
    assert not analysis.flow.facts
    assert not analysis.flow.said
    analysis.flow.wake(graph)
    analysis.flow.run()
    assert analysis.flow.facts == before
