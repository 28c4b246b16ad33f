"""The module tree: a namespace for each module of TensorFlow 1.15, whose names are loaded when they are first used."""

from __future__ import annotations

import difflib
import functools
import importlib
import sys
import traceback
import types
from collections.abc import Iterable
from typing import Any

from tpugraph.compat.restored import NEEDED_BY, restore
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
        name = f"tf.{path}".rstrip(".")
        super().__init__(name, f"The module {name} of TensorFlow 1.15.")
        self._path = path
        self.__path__: list[str] = []  # what makes Python take it for a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # what Python itself asks every module for
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = find(self._path, name)
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        own = [name for name, symbol in PAGES.get(self._path, {}).items() if symbol.home]
        based = [name for base in BASES.get(self._path, ()) for name in dir(_module(base)) if not name.startswith("_")]
        return sorted({*self.__dict__, *own, *based, *_children(self._path)})


class Inside(Namespace):
    """Stands for each of the original's source files below a module: all have the module's names."""

    _file = ""

    def __getattr__(self, name: str) -> Any:
        if name in INSIDE.get(self._path, {}):
            return _load(INSIDE[self._path][name].home)
        try:
            return super().__getattr__(name)
        except MissingSymbolError:
            if name.startswith("_") or not name.islower():
                raise
            found = Inside(self._path)
            found._file = name  # a file, or a folder of files
            return found

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Say what is missing: the name was that of a function."""
        raise _missing(self._path, self._file, None)


@functools.cache
def namespace(path: str) -> Namespace:
    """The namespace of a path; one and the same each time."""
    return Namespace(path)


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
    if name.startswith(NEEDED_BY):
        restore()
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
    parent, _, package = path.partition(".")
    if symbol is not None:
        why, fix = symbol.why, symbol.instead
    elif parent == "contrib" and package in CONTRIB:
        why, fix = f"tf.{path} was dropped with TensorFlow 2", CONTRIB[package]
    else:
        why = "it is neither in the tree of TensorFlow 1.15 nor in TensorFlow 2.21"
        near = difflib.get_close_matches(name, dir(namespace(path)), n=1)
        fix = f"did you mean {whole[: -len(name)]}{near[0]}?" if near else "docs/compat.md lists what there is"
    return MissingSymbolError(f"{whole} is not there: {why}", origin=program_line(), fix=fix)


LIBRARIES = frozenset(
    "absl etils flax google grpc h5py jax jaxlib keras numpy orbax pandas sklearn tensorboard tensorflow tensorflow_datasets "
    "tensorflow_io tensorflow_probability tensorflow_text tf_keras tf_slim tpugraph transformers".split()
)
"""Packages that were written for the TensorFlow that is installed; everything else that imports it is the program."""


def program_line(frames: Iterable[tuple[types.FrameType, int]] | None = None) -> str | None:
    """The line of the program that is at work: ``train.py:12``; None where only library code is.

    Args:
        frames: where it is looked for, innermost first, with their lines; the stack of the caller when None.
    """
    for frame, line in traceback.walk_stack(None) if frames is None else frames:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in LIBRARIES and package not in sys.stdlib_module_names:
            return f"{frame.f_code.co_filename}:{line}"
    return None
