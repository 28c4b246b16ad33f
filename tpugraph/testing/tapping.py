"""Taps: the values of a converted graph's tensors, on each core and in each step, as the host receives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph import analysis, ops
from tpugraph.analysis import HOST_DEVICE, by_core
from tpugraph.analysis.shapes import is_static
from tpugraph.ir import Graph, Node, Tensor
from tpugraph.ir.attrs import SIZE_OF
from tpugraph.ir.conditionals import sides
from tpugraph.support.errors import RunError

Array = np.ndarray[Any, Any]


class Taps:
    """Sends tensors of the step over the outfeed as well, and keeps what arrives.

    Any engine runs the graph afterwards: emulated cores and compiled ones send what they send.

    Args:
        graph: a TPU graph with shapes; edited in place.
        tensors: tensors that :func:`can_tap` names.

    Attributes:
        steps: of each step, by the name of a tensor, its value on each core.
    """

    def __init__(self, graph: Graph, tensors: Sequence[Tensor]) -> None:
        self._names = [str(tensor) for tensor in tensors]
        self._arrived: list[list[list[Array]]] = []
        self._functions = tf.Graph()  # keeps the functions alive that the taps call
        enqueue = graph.of_type("OutfeedEnqueueTuple")[0]
        dequeues = by_core(graph.of_type("OutfeedDequeueTuple"))
        first = len(enqueue.inputs)
        sent = [*enqueue.inputs, *tensors]
        graph.set_inputs(enqueue, sent)
        graph.set_attr(enqueue, "dtypes", [tensor.dtype for tensor in sent])
        for core, dequeue in enumerate(dequeues):
            arrived: list[list[Array]] = []
            self._arrived.append(arrived)
            self._tap(graph, dequeue, tensors, f"core_{core}", arrived)
            assert len(dequeue.outputs or ()) == first + len(tensors)

    @property
    def steps(self) -> list[dict[str, list[Array]]]:
        """What arrived so far."""
        return [
            {name: [core[index] for core in cores] for index, name in enumerate(self._names)}
            for cores in zip(*self._arrived, strict=True)
        ]

    def _tap(
        self, graph: Graph, dequeue: Node, tensors: Sequence[Tensor], name: str, arrived: list[list[Array]]
    ) -> None:
        """Let the host receive the tensors of a core, and call back with them."""
        readers = dequeue.consumers()
        made = [(tensor.dtype, tensor.shape) for tensor in tensors]
        outputs = [*(dequeue.outputs or ()), *made]
        graph.set_attr(dequeue, "dtypes", [kind for kind, _ in outputs])
        graph.set_attr(dequeue, "shapes", [shape for _, shape in outputs])
        graph.set_outputs(dequeue, outputs)
        received = [dequeue.out(len(outputs) - len(made) + index) for index in range(len(made))]
        call = graph.add("PyFunc", f"tpugraph/taps/{name}", received, outputs=[], device=HOST_DEVICE,
                         attrs={"token": self._token(lambda *values: _keep(arrived, values)),
                                "Tin": [kind for kind, _ in made], "Tout": []})  # fmt: skip
        for reader in readers:
            graph.add_control(reader, call)

    def _token(self, function: Callable[..., None]) -> str:
        """The name under which TensorFlow calls a Python function."""
        with self._functions.as_default():
            tf.numpy_function(function, [np.float32(0)], [])
        call = next(op for op in reversed(self._functions.get_operations()) if op.type == "PyFunc")
        return str(call.get_attr("token").decode())


def _keep(arrived: list[list[Array]], values: Sequence[Any]) -> None:
    arrived.append([np.array(value) for value in values])


def can_tap(graph: Graph) -> dict[str, Tensor]:
    """The tensors of the device's step that can be sent to the host, by name.

    That is what each core makes once a step, of a fixed shape: nothing inside of loops and branches, no handles.

    Raises:
        RunError: the graph sends nothing to a host, since it was not converted for training.
    """
    sends = graph.of_type("OutfeedEnqueueTuple")
    if len(sends) != 1:
        raise RunError("the graph has no outfeed: it is no converted training graph", origin=graph.source)
    frame_of, device = analysis.frames(graph), analysis.cluster_nodes(graph)
    frame, behind = frame_of[sends[0]], graph.descendants(sends)
    on = sides(graph)
    found: dict[str, Tensor] = {}
    for node in device:
        if frame_of[node] != frame or node in behind or node in on or node.op in _NO_VALUES:
            continue
        for port, (kind, shape) in enumerate(node.outputs or ()):
            if kind.name in SIZE_OF and not kind.ref and is_static(shape):
                found[str(node.out(port))] = node.out(port)
    return found


_NO_VALUES = ops.SWITCH | ops.EXIT | ops.CONSTANTS
"""What hands on to one side alone, what leaves a loop inside of the step's own frame, and what is no news."""
