"""A bundle: a lowered module, the values of its variables and a manifest in one zip file. NumPy only.

``manifest.json`` says what the module takes and returns, and the SHA-256 of the two other members: ``module.mlirbc``, the
StableHLO module as MLIR bytecode, and ``variables.npz``, where a dtype that NumPy does not know is stored as bits. A bundle is read
within bounds: no member is longer than the manifest allows, and no array is made before its size is known."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpugraph.support.errors import LoadError
from tpugraph.support.files import write_atomically
from tpugraph.xla import jax_client
from tpugraph.xla.module import SIZES, Module, Value

Array = np.ndarray[Any, Any]
MANIFEST, MODULE, VARIABLES = "manifest.json", "module.mlirbc", "variables.npz"

BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    KeyError,
)
"""What zipfile raises of damaged content: a bit may turn one way to pack into another, or ask for a password."""

MOST = {MANIFEST: 64 << 20, MODULE: 2 << 30}
"""The most bytes of a member; of the variables it is what the manifest says of them."""

_RATIO = 1100
"""No deflated byte stands for more than about 1,032 others."""
_HEADER = 4096
"""More than the header of an array takes, and what the archive of the arrays says of it."""
_BITS = {1: np.uint8, 2: np.uint16}


class Archive:
    """The zip file of a bundle.

    Args:
        path: the file.

    Raises:
        OSError: it cannot be read.
        BadZipFile, or another of :data:`BROKEN`: it is no whole zip file, or its directory claims what cannot be.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._zip = zipfile.ZipFile(path)
        self._members = {info.filename: info for info in self._zip.infolist()}
        odd = sorted(set(self._members) - {MANIFEST, MODULE, VARIABLES})
        if odd or len(self._members) != len(self._zip.infolist()):
            self.close()
            raise zipfile.BadZipFile(
                f"it holds '{odd[0][:100]}', which no bundle does" if odd else "a member is there twice"
            )

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def read(self, name: str, most: int) -> bytes:
        """A member; empty where it is not there.

        Raises:
            BadZipFile, or another of :data:`BROKEN`: it is damaged, or longer than it may be.
        """
        info = self._members.get(name)
        if info is None:
            return b""
        if info.file_size > most or info.file_size > _RATIO * (info.compress_size + 1):
            raise zipfile.BadZipFile(f"{name} claims {info.file_size:,} bytes")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{name} is packed in a way that no bundle is")
        return self._zip.read(info)


def most_bytes(values: Sequence[Value]) -> int:
    """The most bytes of an archive of these variables."""
    return sum(value.bytes + _HEADER for value in values) + _HEADER


def pack(arrays: Sequence[Array]) -> bytes:
    """An archive of arrays; one of a dtype that NumPy's files do not have is stored as bits."""
    held = io.BytesIO()
    np.savez(
        held, *(array if array.dtype.kind in "biufc" else array.view(_BITS[array.dtype.itemsize]) for array in arrays)
    )
    return held.getvalue()


def unpack(data: bytes, values: Sequence[Value]) -> list[Array]:
    """The arrays of an archive, each of the dtype and shape of its variable.

    Raises:
        ValueError, or another of :data:`BROKEN`: it holds others.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as stored:
        members = {info.filename: info for info in stored.infolist()}
        if sorted(members) != sorted(f"arr_{number}.npy" for number in range(len(values))):
            raise ValueError(f"{VARIABLES} holds {len(members)} arrays, and there are {len(values)} variables")
        for number, value in enumerate(values):
            info = members[f"arr_{number}.npy"]
            if info.compress_type != zipfile.ZIP_STORED or not 0 <= info.file_size - value.bytes <= _HEADER:
                raise ValueError(f"{value.name} has {info.file_size:,} bytes")
        return [_array(stored.read(members[f"arr_{number}.npy"]), value) for number, value in enumerate(values)]


def _array(content: bytes, value: Value) -> Array:
    """The array in an ``.npy`` file."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"{value.name} is of version {version}")
    shape, by_columns, kind = readers[version](file)
    known = value.dtype != "bfloat16"
    wanted = np.dtype(value.dtype if known else _BITS[SIZES[value.dtype]])
    if shape != value.shape or kind != wanted:
        raise ValueError(f"{value.name} is {kind}{shape}")
    array = np.frombuffer(content, wanted, offset=file.tell()).reshape(shape, order="F" if by_columns else "C").copy()
    return array if known else array.view(jax_client.load("ml_dtypes", "pjrt").bfloat16)


VERSION = 1
MOST_CORES = 4096
MOST_DIMENSIONS = 32
MOST_ELEMENTS = 1 << 48
"""Of one value; more than any machine holds, and no product of sizes overflows."""


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
        arrays = [np.asarray(value) for value in self.variables.values()]
        members = {MODULE: self.module.code, VARIABLES: pack(arrays)}
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
            "variables": list(self.variables),
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        }
        members[MANIFEST] = json.dumps(manifest, indent=1).encode()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        write_atomically(Path(path), packed.getvalue())
        return packed.getbuffer().nbytes


def read(path: str | os.PathLike[str]) -> Bundle:
    """Read a bundle, and check it against its manifest. What the manifest claims is bounded before anything is made of it.

    Raises:
        LoadError: no such file, no bundle, a damaged one, one of a later version, or one that this machine cannot hold.
    """
    try:
        with Archive(path) as archive:
            manifest = _manifest(archive, path)
            members = {MODULE: archive.read(MODULE, MOST[MODULE])}
            _check_sum(manifest, MODULE, members, path)
            arguments, results = _values(manifest, path)
            stored = _stored_variables(manifest, arguments)
            members[VARIABLES] = archive.read(VARIABLES, most_bytes(stored))
            _check_sum(manifest, VARIABLES, members, path)
    except FileNotFoundError:
        raise LoadError(f"there is no file '{path}'", fix="check the path") from None
    except OSError as error:
        raise LoadError(f"'{path}' cannot be read: {error.strerror or error}", fix="check the path") from error
    except BROKEN as error:
        raise _damaged(path, f"it is no whole zip file ({error or type(error).__name__})") from error
    try:
        arrays = unpack(members[VARIABLES], stored)
    except (*BROKEN, TypeError) as error:
        raise _damaged(path, f"its manifest does not fit what it holds ({type(error).__name__}: {error})") from error
    variables = {value.name: array for value, array in zip(stored, arrays, strict=True)}
    module = Module(members[MODULE], manifest["num_replicas"], manifest["iterations"], arguments, results)
    return Bundle(module, variables, tuple(manifest["inputs"]), manifest["loss"], manifest["trained"],
                  manifest["made_by"], manifest["source"])  # fmt: skip


def _manifest(archive: Archive, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest, of this version."""
    text = archive.read(MANIFEST, MOST[MANIFEST])
    try:
        manifest = json.loads(text)
        if manifest["format"] != "tpugraph bundle":
            raise KeyError("format")
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, f"it has no {MANIFEST} of a bundle") from error
    if manifest.get("version") != VERSION:
        raise LoadError(f"the bundle '{path}' is of version {repr(manifest.get('version'))[:40]}, and this tpugraph reads "
                        f"{VERSION}", fix="write it with this version: tpugraph compile MODEL -o FILE")  # fmt: skip
    held: dict[str, Any] = manifest
    return held


def _check_sum(manifest: dict[str, Any], name: str, members: dict[str, bytes], path: str | os.PathLike[str]) -> None:
    sums = manifest.get("sha256")
    if not isinstance(sums, dict) or hashlib.sha256(members[name]).hexdigest() != sums.get(name):
        raise _damaged(path, f"{name} does not have the checksum that its manifest names")


def _values(manifest: dict[str, Any], path: str | os.PathLike[str]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """What the module takes and returns, checked.

    Raises:
        LoadError: parts of the manifest do not fit each other, or this machine cannot hold what it says.
    """
    try:
        arguments, results = (tuple(_value(v) for v in manifest[kind]) for kind in ("arguments", "results"))
        _check(manifest, arguments, results)
    except (KeyError, ValueError, TypeError) as error:
        raise _damaged(
            path, f"its manifest does not fit what it holds ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    batches = sum(value.bytes for value in (*arguments, *results) if value.kind in ("infeed", "outfeed"))
    needed = sum(value.bytes for value in arguments if value.kind == "variable") + manifest["num_replicas"] * batches
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise LoadError(
            f"the bundle '{path}' needs {needed / 2**30:,.1f} GiB for its variables and batches, and this machine "
            f"has {there / 2**30:,.1f}",
            fix="a larger machine, or fewer steps per call: --iterations_per_loop",
        )
    return arguments, results


def _stored_variables(manifest: dict[str, Any], arguments: tuple[Value, ...]) -> list[Value]:
    """The variables in the order of their arrays."""
    taken = {value.name: value for value in arguments if value.kind == "variable"}
    return [taken[name] for name in manifest["variables"]]


def _check(manifest: dict[str, Any], arguments: tuple[Value, ...], results: tuple[Value, ...]) -> None:
    """Check that the parts of a manifest fit each other.

    Raises:
        ValueError, TypeError: they do not.
    """
    for name, least, most in (("num_replicas", 1, MOST_CORES), ("iterations", 1, 1 << 31), ("trained", 0, 1 << 62)):
        if type(manifest[name]) is not int or not least <= manifest[name] <= most:
            raise ValueError(f"{name} is {manifest[name]!r}")
    for values, kinds in ((arguments, _TAKES), (results, _GIVES)):
        odd = next((value.kind for value in values if value.kind not in kinds), None)
        if odd is not None:
            raise ValueError(f"there is no kind {odd!r}")
    fed, sent = (
        [v for v in values if v.kind == kind] for values, kind in ((arguments, "infeed"), (results, "outfeed"))
    )
    if len(_texts(manifest, "inputs")) != len(fed) or any(
        v.shape[:1] != (manifest["iterations"],) for v in (*fed, *sent)
    ):
        raise ValueError("the inputs are not what the module is fed")
    if len(set(manifest["inputs"])) != len(fed):
        raise ValueError("two inputs have one name")
    if manifest["loss"] is not None and (type(manifest["loss"]) is not int or not 0 <= manifest["loss"] < len(sent)):
        raise ValueError(f"the loss is {manifest['loss']!r}")
    names = [value.name for value in arguments if value.kind == "variable"]
    if sorted(_texts(manifest, "variables")) != sorted(names) or len(set(names)) != len(names):
        raise ValueError("the variables are not those of the module")
    written = [value for value in results if value.kind == "variable"]
    if not set(written) <= set(arguments) or len(set(written)) != len(written):
        raise ValueError("it writes variables that it does not take")
    if any((v.dtype, v.shape) != _FORMS[v.kind] for v in arguments if v.kind in _FORMS):
        raise ValueError("the number of steps or the seed has another form")
    if type(manifest["source"]) is not str or type(manifest["made_by"]) is not dict:
        raise ValueError("it does not say what it was made of")


_TAKES, _GIVES = {"count", "seed", "infeed", "variable"}, {"outfeed", "output", "variable"}
"""Kinds of arguments and of results; no host gives a bundle values or takes them from it."""

_FORMS = {"count": ("int32", ()), "seed": ("int32", (2,))}


def _texts(manifest: dict[str, Any], name: str) -> list[str]:
    found = manifest[name]
    if type(found) is not list or any(type(text) is not str for text in found):
        raise ValueError(f"{name} are no names")
    texts: list[str] = found
    return texts


def _value(held: dict[str, Any]) -> Value:
    found = Value(held["kind"], held["name"], held["dtype"], tuple(held["shape"]))
    if any(type(text) is not str for text in (found.kind, found.name, found.dtype)) or found.dtype not in SIZES:
        raise ValueError(f"{str(found.name)[:100]!r} is {str(found.dtype)[:100]!r}")
    elements = 1
    for size in found.shape:
        elements *= size if type(size) is int and size >= 0 else MOST_ELEMENTS + 1
    if len(found.shape) > MOST_DIMENSIONS or elements > MOST_ELEMENTS:
        raise ValueError(f"{found.name[:100]!r} has the shape {str(list(found.shape[:8]))[:100]}")
    return found


def _damaged(path: str | os.PathLike[str], why: str) -> LoadError:
    return LoadError(f"the bundle '{path}' is damaged: {why}", fix="write it again: tpugraph compile MODEL -o FILE")
