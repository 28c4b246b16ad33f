"""Sets of op types: queries over the records of all op types, each answered once."""

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
from tpugraph.ops.record import Op, Role, records

PAGES = (arithmetic, container, control_flow, convolution, gather, host, input, loss, matrix, normalisation, random,
         reduction, shape, sparse, string, tpu, variable)  # fmt: skip
"""The pages; importing them makes the records."""

_T = TypeVar("_T")


def having(holds: Callable[[Op], bool]) -> frozenset[str]:
    """The op types whose record satisfies a condition."""
    return frozenset(name for name, record in records().items() if holds(record))


def with_role(*roles: Role) -> frozenset[str]:
    """The op types with one of the roles."""
    return having(lambda record: record.role in roles)


def facts_by_op(fact: Callable[[Op], _T | None]) -> dict[str, _T]:
    """A fact of each op type whose record has it."""
    found = {name: fact(record) for name, record in records().items()}
    return {name: value for name, value in found.items() if value is not None}


def computing(*functions: Callable[..., Any]) -> frozenset[str]:
    """The op types that compute one of some functions of NumPy, element by element."""
    return having(lambda record: record.computes in functions)


def reducing(*reduce_ops: str) -> frozenset[str]:
    """The reductions over the dimensions that operand 1 names that join elements in one of some ways."""
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
"""Those that hand on references; without the prefix it is the op that hands on values."""
GROUPS = with_role("group")
"""Ops that do nothing but wait for others."""

CALLS = with_role("call", "while", "if", "case")
"""Ops that call functions, which their attributes name."""

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
WINDOWS = with_role("window_dataset")
"""Datasets whose batches are windows that data and a function decide."""
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

# --------------------------------------------------------------------------- values

RANDOM = with_role("random", "sampler")
"""Ops that draw from a stateful random stream; ``seed`` and ``seed2`` name the stream."""

STATELESS: dict[str, str] = facts_by_op(lambda record: record.stateless_op)
"""The stateless op that draws from the same distribution."""

UNIQUE = with_role("unique")
"""Ops whose first output holds each value of their operand once, and whose second says which of them each element has."""

SPARSE_UNWRAPS = with_role("unwrap_sparse")
"""Ops that take a sparse tensor out of the wrapping in which a dataset hands it out."""

SPARSE_RESHAPES = with_role("sparse_reshape")
"""Ops that give a sparse tensor the shape that operand 2 says; output 1 is that shape, with all of its sizes."""

RAGGED_TO_DENSE = with_role("ragged_to_dense")
"""Ops that pad lists to rows of one length."""

CONTAINERS = with_role("container")
"""Ops that make a mutable container of one step: each replica that writes varying values needs its own."""

CONTAINER_GRADIENTS = with_role("container_gradient")
"""Ops that give the container of the gradients of what another one holds."""

TAKES_OUT = with_role("take")
"""Ops that give back what was put into a container before."""

CONSTANTS = with_role("constant")
"""Ops whose value stands in the graph."""

SHAPES = with_role("shape")
"""Ops that say the shape of their input, each of theirs."""

SHAPE_OF = with_role("shape", "size", "rank")
"""Ops that read only the shape of their input."""

SIZES = with_role("size")
"""Ops that count the elements of their input."""

RANKS_OF = with_role("rank")
"""Ops that count the dimensions of their input."""

BROADCAST_AXES = with_role("broadcast_axes")
"""Ops that compare two shapes and say along which dimensions each would be broadcast."""

SLICES = with_role("slice", "strided_slice")
"""Ops that take a part of a value between bounds."""

PLAIN_SLICES = with_role("slice")
"""Those with a first place and a size for each dimension."""

STRIDED_SLICES = with_role("strided_slice")
"""Those whose bounds may be left out, counted from the end, and name single elements."""

ROLLS = with_role("roll")
"""Ops that move elements round by as many places as operand 1 says."""

SLICE_GRADIENTS = with_role("slice_gradient")
"""Ops that put a gradient at the place of the slice that it belongs to."""

PADS = with_role("pad")
"""Ops that put elements around a value, as many as operand 1 says."""

RANGES = with_role("range")
"""Ops that make whole numbers one after the other."""

RESHAPES = with_role("reshape")
"""Ops that give a value the shape that operand 1 says."""

TILES = with_role("tile")
"""Ops that repeat a value along its dimensions."""

BROADCASTS = with_role("broadcast")
"""Ops that broadcast a value to the shape that operand 1 says."""

TRANSPOSES = with_role("transpose")

PACKS = with_role("pack")
"""Ops that put tensors side by side along a new dimension."""

DIAGONALS = with_role("diagonal")
"""Ops that make matrices of their diagonals, of as many rows and columns as operands 2 and 3 say."""

CONCATS = with_role("concat")
"""Ops that put tensors one behind the other along a dimension."""

SPLITS = with_role("split")
"""Ops that cut a tensor into pieces along a dimension."""

SHAPED_ANEW = having(lambda record: record.family == "shape" and record.alias == "memory")
"""Ops whose output holds the same elements in the same order, in another shape."""

EXPANSIONS = with_role("expand")
"""Ops that put a dimension of one element where operand 1 says."""

SQUEEZES = with_role("squeeze")
"""Ops that drop dimensions of one element."""

UNPACKS = with_role("unpack")
"""Ops that take a tensor apart along a dimension."""

PICKS = with_role("pick")
"""Ops that take elements by their numbers along a dimension."""

PLACES_OF_TRUE = with_role("true_places")
"""Ops that find the places of elements that are true: a row for each place, with its number along each dimension."""

LOOKUPS = with_role("pick", "read_rows")
"""Ops that take rows of a table, which is a value or a variable, by their numbers."""

INVERSE_ORDERS = with_role("inverse_order")
"""Ops that say of an order at which place each number stands."""

FILLS = with_role("fill")
"""Ops that make a splat."""

SPREADS = FILLS | TILES | BROADCASTS
"""Ops that put one element in many places."""

FILLED_LIKE = with_role("filled")
"""Ops whose elements are the same number whatever their input's are."""

IDENTITIES = with_role("identity")
CASTS = with_role("cast")
"""Ops that make the same numbers in another dtype."""

COMPUTES: dict[str, Callable[..., Any]] = facts_by_op(lambda record: record.computes)
"""The function of NumPy arrays that an op computes of its operands, element by element."""

ELEMENTWISE = having(
    lambda record: record.family == "arithmetic" and (record.dims == "elementwise" or record.name == "Select")
) | {"BiasAdd"}
"""Ops that work element by element (with broadcasting)."""

SAME_NUMBERS = computing(np.asarray)
"""Ops that hand on the numbers of their operand, in the same dtype or another one."""

REDUCTIONS = with_role("reduction")

SUMS = reducing("sum")
SQUARED_SUMS = REDUCTIONS - having(lambda record: record.dims == "reduce")
"""Ops that add up the squares of all elements, or half of them."""

ADD_N = with_role("add_n")
"""Ops that add up any number of operands."""
MEANS = reducing("mean")
PRODUCTS = with_role("product", "matmul")
MATMULS = with_role("matmul")
"""Products of two matrices, each of which may be transposed before."""

MATMULS_EACH = PRODUCTS - MATMULS
"""Products of as many pairs of matrices as the leading dimensions say."""

BATCH_NORMS = with_role("batch_norm")
BATCH_NORM_GRADIENTS = with_role("batch_norm_gradient")

BACKPROPAGATION = having(lambda record: record.backward)
"""Ops that backpropagation is made of, and no processing of a gradient: behind one of them begins the raw gradient."""

LAYER_PRODUCTS = having(lambda record: record.linear == "each") - ELEMENTWISE
"""Products of whole layers: linear in each operand while the other is fixed, and not element by element."""

DIVISIONS = with_role("division", "guarded_division")
NO_GRADIENT = having(lambda record: not record.differentiable)
"""Ops through which no gradient flows."""

PARTITIONS = with_role("partition")
"""Ops that part rows by the number that each row has: an output for each number."""

DYNAMIC_STITCHES = with_role("stitch")
"""Ops that put rows together, each at the place that its number says; the numbers are the first half of the operands."""

SEGMENTS = with_role("segments")
"""Ops that combine the rows of each segment, whose numbers do not fall."""

UNSORTED_SEGMENTS = with_role("unsorted_segments")
"""Ops that take together the rows with one number: the output has a row for each number."""

UNSORTED_SUMS = having(lambda record: record.role == "unsorted_segments" and record.reduce_op == "sum")

SPARSE_SEGMENTS = with_role("sparse_segments")
"""Ops that take together rows of a table, which they pick by number, by the number of a segment."""

SEGMENT_GRADS = with_role("segment_gradient")
"""Gradients of sparse segment ops: rows, and the indices that they belong to."""

ALL_SEGMENT_GRADS = SEGMENT_GRADS | with_role("row_segment_gradient")
"""With those that make all rows of the table."""

ROWS_OPERAND: dict[str, int] = facts_by_op(lambda record: record.rows_operand)
"""Ops with an operand that says how many rows they make."""

SHAPED_BY: dict[str, int] = facts_by_op(lambda record: record.shaped_by)
"""Ops with an operand that is the shape of what they make."""

DRAWS = having(lambda record: record.family == "random" and record.shaped_by is not None)
"""Ops that draw random numbers in as many places as a shape says."""

ORDERINGS: dict[str, Ordering] = facts_by_op(lambda record: record.ordering)
"""Comparisons: which operand is the smaller one, which the larger, whether they may be equal."""

# --------------------------------------------------------------------------- TPUs and XLA

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

CONTENTS: dict[str, Contents] = facts_by_op(lambda record: record.contents)
"""What an op does to a stack, an array or a list of tensors."""

FLOWS = CONTAINERS | CONTAINER_GRADIENTS | {op for op, contents in CONTENTS.items() if contents.puts is not None}
"""Ops whose outputs are a container, or numbers that say nothing but the order of what happens to it."""

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
