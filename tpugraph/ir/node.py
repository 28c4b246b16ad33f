"""Nodes and tensors, with the use-list of each node, and their wiring from the texts of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import DType, Shape
from tpugraph.support.errors import GraphError

_new = tuple.__new__  # a third of the time of Tensor(...), which matters for the tensors of every node

Output = tuple[DType, Shape]
"""Dtype and static shape of an output."""


PLACE = attrgetter("_place")
"""Sort key for the order of the graph."""


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
    """A read of a tensor: input ``index`` of ``node``."""

    node: Node
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a use


class Wait:
    """A set of control inputs with the nodes that share it: thousands of nodes with the same hundreds need no edges each."""

    __slots__ = ("controls", "nodes")

    def __init__(self, controls: tuple[Node, ...]) -> None:
        self.controls = controls
        self.nodes: dict[Node, None] = {}


Wired = tuple["Node", tuple[Tensor, ...], tuple["Node", ...]]
"""A node with its data and control inputs."""


assign = object.__setattr__
"""Sets a field of a node; only for Graph, which maintains dependent state."""

_OF_THE_GRAPH = {
    "op": "retype(node, op)",
    "name": "add(op, name), and replace_uses",
    "device": "set_device(node, device)",
    "inputs": "set_inputs(node, tensors)",
    "controls": "set_controls(node, nodes)",
}
"""The Graph method that sets each field."""


class Node:
    """An operation. Its fields are read-only; :class:`Graph` changes it.

    Attributes:
        device: the device string, "" for none.
        outputs: dtype and shape of each output, or None before shape inference.
        origin: name of the node in the user's graph that this one was made for, or None for an original node.
        made_by: name of the pass that made it, or None.
    """

    op: str
    name: str
    device: str
    inputs: tuple[Tensor, ...]
    controls: tuple[Node, ...]
    outputs: list[Output] | None
    origin: str | None
    made_by: str | None
    _attrs: dict[str, Any]
    _place: int  # its position in the graph
    _uses: dict[Use, int]
    _definition: Any  # its NodeDef as shape inference last read it
    _wait: Wait | None
    _awaited: dict[Wait, None]

    __slots__ = tuple(__annotations__)

    def __init__(self, op: str, name: str, device: str, attrs: dict[str, Any]) -> None:
        assign(self, "op", op)
        assign(self, "name", name)
        assign(self, "device", device)
        assign(self, "inputs", ())
        assign(self, "controls", ())
        assign(self, "outputs", None)
        assign(self, "origin", None)
        assign(self, "made_by", None)
        assign(self, "_attrs", attrs)
        assign(self, "_place", 0)
        assign(self, "_uses", {})
        assign(self, "_definition", None)
        assign(self, "_wait", None)
        assign(self, "_awaited", {})

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
        """The outputs with readers, in ascending order."""
        return sorted(set(self._uses.values()))

    def control_uses(self) -> list[Node]:
        """The nodes with control edges from this one, as a snapshot in graph order."""
        return sorted([node for wait in self._awaited for node in wait.nodes], key=PLACE)

    def consumers(self) -> list[Node]:
        """Every node with a data or control edge from this one, each once."""
        found = dict.fromkeys([node for node, _ in self._uses])
        if self._awaited:
            found.update(dict.fromkeys(self.control_uses()))
        return list(found)

    def producers(self) -> list[Node]:
        """Every node with a data or control edge to this one, each once."""
        return list(dict.fromkeys([*[t.node for t in self.inputs], *self.controls]))

    def __str__(self) -> str:
        return f"{self.name} ({self.op})"

    def __repr__(self) -> str:
        return f"<{self}>"


# --------------------------------------------------------------------------- wiring

_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_>./\\-]*")
_INDEX = re.compile(r"\d{0,9}")

Texts = Sequence[tuple[Node, Sequence[str]]]
"""Nodes with their inputs as a file has them: ``name``, ``name:port``, in functions ``name:output:index``, or ``^name``."""


def wire(read: Texts, first_ports: Callable[[Node], Mapping[str, int] | None] = lambda node: {"": 0}) -> list[Wired]:
    """The nodes with their data and control inputs; equal texts are parsed once.

    ``first_ports`` gives the port of the first tensor of each named output; None where a node's outputs are unknown.

    Raises:
        GraphError: a name that is invalid, taken or not there, or a control input in front of a data input.
    """
    by_name: dict[str, Node] = {}
    tensors: dict[str, Tensor] = {}
    waits: dict[tuple[str, ...], tuple[Node, ...]] = {}

    def find(name: str, text: str) -> Node:
        if name not in by_name:
            raise GraphError(f"the input '{text[:100]}' names no node")
        return by_name[name]

    def tensor(text: str) -> Tensor:
        name, _, rest = text.partition(":")
        output, _, index = ("", "", rest) if rest.isdecimal() else rest.partition(":")
        producer = find(name, text)
        ports = first_ports(producer)
        first = 0 if ports is None else ports.get(output)
        if first is None or not _INDEX.fullmatch(index):
            raise GraphError(f"the input '{text[:100]}' names no output")
        return Tensor(producer, first + int(index or 0))

    def control(text: str) -> Node:
        if text[:1] != "^":
            raise GraphError(f"the input '{text[:100]}' stands behind a control input, where TensorFlow takes none")
        if ":" in text:
            raise GraphError(f"the control input '{text[:100]}' names an output")
        return find(text[1:], text)

    def wired(node: Node, texts: Sequence[str]) -> Wired:
        inputs: list[Tensor] = []
        for index, text in enumerate(texts):
            if text.startswith("^"):
                names = tuple(texts[index:])
                controls = waits.get(names) or waits.setdefault(names, tuple(dict.fromkeys(map(control, names))))
                return node, tuple(inputs), controls
            inputs.append(tensors.get(text) or tensors.setdefault(text, tensor(text)))
        return node, tuple(inputs), ()

    try:
        for node, _ in read:
            if not _NAME.fullmatch(node.name):
                raise GraphError(f"{node.name[:100]!r} is no name of a node")
            if by_name.setdefault(node.name, node) is not node:
                raise GraphError(f"two nodes have the name '{node.name[:100]}'")
        return [wired(node, texts) for node, texts in read]
    except GraphError as error:
        error.node = error.node or str(node)
        raise
