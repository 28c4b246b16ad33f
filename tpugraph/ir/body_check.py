"""Functions of the library at the door: their nodes, what these read, what the functions return, who calls whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpugraph import ops
from tpugraph.ir import attrs as attr_codec
from tpugraph.ir.constants import Constants
from tpugraph.ir.op_schemas import DTYPES, OPEN, Mismatch, Schema, output_places

_LABEL = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_>./\\-]*")


@dataclass(frozen=True)
class _Made:
    """What an argument or a node of a body gives: dtypes, None where their number is open; the places of its outputs."""

    dtypes: tuple[int, ...] | None
    places: Mapping[str, int]


def check_body(function: Any, schema: Callable[[str], Schema | None], constants: Constants) -> None:
    """Check a ``FunctionDef`` as far as it can be known without a call.

    Args:
        function: the function.
        schema: what an op type demands.
        constants: checks constants.

    Raises:
        Mismatch: a node, an input or a result is not as its definition demands.
    """
    made = dict(_arguments(function))
    wanted: dict[str, tuple[int, ...] | None] = {}
    for node in function.node_def:
        if node.name in made or not _LABEL.fullmatch(node.name):
            raise Mismatch(f"{node.name[:100]!r} is the name of two nodes or of none")
        made[node.name], wanted[node.name] = _checked(node, schema, constants)
    for node in function.node_def:
        data = [text for text in node.input if not text.startswith("^")]
        if any(text.startswith("^") for text in node.input[: len(data)]):
            raise Mismatch(f"the node '{node.name}' has an input behind a control input")
        found = [_dtype_of(text, made) for text in data]
        for text, have, want in zip(data, found, wanted[node.name] or (), strict=False):
            if have is not None and OPEN not in (have, want) and have not in (want, want + 100):
                raise Mismatch(f"the node '{node.name}' reads '{text}', {attr_codec.dtype(have)}, and takes "
                               f"{attr_codec.dtype(want)}")  # fmt: skip
        for text in node.input[len(data) :]:
            _look_up(text[1:], made)
    _check_results(function, made)
    _check_order(function)


def _arguments(function: Any) -> Iterator[tuple[str, _Made]]:
    names = Counter(argument.name for argument in function.signature.input_arg)
    for argument in function.signature.input_arg:
        if names[argument.name] > 1 or not _LABEL.fullmatch(argument.name):
            raise Mismatch(f"{argument.name[:100]!r} is the name of two arguments or of none")
        if argument.number_attr or argument.type_list_attr:
            yield argument.name, _Made(None, {})
            continue
        _check_dtype(function, argument)
        yield argument.name, _Made((argument.type,), {"": 0})


def _check_dtype(function: Any, argument: Any) -> None:
    declared = {attribute.name for attribute in function.signature.attr}
    if argument.type not in DTYPES and argument.type_attr not in declared:
        raise Mismatch(f"the argument or result '{argument.name}' has no dtype")


def _checked(
    node: Any, schema: Callable[[str], Schema | None], constants: Constants
) -> tuple[_Made, tuple[int, ...] | None]:
    """What a node of a body gives, and the dtypes that it takes."""
    demands = schema(node.op)
    if demands is None:
        raise Mismatch(f"the node '{node.name}' is of the op '{node.op[:100]}', which this TensorFlow does not know")
    attributes = {key: node.attr[key] for key in node.attr}
    given = len([text for text in node.input if not text.startswith("^")])
    try:
        signature = demands.signature(attributes, given, in_body=True)
        if node.op in ops.CONSTANTS and attributes["value"].WhichOneof("value") == "tensor":
            constants.check(attributes["value"].tensor, attributes["dtype"].type)
    except Mismatch as error:
        raise Mismatch(f"at the node '{node.name}' ({node.op}): {error}") from error
    open_ = signature.outputs is None
    return _Made(
        signature.outputs, {} if open_ else dict(output_places(demands.definition, attributes))
    ), signature.inputs


def _look_up(label: str, made: Mapping[str, _Made]) -> _Made:
    found = made.get(label)
    if found is None:
        raise Mismatch(f"'{label[:100]}' is read and is not in the function")
    return found


def _dtype_of(text: str, made: Mapping[str, _Made]) -> int | None:
    """The dtype of what a body names as ``argument`` or ``node:output:number``; None where that is open."""
    label, _, rest = text.partition(":")
    found = _look_up(label, made)
    if found.dtypes is None:
        return None
    output, _, number = rest.rpartition(":") if ":" in rest or rest not in found.places else (rest, "", "0")
    if output not in found.places or not re.fullmatch(r"\d{1,9}", number or "0"):
        raise Mismatch(f"'{text[:100]}' is read, and '{label[:100]}' has no such output")
    place = found.places[output] + int(number or "0")
    if place >= len(found.dtypes):
        raise Mismatch(f"'{text[:100]}' is read, and '{label[:100]}' has {len(found.dtypes)} outputs")
    return found.dtypes[place]


def _check_results(function: Any, made: Mapping[str, _Made]) -> None:
    for result in function.signature.output_arg:
        if result.number_attr or result.type_list_attr:
            continue
        _check_dtype(function, result)
        if result.name not in function.ret:
            raise Mismatch(f"the result '{result.name[:100]}' is nowhere computed")
        have = _dtype_of(function.ret[result.name], made)
        if have is not None and OPEN not in (have, result.type) and have not in (result.type, result.type + 100):
            raise Mismatch(f"the result '{result.name}' is {attr_codec.dtype(have)} and declared as "
                           f"{attr_codec.dtype(result.type)}")  # fmt: skip
    for label in function.signature.control_output:
        _look_up(function.control_ret.get(label, ""), made)


def _check_order(function: Any) -> None:
    """See that the nodes of a body have an order; loops as TensorFlow 1 writes them close at NextIteration."""
    ops_of = {node.name: node.op for node in function.node_def}
    waiting: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    for node in function.node_def:
        producers = {text.removeprefix("^").partition(":")[0] for text in node.input} & ops_of.keys()
        if node.op in ops.MERGE:
            producers = {name for name in producers if ops_of[name] not in ops.NEXT_ITERATION}
        waiting[node.name] = len(producers)
        for name in producers:
            readers.setdefault(name, []).append(node.name)
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:  # grows while it is walked
        for reader in readers.get(name, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if len(ready) < len(waiting):
        stuck = next(name for name, count in waiting.items() if count)
        raise Mismatch(f"a cycle that is no loop leads through the node '{stuck}'")


# --------------------------------------------------------------------------- who calls whom


def check_calls(functions: Mapping[str, Any], gradients: Iterable[Any]) -> None:
    """See that no function calls itself, directly or by others, and that gradients belong to functions.

    Raises:
        Mismatch: one does.
    """
    for gradient in gradients:
        for name in (gradient.function_name, gradient.gradient_func):
            if name not in functions:
                raise Mismatch(f"the gradient function '{name[:100]}' is not in the graph's library")
    done: set[str] = set()
    for first in functions:
        path: dict[str, Iterator[str]] = {}
        if first not in done:
            path[first] = _called(functions[first], functions)
        while path:
            name = next(reversed(path))
            called = next(path[name], None)
            if called is None:
                del path[name]
                done.add(name)
            elif called in path:
                raise Mismatch(f"the function '{called}' calls itself; a TPU has no recursion")
            elif called not in done:
                path[called] = _called(functions[called], functions)


def _called(function: Any, functions: Mapping[str, Any]) -> Iterator[str]:
    found: dict[str, None] = {}
    for node in function.node_def:
        found[node.op] = None
        for value in node.attr.values():
            if value.WhichOneof("value") == "func":
                found[value.func.name] = None
            elif value.WhichOneof("value") == "list":
                found.update((func.name, None) for func in value.list.func)
    return iter([name for name in found if name in functions])
