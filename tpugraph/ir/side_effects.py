"""What a graph does outside of TensorFlow's memory (ops that read or write files, print, call Python or end the process), and the
files that its constants name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph, Node, Tensor, function_library
from tpugraph.support.errors import RunError, UsageError

_WORDS = {"reads": "reads a file", "writes": "writes a file", "prints": "prints", "calls": "calls a Python function",
          "ends": "ends the process"}  # fmt: skip


@dataclass(frozen=True)
class SideEffect:
    """A side effect of a node, or of a function that the node calls."""

    node: str
    op: str  # the op with the side effect
    does: str  # ``reads``, ``writes``, ``prints``, ``calls`` or ``ends``
    files: tuple[str, ...]  # the file names, where they are constants

    @property
    def words(self) -> str:
        return _WORDS[self.does]


def side_effects(graph: Graph, nodes: Iterable[Node]) -> Iterator[SideEffect]:
    chosen = list(nodes)
    for node in chosen:
        if node.op in ops.REACH and not _in_memory(node):
            operand = ops.FILE_OPERANDS.get(node.op, len(node.inputs))
            names = _strings(graph, node.inputs[operand : operand + 1])
            yield SideEffect(str(node), node.op, ops.REACH[node.op], names)
    for node in function_library.callers(graph, chosen):
        for name, function in function_library.used_by(graph, [node]).items():
            yield from _side_effects_in(graph, node, name, function)


def _side_effects_in(graph: Graph, caller: Node, name: str, function: Any) -> Iterator[SideEffect]:
    """The side effects of a function; file names are its constants or its arguments."""
    found = [definition for definition in function.node_def if definition.op in ops.REACH]
    if not found:
        return
    names = _texts(_strings_in([function])) or _strings(graph, caller.inputs)
    for definition in found:
        where = f"{definition.name} ({definition.op}) in the function '{name}'"
        yield SideEffect(where, definition.op, ops.REACH[definition.op], names)


def refuse_to_end(graph: Graph) -> None:
    """Raise a RunError where the graph has an op, such as Abort, that ends the process."""
    for found in side_effects(graph, graph):
        if found.does == "ends":
            raise RunError("an op of the graph ends the process when it runs", node=found.node, origin=graph.source,
                           fix="remove it from the graph")  # fmt: skip


def files_touched(graph: Graph) -> dict[str, list[str]]:
    """The files that a graph reads and writes at run time, under ``reads`` and ``writes``, each once.

    A file name is a string constant; a computed name is given by its node.
    """
    found: dict[str, dict[str, None]] = {}
    for one in side_effects(graph, graph):
        if one.does in ("reads", "writes") and not one.node.startswith(
            "tpugraph/"
        ):  # checkpoints are listed separately
            found.setdefault(one.does, {}).update(dict.fromkeys(one.files or [f"what {one.node} names"]))
    return {does: sorted(names) for does, names in found.items()}


def _in_memory(node: Node) -> bool:
    """Whether a cache dataset is in memory: it names no file."""
    if ops.record(node.op).elements != "cached" or len(node.inputs) < 2:
        return False
    name = node.inputs[1].node
    return name.op in ops.CONSTANTS and not any(name.attr("value").ravel().tolist())


def _strings(graph: Graph, tensors: Iterable[Tensor]) -> tuple[str, ...]:
    """The string constants that tensors are computed from."""
    return _texts(_constants(graph.ancestors([tensor.node for tensor in tensors], data_only=True)).values())


def _texts(constants: Iterable[Iterable[bytes]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value.decode("utf-8", "replace") for held in constants for value in held if value))


def _constants(nodes: Iterable[Node]) -> dict[Node, list[bytes]]:
    found = (node for node in nodes if node.op in ops.CONSTANTS and node.attr("dtype").name == "string")
    return {node: node.attr("value").ravel().tolist() for node in found}


def _strings_in(functions: Iterable[Any]) -> list[Any]:
    """The values of the string constants of library functions, mutable."""
    nodes = (node for function in functions for node in function.node_def if node.op in ops.CONSTANTS)
    return [node.attr["value"].tensor.string_val for node in nodes]


def rebind_files(graph: Graph, names: Mapping[str, str]) -> None:
    """Replace string constants that equal an old file name, in the graph and in its functions."""
    for old, new in ((old.encode(), new.encode()) for old, new in names.items()):
        held = {node: values for node, values in _constants(graph.of_type(*ops.CONSTANTS)).items() if old in values}
        for node, values in held.items():
            value = np.asarray([new if v == old else v for v in values], dtype=object)
            graph.set_attr(node, "value", value.reshape(node.attr("value").shape))
        functions = function_library.functions_named(graph).values()
        inside = [values for values in _strings_in(functions) if old in values]
        for values in inside:
            values[:] = [new if v == old else v for v in values]
        if not held and not inside:
            known = ", ".join(sorted(file_names(graph))[:5]) or "none"
            raise UsageError(f"no constant of the graph holds the file name '{old.decode()}'", origin=graph.source,
                             fix=f"file names in the graph: {known}")  # fmt: skip


def file_names(graph: Graph) -> set[str]:
    """String constants of the graph and of its functions that look like file names."""
    of_checkpoints = (node.inputs[1].node for node in graph.of_type(*ops.TENSOR_SAVES, *ops.RESTORES))
    functions = function_library.functions_named(graph).values()
    found = {*_texts([*_constants(graph.of_type(*ops.CONSTANTS)).values(), *_strings_in(functions)])}
    found.difference_update(_texts(_constants(of_checkpoints).values()))  # they are the keys of variables
    return {text for text in found if text not in graph and _looks_like_file(text)}


def _looks_like_file(text: str) -> bool:
    if text.startswith(("_temp_", "loc:@")) or len(text) > 1000 or "\n" in text:
        return False
    return (
        "/" in text.strip("/")
        or re.search(r"\.(tfrecords?|records?|csv|tsv|txt|vocab|gz|npy|jsonl?)$", text) is not None
    )


def local_files(graph: Graph) -> list[str]:
    """Names of local files that the input reads: string constants that look like file names and go into a dataset, a queue
    or an op that opens files, or stand in a function that opens files.
    """
    takes = [n for n in graph if ops.is_dataset(n.op) or n.op in ops.FILE_OPERANDS or n.op in ops.ENQUEUES]
    given = {*_strings(graph, [tensor for node in takes for tensor in node.inputs])}
    functions = function_library.functions_named(graph).values()
    given.update(_texts(_strings_in(f for f in functions if any(node.op in ops.FILE_OPERANDS for node in f.node_def))))
    given = {text for text in given if "://" not in text}
    return sorted(given & file_names(graph)) if given else []


_MISSING = re.compile(r"(?:^|[\s;:])([^\s;:]+?);? ?;? No such file or directory", re.MULTILINE)
_NO_MATCH = re.compile(r"No files matched pattern: ([^\]\n]+)")


def missing_file_error(message: str, source: str, names: Iterable[str] = ()) -> RunError | None:
    """The error for a data file that is not there, or None where TensorFlow's message says something else.

    The file is the longest of the graph's file names that the message contains.
    """
    pattern = _NO_MATCH.search(message)
    if pattern is not None:
        name, fault = pattern[1], f"no file matches the pattern '{pattern[1]}'"
    else:
        match = _MISSING.search(message)
        if match is None:
            return None
        end = match.end(1)
        name = max((n for n in names if message.endswith(n, 0, end)), key=len, default=match[1])
        fault = f"the data file '{name}' is not there"
    return RunError(
        fault, origin=source, fix=f"run in the folder that holds it, or {shlex.quote(f'--rebind={name}=PATH')}"
    )
