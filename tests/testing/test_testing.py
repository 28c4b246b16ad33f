"""What users' own tests of passes are made of: short text, golden text, graphs in mid-pipeline."""

from dataclasses import dataclass

import pytest

from models import CORPUS
from tpugraph import Graph, Pass, Pipeline, testing
from tpugraph.ir import graphdef
from tpugraph.passes.prune import Prune
from tpugraph.support.errors import UsageError

IRIS = CORPUS / "iris_dnn" / "model.pb"
PLACEHOLDER = "x = Placeholder() {dtype: float32, shape: [4,4]}"


@dataclass(frozen=True)
class AddToAddV2(Pass):
    """Every Add is an AddV2."""

    def run(self, graph: Graph) -> None:
        for node in graph.of_type("Add"):
            graph.retype(node, "AddV2", attrs={"T": node.attr("T")})


def test_text_leaves_out_what_operands_and_defaults_say() -> None:
    graph = testing.parse(f"""
        {PLACEHOLDER}
        axis = Const() {{dtype: int64, value: int64[]0}}
        sum = Sum(x, axis)
        both = Pack(sum, sum)
        product = MatMul(x, x)
    """)
    assert testing.graph_text(graph).splitlines()[2:] == [
        "sum = Sum(x, axis) {T: float32, Tidx: int64}",
        "both = Pack(sum, sum) {N: 2, T: float32}",
        "product = MatMul(x, x) {T: float32}",
    ]
    assert testing.graph_text(testing.parse("y = Add(x, x)\nx = Test()")) == "y = Add(x, x)\nx = Test()\n"
    testing.check_pass(
        AddToAddV2(), f"{PLACEHOLDER}\ny = Add(x, x)", f"{PLACEHOLDER}\ny = AddV2(x, x)", edits="+0 -0 ~1"
    )
    with pytest.raises(AssertionError, match=r"-y = AddV2\(x, x\) {T: float64}"):
        testing.check_pass(
            AddToAddV2(), f"{PLACEHOLDER}\ny = Add(x, x)", f"{PLACEHOLDER}\ny = AddV2(x, x) {{T: float64}}"
        )


def test_a_pipeline_finds_the_roles_that_a_pass_requires() -> None:
    graph = Pipeline([Prune()]).run(graphdef.load(IRIS))
    assert graph.roles.loss.name == "sparse_softmax_cross_entropy_loss/value"


def test_a_graph_in_the_middle_of_its_conversion() -> None:
    graph = testing.graph_before("placement", IRIS, num_replicas=4)
    assert graph.roles is not None
    assert all(node.outputs is not None for node in graph)
    assert not graph.of_type("CrossReplicaSum", "VariableV2")
    assert str(testing.run_pass(AddToAddV2(), graph)) == f"+0 -0 ~{len(graph.of_type('AddV2'))}"
    testing.assert_raises_block(testing.graph_before, "placment", IRIS, max_length=200, kind=UsageError,
                                words=["no pass 'placment'", "placement"])  # fmt: skip
