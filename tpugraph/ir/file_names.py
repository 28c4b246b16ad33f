"""File names in a graph: replace them, and name the missing one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

import numpy as np

from tpugraph import ops
from tpugraph.ir import Graph
from tpugraph.support.errors import RunError, UsageError

_MISSING = re.compile(r"(?:^|[\s;:])([^\s;:]+?);? ?;? No such file or directory", re.MULTILINE)
_NO_MATCH = re.compile(r"No files matched pattern: ([^\]\n]+)")


def rebind_files(graph: Graph, names: Mapping[str, str]) -> None:
    """Replace string constants that equal an old file name, in the graph and in its functions.

    Raises:
        UsageError: an old name that no constant of the graph holds; those that look like files are listed.
    """
    for old, new in names.items():
        count = _rebind_nodes(graph, old.encode(), new.encode()) + _rebind_functions(graph, old.encode(), new.encode())
        if not count:
            known = ", ".join(sorted(file_names(graph))[:5]) or "none"
            raise UsageError(
                f"no constant of the graph holds the file name '{old}'",
                origin=graph.source,
                fix=f"file names in the graph: {known}",
            )


def _rebind_nodes(graph: Graph, old: bytes, new: bytes) -> int:
    count = 0
    for node in graph.of_type("Const"):
        if node.raw_attrs["dtype"].type != 7:
            continue
        value = node.attr("value")
        if old in value.ravel().tolist():
            replaced = np.asarray([new if v == old else v for v in value.ravel().tolist()], dtype=object)
            graph.set_attr(node, "value", replaced.reshape(value.shape))
            count += 1
    return count


def _rebind_functions(graph: Graph, old: bytes, new: bytes) -> int:
    count = 0
    for function in graph.library.function if graph.library is not None else ():
        for node in function.node_def:
            if node.op not in ops.CONSTANTS or old not in node.attr["value"].tensor.string_val:
                continue
            values = [new if v == old else v for v in node.attr["value"].tensor.string_val]
            del node.attr["value"].tensor.string_val[:]
            node.attr["value"].tensor.string_val.extend(values)
            count += 1
    return count


def file_names(graph: Graph) -> set[str]:
    """String constants of the graph and of its functions that look like file names."""
    keys: set[bytes] = set()  # names of variables in checkpoints
    for node in graph.of_type("SaveV2", "RestoreV2"):
        if node.inputs[1].node.op in ops.CONSTANTS:
            keys.update(node.inputs[1].node.attr("value").ravel().tolist())
    values: list[bytes] = []
    for node in graph.of_type("Const"):
        if node.raw_attrs["dtype"].type == 7:
            values += node.attr("value").ravel().tolist()
    for function in graph.library.function if graph.library is not None else ():
        values += [
            v for node in function.node_def if node.op in ops.CONSTANTS for v in node.attr["value"].tensor.string_val
        ]
    found = {value.decode("utf-8", "replace") for value in values if value not in keys}
    return {text for text in found if text not in graph and _looks_like_file(text)}


def _looks_like_file(text: str) -> bool:
    if text.startswith(("_temp_", "loc:@")) or len(text) > 1000 or "\n" in text:
        return False
    return (
        "/" in text.strip("/")
        or re.search(r"\.(tfrecords?|records?|csv|tsv|txt|vocab|gz|npy|jsonl?)$", text) is not None
    )


def missing_file_error(message: str, source: str, names: Iterable[str] = ()) -> RunError | None:
    """The error for a data file that is not there, or None where the message says something else.

    Args:
        message: TensorFlow's words.
        source: the file of the graph.
        names: the file names in the graph; of those that the message names the longest is meant, blanks and all.
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
        fault,
        origin=source,
        fix=f"run in the folder that holds it, or {shlex.quote(f'--rebind={name}=PATH')}",
    )
