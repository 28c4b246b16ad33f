"""The tree of TensorFlow 1.15: every name that it promises is there, and what is not there is said with its line."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as real

import tpugraph
import tpugraph.compat.v1 as tf
from tpugraph import cli
from tpugraph.compat import tree
from tpugraph.compat.import_hook import tensorflow_1
from tpugraph.compat.pieces.hparams import HParams, parse_values
from tpugraph.compat.symbols import BASES, CONTRIB, PAGES

tf1 = real.compat.v1
PUBLISHED = Path(__file__).parent / "published"


def in_program(source: str, **names: Any) -> dict[str, Any]:
    """What a program leaves behind, run with the import hook."""
    space = {"__name__": "program", **names}
    with tensorflow_1():
        exec(compile(source, "program.py", "exec"), space)
    return space


# --------------------------------------------------------------------------- every name


@pytest.mark.parametrize("path", PAGES)
def test_every_name_that_is_promised_is_there(path: str) -> None:
    for name, symbol in PAGES[path].items():
        if symbol.home:
            tree.find(path, name)


@pytest.mark.parametrize("path", PAGES)
def test_what_is_not_there_says_why_and_what_instead(path: str) -> None:
    for name, symbol in PAGES[path].items():
        assert bool(symbol.home) != bool(symbol.why and symbol.instead), name
        if not symbol.home:
            with pytest.raises(AttributeError) as caught:
                getattr(tree.namespace(path), name)
            assert caught.value.fault == f"tf.{path}.{name} is not there: {symbol.why}"  # type: ignore[attr-defined]
            assert symbol.instead in str(caught.value)


@pytest.mark.parametrize("path", [path for path in BASES if path])
def test_a_whole_package_comes_from_its_bases(path: str) -> None:
    assert len(dir(tree.namespace(path))) > 5


@pytest.mark.parametrize(
    ("path", "least"), [("contrib.tpu", 1), ("estimator", 0.94), ("layers", 1), ("contrib.data", 0.88)]
)
def test_most_of_a_module_works(path: str, least: float) -> None:
    states = [symbol.state for symbol in PAGES[path].values()]
    assert states.count("not there") <= (1 - least) * len(states)


def test_the_classes_are_those_of_tpugraph() -> None:
    assert tf.contrib.tpu.TPUEstimator is tpugraph.TPUEstimator
    assert tf.estimator.tpu.TPUConfig is tf.contrib.tpu.TPUConfig is tpugraph.TPUConfig
    assert tf.compat.v1.estimator is tf.estimator
    assert tf.train.AdamOptimizer is tf1.train.AdamOptimizer


# --------------------------------------------------------------------------- what is missing


def test_a_missing_name_tells_its_line() -> None:
    with pytest.raises(AttributeError) as caught:
        in_program("import tensorflow as tf\n\ntf.contrib.quantize.create_eval_graph()")
    assert str(caught.value).splitlines() == [
        "tf.contrib.quantize.create_eval_graph is not there: it put the fake quantization of TensorFlow Lite into a graph, "
        "and was dropped with TensorFlow 2",
        "  from    program.py:3",
        "  fix     leave it out (most programs have a flag for it), and quantize the exported model",
    ]


def test_a_package_that_was_dropped() -> None:
    with pytest.raises(
        AttributeError, match=r"tf\.contrib\.solvers\.lanczos is not there: tf\.contrib\.solvers was dropped"
    ):
        in_program("from tensorflow.contrib import solvers\nsolvers.lanczos(1)")
    assert not any("addons" in instead for instead in CONTRIB.values())


def test_a_misspelt_name() -> None:
    with pytest.raises(AttributeError, match=r"did you mean tf\.estimator\.Estimator\?"):
        tf.estimator.Estimater  # noqa: B018


def test_importing_what_is_missing_is_no_error_and_using_it_is() -> None:
    source = "from tensorflow.contrib.data import LMDBDataset\n"
    in_program(source)
    with pytest.raises(AttributeError, match=r"(?s)tf\.contrib\.data\.LMDBDataset is not there.*program\.py:2"):
        in_program(source + "LMDBDataset(1)")
    with pytest.raises(AttributeError, match="LMDBDataset"):
        in_program(source + "class Model(LMDBDataset): pass")


def test_importing_what_never_was_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="no_such_name"):
        in_program("from tensorflow.contrib.tpu import no_such_name")
    with pytest.raises(ImportError, match=r"tensorflow\.python\.no_such_module of TensorFlow 1\.15 is not there"):
        in_program("import tensorflow.python.no_such_module")
    with pytest.raises(ImportError, match=r"tensorflow\.nowhere"):
        in_program("import tensorflow.nowhere")


def test_an_extra_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tf_slim", None)
    tree.namespace("contrib.slim").__dict__.pop("conv2d", None)
    with pytest.raises(ImportError, match=r"(?s)tf_slim is not installed.*pip install 'tpugraph\[compat\]'"):
        tree.find("contrib.slim", "conv2d")


# --------------------------------------------------------------------------- the hook


def test_every_way_to_import() -> None:
    space = in_program(
        "import tensorflow as tf\n"
        "import tensorflow.compat.v1 as v1\n"
        "import tensorflow.contrib.slim as slim\n"
        "from tensorflow.contrib import tpu, layers as contrib_layers\n"
        "from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator\n"
        "from tensorflow.contrib.tpu.python.tpu.tpu_config import TPUConfig\n"
        "from tensorflow.python.estimator.run_config import RunConfig\n"
        "from tensorflow.python.framework import ops\n"
        "from tensorflow.python.tpu import tpu_function\n"
        "from tensorflow_estimator.python.estimator import estimator\n"
        "from tensorflow.estimator import ModeKeys\n"
        "from tensorflow.keras.layers import Dense\n"
        "import tensorflow.python.platform.gfile\n"
    )
    assert space["tf"] is space["v1"]
    assert space["tensorflow"] is space["tf"]
    assert space["slim"].conv2d is tf.contrib.slim.conv2d
    assert space["TPUConfig"] is space["tpu_config"].TPUConfig is space["tpu"].TPUConfig
    assert space["RunConfig"] is tf.estimator.RunConfig
    assert space["ops"].Tensor is real.Tensor
    assert space["estimator"].Estimator is tpugraph.Estimator
    assert space["Dense"].__module__.startswith("tf_keras")


def test_libraries_keep_their_tensorflow() -> None:
    with tensorflow_1():
        space = {"__name__": "tf_keras.late"}
        exec("import tensorflow as tf", space)
        assert space["tf"] is real
    exec("import tensorflow as tf", space := {"__name__": "program"})
    assert space["tf"] is real


def test_what_published_programs_take_from_inside(tmp_path: Path) -> None:
    space = in_program(
        "import tensorflow as tf\n"
        "from tensorflow.core.protobuf import rewriter_config_pb2\n"
        "from tensorflow.contrib.tpu.python.tpu import async_checkpoint\n"
        "from tensorflow.contrib.tpu.python.tpu import tpu_function\n"
        "from tensorflow.python.estimator import estimator\n"
        "shards = tpu_function.get_tpu_context().number_of_shards\n"
        "version = tf.__version__, tf.VERSION, tf.version.VERSION\n"
        "step = estimator._load_global_step_from_checkpoint_dir\n"
        "hook = async_checkpoint.AsyncCheckpointSaverHook\n"
        "resolver = tf.distribute.cluster_resolver.TPUClusterResolver\n"
    )
    assert space["rewriter_config_pb2"].RewriterConfig.OFF
    assert space["shards"] is None
    assert space["version"] == ("1.15.5",) * 3
    assert space["hook"] is tf.contrib.tpu.AsyncCheckpointSaverHook
    assert space["resolver"] is tpugraph.TPUClusterResolver
    assert space["step"](str(tmp_path)) == 0
    with real.Graph().as_default(), tf1.Session() as session:
        session.run(tf1.assign(tf1.train.get_or_create_global_step(), 7, validate_shape=False))
        tf1.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=7)
    assert space["step"](str(tmp_path)) == 7
    with pytest.raises(AttributeError, match=r"tf\.estimator\._no_such_function"):
        in_program("from tensorflow.python.estimator import estimator\nestimator._no_such_function()")


# --------------------------------------------------------------------------- pieces


def test_moments_of_a_program_are_those_of_1_15() -> None:
    class Halved(tf.layers.BatchNormalization):  # type: ignore[misc]
        def _moments(self, inputs: Any, reduction_axes: Any, keep_dims: bool) -> Any:
            mean, variance = super()._moments(inputs, reduction_axes, keep_dims=keep_dims)
            return mean / 2, variance

    with real.Graph().as_default(), tf1.Session() as session:
        found = Halved(momentum=0.0, epsilon=0.0)(tf1.constant([[0.0], [4.0]]), training=True)
        session.run(tf1.global_variables_initializer())
        np.testing.assert_allclose(session.run(found), [[-0.5], [1.5]])


def test_hparams_read_a_text() -> None:
    hparams = HParams(rate=0.1, layers=[1, 2], name="a", train=True, decay=None)
    hparams.parse("rate=2,layers=[3,4,5],name=b c,train=false")
    assert hparams.values() == {"rate": 2.0, "layers": [3, 4, 5], "name": "b c", "train": False, "decay": None}
    hparams.parse("layers[1]=9").set_hparam("decay", 0.5)
    assert (hparams.layers, hparams.decay, hparams.get("none", 3), "rate" in hparams) == ([3, 9, 5], 0.5, 3, True)
    assert json.loads(hparams.to_json())["name"] == "b c"


def test_hparams_are_made_read_and_taken_away() -> None:
    hparams = HParams(model_structure="a net", rate=0.1, layers=[1, 2], size=3)
    assert hparams.parse_json('{"rate": 1, "layers": [3, 4]}') is hparams
    assert hparams.values() == {"rate": 1.0, "layers": [3, 4], "size": 3}
    assert HParams(**json.loads(hparams.to_json())).values() == hparams.values()
    with pytest.raises(KeyError, match="other"):
        hparams.parse_json('{"other": 1}')
    with pytest.raises(ValueError, match="Must pass a list for parameter: layers"):
        hparams.parse_json('{"layers": 1}')
    with pytest.raises(ValueError, match="Could not cast hparam 'size' of type 'int'"):
        hparams.parse_json('{"size": 2.5}')
    hparams.del_hparam("size")
    hparams.del_hparam("size")
    assert "size" not in hparams
    assert not hasattr(hparams, "size")
    hparams.add_hparam("size", "large")
    assert hparams.get("size") == "large"
    assert hparams.get_model_structure() == "a net"
    hparams.set_model_structure("another")
    assert hparams.get_model_structure() == "another"


@pytest.mark.parametrize(
    ("text", "words"),
    [("layers=1.5", "Could not parse hparam 'layers'"), ("other=1", "Unknown hyperparameter"), ("=1", "Malformed"),
     ("rate=1,rate=2", "Multiple assignments")],
)  # fmt: skip
def test_hparams_refuse(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_values(text, {"rate": float, "layers": int})


def test_transformations_of_contrib_data() -> None:
    rows = real.data.Dataset.range(7)
    data = tf.contrib.data
    taken = [e.tolist() for e in rows.apply(data.batch_and_drop_remainder(3)).as_numpy_iterator()]
    assert taken == [[0, 1, 2], [3, 4, 5]]
    windows = [e.tolist() for e in rows.apply(data.sliding_window_batch(3, window_shift=2)).as_numpy_iterator()]
    assert windows == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert len(list(rows.apply(data.shuffle_and_repeat(7, 2)).as_numpy_iterator())) == 14
    found = rows.apply(data.map_and_batch(lambda x: x * 2, 7, drop_remainder=True))
    assert found.element_spec.shape == [7]
    sloppy = rows.apply(data.sloppy_interleave(lambda x: real.data.Dataset.from_tensors(x), 2))
    assert sorted(sloppy.as_numpy_iterator()) == list(range(7))


@pytest.mark.parametrize("name", ["AdamWOptimizer", "MomentumWOptimizer", "LARSOptimizer"])
def test_optimizers_of_contrib(name: str) -> None:
    """Each against NumPy, two steps on a variable whose gradient is constant."""
    start, slope, rate, decay = np.asarray([1.0, -2.0], "float32"), np.asarray([0.5, 1.0], "float32"), 0.1, 0.01
    make = {
        "AdamWOptimizer": lambda o: o(decay, rate, epsilon=1e-8),
        "MomentumWOptimizer": lambda o: o(decay, rate, 0.9),
        "LARSOptimizer": lambda o: o(rate, 0.9, decay, 0.001),
    }
    with real.Graph().as_default(), tf1.Session() as session:
        variable = tf1.get_variable("w", initializer=start, use_resource=True)
        train = make[name](getattr(tf.contrib.opt, name)).minimize(real.reduce_sum(variable * slope))
        session.run(tf1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        found = session.run(variable)
    wanted, moment = start.astype(float), np.zeros(2)
    for _ in range(2):
        if name == "LARSOptimizer":
            ratio = 0.001 * np.linalg.norm(wanted) / (np.linalg.norm(slope) + decay * np.linalg.norm(wanted))
            moment = 0.9 * moment + rate * ratio * (slope + decay * wanted)
            wanted = wanted - moment
        elif name == "AdamWOptimizer":
            wanted = wanted - decay * wanted - rate * np.sign(slope)
        else:
            moment = 0.9 * moment + slope
            wanted = wanted - decay * wanted - rate * moment
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


# --------------------------------------------------------------------------- tpugraph program


def test_the_names_of_a_program_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["program", str(PUBLISHED / "iris_tpu.py"), "--all"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("24 work, 2 with a difference, 1 are not there")
    assert lines[1].startswith("not there               tf.contrib.quantize.create_training_graph (")
    assert any(line.startswith("works                   tf.contrib.data.batch_and_drop_remainder (") for line in lines)
    assert cli.main(["program", str(PUBLISHED / "premade.py")]) == 0


def test_names_from_inside_a_module_are_listed_as_the_module_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inside.py").write_text(
        "from tensorflow.contrib.tpu.python.tpu import async_checkpoint\n"
        "from tensorflow.contrib.training.python.training import evaluation\n"
        "async_checkpoint.AsyncCheckpointSaverHook, evaluation.checkpoints_iterator, evaluation.CheckpointsIterator\n"
    )
    assert cli.main(["program", str(tmp_path), "--all"]) == 1
    said = capsys.readouterr().out
    assert "works with a difference tf.contrib.tpu.AsyncCheckpointSaverHook (" in said
    assert "works                   tf.contrib.training.checkpoints_iterator (" in said
    assert "not there               tf.contrib.training.CheckpointsIterator (" in said


def test_the_program_s_own_imports_are_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "package/__init__": "", "package/task": "from package.parts import model\nfrom . import inputs\nimport os, helper",
        "package/parts/__init__": "", "package/parts/model": "import tensorflow as tf\nfrom .. import inputs\ntf.layers.dense",
        "package/inputs": "import tensorflow as tf\ntf.contrib.data.LMDBDataset", "helper": "import package.task",
        "package/alone": "import tensorflow as tf\ntf.layers.flatten",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    assert cli.main(["program", str(tmp_path / "package" / "task.py"), "--all"]) == 1
    said = capsys.readouterr().out
    assert "uses 2 names" in said
    assert f"tf.layers.dense ({tmp_path}/package/parts/model.py:3)" in said
    assert f"tf.contrib.data.LMDBDataset ({tmp_path}/package/inputs.py:2)" in said


def test_a_file_that_is_no_python_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint 'a'\n")
    assert cli.main(["program", str(tmp_path / "old.py")]) == 2
    assert "old.py' is no Python 3" in (said := capsys.readouterr().err)
    assert "old.py:2" in said
    assert cli.main(["program", str(tmp_path / "none.py")]) == 2
    assert "does not exist" in capsys.readouterr().err


# --------------------------------------------------------------------------- names of other libraries


@pytest.fixture
def as_before() -> Iterator[None]:
    """Takes away again what was put back."""
    modules = [importlib.import_module(name) for name in ("collections", "fractions", "inspect", "numpy", "time")]
    names = [set(vars(module)) for module in modules]
    yield
    for module, known in zip(modules, names, strict=True):
        for name in set(vars(module)) - known:
            delattr(module, name)


@pytest.mark.usefixtures("as_before")
def test_names_that_python_and_libraries_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program imports them; what is there stays as it is."""
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    kept = np.float64, np.prod, time.time
    space = in_program(
        "import collections, fractions, inspect, time\n"
        "import numpy as np\n"
        "import pandas as pd\n"
        "from collections import Mapping\n"
        "from numpy import asscalar\n"
        "kinds = [np.int, np.float, np.object, np.unicode, np.float_, np.string_]\n"
        "array = np.array([1, 2], dtype=np.int)\n"
        "found = np.NaN, np.product([2, 3]), asscalar(np.array([7])), pd.np is np\n"
        "spec = inspect.getargspec(lambda a, b=1, *c: 0)\n"
        "gcd, clock = fractions.gcd(6, 4), time.clock()\n"
    )
    assert space["kinds"] == [int, float, object, str, np.float64, np.bytes_]
    assert space["found"][1:] == (6, 7, True)
    assert np.isnan(space["found"][0])
    assert (space["spec"].args, space["spec"].varargs, space["spec"].defaults) == (["a", "b"], "c", (1,))
    assert isinstance({}, space["Mapping"])
    assert space["gcd"] == 2
    assert kept == (np.float64, np.prod, time.time)


def test_a_library_that_is_not_installed_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pandas"):
        in_program("import pandas")


def test_at_a_log_level_tensorflow_s_own_lines_stay_away(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\ntf.layers.dense(tf.zeros([2, 3]), 1)\ntf.logging.warning('its own')\n")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-m", "tpugraph.compat", str(program)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == "WARNING:tensorflow:its own\n"
