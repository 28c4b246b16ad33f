"""Fingerprints: whether two traced graphs are the same but for the numbers that TensorFlow puts into names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

_PASSING = frozenset({"metadata", "_output_shapes"})
"""Attributes that differ from trace to trace and change nothing."""


def fingerprint(graph_def: Any) -> bytes:
    """A digest of a GraphDef; functions are known by the order in which they are called, not by their name.

    A Python function in the graph has a token of its own in each trace, so a graph with one is never the same again.
    """
    copied = type(graph_def)()
    copied.CopyFrom(graph_def)
    functions = {function.signature.name: function for function in copied.library.function}
    order: dict[str, str] = {}
    digest = hashlib.sha256()
    for node in copied.node:
        digest.update(_canonical(node, functions, order))
    done = 0
    while done < len(order):  # a function's body may call more of them
        function = functions[list(order)[done]]
        done += 1
        digest.update(str([(a.name, a.type) for a in function.signature.input_arg]).encode())
        for node in function.node_def:
            digest.update(_canonical(node, functions, order))
        digest.update(str(sorted(function.ret.items())).encode())
    return digest.digest()


def _canonical(node: Any, functions: dict[str, Any], order: dict[str, str]) -> bytes:
    node.ClearField("experimental_debug_info")
    node.op = _known_as(node.op, functions, order)
    for key in [key for key in node.attr if key in _PASSING]:
        del node.attr[key]
    for key in sorted(node.attr):
        for called in _called(node.attr[key]):
            called.name = _known_as(called.name, functions, order)
    return bytes(node.SerializeToString(deterministic=True))


def _known_as(name: str, functions: dict[str, Any], order: dict[str, str]) -> str:
    if name not in functions:
        return name
    return order.setdefault(name, f"function_{len(order)}")


def _called(value: Any) -> Iterator[Any]:
    """The functions in an attribute, and in their own attributes."""
    kind = value.WhichOneof("value")
    found = [value.func] if kind == "func" else value.list.func if kind == "list" else ()
    for function in found:
        yield function
        for inner in sorted(function.attr):
            yield from _called(function.attr[inner])
