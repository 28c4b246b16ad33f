"""The import hook of a program: ``import tensorflow`` gives it the tree, and every library the TensorFlow that is installed."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tpugraph.compat import older_libraries
from tpugraph.compat.restored import restore
from tpugraph.compat.symbols import BASES
from tpugraph.compat.tree import (
    LIBRARIES,
    Inside,
    MissingModuleError,
    MissingSymbolError,
    Namespace,
    find,
    namespace,
    program_line,
    symbol_of,
)

ROOTS = {"tensorflow": "", "tensorflow_core": "", "tensorflow_estimator": "estimator"}
"""The packages that the hook answers for, and where in the tree each begins."""

_OWN_FOLDERS = frozenset("compiler core python tools".split())
"""Folders of TensorFlow with modules that are no part of ``tf`` and are where they were in 1.15."""

_import = builtins.__import__


@contextmanager
def tensorflow_1() -> Iterator[None]:
    """Within the block, what the program imports of TensorFlow comes from the tree."""
    restore()
    builtins.__import__ = _hooked
    try:
        yield
    finally:
        builtins.__import__ = _import


def _hooked(name: str, globals: Mapping[str, Any] | None = None, locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (), level: int = 0) -> ModuleType:  # fmt: skip
    root, _, rest = name.partition(".")
    if root in older_libraries.LIBRARIES and not level and not _library(globals):
        older_libraries.put_back(_import(root))
    if level or root not in ROOTS or _library(globals):
        return _import(name, globals, locals, fromlist, level)
    found = _module(root, rest)
    if not fromlist:
        return namespace(ROOTS[root])
    if isinstance(found, Namespace):
        for wanted in fromlist:
            _offer(found, wanted)
        return found
    return _import(found.__name__, fromlist=fromlist)  # which imports the modules among the names


def _library(globals: Mapping[str, Any] | None) -> bool:
    caller = (globals or {}).get("__name__") or ""
    return caller.partition(".")[0] in LIBRARIES


def _module(root: str, rest: str) -> ModuleType:
    """The module of a dotted name: one of the tree, or TensorFlow's own where it still has it."""
    path = module_path(root, rest)
    if path is None:
        return namespace(rest) if rest in BASES else _own(f"tensorflow.{rest}")
    if "python" in rest.split(".") and "nets" not in path:
        return Inside(path)
    parts = path.split(".") if path else []
    found: Any = namespace("")
    for count, part in enumerate(parts):
        try:
            found = getattr(found, part)
        except MissingSymbolError as error:
            raise _no_module(f"tensorflow.{'.'.join(parts[: count + 1])}", error.fix) from None
    return found  # type: ignore[no-any-return]


def module_path(root: str, rest: str) -> str | None:
    """Where in the tree a module below one of :data:`ROOTS` is, such as ``contrib.tpu``; None where it is TensorFlow's own."""
    rest = rest.removeprefix("_api.v1.").removeprefix("compat.v1").removeprefix(".")
    parts = rest.split(".")
    if root == "tensorflow_estimator" or rest.startswith("python.estimator"):
        return "estimator"  # what is public of it has one home, wherever the original kept it
    if parts[0] == "contrib" and "python" in parts:
        inner = parts[parts.index("python") :]
        return ".".join(parts[:2] + (inner[inner.index("nets") :] if "nets" in inner else []))
    return None if parts[0] in _OWN_FOLDERS else rest


def _own(name: str) -> ModuleType:
    try:
        return _import(name, fromlist=("*",))
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tensorflow"):
            raise
        raise _no_module(name, "import what is public of it from tf; docs/compat.md lists what there is") from None


def _no_module(name: str, fix: str | None) -> MissingModuleError:
    return MissingModuleError(f"the module {name} of TensorFlow 1.15 is not there", origin=program_line(), fix=fix)


def _offer(module: Namespace, name: str) -> None:
    """Let ``from module import name`` find something, or say what is missing; what was dropped fails when it is used."""
    if name == "*":
        module.__dict__["__all__"] = [known for known in dir(module) if not known.startswith("_")]
        return
    try:
        getattr(module, name)
    except MissingSymbolError as error:
        symbol = symbol_of(module._path, name)
        if symbol is None:
            raise MissingModuleError(error.fault, origin=error.origin, fix=error.fix) from None
        module.__dict__[name] = Dropped(module._path, name)


class Dropped:
    """Stands where a program imports a name that is not there: programs import more than they use."""

    def __init__(self, path: str, name: str) -> None:
        self._where = path, name

    def _use(self, *arguments: Any, **named: Any) -> Any:
        """Say what is missing."""
        return find(*self._where)

    __call__ = __mro_entries__ = _use

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._use()
