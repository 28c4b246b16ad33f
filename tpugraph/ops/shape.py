"""Shape ops: queries, reshapes, slices, concatenations and splits.

Where an operand's value holds the axes, the dimension signature depends on the graph.
"""

from __future__ import annotations

from tpugraph.ops.facts import Rank, Trusted
from tpugraph.ops.record import Call, letters, page

op = page("shape")

# --------------------------------------------------------------------------- shapes as numbers

op("Shape", role="shape", differentiable=False, fused=True)
op("ShapeN", role="shape", differentiable=False)
op("Size", role="size", differentiable=False)
op("Rank", role="rank", differentiable=False)
op("BroadcastArgs", constants=(0, 1), fused=True)
op("BroadcastGradientArgs", role="broadcast_axes", constants=(0, 1), sizes=(0, 1), fused=True)
op("ConcatOffset", axis=0, constants=range, sizes=lambda count: range(1, count))
op("InvertPermutation", role="inverse_order", dims="R -> R")
op("Range", role="range", constants=(0, 1, 2), sizes=(0, 1, 2), fused=True)
op("LinSpace", constants=(2,), rows_operand=2)
op("Const", role="constant", fused=True)
op("HostConst", role="constant", instead="tf.constant")

# --------------------------------------------------------------------------- other shapes

op("Reshape", role="reshape", linear="0", alias="memory", constants=(1,), shaped_by=1, fused=True)
op("ExpandDims", dims="insert", role="expand", linear="0", alias="memory", axis=1, constants=(1,), fused=True)
op("Transpose", dims="permute", role="transpose", linear="0", constants=(1,), fused=True)
op("ConjugateTranspose", dims="permute", role="transpose", linear="0", constants=(1,))
op("Slice", dims="like", role="slice", linear="0", sizes=(1, 2), fused=True)
op("StridedSlice", dims="sliced", role="strided_slice", linear="0", constants=(3,), sizes=(1, 2, 3), fused=True)
op("StridedSliceGrad", dims="sliced", role="slice_gradient", linear="4", constants=(0, 3), shaped_by=0, sizes=(1, 2, 3))
op("Pad", dims="like", role="pad", linear="0", constants=(1,), sizes=(1,), fused=True)
op("MirrorPad", dims="like", linear="0", constants=(1,), sizes=(1,))
op("MirrorPadGrad", dims="like", linear="0", constants=(1,))
op("PadV2", dims="like", role="pad", linear="0+2", constants=(1,), sizes=(1,))
op("Tile", dims="like", role="tile", linear="0", constants=(1,), sizes=(1,), fused=True)
op("BroadcastTo", dims="like", role="broadcast", linear="0", constants=(1,), shaped_by=1, fused=True)
op("Fill", role="fill", linear="1", constants=(0,), shaped_by=0, fused=True)
op("Empty", constants=(0,), shaped_by=0)
op("ReverseV2", dims="along", linear="0", axis=1, constants=(1,))
op("Reverse", linear="0")
op("Roll", dims="along", role="roll", linear="0", axis=2, constants=(2,))


def _reverse_sequence(call: Call) -> str | None:
    """Reverses each row along ``seq_dim`` up to its length."""
    operand, along, rows = letters(call.ranks[0]), call.attr("seq_dim", None), call.attr("batch_dim", 0)
    if operand is None or along is None:
        return None
    whole = operand.replace(operand[along], operand[along].upper())
    return f"{whole}, {operand[rows]} -> {whole}"


op("Squeeze", role="squeeze", dims="drop", linear="all", alias="memory", fused=True)
op("ReverseSequence", dims=_reverse_sequence, linear="0")

# --------------------------------------------------------------------------- together and apart


def _pack(call: Call) -> str | None:
    """The output has one more dimension than the operands."""
    part = letters(call.ranks[0])
    if part is None:
        return None
    axis = call.attr("axis", 0) % (len(part) + 1)
    return f"{', '.join([part] * len(call.ranks))} -> {part[:axis]}*{part[axis:]}"


def _unpack(call: Call) -> str | None:
    """Each output has one dimension fewer than the operand."""
    whole, count = letters(call.ranks[0]), call.attr("num", None)
    if not whole or not count:
        return None
    axis = call.attr("axis", 0) % len(whole)
    part = whole[:axis] + whole[axis + 1 :]
    return f"{whole[:axis]}*{whole[axis + 1 :]} -> {', '.join([part] * count)}"


def _but_last(call: Call) -> str:
    return "+".join(str(i) for i in range(len(call.ranks) - 1))


def _one_hot(call: Call) -> str | None:
    """The new dimension is at the attribute ``axis``, by default the last."""
    indices, axis = letters(call.ranks[0]), call.attr("axis", -1)
    if indices is None:
        return None
    axis %= len(indices) + 1
    return f"{indices}, -, ,  -> {indices[:axis]}*{indices[axis:]}"


def _unravel_index(call: Call) -> str | None:
    """Each flat index becomes coordinates, along dimension 0 of the output."""
    numbers = letters(call.ranks[0])
    return None if numbers is None else f"{numbers}, - -> *{numbers}"


op("UnravelIndex", dims=_unravel_index, differentiable=False)
op("Pack", role="pack", dims=_pack, linear="all", fused=True)
op("Unpack", role="unpack", dims=_unpack, linear="all", fused=True)
op("ConcatV2", dims="concat", role="concat", linear=_but_last, axis=-1, constants=(-1,), fused=True)
op(
    "Concat",
    dims="concat",
    role="concat",
    axis=0,
    linear=lambda call: "+".join(str(i) for i in range(1, len(call.ranks))),
    constants=(0,),
)
op("Split", dims="along", role="split", linear="1", axis=0, constants=(0,), fused=True)
op(
    "SplitV",
    dims="along",
    role="split",
    linear="0",
    axis=2,
    constants=(1, 2),
    sizes=(1,),
    trusted=Trusted(ranks=(Rank(1, 1),), never=(("Tlen", "int8"),)),
)
op(
    "OneHot",
    dims=_one_hot,
    linear="2+3",
    differentiable=False,
    constants=(1,),
    sizes=(1,),
    fused=True,
)
