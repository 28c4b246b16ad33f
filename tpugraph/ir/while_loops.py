"""The parts of a TF1 loop: what it carries from one iteration to the next, and what it counts.

``tf.while_loop`` writes each carried value as ``Merge(Enter(initial), NextIteration(following))``; a Switch on the loop's
condition hands the Merge's value to the body, or past an Exit to what follows the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpugraph import ops
from tpugraph.ir.node import Node, Tensor
from tpugraph.ir.pattern import behind, match, op
from tpugraph.ir.walks import source_of


@dataclass(frozen=True)
class Carried:
    """A value that a loop carries.

    Attributes:
        merge: takes the initial value, then that of the iteration before.
        enter: brings the initial value into the loop.
        closing: the NextIteration, which hands the value to the next iteration.
    """

    merge: Node
    enter: Node
    closing: Node

    @property
    def initial(self) -> Tensor:
        """The value before the first iteration, outside of the loop."""
        return self.enter.inputs[0]

    @property
    def following(self) -> Tensor:
        """The value at the end of an iteration."""
        return self.closing.inputs[0]

    @property
    def switches(self) -> list[Node]:
        """The nodes that hand the value to the body, or out of the loop."""
        return [use.node for use in self.merge.uses(0) if use.node.op in ops.SWITCH and use.index == 0]

    @property
    def inside(self) -> list[Node]:
        """What reads the value in the body."""
        return [use.node for switch in self.switches for use in switch.uses(1)]

    @property
    def exits(self) -> list[Node]:
        """The nodes that give the last value to what follows the loop."""
        return [use.node for switch in self.switches for use in switch.uses(0) if use.node.op in ops.EXIT]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor of the body is the value, behind identities perhaps."""
        node, port = source_of(tensor)
        return node.op in ops.SWITCH and port == 1 and node.inputs[0].node is self.merge


@dataclass(frozen=True)
class Counted:
    """A loop ``while counter < limit`` whose limit is read from a variable.

    Attributes:
        condition: the loop's LoopCond.
        counter: what the loop counts.
        limit: the variable.
    """

    condition: Node
    counter: Carried
    limit: Node


def carried(merge: Node) -> Carried | None:
    """What a loop carries through a Merge; None where the Merge joins branches, or the node is no Merge."""
    if merge.op not in ops.MERGE or len(merge.inputs) != 2:
        return None
    enter = next((tensor.node for tensor in merge.inputs if tensor.node.op in ops.ENTER), None)
    closing = next((tensor.node for tensor in merge.inputs if tensor.node.op in ops.NEXT_ITERATION), None)
    return None if enter is None or closing is None else Carried(merge, enter, closing)


_BELOW_A_VARIABLE = op(
    ops.LOOP_COND,
    op(
        "Less",
        op(ops.MERGE, op(ops.ENTER), op(ops.NEXT_ITERATION), name="counter"),
        behind(ops.ENTER | ops.READS | ops.IDENTITIES, op(ops.RESOURCE_VARIABLES, name="limit")),
    ),
)


def counted(condition: Node) -> Counted | None:
    """The loop of a LoopCond as one that counts to the value of a variable; None where it is another."""
    found = match(_BELOW_A_VARIABLE, condition.out())
    counter = carried(found["counter"].node) if found else None
    return None if counter is None else Counted(condition, counter, found["limit"].node)


def why_not_counted(condition: Node) -> str:
    """Which node keeps a loop from being one that counts to the value of a variable; "" where it is one."""
    return match(_BELOW_A_VARIABLE, condition.out()).why
