"""The campaign of checkpoints: damaged ones, and damaged bundles, are refused in one block or read with the values that were saved.

    PYTHONPATH=tools python -m campaigns.checkpoints --count=1000 --seed=1
    PYTHONPATH=tools python -m campaigns.checkpoints --bundles --count=1000 --keep=tests/data/faults/bundles

A checkpoint is looked for as `tpugraph run --model_dir` does, a bundle goes through `tpugraph run`, each in a process of its own,
within 10 s of processor time and 1 GiB above the start.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import hashlib
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from campaigns import campaign, damaged_bytes, in_a_child
from tpugraph.cli import command_line
from tpugraph.runtime.checkpoint import write_durably
from tpugraph.runtime.checkpoints.checkpoint_folder import newest
from tpugraph.runtime.pjrt import bundle, module_trial
from tpugraph.runtime.pjrt.bundle import MANIFEST, MODULE, VARIABLES
from tpugraph.support.errors import CheckpointError
from tpugraph.xla import jax_client

ORIGINAL = Path(__file__).parents[2] / "examples" / "iris" / "model.ckpt-0"
SECONDS, MOST_MEMORY = 10.0, 1 << 20
_ODD: tuple[Any, ...] = (None, True, -1, 0, 1, 3.5, 10**9, 2**63, 10**30, "", "x", "float32", [], [1], [-1], [10**9, 10**9],
                         {}, {"a": 1}, float("nan"), "\u00e4" * 1000)  # fmt: skip
SEEDS = st.integers(0, 2**20)
Files = dict[str, bytes]


# --------------------------------------------------------------------------- checkpoints


@functools.cache
def sound_checkpoint() -> Files:
    """The files of a folder in which the checkpoint of iris was saved."""

    def write(prefix: str) -> None:
        for path in ORIGINAL.parent.glob(f"{ORIGINAL.name}.[di]*"):
            shutil.copyfile(path, f"{prefix}.{path.name.partition('.ckpt-0.')[2]}")

    with tempfile.TemporaryDirectory() as place:
        write_durably(Path(place, ORIGINAL.name), write, keep=3)
        return {path.name: path.read_bytes() for path in sorted(Path(place).iterdir())}


@st.composite
def damaged_checkpoints(draw: st.DrawFn) -> Files:
    """Damages or removes one or two files of a folder."""
    files = dict(sound_checkpoint())
    for name, seed in draw(st.lists(st.tuples(st.sampled_from(sorted(files)), SEEDS), min_size=1, max_size=2)):
        if name in files and not seed % 8:
            del files[name]
        elif name in files:
            files[name] = damaged_bytes(Random(seed), files[name])
    return files


def values_of(prefix: Path) -> dict[str, bytes]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {key: reader.get_tensor(key).tobytes() for key in reader.get_variable_to_shape_map()}


def checkpoint_verdict(files: Files, folder: Path, right: Mapping[str, bytes]) -> str:
    """``refused``, ``whole``, or what is wrong with how a folder is read."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        found = newest(folder, lambda text: None)
    except CheckpointError as error:
        return "refused" if len(error.block()) < 1500 else f"a block of {len(error.block())} characters"
    if found is None:
        return "refused" if not any(name.endswith(".index") for name in files) else "nothing was found, without a word"
    return "whole" if values_of(found) == right else "other values were believed"


# --------------------------------------------------------------------------- bundles


def make_bundle(path: Path) -> None:
    """Write a sound bundle: a linear model of three weights on two cores."""
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


def _lie(held: Any, rng: Random) -> Any:
    """A JSON value with one place changed."""
    inner = list(held) if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else []
    if not inner or rng.random() < 0.15:
        return copy.deepcopy(rng.choice(_ODD))
    key = rng.choice(list(inner))
    if rng.random() < 0.1:
        del held[key]
    elif isinstance(held, list) and rng.random() < 0.1:
        held.append(copy.deepcopy(held[key]))
    else:
        held[key] = _lie(held[key], rng)
    return held


def _other_arrays(data: bytes, rng: Random) -> bytes:
    """The archive of the variables, with an array of another size or dtype, or of objects."""
    with np.load(io.BytesIO(data)) as stored:
        arrays = [stored[name] for name in stored.files]
    place, made = rng.randrange(len(arrays)), io.BytesIO()
    arrays[place] = rng.choice((np.zeros(7), np.array([{}], object), np.zeros((2, 2), "U3"), np.zeros(0),
                                arrays[place].astype(">f8"), np.asfortranarray(arrays[place]), arrays[place] * np.nan))  # fmt: skip
    rng.choice((np.savez, np.savez_compressed))(made, *arrays)
    return made.getvalue()


@st.composite
def damaged_bundles(draw: st.DrawFn, sound: bytes) -> bytes:
    """Damages the bytes, the archive, a member or the manifest of a bundle; checksums of members are kept right."""
    kinds = ("bytes", "more", "manifest", "manifest", "manifest", "variables", "arrays", "module", "module")
    kind, rng = draw(st.sampled_from(kinds)), Random(draw(SEEDS))
    if kind == "bytes":
        return damaged_bytes(rng, sound)
    with zipfile.ZipFile(io.BytesIO(sound)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if kind == "module":
        members[MODULE] = damaged_bytes(rng, members[MODULE])
    elif kind in ("variables", "arrays"):
        held = members[VARIABLES]
        members[VARIABLES] = _other_arrays(held, rng) if kind == "arrays" else damaged_bytes(rng, held)
    manifest = json.loads(members[MANIFEST])
    manifest["sha256"] = {name: hashlib.sha256(members[name]).hexdigest() for name in (MODULE, VARIABLES)}
    members[MANIFEST] = json.dumps(_lie(manifest, rng) if kind == "manifest" else manifest).encode()
    made, compression = io.BytesIO(), rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    if kind == "more":
        name = rng.choice(("more", "../more", "zeros", MODULE))
        members[name] = members.get(name, b"") + bytes(50 << 20 if name == "zeros" else 1)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content, compression if kind == "more" else zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _tried_by_a_fork(module: Any, platform: str) -> Any:
    """What module_trial asks a new process, of a copy of this one, which has its imports already."""
    with tempfile.NamedTemporaryFile() as said:
        answer = functools.partial(module_trial.answer_of, module, platform=platform)
        code = in_a_child(lambda: print(json.dumps(answer())), said=Path(said.name))
        if code:
            return {"fault": f"the module of the bundle is damaged: {code}", "node": None, "fix": "write it again"}
        return json.loads(Path(said.name).read_text().splitlines()[-1])


def bundle_verdict(path: Path, data: Path) -> str:
    """``trained``, ``refused``, or what is wrong with the answer of ``tpugraph run``."""
    output, said, start = path.with_suffix(".out"), io.StringIO(), resource.getrusage(resource.RUSAGE_SELF)
    os.environ["TPUGRAPH_CACHE"] = ""
    with (mock.patch.object(module_trial, "_ask", _tried_by_a_fork), contextlib.redirect_stderr(said),
          contextlib.redirect_stdout(io.StringIO())):  # fmt: skip
        code = command_line.main(["run", str(path), f"--data={data}", "-o", str(output)])
    words, used = said.getvalue(), resource.getrusage(resource.RUSAGE_SELF)
    if used.ru_utime - start.ru_utime > SECONDS or used.ru_maxrss - start.ru_maxrss > MOST_MEMORY:
        return f"{used.ru_utime - start.ru_utime:.1f} s, {(used.ru_maxrss - start.ru_maxrss) / 2**20:.1f} GiB above the start"
    if code == 0:
        return "trained"
    if output.exists():
        return f"a file was left after {words[:300]}"
    whole = words.startswith("error: ") and len(words) < 1500 and "this should not happen" not in words
    return "refused" if code == 2 and whole else f"code {code}: {words[:300]}"


def prepare_bundle(place: Path) -> tuple[bytes, Path]:
    """A sound bundle, and the path of data for it; what mutants need is imported."""
    made, data = place / "sound.tpugraph", place / "data.npz"
    if in_a_child(lambda: make_bundle(made), said=place / "said"):
        raise RuntimeError(f"no sound bundle: {(place / 'said').read_text()}")
    specs = [value for value in bundle.read(made).module.arguments if value.kind == "infeed"]
    np.savez(data, *(np.zeros((2, 2 * value.shape[1], *value.shape[2:]), value.dtype) for value in specs))
    for name in ("jax", "jax.interpreters.mlir", "jaxlib.xla_client", "jaxlib.mlir.ir"):
        jax_client.load(name, "pjrt")
    return made.read_bytes(), data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundles", action="store_true", help="damage bundles")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="keep failures there, shrunk")
    options, right = parser.parse_args(), values_of(ORIGINAL)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        bundled, data = prepare_bundle(place) if options.bundles else (b"", place)

        def judge(mutant: Any) -> str:
            here, said = place / "mutant", place / "said"
            shutil.rmtree(here, ignore_errors=True)
            here.mkdir()
            if options.bundles:
                (here / "mutant.tpugraph").write_bytes(mutant)
            work: Callable[[], str] = (functools.partial(bundle_verdict, here / "mutant.tpugraph", data) if options.bundles else
                                       functools.partial(checkpoint_verdict, mutant, here, right))  # fmt: skip
            code = in_a_child(lambda: print("\n" + " | ".join(work().splitlines())), said=said)
            last = said.read_text(errors="replace").strip().splitlines()[-1:]
            return last[0] if code == 0 else f"the process ended with {code}"

        def keep(mutant: Any, number: int) -> None:
            files = {f"{options.seed}-{number}.tpugraph": mutant} if options.bundles else mutant
            kept = Path(options.keep) if options.bundles else Path(options.keep, f"{options.seed}-{number}")
            kept.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (kept / name).write_bytes(content)

        drawn = damaged_bundles(bundled) if options.bundles else damaged_checkpoints()
        right_ones = {"refused", "whole", "trained"}
        totals = campaign(drawn, judge, right_ones, options.count, options.seed, keep if options.keep else None)
    print(f"{options.count:,} damaged: " + ", ".join(f"{count:,} {what}" for what, count in sorted(totals.items())))
    return int(totals["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
