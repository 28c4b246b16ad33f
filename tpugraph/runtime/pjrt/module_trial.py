"""A module from a file is tried in a process of its own before this one takes it: MLIR and XLA end their process over some damage.

What went well is kept by name in the user's cache folder, so that a module is tried once on a machine. The process gets on its
standard input a line of JSON and then the module; it answers with a line of JSON, or dies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpugraph.runtime.pjrt.devices import Devices
from tpugraph.support.errors import LoadError, TpuGraphError
from tpugraph.xla import cache_folder, jax_client
from tpugraph.xla.module import Module, Value

SECONDS = 1800.0
"""How long the compiler may take; a step of a large model takes some minutes."""

_GOOD = "a module that was tried"
_FIX = "write it again: tpugraph compile MODEL -o FILE"
_ELEMENTS = {"bool": "i1", "int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16", "int32": "i32", "uint32": "ui32",
             "int64": "i64", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
             "complex64": "complex<f32>", "complex128": "complex<f64>"}  # fmt: skip


def try_apart(module: Module, *, platform: str) -> None:
    """See, in another process, that a module can be read, takes and gives what it should, and on ``cpu`` that it compiles.

    Args:
        module: the module.
        platform: of the devices that it is for.

    Raises:
        LoadError: it is damaged; the process died of it, or took too long.
        TpuGraphError: what the other process said of it.
    """
    kept = cache_folder.folder()
    place = None if kept is None else kept / f"tried-{_name(module, platform)}.json"
    if place is not None and _tried(place):
        return
    answer = _ask(module, platform)
    if answer is not None:
        raise LoadError(answer["fault"], node=answer["node"], fix=answer["fix"])
    if place is not None:
        with contextlib.suppress(OSError, LoadError):  # a cache that cannot be written: it is tried again the next time
            cache_folder.write(place, _GOOD)


def _tried(place: Path) -> bool:
    try:
        return bool(cache_folder.read(place) == _GOOD)
    except (cache_folder.Foreign, OSError):
        return False


def _ask(module: Module, platform: str) -> Any:
    """What the other process answers; None where all is well."""
    facts = {"num_replicas": module.num_replicas, "iterations": module.iterations, "platform": platform,
             "arguments": [asdict(v) for v in module.arguments], "results": [asdict(v) for v in module.results]}  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen([sys.executable, "-c", f"from {__name__} import main; main()"], env=environment,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        said, _ = child.communicate(json.dumps(facts).encode() + b"\n" + module.code, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise LoadError(f"the module of the bundle is not compiled within {SECONDS:g} s", fix=_FIX) from None
    finally:
        child.kill()
        child.wait()
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        raise LoadError(f"the module of the bundle is damaged: the compiler dies of it ({name})", fix=_FIX)
    try:
        return json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        raise LoadError("the module of the bundle could not be tried in a process of its own",
                        fix="see that Python can start processes here") from None  # fmt: skip


def main() -> None:
    """The other process: read a module, try it, and answer."""
    facts = json.loads(sys.stdin.buffer.readline())
    values = [
        tuple(Value(**{**v, "shape": tuple(v["shape"])}) for v in facts[kind]) for kind in ("arguments", "results")
    ]
    module = Module(sys.stdin.buffer.read(), facts["num_replicas"], facts["iterations"], values[0], values[1])
    print(json.dumps(answer_of(module, platform=facts["platform"])), flush=True)
    os._exit(0)  # what is left of a damaged module is not taken down in order


def answer_of(module: Module, *, platform: str) -> dict[str, str | None] | None:
    """What is wrong with a module, as the parts of an error; None where all is well. The process may die of it."""
    try:
        check_here(module, platform=platform)
    except TpuGraphError as error:
        return {"fault": error.fault, "node": error.node, "fix": error.fix}
    except Exception as error:  # the libraries raise many kinds over damage
        words = next(iter(str(error).splitlines()), type(error).__name__)
        return {"fault": f"the module of the bundle is damaged: {words[:300]}", "node": None, "fix": _FIX}
    return None


def check_here(module: Module, *, platform: str) -> None:
    """As :func:`try_apart`, in this process.

    Raises:
        RunError: it cannot be read, or the compiler refuses it.
        LoadError: it takes or gives something else than it should.
    """
    parsed = jax_client.parse(module.code)
    main_function = next(
        (op for op in parsed.body.operations if getattr(op, "sym_name", None) and op.sym_name.value == "main"), None
    )
    if main_function is None:
        raise LoadError("the module of the bundle has no function 'main'", fix=_FIX)
    form = main_function.type
    for what, types, values in (("takes", form.inputs, module.arguments), ("gives", form.results, module.results)):
        if list(map(str, types)) != list(map(_form, values)):
            raise LoadError(f"the module of the bundle {what} other values than its manifest says", fix=_FIX)
    if platform == "cpu":
        Devices(module, platform=platform)


def _form(value: Value) -> str:
    """The type of a value as MLIR writes it, such as ``tensor<2x3xf32>``."""
    return f"tensor<{'x'.join([*map(str, value.shape), _ELEMENTS[value.dtype]])}>"


def _name(module: Module, platform: str) -> str:
    """All that the answer depends on, as a name."""
    facts = [platform, module.num_replicas, module.iterations, [asdict(v) for v in (*module.arguments, *module.results)],
             jax_client.load("jaxlib", "pjrt").__version__]  # fmt: skip
    return hashlib.sha256(module.code + json.dumps(facts).encode()).hexdigest()
