"""Converts a value from its placement to the one that a reader needs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tpugraph import ops
from tpugraph.analysis.placements import Entries, Partial, PerCore, Placement, Replicate, Shard, Share
from tpugraph.analysis.shapes import is_static
from tpugraph.analysis.values import constant
from tpugraph.ir import Node, Tensor, attrs
from tpugraph.rewrite.collectives import Collectives
from tpugraph.spmd.placing import COUNT, VALUES, Placing
from tpugraph.spmd.splats import is_splat, splat_value
from tpugraph.support.errors import ConversionError

_INT32 = attrs.dtype("int32")


@dataclass
class Conversions:
    """Builds the conversions of one step, each once, and records them for the report."""

    placing: Placing
    c: Collectives
    varying_updates: str = "mean"
    made: dict[str, str] = field(default_factory=dict)  # by tensor, the reduction
    gathered: dict[str, str] = field(default_factory=dict)  # by tensor, the gathered bytes and the reader
    # by variable, how differing values of the cores are unified
    combined: dict[str, str] = field(default_factory=dict)
    behind: dict[Tensor, Tensor] = field(default_factory=dict)  # the converted tensor that all readers read instead
    _kept: dict[tuple[Tensor, Placement], Tensor] = field(default_factory=dict)

    def converted(self, node: Node, tensor: Tensor, want: Placement) -> Tensor:
        if (tensor, want) not in self._kept:
            self._kept[tensor, want] = self._convert(node, tensor, want)
        return self._kept[tensor, want]

    def reduced(self, tensor: Tensor) -> Tensor:
        placement, source = self.placing.made(tensor), self.behind.get(tensor, tensor)
        assert isinstance(placement, Partial)
        if placement.reduce_op == "sum":
            self.note(tensor, "the sum over the cores")
            return self.c.sum(source)
        self.note(tensor, f"the {placement.reduce_op} over the cores")
        return self.c.extreme(source, placement.reduce_op)

    def note(self, tensor: Tensor, words: str) -> None:
        self.made[str(tensor)] = words
        self.placing.graph.note(tensor.node, f"combined over the cores: {words}")

    def _convert(self, node: Node, tensor: Tensor, want: Placement) -> Tensor:
        placement, source = self.placing.read(tensor), self.behind.get(tensor, tensor)
        if isinstance(want, Share):
            return self.c.share(source)
        if isinstance(want, Replicate):
            return self._whole(node, tensor, source, placement)
        if isinstance(want, Shard):
            whole = self.converted(node, tensor, Replicate()) if isinstance(placement, Shard) else source
            if isinstance(placement, Replicate | Shard):
                return self._own_rows(whole, want)
        if want == VALUES and isinstance(placement, Entries) and placement.role == "local":
            return self._global_coordinates(tensor, source, placement)
        raise self._refusal(node, tensor, placement)

    def _own_rows(self, tensor: Tensor, rows: Shard) -> Tensor:
        """This core's rows of a replicated value; a splat is built at the local shape instead.

        Where all elements are equal but known only at run time, every core takes the first rows.
        """
        number, shape, node = splat_value(tensor), tensor.shape, tensor.node
        if shape is None or None in shape or tensor.dtype.name in ("string", "resource"):
            return self.c.own_rows(tensor, rows)
        local = [(size or 0) // (self.c.count if axis == rows.axis else 1) for axis, size in enumerate(shape)]
        if (
            number is not None and node.op not in ops.SWITCH
        ):  # a node with a control edge from a Switch runs in both branches
            if node.op in ops.CONSTANTS:
                return self.c.constant(np.full(local, constant(node).flat[0]), tensor.dtype, tensor)
            one = self.c.constant(np.asarray(number), tensor.dtype, tensor)
            dims = self.c.constant(np.asarray(local), _INT32, tensor)
            return self.c.add(tensor, "Fill", "own_rows", [dims, one], tuple(local))
        if is_splat(tensor):
            return self.c.first_rows(tensor, local)
        return self.c.own_rows(tensor, rows)

    def _whole(self, node: Node, tensor: Tensor, source: Tensor, placement: Placement | None) -> Tensor:
        maker = self.placing.verdicts.get(tensor.node)
        if maker is not None and tensor.port in maker.cuts:  # every core computed the whole
            return tensor
        if isinstance(placement, Shard):
            size = f"{'' if is_static(tensor.shape) else 'at least '}{self._bytes(tensor) * self.c.count:,} bytes"
            self.gathered[str(tensor)] = f"{size}, for '{node.name}' ({node.op}): {self.placing.verdicts[node].why}"
            self.note(tensor, f"the rows of all cores ({size}), for '{node.name}' ({node.op})")
            return self.c.gather(source, placement)
        if placement == COUNT:
            self.note(tensor, f"counted over the cores, for '{node.name}' ({node.op})")
            return self.c.sum_of_first(source) if tensor.shape else self.c.sum(source)
        if isinstance(placement, Entries):
            self.note(tensor, f"the ragged rows of all cores, for '{node.name}' ({node.op})")
            own = self._global_coordinates(tensor, source, placement) if placement.role == "local" else source
            return self.c.gather_entries(own)
        if isinstance(placement, PerCore):
            return self._unified(node, tensor, source, placement)
        raise self._refusal(node, tensor, placement)

    @staticmethod
    def _bytes(tensor: Tensor) -> int:
        return (tensor.dtype.size or 4) * int(np.prod([size or 1 for size in tensor.shape or ()]))

    def _global_coordinates(self, tensor: Tensor, source: Tensor, placement: Entries) -> Tensor:
        """Local coordinates made global: the first column is the row."""
        found = self.placing.graph.tensor(placement.of)
        found = self.behind.get(found, found)
        columns = (tensor.shape or (1,))[-1] if len(tensor.shape or ()) > 1 else 1
        first = np.arange(columns or 1) == 0 if len(tensor.shape or ()) > 1 else np.asarray(True)
        size = found.shape[0] if found.shape else None
        if self.placing.read(found) == VALUES or size is None:
            ahead = self.c.counted_before(self.c.shape(found), source)
            parts = [self.c.cast(ahead, tensor.dtype), self.c.constant(first.astype(int), tensor.dtype, source)]
            name = tensor.node.name
            offset = self.c.add(source, "Mul", "ahead", parts, np.shape(first), scope=name)
            return self.c.add(source, "AddV2", "of_the_batch", [source, offset], tensor.shape, scope=name)
        return self.c.numbered(source, size * first.astype(int))

    def _unified(self, node: Node, tensor: Tensor, source: Tensor, placement: PerCore) -> Tensor:
        """Unify values that a policy lets differ between cores."""
        variable = node.inputs[0].node.name
        if self.varying_updates == "error":
            raise ConversionError(f"each core would write another value to '{variable}' ({placement.policy})", node=node,
                                  origin=self.placing.graph.source,
                                  fix="--varying_updates=mean writes the mean, =replica0 core 0's")  # fmt: skip
        mean = tensor.dtype.floating and self.varying_updates == "mean"
        self.combined[variable] = "mean" if mean else "replica0"
        self.note(tensor, "the mean over the cores" if mean else "the value of core 0")
        return self.c.sum(self.c.scaled(source, 1.0 / self.c.count) if mean else self.c.first(source))

    def _refusal(self, node: Node, tensor: Tensor, placement: Placement | None) -> ConversionError:
        return ConversionError(
            f"'{node.name}' ({node.op}) reads all of '{tensor}', which is {placement}",
            node=node, origin=self.placing.graph.source,
            fix="give the tensor a shape that does not depend on data: `tpugraph inspect MODEL --why` shows where it comes from",
        )  # fmt: skip
