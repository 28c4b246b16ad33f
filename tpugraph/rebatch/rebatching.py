"""Gives one plain graph another batch size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.analysis import loop_shapes, shapes
from tpugraph.analysis.batched_input import commonest
from tpugraph.analysis.placements import Entries, Shard
from tpugraph.analysis.values import constant, integers
from tpugraph.ir import Graph, Node, Tensor, attrs, graphdef
from tpugraph.ir.attrs import Shape
from tpugraph.rebatch.following import PROBE, Following, formula_of, step_nodes
from tpugraph.rebatch.reading_input import Take, resize, takes_of
from tpugraph.rebatch.readings import read
from tpugraph.rewrite.local_sizes import LocalSizes
from tpugraph.spmd import factors
from tpugraph.spmd.placing import Placing
from tpugraph.support.errors import GraphError, ShapeError, UsageError
from tpugraph.support.suggestions import near_nodes

_ROUNDS = 60


@dataclass(frozen=True)
class Rebatched:
    """The changes that ``rebatch`` made."""

    before: int
    rows: int
    inputs: tuple[str, ...]  # descriptions of the changed inputs
    constants: dict[str, str]  # by constant: old value, new value and reason
    regrouped: dict[str, str]  # by node, how it regroups rows
    left: tuple[str, ...] = ()  # unchanged constants that reach the loss and equal the rows or a formula of them

    def lines(self) -> list[str]:
        """One line per change."""
        said = [f"batch of {self.rows} rows in place of {self.before}", *self.inputs]
        said += [f"{name}: {words}" for name, words in {**self.constants, **self.regrouped}.items()]
        if self.left:
            said.append(
                f"left as they are: {', '.join(self.left)}; name those that follow the batch with --batch_constants"
            )
        return said


def is_open(graph: Graph) -> bool:
    """Whether the batch dimension is unknown in all static shapes of the input."""
    return all(take.is_open for take in takes_of(graph))


def rebatch(graph: Graph, rows: int, *, batch_constants: Iterable[str] = (), literals: Iterable[str] = ()) -> Rebatched:
    """Give a plain graph, with its roles and without function calls in its step, a batch of ``rows`` rows, in place.

    ``batch_constants`` follow the batch (``NODE:PLACE`` for an element of a vector), ``literals`` do not.
    """
    shapes.infer(graph)
    takes = takes_of(graph)
    before = commonest(take.rows for take in takes)
    opens = takes[0].opens() if takes and before is None else None
    if opens is not None:
        raise ShapeError(
            "the batch size is unknown: a dataset after the batching one makes it variable",
            origin=graph.source,
            node=opens,
            fix="drop rows in the model, after the iterator, or pad them to a fixed number in the dataset",
        )
    if before is None:
        raise ShapeError(
            "the batch size is unknown: the input does not batch by a constant",
            origin=graph.source,
            node=takes[0].node if takes else None,
            fix="batch the dataset by a constant: dataset.batch(64, drop_remainder=True)",
        )
    scale = Fraction(rows, before)
    if scale == 1:
        return Rebatched(before, rows, (), {}, {})
    if is_open(graph):
        return _of_open(graph, takes, rows, before, batch_constants, _checked(graph, literals))
    if before == 1:
        raise ShapeError("a batch of one row cannot be told from other dimensions of 1", node=takes[0].node, origin=graph.source,
                         fix=TRACE)  # fmt: skip
    plain = _with_shapes(graph)
    read = takes_of(plain)
    order = step_nodes(plain, [take.node for take in read])
    elements = [tensor for take in read for tensor in take.elements()]
    following = Following(
        plain, order, math.gcd(*(take.rows or before for take in takes)), elements, _checked(graph, literals)
    )
    _follow(following, batch_constants)
    missing_sizes(following)
    refuse_unread(following)
    changed = _change(graph, following, scale)
    inputs = _resized(graph, takes, scale)
    _check(graph, following, scale)
    return Rebatched(before, rows, inputs, changed, _regrouped(following, scale), _left(following, before))


def _of_open(
    graph: Graph, takes: Sequence[Take], rows: int, before: int, batch_constants: Iterable[str], literals: Iterable[str]
) -> Rebatched:
    """Rebatch a graph whose batch dimension is unknown: only literals of the program can depend on it."""
    following = Following(graph, step_nodes(graph, [take.node for take in takes]), before, (), literals)
    for name in batch_constants:
        _follow_named(following, name)
    scale = Fraction(rows, before)
    changed = _change(graph, following, scale)
    return Rebatched(before, rows, _resized(graph, takes, scale), changed, {}, _left(following, before))


def _with_shapes(graph: Graph) -> Graph:
    """A copy of the graph with all inferable shapes, loop-carried values included."""
    made = graphdef.copy(graph)
    made.roles = graph.roles
    loop_shapes.infer(made)
    return made


def _resized(graph: Graph, takes: Sequence[Take], scale: Fraction) -> tuple[str, ...]:
    said: dict[str, None] = {}
    sizes = {}
    for take in takes:
        made = (take.rows or 0) * scale
        if made.denominator != 1 or not made:
            raise ShapeError(f"'{take.node.name}' reads {take.rows} rows; {scale} times as many is no whole number", node=take.node,
                             origin=graph.source, fix="choose another --global_batch")  # fmt: skip
        sizes[take.node] = int(made)
    for take in takes:
        said[resize(graph, take, sizes[take.node])] = None
    return tuple(said)


def _checked(graph: Graph, names: Iterable[str]) -> list[str]:
    found = []
    for name in names:
        node = graph.get(name.partition(":")[0])
        if node is None or node.op not in ops.CONSTANTS:
            near = near_nodes(name.partition(":")[0], [n.name for n in graph.of_type(*ops.CONSTANTS)])
            raise UsageError(f"'{name}' is no constant of the graph", fix=f"did you mean {near[0]}?" if near else
                             "`tpugraph inspect MODEL` lists the nodes")  # fmt: skip
        found.append(node.name)
    return found


def _follow(following: Following, batch_constants: Iterable[str]) -> None:
    following.propagate()
    for name in batch_constants:
        _follow_named(following, name)
    for _ in range(_ROUNDS):
        following.propagate()
        before = following.extent()
        for node, tensor, axis in list(following.wanted()):
            following.lift(tensor, axis, f"'{node.name}' ({node.op}) reads it by rows")
        if following.extent() == before:
            following.ask_shape_functions()
        if following.extent() == before:
            read(following)
        if following.extent() == before:
            return
    raise ShapeError("the sizes that follow the batch reach no fixpoint", origin=following.graph.source, fix=TRACE)


def _follow_named(following: Following, name: str) -> None:
    """Mark a constant that the user names: its rows, or a number computed from the rows."""
    (base,) = _checked(following.graph, [name])
    node, place = following.graph[base], name.partition(":")[2]
    value, rows = constant(node), following.rows
    if value.dtype.kind in "iu" and value.ndim == 1 and value.size > 1:
        held = [int(place)] if place else [i for i, size in enumerate(value.tolist()) if size and size % rows == 0]
        if len(held) != 1:
            raise UsageError(f"it is not clear which element of '{name}' {value.tolist()} follows the batch",
                             fix=f"name its place: --batch_constants={base}:0")  # fmt: skip
        following.change(node, "named by --batch_constants", place=held[0])
    elif value.size == 1:
        number = float(value.item())
        power, formula = -1 if 0 < number < 1 else 1, formula_of(number, rows)
        following.change(node, "named by --batch_constants", power=power, formula=formula)
    elif not following.change(node, "named by --batch_constants", axis=0):
        raise UsageError(
            f"'{base}' holds a different value for each row: it is not known what more rows hold", fix=TRACE
        )


def _check(graph: Graph, f: Following, scale: Fraction) -> None:
    """Compare the shapes that TensorFlow infers at the new batch with the propagated ones."""
    try:
        found = _with_shapes(graph)
    except GraphError as error:
        raise ShapeError(f"with the new batch the shapes do not fit: {error.fault}", node=error.node, origin=graph.source,
                         fix=f"{TRACE}; or name a constant that follows the batch with --batch_constants") from error  # fmt: skip
    for node in f.order:
        for port, (_, shape) in enumerate(found[node.name].outputs or ()):
            wanted = f.scaled(node.out(port), scale)
            if (
                shape is None
                or wanted is None
                or all(a is None or b is None or a == b for a, b in zip(shape, wanted, strict=False))
            ):
                continue
            raise ShapeError(f"'{node.name}' ({node.op}) becomes {list(shape)} with another batch, and not {list(wanted)}: it is not "
                             "known what follows the batch", node=node, origin=graph.source, fix=TRACE)  # fmt: skip


def _change(graph: Graph, f: Following, scale: Fraction) -> dict[str, str]:
    """Change the constants of the graph; returns for each old value, new value and reason."""
    said = {}
    for node, change in f.changes.items():
        old, new = constant(node), change.value(node, scale)
        if new.shape == old.shape and (new == old).all():
            continue
        if old.dtype.kind in "iu" and change.cuts(old, scale):
            raise ShapeError(f"the constant '{node.name}' {old.tolist()} times {scale} is no whole number", node=node,
                             origin=graph.source, fix="choose another --global_batch")  # fmt: skip
        was, now = (old.tolist(), new.tolist()) if change.exponents is not None else (list(old.shape), list(new.shape))
        said[node.name] = f"{'' if change.exponents is not None else 'shape '}{was} becomes {now} ({change.why})"
        graph.set_attr(graph[node.name], "value", new)
        graph.note(graph[node.name], f"follows the batch: {said[node.name]}")
    for (name, attribute), value in f.opened.items():
        graph.set_attr(graph[name], attribute, value)
    for tensor in f.axes:
        node = graph[tensor.node.name]
        made = [f.scaled(tensor.node.out(port), scale) for port in range(len(tensor.node.outputs or ()))]
        if node.has_attr("_output_shapes"):
            graph.set_attr(node, "_output_shapes", made)
        if node.attr("num_elements", -1) > 0 and made[0]:  # the length of the stacked list
            graph.set_attr(node, "num_elements", made[0][0])
        if node.op in ops.IDENTITIES and node.attr("shape", None) is not None:  # EnsureShape
            told = [None if size is None else new for size, new in zip(node.attr("shape"), made[0] or (), strict=True)]
            graph.set_attr(node, "shape", attrs.encode(tuple(told)))
    return said


def _regrouped(f: Following, scale: Fraction) -> dict[str, str]:
    said = {}
    for node in f.gathers():
        if node.op in ops.RESHAPES | ops.SPLITS and f.axes.get(node.out()):
            old, new = node.out().shape, f.scaled(node.out(), scale)
            said[node.name] = f"rows regrouped: {list(old or ())} becomes {list(new or ())}"
    return said


def _left(f: Following, rows: int) -> tuple[str, ...]:
    """Constants in arithmetic that reach the loss or the update, and equal a formula of the rows or an element count."""
    found, counts = [], {shapes.element_count(tensor.shape) for tensor, axes in f.axes.items() if axes}
    for node in f.order:
        if node.op not in ops.CONSTANTS or node in f.changes or node.name in f.literals:
            continue
        value = constant(node)
        if value.size != 1 or value.dtype.kind not in "iuf":
            continue
        made = formula_of(value.item(), rows) is not None or value.item() in counts
        if made and any(_computes(use.node) for use in node.uses()):
            found.append(f"{node.name} ({value.item():g})")
    return tuple(found)


def _computes(node: Node) -> bool:
    if node.op in ops.IDENTITIES | ops.CASTS | ops.ENTER:
        return any(_computes(use.node) for use in node.uses())
    return node.op in ops.ELEMENTWISE or node.op in ops.WRITES


# --------------------------------------------------------------------------- sizes
# Size operands of nodes with rows, and the constants that hold them.


class ScaledSizes(LocalSizes):
    """Marks the size operands of one layer: :class:`LocalSizes`, with the larger batch in place of a core's rows."""

    def __init__(self, following: Following, placing: Placing) -> None:
        super().__init__(placing, None)  # type: ignore[arg-type]  # no node is made
        self.following = following

    def own(self, size: int) -> int:
        """The size at the new batch."""
        return size * PROBE

    def follow(self) -> None:
        """Mark the constants with the sizes of tensors with rows."""
        for node in self.placing.order:
            if node.outputs:
                self._resize(node)
                self._tell_elements(node)

    def _tell(self, node: Node, index: int, shape: Shape, made: Shard) -> None:
        operand = node.inputs[index]
        if self.placing.read(operand) == Entries("shape"):
            return
        told = integers(operand) or []
        groups = [p for p, size in enumerate(told) if size == -1 and p < made.axis and shape and shape[p] == 1]
        if node.op in ops.RESHAPES and groups and operand.node not in self.following.changes:
            raise ShapeError(f"'{node.name}' ({node.op}) puts rows into groups {told}: whether there are more groups or larger "
                             "ones with another batch is not known", node=node, origin=self.graph.source, fix=TRACE)  # fmt: skip
        self._follow(node, operand, made.axis)

    def _set(self, node: Node, index: int, value: np.ndarray[Any, Any]) -> None:
        old = integers(node.inputs[index]) or []
        for place, (size, new) in enumerate(zip(old, np.ravel(value).tolist(), strict=False)):
            if size != new:
                self._follow(node, node.inputs[index], place)

    def _resize_strided(self, node: Node, rows: Shard, *, gradient: bool) -> None:
        shape = self._shapes[node][0] if gradient else node.inputs[0].shape
        for axis, target, place in factors.sliced_places(node, len(shape or ())) or ():
            for index, mask in ((1, "begin_mask"), (2, "end_mask")):
                bounds = integers(node.inputs[index])
                unmasked = place is not None and not int(node.attr(mask, 0)) >> place & 1
                if (
                    (target if gradient else axis) == rows.axis
                    and unmasked
                    and bounds is not None
                    and bounds[place or 0]
                ):
                    self._follow(node, node.inputs[index], place or 0)

    def _tell_elements(self, node: Node) -> None:
        before = dict(node.raw_attrs)
        super()._tell_elements(node)
        self.following.opened |= {
            (node.name, name): value for name, value in node.raw_attrs.items() if before.get(name) is not value
        }

    def _follow(self, node: Node, operand: Tensor, place: int) -> None:
        if not self.following.follow_size(
            operand, place, f"the sizes of '{node.name}' ({node.op}), which has rows of the batch"
        ):
            value = integers(operand)
            raise ShapeError(f"'{node.name}' ({node.op}) gets its number of rows from '{operand.node.name}', where no constant "
                             f"with that number is found{'' if value is None else f': {value}'}", node=node, origin=self.graph.source,
                             fix=TRACE)  # fmt: skip


def missing_sizes(following: Following) -> None:
    """Mark the size constants of all layers."""
    for layer in following.layers:
        sizes = ScaledSizes(following, layer)
        for tensor, placement in layer.seeds.items():  # seeds count as outputs of their nodes
            layer.flow.facts.setdefault(tensor, placement)
        sizes.follow()


# --------------------------------------------------------------------------- refusing
# Refusals: nodes whose use of rows no reading covers.

TRACE = "trace the graph with the batch that you want"
"""The fix that always works."""


def refuse_unread(f: Following) -> None:
    """Refuse the first node whose use of rows no reading covers; for doubtful constants, one error names all."""
    wanted, gathers = {node: (tensor, axis) for node, tensor, axis in f.wanted()}, f.gathers()
    asked: dict[Node, Node] = {}
    for node in f.order:
        held = _doubtful_constant(f, node) if node in gathers else None
        if held is not None:
            asked.setdefault(held, node)
        elif node in wanted and not asked:
            tensor, axis = wanted[node]
            size = (tensor.shape or ())[axis]
            raise ShapeError(f"'{node.name}' ({node.op}) reads '{tensor}' row by row, which has {size} rows, and what it holds for "
                             "another batch is not known", node=node, origin=f.graph.source, fix=TRACE)  # fmt: skip
    if asked:
        each = "; ".join(f"'{node.name}' ({node.op}) by the constant '{held.name}' {constant(held).tolist()}"
                         for held, node in asked.items())  # fmt: skip
        names = ",".join(held.name for held in asked)
        raise ShapeError(f"rows of the batch are regrouped by constants that may depend on the batch size: {each}",
                         node=next(iter(asked.values())), origin=f.graph.source,
                         fix=f"{TRACE}; or --literals={names} for constants that stay, --batch_constants={names} for those "
                         "that follow the batch")  # fmt: skip


def _doubtful_constant(f: Following, node: Node) -> Node | None:
    """The doubtful constant by which a node takes rows; None where it is known whether it follows."""
    if node.op in ops.CONTENTS and not f.lists:
        raise ShapeError(f"'{node.name}' ({node.op}) takes rows of the batch one by one, and no constant with their number is found",
                         node=node, origin=f.graph.source, fix=TRACE)  # fmt: skip
    if node.op in ops.CONTENTS:
        return None  # a list with one element per row, of the given shape
    made = node.op not in ops.SLICE_GRADIENTS | ops.ROLLS and any(
        f.axes.get(node.out(port)) for port in range(len(node.outputs or ()))
    )
    return None if made else _row_constant(f, node)


def _row_constant(f: Following, node: Node) -> Node | None:
    """A constant that says which rows a node takes, or how many of them."""
    record, count = ops.record(node.op), len(node.inputs)
    told = {*record.size_operands(count), *record.constant_operands(count)} | ({1} if node.op in ops.LOOKUPS else set())
    if node.op in ops.STRIDED_SLICES | ops.SLICE_GRADIENTS:
        told = _bounds_of_rows(f, node)
    if node.op in ops.ROLLS and integers(node.inputs[1]) not in ([1], [-1]):  # further than the next row
        told = {1}
    for index in sorted(told - {record.axis_operand(count)}):
        found = node.inputs[index].node
        if (
            found.op in ops.CONSTANTS
            and constant(found).dtype.kind in "iu"
            and constant(found).any()  # 0 is 0 with any batch
            and found not in f.changes
            and found.name not in f.literals
        ):
            return found
    return None


def _bounds_of_rows(f: Following, node: Node) -> set[int]:
    """The operands with the row bounds of a slice or of its gradient; none if it takes only the first or the last row."""
    gradient, told = node.op in ops.SLICE_GRADIENTS, set()
    whole, part = (node.out(), node.inputs[-1]) if gradient else (node.inputs[0], node.out())
    follow, begin = f.axes.get(whole, set()), integers(node.inputs[1])
    for axis, target, place in factors.sliced_places(node, factors.rank(whole)) or ():
        alone = target is None or (part.shape or ())[target] == 1
        if axis in follow and place is not None and not (alone and begin is not None and begin[place] in (0, -1)):
            masks = {1: "begin_mask", 2: "end_mask"}
            told |= {index for index, mask in masks.items() if not int(node.attr(mask, 0)) >> place & 1}
    return told
