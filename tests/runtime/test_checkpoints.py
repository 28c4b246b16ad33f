"""Checkpoints that survive: what is whole, which is the newest, one writer, and saves that a fault ends anywhere."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from forked import Programs

import tpugraph
from campaigns.checkpoints import checkpoint_verdict, damaged_checkpoints, values_of
from campaigns.faulty_disk import FAULTS, Ended, FaultyDisk
from command_line import Command
from estimators import estimator, input_fn, saved
from tpugraph.runtime.checkpoints import checkpoint_folder
from tpugraph.runtime.checkpoints.checkpoint_folder import FILE, FolderLock, collect, newest, verify
from tpugraph.runtime.checkpoints.saver import write_durably
from tpugraph.support import files
from tpugraph.support.errors import CheckpointError

ROOT = Path(__file__).parents[2]
IRIS = ROOT / "examples" / "iris" / "model.ckpt-0"


def write(prefix: Path | str, step: int) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        values = [np.full([300], step, "float32"), np.int64(step)]
        session.run(tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=["w", "global_step"], shape_and_slices=["", ""],
                                      tensors=values))  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of steps 1 to 6, each in a folder of its own."""
    place = tmp_path_factory.mktemp("made")
    for step in range(1, 7):
        (place / str(step)).mkdir()
        write(place / str(step) / "w", step)
    return place


def save(made: Path, folder: Path, *steps: int, keep: int = 3) -> None:
    for step in steps:

        def copy(prefix: str, step: int = step) -> None:
            for path in (made / str(step)).iterdir():
                shutil.copyfile(path, f"{prefix}.{path.name.partition('.')[2]}")

        write_durably(folder / f"model.ckpt-{step}", copy, keep=keep)


def found_in(folder: Path) -> tuple[int, list[str]]:
    """The step of the newest whole checkpoint, read from its values, and what was said."""
    said: list[str] = []
    prefix = newest(folder, said.append)
    if prefix is None:
        return 0, said
    values = tf.train.load_checkpoint(str(prefix))
    step = int(values.get_tensor("global_step"))
    np.testing.assert_array_equal(values.get_tensor("w"), np.full([300], step, "float32"))
    return step, said


# --------------------------------------------------------------------------- the newest whole one


NO_MANIFEST = "is damaged: model.ckpt-3.manifest is no manifest"
DATA = "data-00000-of-00001"
DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes | None], str]] = {
    "cut": (DATA, lambda data: data[:-10], "is damaged: "),
    "emptied": (DATA, lambda data: b"", "is damaged: "),
    "flipped": (DATA, lambda data: data[:10] + bytes([data[10] ^ 4]) + data[11:], "is damaged: "),
    "lost": (DATA, lambda data: None, f"cannot be read: model.ckpt-3.{DATA}: No such file or directory"),
    "index cut": ("index", lambda data: data[:-1], "is damaged: "),
    "index emptied": ("index", lambda data: b"", "is damaged: "),
    "index flipped": ("index", lambda data: bytes([data[0], data[1] ^ 1]) + data[2:], "is damaged: "),
    "index lost": ("index", lambda data: None, "cannot be read: model.ckpt-3.index: No such file or directory"),
    "manifest emptied": ("manifest", lambda data: b"", NO_MANIFEST),
    "manifest of nothing": ("manifest", lambda data: b"{}", NO_MANIFEST),
    "manifest of a number": ("manifest", lambda data: b'{"files": {".index": 3}}', NO_MANIFEST),
    "manifest of another folder": ("manifest", lambda data: data.replace(b'".index"', b'"/../x": {"bytes": 1, "crc32": 2}, ".index"'),
                                   NO_MANIFEST),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_line(damage: str, made: Path, tmp_path: Path) -> None:
    save(made, tmp_path, 1, 2, 3)
    part, change, words = DAMAGES[damage]
    file = tmp_path / f"model.ckpt-3.{part}"
    if (content := change(file.read_bytes())) is None:
        file.unlink()
    else:
        file.write_bytes(content)
    step, (line,) = found_in(tmp_path)
    assert step == 2
    assert line.startswith(f"the checkpoint '{tmp_path}/model.ckpt-3' {words}")
    assert line.endswith("; passed over")


@pytest.mark.parametrize("state", [None, b"", b"\xff\xfe no text", b"model_checkpoint_path: 7"])
def test_without_the_state_file_the_folder_is_looked_at(state: bytes | None, made: Path, tmp_path: Path) -> None:
    save(made, tmp_path, 1, 2, 3)
    (tmp_path / "checkpoint").unlink()
    if state is not None:
        (tmp_path / "checkpoint").write_bytes(state)
    assert found_in(tmp_path) == (3, [])


def test_a_state_file_that_is_older_than_the_files_does_not_hide_them(made: Path, tmp_path: Path) -> None:
    save(made, tmp_path, 1)
    before = (tmp_path / "checkpoint").read_bytes()
    save(made, tmp_path, 2)
    (tmp_path / "checkpoint").write_bytes(before)
    assert found_in(tmp_path) == (2, [])


def test_a_checkpoint_that_somebody_chose_is_taken(made: Path, tmp_path: Path) -> None:
    save(made, tmp_path, 1, 2, 3)
    state = tmp_path / "checkpoint"
    state.write_text(state.read_text().replace('path: "model.ckpt-3"', 'path: "model.ckpt-2"', 1))
    assert found_in(tmp_path) == (2, [])
    save(made, tmp_path, 4, keep=0)
    shutil.copytree(tmp_path, tmp_path / "moved")
    assert found_in(tmp_path / "moved") == (4, [])


def test_a_training_that_went_back_leaves_the_later_ones_behind(made: Path, tmp_path: Path) -> None:
    save(made, tmp_path, 1, 5)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    assert found_in(tmp_path) == (1, [])
    save(made, tmp_path, 2)
    assert found_in(tmp_path) == (2, [])


def test_nothing_whole_is_no_fresh_start(made: Path, tmp_path: Path) -> None:
    assert newest(tmp_path, print) is None
    save(made, tmp_path, 1, 2)
    for path in tmp_path.glob("*.data-*"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint in '.*' is whole: .*model.ckpt-2.*, and 1 more"):
        found_in(tmp_path)


def test_partitioned_variables_are_read_slice_by_slice(tmp_path: Path) -> None:
    """A slot of a partitioned variable may be one slice whose others are nowhere."""
    prefix = tmp_path / "model.ckpt-1"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=["w", "w", "slot", "text"],
                                      shape_and_slices=["4 2 0,2:-", "4 2 2,2:-", "4 2 0,2:-", ""],
                                      tensors=[np.ones([2, 2]), np.ones([2, 2]), np.ones([2, 2]),
                                               np.array([b"a", b""], object)]))  # fmt: skip
    verify(prefix)  # TensorFlow reads it, since it has no manifest
    data = Path(f"{prefix}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:40] + b"\xff" + data.read_bytes()[41:])
    with pytest.raises(CheckpointError, match=r"is damaged: .*hecksum"):
        verify(prefix)


def test_a_checkpoint_without_a_manifest_is_read_by_tensorflow(made: Path, tmp_path: Path) -> None:
    """TensorFlow and earlier versions write none; nor does a power cut leave one whose name was not flushed."""
    save(made, tmp_path, 1, 2)
    for step in (1, 2):
        (tmp_path / f"model.ckpt-{step}.manifest").unlink()
    assert found_in(tmp_path) == (2, [])
    data = tmp_path / "model.ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    step, (line,) = found_in(tmp_path)
    assert step == 1
    assert "hecksum" in line


@hypothesis.settings(max_examples=60, database=None, deadline=None, derandomize=True)
@hypothesis.given(files=damaged_checkpoints())
def test_damaged_checkpoints_are_refused_in_a_block_or_read_with_their_values(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        assert checkpoint_verdict(files, Path(place), values_of(IRIS)) in ("refused", "whole")


# --------------------------------------------------------------------------- one writer


def test_one_writer(tmp_path: Path) -> None:
    code = ("import sys, time; from tpugraph.runtime.checkpoints.checkpoint_folder import FolderLock\n"
            "with FolderLock(sys.argv[1]): print('mine', flush=True); time.sleep(60)")  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
    assert other.stdout is not None
    assert other.stdout.readline() == b"mine\n"
    with pytest.raises(CheckpointError, match=rf"process {other.pid} on the host .+ writes checkpoints into '.*' alre"):
        FolderLock(tmp_path).__enter__()
    other.kill()
    other.communicate()
    with FolderLock(tmp_path), pytest.raises(CheckpointError, match="another training of this process writes"):
        FolderLock(tmp_path).__enter__()
    with FolderLock(tmp_path):
        assert (tmp_path / FILE).exists()
    with FolderLock(tmp_path / "out"):
        assert (tmp_path / "out").is_dir()
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------- faults


def ends_well(made: Path, folder: Path, saved: set[int]) -> None:
    """After a fault in the save of step 4: nothing of what was saved is lost, and the next save leaves no rubbish."""
    assert found_in(folder)[0] in saved
    collect(folder)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert found_in(folder)[0] in saved
    save(made, folder, 5)
    assert found_in(folder) == (5, [])
    assert Path(str(tf.train.latest_checkpoint(str(folder)))).name == "model.ckpt-5"
    save(made, folder, 6)
    there = {re.sub(r"\.(index|data-.*|manifest)$", "", path.name) for path in folder.glob("model.ckpt-*")}
    assert there >= {"model.ckpt-5", "model.ckpt-6"}
    assert len(there) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_save_may_end_at_any_file_operation(fault: str, made: Path, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(checkpoint_folder, "_alive", lambda pid: False)
    for at in itertools.count():
        for seed in range(4 if fault == "power" else 1):
            folder = tmp_path / f"{at}-{seed}"
            folder.mkdir()
            save(made, folder, 1, 2, 3)
            with FaultyDisk(folder, at, fault, seed=seed) as disk:
                try:
                    save(made, folder, 4)
                    passed = True
                except (CheckpointError, Ended):
                    passed = False
            if passed:
                assert len(disk.operations) == at
                assert at >= 10
                return
            ends_well(made, folder, {3, 4})


def test_what_is_saved_survives_a_power_cut_right_behind_it(made: Path, tmp_path: Path) -> None:
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        save(made, folder, 1, 2, 3)
        with FaultyDisk(folder, None) as disk:
            save(made, folder, 4)
            disk.cut_power(seed)
        assert found_in(folder) == (4, [])


def test_only_what_dead_runs_left_is_collected(made: Path, tmp_path: Path) -> None:
    save(made, tmp_path, 1)
    alive = f".model.ckpt-2.{os.getpid()}.saving.index"
    stays = {alive, "model.ckpt-0.meta", "notes.data", "model.ckpt-1.index", "model.ckpt-1.manifest",
             "model.ckpt-1.data-00000-of-00001", "checkpoint"}  # fmt: skip
    goes = {".model.ckpt-2.4194305.saving.index", "model.ckpt-3.index.tempstate123", "model.ckpt-3.data-00000-of-00001",
            "model.ckpt-3.manifest", ".checkpoint.4194305.tmp"}  # fmt: skip
    for name in (stays | goes) - {path.name for path in tmp_path.iterdir()}:
        (tmp_path / name).write_bytes(b"x")
    assert set(collect(tmp_path)) == goes
    assert {path.name for path in tmp_path.iterdir()} == stays


# --------------------------------------------------------------------------- run and TPUEstimator


RUN = ("run", IRIS.with_name("model.pb"), "--num_replicas=2", "--iterations_per_loop=3")


def test_run_says_what_begins_and_what_ends(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "out"
    said = command(*RUN, "--steps=3").out
    assert "fresh weights: the first values that the graph gives them; --checkpoint=PREFIX starts from others" in said
    assert "nothing is saved: --model_dir=DIR keeps the weights" in said
    said = command(*RUN, "--steps=9", f"--model_dir={folder}", "--save_steps=3", f"--checkpoint={IRIS}").out
    assert f"restored {IRIS} at step 0\nsaving to {folder} every 3 steps and at the end\n" in said
    (folder / "model.ckpt-9.data-00000-of-00001").write_bytes(b"")
    said = command(*RUN, "--max_steps=12", f"--model_dir={folder}").out
    assert f"note: the checkpoint '{folder}/model.ckpt-9' is damaged: " in said
    assert f"restored {folder}/model.ckpt-6 at step 6\nsaving to {folder} every 10 minutes and at the end\n" in said
    before = (folder / "model.ckpt-12.index").stat().st_mtime_ns
    command(*RUN, "--max_steps=12", f"--model_dir={folder}")
    assert (folder / "model.ckpt-12.index").stat().st_mtime_ns == before  # it is not written again
    for path in folder.glob("*.index"):
        path.write_bytes(b"")
    assert f"error: no checkpoint in '{folder}' is whole" in command.refused(*RUN, "--steps=3", f"--model_dir={folder}")


def test_the_estimator_passes_over_a_damaged_checkpoint(tmp_path: Path, use_tpu: bool, said: list[str]) -> None:
    estimator(tmp_path / "whole", use_tpu=use_tpu).train(input_fn, max_steps=12)
    trained = estimator(tmp_path / "out", use_tpu=use_tpu, save_checkpoints_steps=4)
    trained.train(input_fn, max_steps=8)
    (tmp_path / "out" / "model.ckpt-8.data-00000-of-00001").write_bytes(b"")
    again = estimator(tmp_path / "out", use_tpu=use_tpu, save_checkpoints_steps=4)
    assert again.latest_checkpoint() == str(tmp_path / "out" / "model.ckpt-4")
    again.train(lambda params: input_fn(params).skip(4), max_steps=12)
    assert any("model.ckpt-8' is damaged" in line and line.endswith("passed over") for line in said)
    assert any("model.ckpt-4 at step 4" in line for line in said)
    whole = tf.train.load_variable(str(tmp_path / "whole"), "w")
    np.testing.assert_array_equal(again.get_variable_value("w"), whole)
    with FolderLock(tmp_path / "out"), pytest.raises(tpugraph.CheckpointError, match="writes checkpoints into"):
        again.train(input_fn, steps=1)


# --------------------------------------------------------------------------- in the background


def test_a_save_in_the_background_holds_the_values_of_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies stay as they were while the variables go on, and the position of the input with them."""
    program = tpugraph.convert(IRIS.with_name("model.pb"), num_replicas=2, iterations_per_loop=3)
    with tpugraph.TPUSession(program) as session:
        session.restore(IRIS)
        session.train(3)
        session.save(tmp_path / "sync" / "model.ckpt")
        release = threading.Event()
        flush = files.flush
        monkeypatch.setattr(files, "flush", lambda path: (release.wait(30), flush(path)))
        prefix = session.save(tmp_path / "beside" / "model.ckpt", in_background=True)
        after = session.train(6)
        assert newest(tmp_path / "beside", print) is None
        release.set()
        session.wait_for_save()
    assert newest(tmp_path / "beside", print) == Path(prefix)
    kept = [tf.train.load_checkpoint(str(tmp_path / name / "model.ckpt-3")) for name in ("sync", "beside")]
    for key, shape in kept[0].get_variable_to_shape_map().items():
        if not key.startswith("tpugraph/input"):
            np.testing.assert_array_equal(kept[0].get_tensor(key), kept[1].get_tensor(key), err_msg=f"{key} {shape}")
    with tpugraph.TPUSession(program) as session:
        assert session.restore(prefix) == 3
        assert session.train(6) == after


def test_what_fails_in_the_background_is_raised(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    with tpugraph.TPUSession(tpugraph.convert(IRIS.with_name("model.pb"), num_replicas=2)) as session:
        session.initialize()
        session.save(tmp_path / "out" / "model.ckpt", in_background=True)
        with pytest.raises(CheckpointError, match=r"out/model.ckpt-0' cannot be written: .*File exists"):
            session.wait_for_save()


def test_saves_in_the_background(tmp_path: Path, command: Command) -> None:
    estimator(tmp_path / "whole").train(input_fn, max_steps=12)
    trained = estimator(tmp_path / "out", save_checkpoints_steps=4, async_save=True)
    trained.train(input_fn, max_steps=12)
    assert saved(tmp_path / "out") == [0, 4, 8, 12]
    for name in ("whole", "out"):
        verify(tmp_path / name / "model.ckpt-12")
    np.testing.assert_array_equal(tf.train.load_variable(str(tmp_path / "whole"), "w"), trained.get_variable_value("w"))
    common = [f"--model_dir={tmp_path}", f"--checkpoint={IRIS}", "--save_steps=3", "--async_save"]
    assert f"saved {tmp_path}/model.ckpt-12" in command(*RUN, "--steps=12", *common).out
    assert saved(tmp_path) == [3, 6, 9, 12]


def test_one_checkpoint_every_so_many_hours_stays(tmp_path: Path, use_tpu: bool) -> None:
    kept = {"save_checkpoints_steps": 4, "keep_checkpoint_max": 1, "keep_checkpoint_every_n_hours": 1e-9}
    estimator(tmp_path, use_tpu=use_tpu, **kept).train(input_fn, max_steps=12)
    assert saved(tmp_path) == [4, 8, 12]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [Path(path).name for path in state.all_model_checkpoint_paths] == ["model.ckpt-12"]


def test_writers_that_are_killed_lose_nothing_that_they_told(new_process: Programs, tmp_path: Path) -> None:
    """The campaign, for some seconds; in a process of its own, since it makes copies of itself."""
    done = new_process("-m", "campaigns.kills", "writers", "--count=12", "--seed=9000", cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("12 rounds: ")
