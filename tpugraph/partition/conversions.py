"""A tensor as a reader wants it: from the way that it lives on the cores to another one, by a collective or a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tpugraph import ops
from tpugraph.analysis.constant_values import constant
from tpugraph.analysis.longest import Longest
from tpugraph.analysis.placements import (
    Entries,
    Partial,
    PerCore,
    Placement,
    Replicate,
    Shard,
    Share,
    Sized,
    holds_entries,
)
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import at
from tpugraph.ir import Node, Tensor
from tpugraph.ir.walks import reached
from tpugraph.partition import one_row
from tpugraph.partition.collectives import Collectives
from tpugraph.partition.entries_of_cores import counts_entries, is_computed_anew, places_of_all
from tpugraph.partition.scaled_shapes import own_numbers
from tpugraph.support.errors import ConversionError


@dataclass
class Conversions:
    """Converts tensors of one step, and keeps what it made for the report.

    Attributes:
        placing: the analysis.
        count: number of cores.
        scaling: ``None`` where the placements decide; ``mean`` or ``sum`` where the user said how gradients combine.
        varying_updates: what is written where a policy lets cores differ: ``mean``, ``replica0`` or ``error``.
        made: the collectives, as words by tensor, for the report.
        gathered: bytes of what is gathered, by tensor and the node that asks.
        combined: of each variable that cores would write differently, whether the mean or core 0's value is written.
        made_behind: what is read instead of a tensor, by that tensor.
        made_of_counts: numbers made of how many entries all cores have, by the tensor that is made of those of one core.
        factor: what gradients are multiplied by where the user said how they combine and the placements say otherwise.
        forward: what leads to the loss, and is no gradient.
        collectives: makes the nodes; there from the first edit on.
    """

    placing: Placing
    count: int
    scaling: str | None = None
    varying_updates: str = "mean"
    made: dict[str, str] = field(default_factory=dict)
    gathered: dict[str, str] = field(default_factory=dict)
    combined: dict[str, str] = field(default_factory=dict)
    made_behind: dict[Tensor, Tensor] = field(default_factory=dict)
    made_of_counts: dict[Tensor, Tensor] = field(default_factory=dict)
    factor: float = 1.0
    forward: Mapping[Node, None] = field(default_factory=dict)
    collectives: Collectives = field(init=False)

    def _reduce(self, tensor: Tensor) -> Tensor:
        """The whole value of a partial one."""
        placement = self.placing.made(tensor)
        source = self.made_behind.get(tensor, tensor)
        if isinstance(placement, Partial) and placement.reduce_op != "sum":
            result, words = (
                self.collectives.extreme(source, placement.reduce_op),
                f"the {placement.reduce_op} over the cores",
            )
        else:
            result, words = self.collectives.sum(source), "the sum over the cores"
            if self.factor != 1 and tensor.dtype.floating and tensor.node not in self.forward:
                result, words = (
                    self.collectives.scaled(result, self.factor),
                    f"{words}, as --loss_reduction asks for it",
                )
        self._note(tensor, words)
        return result

    def _convert(self, node: Node, tensor: Tensor, source: Tensor, want: Placement) -> Tensor:
        placement = self.placing.read(tensor)
        c = self.collectives
        if isinstance(want, Share):
            return c.share(self.whole(tensor, placement) if isinstance(placement, Sized) else source)
        if isinstance(placement, Sized):
            return self.whole(tensor, placement)
        if isinstance(want, Replicate):
            return self._gathered(node, tensor, source, placement)
        if isinstance(want, Shard):
            if isinstance(placement, Shard) and placement.plain() == want:
                return self.numbered(source, placement)
            if isinstance(placement, Replicate):
                return c.own_rows(source, want)
            if isinstance(placement, Shard):
                return c.own_rows(self._gathered(node, tensor, source, placement), want)
            if isinstance(placement, Partial):
                return c.own_rows(self._reduce(tensor), want)
        places = places_of_all(self.placing, c, tensor, source)
        if want == Entries("values") and places is not None:
            return places
        if isinstance(want, Entries) and isinstance(placement, Replicate | Partial):
            own = self._own_shape(node, tensor)
            if own is not None:
                return c.own_entries(source if isinstance(placement, Replicate) else self._reduce(tensor), own)
        raise self._refusal(node, tensor, placement)

    def _own_shape(self, node: Node, tensor: Tensor) -> Tensor | None:
        """That of as many of a tensor as a core has, of entries that all cores hold: what the node that reads them says of it."""
        if node.op in ops.RESHAPES:
            return node.inputs[1]
        if node.op in ops.DYNAMIC_STITCHES:
            return self.collectives.shape(node.inputs[node.inputs.index(tensor) - len(node.inputs) // 2])
        return None

    def whole(self, tensor: Tensor, placement: Placement | None) -> Tensor:
        """A size of the whole batch, as a constant; of another value the value itself."""
        if not isinstance(placement, Sized):
            return tensor
        sizes = self.placing.sizes(tensor)
        rows_in = own_numbers(self.placing, tensor) if sizes is None and len(tensor.shape or ()) == 1 else None
        if rows_in is not None:
            return self.collectives.sizes_of_all(tensor, rows_in)
        if sizes is None:
            raise ConversionError(f"'{tensor}' is read as numbers, and holds sizes of the batch beside numbers that are not "
                                  "known", node=tensor.node, origin=self.placing.graph.source)  # fmt: skip
        rows = self.placing.d.rows * self.count
        value = np.asarray([at(s, rows) for s in sizes])
        shape = tensor.shape if tensor.shape is not None else (len(sizes),)
        self.placing.graph.note(tensor.node, f"counts the rows of all cores: {value.ravel().tolist()}")
        return self.collectives.instead(tensor, value.reshape([int(d or 0) for d in shape]),
                                        name=f"{tensor.node.name}/of_all_cores")  # fmt: skip

    def _gathered(self, node: Node, tensor: Tensor, source: Tensor, placement: Placement | None) -> Tensor:
        c = self.collectives
        if isinstance(placement, Shard):
            level = self.placing.d.level(tensor)
            if tensor.node.op in ops.CONSTANTS:
                return self._wider(tensor, placement, level)
            if tensor.node.op in ops.RANGES:
                rows = placement.inner * self.placing.d.rows * self.count
                return c.instead(tensor, np.arange(rows), name=f"{tensor.node.name}/of_all_cores")
            plain = self.numbered(source, placement)
            size = (tensor.dtype.size or 4) * int(np.prod([d or 1 for d in tensor.shape or ()])) * self.count
            self.gathered[str(tensor)] = (
                f"{size:,} bytes, for '{node.name}' ({node.op}): {self.placing.verdicts[node].why}"
            )
            self._note(tensor, f"the rows of all cores ({size:,} bytes), for '{node.name}' ({node.op})")
            return c.gather_rows(
                plain, placement, [self._longest.of(tensor, axis) for axis in range(len(tensor.shape or ()))]
            )
        if self._is_of_counts(tensor):
            number = self._of_all_counts(tensor)
            if number is not None:
                self._note(tensor, f"made of the number of entries of all cores, for '{node.name}' ({node.op})")
                return number
        places = places_of_all(self.placing, c, tensor, source)
        if places is not None:
            self._note(tensor, f"the places of all cores, for '{node.name}' ({node.op})")
            return c.gather_entries(places, self._longest.of(tensor, 0))
        if placement == Entries("by_id") and not _reads_ids(node, tensor):
            if self.placing.d.rows == 1 and Entries("distinct") not in self.placing.seeds.values():
                what = f"'{tensor}' is added up at as many places as there are rows, or as the model says"
                raise one_row.refusal(what, node, self.placing.graph.source)
            raise ConversionError(
                f"'{node.name}' ({node.op}) takes together what belongs to the distinct values of a core's own rows, which "
                f"were found on the host: two cores may have the same, and of the whole batch '{tensor}' would be another value",
                node=node, origin=self.placing.graph.source,
                fix="let the input pipeline give numbers instead of strings, so that distinct values are found on the device",
            )  # fmt: skip
        if holds_entries(placement):
            self._note(tensor, f"the entries of all cores, for '{node.name}' ({node.op})")
            return c.gather_entries(source, self._longest.of(tensor, 0))
        if isinstance(placement, Partial):
            return self._reduce(tensor)
        if isinstance(placement, PerCore):
            return self._unified(node, tensor, source, placement)
        raise self._refusal(node, tensor, placement)

    @cached_property
    def _longest(self) -> Longest:
        return Longest(self.placing, self.count)

    def _of_all_counts(self, tensor: Tensor) -> Tensor | None:
        """A number made of counts of entries, computed again of those of all cores; None of other numbers.

        A count is summed over the cores; what is computed of it, as ``max(count, 1)`` is, holds for no part of a sum.
        """
        made: dict[Tensor, Tensor] = {}
        behind = reached((tensor,), lambda t: () if self._known_everywhere(t) else t.node.inputs)
        order = {node: i for i, node in enumerate(self.placing.graph.topological_order({t.node: None for t in behind}))}
        for t in sorted(behind, key=lambda t: order[t.node]):
            node, placement = t.node, self.placing.read(t)
            if t in self.made_of_counts:
                made[t] = self.made_of_counts[t]
            elif isinstance(placement, Sized):
                made[t] = self.whole(t, placement)
            elif isinstance(placement, Replicate):
                made[t] = self.made_behind.get(t, t)
            elif not self._is_of_counts(t) or node.op in ops.MERGE:
                return None
            elif counts_entries(self.placing, t):
                source = self.made_behind.get(t, t)
                made[t] = self.collectives.sum_of_first(source) if t.shape else self.collectives.sum(source)
            elif is_computed_anew(self.placing, node):
                made[t] = self.collectives.again(node, [made[given] for given in node.inputs]).node.out(t.port)
            else:
                return None
        self.made_of_counts |= made
        return made[tensor]

    def _known_everywhere(self, tensor: Tensor) -> bool:
        """Whether nothing behind a tensor has to be looked at to know it for the whole batch."""
        return not self._is_of_counts(tensor) or counts_entries(self.placing, tensor)

    def _is_of_counts(self, tensor: Tensor) -> bool:
        """Whether a tensor may be made of counts of entries alone: a number or a shape, or numbers of places up to a count."""
        return self.placing.read(tensor) in (Entries("shape"), Entries("local"))

    def _wider(self, tensor: Tensor, rows: Shard, level: object) -> Tensor:
        """A constant with a row for each example, for the whole batch."""
        if level is None:
            raise ConversionError(
                f"the constant '{tensor}' has {self.placing.d.rows} rows of its own, one for each row of a core's batch: "
                "which the other cores' rows would have is not known",
                node=tensor.node, origin=self.placing.graph.source,
                fix=f"make it an input, or say that its size is no batch: --literals={tensor.node.name}",
            )  # fmt: skip
        shape = [int(d or 0) for d in tensor.shape or ()]
        shape[rows.axis] *= self.count
        value = np.full(shape, constant(tensor.node).ravel()[0])
        return self.collectives.instead(tensor, value, name=f"{tensor.node.name}/of_all_cores")

    def numbered(self, source: Tensor, rows: Shard) -> Tensor:
        """Numbers of this core's rows as those of the whole batch."""
        if not rows.shift:
            return source
        per_core = self.placing.d.rows
        if isinstance(rows.shift, int):
            return self.collectives.numbered(source, rows.shift * per_core)
        shape = [1] * len(source.shape or ())
        shape[rows.along] = len(rows.shift)
        return self.collectives.numbered(source, np.asarray([s * per_core for s in rows.shift]).reshape(shape))

    def _unified(self, node: Node, tensor: Tensor, source: Tensor, placement: PerCore) -> Tensor:
        """One value where cores differ: what the user chose."""
        names = node.inputs[0].node.name
        if self.varying_updates == "error":
            raise ConversionError(f"each core would write another value to '{names}' ({placement.policy})", node=node,
                                  origin=self.placing.graph.source,
                                  fix="--varying_updates=mean writes the mean, =replica0 core 0's")  # fmt: skip
        mean = tensor.dtype.floating and self.varying_updates == "mean"
        self.combined[names] = "mean" if mean else "replica0"
        self._note(tensor, "the mean over the cores" if mean else "the value of core 0")
        return self.collectives.sum(
            self.collectives.scaled(source, 1.0 / self.count) if mean else self.collectives.first(source)
        )

    def _refusal(self, node: Node, tensor: Tensor, placement: Placement | None) -> ConversionError:
        return ConversionError(
            f"'{node.name}' ({node.op}) needs '{tensor}' of the whole batch, and a core holds {placement}",
            node=node, origin=self.placing.graph.source,
            fix="compute it from dense rows; `tpugraph inspect --why` shows where the value comes from",
        )  # fmt: skip

    def _note(self, tensor: Tensor, words: str) -> None:
        self.made[str(tensor)] = words
        self.placing.graph.note(tensor.node, f"combined over the cores: {words}")


def _reads_ids(node: Node, tensor: Tensor) -> bool:
    """Whether a node may read an id more than once: it says to which row something is added."""
    if node.op in ops.UNIQUE:
        return True
    rows = ops.WRITES[node.op].rows if node.op in ops.WRITES else None
    return rows is not None and node.inputs[rows] == tensor
