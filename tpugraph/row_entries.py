"""How each op treats the entries of sparse rows: the rules behind :mod:`tpugraph.rows` for lookups of ids and of text.

A sparse column is found in dense rows (``Where``), looked up entry by entry and summed per row. In between nothing has
a row for each example, but every entry belongs to one row and depends on that row alone. Only ops listed here keep
that; any other op mixes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpugraph import ops
from tpugraph.ir import Node
from tpugraph.row_states import MIXED, UNIFORM, WITHIN, Entries, Rows, Sizes, State, is_level, rank_of, value_of

_Rule = Callable[[Node, Sequence[State]], list[State]]
_PASS_SIZES = frozenset({"Cast", "Slice", "StridedSlice", "Pack", "ConcatV2", "GatherV2", "Squeeze"}) | ops.IDENTITIES
_RULES: dict[str, _Rule] = {}


def concerns(node: Node, inputs: Sequence[State]) -> bool:
    """Whether the rules of this module decide: an input has entries, or a size that entries make."""
    return node.op in _FINDS or any(isinstance(state, Entries) for state in inputs) or (
        node.op not in _PASS_SIZES and any(is_within(state) for state in inputs))  # fmt: skip


def is_within(state: State) -> bool:
    """Whether a state is about entries: what no number of rows gives."""
    return isinstance(state, Entries) or (isinstance(state, Sizes) and WITHIN in state.times)


def apply(node: Node, inputs: Sequence[State]) -> list[State]:
    """The states of a node's outputs."""
    rule = _RULES.get(node.op)
    if rule is None and node.op in ops.IDENTITIES:
        return list(inputs)
    if rule is None and node.op in ops.ELEMENTWISE | ops.ROW_BY_ROW and "MatMul" not in node.op:
        rule = _elementwise
    count = len(node.outputs or ())
    found = [] if rule is None else rule(node, inputs)
    return [*found, *[MIXED for _ in range(count - len(found))]]


def _rule(*types: str) -> Callable[[_Rule], _Rule]:
    def register(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(types, rule))
        return rule

    return register


# --------------------------------------------------------------------------- found, chosen


_FINDS = frozenset({"Where", "SparseFillEmptyRows", "SparseCross"})


@_rule("Where")
def _where(node: Node, inputs: Sequence[State]) -> list[State]:
    """Where rows hold something, column 0 numbers them; where entries do, it chooses some of them."""
    state = inputs[0]
    if state == Rows(0):
        return [Entries((node.name,), "rows")]
    if isinstance(state, Entries) and state.role == "values" and rank_of(node.inputs[0]) == 1:
        return [Entries((*state.origin, node.name), "chosen")]
    return [MIXED]


@_rule("SparseFillEmptyRows")
def _fill(node: Node, inputs: Sequence[State]) -> list[State]:
    """Every row has an entry afterwards; the last output chooses those that were there before."""
    if not _is_sparse(inputs[:3]) or inputs[3] != UNIFORM:
        return [MIXED]
    origin = (node.name,)
    before = Entries((*origin, "before"), "chosen")
    return [Entries(origin, "rows", full=True), Entries(origin, "values", full=True), Rows(0), before]


@_rule("SparseReshape")
def _reshape_sparse(node: Node, inputs: Sequence[State]) -> list[State]:
    """As many rows before and after: each entry stays in its row."""
    numbers, before, after = inputs
    if not isinstance(numbers, Entries) or numbers.role != "rows" or not (_has_rows(before) and _has_rows(after)):
        return [MIXED]
    return [numbers, after]


@_rule("SparseCross")
def _cross(node: Node, inputs: Sequence[State]) -> list[State]:
    """Combines the entries of one row, and dense values of that row."""
    count = node.attr("N")
    sparse = [inputs[i : 3 * count : count] for i in range(count)]
    if not all(_is_sparse(one) for one in sparse) or any(state != Rows(0) for state in inputs[3 * count :]):
        return [MIXED]
    origin = (node.name,)
    return [Entries(origin, "rows"), Entries(origin, "values"), Sizes((1, WITHIN))]


def _is_sparse(states: Sequence[State]) -> bool:
    """Whether indices, values and dense shape are those of one sparse tensor with a row for each of the batch."""
    numbers, values, shape = states
    return (
        isinstance(numbers, Entries) and isinstance(values, Entries) and numbers.origin == values.origin
        and (numbers.role, values.role) == ("rows", "values") and _has_rows(shape)
    )  # fmt: skip


def _has_rows(shape: State) -> bool:
    return isinstance(shape, Sizes) and shape.times[0] == 1


# --------------------------------------------------------------------------- entry by entry


def _elementwise(node: Node, inputs: Sequence[State]) -> list[State]:
    """Entries of one origin stand side by side; row numbers are only cast."""
    entries = [state for state in inputs if isinstance(state, Entries)]
    if node.op.startswith("LookupTable"):
        return [inputs[1] if inputs[0] == inputs[2] == UNIFORM else MIXED]
    if node.op == "Cast":
        return [entries[0]]
    rank = rank_of(node.out())
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if isinstance(state, Entries):
            fits = state == entries[0] and state.role in ("values", "distinct") and rank_of(tensor) == rank
        else:
            fits = state == UNIFORM and is_level(tensor, -rank)
        if not fits:
            return [MIXED]
    return [entries[0]]


@_rule("GatherNd")
def _gather_nd(node: Node, inputs: Sequence[State]) -> list[State]:
    params, indices = inputs
    found = isinstance(indices, Entries) and indices.role == "rows" and params == Rows(0)
    return [Entries(indices.origin, "values", indices.full) if found and isinstance(indices, Entries) else MIXED]


@_rule("GatherV2", "Gather", "ResourceGather")
def _gather(node: Node, inputs: Sequence[State]) -> list[State]:
    """From a uniform table by entries, chosen entries, or what distinct entries gave back in their places."""
    params, indices = inputs[:2]
    axis = value_of(node.inputs[2]) if node.op == "GatherV2" else [0]
    if not isinstance(indices, Entries) or axis != [0] or node.attr("batch_dims", 0):
        return [MIXED]
    if params == UNIFORM and indices.role in ("values", "distinct"):
        return [indices]
    if not isinstance(params, Entries):
        return [MIXED]
    if indices.role == "chosen" and params.origin == indices.origin[:-1]:
        return [Entries(indices.origin, params.role)]
    if (params.role, indices.role) == ("distinct", "places") and params.origin == indices.origin:
        return [Entries(indices.origin, "values", indices.full)]
    return [MIXED]


@_rule("Unique", "UniqueV2")
def _unique(node: Node, inputs: Sequence[State]) -> list[State]:
    state = inputs[0]
    if not isinstance(state, Entries) or state.role != "values":
        return [MIXED]
    return [Entries(state.origin, role, state.full) for role in ("distinct", "places")]


@_rule("StridedSlice")
def _column(node: Node, inputs: Sequence[State]) -> list[State]:
    """All entries, and of indices the column that numbers the rows."""
    state = inputs[0]
    begin, end, strides = (value_of(tensor) for tensor in node.inputs[1:4])
    if not isinstance(state, Entries) or begin is None or end is None or strides is None:
        return [MIXED]
    masks = [node.attr(f"{name}_mask", 0) for name in ("ellipsis", "new_axis")]
    whole = strides[0] == 1 and node.attr("begin_mask", 0) & node.attr("end_mask", 0) & 1
    if any(masks) or not whole or node.attr("shrink_axis_mask", 0) & 1:
        return [MIXED]
    first = len(begin) == 2 and begin[1] == 0 and node.attr("shrink_axis_mask", 0) == 2
    return [state if state.role == "values" or (state.role == "rows" and first) else MIXED]


@_rule("Reshape", "ExpandDims", "Squeeze")
def _reshape(node: Node, inputs: Sequence[State]) -> list[State]:
    """An entry stays an entry: what it holds is as much as before."""
    state, source, out = inputs[0], node.inputs[0].shape, node.out().shape
    if not isinstance(state, Entries) or not source or not out:
        return [MIXED]
    dims = [[dim for dim in shape[1:] if dim != 1] for shape in (source, out)]
    target = value_of(node.inputs[1]) if node.op == "Reshape" else [-1]
    whole = source[0] is None and out[0] is None and dims[0] == dims[1] and target is not None and target[0] == -1
    return [state if whole and state.role in ("values", "chosen", "distinct") else MIXED]


@_rule("Shape")
def _shape(node: Node, inputs: Sequence[State]) -> list[State]:
    return [Sizes((WITHIN, *[None] * (rank_of(node.inputs[0]) - 1)))]


# --------------------------------------------------------------------------- back to rows


@_rule("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")
def _segments_of_places(node: Node, inputs: Sequence[State]) -> list[State]:
    numbers = inputs[2]
    same = all(isinstance(state, Entries) for state in inputs) and len({_origin(state) for state in inputs}) == 1
    roles = [state.role for state in inputs if isinstance(state, Entries)]
    return [Rows(0) if same and roles == ["distinct", "places", "rows"] and _is_full(numbers) else MIXED]


@_rule("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
def _segments(node: Node, inputs: Sequence[State]) -> list[State]:
    """A row for each segment; without filling, there would be fewer than rows of the batch."""
    data, numbers = inputs
    roles = [state.role for state in inputs if isinstance(state, Entries)]
    return [
        Rows(0) if _origin(data) == _origin(numbers) and roles == ["values", "rows"] and _is_full(numbers) else MIXED
    ]


@_rule("SparseToDense")
def _to_dense(node: Node, inputs: Sequence[State]) -> list[State]:
    numbers, shape, values, default = inputs
    return [Rows(0) if _is_sparse([numbers, values, shape]) and default == UNIFORM else MIXED]


@_rule("SparseTensorDenseMatMul")
def _product(node: Node, inputs: Sequence[State]) -> list[State]:
    plain = not node.attr("adjoint_a", False) and inputs[3] == UNIFORM
    return [Rows(0) if plain and _is_sparse(inputs[:3]) else MIXED]


def _origin(state: State) -> tuple[str, ...] | None:
    return state.origin if isinstance(state, Entries) else None


def _is_full(state: State) -> bool:
    return isinstance(state, Entries) and state.full
