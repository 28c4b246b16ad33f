"""Sets of op types: what makes a graph a TPU graph, and what XLA takes."""

from __future__ import annotations

from tpugraph.ops.facts import Contents, Refusal
from tpugraph.ops.host_sets import CHECKS
from tpugraph.ops.queries import facts_by_op, having, with_role
from tpugraph.ops.record import records
from tpugraph.ops.value_sets import ELEMENTWISE, IDENTITIES, REDUCTIONS

INFEED_DTYPES = records()["InfeedDequeueTuple"].dtypes or frozenset()
"""What a TPU takes over its infeed."""

REDUCE_DTYPES = records()["CrossReplicaSum"].dtypes or frozenset()
"""What CrossReplicaSum takes."""

METADATA = with_role("tpu_metadata")
"""Ops that say how the cluster is laid out, as how many cores it has."""

COMPILATION_RESULTS = with_role("compilation_result")
CLUSTER_INPUTS = with_role("cluster_input")
"""Ops that give each core its own of their operands, which are values of the host or variables."""

REPLICATED_OUTPUTS = with_role("replicated_output")
"""Ops that hand to the host what the cores have, an output for each core."""

INFEEDS = with_role("infeed")
"""Ops by which the device takes what the host has sent it."""

OUTFEEDS = with_role("outfeed")
"""Ops by which the host takes what the device has sent it."""

ALL_REDUCES = with_role("all_reduce")
"""Ops whose value is the same on all cores, whatever theirs are."""

REPLICA_IDS = with_role("replica_id")
"""Ops that say to a replica which one of them it is."""

OF_REPLICAS = ALL_REDUCES | REPLICA_IDS | {"AllToAll", "CollectivePermute"}
"""Ops of a program that is one replica of several, and combines them or asks which of them it is."""

TPU_SYSTEM = (
    with_role("tpu")
    | METADATA
    | COMPILATION_RESULTS
    | CLUSTER_INPUTS
    | REPLICATED_OUTPUTS
    | INFEEDS
    | OUTFEEDS
    | ALL_REDUCES
)
"""Ops that make a graph a TPU graph; no CPU kernel runs them."""

COMPILE_TIME_CONSTANTS = having(lambda record: bool(record.constants))
"""Ops with operands whose value XLA must know when it compiles; :meth:`Op.constant_operands` says which."""

CONTENTS: dict[str, Contents] = facts_by_op(lambda record: record.contents)
"""What an op does to a stack, an array or a list of tensors."""

LIST_CONTENTS = {op: contents for op, contents in CONTENTS.items() if contents.value}
"""Those that work on lists."""

LISTS = having(lambda record: record.bounded)
"""Ops that make a list that a loop fills; XLA wants to know its size."""

STACKS = having(lambda record: record.stack)
"""What the gradient of a loop keeps values on."""

TPU_LACKS: dict[str, frozenset[str]] = facts_by_op(lambda record: record.tpu_lacks or None)
"""The dtypes that a TPU has no op for though XLA takes them on a CPU."""

XLA_REFUSES: dict[str, Refusal] = facts_by_op(lambda record: record.xla_refuses)
"""An attribute value that an XLA kernel refuses though its registration takes it, and what to write instead."""

REPLACEMENTS: dict[str, str] = facts_by_op(lambda record: record.instead)
"""What to write instead of an op that XLA has no kernel for."""

FUSED = ((ELEMENTWISE | REDUCTIONS) - CHECKS - REPLACEMENTS.keys()) | IDENTITIES | having(lambda record: record.fused)
"""Ops that the emulator may put into the one XLA computation of a small dense step."""


def instead_of(op: str) -> str:
    """What to do about an op that XLA has no kernel for."""
    return REPLACEMENTS.get(op, "write it with other ops, or compute it in the input function")
