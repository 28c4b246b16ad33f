"""Facts about op types, as data: one record per op type. Passes ask here and never look into op names themselves.

The records stand on the pages of this package, by family. What passes ask of many op types at once (which ops write
variables, which are elementwise) is a query over the records, answered once. An op without a record gets the careful
answer: what TensorFlow's own op registry says of it, and nothing beyond that.
"""

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
from tpugraph.ops.facts import Batching, Bins, Contents, Ordering, Refusal, Write
from tpugraph.ops.record import Call, Op, Role, Rule, Signature, records
from tpugraph.ops.registry import (
    attr_names,
    input_counts,
    is_dataset,
    is_folded_away,
    is_host_only,
    is_stateful,
    op_def,
    record,
    required_attrs,
)
from tpugraph.ops.trusted import Rank, Trusted

__all__ = ["Batching", "Bins", "Call", "Contents", "Op", "Ordering", "Rank", "Refusal", "Role", "Rule", "Signature", "Trusted",
           "Write", "attr_names", "computing", "input_counts", "is_dataset", "is_folded_away", "is_host_only", "is_stateful",
           "op_def", "record", "records", "reducing", "required_attrs"]  # fmt: skip
PAGES = (arithmetic, container, control_flow, convolution, gather, host, input, loss, matrix, normalisation, random,
         reduction, shape, sparse, string, tpu, variable)  # fmt: skip
"""The pages; importing them makes the records."""

_T = TypeVar("_T")


# --------------------------------------------------------------------------- queries


def _ops(holds: Callable[[Op], bool]) -> frozenset[str]:
    """The op types whose record satisfies a condition."""
    return frozenset(name for name, record in records().items() if holds(record))


def _role(*roles: Role) -> frozenset[str]:
    """The op types with one of the roles."""
    return _ops(lambda record: record.role in roles)


def _facts(fact: Callable[[Op], _T | None]) -> dict[str, _T]:
    """A fact of each op type whose record has it."""
    found = {name: fact(record) for name, record in records().items()}
    return {name: value for name, value in found.items() if value is not None}


# --------------------------------------------------------------------------- control flow (TF1)

MERGE = _role("merge")
SWITCH = _role("switch")
NEXT_ITERATION = _role("next_iteration")
ENTER = _role("enter")
EXIT = _role("exit")
LOOP_COND = _role("loop_cond")
CONTROL_FLOW = MERGE | SWITCH | NEXT_ITERATION | ENTER | EXIT | LOOP_COND | {"ControlTrigger"}
REF_CONTROL_FLOW = frozenset(name for name in CONTROL_FLOW if name.startswith("Ref"))
"""Those that hand on references; without the prefix it is the op that hands on values."""
GROUPS = _role("group")
"""Ops that do nothing but wait for others."""

CALLS = _role("call", "while", "if", "case")
"""Ops that call functions, which their attributes name."""

FUNCTIONAL = _role("while", "if", "case")
"""Those that loop or branch by functions."""

TRUTHS = _role("truth")
"""Ops that say whether a value counts as true."""

APART: dict[str, tuple[str, str]] = _facts(lambda record: record.apart)
"""Ops that hide the way from the input to the variables: what they do, and what to do about it."""

# --------------------------------------------------------------------------- variables

REF_VARIABLES = _role("ref_variable")
RESOURCE_VARIABLES = _role("resource_variable")
VARIABLES = REF_VARIABLES | RESOURCE_VARIABLES
READS = _role("read")
"""Reads of a whole resource variable. A ref variable is read by whatever takes its reference."""

VARIABLE_SHAPES = _role("variable_shape")
READS_OF_PLACES = _role("read_places")
GATHERS = _role("read_rows") | READS_OF_PLACES
"""Reads of rows, or of single places, of a resource variable."""

HANDLE_ALIASES = _ops(lambda record: record.alias == "handle")
"""Ops whose output is the same handle or reference as their first input."""

SHARES_MEMORY = _ops(lambda record: record.alias is not None)
"""Ops whose output may be the memory of their first input: of a ref variable they hand on no value but the variable."""

TO_RESOURCE: dict[str, str] = _facts(lambda record: record.resource_op)
"""The op on resource variables that does what an op on ref variables does."""

INITIALIZED = {name: TO_RESOURCE[name] for name in TO_RESOURCE if records()[name].role == "is_initialized"}
WRITES: dict[str, Write] = _facts(lambda record: record.writes)
"""What each variable-writing op writes."""

SAME_VARIABLE = (
    HANDLE_ALIASES | MERGE | frozenset(name for name, write in WRITES.items() if not name.startswith("Resource"))
)
"""Ops that hand on the variable that is their first input; a write to a ref variable hands its reference on."""

DENSE_WRITES: dict[str, str] = _facts(lambda record: record.dense_op)
"""The dense write that does to each row what a sparse one does to the rows it is given."""

DENSE_STEPS = {name: dense for name, dense in DENSE_WRITES.items() if WRITES[name].kind == "apply"}
"""Those of the optimizers."""

WITHOUT_EFFECTS = _ops(lambda record: record.effects is False)
"""Ops that TensorFlow calls stateful though it makes no difference whether they run twice, or not at all."""

# --------------------------------------------------------------------------- input and host

ITERATORS = _role("iterator")
GET_NEXT = _role("get_next")
MAKE_ITERATOR = _role("make_iterator")
MAP_DATASETS = _role("map_dataset")
"""Datasets that make each element of one of another by a function."""
FLAT_MAP_DATASETS = _role("flat_map_dataset")
"""Datasets that make several elements of one of another, those of the dataset that a function returns."""
SLICE_DATASETS = _role("slice_dataset")
"""Datasets whose elements are the slices of tensors along the first dimension."""
REPEAT_DATASETS = _role("repeat_dataset")
"""Datasets that give another one several times over."""
BATCH_DATASETS = _role("batch_dataset")
"""Datasets that put the elements of another one together in batches, one after the other."""
REBATCH_DATASETS = _role("rebatch_dataset")
"""Datasets that cut the batches of another one into smaller ones."""
UNWRAPS = _role("get_optional")
"""Ops that take the value out of an optional."""
WRAPS = _role("wrap_optional")
EMPTY_OPTIONALS = _role("empty_optional")
QUEUES = _role("queue")
DEQUEUES = _role("dequeue")
ENQUEUES = _role("enqueue")
QUEUE_CLOSES = _role("close_queue")
PLACEHOLDERS = _role("placeholder")
DEFAULTS = _role("default")
"""Ops that hand on their operand where they are fed no other value."""

INPUTS = GET_NEXT | DEQUEUES | PLACEHOLDERS
"""Ops that bring data of a batch into the step."""

PYTHON = _role("python")
"""Ops that call into the Python process that built the graph; a file cannot carry them."""

SUMMARIES = _role("summary", "merge_summary")
MERGED_SUMMARIES = _role("merge_summary")
"""Those that are made of other summaries."""

PRINTS = _role("print")
ASSERTS = _role("assert")
CHECKS = _role("assert", "check")
VALUE_CHECKS = _ops(lambda record: record.role == "check" and record.family == "arithmetic")
"""Those that hand on the value that they check."""

SAVES = _role("save", "save_tensors")
TENSOR_SAVES = _role("save_tensors")
"""Those that write tensors under keys."""

RESTORES = _role("restore")
TABLES = _role("table")
TABLE_INITIALIZERS = _role("fill_table")
FILE_OPERANDS: dict[str, int] = _facts(lambda record: record.file_operand)
"""Ops that open files, and which operand names them."""

REACH: dict[str, str] = _facts(lambda record: record.reach)
"""Ops that do something outside of TensorFlow's own memory when they run, and what: ``reads``, ``writes``, ``prints``, ..."""

# --------------------------------------------------------------------------- what TensorFlow's shape functions do not check

TRUSTED: dict[str, Trusted] = _facts(lambda record: record.trusted)
"""Ops over which TensorFlow's shape function ends the process where something is otherwise than it takes for granted."""

RANKS: dict[str, tuple[Rank, ...]] = {name: trusted.ranks for name, trusted in TRUSTED.items() if trusted.ranks}
"""Of these ops, those whose operands must have certain ranks."""

# --------------------------------------------------------------------------- datasets

BATCHING: dict[str, Batching] = _facts(lambda record: record.batching)
"""Dataset ops that batch: the operand of the batch size and that of drop_remainder."""

SAME_ELEMENTS = _ops(lambda record: record.elements == "same")
"""Datasets that hand on the elements of another as they are."""

CHOSEN_ELEMENTS = _ops(lambda record: record.elements == "chosen")
"""Datasets that choose and order the elements of another without looking at them."""

ELEMENTS = _ops(lambda record: record.elements is not None)
"""Datasets whose elements are those of another: a batch stays a batch."""

MEASURES = _ops(lambda record: record.measures)
"""Datasets that measure the stages before them, and do nothing else."""

# --------------------------------------------------------------------------- randomness, shape, arithmetic

CANDIDATE_SAMPLERS = _role("sampler")
"""Ops that draw classes whatever the labels are; of the labels they say how often each is expected."""

RANDOM = _role("random", "sampler")
"""Ops that draw from a stateful random stream; ``seed`` and ``seed2`` name the stream."""

STATELESS: dict[str, str] = _facts(lambda record: record.stateless_op)
"""The stateless op that draws from the same distribution."""

UNIQUE = _role("unique")
"""Ops whose first output holds each value of their operand once, and whose second says which of them each element has."""

SPARSE_UNWRAPS = _role("unwrap_sparse")
"""Ops that take a sparse tensor out of the wrapping in which a dataset hands it out."""

RAGGED_TO_DENSE = _role("ragged_to_dense")
"""Ops that pad lists to rows of one length."""

CONTAINERS = _role("container")
"""Ops that make a mutable container of one step: each replica that writes varying values needs its own."""

CONTAINER_GRADIENTS = _role("container_gradient")
"""Ops that give the container of the gradients of what another one holds."""

TAKES_OUT = _role("take")
"""Ops that give back what was put into a container before."""

CONSTANTS = _role("constant")
"""Ops whose value stands in the graph."""

SHAPES = _role("shape")
"""Ops that say the shape of their input, each of theirs."""

SHAPE_OF = _role("shape", "size", "rank")
"""Ops that read only the shape of their input."""

SIZES = _role("size")
"""Ops that count the elements of their input."""

RANKS_OF = _role("rank")
"""Ops that count the dimensions of their input."""

BROADCAST_AXES = _role("broadcast_axes")
"""Ops that compare two shapes and say along which dimensions each would be broadcast."""

SLICES = _role("slice", "strided_slice")
"""Ops that take a part of a value between bounds."""

PLAIN_SLICES = _role("slice")
"""Those with a first place and a size for each dimension."""

STRIDED_SLICES = _role("strided_slice")
"""Those whose bounds may be left out, counted from the end, and name single elements."""

SLICE_GRADIENTS = _role("slice_gradient")
"""Ops that put a gradient at the place of the slice that it belongs to."""

PADS = _role("pad")
"""Ops that put elements around a value, as many as operand 1 says."""

RANGES = _role("range")
"""Ops that make whole numbers one after the other."""

RESHAPES = _role("reshape")
"""Ops that give a value the shape that operand 1 says."""

TILES = _role("tile")
"""Ops that repeat a value along its dimensions."""

BROADCASTS = _role("broadcast")
"""Ops that broadcast a value to the shape that operand 1 says."""

TRANSPOSES = _role("transpose")

PACKS = _role("pack")
"""Ops that put tensors side by side along a new dimension."""

DIAGONALS = _role("diagonal")
"""Ops that make matrices of their diagonals, of as many rows and columns as operands 2 and 3 say."""

CONCATS = _role("concat")
"""Ops that put tensors one behind the other along a dimension."""

CONCAT_OFFSETS = _role("concat_offset")
"""Ops that say where each tensor begins in what a concat makes of them."""

SPLITS = _role("split")
"""Ops that cut a tensor into pieces along a dimension."""

ONE_HOTS = _role("one_hot")
"""Ops that mark in a new dimension which number an element has."""

SHAPED_ANEW = _ops(lambda record: record.family == "shape" and record.alias == "memory")
"""Ops whose output holds the same elements in the same order, in another shape."""

EXPANSIONS = _role("expand")
"""Ops that put a dimension of one element where operand 1 says."""

SQUEEZES = _role("squeeze")
"""Ops that drop dimensions of one element."""

UNPACKS = _role("unpack")
"""Ops that take a tensor apart along a dimension."""

PICKS = _role("pick")
"""Ops that take elements by their numbers along a dimension."""

LOOKUPS = _role("pick", "read_rows")
"""Ops that take rows of a table, which is a value or a variable, by their numbers."""

TOP_K = _role("top_k")
"""Ops that take the largest elements."""

FILLS = _role("fill")
"""Ops that make a tensor of which all elements are one number."""

SPREADS = FILLS | TILES | BROADCASTS
"""Ops that put one element in many places."""

FILLED_LIKE = _role("filled")
"""Ops whose elements are the same number whatever their input's are."""

IDENTITIES = _role("identity")
CASTS = _role("cast")
"""Ops that make the same numbers in another dtype."""

COMPUTES: dict[str, Callable[..., Any]] = _facts(lambda record: record.computes)
"""The function of NumPy arrays that an op computes of its operands, element by element."""


def computing(*functions: Callable[..., Any]) -> frozenset[str]:
    """The op types that compute one of some functions of NumPy, element by element."""
    return _ops(lambda record: record.computes in functions)


ELEMENTWISE = _ops(
    lambda record: record.family == "arithmetic" and (record.dims == "elementwise" or record.name == "Select")
) | {"BiasAdd"}
"""Ops that work element by element (with broadcasting)."""

SAME_NUMBERS = computing(np.asarray)
"""Ops that hand on the numbers of their operand, in the same dtype or another one."""

REDUCTIONS = _role("reduction")


def reducing(*reduce_ops: str) -> frozenset[str]:
    """The reductions over the dimensions that operand 1 names that join elements in one of some ways."""
    return _ops(lambda record: record.dims == "reduce" and record.reduce_op in reduce_ops)


SUMS = reducing("sum")
SQUARED_SUMS = REDUCTIONS - _ops(lambda record: record.dims == "reduce")
"""Ops that add up the squares of all elements, or half of them."""

ADD_N = _role("add_n")
"""Ops that add up any number of operands."""
MEANS = reducing("mean")
PRODUCTS = _role("product", "matmul")
MATMULS = _role("matmul")
"""Products of two matrices, each of which may be transposed before."""

MATMULS_EACH = PRODUCTS - MATMULS
"""Products of as many pairs of matrices as the leading dimensions say."""

BATCH_NORMS = _role("batch_norm")
BATCH_NORM_GRADIENTS = _role("batch_norm_gradient")

BACKPROPAGATION = _ops(lambda record: record.backward)
"""Ops that backpropagation is made of, and no processing of a gradient: behind one of them begins the raw gradient."""

SCALINGS = _ops(lambda record: record.linear == "each") & ELEMENTWISE
"""Products element by element."""

LAYER_PRODUCTS = _ops(lambda record: record.linear == "each") - ELEMENTWISE
"""Products of whole layers: linear in each operand while the other is fixed, and not element by element."""

DIVISIONS = _role("division", "guarded_division")
GUARDED_DIVISIONS = _role("guarded_division")
"""Divisions that give zero where the divisor is zero, as only a counted number may be."""

NO_GRADIENT = _ops(lambda record: not record.differentiable)
"""Ops through which no gradient flows."""

PARTITIONS = _role("partition")
"""Ops that part rows by the number that each row has: an output for each number."""

DYNAMIC_STITCHES = _role("stitch")
"""Ops that put rows together, each at the place that its number says; the numbers are the first half of the operands."""

UNSORTED_SEGMENTS = _role("unsorted_segments")
"""Ops that take together the rows with one number: the output has a row for each number."""

UNSORTED_SUMS = _ops(lambda record: record.role == "unsorted_segments" and record.reduce_op == "sum")

SEGMENTS = _role("segments")
"""Ops that take together rows of a table, which they pick by number, by the number of a segment."""

SEGMENT_GRADS = _role("segment_gradient")
"""Gradients of sparse segment ops: rows, and the indices that they belong to."""

ALL_SEGMENT_GRADS = SEGMENT_GRADS | _role("row_segment_gradient")
"""With those that make all rows of the table."""

BINS: dict[str, Bins] = _facts(lambda record: record.bins)
"""Ops that count elements of an operand in bins, or add up in bins what belongs to them."""

ROWS_OPERAND: dict[str, int] = _facts(lambda record: record.rows_operand)
"""Ops with an operand that says how many rows they make."""

SHAPED_BY: dict[str, int] = _facts(lambda record: record.shaped_by)
"""Ops with an operand that is the shape of what they make."""

TOLD_SIZES = _ops(lambda record: bool(record.sizes) or not {record.rows_operand, record.shaped_by} <= {None})
"""Ops with operands that hold sizes."""

ORDERINGS: dict[str, Ordering] = _facts(lambda record: record.ordering)
"""Comparisons: which operand is the smaller one, which the larger, whether they may be equal."""

# --------------------------------------------------------------------------- TPU and XLA

INFEED_DTYPES = records()["InfeedDequeueTuple"].dtypes or frozenset()
"""What a TPU takes over its infeed."""

REDUCE_DTYPES = records()["CrossReplicaSum"].dtypes or frozenset()
"""What CrossReplicaSum takes."""

METADATA = _role("tpu_metadata")
"""Ops that say how the cluster is laid out, as how many cores it has."""

COMPILATION_RESULTS = _role("compilation_result")
CLUSTER_INPUTS = _role("cluster_input")
"""Ops that give each core its own of their operands, which are values of the host or variables."""

REPLICATED_OUTPUTS = _role("replicated_output")
"""Ops that hand to the host what the cores have, an output for each core."""

INFEEDS = _role("infeed")
"""Ops by which the device takes what the host has sent it."""

OUTFEEDS = _role("outfeed")
"""Ops by which the host takes what the device has sent it."""

ALL_REDUCES = _role("all_reduce")
"""Ops whose value is the same on all cores, whatever theirs are."""

TPU_SYSTEM = (
    _role("tpu")
    | METADATA
    | COMPILATION_RESULTS
    | CLUSTER_INPUTS
    | REPLICATED_OUTPUTS
    | INFEEDS
    | OUTFEEDS
    | ALL_REDUCES
)
"""Ops that make a graph a TPU graph; no CPU kernel runs them."""

COMPILE_TIME_CONSTANTS = _ops(lambda record: bool(record.constants))
"""Ops with operands whose value XLA must know when it compiles; :meth:`Op.constant_operands` says which."""

CONTENTS: dict[str, Contents] = _facts(lambda record: record.contents)
"""What an op does to a stack, an array or a list of tensors."""

LIST_CONTENTS = {op: contents for op, contents in CONTENTS.items() if contents.value}
"""Those that work on lists."""

LISTS = _ops(lambda record: record.bounded)
"""Ops that make a list that a loop fills; XLA wants to know its size."""

STACKS = _ops(lambda record: record.stack)
"""What the gradient of a loop keeps values on."""

TPU_LACKS: dict[str, frozenset[str]] = _facts(lambda record: record.tpu_lacks or None)
"""The dtypes that a TPU has no op for though XLA takes them on a CPU."""

XLA_REFUSES: dict[str, Refusal] = _facts(lambda record: record.xla_refuses)
"""An attribute value that an XLA kernel refuses though its registration takes it, and what to write instead."""

REPLACEMENTS: dict[str, str] = _facts(lambda record: record.instead)
"""What to write instead of an op that XLA has no kernel for."""

FUSED = ((ELEMENTWISE | REDUCTIONS) - CHECKS - REPLACEMENTS.keys()) | IDENTITIES | _ops(lambda record: record.fused)
"""Ops that the emulator may put into the one XLA computation of a small dense step."""


def instead_of(op: str) -> str:
    """What to do about an op that XLA has no kernel for."""
    return REPLACEMENTS.get(op, "write it with other ops, or compute it in the input function")
