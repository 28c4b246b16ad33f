"""Inputs of nodes as text (``name``, ``name:port``, ``^name``) become tensors and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tpugraph.ir.door import Wired
from tpugraph.ir.node import Node, Tensor
from tpugraph.support.errors import LoadError

_PORT = re.compile(r"\d{1,9}")


def wire(wired: Iterable[tuple[Node, Sequence[str]]], by_name: Mapping[str, Node], source: str) -> Iterator[Wired]:
    """Each node with its inputs and what it waits for; what many nodes name alike is looked up once."""
    tensors: dict[str, Tensor] = {}
    waits: dict[tuple[str, ...], tuple[Node, ...]] = {}
    for node, texts in wired:
        inputs: list[Tensor] = []
        controls: tuple[Node, ...] = ()
        for index, text in enumerate(texts):
            tensor = tensors.get(text)
            if tensor is None:
                if text.startswith("^"):
                    names = tuple(texts[index:])
                    controls = waits.get(names) or waits.setdefault(names, _waited(names, by_name, node, source))
                    break
                tensor = tensors[text] = _tensor(text, by_name, node, source)
            inputs.append(tensor)
        yield node, tuple(inputs), controls


def _tensor(text: str, by_name: Mapping[str, Node], node: Node, source: str) -> Tensor:
    producer = by_name.get(text)
    if producer is not None:
        return Tensor(producer, 0)
    base, _, port = text.rpartition(":")
    producer = _producer(by_name, base or text, node, source)
    if not _PORT.fullmatch(port):
        raise LoadError(f"the input '{text}' names no output", node=node, origin=source, fix="write the graph again")
    return Tensor(producer, int(port))


def _waited(names: Sequence[str], by_name: Mapping[str, Node], node: Node, source: str) -> tuple[Node, ...]:
    found = dict.fromkeys([by_name.get(name[1:]) if name[:1] == "^" else None for name in names])
    if None not in found:
        return tuple(found)  # type: ignore[arg-type]  # None is none of them
    for name in names:
        _producer(by_name, name.removeprefix("^").partition(":")[0], node, source)
    wrong = next(name for name in names if name[:1] != "^" or name[1:] not in by_name)
    fault = (
        "names an output, which a control input has not"
        if wrong[:1] == "^"
        else "stands behind a control input, where TensorFlow takes none"
    )
    raise LoadError(f"the input '{wrong}' {fault}", node=node, origin=source, fix="write the graph again")


def _producer(by_name: Mapping[str, Node], name: str, consumer: Node, source: str) -> Node:
    producer = by_name.get(name)
    if producer is None:
        raise LoadError(
            f"the input '{name}' is not in the graph",
            node=consumer,
            origin=source,
            fix="the file is cut off or was edited by hand: write it again",
        )
    return producer
