"""Guards for TensorFlow's shape functions, some of which end the process where an operand has another rank than they expect.

What ranks they expect stands in the records of the ops (the field ``trusted``). Only TensorFlow knows a rank, and only while it
imports the graph. So a node stands in front of each such node, whose own shape function refuses the wrong rank in words, and
which TensorFlow must have imported first. Guards are for dtypes and shapes only: no graph that is written or run has one.
"""

from __future__ import annotations

import re
from typing import Any

from tpugraph import ops
from tpugraph.ir.attrs import AttrValue

_GUARD = re.compile(r"(?:r\d+/)?(.+)/rank_of_input_(\d+)_is_(.+)")


def guard(nodes: Any, definition: Any) -> None:
    """Let a node wait for its guards.

    Args:
        nodes: the nodes of a GraphDef, to which the guards are added.
        definition: one of them, whose op is one of ``ops.RANKS``.
    """
    operands = [text for text in definition.input if not text.startswith("^")]
    for rank in ops.RANKS[definition.op]:
        number = rank.more + (_held(definition, rank.number) if isinstance(rank.number, str) else rank.number)
        operand = rank.operand if isinstance(rank.operand, slice) else slice(rank.operand, rank.operand + 1)
        for place in range(len(operands))[operand] if rank.exact or number > 0 else ():
            made = nodes.add(input=[operands[place]])
            made.name = f"{definition.name}/rank_of_input_{place}_is_{number}{'' if rank.exact else '_or_more'}"
            made.attr["T"].CopyFrom(_dtype(definition, place))
            (_be_exactly if rank.exact else _be_at_least)(made, number)
            definition.input.append(f"^{made.name}")


def _held(definition: Any, name: str) -> int:
    declared = next(attr for attr in ops.op_def(definition.op).attr if attr.name == name)
    return int(definition.attr.get(name, declared.default_value).i)


def _be_exactly(made: Any, rank: int) -> None:
    made.op = "EnsureShape"
    made.attr["shape"].shape.SetInParent()
    for _ in range(rank):
        made.attr["shape"].shape.dim.add(size=-1)


def _be_at_least(made: Any, rank: int) -> None:
    """A new axis can stand behind as many dimensions as there are."""
    made.op = "Pack"
    made.attr["N"].i = 1
    made.attr["axis"].i = rank


def words(name: str) -> tuple[str, str] | None:
    """The node that a guard stands in front of, and what is wrong with it; None for the name of another node."""
    found = _GUARD.fullmatch(name)
    if found is None:
        return None
    node, place, wanted = found.groups()
    return node, f"input {place} has another rank than {wanted.replace('_', ' ')}"


def _dtype(definition: Any, place: int) -> Any:
    """The dtype of an operand as an attribute; in a function it may be the name of one of the function's."""
    for argument in ops.op_def(definition.op).input_arg:
        count = definition.attr[argument.number_attr].i if argument.number_attr else 1
        if place < count:
            return definition.attr[argument.type_attr] if argument.type_attr else AttrValue(type=argument.type)
        place -= count
    raise AssertionError("validation counts the inputs")
