"""The module tree: a namespace for each module of TensorFlow 1.15, whose names are loaded when they are first used."""

from __future__ import annotations

import difflib
import importlib
import sys
import types
from typing import Any

from tpugraph.compat.restored import restore
from tpugraph.compat.symbols import BASES, CONTRIB, INSIDE, PAGES, Symbol
from tpugraph.support.errors import UsageError

_EXTRAS = {"tf_keras": "tpugraph[compat]", "tf_slim": "tpugraph[compat]", "tensorflow_gan": "tensorflow_gan"}
"""What is not installed with tpugraph, and how it is."""


class MissingSymbolError(UsageError, AttributeError):
    """A name of TensorFlow 1.15 that has nothing in its place here; an ``AttributeError`` too."""


class MissingModuleError(UsageError, ImportError):
    """A module of TensorFlow 1.15, or a library behind one, that is not there; an ``ImportError`` too."""


class Namespace(types.ModuleType):
    """A module of the tree, by its name below ``tf``, such as ``contrib.tpu``; "" for ``tf`` itself."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"tf.{path}" if path else "tf", f"The module tf.{path} of TensorFlow 1.15.".replace("tf. ", "tf ")
        )
        self.__dict__["_path"] = path
        self.__path__: list[str] = []  # what makes Python take it for a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # what Python itself asks every module for
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = find(self.__dict__["_path"], name)
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        path = self.__dict__["_path"]
        own = [name for name, symbol in PAGES.get(path, {}).items() if symbol.home]
        based = [name for base in BASES.get(path, ()) for name in dir(_module(base)) if not name.startswith("_")]
        return sorted({*self.__dict__, *own, *based, *_children(path)})


class Inside(Namespace):
    """Stands for each of the original's source files below a module: all have the module's names."""

    def __getattr__(self, name: str) -> Any:
        path = self.__dict__["_path"]
        if name in INSIDE.get(path, {}):
            return _load(INSIDE[path][name].home)
        try:
            return super().__getattr__(name)
        except MissingSymbolError:
            if name.startswith("_") or not name.islower():
                raise
            found = Inside(path)  # a file, or a folder of files
            found.__dict__["_file"] = name
            return found

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Say what is missing: the name was that of a function."""
        raise _missing(self.__dict__["_path"], self.__dict__.get("_file", ""), None)


_NAMESPACES: dict[str, Namespace] = {}


def namespace(path: str) -> Namespace:
    """The namespace of a path; one and the same each time."""
    if path not in _NAMESPACES:
        _NAMESPACES[path] = Namespace(path)
    return _NAMESPACES[path]


def find(path: str, name: str) -> Any:
    """What a name of a module below ``tf`` stands for now."""
    symbol = symbol_of(path, name)
    if symbol is not None:
        if not symbol.home:
            raise _missing(path, name, symbol)
        return _load(symbol.home)
    if name == "python" and path.startswith(("contrib.", "estimator")):
        return Inside(path)
    if name in _children(path):
        return namespace(f"{path}.{name}" if path else name)
    for base in BASES.get(path, ()):
        module = _module(base)
        if hasattr(module, name):
            return getattr(module, name)
    raise _missing(path, name, None)


def symbol_of(path: str, name: str) -> Symbol | None:
    """The record of a name; None where the tree has none of its own for it."""
    return PAGES.get(path, {}).get(name)


def _children(path: str) -> set[str]:
    """The modules right below a module of the tree."""
    start = f"{path}." if path else ""
    below = {known[len(start) :].partition(".")[0] for known in (*PAGES, *BASES) if known.startswith(start)}
    return (below | set(CONTRIB) if path == "contrib" else below) - {""}


def _load(home: str) -> Any:
    module, _, attribute = home.partition(":")
    found = _module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


def _module(name: str) -> Any:
    if name.startswith("@"):
        return namespace(name[1:])
    restore(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise MissingModuleError(
            f"{error.name} is not installed, and what is asked for comes from it",
            origin=program_line(),
            fix=f"python -m pip install '{_EXTRAS[error.name]}'",
        ) from None


def _missing(path: str, name: str, symbol: Symbol | None) -> MissingSymbolError:
    whole = ".".join(part for part in ("tf", path, name) if part)
    if symbol is not None:
        return MissingSymbolError(f"{whole} is not there: {symbol.why}", origin=program_line(), fix=symbol.instead)
    if path in CONTRIB_PATHS:
        why = f"tf.{path} was dropped with TensorFlow 2"
        return MissingSymbolError(f"{whole} is not there: {why}", origin=program_line(), fix=CONTRIB[path[8:]])
    near = difflib.get_close_matches(name, dir(namespace(path)), n=1)
    return MissingSymbolError(
        f"{whole} is not there: neither TensorFlow 1.15's tree here nor TensorFlow 2.21 has it",
        origin=program_line(),
        fix=f"did you mean {whole[: -len(name)]}{near[0]}?" if near else "docs/compat.md lists what there is",
    )


CONTRIB_PATHS = {f"contrib.{name}" for name in CONTRIB}
"""The paths of the packages of ``tf.contrib`` that have nothing in their place."""


def program_line() -> str | None:
    """The line of the program that is at work: ``train.py:12``; None where only library code is."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in ("tpugraph", "importlib", "contextlib", "runpy"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None
