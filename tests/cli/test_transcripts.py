"""What the command line says, word by word, in the files of ``tests/golden/cli``.

A line that begins with ``$`` is a command. In ``refusals.txt`` it ends with the code 2, and what follows is what it says on
stderr; in ``answers.txt`` with 0, and on stdout. It leaves no file. ``TPUGRAPH_UPDATE_GOLDEN=1`` writes them anew: review it.
"""

import shlex
from pathlib import Path

import numpy as np
import pytest
from evaluating import evaluation, prediction
from transcripts import assert_recorded, sections

from command_line import Command
from models import CORPUS, GOLDEN, trace
from tpugraph import cli
from tpugraph.ir import graphdef

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
CODES = {"refusals": 2, "answers": 0}


def place(name: str) -> Path:
    return GOLDEN / "cli" / f"{name}.txt"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the commands run in: files that are no graphs, graphs of all modes, a converted one, a bundle and its data."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    for words in (["convert", "-o", str(folder / "converted.pb")], ["compile", "-o", str(folder / "step.tpugraph")]):
        assert cli.main([*words, str(folder / "model.pb")]) == 0
    np.savez(folder / "two.npz", np.zeros(1), np.zeros(1))
    np.savez(folder / "uneven.npz", *[np.zeros(1)] * 4, np.zeros(3))
    graphdef.save(trace(evaluation(32, count=77)), folder / "eval.pb")
    graphdef.save(trace(prediction(32, 77)), folder / "predict.pb")
    return folder


@pytest.mark.parametrize(("name", "words"), [(name, words) for name in CODES for words, _ in sections(place(name))])
def test_each_command_says_what_is_recorded(
    name: str, words: str, files: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(files)
    before = {path: path.stat().st_mtime_ns for path in files.rglob("*")}
    asked = [word.replace("CORPUS", str(CORPUS)) for word in shlex.split(words)]
    found = command.refused(*asked) if CODES[name] else command(*asked).out
    found = found.replace(str(CORPUS), "CORPUS").replace(str(files), "FILES")
    assert {path: path.stat().st_mtime_ns for path in files.rglob("*")} == before
    assert_recorded(place(name), words, found)
