"""Sets of op types: randomness, shapes and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpugraph.ops.facts import Ordering
from tpugraph.ops.queries import computing, facts_by_op, having, reducing, with_role

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
