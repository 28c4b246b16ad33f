"""Graphs as text, one line per node; prints and parses back.

    dense/MatMul = MatMul(x:1, dense/kernel/read) ^init {transpose_a: false} @/device:CPU:0 : float32[16,10]

The form serves golden tests, dumps and ``inspect``; large constants are shown by shape and digest and do not parse back.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Edits, Graph, Node, Output
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.attrs import DType, Func
from tpugraph.ir.builder import operand_attrs, output_dtypes
from tpugraph.support.errors import GraphError, LoadError

_LARGEST_CONSTANT = 64  # elements; larger ones are shown by digest
_LARGEST_DIGEST = 2**28  # bytes; a larger splat is not expanded for a digest


def format_graph(
    graph: Graph, nodes: Iterable[Node] | None = None, *, outputs: bool = True, implied: bool = True
) -> str:
    """The graph as text, a line per node in graph order.

    Args:
        nodes: the nodes; all where None.
        outputs: whether known dtypes and shapes are added, the attribute ``_output_shapes`` included.
        implied: whether attributes are added that the op's defaults or the operands imply.

    Example:
        >>> print(format_graph(parse_graph("x = Test()")), end="")
        x = Test()
    """
    without = {} if implied else implied_attrs(graph)
    chosen = graph if nodes is None else nodes
    return "".join(format_node(node, outputs=outputs, without=without.get(node)) + "\n" for node in chosen)


def format_node(node: Node, *, outputs: bool = True, without: Mapping[str, Any] | None = None) -> str:
    """One node as one line; ``without`` are encoded attributes to leave out where the node has these values."""
    parts = [f"{node.name} = {node.op}({', '.join(map(str, node.inputs))})"]
    parts.extend(f"^{control.name}" for control in node.controls)
    keys = sorted(key for key, value in node.raw_attrs.items() if not without or without.get(key) != value)
    if not outputs:
        keys = [key for key in keys if key != "_output_shapes"]
    if keys:
        parts.append("{" + ", ".join(f"{key}: {format_value(node.attr(key))}" for key in keys) + "}")
    if node.device:
        parts.append(f"@{node.device}")
    if outputs and node.outputs:
        parts.append(": " + ", ".join(format_output(output) for output in node.outputs))
    return " ".join(parts)


def format_output(output: Output) -> str:
    """Dtype and shape, such as ``float32[16,?]``; ``float32[...]`` where the rank is unknown."""
    kind, shape = output
    dims = "..." if shape is None else ",".join("?" if d is None else str(d) for d in shape)
    return f"{kind}[{dims}]"


def format_value(value: Any) -> str:
    """The text of an attribute's Python value; a large constant by its shape and digest, or its single value."""
    if isinstance(value, np.ndarray):
        kind = value.dtype.name
        dims = ",".join(map(str, value.shape))
        if value.nbytes > _LARGEST_DIGEST and not any(value.strides):  # a splat, stored once
            return f"{kind}[{dims}] all {value[(0,) * value.ndim]}"
        if value.size > _LARGEST_CONSTANT:
            raw = repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes()
            return f"{kind}[{dims}]#{hashlib.sha256(raw).hexdigest()[:12]}"
        listed = value.tolist()
        if value.dtype == object:
            listed = json.loads(json.dumps(listed, default=lambda b: b.decode("latin-1")))
        return f"{kind}[{dims}]{json.dumps(listed)}"
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ",".join("?" if d is None else str(d) for d in value) + "]"
    if value is None:
        return "[...]"
    if isinstance(value, Func):
        return f"&{value.name}"
    if isinstance(value, bytes):
        return json.dumps(value.decode("latin-1"))
    if isinstance(value, list):
        return "(" + "; ".join(format_value(item) for item in value) + ")"
    return json.dumps(value)


def changed_lines(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The lines of two texts that differ: ``-`` before, ``+`` after."""
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return [f"{line[0]} {line[1:]}" for line in lines if not line.startswith(("---", "+++", "@@"))]


_LINE = re.compile(
    r"(?P<name>[^\s=]+) = (?P<op>\w+)\((?P<inputs>[^)]*)\)(?P<controls>(?: \^\S+)*)"
    r"(?: \{(?P<attrs>.*)\})?(?: @(?P<device>\S+))?(?: : (?P<outputs>.+))?$"
)
_OUTPUT = re.compile(r"(\w+)\[([^\]]*)\]")


def parse_graph(text: str) -> Graph:
    """A graph from its text; the inverse of :func:`format_graph`. Blank lines and ``#`` lines are skipped.

    Example:
        >>> len(parse_graph("x = Test()\\ny = Test(x) ^x {T: float32}"))
        2

    Raises:
        LoadError: a line that is not a node, with its number.
    """
    graph = Graph()
    wiring: list[tuple[Node, str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise LoadError(
                f"line {number} is not a node: {line[:60]}", fix="write 'name = Op(inputs) ^controls {attrs}'"
            )
        items = (item.partition(":") for item in _split(match["attrs"] or "", ","))
        attrs = {key.strip(): _parse_value(value.strip(), number) for key, _, value in items}
        node = graph.add(match["op"], match["name"], attrs=attrs, device=match["device"] or "")
        if match["outputs"]:
            found = _OUTPUT.findall(match["outputs"])
            node.outputs = [(attr_codec.dtype(kind), _parse_shape(dims)) for kind, dims in found]
        wiring.append((node, match["inputs"], match["controls"]))
    for node, inputs, controls in wiring:
        tensors = [graph.tensor(name.strip()) for name in inputs.split(",") if name.strip()]
        graph.set_inputs(node, tensors)
        graph.set_controls(node, [graph[name[1:]] for name in controls.split()])
    for node, attrs in implied_attrs(graph).items():
        for key, value in attrs.items() if node.inputs else ():
            if key not in node.raw_attrs and value != attr_codec.definition(node.op).defaults.get(key):
                graph.set_attr(node, key, value)
    graph.edits = Edits()
    graph.take_touched()
    return graph


def implied_attrs(graph: Graph) -> dict[Node, dict[str, Any]]:
    """For each node the encoded attributes that its op's defaults or its operands' dtypes imply; a line may omit them."""
    found: dict[Node, dict[str, Any]] = {}
    dtypes: dict[Node, list[DType]] = {n: [kind for kind, _ in n.outputs] for n in graph if n.outputs is not None}
    for node in graph:
        definition = attr_codec.definition(node.op) if ops.op_def(node.op) is not None else None
        if definition is None or len(node.inputs) < sum(not argument.several for argument in definition.inputs):
            continue
        known = [dtypes.get(tensor.node, [])[tensor.port : tensor.port + 1] for tensor in node.inputs]
        operands = [attr_codec.dtype(kind[0].name) if kind else None for kind in known]
        decided = operand_attrs(node.op, operands, {}).items()
        found[node] = {**definition.defaults, **{key: attr_codec.encode(value) for key, value in decided}}
        if node not in dtypes:
            with contextlib.suppress(GraphError):  # an attribute that is not implied
                dtypes[node] = output_dtypes(node.op, {**found[node], **node.raw_attrs})
    return found


def _parse_shape(dims: str) -> tuple[int | None, ...] | None:
    if dims == "...":
        return None
    return tuple(None if d == "?" else int(d) for d in dims.split(",") if d)


def _split(text: str, separator: str) -> list[str]:
    """Split at a separator outside brackets and strings."""
    items: list[str] = []
    depth, quoted, start = 0, False, 0
    for i, char in enumerate(text):
        if char == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == separator and not depth:
            items.append(text[start:i].strip())
            start = i + 1
    items.append(text[start:].strip())
    return [item for item in items if item]


_ARRAY = re.compile(r"(\w+)\[([\d,]*)\](.+)$")


def _parse_value(text: str, number: int) -> Any:
    if text.startswith("("):
        return [_parse_value(item, number) for item in _split(text[1:-1], ";")]
    if text.startswith("&"):
        return Func(text[1:])
    array = _ARRAY.match(text)
    if array and array[3].startswith("#"):
        raise LoadError(f"line {number}: a constant shown by its digest cannot be read back")
    if array:
        shape = [int(d) for d in array[2].split(",") if d]
        return np.array(json.loads(array[3]), dtype=array[1]).reshape(shape)
    if text.startswith("["):
        return attr_codec.encode_shape(_parse_shape(text[1:-1]))
    if re.fullmatch(r"[a-z]\w*", text) and text not in ("true", "false"):
        return attr_codec.dtype(text)
    return json.loads(text)
