"""Which dimensions of which tensors, and which elements of which small vectors, follow the number of rows of a batch.

The graph was traced with a fixed number of rows, and TensorFlow wrote that number into constants: targets of reshapes,
multiples of tiles, divisors of means. Here every dimension is a :data:`~tpugraph.analysis.sizes.Size`. The input says
where the batch begins and a variable's dimensions follow no batch; the ops in between tie sizes together
(:mod:`tpugraph.analysis.dimension_rules`). Nothing is concluded from two numbers being equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeGuard

import numpy as np

from tpugraph import ops
from tpugraph.analysis import signatures
from tpugraph.analysis.constant_sizes import ConstantSizes
from tpugraph.analysis.constant_values import constant, fixed
from tpugraph.analysis.dimension_facts import LONGEST, Container, Dims, Doubt, Elements, Formula, Untold
from tpugraph.analysis.element_numbers import element_numbers
from tpugraph.analysis.rules import Rules
from tpugraph.analysis.size_relations import Relations, values
from tpugraph.analysis.sizes import ROWS, Poly, Size, Unknown, depends_on_data, follows_batch, is_made_of_others, known
from tpugraph.ir import Graph, Node, Tensor

Rule = Callable[["Dimensions", Node], None]
RULES: Rules[Rule] = Rules()
"""What op types tie together of which their signature does not say it."""

rule = RULES.rule
"""Registers a rule."""


class Dimensions:
    """The analysis.

    Args:
        graph: the graph, with shapes.
        order: the nodes to analyse, in topological order.
        rows: the number of rows that the graph was traced with.
        whole: the number of rows of all cores together.
        ones: whether a 1 may be a number of rows, as half of two rows is.
        opened: whether the batch was open when the graph was built: a 1 that is written in it is no part of the rows then.
        seeds: the dimensions of the tensors where the batch comes in.
        elements: the elements of the sizes that come in with them.
        shape_of: constants that a shape was folded into, by name, with the tensor whose shape it is.
        chosen: constants that are settled: by name, whether they hold the size of the batch.
        only: the constants that may hold it at all; None where any may.
        literal_ones: of tensors, by name, the dimensions of size 1 that are known to be no batch of one row, as the batch was
            open when the graph was built; None where it was not.
        sure_writes: whether what a variable is given has its shape; else it may be a gradient whose sum over one row was left out.

    Attributes:
        sums_left_out: whether TensorFlow may have left out sums over one row: it does where it knows that the row is one.
        defaulted: numbers that were taken for numbers of the model as nothing speaks for another reading.
        untold: of what nothing tells where the rows are, or what it counts.
        constants: the sizes that constants hold.
        numbered: the numbers of elements of containers.
        postponed: what reshapes tie together of which the shape is computed: what speaks for the numbers of that comes first.
        waiting: the sizes that those reshapes make.
        layouts: by tiles, and ops that divide numbers of places, of which parts a dimension is made, the outermost first.
    """

    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        rows: int,
        seeds: Mapping[Tensor, Dims],
        elements: Mapping[Tensor, Elements] | None = None,
        *,
        shape_of: Mapping[str, str] | None = None,
        chosen: Mapping[str, bool] | None = None,
        only: Collection[str] | None = None,
        whole: int | None = None,
        ones: bool = False,
        opened: bool = False,
        literal_ones: Mapping[str, Collection[int]] | None = None,
        sure_writes: bool = True,
    ) -> None:
        self.graph = graph
        self.rows = rows
        self.ones = ones or rows == 1
        self.sizes = Relations(rows, whole)
        self.order = order
        self.reasons: dict[Unknown, str] = {}
        self._dims: dict[Tensor, Dims | None] = dict(seeds)
        self._elements: dict[Tensor, Elements | None] = dict(elements or {})
        self._signatures: dict[Node, signatures.Signature | None] = {}
        self._levels: dict[Tensor, float | int | bool | None] = {}
        self.rows_of_entries: dict[Tensor, Size] = {}
        self.containers: dict[Tensor, Container] = {}
        self.handles: dict[Tensor, Tensor] = {}
        self.formulas: dict[Tensor, Formula] = {}
        self.numbered = element_numbers(order)
        self.constants = ConstantSizes(
            rows, ones=self.ones, opened=opened, shape_of=shape_of, chosen=chosen, only=only,
            numbering={number.first.node.name for number in self.numbered},
        )  # fmt: skip
        self._literal_ones = dict(literal_ones or {})
        self.sums_left_out = self.ones and literal_ones is None
        self.sure_writes = sure_writes
        self.defaulted: dict[Unknown, None] = {}
        self.untold = Untold()
        self.regrouped: list[tuple[Dims, Dims]] = []
        self.postponed: list[Callable[[], None]] = []
        self.waiting: list[Unknown] = []
        self.layouts: dict[Node, tuple[Dims, Size]] = {}
        self.doubtful: list[Doubt] = []
        self._folded: list[tuple[Elements, str]] = []
        self.nodes = dict.fromkeys(order)
        self._read()

    def _read(self) -> None:
        """Visit all nodes in their order, then the constants that shapes were folded into."""
        for node in self.order:
            self.sizes.place = node
            self._visit(node)
        for name in self.constants.shape_of:  # those that no rule asked for, too
            if name in self.graph and self.graph[name] in self.nodes:
                self.elements(self.graph[name].out())
        for folded, source in self._folded:
            self._tie_shape(folded, source)
        self.sizes.propagate()

    # ------------------------------------------------------------------ what is known

    def dims(self, tensor: Tensor) -> Dims | None:
        """The dimensions of a tensor; None where not even its rank is known."""
        found = self._dims.get(tensor)
        if found is None and tensor not in self._dims:
            found = self._dims[tensor] = self._first_dims(tensor)
        return found

    def signature(self, node: Node) -> signatures.Signature | None:
        """The signature of a node; found once for all that ask."""
        if node not in self._signatures:
            self._signatures[node] = signatures.of(node)
        return self._signatures[node]

    def of_type(self, kinds: Collection[str]) -> list[Node]:
        """The nodes of some op types, in their order."""
        return [node for node in self.order if node.op in kinds]

    def axes(self, tensor: Tensor) -> list[int]:
        """The dimensions that are found to follow the batch."""
        return [axis for axis, size in enumerate(self.dims(tensor) or ()) if follows_batch(size)]

    def elements(self, tensor: Tensor) -> Elements | None:
        """The elements of a small vector or scalar of numbers made of sizes; None where nothing is known of them."""
        found = self._elements.get(tensor)
        if found is None and tensor.node.op in ops.CONSTANTS and tensor not in self._elements:
            found = self._elements[tensor] = self._constant_elements(tensor.node)
        if found is not None and any(follows_batch(s) for s in self.dims(tensor) or ()):
            return None  # of more rows there would be more elements
        return found

    def numbers(self, tensor: Tensor) -> list[int] | None:
        """The whole numbers of an operand that names dimensions; None where they are not known."""
        found = fixed(tensor)
        if found is not None:
            return found
        elements = self.elements(tensor)
        if elements is None or any(e is None or depends_on_data(e) or isinstance(known(e), Poly) for e in elements):
            return None
        return [self.sizes.at(e) for e in elements]  # type: ignore[arg-type]

    def level(self, tensor: Tensor) -> float | int | bool | None:
        """The number that every element of a tensor is equal to, where constants alone decide it."""
        if tensor.node.op in ops.CONSTANTS and tensor not in self._levels:
            self._levels[tensor] = None
            value = constant(tensor.node)
            numeric = value.size and value.dtype.kind in "iufb" and np.isfinite(value.flat[0])
            if numeric and (value.size == 1 or (value == value.flat[0]).all()):
                self._levels[tensor] = value.flat[0].item()
        found = self._levels.get(tensor)
        elements = self._elements.get(tensor) if found is None and self.rows > 1 else None
        one = elements[0] if elements and len(elements) == 1 else None
        small = None if one is None or is_made_of_others(one) else self.sizes.at(one)
        return small if small is not None and 0 <= small < self.rows else found  # too small for any number of rows

    def has_parts_of_one_row(self) -> bool:
        """Whether a dimension that follows the batch is 1, as half of two rows is, or one row less: other ones may be, too."""
        return any(self.sizes.at(s) == 1 and follows_batch(s) for dims in self._dims.values() for s in dims or ())

    def has_rows_at(self, axis: int, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of a static shape has the rows of the batch along an axis."""
        return any(
            dims and len(dims) == len(shape) and known(dims[axis]) == ROWS and values(dims, self.sizes) == shape
            for dims in self._dims.values()
        )

    def in_doubt(self, size: Size | None) -> TypeGuard[Unknown]:
        """Whether nothing speaks for a number, a multiple of the rows, being one of the model, or of the batch."""
        if not isinstance(size, Unknown) or size.value < 1 or size.value % self.rows:
            return False
        return known(size) is None or size.root() in self.defaulted

    # ------------------------------------------------------------------ what rules say

    def set(self, tensor: Tensor, dims: Iterable[Size] | None) -> None:
        """Say what the dimensions of an output are; where some were known, both are tied."""
        if dims is None:
            self.fresh(tensor)
            return
        made = tuple(dims)
        if tensor in self._dims and self._dims[tensor] is not None:
            self.tie(self._dims[tensor], made)
            return
        self._dims[tensor] = made

    def fresh(self, tensor: Tensor) -> Dims | None:
        """Dimensions of an output of which nothing is concluded but its static shape."""
        if tensor not in self._dims:
            self._dims[tensor] = self._static(tensor, open_for_batch=True)
        return self._dims[tensor]

    def set_elements(self, tensor: Tensor, elements: Elements | None) -> None:
        """Say what the elements of an output are, and with that how many there are."""
        if elements is None or len(elements) > LONGEST:
            return
        self._elements[tensor] = elements
        if len(self._dims.get(tensor) or ()) == 1:
            self.measure(tensor, 0, len(elements))

    def measure(self, tensor: Tensor, axis: int, size: int) -> None:
        """Say how large a dimension of an output is, where its static shape leaves it open."""
        dims = self._dims.get(tensor)
        if dims is not None and self.sizes.at(dims[axis]) < 0:
            self._dims[tensor] = (*dims[:axis], size, *dims[axis + 1 :])

    def set_level(self, tensor: Tensor, value: float | int | bool | None) -> None:
        """Say that every element of an output is the same number."""
        if value is not None:
            self._levels[tensor] = value

    def tie(self, a: Dims | None, b: Dims | None) -> None:
        """Two shapes are the same."""
        if a is not None and b is not None and len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                self.sizes.tie(x, y)

    # ------------------------------------------------------------------ parts

    def _visit(self, node: Node) -> None:
        if node.op in ops.CONSTANTS:
            return  # its sizes are asked for where it is read
        if node.outputs and all(node.out(p) in self._dims for p in range(len(node.outputs))):
            return  # a seed
        RULES.of(node.op)(self, node)
        self._count_numbers(node)

    def _count_numbers(self, node: Node) -> None:
        """How many sizes, bounds or axes an operand holds is how many dimensions there are, or go: no number of rows."""
        record, count = ops.record(node.op), len(node.inputs)
        axis = record.axis_operand(count)
        for index in (*record.size_operands(count), *(() if axis is None else (axis,))):
            named = self.dims(node.inputs[index])
            for size in named if named is not None and len(named) == 1 else ():
                if known(size) is None and self.sizes.at(size) >= 0:
                    self.sizes.tie(size, self.sizes.at(size))

    def _first_dims(self, tensor: Tensor) -> Dims | None:
        node = tensor.node
        if node.op in ops.CONSTANTS:
            return self.constants.dims(node)
        return self._static(tensor, open_for_batch=node in self.nodes)

    def _static(self, tensor: Tensor, *, open_for_batch: bool) -> Dims | None:
        if tensor.node.outputs is None or tensor.shape is None:
            return None
        fixed = self._literal_ones.get(str(tensor), ()) if self._literal_ones else ()
        return tuple(
            self.constants.may_follow(d, tensor) if (open_for_batch and axis not in fixed) or d is None else int(d)
            for axis, d in enumerate(tensor.shape)
        )

    def _constant_elements(self, node: Node) -> Elements | None:
        found = self.constants.elements(node)
        source = self.constants.shape_of.get(node.name)
        if found is not None and source is not None and not self._tie_shape(found, source):
            self._folded.append((found, source))
        return found

    def _tie_shape(self, elements: Elements, source: str) -> bool:
        """Tie a constant to the shape that it is; returns whether that is known yet."""
        name, _, port = source.partition(":")
        node = self.graph.get(name)
        dims = None if node is None else self._dims.get(node.out(int(port or 0)))
        if dims is None:
            return False
        if len(elements) == 1 and len(dims) != 1:  # the number of elements
            self.sizes.product([e for e in elements if e is not None], list(dims))
        elif len(dims) == len(elements):
            for element, size in zip(elements, dims, strict=True):
                if element is not None:
                    self.sizes.tie(element, size)
        return True
