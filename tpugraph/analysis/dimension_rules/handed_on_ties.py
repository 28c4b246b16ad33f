"""What ops that hand values on, choose and add them up tie together."""

from __future__ import annotations

from tpugraph import ops
from tpugraph.analysis.broadcast_sizes import broadcast
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.dimension_facts import Elements
from tpugraph.analysis.dimension_rules.arithmetic_ties import by_signature, same_rows
from tpugraph.analysis.dimension_rules.reshaping_ties import shaped_by
from tpugraph.analysis.dimension_rules.size_arithmetic import product, total
from tpugraph.analysis.dimensions import Dimensions, rule
from tpugraph.analysis.sizes import Unknown, known
from tpugraph.ir import Node, Tensor
from tpugraph.ir.regions import NONE, joins_branches, side, sides
from tpugraph.ir.walks import source_of

# --------------------------------------------------------------------------- alike


_SAME_VALUE = ops.IDENTITIES | ops.ENTER | ops.EXIT | ops.VALUE_CHECKS


@rule("""Identity StopGradient PreventGradient Snapshot EnsureShape CheckNumerics CheckNumericsV2 RefIdentity Enter RefEnter
    Exit RefExit Print DeepCopy ZerosLike OnesLike LoopCond Cumsum Cumprod CumulativeLogsumexp ReverseV2 Roll ReverseSequence
    RandomShuffle CrossReplicaSum NextIteration RefNextIteration""")
def alike(d: Dimensions, node: Node) -> None:
    """The output is shaped as the first operand."""
    if not node.outputs:
        return
    source, out = node.inputs[0], node.out()
    d.set(out, d.dims(source))
    if node.op in ops.FILLED_LIKE:
        one = bool(ops.COMPUTES[node.op](0))
        d.set_level(out, one if out.dtype.name == "bool" else int(one))
        return
    if node.op in _SAME_VALUE:
        d.set_elements(out, d.elements(source))
        d.set_level(out, d.level(source))
        hand_on(d, source, out)
        same_rows(d, node)
    if node.op in ops.NEXT_ITERATION:
        for use in node.uses():
            if use.node.op in ops.MERGE:
                d.tie(d.dims(source), d._dims.get(use.node.out()))
                _tie_elements(d, d.elements(source), d.elements(use.node.out()))


def _tie_elements(d: Dimensions, one: Elements | None, other: Elements | None) -> None:
    if one is not None and other is not None and None not in (*one, *other):
        d.tie(tuple(one), tuple(other))  # type: ignore[arg-type]


@rule("IdentityN")
def _identity_n(d: Dimensions, node: Node) -> None:
    for port, tensor in enumerate(node.inputs):
        d.set(node.out(port), d.dims(tensor))
        d.set_elements(node.out(port), d.elements(tensor))
        d.set_level(node.out(port), d.level(tensor))


@rule("Merge RefMerge")
def _merge(d: Dimensions, node: Node) -> None:
    """The values that meet have one shape; what comes from the end of a loop's body is tied when the body was seen.

    A body may end in what is made of nothing that is carried, as of zeros: it is seen before the loop then.
    Where constants alone decide a branch, the value is that of the branch which is taken, as in the gradient of a diagonal.
    """
    ready = [t for t in node.inputs if t.node.op not in ops.NEXT_ITERATION]
    taken = [t for t in ready if not _never_runs(d, t)] if joins_branches(node) else ready
    if len(taken) == 1 < len(ready):
        ready = taken
        d.set_elements(node.out(), d.elements(taken[0]))
        d.set_elements(node.out(1), [node.inputs.index(taken[0])])
        d.set_level(node.out(), d.level(taken[0]))
    known = [dims for dims in (d.dims(t) for t in ready) if dims is not None]
    out = node.out()
    if known and len({len(dims) for dims in known}) == 1:
        values = {tuple(d.sizes.at(s) for s in dims) for dims in known}
        grown = _grown(d, node, len(known[0]))
        made = [Unknown(-1) if axis in grown else size for axis, size in enumerate(known[0])]
        d.set(out, made if len(values) == 1 else None)
        for dims in known[1:]:
            d.tie(known[0], dims)
    else:
        d.fresh(out)
    d.set(node.out(1), ())
    for tensor in node.inputs:
        if tensor.node.op in ops.NEXT_ITERATION:
            d.tie(d.dims(out), d._dims.get(tensor))
    ends = [t.node.inputs[0].node for t in node.inputs if t.node.op in ops.NEXT_ITERATION]
    hands_shape_on = any(end.op in ops.SHAPE_OF for end in ends)  # which stays what it is in a loop
    for tensor in ready:
        hand_on(d, tensor, out)
        if hands_shape_on:
            d.set_elements(out, d.elements(tensor))


def _grown(d: Dimensions, node: Node, rank: int) -> set[int]:
    """The dimensions along which a loop puts more to what it carries, each time: how long that is at last is no size of the step.

    So the rows that a lookup in a loop has gradients for are put one behind the other.
    """
    found: set[int] = set()
    for tensor in node.inputs:
        end = source_of(tensor, ops.IDENTITIES | ops.NEXT_ITERATION).node
        if tensor.node.op not in ops.NEXT_ITERATION or end.op not in ops.CONCATS:
            continue
        axis = d.numbers(end.inputs[ops.record(end.op).axis or 0])
        if axis and any(source_of(part, ops.IDENTITIES | ops.SWITCH).node is node for part in end.inputs):
            found.add(axis[0] % rank if rank else 0)
    return found


def _never_runs(d: Dimensions, tensor: Tensor) -> bool:
    """Whether a value is made in a branch that is never taken, whatever the rows and the variables."""
    around = sides(d.graph).get(tensor.node, NONE) | side(tensor)
    decided = ((d.level(predicate), port) for predicate, port in around)
    return any(level is not None and bool(level) != bool(port) for level, port in decided)


@rule("Switch RefSwitch")
def _switch(d: Dimensions, node: Node) -> None:
    source = node.inputs[0]
    for port in range(2):
        d.set(node.out(port), d.dims(source))
        d.set_elements(node.out(port), d.elements(source))
        d.set_level(node.out(port), d.level(source))
        hand_on(d, source, node.out(port))


def hand_on(d: Dimensions, source: Tensor, out: Tensor) -> None:
    """Aliases of the handle of a container."""
    if source in d.handles:
        d.handles[out] = d.handles[source]


# --------------------------------------------------------------------------- selecting, adding up


@rule("Select")
def _select(d: Dimensions, node: Node) -> None:
    condition, a, b = (d.dims(t) for t in node.inputs)
    d.tie(a, b)
    if condition is not None and a is not None and condition:
        if len(condition) == len(a):
            d.tie(condition, a)
        else:
            d.tie(condition, a[:1])
    d.set(node.out(), a if a is not None else b)
    _choose(d, node)


@rule("SelectV2")
def _select_v2(d: Dimensions, node: Node) -> None:
    d.set(node.out(), broadcast(d.sizes, [d.dims(t) for t in node.inputs]))
    _choose(d, node)


def _choose(d: Dimensions, node: Node) -> None:
    condition = d.level(node.inputs[0])
    if condition is not None:
        chosen = node.inputs[1 if condition else 2]
        d.set_level(node.out(), d.level(chosen))
        d.set_elements(node.out(), d.elements(chosen))


@rule("BiasAdd BiasAddV1")
def _bias_add(d: Dimensions, node: Node) -> None:
    dims, bias = d.dims(node.inputs[0]), d.dims(node.inputs[1])
    axis = 1 if node.attr("data_format", "NHWC") in ("NCHW", b"NCHW") else -1
    if dims and bias:
        d.sizes.tie(dims[axis], bias[0])
    d.set(node.out(), dims)


@rule("BiasAddGrad")
def _bias_add_grad(d: Dimensions, node: Node) -> None:
    dims = d.dims(node.inputs[0])
    axis = 1 if node.attr("data_format", "NHWC") in ("NCHW", b"NCHW") else -1
    d.set(node.out(), None if not dims else (dims[axis],))


@rule("Sum Mean Max Min Prod All Any EuclideanNorm ArgMax ArgMin")
def _reduction(d: Dimensions, node: Node) -> None:
    source, out = node.inputs[0], node.out()
    dims, axes = d.dims(source), d.numbers(node.inputs[1])
    keep = bool(node.attr("keep_dims", False))
    if dims is None or axes is None:
        d.fresh(out)
        return
    gone = {a % len(dims) for a in axes} if dims else set()
    d.tie(d.dims(node.inputs[1]), (len(axes),))  # how many dimensions go is no number of rows
    d.set(out, [1 if i in gone else s for i, s in enumerate(dims) if keep or i not in gone])
    elements, level, reduce_op = d.elements(source), d.level(source), ops.record(node.op).reduce_op
    if reduce_op == "prod" and elements is not None and None not in elements and (not dims or gone):
        d.set_elements(out, [product(d, elements)])  # type: ignore[arg-type]
    if reduce_op == "sum" and elements is not None and None not in elements and len(dims) == 1 and gone:
        d.set_elements(out, [total(d, elements)])  # type: ignore[arg-type]
    if level is None:
        return
    if reduce_op in ("max", "min", "mean", "all", "any"):
        d.set_level(out, level)
    elif reduce_op == "sum" and len(gone) == len(dims) and level == int(level) and level:
        count = product(d, [int(level), *dims])
        d.set_elements(out, [count])


@rule("TopKV2")
def _top_k(d: Dimensions, node: Node) -> None:
    dims, many = d.dims(node.inputs[0]), d.elements(node.inputs[1])
    if dims and many and many[0] is not None and isinstance(known(dims[-1]), int):
        d.sizes.tie(many[0], d.sizes.at(many[0]))  # of what follows no batch, as many whatever the rows
    for port in range(2):
        if dims is None or not many or many[0] is None:
            d.fresh(node.out(port))
        else:
            d.set(node.out(port), (*dims[:-1], many[0]))


@rule("Diag")
def _diag(d: Dimensions, node: Node) -> None:
    dims = d.dims(node.inputs[0])
    d.set(node.out(), None if dims is None else (*dims, *dims))


@rule("MatrixDiagV2 MatrixDiagV3")
def _matrix_diag(d: Dimensions, node: Node) -> None:
    dims, out = d.dims(node.inputs[0]), node.out()
    if dims is None or len(out.shape or ()) != len(dims) + 1:
        d.fresh(out)
        return
    d.set(out, (*dims, dims[-1]))
    if fixed(node.inputs[1]) == [0]:
        for side in (d.elements(t) for t in node.inputs[2:4]):
            if side and side[0] is not None and d.sizes.at(side[0]) != -1:
                d.sizes.tie(side[0], dims[-1])


@rule("TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin")
def _tensor_scatter(d: Dimensions, node: Node) -> None:
    """The output is shaped as the first operand; each row of the indices has its update."""
    d.set(node.out(), d.dims(node.inputs[0]))
    places, updates = d.dims(node.inputs[1]), d.dims(node.inputs[2])
    if places is not None and updates is not None and len(updates) >= len(places) - 1:
        d.tie(places[:-1], updates[: len(places) - 1])


@rule("CropAndResizeGradImage")
def _crop_gradient(d: Dimensions, node: Node) -> None:
    by_signature(d, node)
    shaped_by(d, node, 3)


@rule("MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3")
def _diagonal(d: Dimensions, node: Node) -> None:
    """The main diagonal of a square matrix is as long as a side of it."""
    by_signature(d, node)
    sets = node.op.startswith("MatrixSetDiag")
    matrix, diagonal = d.dims(node.inputs[0]), d.dims(node.inputs[1] if sets else node.out())
    place = node.inputs[2 if sets else 1 :][:1] if node.op[-2] == "V" else ()
    if matrix is None or diagonal is None or len(diagonal) != len(matrix) - 1 or (place and fixed(place[0]) != [0]):
        return
    sides = {known(size) for size in matrix[-2:]} - {None}
    if len(sides) < 2 and d.sizes.at(matrix[-2]) == d.sizes.at(matrix[-1]) == d.sizes.at(diagonal[-1]):
        d.sizes.tie(diagonal[-1], matrix[-2])
        d.sizes.tie(diagonal[-1], matrix[-1])
