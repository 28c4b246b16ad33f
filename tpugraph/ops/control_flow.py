"""Control flow ops of TensorFlow 1, and calls of library functions."""

from __future__ import annotations

from tpugraph.ops.record import Call, page

op = page("control_flow")


def _merge(call: Call) -> str:
    """The live operand, and its index."""
    return f"{', '.join(['...'] * len(call.ranks))} -> ..., -"


op("Enter RefEnter", role="enter", dims="elementwise", linear="all", alias="handle")
op("Exit RefExit", role="exit", dims="elementwise", linear="all", alias="memory")
op("NextIteration RefNextIteration", role="next_iteration", dims="elementwise", linear="all", alias="memory")
op("Merge RefMerge", role="merge", dims=_merge, linear="all", alias="memory")
op("Switch RefSwitch", role="switch", dims="..., - -> ..., ...", linear="0", alias="handle")
op("_SwitchN", role="switch", linear="0", alias="memory")
op("LoopCond", role="loop_cond", alias="memory")
op("ControlTrigger")
op("NoOp", role="group", fused=True)
op("PartitionedCall StatefulPartitionedCall", role="call")
op("While StatelessWhile", role="while")
op("If StatelessIf", role="if")
op("Case StatelessCase", role="case")
op("ToBool", role="truth")
op("SymbolicGradient", backward=True)
