"""Each module of the analyses by itself, on a graph of a few nodes."""

from __future__ import annotations

import numpy as np
import pytest

from models import by_hand
from tpugraph import analysis, testing
from tpugraph.analysis import (
    batched_input,
    element_numbers,
    known_sizes,
    placing,
    questions,
    signatures,
    size_relations,
    sizes,
    state,
)
from tpugraph.analysis.broadcast_sizes import broadcast
from tpugraph.analysis.constant_sizes import ConstantSizes
from tpugraph.analysis.constant_values import constant, fixed
from tpugraph.analysis.dimension_facts import LONGEST, Dims
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.evidence import (
    cut_gradients,
    loops_over_rows,
    pairs_of_rows,
    readings,
    reciprocals,
    single_rows,
    taken_apart,
    tiled_gradients,
    undone_layouts,
)
from tpugraph.analysis.evidence.readings import Step
from tpugraph.analysis.longest import Longest
from tpugraph.analysis.placements import Shard
from tpugraph.analysis.rules import Rules
from tpugraph.analysis.sides_of_step import cluster_nodes, fed_to_device, must_be_host
from tpugraph.analysis.sizes import ROWS, Poly, Unknown, add, divide, follows_batch, known, through, times
from tpugraph.analysis.write_order import Writes
from tpugraph.ir import Graph, Tensor
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


# ------------------------------------------------------------------ sizes


def test_polynomials_of_the_batch() -> None:
    area = times(ROWS, add(ROWS, 2))
    assert area == Poly((0, 2, 1))
    assert area.at(3) == 15  # type: ignore[union-attr]
    assert str(area) == "2*b + b^2"
    assert divide(area, ROWS) == Poly((2, 1))
    assert divide(7, 2) is None
    assert (add(2, 3), times(2, 3)) == (5, 6)


def test_sizes_that_are_tied_are_found_together() -> None:
    relations = size_relations.Relations(4, 8)
    one, other = Unknown(4), Unknown(4)
    relations.tie(one, other)
    relations.tie(other, ROWS)
    assert follows_batch(one)
    assert not follows_batch(Unknown(4))


def test_what_is_computed_is_no_other_size_of_its_value() -> None:
    relations = size_relations.Relations(3, 12)
    half, by = Unknown(1), Unknown(2, "written")
    relations.quotient(half, ROWS, by)
    assert not relations.may_be_one(half, Unknown(1, "written"))
    relations.presume(by)
    relations.propagate()
    assert known(half) == through((3, 1), (12, 6))
    assert not relations.may_be_one(half, 1)
    assert relations.may_be_one(Unknown(3, "written"), ROWS)


def test_sizes_that_are_broadcast_together_are_tied_but_for_ones() -> None:
    relations = size_relations.Relations(4, 8)
    open_one = Unknown(4)
    assert broadcast(relations, [(open_one, 3), (1, 3), (ROWS, 1)]) == (open_one, 3)
    assert follows_batch(open_one)
    assert broadcast(relations, [(2, 1), (5,)]) == (2, 5)
    assert broadcast(relations, [(2,), None]) is None
    assert broadcast(relations, []) is None


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


def test_a_number_of_a_constant_follows_the_batch_where_that_is_chosen() -> None:
    graph = testing.parse(CONSTANTS)
    shape, third = graph["shape"], graph["third"]
    sizes = ConstantSizes(4, ones=False, chosen={"shape": True})
    first, *others = sizes.elements(shape) or []
    assert first == Poly((0, 2))
    assert [one.value if isinstance(one, Unknown) else one for one in others] == [3, 1]
    assert ConstantSizes(4, ones=False, chosen={"shape": False}).elements(shape) == [8, 3, 1]
    assert ConstantSizes(4, ones=False, only=()).elements(shape) == [8, 3, 1]
    assert sizes.elements(third) is None  # no whole number
    assert sizes.shares == {}


def test_a_share_of_the_rows_is_kept_with_its_constant() -> None:
    graph = testing.parse(CONSTANTS)
    sizes = ConstantSizes(5, ones=True, chosen={"shape": True})
    assert sizes.elements(graph["shape"]) == [divide(Poly((0, size)), 5) for size in (8, 3, 1)]
    assert sizes.shares == dict.fromkeys((8, 3, 1), "shape")


def test_vectors_that_are_longer_hold_no_sizes() -> None:
    numbers = ", ".join(["4"] * (LONGEST + 1))
    graph = testing.parse(
        f"c = Const() {{dtype: int32, value: int32[{LONGEST + 1}][{numbers}]}} : int32[{LONGEST + 1}]"
    )
    assert ConstantSizes(4, ones=False).elements(graph["c"]) is None


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

    def depth(tensor: Tensor) -> questions.Answer:
        found = 0
        for operand in tensor.node.inputs:
            found = 1 + ((yield depth, operand) or 0)
        return found

    assert questions.ask(depth, graph["c"].out()) == 0
    assert questions.ask(depth, graph["a"].out()) == 2


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


# ------------------------------------------------------------------ placements, with reasons


def found(text: str, rows: int) -> tuple[Graph, Dimensions]:
    graph = testing.parse(text)
    order = analysis.loop_order(graph, dict.fromkeys(graph))
    seeds: dict[Tensor, Dims] = {graph["x"].out(): (ROWS, 3)}
    if "table" in graph:
        seeds[graph["table"].out()] = (5,)
    return graph, Dimensions(graph, order, rows, seeds, whole=2 * rows, ones=rows == 1)


CUT = """
    x = Placeholder() {dtype: float32, shape: [4,3]} : float32[4,3]
    many = Placeholder() {dtype: int32, shape: []} : int32[]
    nothing = Const() {dtype: int32, value: int32[]0} : int32[]
    first = Pack(nothing, nothing) {N: 2, T: int32, axis: 0} : int32[2]
    last = Pack(nothing, many) {N: 2, T: int32, axis: 0} : int32[2]
    steps = Const() {dtype: int32, value: int32[2][1,1]} : int32[2]
    cut = StridedSlice(x, first, last, steps) {T: float32, Index: int32, begin_mask: 3, end_mask: 1} : float32[4,?]
    squares = Square(cut) {T: float32} : float32[4,?]
    counted = Range(nothing, many, nothing) {Tidx: int32} : int32[?]
    """


def test_what_is_cut_out_by_data_is_at_most_as_long_as_that_which_it_is_cut_out_of() -> None:
    graph, dims = found(CUT, 4)
    made = placing.Placing(graph, dims.order, dims, {graph["x"].out(): Shard(0)})
    made.solve()
    longest = Longest(made, 4)
    assert [longest.of(graph["squares"].out(), axis) for axis in (0, 1)] == [None, 3]
    assert longest.of(graph["counted"].out(), 0) is None
    assert longest.of(graph["x"].out(), 1) == 3


# ------------------------------------------------------------------ evidence


def test_with_one_row_a_slice_of_what_has_no_rows_has_none() -> None:
    graph, dims = found(
        """
        x = Placeholder() {dtype: float32, shape: [1,3]} : float32[1,3]
        table = Placeholder() {dtype: float32, shape: [5]} : float32[5]
        begin = Const() {dtype: int32, value: int32[1][0]} : int32[1]
        size = Const() {dtype: int32, value: int32[1][1]} : int32[1]
        part = Slice(table, begin, size) {T: float32, Index: int32} : float32[1]
        """,
        1,
    )
    single_rows.parts_of_tables(dims)
    dims.sizes.propagate()
    assert [sizes.known(size) for size in dims.dims(graph["part"].out()) or ()] == [1]


def made_of(dims: Dimensions, tensor: Tensor) -> list[object]:
    """What is known of the elements of a tensor."""
    return [None if size is None else sizes.known(size) for size in dims.elements(tensor) or ()]


VIEWS = """
    x = Placeholder() {dtype: float32, shape: [2,3]} : float32[2,3]
    axis = Const() {dtype: int32, value: int32[]0} : int32[]
    list = ConcatV2(x, x, axis) {T: float32, Tidx: int32, N: 2} : float32[4,3]
    shape = Const() {dtype: int32, value: int32[3][2,-1,3]} : int32[3]
    views = Reshape(list, shape) {T: float32, Tshape: int32} : float32[2,2,3]
    """


def test_views_in_one_list_are_taken_apart_by_their_number() -> None:
    graph, dims = found(VIEWS, 2)
    taken_apart.views_taken_apart(dims)
    dims.sizes.propagate()
    assert [sizes.known(size) for size in dims.dims(graph["views"].out()) or ()][:2] == [2, ROWS]


SHIFTED = """
    x = Placeholder() {dtype: float32, shape: [3,3]} : float32[3,3]
    w = Placeholder() {dtype: float32, shape: [3,3]} : float32[3,3]
    back = Mul(x, w) {T: float32} : float32[3,3]
    shape = Const() {dtype: int32, value: int32[2][4,3]} : int32[2]
    begin = Const() {dtype: int32, value: int32[1][0]} : int32[1]
    end = Const() {dtype: int32, value: int32[1][-1]} : int32[1]
    one = Const() {dtype: int32, value: int32[1][1]} : int32[1]
    whole = StridedSliceGrad(shape, begin, end, one, back) {T: float32, Index: int32, begin_mask: 1} : float32[4,3]
    """


def test_what_a_slice_leaves_rows_of_has_one_more_than_they_are() -> None:
    graph, dims = found(SHIFTED, 3)
    assert made_of(dims, graph["shape"].out())[0] is None
    cut_gradients.cut_from_end(dims)
    dims.sizes.propagate()
    assert made_of(dims, graph["shape"].out())[0] == add(ROWS, 1)


JOINED = """
    x = Placeholder() {dtype: float32, shape: [2,3]} : float32[2,3]
    axis = Const() {dtype: int32, value: int32[]1} : int32[]
    list = ConcatV2(x, x, axis) {T: float32, Tidx: int32, N: 2} : float32[2,6]
    wanted = Const() {dtype: int32, value: int32[2][4,3]} : int32[2]
    flat = Reshape(list, wanted) {T: float32, Tshape: int32} : float32[4,3]
    loss = L2Loss(flat) {T: float32} : float32[]
    shape = Const() {dtype: int32, value: int32[2][2,6]} : int32[2]
    back = Reshape(flat, shape) {T: float32, Tshape: int32} : float32[2,6]
    first = Const() {dtype: int32, value: int32[2][2,3]} : int32[2]
    second = Const() {dtype: int32, value: int32[2][2,3]} : int32[2]
    offsets = ConcatOffset(axis, first, second) {N: 2} : int32[2], int32[2]
    """


def test_gradients_have_the_shapes_of_what_was_joined_and_of_what_was_reshaped() -> None:
    graph, dims = found(JOINED, 2)
    graph.roles = by_hand(graph, train="loss")
    undone_layouts.joined_parts(dims)
    undone_layouts.reshaped_back(dims)
    dims.sizes.propagate()
    assert [made_of(dims, graph[name].out())[0] for name in ("shape", "first", "second")] == [ROWS] * 3


TILED = """
    x = Placeholder() {dtype: float32, shape: [1,3]} : float32[1,3]
    w = Placeholder() {dtype: float32, shape: [1,3]} : float32[1,3]
    axes = Const() {dtype: int32, value: int32[1][0]} : int32[1]
    over = Mean(x, axes) {T: float32, Tidx: int32, keep_dims: true} : float32[1,3]
    shape = Const() {dtype: int32, value: int32[2][1,3]} : int32[2]
    begin = Reshape(w, shape) {T: float32, Tshape: int32} : float32[1,3]
    multiples = Const() {dtype: int32, value: int32[2][1,1]} : int32[2]
    tile = Tile(begin, multiples) {T: float32, Tmultiples: int32} : float32[1,3]
    back = TanhGrad(x, tile) {T: float32} : float32[1,3]
    """


def test_a_tile_behind_a_mean_over_the_row_spreads_over_it() -> None:
    graph, dims = found(TILED, 1)
    tiled_gradients.tiled_rows(dims)
    first = (dims.dims(graph["begin"].out()) or ())[0]
    assert (sizes.known(first), [*dims.untold.tiles]) == (1, [])


TILED_DEEP = """
    x = Placeholder() {dtype: float32, shape: [1,3]} : float32[1,3]
    one = Const() {dtype: int32, value: int32[]1} : int32[]
    deep = ExpandDims(x, one) {T: float32, Tdim: int32} : float32[1,1,3]
    w = Placeholder() {dtype: float32, shape: [1,1,3]} : float32[1,1,3]
    first = Const() {dtype: int32, value: int32[1][0]} : int32[1]
    second = Const() {dtype: int32, value: int32[1][1]} : int32[1]
    over = Mean(deep, first) {T: float32, Tidx: int32, keep_dims: true} : float32[1,1,3]
    other = Mean(w, @) {T: float32, Tidx: int32, keep_dims: true} : float32[1,1,3]
    shape = Const() {dtype: int32, value: int32[3][1,1,3]} : int32[3]
    begin = Reshape(w, shape) {T: float32, Tshape: int32} : float32[1,1,3]
    multiples = Const() {dtype: int32, value: int32[3][1,1,1]} : int32[3]
    tile = Tile(begin, multiples) {T: float32, Tmultiples: int32} : float32[1,1,3]
    back = TanhGrad(deep, tile) {T: float32} : float32[1,1,3]
    """


@pytest.mark.parametrize(("other", "told"), [("first", True), ("second", False)])
def test_a_tile_behind_means_along_two_places_is_told_by_nothing(other: str, told: bool) -> None:
    graph, dims = found(TILED_DEEP.replace("@", other), 1)
    tiled_gradients.tiled_rows(dims)
    assert [*dims.untold.tiles] == ([] if told else [graph["tile"]])


def test_a_loop_that_reads_the_rows_of_a_list_has_as_many_iterations() -> None:
    graph, dims = found(
        """
        x = Placeholder() {dtype: float32, shape: [4,3]} : float32[4,3]
        limit = Const() {dtype: int32, value: int32[]4} : int32[]
        numbers = Range(zero, limit, one) {Tidx: int32} : int32[4]
        zero = Const() {dtype: int32, value: int32[]0} : int32[]
        one = Const() {dtype: int32, value: int32[]1} : int32[]
        list = TensorArrayV3(limit) {dtype: float32, element_shape: [3], tensor_array_name: ""} : resource[2], float32[]
        filled = TensorArrayScatterV3(list, numbers, x, list:1) {T: float32} : float32[]
        start = Enter(zero) {T: int32, frame_name: "f", is_constant: false, parallel_iterations: 1} : int32[]
        counter = Merge(start, next) {N: 2, T: int32} : int32[], int32[]
        most = Enter(limit) {T: int32, frame_name: "f", is_constant: true, parallel_iterations: 1} : int32[]
        handle = Enter(list) {T: resource, frame_name: "f", is_constant: true, parallel_iterations: 1} : resource[2]
        flow = Enter(filled) {T: float32, frame_name: "f", is_constant: true, parallel_iterations: 1} : float32[]
        less = Less(counter, most) {T: int32} : bool[]
        condition = LoopCond(less) : bool[]
        switch = Switch(counter, condition) {T: int32} : int32[], int32[]
        number = Identity(switch:1) {T: int32} : int32[]
        row = TensorArrayReadV3(handle, number, flow) {dtype: float32} : float32[3]
        more = AddV2(number, number) {T: int32} : int32[]
        next = NextIteration(more) {T: int32} : int32[]
        """,
        4,
    )
    loops_over_rows.loop_limits(dims)
    dims.sizes.propagate()
    assert follows_batch((dims.elements(graph["limit"].out()) or [0])[0] or 0)


BACK = """
    x = Placeholder() {dtype: float32, shape: [4,3]} : float32[4,3]
    limit = Const() {dtype: int32, value: int32[]4} : int32[]
    last = Const() {dtype: int32, value: int32[]@} : int32[]
    zero = Const() {dtype: int32, value: int32[]0} : int32[]
    one = Const() {dtype: int32, value: int32[]1} : int32[]
    numbers = Range(zero, limit, one) {Tidx: int32} : int32[4]
    list = TensorArrayV3(limit) {dtype: float32, element_shape: [3], tensor_array_name: ""} : resource[2], float32[]
    filled = TensorArrayScatterV3(list, numbers, x, list:1) {T: float32} : float32[]
    start = Enter(last) {T: int32, frame_name: "f", is_constant: false, parallel_iterations: 1} : int32[]
    counter = Merge(start, next) {N: 2, T: int32} : int32[], int32[]
    handle = Enter(list) {T: resource, frame_name: "f", is_constant: true, parallel_iterations: 1} : resource[2]
    flow = Enter(filled) {T: float32, frame_name: "f", is_constant: true, parallel_iterations: 1} : float32[]
    more = Greater(counter, zero) {T: int32} : bool[]
    condition = LoopCond(more) : bool[]
    switch = Switch(counter, condition) {T: int32} : int32[], int32[]
    number = Identity(switch:1) {T: int32} : int32[]
    less = Sub(number, one) {T: int32} : int32[]
    row = TensorArrayReadV3(handle, less, flow) {dtype: float32} : float32[3]
    next = NextIteration(less) {T: int32} : int32[]
"""


@pytest.mark.parametrize(("first", "follows"), [(4, True), (3, False)])
def test_a_loop_that_goes_back_through_the_rows_begins_with_the_last_one(first: int, follows: bool) -> None:
    graph, dims = found(BACK.replace("@", str(first)), 4)
    (number,) = element_numbers.element_numbers(dims.order)
    assert (number.first.node.name, number.counter, number.beside) == ("last", graph["counter"], -1)
    loops_over_rows.counted_down(dims)
    dims.sizes.propagate()
    assert follows_batch((dims.elements(graph["last"].out()) or [0])[0] or 0) == follows


PAIRS = """
    x = Placeholder() {dtype: float32, shape: [4,3]} : float32[4,3]
    axes = Const() {dtype: int32, value: int32[1][1]} : int32[1]
    rows = Sum(x, axes) {T: float32, Tidx: int32, keep_dims: false} : float32[4]
    one = Const() {dtype: int32, value: int32[1][4]} : int32[1]
    whole = Tile(rows, one) {T: float32, Tmultiples: int32} : float32[16]
    column = Sum(x, axes) {T: float32, Tidx: int32, keep_dims: true} : float32[4,1]
    each = Const() {dtype: int32, value: int32[2][1,4]} : int32[2]
    wide = Tile(column, each) {T: float32, Tmultiples: int32} : float32[4,4]
    flat = Const() {dtype: int32, value: int32[1][-1]} : int32[1]
    long = Reshape(wide, flat) {T: float32, Tshape: int32} : float32[16]
    """


@pytest.mark.parametrize(("other", "follows"), [("whole", True), ("long", False)])
def test_rows_one_by_one_that_meet_whole_batches_are_pairs(other: str, follows: bool) -> None:
    """Those that meet such as they are themselves may be repeated as often as the model says."""
    meet = f"pairs = Sub(long, {other}) {{T: float32}} : float32[16]"
    graph, dims = found(PAIRS + meet, 4)
    pairs_of_rows.crossed(dims)
    dims.sizes.propagate()
    (count,) = dims.dims(graph["pairs"].out()) or ()
    assert (sizes.known(count) == times(ROWS, ROWS)) == follows


def test_a_factor_of_a_sum_over_the_batch_says_what_speaks_for_it() -> None:
    _, dims = found(
        """
        x = Placeholder() {dtype: float32, shape: [8,3]} : float32[8,3]
        axes = Const() {dtype: int32, value: int32[2][0, 1]} : int32[2]
        total = Sum(x, axes) {T: float32, Tidx: int32, keep_dims: false} : float32[]
        eighth = Const() {dtype: float32, value: float32[]0.125} : float32[]
        half = Const() {dtype: float32, value: float32[]0.5} : float32[]
        mean = Mul(total, eighth) {T: float32} : float32[]
        less = Mul(half, total) {T: float32} : float32[]
        """,
        8,
    )
    (factor,) = reciprocals.factors(dims)
    assert (factor.constant.name, factor.divisor, factor.counts, factor.odd, factor.forward) == (
        "eighth",
        8,
        True,
        True,
        False,
    )
    assert factor.witnesses == 2


# ------------------------------------------------------------------ numbers made of the rows


@pytest.mark.parametrize(
    ("value", "words", "steps"),
    [
        (np.log(5), "the logarithm of 5", (Step("Log"),)),
        (-np.log(5), "minus the logarithm of 5", (Step("Log"), Step("Neg"))),
        (np.sqrt(10), "the root of 10", (Step("Sqrt"),)),
        (1 / np.sqrt(4), "one over the root of one less than 5", (Step("Sub", 1), Step("Rsqrt"))),
    ],
)
def test_roots_and_logarithms_of_rows_are_read(value: float, words: str, steps: tuple[Step, ...]) -> None:
    found = readings.root_of_rows(float(np.float32(value)), 5)
    assert found is not None
    assert (str(found), found.steps) == (words, steps)


@pytest.mark.parametrize(
    ("value", "words", "steps"),
    [
        (1 / 10, "one over 10", (Step("Reciprocal"),)),
        (1 / 4, "one over one less than 5", (Step("Sub", 1), Step("Reciprocal"))),
        (5 / 3, "5 / 3", (Step("RealDiv", 3),)),
    ],
)
def test_shares_of_rows_are_read(value: float, words: str, steps: tuple[Step, ...]) -> None:
    found = readings.share_of_rows(float(np.float32(value)), 5)
    assert found is not None
    assert (str(found), found.steps) == (words, steps)
    assert readings.share_of_rows(0.37, 5) is None
    assert readings.root_of_rows(0.37, 5) is None


@pytest.mark.parametrize(
    ("counted", "number", "reading"),
    [
        ("one_hot", 1.0, "3 / 3"),
        ("scores", 1.0, None),  # one over a sum is no weight of classes then
        ("scores", 2.0, "6 / 3"),
        ("one_hot", 0.7, None),
    ],
)
def test_shares_of_classes_are_divided_by_numbers_of_rows(counted: str, number: float, reading: str | None) -> None:
    rows = 6 if number == 2 else 3
    _, dims = found(
        f"""
        x = Placeholder() {{dtype: float32, shape: [{rows},3]}} : float32[{rows},3]
        last = Const() {{dtype: int32, value: int32[]1}} : int32[]
        class = ArgMax(x, last) {{T: float32, Tidx: int32, output_type: int32}} : int32[{rows}]
        width = Const() {{dtype: int32, value: int32[]3}} : int32[]
        on = Const() {{dtype: float32, value: float32[]1}} : float32[]
        off = Const() {{dtype: float32, value: float32[]0}} : float32[]
        one_hot = OneHot(class, width, on, off) {{T: float32, TI: int32, axis: -1}} : float32[{rows},3]
        scores = Neg(x) {{T: float32}} : float32[{rows},3]
        over = Const() {{dtype: int32, value: int32[1][0]}} : int32[1]
        count = Sum({counted}, over) {{T: float32, Tidx: int32, keep_dims: false}} : float32[3]
        share = Const() {{dtype: float32, value: float32[]{number}}} : float32[]
        weights = RealDiv(share, count) {{T: float32}} : float32[3]
        """,
        rows,
    )
    assert [str(made.reading) for made in reciprocals.shares_of_classes(dims)] == ([reading] if reading else [])


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
    assert known_sizes.known_vector(graph["both"].out()) == [6, None]
    assert known_sizes.known_vector(graph["x"].out()) is None
    assert known_sizes.known_scalar(graph["count"].out()) == 6
