"""Constants with two readings: the number of rows, or so many times it, and a number of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Unknown, known
from tpugraph.analysis.step import Partitioned
from tpugraph.ir import Graph, Node, Tensor, Use
from tpugraph.ir.walks import reached, source_of
from tpugraph.partition import one_row
from tpugraph.partition.row_formulas import formulas_of
from tpugraph.support.errors import ConversionError, GraphError

_COMPUTED = ops.ELEMENTWISE | ops.CASTS | ops.IDENTITIES


def refusal_of(
    placing: Placing,
    node: Node,
    name: str,
    readings: tuple[str, str],
    fault: str,
    number: float | None = None,
    *,
    likely: str = "",
) -> ConversionError:
    """The error of a constant with two readings, and the flags that choose one.

    Args:
        placing: the analysis.
        node: where the readings differ.
        name: that of the constant.
        readings: what it does in the first reading, and in the second.
        fault: the words of the error.
        number: what it holds, where it may be made of the rows in several ways.
        likely: what stands in the likelier of these ways.
    """
    follows = follows_flag(name, number, placing.d.rows, likely)
    return ConversionError(
        fault, node=node, origin=placing.graph.source,
        fix=f"{follows} if it {readings[0]}, --literals={name} if it {readings[1]}",
    )  # fmt: skip


def refuse_first(
    placing: Placing,
    found: Iterable[tuple[Node, str, str]],
    readings: tuple[str, str],
    number: float | None = None,
    likely: str = "",
) -> None:
    """Refuse the first constant with two readings of those that are found, if there is one.

    Args:
        placing: the analysis.
        found: where the readings differ, the constant by name, or several with commas between them, and the words of the error.
        readings: what it does in the first reading, and in the second.
        number: what it holds, where it may be made of the rows in several ways.
        likely: what stands in the likelier of these ways.

    Raises:
        ConversionError: it names the constant, and the flags that choose a reading.
    """
    for node, names, fault in found:
        raise refusal_of(placing, node, names, readings, fault, number, likely=likely)


def misread(error: GraphError, graph: Graph, cores: int, named: Sequence[str]) -> ConversionError | None:
    """What is wrong where TensorFlow refuses a converted graph: numbers of rows, and others, were taken for one another.

    It may be one row that was, or constants that were said to follow the rows.
    """
    rows = (graph.kept(Partitioned) or Partitioned()).rows
    if rows == 1 and cores > 1:
        return one_row.refusal(error.fault, error.node, graph.source)
    if not named:
        return None if rows is None or cores == 1 else _contradicted(error, graph, rows, cores)
    return ConversionError(
        f"with --batch_constants={','.join(named)} the sizes of the graph contradict each other: {error.fault}",
        node=error.node, origin=graph.source,
        fix="name only constants that follow the rows, and all of those that are made of them; numbers of the model go to --literals",
    )  # fmt: skip


def _contradicted(error: GraphError, graph: Graph, rows: int, cores: int) -> ConversionError:
    """The error of a graph whose shapes fit together for the rows that it was traced with, and not for those of all cores."""
    return ConversionError(
        f"the graph was traced with {rows} rows, and does not fit the {rows * cores} of {cores} cores together: {error.fault}",
        node=error.node, origin=graph.source,
        fix="take the sizes that follow the rows from tf.shape, of an open batch (drop_remainder=False), or trace the graph "
            "with more rows a core; one core alone (--num_replicas=1) trains it as it is",
    )  # fmt: skip


def follows_flag(names: str, number: float | None, rows: int, likely: str = "") -> str:
    """The flag that says that constants follow the rows; one for each way in which they may, where there are several.

    Args:
        names: those of the constants, with commas between them.
        number: what they hold; None where it may be made of the rows in one way only.
        rows: the rows of a core's batch.
        likely: what stands in the ways that come first.
    """
    ways = [] if number is None else formulas_of(number, rows)
    ways.sort(key=lambda way: likely not in way)
    if len(ways) < 2:
        return f"--batch_constants={names}"
    told = (",".join(f"{name}={way}" for name in names.split(",")) for way in ways)
    return " or ".join(f"--batch_constants={flag}" for flag in told)


def constant_behind(tensor: Tensor) -> Node:
    """The constant that a number is cast from, or the node that makes the number."""
    return source_of(tensor, ops.IDENTITIES | ops.ENTER | ops.CASTS).node


def in_doubt_alone(d: Dimensions, node: Node) -> bool:
    """Whether a constant of one number may be a multiple of the rows, as nothing but other numbers in doubt speaks against it."""
    elements = d.elements(node.out()) if node.op in ops.CONSTANTS else None
    one = elements[0] if elements and len(elements) == 1 else None
    if d.constants.choice(node.name) is not None or not isinstance(one, Unknown):
        return False
    return d.in_doubt(one) or (one.root() in d.sizes.presumed and one.value > 0 and not one.value % d.rows)


def in_doubt_of(d: Dimensions, tensor: Tensor) -> Iterator[tuple[str, int]]:
    """The constants in doubt that a number is, or is a product of with other numbers: each by name with what it is."""
    elements = d.elements(tensor)
    one = elements[0] if elements and len(elements) == 1 else None
    if d.in_doubt(one):
        yield holder_of(d, tensor, one).name, one.value
    behind = source_of(tensor, ops.IDENTITIES | ops.CASTS).node
    factors = behind.inputs if one is None and behind.op in ops.SCALINGS else ()
    if all(constant_behind(factor).op in ops.CONSTANTS or d.elements(factor) for factor in factors):
        for factor in factors:
            yield from in_doubt_of(d, factor)


def beside_shares(d: Dimensions) -> dict[str, int]:
    """Constants with a number that another one holds as a share of the rows, and that nothing speaks for: in doubt, too.

    These are sizes, and what a sum is divided by: TensorFlow makes a mean's gradient so.
    """
    return {
        tensor.node.name: one.value
        for tensor, elements in d._elements.items()
        if tensor.node.op in ops.CONSTANTS and (not tensor.dtype.floating or any(
            use.index == 1 and use.node.op in ops.DIVISIONS for use in tensor.node.uses()))
        for one in elements or ()
        if isinstance(one, Unknown) and one.value in d.constants.shares
        and (one.root() in d.defaulted or known(one) is None) and not _counts_or_picks(tensor)
    }  # fmt: skip


def _counts_or_picks(tensor: Tensor) -> bool:
    """Whether a whole number does nothing but count steps, or say which elements of a vector are taken: that is no size."""
    uses = [
        use for node in reached([tensor.node], _computed_with) for use in node.uses() if use.node.op not in _COMPUTED
    ]
    return bool(uses) and all(use.node.op in ops.WRITES or _picks(use) for use in uses)


def _picks(use: Use) -> bool:
    if use.node.op in ops.PICKS:
        return use.index == 1
    return (
        use.node.op in ops.STRIDED_SLICES
        and use.index > 0
        and use.node.inputs[0].node.op in ops.SHAPE_OF | ops.CONSTANTS
    )


def _computed_with(node: Node) -> Iterator[Node]:
    yield from (use.node for use in node.uses() if use.node.op in _COMPUTED)


def holder_of(d: Dimensions, tensor: Tensor, number: Unknown) -> Node:
    """The constant that a number in doubt is written in: it may be in its shape, as of ones that are counted."""
    behind = constant_behind(tensor)
    if behind.op in ops.CONSTANTS:
        return behind
    constants = (n for n in d.graph.ancestors([behind], data_only=True) if n.op in ops.CONSTANTS)
    held = (n for n in constants if any(isinstance(size, Unknown) and size.root() is number.root()
            for size in (*(d.elements(n.out()) or ()), *(d.dims(n.out()) or ()))))  # fmt: skip
    return next(held, behind)
