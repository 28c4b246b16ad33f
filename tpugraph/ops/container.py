"""Stacks, TensorArrays and TensorLists."""

from __future__ import annotations

from tpugraph.ops.facts import Contents, Refusal
from tpugraph.ops.record import page

op = page("container")

_ACCUMULATED = (
    "gradients pass through an accumulator, as with SyncReplicasOptimizer",
    "train with the optimizer that it wraps: the cores' gradients are summed here",
)
op("AccumulatorTakeGradient SparseAccumulatorTakeGradient ResourceAccumulatorTakeGradient", apart=_ACCUMULATED)
op("StackV2", role="container", contents=Contents(length=0, grows=True), stack=True, bounded=True, constants=(0,))
op("Stack", role="container", contents=Contents(grows=True))
op("TensorArrayV2", role="container", contents=Contents(length=0))
op("Barrier ConditionalAccumulator", role="container")
op("StackPushV2", contents=Contents(puts=1, grows=True), stack=True)
op("StackPopV2", contents=Contents(takes=0, grows=True), stack=True, role="take", backward=True)
op("StackPush", contents=Contents(puts=1, grows=True))
op("StackCloseV2")
op("StackPop", contents=Contents(takes=0, grows=True), backward=True)
op(
    "TensorArrayV3",
    role="container",
    contents=Contents(length=0),
    constants=(0,),
    xla_refuses=Refusal("dynamic_size", True, "give TensorArray its size, of constants, and dynamic_size=False"),
    sizes=(0,),
)
op("TensorArrayReadV3", role="take", contents=Contents(index=1, takes=0), backward=True)
op("TensorArrayGatherV3", role="take", contents=Contents(takes=0, stacked=True), backward=True)
op("TensorArrayConcatV3", contents=Contents(takes=0, joined=True), backward=True)
op("TensorArrayWriteV3", contents=Contents(puts=2, index=1))
op("TensorArrayGradV3", role="container_gradient")
op("TensorArrayScatterV3", contents=Contents(puts=2, stacked=True))
op("TensorArraySplitV3", contents=Contents(puts=1, lengths=2))
op("TensorArraySizeV3 TensorArrayCloseV3")
op("EmptyTensorList", contents=Contents(length=1, shape=0, grows=True, value=True), bounded=True, sizes=(0,))
op("TensorListReserve", contents=Contents(length=1, shape=0, value=True), bounded=True, constants=(1,), sizes=(0, 1))
op("TensorListPushBack", contents=Contents(puts=1, grows=True, value=True))
op("TensorListPopBack", role="take", contents=Contents(takes=1, element_shape=1, grows=True, value=True), sizes=(1,))
op("TensorListSetItem", contents=Contents(puts=2, index=1, value=True))
op("TensorListGetItem", role="take", contents=Contents(index=1, takes=0, element_shape=2, value=True), sizes=(2,))
op("TensorListElementShape TensorListLength")
op("TensorListFromTensor", contents=Contents(puts=0, element_shape=1, stacked=True, value=True), sizes=(1,))
op("TensorListStack", contents=Contents(takes=0, element_shape=1, stacked=True, value=True), sizes=(1,))
