"""Explains the placement of a value: the rules and operands that decided it, back to the input, and its collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tpugraph import ops
from tpugraph.analysis.placements import Entries, Held, Partial, PerCore, Placement, Replicate, Shard, Share
from tpugraph.analysis.shapes import byte_size
from tpugraph.ir import Node, Tensor
from tpugraph.spmd.demands import Demands
from tpugraph.spmd.placing import Verdict
from tpugraph.spmd.rules.signature import size_of
from tpugraph.support.wording import counted

_MOST_ALIKE = 3


@dataclass(frozen=True)
class Reason:
    """A link of the chain."""

    tensor: str
    op: str
    placement: str
    because: str  # the rule in words
    operands: tuple[str, ...] = ()  # the operands that decided it
    collectives: tuple[str, ...] = ()  # one sentence for each collective on it

    def __str__(self) -> str:
        if not self.tensor:
            return f"... {self.because}"
        return f"{self.tensor} ({self.op}): {self.placement}; {self.because}"


class Explanation:
    """Explains one solved step before it is rewritten."""

    def __init__(self, demands: Demands) -> None:
        self.placing = demands.placing
        self._asking = demands.asking
        self._position = self.placing.flow.position

    def chain(self, start: Tensor, *, everything: bool = False) -> list[Reason]:
        """The reasons from a value back to the input: the shortest chain, or ``everything`` that decided, each value once."""
        before: dict[Tensor, Tensor | None] = {start: None}
        pending = [start]
        for tensor in pending:  # grows while it is walked
            new = [t for t in self.deciding(tensor, everything=everything) if t not in before]
            before |= dict.fromkeys(new, tensor)
            pending += new
        if everything:
            return [self.reason(tensor) for tensor in pending]
        return list(_collapsed([self.reason(tensor) for tensor in self._shortest(before)]))

    def _shortest(self, before: Mapping[Tensor, Tensor | None]) -> list[Tensor]:
        """The shortest chain to the input; where none reaches it, the shortest of all."""
        ends = [t for t in before if not self.deciding(t)]
        at: Tensor | None = next((t for t in ends if t in self.placing.seeds), ends[0] if ends else list(before)[-1])
        chain: list[Tensor] = []
        while at is not None:
            chain.append(at)
            at = before[at]
        return chain[::-1]

    def reason(self, tensor: Tensor) -> Reason:
        """One link of the chain, with all operands that decided it."""
        operands, collectives = map(str, self.deciding(tensor, everything=True)), self.collectives(tensor)
        because = self._because(tensor)
        return Reason(str(tensor), tensor.node.op, self.words(tensor), because, tuple(operands), tuple(collectives))

    def values_of(self, node: Node) -> list[Tensor]:
        """The outputs of a node that are read; for a node without outputs, its operands."""
        if node.outputs:
            return [node.out(port) for port in node.used_ports() or (0,)]
        return [t for t in node.inputs if t.node in self._position and t.node.op not in ops.CONSTANTS]

    def made(self, tensor: Tensor) -> Placement | None:
        """The placement of a value as its node produces it."""
        return self.placing.made(tensor) or self.placing.read(tensor)

    def kind(self, tensor: Tensor) -> str:
        """The kind of a value's placement: ``replicate``, ``shard``, ``partial`` and so on; "" without one."""
        placement = self.made(tensor)
        return "" if placement is None else type(placement).__name__.lower()

    def words(self, tensor: Tensor) -> str:
        placement = self.made(tensor)
        if placement is None:
            return "no value reaches it"
        size = size_of(tensor, placement.axis) if isinstance(placement, Shard) else None
        if not isinstance(placement, Shard) or size is None:
            return str(placement)
        rows = counted(size // self.placing.cores // placement.outer, "row")
        return f"{placement} ({rows} a core{f' of each of {placement.outer} batches' if placement.outer > 1 else ''})"

    def _because(self, tensor: Tensor) -> str:
        node, verdict = tensor.node, self.placing.verdicts.get(tensor.node)
        if tensor in self.placing.seeds:
            return self._fed(tensor)
        if node.op in ops.CONSTANTS:
            return "a constant"
        if node not in self._position:
            return "a variable" if node.op in ops.VARIABLES else "made on the host"
        if verdict is None:
            return "nothing that it reads has a value"
        averaged = tensor.port in verdict.averaged
        return _rule(verdict) + ("; scaled to the core's share of the mean" if averaged else "")

    def _fed(self, tensor: Tensor) -> str:
        source = "the input" if tensor.node.op in ops.INPUTS else "fed from the host"
        placement = self.placing.seeds[tensor]
        if not isinstance(placement, Shard):
            return f"{source}: every core is fed all of it"
        return f"{source}: its {(tensor.shape or ())[placement.axis]} rows are split over {self.placing.cores} cores"

    def collectives(self, tensor: Tensor) -> list[str]:
        """The collectives on a value: bytes, first reader, and that reader's rule."""
        placement, node = self.made(tensor), tensor.node
        readers: dict[str, list[tuple[Node, str]]] = {}
        if isinstance(placement, Partial) and tensor in self.placing.reduced:
            readers[f"all-reduced ({placement.reduce_op}{self._bytes(tensor)})"] = self._asking_for(tensor)
        if node in self._position and node.op in ops.RANDOM and isinstance(placement, Replicate):
            readers["broadcast: every core has what core 0 draws"] = []
        for use in node.uses(tensor.port):
            verdict = self.placing.verdicts.get(use.node)
            want = verdict.wants.get(use.index) if verdict is not None else None
            if verdict is not None and want is not None and (words := self._conversion(tensor, want)):
                readers.setdefault(words, []).append((use.node, _rule(verdict)))
        return [words + _for(asking) for words, asking in readers.items()]

    def _conversion(self, tensor: Tensor, want: Placement) -> str:
        placement = self.placing.read(tensor)
        if isinstance(want, Share):
            return "shared out: the cores' shares add up to it"
        if isinstance(placement, Replicate):
            return "cut to the core's own rows" if isinstance(want, Shard) else ""
        if isinstance(placement, Shard):
            again = f", then cut along dimension {want.axis}" if isinstance(want, Shard) else ""
            return f"all-gathered (dimension {placement.axis}{self._bytes(tensor)}){again}"
        if placement == Entries("shape"):
            return "all-reduced (sum)"
        if isinstance(placement, Entries):
            return "all-gathered (ragged rows)" if isinstance(want, Replicate) else "numbered over the whole batch"
        return "unified by --varying_updates" if isinstance(placement, PerCore) else ""

    @staticmethod
    def _bytes(tensor: Tensor) -> str:
        size = byte_size(tensor)
        return "" if size is None else f", {size:,} bytes"

    def _asking_for(self, tensor: Tensor) -> list[tuple[Node, str]]:
        """The node for which a value is reduced: it demands this value, or one that is linear in it."""
        pending, seen = [tensor], {tensor}
        for at in pending:  # grows while it is walked
            if at in self._asking:
                return [self._asking[at]]
            behind = {use.node.out(port): None for use in at.node.uses(at.port) for port in use.node.used_ports()}
            pending += [t for t in behind if t not in seen]
            seen.update(behind)
        return []

    def deciding(self, tensor: Tensor, *, everything: bool = False) -> list[Tensor]:
        """The operands that decided a placement; operands that are converted first count only where no other did."""
        node, placement = tensor.node, self.made(tensor)
        verdict = self.placing.verdicts.get(node)
        if node not in self._position or tensor in self.placing.seeds or verdict is None:
            return []
        found = [t for t in node.inputs if self._decides(t, placement)]
        if not isinstance(placement, Held):
            found += [t for handle in node.inputs for t in self._written_elements(handle, node)]
        if everything or not found:
            found += [node.inputs[index] for index in verdict.wants]
        if not found and isinstance(placement, Replicate):
            found = [t for t in node.inputs if t.node.op not in ops.CONSTANTS]
        return list(dict.fromkeys(found))

    def _decides(self, operand: Tensor, made: Placement | None) -> bool:
        placement = self.made(operand)
        if isinstance(made, Replicate):
            return operand in self.placing.reduced
        if isinstance(placement, Held):
            return isinstance(made, Held)
        return placement is not None and not isinstance(placement, Replicate)

    def _written_elements(self, handle: Tensor, reader: Node) -> Iterator[Tensor]:
        placement = self.placing.read(handle)
        if not isinstance(placement, Held) or reader.op not in ops.CONTAINER_READS:
            return
        for node in self.placing.users(placement.key):
            if node is not reader and node.op not in ops.CONTAINER_READS:
                yield from (t for t in node.inputs if not isinstance(self.made(t), Held | Replicate | None))


def _rule(verdict: Verdict) -> str:
    """A rule in words; says so where every core runs the node on whole operands."""
    whole = verdict.outputs and all(isinstance(made, Replicate) for made in verdict.outputs)
    gathers = any(isinstance(want, Replicate) for want in verdict.wants.values())
    return (verdict.why or "handed on") + (": whole operands on every core" if whole and gathers else "")


def _for(readers: Sequence[tuple[Node, str]]) -> str:
    more = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
    return next((f" for '{node.name}' ({node.op}){more}: {why}" for node, why in readers), "")


def _collapsed(found: Sequence[Reason]) -> Iterator[Reason]:
    """The chain, with one line in place of the middle of many equal links."""
    for _, group in groupby(found, lambda link: (link.placement, link.because, link.collectives)):
        alike = list(group)
        if len(alike) <= _MOST_ALIKE:
            yield from alike
            continue
        kinds = ", ".join(dict.fromkeys(link.op for link in alike[1:-1]))
        yield from (alike[0], Reason("", "", "", f"{len(alike) - 2} more for the same reason: {kinds}"), alike[-1])
