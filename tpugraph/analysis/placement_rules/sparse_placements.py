"""How ops are partitioned that compute with sparse tensors of a core's own rows: indices, values and shape of their entries."""

from __future__ import annotations

from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.placements import REPLICATE, SHARE, SUM, Entries, Placement, Replicate, Shard
from tpugraph.analysis.placing import Placing, Verdict, rule, shard_of
from tpugraph.analysis.sizes import follows_batch
from tpugraph.ir import Node

_OWN = Entries("local")
"""Where the indices lie of entries of a core's own rows."""


def _of_own_rows(p: Placing, node: Node, inputs: list[Placement]) -> bool:
    """Whether a sparse tensor, whose shape is operand 2, has a core's own rows along dimension 0 and no others behind."""
    shape = p.sizes(node.inputs[2])
    if inputs[0] != _OWN or not shape or shard_of(shape, 0) is None:
        return False
    return not any(map(follows_batch, shape[1:]))


@rule("SparseReduceSum")
def _sparse_sum(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The entries of a core's own rows are added up in each of them, or along them; of no axis, all together."""
    axes, shape = fixed(node.inputs[3]), p.sizes(node.inputs[2]) or []
    if not _of_own_rows(p, node, inputs) or axes is None:
        return p.everywhere(node, inputs, "adds up entries of the whole batch")
    if not axes or 0 in {axis % len(shape) for axis in axes}:
        return Verdict([SUM], why="sums over the rows")
    rows = shard_of(p.dims(node.out()) or [0], 0)
    return Verdict([rows], why="the entries of each row") if rows else p.everywhere(node, inputs, "adds up entries")


@rule("SparseDenseCwiseMul SparseDenseCwiseDiv SparseDenseCwiseAdd")
def _with_dense(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Each entry of a core's own rows meets an element of its own row, or one that all rows have in common."""
    dims, shape = p.dims(node.inputs[3]), p.sizes(node.inputs[2]) or []
    if not _of_own_rows(p, node, inputs) or dims is None:
        return p.everywhere(node, inputs, "meets entries of the whole batch")
    wanted: Placement | None = REPLICATE
    if len(dims) == len(shape) and dims[0] != 1:  # else what all rows have in common
        wanted = shard_of(dims, 0)
    if wanted is None:
        return p.everywhere(node, inputs, "meets entries of the whole batch")
    return Verdict([Entries("values")], {} if inputs[3] == wanted else {3: wanted}, why="the entries of each row")


@rule("SparseSoftmax")
def _sparse_softmax(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    if _of_own_rows(p, node, inputs):
        return Verdict([Entries("values")], why="the entries of each row")
    return p.everywhere(node, inputs, "takes entries of the whole batch")


@rule("SparseTensorDenseAdd")
def _added_to_dense(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """Entries are added to a core's own rows, or to what all rows have in common, as gradients of that are."""
    dims = p.dims(node.out())
    if inputs[0] != _OWN or not dims:
        return p.everywhere(node, inputs, "adds entries of the whole batch")
    rows = shard_of(dims, 0)
    if rows is not None:
        return Verdict([rows], {} if inputs[3] == rows else {3: rows}, why="the entries of each row")
    if dims[0] != 1 or not (inputs[3] == SUM or isinstance(inputs[3], Replicate)):
        return p.everywhere(node, inputs, "adds entries of the whole batch")
    shared = inputs[3] != SUM and not p.is_zero(node.inputs[3])
    return Verdict([SUM], {3: SHARE} if shared else {}, why="sums over the rows")


@rule("DenseToDenseSetOperation")
def _sets(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    """The sets of each row, as entries of it; they lie along the last dimension."""
    if inputs[0] == inputs[1] == Shard(0) and p.rank(node.inputs[0]) > 1:
        return Verdict([_OWN, Entries("values"), Entries("shape")], why="the sets of each row")
    return p.everywhere(node, inputs, "joins the sets of the whole batch")


@rule("SetSize")
def _set_size(p: Placing, node: Node, inputs: list[Placement]) -> Verdict:
    rows = shard_of(p.dims(node.out()) or [0], 0)
    if inputs[0] == _OWN and rows is not None:
        return Verdict([rows], why="the sets of each row")
    return p.everywhere(node, inputs, "counts the sets of the whole batch")
