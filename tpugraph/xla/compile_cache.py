"""What the TPU compiler said of a module, kept in the user's cache folder: the same module is not compiled twice.

An entry goes by all that the answer depends on: the module's bytes, what it takes, the topology, the versions of libtpu
and jax, and the flags that both read from the environment.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tpugraph.support.errors import LoadError
from tpugraph.xla import cache_folder, topologies
from tpugraph.xla.memory_layouts import Placed
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import Compiled

_FORM = 5
_FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS", topologies.LIBRARY)


def compile_once(module: Module, topology: str, note: Callable[[str], None]) -> tuple[Compiled, bool]:
    """What the compiler says of a module, from the cache where it is there.

    Args:
        module: the module.
        topology: for which TPU.
        note: told of an entry that is damaged, and of a folder that cannot be written.

    Returns:
        What it said, and whether that was known.

    Raises:
        RunError, UsageError: see :func:`tpugraph.xla.topologies.compile_for`.
    """
    topologies.check(topology, module.num_replicas)
    place = _place(module, topology)
    known = None if place is None else _read(place, note)
    if known is not None:
        return known, True
    compiled = topologies.compile_for(module, topology)
    if place is not None:
        _write(place, compiled, note)
    return compiled, False


def _place(module: Module, topology: str) -> Path | None:
    """Where the entry of a module is."""
    parent, libtpu = cache_folder.folder(), _version("libtpu")
    if parent is None or not libtpu:
        return None
    facts = [_FORM, topology, module.num_replicas, module.iterations, [asdict(v) for v in module.arguments], libtpu,
             _version("jax"), *(os.environ.get(name, "") for name in _FLAGS)]  # fmt: skip
    digest = hashlib.sha256(module.code + json.dumps(facts).encode()).hexdigest()
    return parent / f"{digest[:32]}.json"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(place: Path, note: Callable[[str], None]) -> Compiled | None:
    try:
        held = cache_folder.read(place)
        if held is None:
            return None
        return Compiled(**{**held, "tensors": tuple(Placed(**tensor) for tensor in held["tensors"])})
    except cache_folder.Foreign as error:
        note(f"the cache entry '{place}' {error}, so it is made anew")
    except OSError as error:
        note(f"the cache entry '{place}' cannot be read, so it is made anew: {error.strerror}")
    except (KeyError, TypeError) as error:  # of another version of this page
        note(f"the cache entry '{place}' is damaged, so it is made anew: {error}")
    return None


def _write(place: Path, compiled: Compiled, note: Callable[[str], None]) -> None:
    try:
        cache_folder.write(place, asdict(compiled))
    except OSError as error:
        note(f"the cache folder '{place.parent}' cannot be written: {error.strerror}")
    except LoadError as error:
        note(f"the answer is not kept: {error.fault}")
