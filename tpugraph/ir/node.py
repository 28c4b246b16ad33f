"""Nodes and tensors: what a graph is made of, with the use-list of each node."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple, Self

from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import DType, Shape
from tpugraph.support.errors import GraphError

_new = tuple.__new__  # a third of the time of Tensor(...), which counts where tensors of every node are made

Output = tuple[DType, Shape]
"""What is known of one output of a node: its dtype and its static shape."""


PLACE = attrgetter("_place")
"""What nodes are sorted by into the order of their graph."""


class Tensor(NamedTuple):
    """One output of a node."""

    node: Node
    port: int

    @property
    def dtype(self) -> DType:
        """The element type; raises GraphError before shape inference."""
        return self.node.output(self.port)[0]

    @property
    def shape(self) -> Shape:
        """The static shape; raises GraphError before shape inference."""
        return self.node.output(self.port)[1]

    def __str__(self) -> str:
        return self.node.name if self.port == 0 else f"{self.node.name}:{self.port}"

    def __repr__(self) -> str:
        return f"<{self}>"


class Use(NamedTuple):
    """One place where a tensor is read: input ``index`` of ``node``."""

    node: Node
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a use


class Wait:
    """What nodes wait for together, and these nodes: thousands that wait for the same hundreds need no edge each."""

    __slots__ = ("controls", "nodes")

    def __init__(self, controls: tuple[Node, ...]) -> None:
        self.controls = controls
        self.nodes: dict[Node, None] = {}


Wired = tuple["Node", tuple[Tensor, ...], tuple["Node", ...]]
"""A node with its inputs and what it waits for."""


assign = object.__setattr__
"""Sets a field of a node; for the graph alone, which keeps what hangs together with it."""

_OF_THE_GRAPH = {
    "op": "retype(node, op)",
    "name": "add(op, name), and replace_uses",
    "device": "set_device(node, device)",
    "inputs": "set_inputs(node, tensors)",
    "controls": "set_controls(node, nodes)",
}
"""What only the graph sets, and how."""


class _Fields:
    """The fields of a node, which may be set as long as it is one of these: while it is made."""

    op: str
    name: str
    device: str
    inputs: tuple[Tensor, ...]
    controls: tuple[Node, ...]
    outputs: list[Output] | None
    origin: str | None
    made_by: str | None
    _attrs: dict[str, Any]
    _place: int
    _uses: dict[Use, int]
    _written: Any
    _wait: Wait | None
    _awaited: dict[Wait, None]

    __slots__ = tuple(__annotations__)


class Node(_Fields):
    """One operation. Read its fields; change it through :class:`Graph` only.

    Attributes:
        device: the device string, "" where none is asked for.
        outputs: dtype and shape of each output, or None before shape inference.
        origin: name of the node in the user's graph that this one was made for, or None for an original node.
        made_by: name of the pass that made it, or None.
    """

    __slots__ = ()

    def __new__(cls, op: str, name: str, device: str, attrs: dict[str, Any]) -> Self:
        """Make a node; its fields are set before it is a Node, since each that is set on a Node is looked at."""
        node = _Fields()
        node.op = op
        node.name = name
        node.device = device
        node.inputs = ()
        node.controls = ()
        node.outputs = None
        node.origin = None
        node.made_by = None
        node._attrs = attrs
        node._place = 0  # among the nodes of its graph
        node._uses = {}
        node._written = None  # as graphdef wrote it last, while op, inputs and attributes are those
        node._wait = None
        node._awaited = {}
        node.__class__ = cls  # which has no fields beside these
        return node  # type: ignore[return-value]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OF_THE_GRAPH:
            raise GraphError(f"the {name} of a node cannot be set", node=self,
                             fix=f"graph.{_OF_THE_GRAPH[name]}, which keeps the graph whole")  # fmt: skip
        assign(self, name, value)

    def out(self, port: int = 0) -> Tensor:
        """Output ``port`` as a tensor."""
        return _new(Tensor, (self, port))

    def output(self, port: int) -> Output:
        """Dtype and shape of output ``port``.

        Raises:
            GraphError: shapes were not inferred, or there is no such output.
        """
        if self.outputs is None or port >= len(self.outputs):
            raise GraphError(f"output {port} is unknown", node=self)
        return self.outputs[port]

    def attr(self, name: str, default: Any = None) -> Any:
        """The Python value of attribute ``name`` (see :func:`tpugraph.ir.attrs.decode`)."""
        value = self._attrs.get(name)
        return default if value is None else attr_codec.decode(value)

    def has_attr(self, name: str) -> bool:
        """Whether the attribute is set."""
        return name in self._attrs

    @property
    def raw_attrs(self) -> Mapping[str, Any]:
        """Attributes as protobufs, read-only."""
        return self._attrs

    def uses(self, port: int | None = None) -> list[Use]:
        """The reads of one output, or of all of them, as a snapshot: editing while iterating is safe."""
        return [use for use, p in self._uses.items() if port is None or p == port]

    def used_ports(self) -> list[int]:
        """The outputs that something reads, in ascending order."""
        return sorted(set(self._uses.values()))

    def control_uses(self) -> list[Node]:
        """The nodes that wait for this one, as a snapshot in graph order."""
        return sorted([node for wait in self._awaited for node in wait.nodes], key=PLACE)

    def awaited(self) -> list[Wait]:
        """Who waits for this one, in groups that wait for the same nodes; for analyses that look at each group once."""
        return list(self._awaited)

    def consumers(self) -> list[Node]:
        """Every node that reads or waits for this one, each once."""
        found = dict.fromkeys([node for node, _ in self._uses])
        if self._awaited:
            found.update(dict.fromkeys(self.control_uses()))
        return list(found)

    def producers(self) -> list[Node]:
        """Every node that this one reads or waits for, each once."""
        return list(dict.fromkeys([*[t.node for t in self.inputs], *self.controls]))

    def __str__(self) -> str:
        return f"{self.name} ({self.op})"

    def __repr__(self) -> str:
        return f"<{self}>"
