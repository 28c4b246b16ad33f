"""Translates TensorFlow's errors of a failed step: the cause first, and the node."""

from __future__ import annotations

import re

import tensorflow as tf

from tpugraph import ops
from tpugraph.compiler.set_shapes import SET_SHAPE
from tpugraph.ir.side_effects import missing_file_error
from tpugraph.lookups.padded_lists import ids_of_a_row
from tpugraph.runtime.emulator.reads import OPTIONAL
from tpugraph.support.errors import RunError, TpuGraphError
from tpugraph.tables.sharding import FIRST, LAST, ROWS, TABLE

_NODE = re.compile(r"\[\[(?:\{\{node )?([^\]{}]+)")
"""A node in a message of TensorFlow: ``[[{{node NAME}}]]`` where it failed, ``[[NAME]]`` where that was called from."""

_NO_ROW = re.compile(r"= (-?\d+) is not in \[0, \d+\)")  # TensorFlow's message for an index out of range
_SHAPE = re.compile(r"\[(\d+(?:, ?\d+)*)\]")  # A shape in a message of TensorFlow

_NO_CAUSE = ("Graph execution error", "Detected at node", "Node: '", "Original stack trace", 'File "', "[[{{", "(0) ",
             "(1) ", "0 success")  # fmt: skip


def translate(error: BaseException, graph: tf.Graph, source: str, files: set[str]) -> TpuGraphError:
    if isinstance(error, TpuGraphError):
        return error
    known = missing_file_error(str(error), source, files) or ids_of_a_row(str(error))
    if known is not None:
        known.origin = known.origin or source
        return known
    text = first_words(error) or type(error).__name__
    named = getattr(getattr(error, "op", None), "name", None)
    types = {operation.name: operation.type for operation in graph.get_operations()}
    passed = [name for name in (named, *_NODE.findall(str(error))) if name in types]
    read = next((name for name in passed if types[name] in ops.INPUTS), None)
    fix = "the input fails, not the model: look at the data that it reads and at the functions that map it"
    wrong = _told_otherwise(text, graph)
    if wrong is not None:
        wrong.origin = source
        return wrong
    text = _of_whole_table(text, graph, named or next(iter(passed), ""))
    kind = type(error).__name__.removesuffix("Error")
    return RunError(f"{kind}: {text[:300]}", node=(read or next(iter(passed), "")).removesuffix(OPTIONAL) or None,
                    origin=source, fix=fix if read else None)  # fmt: skip


def _told_otherwise(text: str, graph: tf.Graph) -> RunError | None:
    """The error for a batch whose shape differs from ``--set_shape``."""
    found = [dims.split(",") for dims in _SHAPE.findall(text)]
    told = [op.get_attr(SET_SHAPE).decode() for op in graph.get_operations() if SET_SHAPE in op.node_def.attr]
    for name, _, sizes in (one.rpartition(":") for one in " ".join(told).split()):
        rank = sizes.count(",") + 1
        shapes = [dims[-rank:] for dims in found if len(dims) >= rank]  # the emulator may stack several batches
        is_told = [all(a == b or "?" in (a, b) for a, b in zip(dims, sizes.split(","), strict=True)) for dims in shapes]
        if True in is_told and False in is_told:
            read = ",".join(shapes[is_told.index(False)])
            fix = f"--set_shape={name}:{read} if every batch has it, or a batch size that is fixed in the program"
            fault = f"--set_shape says that '{name}' has the shape [{sizes}], and a batch has [{read}] there"
            return RunError(fault, node=name, fix=fix)
    return None


def _of_whole_table(text: str, graph: tf.Graph, name: str) -> str:
    """TensorFlow's message for an index out of a shard's range, in terms of the whole table."""
    found = _NO_ROW.search(text)
    shards: dict[str, list[tf.Operation]] = {}
    for operation in graph.get_operations() if found else ():
        if operation.type in ops.RESOURCE_VARIABLES and TABLE in operation.node_def.attr:
            shards.setdefault(operation.get_attr(TABLE).decode(), []).append(operation)
    held = next((same for same in shards.values() if found and _reads(graph, name, same)), None)
    if held is None or found is None:
        return text
    beyond = {FIRST: " or less", LAST: " or more"}.get(int(found[1]), "")
    rows = sum(operation.get_attr(ROWS) for operation in held)
    return f"{text[: found.start()]}= {found[1]}{beyond} is not in [0, {rows}){text[found.end() :]}"


def _reads(graph: tf.Graph, name: str, variables: list[tf.Operation]) -> bool:
    """Whether the table in an op's first operand is computed from one of these variables."""
    operation = graph.get_operation_by_name(name)
    while operation.inputs and operation not in variables:
        operation = operation.inputs[0].op
    return operation in variables


def stalled(why: str, found: TpuGraphError) -> RunError:
    return RunError(why, node=found.node, origin=found.origin,
                    fix="something waits for what nothing gives it, such as a queue that nobody fills: look at the input, and at the "
                    "node where one is named")  # fmt: skip


def first_words(error: BaseException) -> str:
    """The line of a TensorFlow message with the cause."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line and not line.startswith(_NO_CAUSE)), "")
