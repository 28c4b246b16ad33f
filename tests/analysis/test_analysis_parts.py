"""Each module of the analyses by itself, on a graph of a few nodes."""

import pytest

from tpugraph import testing
from tpugraph.analysis import batched_input, dataflow, signatures, state, values
from tpugraph.analysis.dataflow import Rules
from tpugraph.analysis.races import Writes
from tpugraph.analysis.sides_of_step import cluster_nodes, fed_to_device, must_be_host
from tpugraph.analysis.values import constant, fixed
from tpugraph.ir import Tensor
from tpugraph.ir.node import Use
from tpugraph.support.errors import ConversionError, ShapeError

VARIABLE = 'dtype: float32, shape: [2], shared_name: "v", container: ""'
STATE = f"""
    v = VarHandleOp() {{{VARIABLE}}} : resource[]
    early = ReadVariableOp(v) {{dtype: float32}} : float32[2]
    x = Placeholder() {{dtype: float32, shape: [2]}} : float32[2]
    write = AssignAddVariableOp(v, x) ^early {{dtype: float32}}
    late = ReadVariableOp(v) ^write {{dtype: float32}} : float32[2]
    behind = Neg(late) {{T: float32}} : float32[2]
    before = Neg(early) {{T: float32}} : float32[2]
    """


# ------------------------------------------------------------------ constants

CONSTANTS = """
    shape = Const() {dtype: int32, value: int32[3][8, 3, 1]} : int32[3]
    third = Const() {dtype: float32, value: float32[]0.25} : float32[]
    near = Identity(shape) {T: int32} : int32[3]
    """


def test_a_constant_is_read_behind_what_hands_it_on() -> None:
    graph = testing.parse(CONSTANTS)
    assert fixed(graph["near"].out()) == [8, 3, 1]
    assert fixed(graph["third"].out()) is None
    assert constant(graph["third"]).item() == 0.25


# ------------------------------------------------------------------ signatures and questions


def test_a_signature_names_the_dimensions_of_operands() -> None:
    graph = testing.parse("""
        a = Test() : float32[2,3]
        b = Test() : float32[3,4]
        c = MatMul(a, b) {T: float32, transpose_a: false, transpose_b: false} : float32[2,4]
        d = AddV2(a, a) {T: float32} : float32[2,3]
        """)
    product, sum_ = signatures.of(graph["c"]), signatures.of(graph["d"])
    assert product is not None
    assert sum_ is not None
    assert (product.inputs, product.outputs) == ((("i", "k"), ("k", "j")), (("i", "j"),))
    assert product.linear == (frozenset({0}), frozenset({1}))
    assert sum_.elementwise
    assert not product.elementwise


def test_a_rule_for_no_op_type_is_that_for_all_others() -> None:
    rules: Rules = Rules()

    @rules.rule("Add Sub")
    def one() -> None:
        """Of two op types."""

    @rules.rule("")
    def other() -> None:
        """Of all others."""

    assert (rules.of("Sub"), rules.of("Mul")) == (one, other)


def test_a_question_that_comes_back_to_itself_has_no_answer_there() -> None:
    graph = testing.parse("a = Test(b)\nb = Test(a)\nc = Test()")

    def depth(tensor: Tensor) -> dataflow.Answer:
        found = 0
        for operand in tensor.node.inputs:
            found = 1 + ((yield depth, operand) or 0)
        return found

    assert dataflow.ask(depth, graph["c"].out()) == 0
    assert dataflow.ask(depth, graph["a"].out()) == 2


# ------------------------------------------------------------------ state


def test_a_value_flows_on_through_a_variable_that_is_read_after_the_write() -> None:
    graph = testing.parse(STATE)
    found = state.flows_from(graph, [graph["x"]])
    assert {node.name for node in found} == {"x", "write", "late", "behind"}
    assert state.written_variables(graph["write"]) == [graph["v"]]


def test_the_order_of_writes_and_reads() -> None:
    graph = testing.parse(STATE)
    writes = Writes(graph)
    assert writes.nodes == [graph["write"]]
    assert writes.before(graph["behind"], graph["v"]) == writes.bit(graph["write"])
    assert writes.before(graph["before"], graph["v"]) == 0
    assert writes.waits(Use(graph["behind"], 0), graph["v"]) == [graph["write"]]


# ------------------------------------------------------------------ host and device


def test_what_the_host_gives_to_the_device() -> None:
    graph = testing.parse("""
        text = Const() {dtype: string, value: object[1]["a"]} : string[1]
        x = Placeholder() {dtype: float32, shape: [2]} : float32[2]
        y = Neg(x) {T: float32, _tpu_replicate: "cluster"} : float32[2]
        said = Test(text)
        """)
    assert list(cluster_nodes(graph)) == [graph["y"]]
    assert fed_to_device(graph) == [graph["x"].out()]
    assert must_be_host(graph["text"])
    assert not must_be_host(graph["y"])


BATCHED = """
    rows = Const() {dtype: int64, value: int64[]8}
    data = Test()
    batched = BatchDatasetV2(data, rows, rows) {output_types: (float32), output_shapes: ([?,3])}
    on = PrefetchDataset(batched, rows) {output_types: (float32), output_shapes: ([?,3])}
    iterator = IteratorV2() {output_types: (float32), output_shapes: ([?,3]), shared_name: "", container: ""}
    maker = MakeIterator(on, iterator)
    take = IteratorGetNext(iterator) {output_types: (float32), output_shapes: ([?,3])}
    """


def test_the_dataset_behind_a_batch_and_its_rows() -> None:
    graph = testing.parse(BATCHED)
    assert batched_input.dataset_of(graph, graph["take"]) == (graph["iterator"], graph["on"])
    assert [node.name for node in batched_input.stages(graph["on"])] == ["on", "batched"]
    assert batched_input.rows_of(graph, graph["take"], graph["batched"]) == 8
    with pytest.raises(ShapeError, match="the number of rows of a batch is not known"):
        batched_input.rows_of(graph, graph["take"], None)
    graph.remove(graph["maker"])
    with pytest.raises(ConversionError, match="'iterator' is an iterator of 0 datasets of the graph, not of one"):
        batched_input.dataset_of(graph, graph["take"])


# ------------------------------------------------------------------ sizes that constants tell


def test_a_size_that_a_shape_does_not_tell_leaves_the_others_known() -> None:
    graph = testing.parse("""
    x = Placeholder() {dtype: float32, shape: [2, 3]} : float32[2, 3]
    y = Placeholder() {dtype: int32, shape: []} : int32[]
    shape = Shape(x) {T: float32, out_type: int32} : int32[2]
    count = Prod(shape, axes) {T: int32, Tidx: int32, keep_dims: false} : int32[]
    axes = Const() {dtype: int32, value: [0]} : int32[1]
    both = Pack(count, y) {N: 2, T: int32, axis: 0} : int32[2]
    """)
    assert values.known_vector(graph["both"].out()) == [6, None]
    assert values.known_vector(graph["x"].out()) is None
    assert values.known_scalar(graph["count"].out()) == 6
