"""How each op treats the rows of a batch: the rules behind :mod:`tpugraph.rows`.

A rule gets the states of a node's inputs, at least one of which depends on the batch and none of which is mixed, and
gives the states of its outputs. An op without a rule mixes. Rules of ops that make other shapes are in
:mod:`tpugraph.row_shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpugraph import ops, row_entries
from tpugraph.ir import Node, Tensor
from tpugraph.row_shapes import along
from tpugraph.row_states import (
    MIXED,
    RULES,
    UNIFORM,
    Batch,
    Rows,
    Rule,
    Sizes,
    State,
    is_flow,
    is_level,
    rank_of,
    rule,
    value_of,
)


def apply(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """The states of a node's outputs."""
    count = len(node.outputs or ())
    if row_entries.concerns(node, inputs):
        return [_checked(node.out(port), s, batch.rows) for port, s in enumerate(row_entries.apply(node, inputs))]
    rule = RULES.get(node.op) or _general(node.op)
    if rule is None:
        return [MIXED] * count
    found = rule(node, inputs, batch)
    if len(found) == 1:
        found = found * count
    return [_checked(node.out(port), state, batch.rows) for port, state in enumerate(found[:count])]


def reason(node: Node, inputs: Sequence[State]) -> str:
    """Why a node mixes rows, in words."""
    if any(isinstance(state, Sizes) for state in inputs) and not any(isinstance(state, Rows) for state in inputs):
        return "computes with the number of rows"
    if node.op in RULES or _general(node.op) is not None:
        return "combines rows of the batch"
    return "may combine rows of the batch (nothing is known of this op)"


def join(before: State, now: State) -> State:
    """Two values that meet in a loop."""
    if before in (UNIFORM, now):
        return now
    return before if now == UNIFORM else MIXED


def _checked(tensor: Tensor, state: State, batch: int) -> State:
    """The state, or MIXED where the shape does not bear it out."""
    if isinstance(state, Rows) and tensor.dtype.name != "resource" and not is_flow(tensor):
        shape = tensor.shape
        if shape is None:
            return state if tensor.node.op in ops.CONTROL_FLOW | ops.IDENTITIES else MIXED
        if state.axis >= len(shape) or shape[state.axis] not in (None, state.outer * batch * state.inner):
            return MIXED
    if isinstance(state, Sizes) and not any(state.times):
        return UNIFORM
    return state


def _general(op: str) -> Rule | None:
    if op in ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.NEXT_ITERATION | ops.PRINTS:
        return _same
    if op in ops.ELEMENTWISE or op == "SelectV2":
        return _elementwise
    if op in ops.REDUCTIONS or op in ("ArgMax", "ArgMin", "Cumsum", "Cumprod", "ReverseV2"):
        return along
    if op in ops.SWITCH:
        return _switch
    if op in ops.MERGE:
        return _merge
    if op in ops.ROW_BY_ROW:
        return _row_by_row
    if op in ops.LAST_DIMENSION:
        return _last_dimension
    if op in ops.IMAGES:
        return _image
    return None


# --------------------------------------------------------------------------- shape stays


def _same(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return list(inputs) if len(inputs) == len(node.outputs or ()) else [inputs[0]]


def _elementwise(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """Operands are aligned at their last dimensions; a uniform one must not differ between rows."""
    if not any(isinstance(state, Rows) for state in inputs):
        return [_arithmetic(node, inputs)]
    rank = rank_of(node.out())
    found: State = UNIFORM
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if isinstance(state, Sizes):
            return [MIXED]
        if isinstance(state, Rows):
            at = state.axis if node.op == "Select" and rank_of(tensor) < rank else rank - rank_of(tensor) + state.axis
            moved = Rows(at, state.outer, state.inner)
            if found not in (UNIFORM, moved):
                return [MIXED]
            found = moved
    for tensor, state in zip(node.inputs, inputs, strict=True):
        if state == UNIFORM and isinstance(found, Rows) and not is_level(tensor, found.axis - rank):
            return [MIXED]
    return [found]


def _arithmetic(node: Node, inputs: Sequence[State]) -> State:
    """Sizes times numbers that are no sizes."""
    if node.op == "Cast":
        return MIXED if node.attr("DstT").floating else inputs[0]
    if node.op != "Mul":
        return MIXED
    sizes = next((s for s in inputs if isinstance(s, Sizes)), None)
    other = next((t for t, s in zip(node.inputs, inputs, strict=True) if s == UNIFORM), None)
    factor = None if other is None else value_of(other)
    if sizes is None or factor is None or len(factor) != 1 or node.out().shape not in ((), (len(sizes.times),)):
        return MIXED
    return Sizes(tuple(None if t is None else t * factor[0] for t in sizes.times))


def _row_by_row(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    if "MatMul" in node.op:
        return [_product(node, inputs)]
    if node.op.startswith("LookupTable"):
        return [inputs[1] if inputs[2] == UNIFORM else MIXED]
    return _elementwise(node, inputs, batch)


def _product(node: Node, inputs: Sequence[State]) -> State:
    left, right = inputs
    turned = bool(node.attr("transpose_a", node.attr("adj_x", False)))
    rank = rank_of(node.inputs[0])
    if isinstance(left, Rows) and right == UNIFORM:
        kept = rank - 1 if turned else rank - 2  # the dimension of the result that is not contracted
        if left.axis == kept and rank_of(node.out()) == rank:
            return Rows(rank - 2, left.outer, left.inner)
        return (
            left if left.axis < rank - 2 and rank_of(node.inputs[1]) <= rank and _level_batches(node, left) else MIXED
        )
    if isinstance(left, Rows) and left == right and left.axis < rank - 2 and rank_of(node.inputs[1]) == rank:
        return left
    return MIXED


def _level_batches(node: Node, rows: Rows) -> bool:
    shape = node.inputs[1].shape or ()
    return len(shape) == 2 or (len(shape) == rank_of(node.out()) and shape[rows.axis] == 1)


def _last_dimension(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state = inputs[0]
    apart = isinstance(state, Rows) and state.axis < rank_of(node.inputs[0]) - 1 and set(inputs[1:]) <= {UNIFORM}
    return [state if apart else MIXED]


def _image(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    apart = inputs[0] == Rows(0) and set(inputs[1:]) <= {UNIFORM} and not (
        node.op.startswith("FusedBatchNorm") and node.attr("is_training", True))  # fmt: skip
    more: list[State] = [UNIFORM if apart else MIXED] * (len(node.outputs or ()) - 1)
    return [Rows(0) if apart else MIXED, *more]


@rule("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
def _cross_entropy(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [Rows(0) if tuple(inputs) == (Rows(0), Rows(0)) else MIXED]


@rule("InTopK", "InTopKV2")
def _in_top_k(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [Rows(0) if tuple(inputs[:2]) == (Rows(0), Rows(0)) else MIXED]


# --------------------------------------------------------------------------- control flow, TensorArrays


def _switch(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [inputs[0] if inputs[1] == UNIFORM else MIXED]


def _merge(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    """What meets must be alike; a uniform value may meet rows where all rows of it are the same."""
    states = [state for state in inputs if state != UNIFORM]
    if any(state != states[0] for state in states):
        return [MIXED, UNIFORM]
    state = states[0]
    for tensor, other in zip(node.inputs, inputs, strict=True):
        bears = other != UNIFORM or tensor.node.op in ops.NEXT_ITERATION or is_flow(tensor)
        if not bears and not (isinstance(state, Rows) and is_level(_behind(tensor), state.axis - rank_of(tensor))):
            return [MIXED, UNIFORM]
    return [state, UNIFORM]


def _behind(tensor: Tensor) -> Tensor:
    while tensor.node.op in ops.ENTER | ops.IDENTITIES:
        tensor = tensor.node.inputs[0]
    return tensor


@rule("TensorArrayScatterV3", "TensorArrayWriteV3")
def _put(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    value, flow = inputs[2], inputs[3]
    if isinstance(value, Rows) and node.op == "TensorArrayScatterV3":
        value = Rows(value.axis - 1, value.outer, value.inner) if value.axis else MIXED
    return [value if flow in (UNIFORM, value) else flow if value == UNIFORM else MIXED]


@rule("TensorArrayReadV3")
def _read(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [inputs[2]]


@rule("TensorArrayGatherV3")
def _take(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    state = inputs[2]
    return [Rows(state.axis + 1, state.outer, state.inner) if isinstance(state, Rows) else state]


@rule("TensorArraySizeV3")
def _length(node: Node, inputs: Sequence[State], batch: Batch) -> list[State]:
    return [UNIFORM]
