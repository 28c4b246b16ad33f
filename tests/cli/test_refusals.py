"""What the command line refuses: each block word by word, in ``tests/golden/cli/refusals.txt``.

A line that begins with ``$`` is the command, and what follows is what it says on stderr before it ends with the code 2 and
leaves no file. ``TPUGRAPH_UPDATE_GOLDEN=1`` writes the file anew: review it.
"""

import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from evaluating import evaluation, prediction

from command_line import Command
from models import CORPUS, GOLDEN, trace
from tpugraph import cli
from tpugraph.ir import graphdef
from tpugraph.testing import UPDATE_VARIABLE

IRIS = CORPUS / "iris_dnn"
FILES: dict[str, bytes] = {
    "truncated": (IRIS / "model.pb").read_bytes()[:40_000],
    "cut.pbtxt": b'node { name: "x" op: "Const',
    "empty": b"",
    "random": np.random.default_rng(1).bytes(5000),
    "weights.h5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "arrays.npz": (IRIS / "final_plain.npz").read_bytes(),
    "gzip": b"\x1f\x8b\x08" + bytes(100),
    "zeros": bytes(1000),
    "records": (CORPUS / "mnist.tfrecords").read_bytes()[:3000],
    "index": (IRIS / "model.ckpt-0.index").read_bytes(),
    "model.pb": (IRIS / "model.pb").read_bytes(),
}
REFUSALS = GOLDEN / "cli" / "refusals.txt"


def sections() -> list[tuple[str, str]]:
    """The commands of the file, each with what it says."""
    parts = REFUSALS.read_text(encoding="utf-8").removeprefix("$ ").split("\n$ ")
    return [(command, said.strip("\n") + "\n") for command, _, said in (part.partition("\n") for part in parts)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the commands run in: files that are no graphs, a plain graph, a converted one, and both other modes."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    assert cli.main(["convert", str(folder / "model.pb"), "-o", str(folder / "converted.pb")]) == 0
    graphdef.save(trace(evaluation(32, count=77)), folder / "eval.pb")
    graphdef.save(trace(prediction(32, 77)), folder / "predict.pb")
    return folder


@pytest.mark.parametrize(("words", "said"), sections(), ids=lambda value: None if "\n" in value else value)
def test_each_refusal_is_the_recorded_block(
    words: str, said: str, files: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(files)
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*")}
    found = command.refused(*(word.replace("CORPUS", str(CORPUS)) for word in shlex.split(words)))
    found = found.replace(str(CORPUS), "CORPUS").replace(str(files), "FILES")
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*")} == before
    if os.environ.get(UPDATE_VARIABLE) == "1":
        text = REFUSALS.read_text(encoding="utf-8")
        REFUSALS.write_text(text.replace(f"$ {words}\n{said}", f"$ {words}\n{found}"), encoding="utf-8")
        return
    assert found == said
