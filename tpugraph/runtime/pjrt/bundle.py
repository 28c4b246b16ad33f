"""A bundle: a lowered module, the values of its variables and a manifest in one zip file. NumPy only.

``manifest.json`` says what the module takes and returns, and the SHA-256 of the two other members: ``module.mlirbc``, the
StableHLO module as MLIR bytecode, and ``variables.npz``, where a dtype that NumPy does not know is stored as bits.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpugraph.support.errors import LoadError
from tpugraph.support.files import write_atomically
from tpugraph.xla.module import SIZES, Module, Value

Array = np.ndarray[Any, Any]
VERSION = 1
_MODULE, _VARIABLES, _MANIFEST = "module.mlirbc", "variables.npz", "manifest.json"
_BITS = {1: np.uint8, 2: np.uint16}


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds.

    Attributes:
        module: the program of every core.
        variables: the value of each of its variables, by name.
        inputs: the names of the tensors that core 0 is fed, in order.
        loss: which tensor of the outfeed is each core's share of the loss; None where that is not known.
        trained: steps that the variables were trained.
        made_by: versions of the packages that made it.
        source: the file that it was made of.
    """

    module: Module
    variables: dict[str, Array]
    inputs: tuple[str, ...]
    loss: int | None
    trained: int = 0
    made_by: dict[str, str] = field(default_factory=dict)
    source: str = ""

    def with_variables(self, variables: Mapping[str, Array], trained: int) -> Bundle:
        """The same program with variables that were trained further."""
        return replace(self, variables={**self.variables, **variables}, trained=trained)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the file; it is whole or not there. Returns its bytes.

        Raises:
            LoadError: the place cannot be written.
        """
        stored = {name: _stored(value) for name, value in self.variables.items()}
        held = io.BytesIO()
        np.savez(held, *stored.values())
        members = {_MODULE: self.module.code, _VARIABLES: held.getvalue()}
        manifest = {
            "format": "tpugraph bundle",
            "version": VERSION,
            "made_by": self.made_by,
            "source": self.source,
            "num_replicas": self.module.num_replicas,
            "iterations": self.module.iterations,
            "trained": self.trained,
            "loss": self.loss,
            "inputs": list(self.inputs),
            "arguments": [asdict(value) for value in self.module.arguments],
            "results": [asdict(value) for value in self.module.results],
            "variables": list(stored),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        }
        members[_MANIFEST] = json.dumps(manifest, indent=1).encode()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        write_atomically(Path(path), packed.getvalue())
        return packed.getbuffer().nbytes


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle, and check it against its manifest.

    Raises:
        LoadError: no such file, no bundle, a damaged one, or one of a later version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(members[_MANIFEST])
        if manifest["format"] != "tpugraph bundle":
            raise KeyError("format")
    except FileNotFoundError:
        raise LoadError(f"there is no file '{path}'", fix="check the path") from None
    except OSError as error:
        raise LoadError(f"'{path}' cannot be read: {error.strerror or error}", fix="check the path") from error
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, f"it has no {_MANIFEST} of a bundle") from error
    except _BROKEN_ZIP as error:
        raise _damaged(path, f"it is no whole zip file ({error or type(error).__name__})") from error
    if manifest.get("version") != VERSION:
        raise LoadError(f"the bundle '{path}' is of version {manifest.get('version')!r}, and this tpugraph reads {VERSION}",
                        fix="write it with this version: tpugraph compile MODEL -o FILE")  # fmt: skip
    sums = manifest.get("sha256")
    for name in (_MODULE, _VARIABLES):
        if not isinstance(sums, dict) or hashlib.sha256(members.get(name, b"")).hexdigest() != sums.get(name):
            raise _damaged(path, f"{name} does not have the checksum that its manifest names")
    try:
        return _unpacked(manifest, members)
    except (KeyError, ValueError, TypeError) as error:
        raise _damaged(path, f"its manifest does not fit what it holds ({type(error).__name__}: {error})") from error


_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises of damaged content: a bit may turn one way to pack into another, or ask for a password."""


def _unpacked(manifest: dict[str, Any], members: dict[str, bytes]) -> Bundle:
    arguments, results = (tuple(_value(v) for v in manifest[kind]) for kind in ("arguments", "results"))
    _check(manifest, arguments, results)
    module = Module(members[_MODULE], manifest["num_replicas"], manifest["iterations"], arguments, results)
    kinds = {v.name: v for v in arguments if v.kind == "variable"}
    with np.load(io.BytesIO(members[_VARIABLES])) as stored:
        variables = {name: _as_value(stored[f"arr_{i}"], kinds[name]) for i, name in enumerate(manifest["variables"])}
    return Bundle(module, variables, tuple(manifest["inputs"]), manifest["loss"], manifest["trained"],
                  manifest["made_by"], manifest["source"])  # fmt: skip


def _check(manifest: dict[str, Any], arguments: tuple[Value, ...], results: tuple[Value, ...]) -> None:
    """Check that the parts of a manifest fit each other.

    Raises:
        ValueError: they do not.
    """
    for name, least in (("num_replicas", 1), ("iterations", 1), ("trained", 0)):
        if type(manifest[name]) is not int or manifest[name] < least:
            raise ValueError(f"{name} is {manifest[name]!r}")
    for values, kinds in ((arguments, _TAKES), (results, _GIVES)):
        odd = next((value.kind for value in values if value.kind not in kinds), None)
        if odd is not None:
            raise ValueError(f"there is no kind {odd!r}")
    fed, sent = (
        [v for v in values if v.kind == kind] for values, kind in ((arguments, "infeed"), (results, "outfeed"))
    )
    if len(manifest["inputs"]) != len(fed) or any(v.shape[:1] != (manifest["iterations"],) for v in (*fed, *sent)):
        raise ValueError("the inputs are not what the module is fed")
    if manifest["loss"] not in (None, *range(len(sent))):
        raise ValueError(f"the loss is {manifest['loss']!r}")
    if set(manifest["variables"]) != {v.name for v in arguments if v.kind == "variable"}:
        raise ValueError("the variables are not those of the module")


_TAKES, _GIVES = {"count", "seed", "infeed", "variable"}, {"outfeed", "output", "variable"}
"""Kinds of arguments and of results; no host gives a bundle values or takes them from it."""


def _value(held: dict[str, Any]) -> Value:
    return Value(held["kind"], held["name"], held["dtype"], tuple(held["shape"]))


def _stored(value: Array) -> Array:
    """The value in a dtype that NumPy's own files have."""
    array = np.asarray(value)
    known = array.dtype.kind in "biufc"
    return array if known else array.view(_BITS[array.dtype.itemsize])


def _as_value(stored: Array, value: Value) -> Array:
    if stored.shape != value.shape or stored.dtype.itemsize != SIZES[value.dtype]:
        raise ValueError(f"{value.name} is {stored.dtype}{stored.shape}")
    return stored if stored.dtype.name == value.dtype else stored.view(value.dtype)


def _damaged(path: str | os.PathLike[str], why: str) -> LoadError:
    return LoadError(f"the bundle '{path}' is damaged: {why}", fix="write it again: tpugraph compile MODEL -o FILE")
