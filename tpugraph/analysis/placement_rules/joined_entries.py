"""Entries of which each core has its own, put together: whether they may lie core by core, or some op asks for their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tpugraph import ops
from tpugraph.analysis.constant_values import fixed
from tpugraph.analysis.evidence.summed import root
from tpugraph.analysis.placement_rules.entry_placements import OWN
from tpugraph.analysis.placement_rules.slicing_placements import keeps_entries
from tpugraph.analysis.placements import Entries, Placement, Shard
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, depends_on_data, follows_batch
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached, source_of


def joined_in_any_order(p: Placing, node: Node, parts: Sequence[Placement]) -> bool:
    """Whether parts of which each core has its own may lie core by core: nothing asks which entry comes first.

    Of the whole batch the entries of one part come first. What meets a value that lies otherwise, or is taken by places, is
    asked for in that order, and so are all that were joined and meet each other.
    """
    if not all(isinstance(part, Shard | Entries) for part in parts):
        return False
    beside = list(reached([node], lambda at: _meeting(p, at)))
    asked = any(_asks_for_order(p, at) or _moves_entries(p, at) for at in beside)
    return not asked and _joined_alike(p, node, beside)


def _joined_alike(p: Placing, node: Node, beside: Iterable[Node]) -> bool:
    """Whether all that lies along the same entries is put together of parts that are as long, in the same order.

    Places on a core that are put together with other numbers have to be made places of the whole batch, and lie in its order.
    """
    whole, parts = _size(p, node.out()), _parts(p, node)
    joined = [at for at in beside if at.op in ops.CONCATS and _size(p, at.out()) == whole]
    told = len(joined) < 2 or None not in parts
    return told and not any(_parts(p, at) != parts or _mixes_places(p, at) for at in joined)


def _moves_entries(p: Placing, node: Node) -> bool:
    """Whether what reads entries has them along another dimension: all cores' lie there, and gradients take them apart in order."""
    size = _size(p, node.out()) if node.outputs else None
    made = [t for use in node.uses() for t in map(use.node.out, _ports(use.node)) if not _takes_part(use.node)]
    return isinstance(size, Unknown) and any(size in map(root, (p.d.dims(t) or ())[1:]) for t in made)


def _mixes_places(p: Placing, node: Node) -> bool:
    """Whether places on a core are put together with other whole numbers, or with some of which nothing is known yet."""
    parts = [] if node.out().dtype.floating else _joined(node)
    placed = [p.made(source_of(tensor, ops.SAME_NUMBERS | ops.SHAPED_ANEW)) for tensor in parts]
    return None in placed or (OWN in placed and any(one != OWN for one in placed))


def _parts(p: Placing, node: Node) -> list[Size | None]:
    """How long the parts are that are put together; those that are put together themselves are taken apart."""
    found: list[Size | None] = []
    rest = _joined(node)[::-1]
    while rest:
        tensor = rest.pop()
        inner = _joined(tensor.node)
        found += [] if inner else [_size(p, tensor)]
        rest += inner[::-1]
    return found


def _joined(node: Node) -> list[Tensor]:
    """What a node puts one behind the other."""
    record = ops.record(node.op)
    if node.op not in ops.CONCATS or fixed(node.inputs[record.axis or 0]) != [0]:
        return []
    return [node.inputs[index] for index in record.data_operands(len(node.inputs))]


def _size(p: Placing, tensor: Tensor) -> Size | None:
    dims = p.d.dims(tensor)
    return root(dims[0]) if dims and dims[0] is not None else None


def _meeting(p: Placing, node: Node) -> Iterator[Node]:
    """The nodes whose values lie along the same entries: what reads one, and what else that or the node itself reads."""
    for reader in (use.node for use in node.uses()):
        if not _takes_part(reader):
            yield from (t.node for t in reader.inputs if _lies_along_entries(p, t))
            if reader.op in ops.UNSORTED_SEGMENTS:
                continue  # what it makes lies along its segments
            yield from [reader] if any(_lies_along_entries(p, t) for t in map(reader.out, _ports(reader))) else []
    if node.op not in ops.CONCATS | ops.SPREADS:
        yield from (t.node for t in node.inputs if _lies_along_entries(p, t))


def _ports(node: Node) -> range:
    return range(len(node.outputs or ()))


def _takes_part(node: Node) -> bool:
    """Whether a gradient takes apart what was put together."""
    return node.op in ops.SHAPE_OF or (
        node.op in ops.PLAIN_SLICES and source_of(node.inputs[1]).node.op in ops.CONCAT_OFFSETS
    )


def _lies_along_entries(p: Placing, tensor: Tensor) -> bool:
    dims = p.d.dims(tensor)
    return bool(dims) and (depends_on_data(dims[0]) or follows_batch(dims[0]))  # type: ignore[index]


def _asks_for_order(p: Placing, node: Node) -> bool:
    """Whether a node takes entries by their places, or makes values that lie as the batch does, and come of none that was joined."""
    if node.op in ops.CONCATS | ops.SPREADS:
        return False
    if node.op in ops.SLICES:
        return not keeps_entries(node, p.rank(node.inputs[0]))
    along = [index for index, t in enumerate(node.inputs) if _lies_along_entries(p, t)]
    return not along or (node.op in ops.LOOKUPS and 0 in along)
