"""Programs in the manner of the published ones run unedited, with and without cores, and print the same."""

import re
import subprocess
import sys
from pathlib import Path

import forked
import numpy as np
import pytest
from forked import Ran
from sampling import runs

from tpugraph.compat import runner
from tpugraph.support.errors import UsageError

HERE = Path(__file__).parents[1]
PUBLISHED = HERE / "published"
USE_TPU = ("true", "false")
FLAGS = {"iris_tpu": "model_dir", "premade": "model_dir", "slim_net": "model_dir", "run_classifier": "output_dir"}
"""Where each program says that its files go."""

PROGRAMS = [name for name in FLAGS if runs(name != "premade")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ran]:
    """Each program of this run, with and without cores."""
    folder = tmp_path_factory.mktemp("published")
    loaded = ("tensorflow", "tf_slim", "tpugraph.runtime.session", "tpugraph.testing")
    with forked.programs(folder, *loaded, environment={"TF_USE_LEGACY_KERAS": "1"}) as run:
        return {(name, use_tpu): run("-m", "tpugraph.compat", *words_of(name, folder, f"--use_tpu={use_tpu}"))
                for name in PROGRAMS for use_tpu in USE_TPU}  # fmt: skip


def words_of(name: str, folder: Path, use_tpu: str) -> list[str]:
    """A flag in front of the program is the runner's."""
    program = [str(PUBLISHED / f"{name}.py"), use_tpu]
    return [*(reversed(program) if name == "premade" else program), f"--{FLAGS[name]}={folder}/{use_tpu}/{name}"]


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_the_same_on_cores_and_without(ran: dict[tuple[str, str], Ran], program: str) -> None:
    """Words alike, numbers within 2e-3; it trains and evaluates on cores."""
    both = [ran[program, use_tpu] for use_tpu in USE_TPU]
    assert [one.code for one in both] == [0, 0], both[0].err[-3000:] + both[1].err[-3000:]
    assert both[0].out
    number = re.compile(r"-?\d+\.\d+")
    words, numbers = zip(*((number.sub("#", one.out), number.findall(one.out)) for one in both), strict=True)
    assert words[0] == words[1]
    np.testing.assert_allclose(*(np.asarray(found, float) for found in numbers), rtol=2e-3, atol=2e-3)
    assert re.search(r"global batch \d+ = 8 cores x \d+", both[0].err)
    assert " cores x " not in both[1].err
    if program != "premade":
        assert "without cores" not in both[0].err
        assert re.search(r"evaluated [\d,]+ examples in \d+ batch(es)? on 8 cores", both[0].err)


def command(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(source)
    words = [sys.executable, "-m", "tpugraph.compat", "train.py", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, timeout=120)


def test_a_program_is_main_and_its_own_failure_shows_its_own_traceback(tmp_path: Path) -> None:
    source = """import sys
import tensorflow as tf

tf.app.flags.DEFINE_integer("n", 1, "")

def inner():
    print(tf.placeholder(tf.float32, [None, 3]).shape[0].value, sys.argv, __file__, tf.app.flags.FLAGS.n)
    raise KeyError("mine")

def main(_):
    inner()

if __name__ == "__main__":
    tf.app.run()
"""
    done = command(tmp_path, source, "--n=3")
    assert done.returncode == 1
    assert done.stdout == "None ['train.py', '--n=3'] train.py 3\n"
    shown = done.stderr[done.stderr.index("Traceback") :]
    assert shown.rstrip().endswith("KeyError: 'mine'")
    assert 'File "train.py", line 8, in inner' in shown
    assert "tpugraph" not in shown


def test_a_module_of_a_package_is_a_program(tmp_path: Path) -> None:
    """As ``python -m trainer.task``: what the package imports on the way is the program's own, and sees the tree."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "__init__.py").write_text("import tensorflow as tf\nversion = tf.VERSION\n")
    (tmp_path / "trainer" / "task.py").write_text(
        "import sys\nfrom . import version\nprint(__name__, __package__, version, sys.argv[1:])\n[][1]\n"
    )
    words = [sys.executable, "-m", "tpugraph.compat", "-m", "trainer.task", "--n=3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.stdout == "__main__ trainer 1.15.5 ['--n=3']\n"
    shown = done.stderr[done.stderr.index("Traceback") :]
    assert shown.splitlines()[1].startswith(f'  File "{tmp_path}/trainer/task.py", line 4')
    assert done.returncode == 1


def test_a_module_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import no_such_library\n")
    with pytest.raises(UsageError, match=r"there is no module 'nowhere\.task'"):
        runner._run_module("nowhere.task")
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        runner._run_module("package.task")


@pytest.mark.parametrize("source", ["\nprint 'a'\n", "\ndef (:\n"])
def test_a_file_that_is_no_python_3(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text(source)
    assert runner.main([str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: '{file}' is no Python 3: ")
    assert f"{file}:2" in said
    assert "2to3" in said


def test_a_text_that_a_program_compiles_is_no_file(monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr(runner, "run", lambda flags: exec("print 'a'"))
    assert runner.main(["train.py"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert 'File "<string>", line 1' in said


def test_command_lines_of_the_runner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, wanted in (
        ("a.py --use_tpu=true b", ("a.py", ["--use_tpu=true", "b"], None, 8)),
        ("--use_tpu=true --num_cores=4 a.py", ("a.py", [], "true", 4)),
        ("--use_tpu=False a.py", ("a.py", [], "false", 8)),
        ("--max_ids=9 a.py --max_ids=8", ("a.py", ["--max_ids=8"], None, 8)),
        ("--use_tpu=false -m a.b -m --help", ("a.b", ["-m", "--help"], "false", 8)),
    ):
        flags = runner.flags_of(words.split())
        assert (flags.program, flags.arguments, flags.use_tpu, flags.num_cores) == wanted
        assert (flags.module, flags.max_ids) == ("-m a.b" in words, 9 * words.startswith("--max_ids=9"))
    for words, said in (
        ("--other a.py", "--other"),
        ("--use_tpu=true", "required: PROGRAM"),
        ("--num_cores=0 a.py", "at least 1"),
    ):
        with pytest.raises(UsageError, match=said):
            runner.flags_of(words.split())
    assert runner.main([str(tmp_path / "none.py")]) == 1
    assert "none.py': No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        runner.main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
