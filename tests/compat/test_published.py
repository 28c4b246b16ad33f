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
from tpugraph.compat.python_2 import python_2
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


def in_process(folder: Path, source: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and what is said of a program that fails before TensorFlow matters."""
    (folder / "train.py").write_text(source)
    return runner.main([str(folder / "train.py")]), capsys.readouterr().err


@pytest.mark.parametrize("source", ["print 'a'\n", "try:\n  pass\nexcept ValueError, e:\n  pass\n"])
def test_a_python_2_program_is_called_one(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = in_process(tmp_path, source, capsys)
    assert code == 1
    assert said.startswith(f"error: {tmp_path}/train.py is a Python 2 program: ")
    assert "2to3" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("source", [
    "len(map(int, []))", "{}.has_key(1)", "for _ in xrange(3): pass", "import cPickle", "from itertools import izip",
    "{}.items()[0]", "import beside", "import printing", "import raising",
])  # fmt: skip
def test_a_python_2_program_is_called_one_where_it_fails(tmp_path: Path, source: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """It may be read without an error and fail later, or import a file that cannot be read."""
    monkeypatch.syspath_prepend(str(tmp_path / "imported"))
    for name, text in (("imported/printing", "print 'a'"), ("imported/raising", "raise E, 'a'"), ("beside", ""),
                       ("program", source)):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(f"{text}\n")
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whichever comes of it
        exec(compile(source, f"{tmp_path}/program.py", "exec"), {})
    told = python_2(caught.value)
    assert told is not None
    assert "is a Python 2 program: " in told.fault
    imported = source.partition("import ")[2] if source.endswith("ing") else ""
    assert told.origin == (f"{tmp_path}/imported/{imported}.py:1" if imported else f"{tmp_path}/program.py:1")


@pytest.mark.parametrize("source", ["len(3)", "undefined", "import no_such_module", "''.no_such", "def (:"])
def test_another_mistake_is_not_taken_for_python_2(source: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        exec(compile(source, "program.py", "exec"), {})
    assert python_2(caught.value) is None


def test_what_is_no_python_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = in_process(tmp_path, "def (:\n", capsys)
    assert code == 1
    assert "SyntaxError: invalid syntax" in said
    assert "Python 2" not in said


def test_command_lines_of_the_runner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.order_of(["a.py", "--use_tpu=true", "b"]) == runner.Order("a.py", ("--use_tpu=true", "b"), None)
    assert runner.order_of(["--use_tpu=true", "--num_cores=4", "a.py"]) == runner.Order("a.py", (), 4)
    assert runner.order_of(["--max_ids=9", "a.py", "--max_ids=8"]) == runner.Order(
        "a.py", ("--max_ids=8",), None, max_ids=9
    )
    assert runner.order_of(["--use_tpu=false", "a.py"]).cores == 0
    assert runner.order_of(["--use_tpu", "-m", "a.b", "-m"]) == runner.Order("a.b", ("-m",), 8, module=True)
    for words, said in ((["--other", "a.py"], "no flag of the runner"), (["--use_tpu=true"], "no program is named")):
        with pytest.raises(UsageError, match=said):
            runner.order_of(words)
    assert runner.main([str(tmp_path / "none.py")]) == 1
    assert "none.py': No such file or directory" in capsys.readouterr().err
    assert runner.main(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
