"""Files that a graph reads and that only this machine has: the hosts of a TPU read none of them."""

from __future__ import annotations

from collections.abc import Iterator

from tpugraph import ops
from tpugraph.ir import Graph, function_library
from tpugraph.ir.file_names import file_names


def local_files(graph: Graph) -> list[str]:
    """Names of local files that the input of a graph reads.

    A name is a string constant that looks like one and goes into a dataset, a queue or an op that opens files, or that
    stands in a function that opens files.
    """
    given = {text for text in _given(graph) if "://" not in text}
    return sorted(given & file_names(graph)) if given else []


def _given(graph: Graph) -> Iterator[str]:
    for node in graph.of_type("Const"):
        if node.attr("dtype").name == "string" and _reaches_input(graph, node.name):
            yield from (value.decode("utf-8", "replace") for value in node.attr("value").ravel().tolist())
    for function in function_library.functions_named(graph).values():
        if any(node.op in ops.FILE_OPERANDS for node in function.node_def):
            strings = [
                v
                for node in function.node_def
                if node.op in ops.CONSTANTS
                for v in node.attr["value"].tensor.string_val
            ]
            yield from (value.decode("utf-8", "replace") for value in strings)


def _reaches_input(graph: Graph, name: str) -> bool:
    """Whether a constant goes, as it is or reshaped, into what makes the input."""
    into = {use.node for use in graph[name].uses()}
    for _ in range(3):  # what names a list of files: expand, shuffle, slice
        if any(ops.is_dataset(node.op) or node.op in ops.FILE_OPERANDS or node.op in ops.ENQUEUES for node in into):
            return True
        into = {use.node for node in into for use in node.uses()}
    return False
