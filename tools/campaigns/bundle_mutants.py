"""Damaged bundles: bytes that changed, archives and manifests that lie with right checksums, modules that were bent.

    PYTHONPATH=tools python -m campaigns.bundle_mutants --count=1000 --seed=1

Each mutant of a small bundle goes through `tpugraph run` in a process of its own. Right are a training, and a refusal in one
block; within 10 s of processor time, 1 GiB above the start, and without a file that is left after an error. A mutant that
is neither is kept as a file under tests/data/faults/bundles.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tpugraph.cli import command_line
from tpugraph.runtime.pjrt import bundle, module_trial
from tpugraph.runtime.pjrt.bundle_archive import MANIFEST, MODULE, VARIABLES
from tpugraph.xla import jax_client

KEPT = Path(__file__).parents[2] / "tests" / "data" / "faults" / "bundles"
SECONDS, MOST_MEMORY = 10.0, 1 << 20
_ODD: tuple[Any, ...] = (None, True, -1, 0, 1, 2, 3.5, 10**9, 2**63, 10**30, "", "x", "float32", [], [1], [-1], [10**9, 10**9],
                         {}, {"a": 1}, float("nan"), "\u00e4" * 1000)  # fmt: skip


def make(path: Path) -> None:
    """Write a sound bundle: a linear model of three weights on two cores, in a process of its own."""

    def work() -> str:
        import tensorflow as tf

        from tpugraph.compiler import convert
        from tpugraph.ir import graphdef
        from tpugraph.runtime.pjrt import bundling

        tf1 = tf.compat.v1
        with tf.Graph().as_default() as graph:
            rows = tf1.data.Dataset.from_tensors((np.ones([4, 3], "f"), np.ones([4], "f"))).repeat()
            features, labels = tf1.data.make_one_shot_iterator(rows).get_next()
            weights = tf1.get_variable("w", [3, 1], initializer=tf1.zeros_initializer())
            loss = tf.reduce_mean(tf.square(tf.squeeze(features @ weights, 1) - labels))
            tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf1.train.create_global_step())
            plain = graphdef.from_graph_def(graph.as_graph_def())
        bundling.make(convert(plain, num_replicas=2, iterations_per_loop=2)).save(path)
        return ""

    wrong = in_a_child(work)[0]
    if wrong:
        raise RuntimeError(f"no sound bundle: {wrong}")


# --------------------------------------------------------------------------- mutations


def _bend(data: bytes, draw: random.Random) -> bytes:
    bent, kind = bytearray(data), draw.randrange(6)
    at = draw.randrange(len(bent)) if bent else 0
    if not bent or kind == 0:
        return bytes(bent[:at])
    if kind == 1:
        del bent[at : at + draw.choice((1, 4, 50))]
    elif kind == 2:
        bent[at:at] = bent[at : at + draw.choice((1, 8, 200))] or b"x"
    elif kind == 3:
        bent[at : at + 8] = draw.choice((bytes(8), b"\xff" * 8, draw.randbytes(8)))
    else:
        for _ in range(draw.choice((1, 1, 3))):
            bent[draw.randrange(len(bent))] ^= 1 << draw.randrange(8)
    return bytes(bent)


def _packed(members: dict[str, bytes], draw: random.Random | None = None) -> bytes:
    """The archive of some members; with a draw one that is odd."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        kind = None if draw is None else draw.choice(("extra", "bomb", "lzma", "path", "twice"))
        if kind == "bomb":
            archive.writestr("zeros", bytes(50 << 20))
        elif kind == "lzma":
            archive.writestr("more", b"x" * 100, zipfile.ZIP_LZMA)
        elif kind is not None:
            archive.writestr({"extra": "more", "path": "../more", "twice": "twice/"}[kind], b"x")
    return made.getvalue()


def _lie(held: Any, draw: random.Random) -> Any:
    """A JSON value with one place changed."""
    inner = list(held) if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else []
    if not inner or draw.random() < 0.15:
        return copy.deepcopy(draw.choice(_ODD))
    key = draw.choice(list(inner))
    if draw.random() < 0.1:
        del held[key]
    elif isinstance(held, list) and draw.random() < 0.1:
        held.append(copy.deepcopy(held[key]))
    else:
        held[key] = _lie(held[key], draw)
    return held


def _other_arrays(data: bytes, draw: random.Random) -> bytes:
    """The archive of the variables, with arrays of other sizes or dtypes, or of objects."""
    with np.load(io.BytesIO(data)) as stored:
        arrays = [stored[name] for name in stored.files]
    place, made = draw.randrange(len(arrays)), io.BytesIO()
    other = draw.choice((np.zeros(7), np.array([{}], object), np.zeros((2, 2), "U3"), np.zeros(0), arrays[place].astype(">f8"),
                         np.asfortranarray(arrays[place]), arrays[place] * np.nan))  # fmt: skip
    arrays[place] = other
    draw.choice((np.savez, np.savez, np.savez_compressed))(made, *arrays)
    return made.getvalue()


def mutant(sound: bytes, seed: int) -> tuple[str, bytes]:
    """A damaged bundle, and what was damaged. The same seed gives the same."""
    draw = random.Random(seed)
    with zipfile.ZipFile(io.BytesIO(sound)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    kind = draw.choice(
        ("bytes", "archive", "manifest", "manifest", "manifest", "variables", "arrays", "module", "module")
    )
    if kind == "bytes":
        return kind, _bend(sound, draw)
    if kind == "archive":
        return kind, _packed(members, draw)
    if kind == "module":
        members[MODULE] = _bend(members[MODULE], draw)
    elif kind in ("variables", "arrays"):
        members[VARIABLES] = (_bend if kind == "variables" else _other_arrays)(members[VARIABLES], draw)
    manifest = json.loads(members[MANIFEST])
    manifest["sha256"] = {name: hashlib.sha256(members[name]).hexdigest() for name in (MODULE, VARIABLES)}
    if kind == "manifest":
        for _ in range(draw.choice((1, 1, 2))):  # faults come in pairs too
            manifest = _lie(manifest, draw)
    members[MANIFEST] = json.dumps(manifest).encode()
    return kind, _packed(members)


# --------------------------------------------------------------------------- what becomes of it


def in_a_child(work: Callable[[], str], seconds: float = 60.0) -> tuple[str, Any]:
    """What work returns in a process of its own, which may die of it or be ended, and what it used."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = work()
        except BaseException as error:  # the parent tells it
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode()[:4000] or b" ")
        os._exit(0)
    os.close(writer)
    until = time.monotonic() + seconds
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.kill(child, 9)
        time.sleep(0.005)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode().strip()
    return said if status == 0 else f"the process ended with status {status}", used


def _tried_by_a_fork(module: Any, platform: str) -> Any:
    """As of module_trial: what a process says of a module; one that is forked has its imports already."""

    said = in_a_child(lambda: json.dumps(module_trial.answer_of(module, platform=platform)))[0]
    if said.startswith("the process"):
        return {"fault": f"the module of the bundle is damaged: {said}", "node": None, "fix": "write it again"}
    return json.loads(said)


def verdict(path: Path, data: Path) -> str:
    """``trained``, ``refused``, or what is wrong with the answer of ``tpugraph run``."""
    output = path.with_suffix(".out")

    def work() -> str:
        os.environ["TPUGRAPH_CACHE"] = ""
        module_trial._ask = _tried_by_a_fork
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            code = command_line.main(["run", str(path), f"--data={data}", "-o", str(output)])
        words = said.getvalue()
        if code == 0:
            return "trained"
        whole = words.startswith("error: ") and len(words) < 1500 and "this should not happen" not in words
        return "refused" if code == 2 and whole else f"code {code}: {words[:300]}"

    found, used = in_a_child(work)
    if output.exists() and found != "trained":
        found = f"{found}, and a file was left"
    if used.ru_utime + used.ru_stime > SECONDS:
        return f"{used.ru_utime + used.ru_stime:.1f} s of the processor"
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (
        found if used.ru_maxrss - start < MOST_MEMORY else f"{(used.ru_maxrss - start) / 2**20:.1f} GiB above the start"
    )


def prepare(place: Path) -> tuple[bytes, Path]:
    """A sound bundle, and the path of data for it; what mutants need is imported."""
    made, data = place / "sound.tpugraph", place / "data.npz"
    make(made)
    specs = [value for value in bundle.read(made).module.arguments if value.kind == "infeed"]
    np.savez(data, *(np.zeros((2, 2 * value.shape[1], *value.shape[2:]), value.dtype) for value in specs))
    for name in ("jax", "jax.interpreters.mlir", "jaxlib.xla_client", "jaxlib.mlir.ir"):
        jax_client.load(name, "pjrt")
    return made.read_bytes(), data


def main() -> int:
    """Run the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="Damaged bundles.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, counts = Path(folder), Counter[str]()
        sound, data = prepare(place)
        for seed in range(asked.seed, asked.seed + asked.count):
            kind, damaged = mutant(sound, seed)
            path = place / "mutant.tpugraph"
            path.write_bytes(damaged)
            found = verdict(path, data)
            counts[f"{kind} {found}" if found in ("trained", "refused") else "wrong"] += 1
            if found not in ("trained", "refused"):
                KEPT.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, KEPT / f"{kind}-{seed}.tpugraph")
                print(f"{seed} {kind}: {found}", flush=True)
            path.with_suffix(".out").unlink(missing_ok=True)
    print(
        f"{asked.count:,} damaged bundles: " + ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
