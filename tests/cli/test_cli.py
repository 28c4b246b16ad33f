"""The command line, end to end: each command in this process, the main road and signals in processes of their own."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from forked import Programs
from sampling import runs

import tpugraph
from command_line import Command
from estimators import saved
from tpugraph import cli
from tpugraph.cli import commands, flags
from tpugraph.cli.training import LossFile
from tpugraph.support.progress import Progress, duration

ROOT = Path(__file__).parents[2]
IRIS = ROOT / "tests" / "data" / "corpus" / "iris_dnn"
FLAGS = ("--num_replicas=2", "--iterations_per_loop=3")


def golden(mode: str) -> list[float]:
    recorded = json.loads((IRIS / "golden.json").read_text())
    return [recorded["losses"][mode][str(step)] for step in range(1, recorded["steps"] + 1)]


def losses_in(path: Path) -> list[float]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [line["loss"] for line in lines]


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    return kept | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])} | more


def python(*words: object, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, words)], cwd=cwd, env=environment(**more), capture_output=True,
                          text=True, check=False)  # fmt: skip


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """iris_dnn for 8 cores and 6 steps per loop."""
    place = tmp_path_factory.mktemp("converted") / "iris.pb"
    assert cli.main(["convert", str(IRIS / "model.pb"), "-o", str(place), "--iterations_per_loop=6"]) == 0
    return place


# --------------------------------------------------------------------------- the face of the package


@pytest.mark.parametrize("words", [("-c", "import tpugraph"), ("-m", "tpugraph", "--help")])
def test_start_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    """CPU time of the quickest of five cold starts; the clock on the wall would measure what else the machine does."""
    taken = []
    for _ in range(5):
        before = os.times()
        assert python(*words).returncode == 0
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(taken) < 0.3
    code = "import sys, tpugraph.cli as cli; cli.main(['run', '--help']); heavy = {'tensorflow', 'numpy', 'networkx'}"
    done = python("-c", code + "; sys.exit(', '.join(heavy & sys.modules.keys()) or 0)")
    assert done.returncode == 0, done.stderr


def test_version_and_help(command: Command) -> None:
    assert f'version = "{tpugraph.__version__}"' in (ROOT / "pyproject.toml").read_text()
    text = command("--help").out
    assert all(f"  {name} " in text for name in commands.COMMANDS)
    assert max(map(len, text.splitlines())) <= 80


# --------------------------------------------------------------------------- help and flags


@pytest.mark.parametrize("name", list(commands.COMMANDS))
def test_help_of_a_command_shows_an_example_and_its_own_flags(name: str, command: Command) -> None:
    text = command(name, "--help").out
    assert f"example{'s' if len(commands.COMMANDS[name].examples) > 1 else ''}:\n  tpugraph {name}" in text
    assert ("--steps" in text) == (name in ("run", "verify", "compare", "reduce"))
    assert ("--dry_run" in text) == (name == "convert")
    assert max(map(len, text.splitlines())) <= 80, "a terminal of 80 columns"


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_the_examples_parse(name: str) -> None:
    command = commands.COMMANDS[name]
    for example in command.examples:
        assert bool(flags.parse(command, example.split()[2:]).model) == bool(command.arguments)


def test_dashes_are_underscores_and_flags_may_follow_the_model() -> None:
    words = ["--batch-norm=per_core", "m.pb", "--num-replicas", "4", "--rebind=a-b=c-d", "--json", "--rebind", "e=f"]
    parsed = flags.parse(commands.COMMANDS["run"], words)
    assert (parsed.model, parsed["batch_norm"], parsed["num_replicas"]) == ("m.pb", "per_core", 4)
    assert (parsed["rebind"], parsed["json"]) == (["a-b=c-d", "e=f"], True)
    assert parsed.words["rebind"] == "--rebind=a-b=c-d --rebind=e=f"
    assert parsed.given == {"batch_norm", "num_replicas", "rebind", "json"}


def test_what_fails_is_one_block(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(code=2).out.startswith("usage: ")
    monkeypatch.setattr("tpugraph.cli.command_line._dispatch", mock.Mock(side_effect=KeyError("x")))
    assert "error: KeyError: 'x'" in command.refused("passes")
    assert "Traceback (most recent call last)" in command.refused("passes", "--traceback")
    monkeypatch.setattr("tpugraph.cli.command_line._dispatch", mock.Mock(side_effect=KeyboardInterrupt))
    assert command("passes", code=130).err == "interrupted\n"


# --------------------------------------------------------------------------- convert


def test_convert_writes_beside_the_model_or_here(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copy(IRIS / "model.pb", tmp_path))
    said = command("convert", model, f"--report={tmp_path / 'r.json'}", *FLAGS).out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pb", "model_tpu.pb", "r.json"]
    assert "global batch 32 = 2 cores x 16" in said
    assert json.loads((tmp_path / "r.json").read_text())["num_replicas"] == 2
    monkeypatch.chdir(tmp_path)
    command("convert", IRIS, *FLAGS)
    assert (tmp_path / "iris_dnn_tpu.pb").exists()


def test_a_dry_run_writes_no_graph(tmp_path: Path, command: Command) -> None:
    words = [IRIS / "model.pb", "-o", tmp_path / "o.pb", "--dry_run", "--json", *FLAGS]
    said = command("convert", *words)
    assert list(tmp_path.iterdir()) == []
    assert json.loads(said.out)["report"]["batch"]["global"] == 32
    assert "nothing was written" in said.err
    report = tmp_path / "r.json"
    found = json.loads(command("convert", f"--report={report}", *words).out)["report"]
    assert list(tmp_path.iterdir()) == [report]
    assert json.loads(report.read_text()) == found


def test_tensorflow_is_silent_at_every_log_level_but_the_lowest(tmp_path: Path) -> None:
    for level in ("0", "1"):
        done = python("-m", "tpugraph", "inspect", IRIS / "model.pb", cwd=tmp_path, TF_CPP_MIN_LOG_LEVEL=level)
        assert (done.returncode, bool(done.stderr)) == (0, level == "0"), done.stderr


# --------------------------------------------------------------------------- run


def test_run_trains_and_goes_on_where_it_stopped(converted: Path, tmp_path: Path, command: Command) -> None:
    losses, folder = tmp_path / "l.jsonl", tmp_path / "out"
    common = ["run", converted, f"--model_dir={folder}", f"--losses={losses}"]
    first = command(*common, "--steps=14", f"--checkpoint={IRIS / 'model.ckpt-0'}", "--save-steps=6").out
    assert "global batch 32 = 8 cores x 4" in first
    assert "step 14 of 14" in first
    assert saved(folder) == [6, 12, 14]
    second = command(*common, "--steps=10", "--json")
    assert f"restored {folder}/model.ckpt-14 at step 14" in second.err
    assert "step 24 of 24" in second.err
    result = json.loads(second.out)
    assert (result["steps"], result["global_step"], result["interrupted"]) == (10, 24, False)
    assert losses_in(losses) == pytest.approx(golden("plain"), rel=1e-4)


def test_a_repeated_command_goes_on_though_it_names_a_checkpoint_to_start_from(converted: Path, tmp_path: Path,
                                                                               command: Command) -> None:  # fmt: skip
    folder, start = tmp_path / "out", IRIS / "model.ckpt-0"
    common = ["run", converted, f"--model_dir={folder}", "--steps=6", f"--checkpoint={start}"]
    assert "note: --checkpoint" not in command(*common).out
    said = command(*common).out
    assert f"restored {folder}/model.ckpt-6 at step 6" in said
    assert f"note: --checkpoint={start} is where a new --model_dir starts; this one has its own" in said


def test_max_steps_is_reached_once(converted: Path, tmp_path: Path, command: Command) -> None:
    common = ["run", converted, f"--model_dir={tmp_path / 'out'}", "--json"]
    said = [command(*common, flag) for flag in ("--steps=4", "--max-steps=6", "--max_steps=6")]
    results = [json.loads(one.out) for one in said]
    assert [(r["steps"], r["global_step"]) for r in results] == [(4, 4), (2, 6), (0, 6)]
    assert "step 6 is reached already: --max_steps=6" in said[-1].err


def test_losses_of_steps_that_are_trained_again_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    LossFile(str(path)).write(1, [4.0, 3.0, 2.0])
    LossFile(str(path)).write(3, [2.5, float("nan")])
    assert losses_in(path) == [4.0, 3.0, 2.5, None]
    LossFile(str(path)).write(1, [9.0])
    assert losses_in(path) == [9.0]


# --------------------------------------------------------------------------- inspect, passes


def test_inspect(command: Command, converted: Path) -> None:
    said = command("inspect", IRIS / "model.ckpt-0.meta", "--json")
    found = json.loads(said.out)
    assert (found["kind"], found["converted"]) == ("MetaGraphDef", False)
    assert found["roles"]["loss"][0]["name"] == "sparse_softmax_cross_entropy_loss/value"
    assert len(found["trained"]) == 6
    assert found["report"]["collectives"]["sums"] == 6
    assert found["report"]["bytes_per_step"]["infeed"] == 640
    assert found["files"] == []
    assert "train op      Adagrad (runs 6 of 6 updates" in said.err
    text = command("inspect", converted).out
    for words in ("a TPU graph", "cores       8", "loop        6 steps", "tpugraph/train", "int32[4]", "dense/kernel"):
        assert words in text


def test_passes(command: Command) -> None:
    said = command("passes", "--json")
    listed = json.loads(said.out)["passes"]
    assert listed[0]["name"] == "prune"
    assert all(entry["summary"] and entry["name"] in said.err for entry in listed)


# --------------------------------------------------------------------------- progress


def test_progress_on_a_terminal_is_one_line() -> None:
    now, stream = [0.0], io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    progress = Progress(stream, 400, clock=lambda: now[0])
    for done in (100, 200, 400):
        now[0] += 2
        progress.update(done, 0.5)
    progress.close()
    shown = stream.getvalue()
    assert shown.count("\n") == 1
    assert "\r[#####...............] step 100 of 400, 50.0 steps/s, loss 0.5, 6 s left\r" in shown
    assert shown.rstrip().endswith("\r[####################] step 400 of 400, 66.7 steps/s, loss 0.5")


def test_progress_elsewhere_is_a_line_now_and_then_and_the_last() -> None:
    now, stream = [0.0], io.StringIO()
    progress = Progress(stream, 100, clock=lambda: now[0])
    for done in range(1, 100):
        now[0] += 0.125
        progress.update(done, 1.0)
    progress.close()
    steps = [line.partition(" of ")[0] for line in stream.getvalue().splitlines()]
    assert steps == ["step 40", "step 80", "step 99"]


@pytest.mark.parametrize(("value", "text"), [(9.4, "9 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_durations(value: float, text: str) -> None:
    assert duration(value) == text


# --------------------------------------------------------------------------- processes


def test_from_a_shell_nothing_but_our_own_lines_is_printed(tmp_path: Path) -> None:
    done = python("-m", "tpugraph", "run", IRIS / "model.ckpt-0.meta", *FLAGS, "--steps=4", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert len(json.loads(done.stdout)) > 5
    labels = [line.split()[0] for line in done.stderr.splitlines()]
    assert labels == ["converted", "global", "fresh", "nothing", "step", "trained"]


@pytest.mark.needs_program("bash")
def test_a_reader_that_goes_away_is_no_error() -> None:
    shell = f"{sys.executable} -m tpugraph --help | head -n 1"
    done = subprocess.run(["bash", "-c", shell], env=environment(), capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("usage: tpugraph COMMAND [MODEL] [flags]\n", "")


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("number", [number for number in (signal.SIGTERM,
                                                          signal.SIGINT) if runs(number == signal.SIGTERM)])  # fmt: skip
def test_a_signal_ends_the_loop_and_saves(number: signal.Signals, new_process: Programs, converted: Path,
                                          tmp_path: Path) -> None:  # fmt: skip
    losses = tmp_path / "l.jsonl"
    arguments = ("run", str(converted), "--steps=10000000", "--model_dir=out", f"--losses={losses}")
    process = new_process.start("-m", "tpugraph", *arguments, cwd=tmp_path)
    wait_for(losses)
    process.signal(number)
    ran = process.wait()
    assert (ran.code, ran.err) == (128 + number, "")
    done = len(losses_in(losses))
    assert f"{number.name}: stopped after {done:,} steps" in ran.out
    assert f"saved out/model.ckpt-{done}" in ran.out
    assert (tmp_path / "out" / f"model.ckpt-{done}.index").exists()


@pytest.mark.slow
def test_a_kill_leaves_the_last_checkpoint(new_process: Programs, converted: Path, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch, command: Command) -> None:  # fmt: skip
    losses = tmp_path / "l.jsonl"
    words = ("run", str(converted), "--model_dir=out", f"--losses={losses}", "--save_steps=6")
    process = new_process.start("-m", "tpugraph", *words, "--steps=10000000", cwd=tmp_path)
    wait_for(tmp_path / "out" / "checkpoint")
    process.signal(signal.SIGKILL)
    assert process.wait().code == -signal.SIGKILL
    monkeypatch.chdir(tmp_path)
    result = command.json(*words, "--steps=12")
    assert result["started_from"].startswith("out/model.ckpt-")
    assert len(losses_in(losses)) == result["global_step"]


def wait_for(path: Path, timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.05)
