"""Sets of op types: the input, and what else a host does."""

from __future__ import annotations

from tpugraph.ops.facts import Batching
from tpugraph.ops.queries import facts_by_op, having, with_role
from tpugraph.ops.trusted import Rank, Trusted

# --------------------------------------------------------------------------- input and host

ITERATORS = with_role("iterator")
GET_NEXT = with_role("get_next")
MAKE_ITERATOR = with_role("make_iterator")
PLAIN_MAP_DATASETS = with_role("map_dataset")
"""Datasets that make each element when it is asked for, of one of another, by a function."""
MAP_DATASETS = PLAIN_MAP_DATASETS | with_role("parallel_map_dataset")
"""Datasets that make each element of one of another by a function."""
SLICE_DATASETS = with_role("slice_dataset")
"""Datasets whose elements are the slices of tensors along the first dimension."""
REPEAT_DATASETS = with_role("repeat_dataset")
"""Datasets that give another one several times over."""
SHUFFLE_DATASETS = with_role("shuffle_dataset")
"""Datasets that give the elements of another one in a random order, all of them."""
PREFETCH_DATASETS = with_role("prefetch_dataset")
"""Datasets that hold elements of another one that are not asked for yet."""
BATCH_DATASETS = with_role("batch_dataset")
"""Datasets that put the elements of another one together in batches, one after the other."""
REBATCH_DATASETS = with_role("rebatch_dataset")
"""Datasets that cut the batches of another one into smaller ones."""
UNWRAPS = with_role("get_optional")
"""Ops that take the value out of an optional."""
WRAPS = with_role("wrap_optional")
EMPTY_OPTIONALS = with_role("empty_optional")
QUEUES = with_role("queue")
DEQUEUES = with_role("dequeue", "dequeue_many")
BATCH_DEQUEUES = with_role("dequeue_many")
"""Those that take as many elements at once as operand 1 says, neither fewer nor more."""
ENQUEUES = with_role("enqueue")
QUEUE_CLOSES = with_role("close_queue")
PLACEHOLDERS = with_role("placeholder")
DEFAULTS = with_role("default")
"""Ops that hand on their operand where they are fed no other value."""

INPUTS = GET_NEXT | DEQUEUES | PLACEHOLDERS
"""Ops that bring data of a batch into the step."""

PYTHON = with_role("python")
"""Ops that call into the Python process that built the graph; a file cannot carry them."""

SUMMARIES = with_role("summary", "merge_summary")
MERGED_SUMMARIES = with_role("merge_summary")
"""Those that are made of other summaries."""

PRINTS = with_role("print")
ASSERTS = with_role("assert")
CHECKS = with_role("assert", "check")

SAVES = with_role("save", "save_tensors")
TENSOR_SAVES = with_role("save_tensors")
"""Those that write tensors under keys."""

RESTORES = with_role("restore")
TABLES = with_role("table")
TABLE_INITIALIZERS = with_role("fill_table")
FILE_OPERANDS: dict[str, int] = facts_by_op(lambda record: record.file_operand)
"""Ops that open files, and which operand names them."""

REACH: dict[str, str] = facts_by_op(lambda record: record.reach)
"""Ops that do something outside of TensorFlow's own memory when they run, and what: ``reads``, ``writes``, ``prints``, ..."""

# --------------------------------------------------------------------------- what TensorFlow's shape functions do not check

TRUSTED: dict[str, Trusted] = facts_by_op(lambda record: record.trusted)
"""Ops over which TensorFlow's shape function ends the process where something is otherwise than it takes for granted."""

RANKS: dict[str, tuple[Rank, ...]] = {name: trusted.ranks for name, trusted in TRUSTED.items() if trusted.ranks}
"""Of these ops, those whose operands must have certain ranks."""

# --------------------------------------------------------------------------- datasets

BATCHING: dict[str, Batching] = facts_by_op(lambda record: record.batching)
"""Dataset ops that batch: the operand of the batch size and that of drop_remainder."""

SAME_ELEMENTS = having(lambda record: record.elements == "same")
"""Datasets that hand on the elements of another as they are."""

CHOSEN_ELEMENTS = having(lambda record: record.elements == "chosen")
"""Datasets that choose and order the elements of another without looking at them."""

ELEMENTS = having(lambda record: record.elements is not None)
"""Datasets whose elements are those of another: a batch stays a batch."""

MEASURES = having(lambda record: record.measures)
"""Datasets that measure the stages before them, and do nothing else."""
