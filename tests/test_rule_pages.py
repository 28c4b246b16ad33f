"""A claim of each page of rules: which dimensions of a result follow the batch, and how it lives on the cores.

The inputs are those of a batch of four rows: ``x`` [4, 6] and ``ids`` [4], and a weight ``w`` [6, 5], the same on every core.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import pytest

from tpugraph import analysis, ops, testing
from tpugraph.analysis import dimensions, evidence, placing, shapes, sizes_on_cores
from tpugraph.analysis.dimension_rules import (
    arithmetic_ties,
    block_ties,
    broadcast_ties,
    container_ties,
    handed_on_ties,
    lookup_ties,
    matrix_ties,
    padding_ties,
    regrouping_ties,
    reshaping_ties,
    size_arithmetic,
    slice_ends,
    slicing_ties,
    sparse_ties,
    state_ties,
    window_ties,
)
from tpugraph.analysis.evidence import (
    counters,
    divisors,
    factored_pairs,
    open_shapes,
    presumed,
    reshapes,
    summed,
    whole_shapes,
)
from tpugraph.analysis.placement_rules import (
    block_placements,
    box_placements,
    container_placements,
    entry_placements,
    factor_placements,
    flattened_rows,
    handed_on_placements,
    joining_placements,
    lookup_placements,
    reduction_placements,
    reshaping_placements,
    segment_placements,
    size_placements,
    slicing_placements,
    sparse_placements,
)
from tpugraph.analysis.placements import REPLICATE, Entries, Held, Partial, Placement, Shard, Sized
from tpugraph.analysis.sizes import ROWS, Unknown, follows_batch, known
from tpugraph.ir import Graph
from tpugraph.roles.findings import Finding, Roles

FED = """
    x = Placeholder() {dtype: float32, shape: [4,6]}
    ids = Placeholder() {dtype: int32, shape: [4]}
    w = Placeholder() {dtype: float32, shape: [6,5]}
    first = Const() {dtype: int32, value: int32[1][0]}
    zero = Const() {dtype: int32, value: int32[]0}
    one = Const() {dtype: int32, value: int32[]1}
    swapped = Const() {dtype: int32, value: int32[2][1, 0]}
    """


def read(text: str) -> Graph:
    graph = testing.parse(FED + text)
    shapes.infer(graph)
    return graph


def tied_dimensions(graph: Graph) -> dimensions.Dimensions:
    """What the ops alone tell."""
    order = analysis.loop_order(graph, dict.fromkeys(graph))
    seeds = {graph["x"].out(): (ROWS, 6), graph["ids"].out(): (ROWS,), graph["w"].out(): (6, 5)}
    return dimensions.Dimensions(graph, order, 4, seeds, whole=8)


def found_dimensions(graph: Graph) -> dimensions.Dimensions:
    made = tied_dimensions(graph)
    evidence.weigh(made)
    return made


def found_placements(graph: Graph) -> placing.Placing:
    d = found_dimensions(graph)
    seeds = {graph["x"].out(): Shard(0), graph["ids"].out(): Shard(0), graph["w"].out(): REPLICATE}
    made = placing.Placing(graph, d.order, d, seeds)
    made.solve()
    return made


SUM = "y = Sum(x, first) {T: float32, Tidx: int32, keep_dims: false}"
SHAPE = "y = Shape(x) {T: float32, out_type: int32}"
RESHAPE = """
    a = Const() {dtype: int32, value: int32[2][-1, 3]}
    y = Reshape(x, a) {T: float32, Tshape: int32}
    """
SLICE = """
    b = Const() {dtype: int32, value: int32[2][0, 2]}
    s = Const() {dtype: int32, value: int32[2][-1, 3]}
    y = Slice(x, b, s) {T: float32, Index: int32}
    """
BLOCKS = """
    square = Const() {dtype: int32, value: int32[4][-1, 2, 3, 1]}
    image = Reshape(x, square) {T: float32, Tshape: int32}
    block = Const() {dtype: int32, value: int32[2][2, 2]}
    border = Const() {dtype: int32, value: int32[2,2][[0, 0], [1, 0]]}
    y = SpaceToBatchND(image, block, border) {T: float32, Tblock_shape: int32, Tpaddings: int32}
    back = BatchToSpaceND(y, block, border) {T: float32, Tblock_shape: int32, Tcrops: int32}
    """
GATHER = "y = GatherV2(w, ids, zero) {Tparams: float32, Tindices: int32, Taxis: int32, batch_dims: 0}"
TRANSPOSE = "y = Transpose(x, swapped) {T: float32, Tperm: int32}"
MATMUL = "y = MatMul(x, w) {T: float32, transpose_a: false, transpose_b: false}"
_ARRAY = 'clear_after_read: true, identical_element_shapes: true, tensor_array_name: ""'
LIST = f"""
    columns = Const() {{dtype: int32, value: int32[]6}}
    y = TensorArrayV3(columns) {{dtype: float32, element_shape: [4], dynamic_size: false, {_ARRAY}}}
    numbers = Range(zero, columns, one) {{Tidx: int32}}
    across = Transpose(x, swapped) {{T: float32, Tperm: int32}}
    filled = TensorArrayScatterV3(y, numbers, across, y:1) {{T: float32}}
    column = TensorArrayReadV3(y, zero, filled) {{dtype: float32}}
    """
SEGMENTS = """
    five = Const() {dtype: int32, value: int32[]5}
    y = UnsortedSegmentSum(x, ids, five) {T: float32, Tindices: int32, Tnumsegments: int32}
    """
BOXES = """
    square = Const() {dtype: int32, value: int32[4][-1, 2, 3, 1]}
    images = Reshape(x, square) {T: float32, Tshape: int32}
    shape = Shape(x) {T: float32, out_type: int32}
    rows = GatherV2(shape, zero, zero) {Tparams: int32, Tindices: int32, Taxis: int32, batch_dims: 0}
    numbers = Range(zero, rows, one) {Tidx: int32}
    from = Const() {dtype: int32, value: int32[2][0, 0]}
    many = Const() {dtype: int32, value: int32[2][-1, 4]}
    corners = Slice(x, from, many) {T: float32, Index: int32}
    size = Const() {dtype: int32, value: int32[2][2, 2]}
    y = CropAndResize(images, corners, numbers, size) {T: float32, method: "bilinear", extrapolation_value: 0.0}
    """
CUT = """
    many = Placeholder() {dtype: int32, shape: []}
    apart = Const() {dtype: int32, value: int32[3][-1, 3, 2]}
    rows = Reshape(x, apart) {T: float32, Tshape: int32}
    begin = Const() {dtype: int32, value: int32[3][0, 0, 0]}
    steps = Const() {dtype: int32, value: int32[3][1, 1, 1]}
    end = Pack(zero, many, zero) {N: 3, T: int32, axis: 0}
    cut = StridedSlice(rows, begin, end, steps) {T: float32, Index: int32, begin_mask: 7, end_mask: 5}
    pairs = Const() {dtype: int32, value: int32[2][-1, 2]}
    flat = Reshape(cut, pairs) {T: float32, Tshape: int32}
    squares = Square(flat) {T: float32}
    shape = Shape(cut) {T: float32, out_type: int32}
    back = Reshape(squares, shape) {T: float32, Tshape: int32}
    """
SPARSE = """
    places = Const() {dtype: int64, value: int64[1,2][[0, 0]]}
    values = Const() {dtype: float32, value: float32[1][1.0]}
    size = Shape(x) {T: float32, out_type: int64}
    y = SparseTensorDenseMatMul(places, values, size, w) {T: float32, Tindices: int64, adjoint_a: false, adjoint_b: false}
    """
SPARSE_SUM = """
    places = Where(x) {T: float32}
    values = GatherNd(x, places) {Tparams: float32, Tindices: int64}
    size = Shape(x) {T: float32, out_type: int64}
    y = SparseReduceSum(places, values, size, one) {T: float32, keep_dims: false}
    """
WINDOWS = """
    series = Const() {dtype: int32, value: int32[4][1, 1, -1, 6]}
    image = Reshape(x, series) {T: float32, Tshape: int32}
    y = AvgPool(image) {T: float32, ksize: (1; 1; 2; 1), strides: (1; 1; 1; 1), padding: "SAME", data_format: "NHWC"}
    """
NORM = """
    scale = Const() {dtype: float32, value: float32[2][1.0, 1.0]}
    none = Const() {dtype: float32, value: float32[0][]}
    wide = Const() {dtype: int32, value: int32[4][-1, 1, 3, 2]}
    image = Reshape(x, wide) {T: float32, Tshape: int32}
    y = FusedBatchNormV3(image, scale, scale, none, none) {T: float32, U: float32, data_format: "NHWC", is_training: true}
    """


PAD = """
    around = Const() {dtype: int32, value: int32[2,2][[0, 0], [1, 2]]}
    y = Pad(x, around) {T: float32, Tpaddings: int32}
    """
ENDS = """
    b = Const() {dtype: int32, value: int32[2][0, 0]}
    s = Const() {dtype: int32, value: int32[2][4, 2]}
    t = Const() {dtype: int32, value: int32[2][1, 1]}
    y = StridedSlice(x, b, s, t) {T: float32, Index: int32, begin_mask: 0, end_mask: 0}
    """


@pytest.mark.parametrize(
    ("page", "text", "node", "axes"),
    [
        (arithmetic_ties, SHAPE, "y", []),
        (block_ties, BLOCKS, "y", [0]),
        (container_ties, LIST, "column", [0]),
        (handed_on_ties, "y = IdentityN(ids, x) {T: (int32; float32)}", "y", [0]),
        (lookup_ties, GATHER, "y", [0]),
        (matrix_ties, "y = Qr(x) {T: float32, full_matrices: false}", "y", [0, 1]),
        (padding_ties, PAD, "y", [0]),
        (regrouping_ties, RESHAPE, "y", [0]),
        (reshaping_ties, TRANSPOSE, "y", [1]),
        (slicing_ties, SLICE, "y", [0]),
        (sparse_ties, SPARSE, "y", [0]),
        (sparse_ties, SPARSE_SUM, "y", [0]),
        (state_ties, NORM, "y", [0]),
        (window_ties, WINDOWS, "y", [2]),
    ],
)
def test_dimensions_follow_the_batch(page: ModuleType, text: str, node: str, axes: list[int]) -> None:
    graph = read(text)
    found = found_dimensions(graph)
    assert dimensions.RULES.of(graph[node].op).__module__ == page.__name__
    assert found.axes(graph[node].out()) == axes


def test_a_slice_up_to_as_many_as_the_rows_ends_at_their_number() -> None:
    graph = read(ENDS)
    found = found_dimensions(graph)
    rows, columns = (slice_ends.end_of(found, graph["y"], place) for place in (0, 1))
    assert rows is not None
    assert known(rows) == ROWS
    assert columns is not None
    assert known(columns) == 2
    assert found.axes(graph["y"].out()) == [0]


def test_the_elements_of_a_shape_follow_what_they_are_sizes_of() -> None:
    graph = read(SHAPE)
    rows, columns = found_dimensions(graph).elements(graph["y"].out()) or (None, None)
    assert rows is not None
    assert follows_batch(rows)
    assert columns == 6


@pytest.mark.parametrize(
    ("page", "text", "node", "placement", "why"),
    [
        (reduction_placements, SUM, "y", Partial(), "sums over the rows"),
        (factor_placements, MATMUL, "y", Shard(0), "works along the rows of 'i'"),
        (handed_on_placements, "y = IdentityN(x, ids) {T: (float32; int32)}", "y", Shard(0), "handed on"),
        (size_placements, SHAPE, "y", Sized(), ""),
        (reshaping_placements, RESHAPE, "y", Shard(0, inner=2), "rows stay rows"),
        (joining_placements, "y = Pack(x, x) {N: 2, T: float32, axis: 1}", "y", Shard(0), "rows stay rows"),
        (block_placements, BLOCKS, "y", Shard(0, outer=4), "rows stay rows"),
        (block_placements, BLOCKS, "back", Shard(0), "rows stay rows"),
        (container_placements, LIST, "y", Held("y"), ""),
        (slicing_placements, SLICE, "y", Shard(0), "rows stay rows"),
        (sparse_placements, SPARSE_SUM, "y", Shard(0), "the entries of each row"),
        (segment_placements, SEGMENTS, "y", Partial(), "adds the rows up at places"),
        (box_placements, BOXES, "y", Shard(0), "boxes of this core's own images"),
        (lookup_placements, GATHER, "y", Shard(0), "rows of a table by this core's numbers"),
    ],
)
def test_where_a_value_lives(page: ModuleType, text: str, node: str, placement: Placement, why: str) -> None:
    graph = read(text)
    found = found_placements(graph)
    assert placing.RULES.of(graph[node].op).__module__ == page.__name__
    assert found.read(graph[node].out()) == placement
    assert why in found.verdicts[graph[node]].why


def test_rows_that_data_cut_lie_one_behind_the_other_on_each_core() -> None:
    graph = read(CUT)
    found = found_placements(graph)
    made = {name: found.read(graph[name].out()) for name in ("cut", "flat", "squares", "back")}
    assert made == {"cut": Shard(0), "flat": Entries("values"), "squares": Entries("values"), "back": Shard(0)}
    assert flattened_rows.laid_by(found, graph["squares"].out()) is graph["flat"]
    assert flattened_rows.laid_by(found, graph["cut"].out()) is None


COLUMN = "Tidx: int64, T: int64, Index: int32, begin_mask: 1, end_mask: 1, ellipsis_mask: 0, new_axis_mask: 0, shrink_axis_mask: 2"
PLACES = f"""
    half = Const() {{dtype: float32, value: float32[]0.5}}
    mask = Greater(x, half) {{T: float32}}
    places = Where(mask) {{T: bool}}
    front = Const() {{dtype: int32, value: int32[2][0, 0]}}
    behind = Const() {{dtype: int32, value: int32[2][0, 1]}}
    end = Const() {{dtype: int32, value: int32[2][0, 2]}}
    ones = Const() {{dtype: int32, value: int32[2][1, 1]}}
    row = StridedSlice(places, front, behind, ones) {{{COLUMN}}}
    column = StridedSlice(places, behind, end, ones) {{{COLUMN}}}
    six = Const() {{dtype: int64, value: int64[]6}}
    scaled = Mul(row, six) {{T: int64}}
    flat = AddV2(scaled, column) {{T: int64}}
    before = Less(row, column) {{T: int64}}
    number = Cast(row) {{SrcT: int64, DstT: float32, Truncate: false}}
    again = FloorDiv(flat, six) {{T: int64}}
    step = FloorMod(flat, six) {{T: int64}}
    turned = Pack(column, row) {{N: 2, T: int64, axis: 1}}
    kept = Pack(row, column) {{N: 2, T: int64, axis: 1}}
    """


@pytest.mark.parametrize(
    ("node", "role", "per_row"),
    [
        ("row", "local", 1),
        ("column", "values", None),
        ("flat", "local", 6),
        ("again", "local", 1),
        ("step", "values", None),
        ("kept", "local", None),
        ("before", "values", None),
        ("number", "values", None),
        ("turned", "values", None),
    ],
)
def test_numbers_made_of_places_lack_those_of_the_cores_before(node: str, role: str, per_row: int | None) -> None:
    found = found_placements(graph := read(PLACES))
    assert found.read(graph[node].out()) == Entries(role)
    if per_row is not None:
        assert entry_placements.places_per_row(found, graph[node].out()) == per_row
    numbered = [i for i, want in found.verdicts[graph[node]].wants.items() if want == Entries("values")]
    assert numbered == {"before": [0], "number": [0], "turned": [1]}.get(node, [])


DIVIDED = f"""{SUM}
    count = Const() {{dtype: float32, value: float32[]4.0}}
    mean = RealDiv(y, count) {{T: float32}}
    """
ONES = """
    count = Const() {dtype: int32, value: int32[2][4, 6]}
    number = Const() {dtype: float32, value: float32[]1.0}
    ones = Fill(count, number) {T: float32, index_type: int32}
    more = AddV2(x, ones) {T: float32}
    """
FLAT = """
    count = Const() {dtype: int32, value: int32[1][24]}
    flat = Reshape(x, count) {T: float32, Tshape: int32}
    """
PAIRED = """
    x_rows = ExpandDims(ids, zero) {T: int32, Tdim: int32}
    y_rows = ExpandDims(ids, one) {T: int32, Tdim: int32}
    all = Const() {dtype: int32, value: int32[1][-1]}
    none = Const() {dtype: int32, value: int32[1][0]}
    second = Const() {dtype: int32, value: int32[1][1]}
    pairs = AddV2(x_rows, y_rows) {T: int32}
    list = Reshape(pairs, all) {T: int32, Tshape: int32}
    rest = StridedSlice(list, second, none, second) {T: int32, Index: int32, begin_mask: 0, end_mask: 1, ellipsis_mask: 0, new_axis_mask: 0, shrink_axis_mask: 0}
    count = Const() {dtype: int32, value: int32[2][3, 5]}
    wider = Reshape(rest, count) {T: int32, Tshape: int32}
    """  # noqa: E501
NUMBERED = """
    n = Shape(ids) {T: int32, out_type: int32}
    size = Prod(n, first) {T: int32, Tidx: int32, keep_dims: false}
    numbers = Range(zero, size, one) {Tidx: int32}
    count = Const() {dtype: int32, value: int32[]4}
    moved = AddV2(numbers, count) {T: int32}
    """


@pytest.mark.parametrize(
    ("page", "text"),
    [(divisors, DIVIDED), (whole_shapes, ONES), (reshapes, FLAT), (counters, NUMBERED), (factored_pairs, PAIRED)],
)
def test_what_speaks_for_a_constant_that_counts_rows(page: ModuleType, text: str) -> None:
    graph = read(text)
    d = found_dimensions(graph)
    elements = d.elements(graph["count"].out())
    assert elements, f"{page.__name__} knows nothing of the constant"
    assert follows_batch(elements[0] or 0)


def test_a_constant_that_nothing_speaks_for_is_a_number_of_the_model() -> None:
    graph = read("count = Const() {dtype: float32, value: float32[]4.0}\n    y = Mul(x, count) {T: float32}")
    elements = found_dimensions(graph).elements(graph["count"].out())
    assert not follows_batch((elements or [None])[0] or 0)


@pytest.mark.parametrize("rules", [dimensions.RULES, placing.RULES])
def test_every_rule_is_of_ops_that_there_are(rules: Mapping[str, object]) -> None:
    assert [op for op in rules if op and ops.op_def(op) is None] == []


def test_the_product_of_two_sizes_follows_the_batch_with_them() -> None:
    d = found_dimensions(read(""))
    cells = size_arithmetic.product(d, [ROWS, 6])
    d.sizes.propagate()
    assert str(known(cells)) == "6*b"
    assert size_arithmetic.product(d, [2, 3]) == 6


def test_a_number_that_rows_are_divided_by_is_the_models_and_what_their_halves_make_is_not() -> None:
    d = found_dimensions(read(""))
    by, half, whole = Unknown(2, ("by", 0)), Unknown(d.rows // 2), Unknown(d.rows, ("whole", 0))
    d.sizes.quotient(half, ROWS, by)
    d.sizes.sum([whole], [half, half])
    d.sizes.product([Unknown(3 * d.rows)], [whole, ROWS])
    presumed.literal_factors(d)
    assert (known(by), known(whole)) == (2, None)
    d.sizes.propagate()
    assert str(known(half)) == "1/2*b"
    assert known(whole) == ROWS


def test_rows_are_found_behind_the_linear_ops_after_a_sum() -> None:
    graph = read(f"{SUM}\n    z = Neg(y) {{T: float32}}")
    found = list(summed.back(found_dimensions(graph), graph["z"].out()))
    assert [follows_batch(size) for size in found] == [True]


MET = """
    half = Const() {dtype: float32, value: float32[]0.5}
    column = Sum(x, one) {T: float32, Tidx: int32, keep_dims: false}
    mask = Greater(column, half) {T: float32}
    places = Where(mask) {T: bool}
    best = GatherNd(column, places) {Tparams: float32, Tindices: int64}
    apart = Sub(column, best) {T: float32}
    shape = Shape(best) {T: float32, out_type: int32}
    written = Const() {dtype: int32, value: int32[1][4]}
    axes = BroadcastGradientArgs(written, shape) {T: int32}
    """


def test_what_data_pick_may_be_one_row_beside_all_and_says_whose_shape_is_written() -> None:
    graph = read(MET)
    d = found_dimensions(graph)
    assert dimensions.RULES.of("BroadcastGradientArgs").__module__ == broadcast_ties.__name__
    assert [d.elements(graph["axes"].out(port)) for port in range(2)] == [None, None]
    assert [known(size or 0) for size in d.elements(graph["written"].out()) or ()] == [ROWS]


def test_open_shapes_of_the_forward_step_are_found_by_their_sizes() -> None:
    graph = read("""
        half = Const() {dtype: float32, value: float32[]0.5}
        wide = Const() {dtype: int32, value: int32[2][4, 6]}
        spread = Fill(wide, half) {T: float32, index_type: int32}
        loss = L2Loss(spread) {T: float32}
        written = Const() {dtype: int32, value: int32[2][4, 6]}
        """)
    graph.roles = Roles(Finding("loss", "named"), [], None, [], {}, [])
    d = tied_dimensions(graph)
    opened = open_shapes.OpenShapes(d)
    of_forward, other = (d.elements(graph[name].out()) or [] for name in ("wide", "written"))
    assert opened.measures(of_forward)
    assert not opened.measures(other)
    assert opened.has(graph["written"].out(), of_forward)
    assert not opened.has(graph["wide"].out(), of_forward)  # it makes that itself
    assert not opened.has(graph["written"].out(), other)


def test_the_shape_of_what_all_cores_hold_is_one_number_everywhere() -> None:
    graph = read(MET + "shapes = ShapeN(column, best) {N: 2, T: float32, out_type: int32}")
    d, node = found_dimensions(graph), graph["shapes"]
    assert sizes_on_cores.of_each(d, node, [Shard(0), REPLICATE], Sized()) == [Sized(), REPLICATE]
    assert sizes_on_cores.beside_sizes(d, node, [Sized(), Sized()], Sized()) == {}
