"""Why a value of the step lives where it does: the rules and operands that decided it, back to the input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpugraph import ops
from tpugraph.analysis.dimensions import Dimensions
from tpugraph.analysis.placements import REPLICATE, Entries, Held, Partial, PerCore, Placement, Replicate, Shard, Sized
from tpugraph.analysis.placing import Placing
from tpugraph.analysis.sizes import Size, Unknown, follows_batch
from tpugraph.ir import Node, Tensor

_MOST_ALIKE = 3
_MOST_TIES = 4


@dataclass(frozen=True)
class Reason:
    """A link of the chain.

    Attributes:
        tensor: the value; "" for a line that stands for several.
        op: the op that makes it.
        placement: where it lives, in words.
        because: the rule that says so, in words.
        operands: the operands that decided it.
    """

    tensor: str
    op: str
    placement: str
    because: str
    operands: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.tensor:
            return f"... {self.because}"
        return f"{self.tensor} ({self.op}): {self.placement}; {self.because}"


class Because:
    """Answers for one solved step.

    Args:
        placing: the placements.
        asking: of values that are reduced, or on the way to a reader that wants them whole, that reader.
    """

    def __init__(self, placing: Placing, asking: Mapping[Tensor, Node]) -> None:
        self.placing = placing
        self._asking = asking
        self._position = placing.flow.position
        self._sizes = _Proofs(placing.d)

    def chain(self, start: Tensor, *, everything: bool = False) -> list[Reason]:
        """The reasons from a value back to the input, each value once.

        Args:
            start: the value.
            everything: follow every operand that decided and leave nothing out, where else the shortest chain is given.
        """
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
        """The shortest chain, of those that end at the input where any does, else of those that end anywhere."""
        ends = [t for t in before if not self.deciding(t)]
        at: Tensor | None = next((t for t in ends if t in self.placing.seeds), ends[0] if ends else list(before)[-1])
        chain: list[Tensor] = []
        while at is not None:
            chain.append(at)
            at = before[at]
        return chain[::-1]

    def dimensions(self, tensor: Tensor) -> list[str]:
        """Which dimensions and elements of a value follow the batch, and why; and which just have as many elements."""
        d = self.placing.d
        dims, elements = d.dims(tensor), d.elements(tensor)
        handed = "the input" if tensor in self.placing.seeds else self._handed_on(tensor)
        found = [
            line for axis, size in enumerate(dims or ()) for line in self._of_size(f"dimension {axis}", size, handed)
        ]
        for place, element in enumerate(elements or ()):
            name = f"element {place}" if len(elements or ()) > 1 else "the number"
            found += self._of_size(name, element, handed) if element is not None else ()
        return found or ["no dimension follows the batch"]

    def values_of(self, node: Node) -> list[Tensor]:
        """What a node makes and something reads; of a node that makes nothing, what it reads."""
        if node.outputs:
            return [node.out(port) for port in node.used_ports() or (0,)]
        return [t for t in node.inputs if t.node in self._position and t.node.op not in ops.CONSTANTS]

    def kind(self, tensor: Tensor) -> str:
        """The kind of a value's placement in one word: ``replicate``, ``shard``, ``partial`` and so on; "" if it has none."""
        placement = self._raw(tensor)
        return "" if placement is None else type(placement).__name__.lower()

    def combined(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Those of some values that the cores combine."""
        return [tensor for tensor in tensors if tensor in self.placing.met]

    # ------------------------------------------------------------------ sizes

    def _of_size(self, name: str, size: Size, handed: str) -> Iterator[str]:
        rows = self.placing.d.rows
        proof = self._sizes.proof(size) or handed
        if follows_batch(size):
            yield f"{name} is {self.placing.final(size)}, where b is the rows of the batch: {proof}"
        elif self.placing.d.sizes.at(size) == rows:
            proof = proof if isinstance(size, Unknown) else "a number of the model"
            yield f"{name} is {rows}, and not the rows of the batch: {proof}"

    def _handed_on(self, tensor: Tensor) -> str:
        d = self.placing.d
        names = [f"'{t}'" for t in tensor.node.inputs if any(map(follows_batch, _sizes_of(d, t)))]
        return f"handed on from {' and '.join(names[:2])}" if names else f"as '{tensor.node.name}' makes it"

    # ------------------------------------------------------------------ placements

    def reason(self, tensor: Tensor) -> Reason:
        """One link of the chain: where a value lives, the rule that says so, and every operand that had a part in it."""
        node, placement = tensor.node, self._raw(tensor)
        words = "no value reaches it" if placement is None else str(placement)
        because = self._because(tensor)
        if tensor in self.placing.met:
            because += f"; then combined, since {self._reader(tensor)} reads it whole"
        operands = self.deciding(tensor, everything=True)
        return Reason(str(tensor), node.op, words, because, tuple(map(str, operands)))

    def _because(self, tensor: Tensor) -> str:
        node, verdict = tensor.node, self.placing.verdicts.get(tensor.node)
        if tensor in self.placing.seeds:
            return self._of_seed(self.placing.seeds[tensor])
        if node.op in ops.CONSTANTS:
            lines = self.dimensions(tensor)
            return f"a constant: {lines[0]}" if self._raw(tensor) != REPLICATE else "a constant"
        if node not in self._position:
            return "a variable" if node.op in ops.VARIABLES else "made outside of the device part, for all cores alike"
        if verdict is None:
            return "nothing that it reads has a value"
        whole = [str(node.inputs[i]) for i, want in verdict.wants.items() if isinstance(want, Replicate)]
        why = verdict.why or self._default(node, tensor)
        return why + (f", and reads '{whole[0]}' whole" if whole else "")

    def _of_seed(self, placement: Placement) -> str:
        rows = self.placing.d.rows
        if isinstance(placement, Shard):
            return f"the input: its first dimension has the {rows} rows of a core's batch"
        if isinstance(placement, Entries):
            return "the input: any number of entries for each row"
        if isinstance(placement, PerCore):
            return "the input, with no dimension of rows"
        return "it comes from the host, and not from the input: all cores are given the same"

    def _default(self, node: Node, tensor: Tensor) -> str:
        """What is meant where a rule says nothing."""
        if all(isinstance(self.placing.read(t), Replicate) for t in node.inputs):
            return "all that it reads is the same on every core" if node.inputs else "it reads nothing"
        if isinstance(self._raw(tensor), Replicate):
            return "it reads whole values"
        return f"as {node.op} hands it on"

    def _reader(self, tensor: Tensor) -> str:
        """The node for which a value is reduced: it asks for this one, or for one that is linear in it."""
        pending, seen = [tensor], {tensor}
        for at in pending:  # grows while it is walked
            if at in self._asking:
                return f"'{self._asking[at].name}' ({self._asking[at].op})"
            readers = [use.node for use in at.node.uses(at.port)]
            new = [r.out(p) for r in readers for p in range(len(r.outputs or ())) if r.out(p) not in seen]
            seen.update(new)
            pending += new
        return "a reader"

    def _raw(self, tensor: Tensor) -> Placement | None:
        """How a value comes out of its node."""
        made = self.placing.made(tensor)
        return made if made is not None else self.placing.read(tensor)

    def deciding(self, tensor: Tensor, *, everything: bool = False) -> list[Tensor]:
        """The operands that decided a placement; those that are read otherwise than they live only where no other did."""
        node, placement = tensor.node, self._raw(tensor)
        verdict = self.placing.verdicts.get(node)
        if node not in self._position or tensor in self.placing.seeds or verdict is None:
            return []
        found = [t for t in node.inputs if self._decides(t, placement)]
        if not isinstance(placement, Held):
            found += [t for handle in node.inputs for t in self._put_in(handle, node)]
        if everything or not found:
            found += [node.inputs[index] for index in verdict.wants]
        return list(dict.fromkeys(found or self._remaining(node, placement)))

    def _decides(self, operand: Tensor, made: Placement | None) -> bool:
        placement = self._raw(operand)
        if isinstance(made, Replicate):
            return isinstance(placement, Partial) and operand in self.placing.met
        if isinstance(placement, Sized | Held):
            return type(placement) is type(made)
        return placement is not None and not isinstance(placement, Replicate)

    def _remaining(self, node: Node, made: Placement | None) -> list[Tensor]:
        """Where no operand stands out: sizes of what is sharded, else what is the same on every core and no constant."""
        if not isinstance(made, Replicate | None):
            return [t for t in node.inputs if isinstance(self._raw(t), Sized | Held)]
        return [t for t in node.inputs if t.node.op not in ops.CONSTANTS]

    def _put_in(self, handle: Tensor, reader: Node) -> Iterator[Tensor]:
        """What was put into the container that an operand is a handle of."""
        placement = self.placing.read(handle)
        if not isinstance(placement, Held) or reader.op not in ops.TAKES_OUT:
            return
        for node in self.placing.users(placement.key):
            if node is not reader and node.op not in ops.TAKES_OUT:
                yield from (t for t in node.inputs if not isinstance(self._raw(t), Held | Replicate | None))


def _sizes_of(d: Dimensions, tensor: Tensor) -> list[Size]:
    return [*(d.dims(tensor) or ()), *(e for e in d.elements(tensor) or () if e is not None)]


def _collapsed(found: Sequence[Reason]) -> Iterator[Reason]:
    """The chain with one line for the middle of many links that are alike."""
    start = 0
    while start < len(found):
        end = start
        while end < len(found) and (found[end].placement, found[end].because) == (
            found[start].placement,
            found[start].because,
        ):
            end += 1
        if end - start <= _MOST_ALIKE:
            yield from found[start:end]
        else:
            yield found[start]
            kinds = ", ".join(dict.fromkeys(link.op for link in found[start + 1 : end - 1]))
            yield Reason("", "", "", f"{end - start - 2} more for the same reason: {kinds}")
            yield found[end - 1]
        start = end


class _Proofs:
    """How sizes were found to be what they are."""

    def __init__(self, d: Dimensions) -> None:
        self._d = d
        self._beside: dict[Unknown, list[tuple[Size, object]]] | None = None

    def proof(self, size: Size) -> str:
        """The nodes and the evidence that tie a size to one that is known, nearest first; "" where it is known itself."""
        if not isinstance(size, Unknown):
            return ""
        before: dict[Unknown, tuple[Unknown, object] | None] = {size: None}
        pending = [size]
        for at in pending:  # grows while it is walked
            for other, place in self._neighbours().get(at, ()):
                if not isinstance(other, Unknown):
                    return self._words(at, place, before)
                if other not in before:
                    before[other] = (at, place)
                    pending.append(other)
        return ""

    def _words(self, at: Unknown, last: object, before: Mapping[Unknown, tuple[Unknown, object] | None]) -> str:
        places = [self._d.reasons.get(at, last)]
        while (link := before[at]) is not None:
            at = link[0]
            places.append(link[1])
        nodes = list(dict.fromkeys(f"'{p.name}' ({p.op})" for p in reversed(places) if isinstance(p, Node)))
        words = [str(p) for p in reversed(places) if isinstance(p, str)]
        left_out = [f"{len(nodes) - _MOST_TIES} more"] if len(nodes) > _MOST_TIES else []
        tied = ["tied by " + ", ".join([*nodes[:_MOST_TIES], *left_out])] if nodes else []
        return "; ".join(dict.fromkeys([*tied, *words]))

    def _neighbours(self) -> dict[Unknown, list[tuple[Size, object]]]:
        if self._beside is None:
            self._beside = {}
            for a, b, place in self._d.sizes.ties:
                for one, other in ((a, b), (b, a)):
                    if isinstance(one, Unknown):
                        self._beside.setdefault(one, []).append((other, place))
        return self._beside
