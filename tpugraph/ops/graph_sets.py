"""Sets of op types: control flow, calls of functions, and variables."""

from __future__ import annotations

from tpugraph.ops.facts import Write
from tpugraph.ops.queries import facts_by_op, having, with_role
from tpugraph.ops.record import records

# --------------------------------------------------------------------------- control flow of TensorFlow 1

MERGE = with_role("merge")
SWITCH = with_role("switch")
NEXT_ITERATION = with_role("next_iteration")
ENTER = with_role("enter")
EXIT = with_role("exit")
LOOP_COND = with_role("loop_cond")
CONTROL_FLOW = MERGE | SWITCH | NEXT_ITERATION | ENTER | EXIT | LOOP_COND | {"ControlTrigger"}
REF_CONTROL_FLOW = frozenset(name for name in CONTROL_FLOW if name.startswith("Ref"))
"""Those that hand on references; without the prefix it is the op that hands on values."""
GROUPS = with_role("group")
"""Ops that do nothing but wait for others."""

CALLS = with_role("call", "while", "if", "case")
"""Ops that call functions, which their attributes name."""

FUNCTIONAL = with_role("while", "if", "case")
"""Those that loop or branch by functions."""

TRUTHS = with_role("truth")
"""Ops that say whether a value counts as true."""

APART: dict[str, tuple[str, str]] = facts_by_op(lambda record: record.apart)
"""Ops that hide the way from the input to the variables: what they do, and what to do about it."""

# --------------------------------------------------------------------------- variables

REF_VARIABLES = with_role("ref_variable")
RESOURCE_VARIABLES = with_role("resource_variable")
VARIABLES = REF_VARIABLES | RESOURCE_VARIABLES
READS = with_role("read")
"""Reads of a whole resource variable. A ref variable is read by whatever takes its reference."""

VARIABLE_SHAPES = with_role("variable_shape")
READS_OF_PLACES = with_role("read_places")
GATHERS = with_role("read_rows") | READS_OF_PLACES
"""Reads of rows, or of single places, of a resource variable."""

HANDLE_ALIASES = having(lambda record: record.alias == "handle")
"""Ops whose output is the same handle or reference as their first input."""

SHARES_MEMORY = having(lambda record: record.alias is not None)
"""Ops whose output may be the memory of their first input: of a ref variable they hand on no value but the variable."""

TO_RESOURCE: dict[str, str] = facts_by_op(lambda record: record.resource_op)
"""The op on resource variables that does what an op on ref variables does."""

INITIALIZED = {name: TO_RESOURCE[name] for name in TO_RESOURCE if records()[name].role == "is_initialized"}
WRITES: dict[str, Write] = facts_by_op(lambda record: record.writes)
"""What each variable-writing op writes."""

ASSIGN_ADDS = frozenset(name for name, write in WRITES.items() if write.kind == "assign" and write.adds)
"""Ops that add a value to a whole variable."""

SAME_VARIABLE = (
    HANDLE_ALIASES | MERGE | frozenset(name for name, write in WRITES.items() if not name.startswith("Resource"))
)
"""Ops that hand on the variable that is their first input; a write to a ref variable hands its reference on."""

DENSE_WRITES: dict[str, str] = facts_by_op(lambda record: record.dense_op)
"""The dense write that does to each row what a sparse one does to the rows it is given."""

DENSE_STEPS = {name: dense for name, dense in DENSE_WRITES.items() if WRITES[name].kind == "apply"}
"""Those of the optimizers."""

WITHOUT_EFFECTS = having(lambda record: record.effects is False)
"""Ops that TensorFlow calls stateful though it makes no difference whether they run twice, or not at all."""
