"""How entries of sparse rows, and TensorArrays, stacks and lists are partitioned."""

from __future__ import annotations

from dataclasses import replace

from tpugraph import ops
from tpugraph.analysis.placements import (
    REPLICATE,
    SHARE,
    SUM,
    Entries,
    Held,
    Partial,
    Placement,
    Replicate,
    Shard,
    Sized,
)
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.analysis.sizes_on_cores import is_told
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import source_of

# --------------------------------------------------------------------------- sparse


@rule(" ".join(sorted(ops.UNIQUE)))
def _unique(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Each core finds what is distinct among its own; what reads it may ask for that of all cores instead."""
    if isinstance(inputs[0], Shard | Entries):
        return Verdict([Entries("distinct"), Entries("local"), *[Entries("by_id")] * (len(node.outputs or ()) - 2)])
    return p.everywhere(node, inputs, "takes all values together")


@rule("Where")
def _where(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    mask = inputs[0]
    if isinstance(mask, Entries) or (isinstance(mask, Shard) and (mask.axis, mask.outer) == (0, 1)):
        return Verdict([Entries("local")], why="places on this core")  # in the order of those of the whole batch
    return p.everywhere(node, inputs, "finds places in the whole batch")


@rule("SparseSlice SparseConcat SparseReorder")
def _sparse(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    made: list[Placement | None] = [Entries("local"), Entries("values"), Entries("shape")]
    return _of_entries(p, node, inputs, made[: len(node.outputs or ())])


@rule("SparseReshape")
def _sparse_reshape(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return _of_entries(p, node, inputs, [Entries("local"), Entries("shape")])


@rule("SparseFillEmptyRows")
def _filled(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return _of_entries(p, node, inputs, [Entries("local"), Entries("values"), Shard(0), Entries("local")])


def _of_entries(p: Placing, node: Node, inputs: list[Placement], outputs: list[Placement | None]) -> Verdict:
    """What is made of the entries of a core's own rows; of others the whole batch is read."""
    if isinstance(inputs[0], Entries | Shard):
        return Verdict(outputs)
    return p.everywhere(node, inputs, "takes entries of the whole batch")


@rule("SparseToDense")
def _to_dense(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    numbers = inputs[0]
    if isinstance(numbers, Shard) and numbers.along == 1:
        out = p.dims(node.out())
        rows = shard_of(out, 0) if out else None
        if rows is not None and isinstance(numbers.shift, tuple) and numbers.shift[0] == rows.inner:
            wants: dict[int, Placement] = {} if isinstance(inputs[3], Replicate) else {3: REPLICATE}
            return Verdict([rows], wants, why="places in this core's own rows")
    return entries_to(p, node, inputs)


@rule("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN SegmentSum SegmentMean SegmentMax SegmentMin")
def entries_to(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Entries come together to the rows of this core, where the output is known to have each of them."""
    dims = p.dims(node.out())
    rows = shard_of(dims, 0) if dims else None
    whole = any(isinstance(s, Partial) for s in inputs) or not any(isinstance(s, Entries) for s in inputs)
    if rows is None or whole:
        return p.everywhere(node, inputs, "brings values of the whole batch together")
    return Verdict([rows], why="the entries of each row")


def picked(table: Placement, numbers: Tensor) -> Entries:
    """What places on this core pick: each place has its own of what belongs to its id; a mask only leaves some ids out.

    Numbers of this core's rows stay such.
    """
    if isinstance(table, Shard) and table.shift:
        return Entries("local")
    by_place = source_of(numbers, ops.IDENTITIES | ops.CASTS | ops.SHAPED_ANEW).node.op in ops.UNIQUE
    return table if isinstance(table, Entries) and not (table.role == "by_id" and by_place) else Entries("values")


@rule("SparseTensorDenseMatMul")
def _sparse_matmul(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Entries) and isinstance(inputs[3], Replicate) and not node.attr("adjoint_a", False):
        return Verdict([Shard(0)], why="the entries of each row")
    if isinstance(inputs[0], Entries) and isinstance(inputs[3], Shard) and node.attr("adjoint_a", False):
        return Verdict([SUM], why="sums over the rows")
    return p.everywhere(node, inputs, "multiplies entries of the whole batch")


@rule("CTCLoss CTCLossV2")
def _aligned(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The labels of each row are aligned with its own steps."""
    if isinstance(inputs[1], Entries) and inputs[0] == Shard(1) and inputs[3] == Shard(0):
        return Verdict([Shard(0), Shard(1)], why="the labels of each row")
    return p.everywhere(node, inputs, "aligns the labels of the whole batch")


@rule("""SparseSegmentMeanGrad SparseSegmentSumGrad SparseSegmentSqrtNGrad SparseSegmentMeanGradV2 SparseSegmentSumGradV2
    SparseSegmentSqrtNGradV2""")
def _segments_grad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if isinstance(inputs[0], Shard) and isinstance(inputs[1], Entries):
        return Verdict(
            [Entries("values"), Entries("distinct")][: len(node.outputs or ())], why="at places on this core"
        )
    return p.everywhere(node, inputs, "brings values of the whole batch together")


# --------------------------------------------------------------------------- containers


@rule("TensorArrayV3 StackV2 Stack EmptyTensorList TensorListReserve")
def _container(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    handle = Held(node.name)
    length = None if node.op not in ops.CONTENTS else ops.CONTENTS[node.op].length
    sized = length is not None and isinstance(inputs[length], Sized)
    wants: dict[int, Placement] = {length: REPLICATE} if length is not None and sized else {}
    return Verdict([handle, *[REPLICATE] * (len(node.outputs or ()) - 1)], wants)


@rule("TensorArrayGradV3")
def _array_grad(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    source = node.attr("source")
    source = source.decode() if isinstance(source, bytes) else source
    if not isinstance(inputs[0], Held):
        return Verdict([Held(node.name), REPLICATE])
    return Verdict([Held(f"{inputs[0].key}/{source}", inputs[0].key), REPLICATE])


def _number(node: Node, inputs: list[Placement]) -> dict[int, Placement]:
    """How the number of the element that an op puts in or takes out is read: as that of the whole batch."""
    held = ops.CONTENTS.get(node.op)
    index = None if held is None else held.index
    return {} if index is None or isinstance(inputs[index], Replicate) else {index: REPLICATE}


def _given(
    p: Placing, node: Node, inputs: list[Placement], index: int, element: Placement, outputs: list[Placement | None]
) -> Verdict:
    """A container is given a value: all that it holds lives in one way. Numbers of rows may stay those of this core."""
    held = p.put(node, inputs[0], element)
    wants: dict[int, Placement] = {}
    if held is not None and held != element:
        if isinstance(held, Partial) and not p.is_zero(node.inputs[index]):
            wants[index] = SHARE
        elif isinstance(held, Shard):
            wants[index] = held
        elif isinstance(held, Replicate):
            wants[index] = REPLICATE
    if isinstance(inputs[index], Sized) and not isinstance(element, Sized) and not p.rank(node.inputs[index]):
        wants[index] = REPLICATE  # a number: a shape is that of what the list holds of a core
    return Verdict(outputs, wants | _number(node, inputs), why="put into a container")


def _whole(element: Placement) -> Placement:
    return REPLICATE if isinstance(element, Sized) else element


@rule("TensorArrayWriteV3")
def _array_write(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return _given(p, node, inputs, 2, _whole(inputs[2]), [REPLICATE])


@rule("StackPushV2 StackPush")
def _push(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    # Where no constant can stand for sizes each core keeps its own.
    sizes = isinstance(inputs[1], Sized) and is_told(p.d, node.inputs[1])
    element = inputs[1] if sizes else _whole(inputs[1])
    return _given(p, node, inputs, 1, element, [element])


@rule("TensorArrayReadV3 TensorListGetItem StackPopV2 StackPop")
def _take(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([p.take(node, inputs[0])], _number(node, inputs), why="taken out of a container")


@rule("TensorListPushBack TensorListSetItem")
def _list_put(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    index = ops.CONTENTS[node.op].puts or 0
    return _given(p, node, inputs, index, _whole(inputs[index]), [inputs[0]])


@rule("TensorListPopBack")
def _list_pop(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    return Verdict([inputs[0], p.take(node, inputs[0])], why="taken out of a container")


def _element(placement: Placement) -> Placement | None:
    """How the elements of a stacked tensor live; None where they are rows of the batch themselves."""
    if isinstance(placement, Shard):
        return None if placement.axis == 0 else _moved(placement, -1)
    return _whole(placement)


def _moved(rows: Shard, places: int) -> Shard:
    """Rows among so many more dimensions in front, as elements are stacked to one tensor, or fewer."""
    return replace(rows, axis=rows.axis + places, along=rows.along + places if rows.along >= 0 else -1)


@rule("TensorArrayScatterV3")
def _array_scatter(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    element = _element(inputs[2])
    verdict = _given(p, node, inputs, 2, element or REPLICATE, [REPLICATE])
    if element is None:  # rows of the batch, one after the other
        verdict.wants.setdefault(2, REPLICATE)
    want = verdict.wants.get(2)
    if isinstance(want, Shard):
        verdict.wants[2] = _moved(want, 1)
    if not isinstance(inputs[1], Replicate):
        verdict.wants[1] = REPLICATE
    return verdict


@rule("TensorArraySplitV3")
def _array_split(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Parts that hold whole rows of the batch have a core's own, as what a gradient puts back into what was joined."""
    value, lengths = inputs[1], node.inputs[2].node
    contents = ops.CONTENTS.get(lengths.op)
    of_join = contents is not None and contents.joined  # its gradient has the lengths that it says
    rows = p.made(lengths.out()) if of_join else _rows_of_parts(p, node, value)
    if isinstance(rows, Shard) and rows.axis == 0:
        moved = p.put(node, inputs[0], replace(rows, outer=1)) != REPLICATE and value != rows
        return Verdict([REPLICATE], {1: rows} if moved else {}, why="put into a container")
    is_cut = isinstance(value, Shard) and value.axis == 0
    verdict = _given(p, node, inputs, 1, REPLICATE if is_cut else _whole(value), [REPLICATE])
    if is_cut:
        verdict.wants.setdefault(1, REPLICATE)
    if not isinstance(inputs[2], Replicate):
        verdict.wants[2] = REPLICATE
    return verdict


def _rows_of_parts(p: Placing, node: Node, value: Placement) -> Shard | None:
    """How a core's own rows lie in what is split into parts, each with all rows; None where a part has others."""
    held = p.d.containers.get(p.d.handles.get(node.inputs[0], node.inputs[0]))
    if held is None or not held.dims or not isinstance(value, Shard) or value.axis:
        return None
    part, whole = (
        shard_of([p.final(size) for size in dims], 0) for dims in (held.dims, p.d.dims(node.inputs[1]) or ())
    )
    return None if part is None or whole is None else replace(part, outer=whole.inner // part.inner)


@rule("TensorListFromTensor")
def _list_from(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    handle, element = Held(node.name), _element(inputs[0])
    if element is None:
        p.put(node, handle, REPLICATE)
        return Verdict([handle], {0: REPLICATE}, why="takes the rows one after the other")
    held = p.put(node, handle, element)
    wants: dict[int, Placement] = {}
    if held != element and isinstance(held, Replicate | Shard):
        wants[0] = _moved(held, 1) if isinstance(held, Shard) else held
    return Verdict([handle], wants, why="put into a container")


@rule("TensorArrayGatherV3 TensorListStack")
def _array_gather(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    held = p.take(node, inputs[0])
    wants: dict[int, Placement] = {1: REPLICATE} if not isinstance(inputs[1], Replicate | Sized) else {}
    return Verdict([_moved(held, 1) if isinstance(held, Shard) else held], wants, why="taken out of a container")


@rule("TensorArrayConcatV3")
def _array_concat(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    held = p.take(node, inputs[0])
    if isinstance(held, Shard) and held.axis == 0:
        dims, element = p.dims(node.out()), held
        whole = shard_of(dims, 0) if dims else None
        if whole is not None:
            return Verdict([replace(element, outer=whole.inner // element.inner), REPLICATE])
    return Verdict([held, REPLICATE])
