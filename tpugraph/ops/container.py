"""Stacks, arrays and lists of tensors that a step fills and empties."""

from __future__ import annotations

from tpugraph.ops.record import Refusal, page

op = page("container")

_ACCUMULATED = (
    "gradients pass through an accumulator, as with SyncReplicasOptimizer",
    "train with the optimizer that it wraps: the cores' gradients are summed here",
)
op("AccumulatorTakeGradient SparseAccumulatorTakeGradient ResourceAccumulatorTakeGradient", apart=_ACCUMULATED)
op("StackV2", role="container", stack=True, bounded=True, constants=(0,))
op("Stack TensorArrayV2 Barrier ConditionalAccumulator", role="container")
op("StackPushV2", stack=True)
op("StackPopV2", stack=True, role="take", backward=True)
op("StackPush StackCloseV2")
op("StackPop", backward=True)
op(
    "TensorArrayV3",
    role="container",
    constants=(0,),
    xla_refuses=Refusal("dynamic_size", True, "give TensorArray its size, of constants, and dynamic_size=False"),
    sizes=(0,),
)
op("TensorArrayReadV3 TensorArrayGatherV3", role="take", backward=True)
op("TensorArrayConcatV3", backward=True)
op("TensorArraySplitV3 TensorArrayGradV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArrayWriteV3")
op("TensorArrayCloseV3")
op("EmptyTensorList", bounded=True, sizes=(0,))
op("TensorListReserve", bounded=True, constants=(1,), sizes=(0, 1))
op("TensorListPopBack", role="take")
op("TensorListGetItem", role="take", sizes=(2,))
op("TensorListElementShape TensorListLength TensorListPushBack TensorListSetItem")
op("TensorListFromTensor TensorListStack", sizes=(1,))
