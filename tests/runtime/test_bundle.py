"""Bundles: the step, its variables and a manifest, trained with jax and NumPy where there is no TensorFlow."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import Command
from models import corpus
from tpugraph import cli
from tpugraph.compiler import convert
from tpugraph.runtime import pjrt
from tpugraph.runtime.pjrt import bundle, bundling
from tpugraph.runtime.pjrt.compiled import CompiledLoop
from tpugraph.support.errors import LoadError, RunError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
IRIS = corpus("iris_dnn")
STEPS = 7

NO_TENSORFLOW = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras", "networkx", "google", "absl"):
            raise ImportError(f"{name} is kept away")

sys.meta_path.insert(0, Blocker())
"""
TRAINS = """
import numpy as np
from tpugraph.runtime import pjrt
step = pjrt.load(sys.argv[1])
with np.load(sys.argv[2]) as data:
    batches = list(zip(*[data[str(i)] for i in range(len(step.inputs))], strict=True))
print(step.train(batches))
step.save(sys.argv[1])
assert "tensorflow" not in sys.modules
"""
COMMAND = """
from tpugraph import cli
code = cli.main(sys.argv[1:])
assert "tensorflow" not in sys.modules
sys.exit(code)
"""


def without_tensorflow(code: str, *words: object, cwd: Path) -> str:
    """What a program prints where there is neither TensorFlow nor absl."""
    done = subprocess.run([sys.executable, "-c", NO_TENSORFLOW + code, *map(str, words)], check=False, capture_output=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, timeout=300, cwd=cwd)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "step.tpugraph"
    words = ["compile", str(IRIS.folder / "model.pb"), "-o", str(path), f"--checkpoint={IRIS.checkpoint}"]
    assert cli.main([*words, "--num_replicas=2", "--iterations_per_loop=3"]) == 0
    return path


@pytest.fixture(scope="module")
def trained() -> tuple[list[list[np.ndarray]], list[float], dict[str, np.ndarray]]:
    """The batches of each step as the graph's own input gives them, the losses on the emulator, and the variables."""
    program = convert(IRIS.graph(), num_replicas=2, iterations_per_loop=STEPS)
    with IRIS.session(program, engine="pjrt") as session:
        assert isinstance(session.engine, CompiledLoop)
        steps, infeed = session.engine._read(STEPS)
    assert steps == STEPS
    batches = [[np.stack([core[i][step] for core in infeed]) for i in range(len(infeed[0]))] for step in range(STEPS)]
    plain = IRIS.trained(program, STEPS)
    return batches, plain.losses, plain.variables


def test_a_bundle_trains_as_the_session_does(written: Path, trained: tuple) -> None:
    batches, losses, values = trained
    step = pjrt.load(written)
    assert (step.num_replicas, step.iterations, step.trained) == (2, 3, 0)
    fed = [(array.dtype.name, array.shape[1:]) for array in batches[0]]
    assert [(spec.dtype, spec.shape) for spec in step.inputs.values()] == fed
    np.testing.assert_allclose(step.train(batches), losses, rtol=1e-5)
    assert step.trained == STEPS
    found = step.variables()
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    batches, losses, _ = trained
    whole = [[array.reshape(-1, *array.shape[2:]) for array in batch] for batch in batches]
    np.testing.assert_allclose(pjrt.load(written).train(iter(whole)), losses, rtol=1e-5)


def test_it_runs_without_tensorflow_and_goes_on_from_its_own_file(written: Path, trained: tuple,
                                                                  tmp_path: Path) -> None:  # fmt: skip
    batches, losses, _ = trained
    path, data = tmp_path / "step.tpugraph", tmp_path / "batches.npz"
    path.write_bytes(written.read_bytes())
    found: list[float] = []
    for part in (batches[:4], batches[4:]):
        np.savez(data, **{str(i): np.stack([batch[i] for batch in part]) for i in range(len(part[0]))})
        found += json.loads(without_tensorflow(TRAINS, path, data, cwd=tmp_path))
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert bundle.read(path).trained == STEPS


def test_the_command_trains_a_bundle_without_tensorflow(written: Path, trained: tuple, tmp_path: Path) -> None:
    batches, losses, _ = trained
    whole = {name: np.stack([batch[i] for batch in batches[:4]]) for i, name in enumerate(bundle.read(written).inputs)}
    np.savez(tmp_path / "batches.npz", **dict(reversed(whole.items())))  # found by their names
    said = without_tensorflow(COMMAND, "run", written, "--data=batches.npz", "-o", "next.tpugraph", "--losses=losses.jsonl",
                              cwd=tmp_path)  # fmt: skip
    assert f"{written}: 2 cores, trained to step 0\ntrained 4 steps in " in said
    assert said.endswith("\nwrote next.tpugraph\n")
    np.savez(tmp_path / "batches.npz", *(np.stack([batch[i] for batch in batches[4:]]) for i in range(len(batches[0]))))
    found = json.loads(without_tensorflow(COMMAND, "run", "next.tpugraph", "--data=batches.npz", "--json",
                                          cwd=tmp_path))  # fmt: skip
    assert found["trained"] == STEPS
    first = [json.loads(line)["loss"] for line in (tmp_path / "losses.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(first + found["losses"], losses, rtol=1e-5)
    assert bundle.read(tmp_path / "next.tpugraph").trained == 4


def test_the_help_of_a_bundle_fits_a_terminal(written: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = command("run", written, "--help").out
    assert "--data FILE.npz" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_what_a_bundle_holds(written: Path) -> None:
    with np.load(written) as stored:
        assert {"module", "manifest", "arr_0"} <= set(stored.files)
        manifest = json.loads(stored["manifest"].tobytes())
    assert [manifest["num_replicas"], manifest["iterations"], len(manifest["variables"])] == [2, 3, 13]
    made = bundling.make(convert(IRIS.graph(), num_replicas=1))
    wanted = [value.name for value in made.module.arguments if value.kind == "variable"]
    assert list(made.variables) == wanted


def test_values_that_numpy_has_no_files_for_survive(tmp_path: Path) -> None:
    import ml_dtypes

    half = np.asarray([1.5, -2.25], ml_dtypes.bfloat16)
    module = bundle.Module(b"code", 1, 1, (bundle.Value("variable", "a", "bfloat16", (2,)),), ())
    bundle.Bundle(module, {"a": half}, (), None).save(tmp_path / "b")
    found = bundle.read(tmp_path / "b").variables["a"]
    assert found.dtype == half.dtype
    np.testing.assert_array_equal(found, half)


# --------------------------------------------------------------------------- what goes wrong


Damage = Callable[[bytes], bytes]


def _members(change: Callable[[dict[str, Any]], object]) -> Damage:
    def repack(data: bytes) -> bytes:
        members = dict(np.load(io.BytesIO(data)))
        change(members)
        out = io.BytesIO()
        np.savez(out, **members)
        return out.getvalue()

    return repack


def _holds(content: bytes) -> Damage:
    return _members(lambda members: members.update(manifest=np.frombuffer(content, np.uint8)))


def _flipped(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        place = archive.getinfo("module.npy").header_offset + 1000
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(("damage", "fault"), [
    (lambda data: data[: len(data) // 2], "File is not a zip file"),
    (lambda data: b"", "No data left in file"),
    (lambda data: b"no bundle", "is no bundle, or a damaged one"),
    (_flipped, "is no bundle, or a damaged one"),
    (_members(lambda members: members.pop("arr_0")), "arr_0"),
    (_members(lambda members: members.pop("manifest")), "manifest"),
    (_holds(b"[1]"), "is no bundle, or a damaged one"),
    (_holds(b"[" * 100000), "is no bundle, or a damaged one"),
    (_holds(b'{"format": "tpugraph bundle", "version": 99}'), "is of version 99, and this tpugraph reads 3"),
])  # fmt: skip
def test_a_damaged_bundle_says_what_is_wrong(damage: Damage, fault: str, written: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.tpugraph"
    path.write_bytes(damage(written.read_bytes()))
    with pytest.raises(LoadError, match=fault) as caught:
        pjrt.load(path)
    assert "tpugraph compile MODEL -o FILE" in (caught.value.fix or "")


def test_a_module_that_jax_cannot_read_is_no_traceback(written: Path) -> None:
    whole = bundle.read(written)
    odd = dataclasses.replace(whole, module=dataclasses.replace(whole.module, code=b"ML\xefR of another time"))
    with pytest.raises(RunError, match="jax cannot read the module: ") as caught:
        pjrt.CompiledStep(odd)
    assert caught.value.fix


def test_the_command_says_what_it_lacks_where_bundles_alone_run() -> None:
    hidden = (
        "import sys; sys.modules['absl'] = None\nfrom tpugraph import cli\nsys.exit(cli.main(['check', 'model.pb']))"
    )
    done = subprocess.run([sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: absl is not installed\n  fix     python -m pip install tpugraph")


def test_no_bundle_there(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        pjrt.load(tmp_path / "nothing")


def test_a_batch_of_another_shape_is_named(written: Path, trained: tuple) -> None:
    batches, _, _ = trained
    step = pjrt.load(written)
    with pytest.raises(RunError, match=r"float32\[3, 32, 4\]|not float32 \[2, ") as caught:
        step.train([[np.zeros((3, *array.shape[1:]), array.dtype) for array in batches[0]]])
    assert "2 cores take" in (caught.value.fix or "")
    with pytest.raises(RunError, match="a batch has 1 arrays"):
        step.train([batches[0][:1]])
