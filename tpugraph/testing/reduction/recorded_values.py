"""Values of a plain graph's tensors at its first batches: what stands where a reduction cuts the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Tensor
from tpugraph.support.errors import TpuGraphError
from tpugraph.testing.checkpoint_pieces import Values
from tpugraph.testing.plain_run import PlainRun

Array = np.ndarray[Any, Any]


class RecordedValues:
    """Computes values when they are asked for, and keeps them.

    The variables have their first values for all batches: nothing is trained. Where the graph cannot be run, since its
    files are not here say, values are made up from the shapes.

    Args:
        graph: the plain graph, with shapes; left as it is.
        batches: how many batches to record.
        start: values of variables by name; the others start as the graph says.
        loss: name of the loss, where the structure does not tell.
        train_op: name of the train op, likewise.

    Attributes:
        made_up: why values are made up, or "".
    """

    def __init__(self, graph: Graph, batches: int, start: Mapping[str, Any], *, loss: str | None = None,
                 train_op: str | None = None) -> None:  # fmt: skip
        self._graph = graph
        self._values: dict[Tensor, list[Array]] = {}
        self._inputs: list[Tensor] = []
        self.made_up = ""
        self._plain: PlainRun | None = None
        self._first: Values = {}
        try:
            self._plain = PlainRun(graph, loss=loss, train_op=train_op)
            self._plain.open(start)
            self._first = self._plain.values(
                list(self._plain.roles.variables)
            )  # now: what is computed later may write them
            self._take(batches)
        except TpuGraphError as error:
            self.made_up = error.fault
            self.close()
        self.batches = len(self._values[self._inputs[0]]) if self._inputs else batches

    def close(self) -> None:
        """Release the session."""
        if self._plain is not None:
            self._plain.close()
            self._plain = None

    def of(self, tensors: Iterable[Tensor]) -> dict[Tensor, list[Array]]:
        """The values of some tensors, of each one for each batch."""
        wanted = [tensor for tensor in dict.fromkeys(tensors) if tensor not in self._values]
        if wanted:
            self._values |= self._computed(wanted)
        return self._values

    def variable(self, name: str) -> Array | None:
        """The first value of a variable; None where it has none."""
        return None if self._plain is None else self._first.get(name)

    def _take(self, batches: int) -> None:
        """Read the first batches of the input."""
        assert self._plain is not None
        takes = [self._graph[finding.name] for finding in self._plain.roles.inputs]
        tensors = [node.out(port) for node in takes for port in range(len(node.outputs or ()))]
        self._inputs = [tensor for tensor in tensors if tensor.dtype.name not in ("resource", "variant")]
        if not self._inputs or any(node.op in ops.PLACEHOLDERS for node in takes):
            raise TpuGraphError("the graph is fed from outside")
        found = self._plain.batches([str(tensor) for tensor in self._inputs], batches)
        if not found:
            raise TpuGraphError("the data hold no batch")
        self._values = {t: [batch[i] for batch in found] for i, t in enumerate(self._inputs)}

    def _computed(self, wanted: list[Tensor]) -> dict[Tensor, list[Array]]:
        if self._plain is None:
            return {tensor: [_made_up(tensor)] * self.batches for tensor in wanted}
        names = [str(tensor) for tensor in wanted]
        rows = []
        try:
            for number in range(self.batches):
                feed = {str(tensor): self._values[tensor][number] for tensor in self._inputs}
                rows.append(self._plain.compute(names, feed))
        except TpuGraphError:  # one of them fails by itself: the others are asked for alone
            if len(wanted) == 1:
                return {wanted[0]: [_made_up(wanted[0])] * self.batches}
            half = len(wanted) // 2
            return self._computed(wanted[:half]) | self._computed(wanted[half:])
        return {tensor: [np.asarray(row[i]) for row in rows] for i, tensor in enumerate(wanted)}


def _made_up(tensor: Tensor) -> Array:
    """Some value of a tensor's dtype and shape; an open dimension has one element."""
    shape = [1 if dim is None else dim for dim in tensor.shape or ()]
    if tensor.dtype.name == "string":
        return np.full(shape, b"text", object)
    count = np.arange(int(np.prod(shape))).reshape(shape)
    return (np.cos(count) if tensor.dtype.floating else count % 2).astype(tensor.dtype.name)
