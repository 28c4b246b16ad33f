"""One graph given another batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tpugraph import ops
from tpugraph.analysis import carried_shapes, shapes
from tpugraph.analysis.constant_values import constant
from tpugraph.ir import Graph, Node, attrs, graphdef
from tpugraph.rebatch.changes import formula_of
from tpugraph.rebatch.following import Following, step_nodes
from tpugraph.rebatch.reading_input import Take, resize, takes_of
from tpugraph.rebatch.readings import read
from tpugraph.rebatch.refusing import TRACE, refuse_unread
from tpugraph.rebatch.sizes import missing_sizes
from tpugraph.spmd.analysis import commonest
from tpugraph.support.errors import GraphError, ShapeError, UsageError
from tpugraph.support.suggestions import near_nodes

_ROUNDS = 60


@dataclass(frozen=True)
class Rebatched:
    """What was changed.

    Attributes:
        before: the rows of a batch before.
        rows: the rows of a batch now.
        inputs: what reads other batches, in words.
        constants: by constant, its value before and now, and why.
        regrouped: by node, how it takes rows apart or together.
        left: constants that lead to the loss, equal the rows or a number made of them, and stay.
    """

    before: int
    rows: int
    inputs: tuple[str, ...]
    constants: dict[str, str]
    regrouped: dict[str, str]
    left: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """What was changed, for people: a line each."""
        said = [f"batch of {self.rows} rows in place of {self.before}", *self.inputs]
        said += [f"{name}: {words}" for name, words in {**self.constants, **self.regrouped}.items()]
        if self.left:
            said.append(
                f"left as they are: {', '.join(self.left)}; name those that follow the batch with --batch_constants"
            )
        return said


def is_open(graph: Graph) -> bool:
    """Whether no static shape of the input holds the rows of the batch."""
    return all(take.is_open for take in takes_of(graph))


def rebatch(graph: Graph, rows: int, *, batch_constants: Iterable[str] = (), literals: Iterable[str] = ()) -> Rebatched:
    """Let a plain graph read so many rows a step, in place.

    Args:
        graph: the graph, with its roles; functions of the step are inlined.
        rows: the rows of the batch.
        batch_constants: constants that follow the batch; ``NODE:PLACE`` for an element of a vector.
        literals: constants that do not.

    Raises:
        ShapeError: it is not known what follows the batch.
    """
    shapes.infer(graph)
    takes = takes_of(graph)
    before = commonest(take.rows for take in takes)
    opens = takes[0].opens() if takes and before is None else None
    if opens is not None:
        raise ShapeError(
            "the rows of a batch are not known: a dataset behind the one that batches leaves them open",
            origin=graph.source,
            node=opens,
            fix="leave out rows in the model, behind the iterator, or pad them to a fixed number in the dataset",
        )
    if before is None:
        raise ShapeError(
            "the rows of a batch are not known: the input does not batch by a constant",
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
    """Let a graph read so many rows that computes all it asks of them but what a program wrote into it."""
    following = Following(graph, step_nodes(graph, [take.node for take in takes]), before, (), literals)
    for name in batch_constants:
        _follow_named(following, name)
    scale = Fraction(rows, before)
    changed = _change(graph, following, scale)
    return Rebatched(before, rows, _resized(graph, takes, scale), changed, {}, _left(following, before))


def _with_shapes(graph: Graph) -> Graph:
    """A copy of the graph with all shapes that can be told, those of what loops carry among them."""
    made = graphdef.copy(graph)
    made.roles = graph.roles
    shapes.infer(made)
    while shapes.tell_lookups(made) + carried_shapes.tell(made):
        shapes.infer(made)
    return made


def _resized(graph: Graph, takes: Sequence[Take], scale: Fraction) -> tuple[str, ...]:
    said: dict[str, None] = {}
    sizes = {}
    for take in takes:
        made = (take.rows or 0) * scale
        if made.denominator != 1 or not made:
            raise ShapeError(f"'{take.node.name}' reads {take.rows} rows, of which {scale} are no whole number", node=take.node,
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
    """Follow the batch until nothing new follows."""
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
    raise ShapeError("what follows the batch does not settle", origin=following.graph.source, fix=TRACE)


def _follow_named(following: Following, name: str) -> None:
    """Let a constant follow that the user names: its rows, or a number that was made of the rows."""
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
        following.change(node, "named by --batch_constants", power=-1 if 0 < number < 1 else 1)
        following.changes[node].formula, following.changes[node].rows = formula_of(number, rows), rows
    elif not following.change(node, "named by --batch_constants", axis=0):
        raise UsageError(
            f"'{base}' holds a different value for each row: it is not known what more rows hold", fix=TRACE
        )


def _check(graph: Graph, f: Following, scale: Fraction) -> None:
    """Have TensorFlow infer all shapes, and compare them with those that follow."""
    try:
        found = _with_shapes(graph)
    except GraphError as error:
        raise ShapeError(f"with another batch the shapes do not fit: {error.fault}", node=error.node, origin=graph.source,
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
    """Change the constants of the graph; returns by name what they were and are, and why."""
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
        if node.attr("num_elements", -1) > 0 and made[0]:  # of what a list is stacked to
            graph.set_attr(node, "num_elements", made[0][0])
        if node.op in ops.IDENTITIES and node.attr("shape", None) is not None:  # EnsureShape
            told = [None if size is None else new for size, new in zip(node.attr("shape"), made[0] or (), strict=True)]
            graph.set_attr(node, "shape", attrs.encode(tuple(told)))
    return said


def _regrouped(f: Following, scale: Fraction) -> dict[str, str]:
    """The nodes that put rows into groups, whose number follows the batch or not."""
    said = {}
    for node in f.gathers():
        if node.op in ops.RESHAPES | ops.SPLITS and f.axes.get(node.out()):
            old, new = node.out().shape, f.scaled(node.out(), scale)
            said[node.name] = f"rows regrouped: {list(old or ())} becomes {list(new or ())}"
    return said


def _left(f: Following, rows: int) -> tuple[str, ...]:
    """Constants that enter arithmetic, lead to the loss or the update, and may be made of the rows."""
    found = []
    for node in f.order:
        if node.op not in ops.CONSTANTS or node in f.changes or node.name in f.literals:
            continue
        value = constant(node)
        if value.size != 1 or value.dtype.kind not in "iuf" or formula_of(value.item(), rows) is None:
            continue
        if any(_computes(use.node) for use in node.uses()):
            found.append(f"{node.name} ({value.item():g})")
    return tuple(found)


def _computes(node: Node) -> bool:
    if node.op in ops.IDENTITIES | ops.CASTS | ops.ENTER:
        return any(_computes(use.node) for use in node.uses())
    return node.op in ops.ELEMENTWISE or node.op in ops.WRITES
