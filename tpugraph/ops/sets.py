"""Sets of op types: queries over all records, computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tpugraph.ops import (
    arithmetic,
    container,
    control_flow,
    convolution,
    gather,
    host,
    input,
    loss,
    matrix,
    normalisation,
    random,
    reduction,
    shape,
    sparse,
    string,
    tpu,
    variable,
)
from tpugraph.ops.facts import Batching, Contents, Ordering, Rank, Refusal, Trusted, Write
from tpugraph.ops.record import Op, records

PAGES = (arithmetic, container, control_flow, convolution, gather, host, input, loss, matrix, normalisation, random,
         reduction, shape, sparse, string, tpu, variable)  # fmt: skip
"""The modules whose import registers the records."""

_T = TypeVar("_T")


def having(holds: Callable[[Op], bool]) -> frozenset[str]:
    """The op types whose record satisfies a predicate."""
    return frozenset(name for name, record in records().items() if holds(record))


def with_role(*roles: str) -> frozenset[str]:
    """The op types with one of the roles; a role that no record has is an error."""
    if unknown := {*roles} - {record.role for record in records().values()}:
        raise ValueError(f"no op has the role {', '.join(sorted(unknown))}")
    return having(lambda record: record.role in roles)


def facts_by_op(fact: Callable[[Op], _T | None]) -> dict[str, _T]:
    """The fact of each op type that has it."""
    found = {name: fact(record) for name, record in records().items()}
    return {name: value for name, value in found.items() if value is not None}


def computing(*functions: Callable[..., Any]) -> frozenset[str]:
    """The elementwise op types that compute one of some NumPy functions."""
    return having(lambda record: record.computes in functions)


def reducing(*reduce_ops: str) -> frozenset[str]:
    """The reductions over the axes in operand 1 with one of some ``reduce_op``."""
    return having(lambda record: record.dims == "reduce" and record.reduce_op in reduce_ops)


# --------------------------------------------------------------------------- control flow of TensorFlow 1

MERGE = with_role("merge")
SWITCH = with_role("switch")
NEXT_ITERATION = with_role("next_iteration")
ENTER = with_role("enter")
EXIT = with_role("exit")
LOOP_COND = with_role("loop_cond")
CONTROL_FLOW = MERGE | SWITCH | NEXT_ITERATION | ENTER | EXIT | LOOP_COND | {"ControlTrigger"}
REF_CONTROL_FLOW = frozenset(name for name in CONTROL_FLOW if name.startswith("Ref"))
"""Control flow ops on references; without the prefix "Ref" they are the ops on values."""
GROUPS = with_role("group")
"""NoOp and its like: control edges only."""

CALLS = with_role("call", "while", "if", "case")

TRUTHS = with_role("truth")
"""Ops that convert a value to its truth value."""

APART: dict[str, tuple[str, str]] = facts_by_op(lambda record: record.apart)
"""Ops that break the dataflow from the input to the variables: their effect, and the fix."""

# --------------------------------------------------------------------------- variables

REF_VARIABLES = with_role("ref_variable")
RESOURCE_VARIABLES = with_role("resource_variable")
VARIABLES = REF_VARIABLES | RESOURCE_VARIABLES
READS = with_role("read")
"""Reads of a whole resource variable. A ref variable is read by any op on its reference."""

VARIABLE_SHAPES = with_role("variable_shape")
ELEMENT_READS = with_role("read_places")
GATHERS = with_role("read_rows") | ELEMENT_READS
"""Reads of rows or elements of a resource variable."""

HANDLE_ALIASES = having(lambda record: record.alias == "handle")
"""Ops whose output aliases the handle or reference in their first input."""

SHARES_MEMORY = having(lambda record: record.alias is not None)
"""Ops whose output may share the buffer of their first input: for a ref variable an alias, not a snapshot."""

TO_RESOURCE: dict[str, str] = facts_by_op(lambda record: record.resource_op)
"""The resource variable op for each ref variable op."""

INITIALIZED = {name: TO_RESOURCE[name] for name in TO_RESOURCE if records()[name].role == "is_initialized"}
WRITES: dict[str, Write] = facts_by_op(lambda record: record.writes)
"""The writes of each op that writes variables."""

ASSIGN_ADDS = frozenset(name for name, write in WRITES.items() if write.kind == "assign" and write.adds)
"""Ops that add a value to a whole variable."""

SAME_VARIABLE = (
    HANDLE_ALIASES | MERGE | frozenset(name for name, write in WRITES.items() if not name.startswith("Resource"))
)
"""Ops that forward the variable in their first input; a write to a ref variable forwards the reference."""

DENSE_WRITES: dict[str, str] = facts_by_op(lambda record: record.dense_op)
"""The dense form of each sparse write."""

DENSE_STEPS = {name: dense for name, dense in DENSE_WRITES.items() if WRITES[name].kind == "apply"}
"""The dense optimizer steps."""

WITHOUT_EFFECTS = having(lambda record: record.effects is False)
"""Ops that TensorFlow declares stateful though they have no side effects."""

# --------------------------------------------------------------------------- input and host

ITERATORS = with_role("iterator")
GET_NEXT = with_role("get_next")
MAKE_ITERATOR = with_role("make_iterator")
PLAIN_MAP_DATASETS = with_role("map_dataset")
MAP_DATASETS = PLAIN_MAP_DATASETS | with_role("parallel_map_dataset")
SLICE_DATASETS = with_role("slice_dataset")
"""Datasets of the slices of tensors along dimension 0."""
REPEAT_DATASETS = with_role("repeat_dataset")
SHUFFLE_DATASETS = with_role("shuffle_dataset")
PREFETCH_DATASETS = with_role("prefetch_dataset")
BATCH_DATASETS = with_role("batch_dataset")
REBATCH_DATASETS = with_role("rebatch_dataset")
"""Datasets that split batches into smaller ones."""
WINDOWS = with_role("window_dataset")
"""Datasets whose batches are data-dependent windows."""
UNWRAPS = with_role("get_optional")
WRAPS = with_role("wrap_optional")
EMPTY_OPTIONALS = with_role("empty_optional")
QUEUES = with_role("queue")
DEQUEUES = with_role("dequeue", "dequeue_many")
BATCH_DEQUEUES = with_role("dequeue_many")
"""Dequeues of exactly as many elements as operand 1 says."""
ENQUEUES = with_role("enqueue")
PLACEHOLDERS = with_role("placeholder")
DEFAULTS = with_role("default")
"""Placeholders with a default: the operand, unless fed."""

INPUTS = GET_NEXT | DEQUEUES | PLACEHOLDERS
"""Ops that yield the batch of a step."""

PYTHON = with_role("python")
"""Ops that call Python functions of the process that built the graph; a file does not hold these."""

SUMMARIES = with_role("summary", "merge_summary")
MERGED_SUMMARIES = with_role("merge_summary")
PRINTS = with_role("print")
ASSERTS = with_role("assert")
CHECKS = with_role("assert", "check")
SAVES = with_role("save", "save_tensors")
TENSOR_SAVES = with_role("save_tensors")
"""Saves of tensors under checkpoint keys."""

RESTORES = with_role("restore")
TABLES = with_role("table")
TABLE_INITIALIZERS = with_role("fill_table")
FILE_OPERANDS: dict[str, int] = facts_by_op(lambda record: record.file_operand)
REACH: dict[str, str] = facts_by_op(lambda record: record.reach)

# --------------------------------------------------------------------------- what TensorFlow's shape functions do not check

TRUSTED: dict[str, Trusted] = facts_by_op(lambda record: record.trusted)
"""Ops for which TensorFlow's shape function aborts the process where an unchecked precondition fails."""

RANKS: dict[str, tuple[Rank, ...]] = {name: trusted.ranks for name, trusted in TRUSTED.items() if trusted.ranks}
"""Those of them whose operands must have certain ranks."""

# --------------------------------------------------------------------------- datasets

BATCHING: dict[str, Batching] = facts_by_op(lambda record: record.batching)
"""Batching datasets, with the operands of batch size and drop_remainder."""

SAME_ELEMENTS = having(lambda record: record.elements == "same")
"""Datasets that forward the elements of another unchanged."""

CHOSEN_ELEMENTS = having(lambda record: record.elements == "chosen")
"""Datasets that select and reorder elements independent of their values."""

ELEMENTS = having(lambda record: record.elements is not None)
"""Datasets whose elements are elements of another, so batches stay batches."""

MEASURES = having(lambda record: record.measures)

# --------------------------------------------------------------------------- values

RANDOM = with_role("random", "sampler")
"""Ops that draw from a stateful random stream, which ``seed`` and ``seed2`` identify."""

STATELESS: dict[str, str] = facts_by_op(lambda record: record.stateless_op)
"""The stateless op with the same distribution."""

UNIQUE = with_role("unique")
"""Unique ops: the distinct values, and the index of each element's value among them."""

SPARSE_UNWRAPS = with_role("unwrap_sparse")
"""Ops that deserialize a dataset's sparse tensor."""

SPARSE_RESHAPES = with_role("sparse_reshape")
"""SparseReshape: to the shape in operand 2; output 1 is the complete shape."""

RAGGED_TO_DENSE = with_role("ragged_to_dense")

CONTAINERS = with_role("container")
"""Ops that create a mutable container in a step: each replica that writes varying values needs its own."""

CONTAINER_GRADIENTS = with_role("container_gradient")
CONTAINER_READS = with_role("take")
CONSTANTS = with_role("constant")

SHAPES = with_role("shape")
"""Shape and ShapeN."""

SHAPE_OF = with_role("shape", "size", "rank")
"""Ops that depend only on the shape of their input."""

SIZES = with_role("size")
RANK_OPS = with_role("rank")

BROADCAST_AXES = with_role("broadcast_axes")
"""BroadcastGradientArgs: the axes along which each of two shapes is broadcast."""

SLICES = with_role("slice", "strided_slice")

PLAIN_SLICES = with_role("slice")
"""Slices with begin and size per dimension."""

STRIDED_SLICES = with_role("strided_slice")

ROLLS = with_role("roll")
"""Rolls by the shift in operand 1."""

SLICE_GRADIENTS = with_role("slice_gradient")

PADS = with_role("pad")
"""Pads with the widths in operand 1."""

RANGES = with_role("range")

RESHAPES = with_role("reshape")
"""Reshapes to the shape in operand 1."""

TILES = with_role("tile")

BROADCASTS = with_role("broadcast")
"""BroadcastTo the shape in operand 1."""

TRANSPOSES = with_role("transpose")
PACKS = with_role("pack")

DIAGONALS = with_role("diagonal")
"""Matrices from diagonals; operands 2 and 3 are the numbers of rows and columns."""

CONCATS = with_role("concat")
SPLITS = with_role("split")

RESHAPING = having(lambda record: record.family == "shape" and record.alias == "memory")
"""Ops that only change the shape."""

EXPANSIONS = with_role("expand")
"""ExpandDims at the axis in operand 1."""

SQUEEZES = with_role("squeeze")
UNPACKS = with_role("unpack")

PICKS = with_role("pick")
"""Gathers along an axis."""

WHERES = with_role("true_places")
"""Where: the coordinates of true elements, a row each."""

LOOKUPS = with_role("pick", "read_rows")
"""Gathers of rows of a table, which is a value or a variable."""

INVERT_PERMUTATIONS = with_role("inverse_order")

FILLS = with_role("fill")
"""Ops whose output is a splat."""

FILLED_LIKE = with_role("filled")
"""ZerosLike and OnesLike."""

IDENTITIES = with_role("identity")
CASTS = with_role("cast")

COMPUTES: dict[str, Callable[..., Any]] = facts_by_op(lambda record: record.computes)
"""The NumPy function that an elementwise op computes."""

ELEMENTWISE = having(
    lambda record: record.family == "arithmetic" and (record.dims == "elementwise" or record.name == "Select")
) | {"BiasAdd"}

SAME_NUMBERS = computing(np.asarray)
REDUCTIONS = with_role("reduction")
SUMS = reducing("sum")
SQUARED_SUMS = REDUCTIONS - having(lambda record: record.dims == "reduce")
"""Ops that sum the squares of all elements, or half of that sum."""

ADD_N = with_role("add_n")
"""Sums of any number of operands."""
MEANS = reducing("mean")
MATMULS_EACH = with_role("product")
PRODUCTS = MATMULS_EACH | with_role("matmul")
BATCH_NORMS = with_role("batch_norm")
BATCH_NORM_GRADIENTS = with_role("batch_norm_gradient")

BACKPROPAGATION = having(lambda record: record.backward)
"""Backpropagation ops, without gradient processing: raw gradients are their outputs."""

LAYER_PRODUCTS = having(lambda record: record.linear == "each") - ELEMENTWISE
"""Bilinear ops that are not elementwise: matrix products and convolutions."""

DIVISIONS = with_role("division", "guarded_division")
NO_GRADIENT = having(lambda record: not record.differentiable)

PARTITIONS = with_role("partition")
"""DynamicPartition: one output per partition number."""

DYNAMIC_STITCHES = with_role("stitch")
"""DynamicStitch: the first half of the operands are the indices of the rows in the second half."""

SEGMENTS = with_role("segments")
"""Segment reductions with sorted segment ids."""

UNSORTED_SEGMENTS = with_role("unsorted_segments")
UNSORTED_SUMS = having(lambda record: record.role == "unsorted_segments" and record.reduce_op == "sum")

SPARSE_SEGMENTS = with_role("sparse_segments")
"""Segment reductions of gathered table rows."""

SEGMENT_GRADS = with_role("segment_gradient")
"""Gradients of sparse segment reductions: rows with their indices."""

ALL_SEGMENT_GRADS = SEGMENT_GRADS | with_role("row_segment_gradient")
"""The same, and those that return all rows of the table."""

ROWS_OPERAND: dict[str, int] = facts_by_op(lambda record: record.rows_operand)
"""Ops with an operand for the number of output rows."""

SHAPED_BY: dict[str, int] = facts_by_op(lambda record: record.shaped_by)
"""Ops with an operand that is the output shape."""

DRAWS = having(lambda record: record.family == "random" and record.shaped_by is not None)
"""Random ops with an operand for the output shape."""

ORDERINGS: dict[str, Ordering] = facts_by_op(lambda record: record.ordering)
"""Comparisons: the smaller operand, the larger, whether they may be equal."""

# --------------------------------------------------------------------------- TPUs and XLA

INFEED_DTYPES = records()["InfeedDequeueTuple"].dtypes or frozenset()
REDUCE_DTYPES = records()["CrossReplicaSum"].dtypes or frozenset()

METADATA = with_role("tpu_metadata")
"""Ops that describe the cluster, such as its number of cores."""

COMPILATION_RESULTS = with_role("compilation_result")
CLUSTER_INPUTS = with_role("cluster_input")
"""Ops that give each core one of their operands, host values or variables."""

REPLICATED_OUTPUTS = with_role("replicated_output")
"""Ops that return values of the cores to the host, one output per core."""

INFEEDS = with_role("infeed")

OUTFEEDS = with_role("outfeed")
"""Outfeed dequeues."""

ALL_REDUCES = with_role("all_reduce")
"""Collectives with a replicated result."""

REPLICA_IDS = with_role("replica_id")

OF_REPLICAS = ALL_REDUCES | REPLICA_IDS | {"AllToAll", "CollectivePermute"}
"""Ops of a program for one replica that combine replicas or return the replica's index."""

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
"""Ops of TPU graphs; they have no CPU kernel."""

CONTENTS: dict[str, Contents] = facts_by_op(lambda record: record.contents)
"""The effects of ops on stacks, TensorArrays and lists."""

FLOWS = CONTAINERS | CONTAINER_GRADIENTS | {op for op, contents in CONTENTS.items() if contents.puts is not None}
"""Ops whose outputs are a container, or flow values that only order accesses to it."""

LIST_CONTENTS = {op: contents for op, contents in CONTENTS.items() if contents.value}

LISTS = having(lambda record: record.bounded)
"""Ops that create a list for a loop to fill; XLA needs its size."""

STACKS = having(lambda record: record.stack)
"""Stacks, on which the gradient of a loop keeps values."""

TPU_LACKS: dict[str, frozenset[str]] = facts_by_op(lambda record: record.tpu_lacks or None)
XLA_REFUSES: dict[str, Refusal] = facts_by_op(lambda record: record.xla_refuses)

REPLACEMENTS: dict[str, str] = facts_by_op(lambda record: record.instead)
"""Replacements for ops that XLA has no kernel for."""

FUSED = ((ELEMENTWISE | REDUCTIONS) - CHECKS - REPLACEMENTS.keys()) | IDENTITIES | having(lambda record: record.fused)
"""Ops that the emulator may put into the one XLA computation of a small dense step."""


def instead_of(op: str) -> str:
    """The fix for an op that XLA has no kernel for."""
    return REPLACEMENTS.get(op, "write it with other ops, or compute it in the input function")
