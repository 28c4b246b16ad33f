"""The tree of TensorFlow 1.15: every name that it promises is there, and what is not there is said with its line."""

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
from command_line import Command
from tpugraph.compat import tree
from tpugraph.compat.import_hook import tensorflow_1
from tpugraph.compat.pieces.hparams import HParams
from tpugraph.compat.symbols import BASES, CONTRIB, PAGES

tf1 = real.compat.v1
PUBLISHED = Path(__file__).parents[1] / "published"


def in_program(source: str, **names: Any) -> dict[str, Any]:
    """What a program leaves behind, run with the import hook."""
    space = {"__name__": "program", **names}
    with tensorflow_1():
        exec(compile(source, "program.py", "exec"), space)
    return space


# --------------------------------------------------------------------------- every name


@pytest.mark.parametrize("path", PAGES)
def test_every_name_is_there_or_says_why_not(path: str) -> None:
    for name, symbol in PAGES[path].items():
        if symbol.home:
            tree.find(path, name)
    for name, symbol in PAGES[path].items():
        assert bool(symbol.home) != bool(symbol.why and symbol.instead), name
        if not symbol.home:
            with pytest.raises(AttributeError) as caught:
                getattr(tree.namespace(path), name)
            assert caught.value.fault == f"tf.{path}.{name} is not there: {symbol.why}"  # type: ignore[attr-defined]
            assert symbol.instead in str(caught.value)


@pytest.mark.parametrize("path", [path for path in BASES if path])
def test_a_whole_package_comes_from_its_bases(path: str) -> None:
    for base in BASES[path]:
        if base == "tensorflow_gan":  # no extra of tpugraph has it
            pytest.importorskip(base)
    assert len(dir(tree.namespace(path))) > 5


def test_libraries_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_gan", None)
    with pytest.raises(ImportError, match=r"(?s)tensorflow_gan is not installed.*pip install 'tensorflow_gan'"):
        tree.find("contrib.gan", "gan_model")
    monkeypatch.setitem(sys.modules, "tf_slim", None)
    tree.namespace("contrib.slim").__dict__.pop("conv2d", None)
    with pytest.raises(ImportError, match=r"(?s)tf_slim is not installed.*pip install 'tpugraph\[compat\]'"):
        tree.find("contrib.slim", "conv2d")


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
    assert tf.tpu.experimental.AdamParameters is tpugraph.AdamParameters
    assert tf.estimator.tpu.experimental.EmbeddingConfigSpec is tpugraph.EmbeddingConfigSpec
    named = in_program("from tensorflow.python.tpu import tpu_embedding")
    assert named["tpu_embedding"].TableConfig is tpugraph.TableConfig
    with real.Graph().as_default():
        made = [tf.Variable(1.0), *(tf.get_variable(f"v{kind}", [2], use_resource=kind) for kind in (True, False))]
        assert all(isinstance(variable, tf.Variable) for variable in made)
        assert not isinstance(tf.zeros([]), tf.Variable)


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


@pytest.mark.parametrize(("source", "error", "words"), [
    ("from tensorflow.contrib import solvers\nsolvers.lanczos(1)", AttributeError,
     r"tf\.contrib\.solvers\.lanczos is not there: tf\.contrib\.solvers was dropped"),
    ("import tensorflow as tf\ntf.estimator.Estimater", AttributeError, r"did you mean tf\.estimator\.Estimator\?"),
    ("from tensorflow_estimator.python.estimator import util\nutil.no_such_function(1)", AttributeError,
     r"tf\.estimator\.no_such_function is not there"),
    ("from tensorflow.python.estimator import estimator\nestimator._no_such_function()", AttributeError,
     r"tf\.estimator\._no_such_function"),
    ("from tensorflow.contrib.tpu import no_such_name", ImportError, "no_such_name"),
    ("import tensorflow.python.no_such_module", ImportError,
     r"tensorflow\.python\.no_such_module of TensorFlow 1\.15 is not there"),
    ("import tensorflow.nowhere", ImportError, r"tensorflow\.nowhere"),
])  # fmt: skip
def test_what_never_was_or_was_dropped(source: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        in_program(source)
    assert not any("addons" in instead for instead in CONTRIB.values())


def test_importing_what_is_missing_is_no_error_and_using_it_is() -> None:
    source = "from tensorflow.contrib.data import LMDBDataset\n"
    in_program(source)
    with pytest.raises(AttributeError, match=r"(?s)tf\.contrib\.data\.LMDBDataset is not there.*program\.py:2"):
        in_program(source + "LMDBDataset(1)")
    with pytest.raises(AttributeError, match="LMDBDataset"):
        in_program(source + "class Model(LMDBDataset): pass")


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


def test_libraries_keep_their_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    with tensorflow_1():
        space = {"__name__": "tf_keras.late"}
        exec("import tensorflow as tf", space)
        assert space["tf"] is real
    exec("import tensorflow as tf", space := {"__name__": "program"})
    assert space["tf"] is real
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pandas"):
        in_program("import pandas")


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


def test_hparams() -> None:
    hparams = HParams(rate=0.1, layers=[1, 2], name="a", train=True, decay=None)
    hparams.parse("rate=2,layers=[3,4,5],name=b c,train=false")
    assert hparams.values() == {"rate": 2.0, "layers": [3, 4, 5], "name": "b c", "train": False, "decay": None}
    hparams.parse("layers[1]=9").set_hparam("decay", 0.5)
    assert (hparams.layers, hparams.decay, hparams.get("none", 3), "rate" in hparams) == ([3, 9, 5], 0.5, 3, True)
    assert json.loads(hparams.to_json())["name"] == "b c"
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
    for _ in range(2):
        hparams.del_hparam("size")
    assert ("size" in hparams, hasattr(hparams, "size")) == (False, False)
    hparams.add_hparam("size", "large")
    assert (hparams.get("size"), hparams.get_model_structure()) == ("large", "a net")
    hparams.set_model_structure("another")
    assert hparams.get_model_structure() == "another"


def test_transformations_of_contrib_data() -> None:
    rows = real.data.Dataset.range(7)
    data = tf.contrib.data

    def read(change: Any) -> list[Any]:
        return [element.tolist() for element in rows.apply(change).as_numpy_iterator()]

    assert read(data.batch_and_drop_remainder(3)) == [[0, 1, 2], [3, 4, 5]]
    assert read(data.sliding_window_batch(3, window_shift=2)) == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert len(read(data.shuffle_and_repeat(7, 2))) == 14
    found = rows.apply(data.map_and_batch(lambda x: x * 2, 7, drop_remainder=True))
    assert found.element_spec.shape == [7]
    assert sorted(read(data.sloppy_interleave(lambda x: real.data.Dataset.from_tensors(x), 2))) == list(range(7))
    pairs = rows.batch(2).map(lambda x: (x, {"y": x}))
    assert pairs.apply(data.assert_element_shape(([2], {"y": [None]}))).element_spec[0].shape == [2]
    with pytest.raises(real.errors.InvalidArgumentError, match="expected shape"):
        read(lambda all_rows: all_rows.batch(2).apply(data.assert_element_shape(real.TensorShape([2]))))


@pytest.mark.parametrize("name", ["AdamWOptimizer", "MomentumWOptimizer", "LARSOptimizer"])
def test_optimizers_of_contrib(name: str) -> None:
    """Each against NumPy, two steps on a variable whose gradient is constant."""
    start, slope, rate, decay = np.asarray([1.0, -2.0], "float32"), np.asarray([0.5, 1.0], "float32"), 0.1, 0.01
    arguments = {"AdamWOptimizer": (decay, rate, 0.9, 0.999, 1e-8), "MomentumWOptimizer": (decay, rate, 0.9),
                 "LARSOptimizer": (rate, 0.9, decay, 0.001)}  # fmt: skip
    with real.Graph().as_default(), tf1.Session() as session:
        variable = tf1.get_variable("w", initializer=start, use_resource=True)
        train = getattr(tf.contrib.opt, name)(*arguments[name]).minimize(real.reduce_sum(variable * slope))
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


def test_the_names_of_a_program_are_listed(command: Command) -> None:
    lines = command("program", PUBLISHED / "iris_tpu.py", "--all", code=1).out.splitlines()
    assert lines[0].endswith("24 work, 2 with a difference, 1 are not there")
    assert lines[1].startswith("not there               tf.contrib.quantize.create_training_graph (")
    assert any(line.startswith("works                   tf.contrib.data.batch_and_drop_remainder (") for line in lines)
    command("program", PUBLISHED / "premade.py")


def test_names_from_inside_a_module_are_listed_as_the_module_s(tmp_path: Path,
                                                               command: Command) -> None:  # fmt: skip
    (tmp_path / "inside.py").write_text(
        "from tensorflow.contrib.tpu.python.tpu import async_checkpoint\n"
        "from tensorflow.contrib.training.python.training import evaluation\n"
        "async_checkpoint.AsyncCheckpointSaverHook, evaluation.checkpoints_iterator, evaluation.CheckpointsIterator\n"
    )
    said = command("program", tmp_path, "--all", code=1).out
    assert "works with a difference tf.contrib.tpu.AsyncCheckpointSaverHook (" in said
    assert "works                   tf.contrib.training.checkpoints_iterator (" in said
    assert "not there               tf.contrib.training.CheckpointsIterator (" in said


def test_the_program_s_own_imports_are_followed(tmp_path: Path, command: Command) -> None:
    files = {
        "package/__init__": "", "package/task": "from package.parts import model\nfrom . import inputs\nimport os, helper",
        "package/parts/__init__": "", "package/parts/model": "import tensorflow as tf\nfrom .. import inputs\ntf.layers.dense",
        "package/inputs": "import tensorflow as tf\ntf.contrib.data.LMDBDataset", "helper": "import package.task",
        "package/alone": "import tensorflow as tf\ntf.layers.flatten",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    said = command("program", tmp_path / "package" / "task.py", "--all", code=1).out
    assert "uses 2 names" in said
    assert f"tf.layers.dense ({tmp_path}/package/parts/model.py:3)" in said
    assert f"tf.contrib.data.LMDBDataset ({tmp_path}/package/inputs.py:2)" in said


def test_a_file_that_is_no_python_3(tmp_path: Path, command: Command) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint 'a'\n")
    assert "old.py' is no Python 3" in (said := command("program", tmp_path / "old.py", code=2).err)
    assert "old.py:2" in said


# --------------------------------------------------------------------------- names of other libraries


@pytest.fixture
def as_before() -> Iterator[None]:
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


def test_at_a_log_level_tensorflow_s_own_lines_stay_away(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\ntf.layers.dense(tf.zeros([2, 3]), 1)\ntf.logging.warning('its own')\n")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-m", "tpugraph.compat", str(program)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == "WARNING:tensorflow:its own\n"


# --------------------------------------------------------------------------- more of tf.contrib


def test_arrays_have_the_methods_that_numpy_dropped() -> None:
    space = in_program(
        "import array\n"
        "import numpy as np\n"
        "one = np.arange(6, dtype=np.int16).reshape(2, 3)\n"
        "text, scalar, listed = one.tostring(), np.float32(1).tostring(), array.array('b', [1, 2]).tostring()\n"
        "span = one.ptp()\n"
        "one.itemset((1, 2), 9)\n"
        "one.itemset(0, 8)\n"
        "back = np.fromstring(text, dtype=np.int16)\n"
        "words = np.fromstring('1 2', sep=' ')\n"
        "turned = one.newbyteorder()\n"
    )
    one = space["one"]
    assert space["text"] == np.arange(6, dtype=np.int16).tobytes()
    assert (space["scalar"], space["listed"]) == (np.float32(1).tobytes(), b"\1\2")
    assert (space["span"], one[1, 2], one[0, 0]) == (5, 9, 8)
    assert space["back"].tolist() == [0, 1, 2, 3, 4, 5]
    assert space["back"].flags.writeable
    assert space["words"].tolist() == [1, 2]
    assert space["turned"][0, 0] == 8 << 8


def test_names_that_tensorflow_moved() -> None:
    space = in_program(
        "import tensorflow as tf\n"
        "import tensorflow.compat.v2 as tf2\n"
        "from tensorflow.python.training import evaluation\n"
        "from tensorflow.python.feature_column import feature_column_lib\n"
        "from tensorflow.python.ops import control_flow_ops, array_ops\n"
        "from tensorflow_estimator.python.estimator.canned import head\n"
        "from tensorflow.contrib.tensorboard.plugins import projector\n"
        "columns = feature_column_lib.DenseFeatures, tf2.estimator.DNNClassifier, control_flow_ops.case, array_ops.stack\n"
        "from tensorflow.python.estimator.util import fn_args\n"
        "key, arguments = head._DEFAULT_SERVING_KEY, fn_args(lambda a, b: 0)\n"
    )
    assert space["tf2"].estimator.Estimator is tpugraph.Estimator
    assert space["tf2"].__version__ == real.__version__
    assert space["key"] == "serving_default"
    assert space["arguments"] == ("a", "b")
    with real.Graph().as_default():
        assert tf.keras.layers.Dense(3).apply(tf.ones([2, 2])).shape.as_list() == [2, 3]
    assert space["evaluation"]._evaluate_once
    assert space["projector"].ProjectorConfig


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
def test_the_loss_of_version_2_is_a_mean() -> None:
    """Of four rows the loss of version 1 is four times as large."""
    column = [tf.feature_column.numeric_column("x")]
    losses = []
    for estimators in (tf.compat.v2.estimator, tf.estimator):
        made = estimators.LinearRegressor(feature_columns=column)
        rows = lambda: real.data.Dataset.from_tensors(({"x": [[1.0], [2.0], [3.0], [4.0]]}, [[1.0]] * 4))  # noqa: E731
        made.train(rows, steps=1)
        losses.append(made.evaluate(rows)["loss"])
    assert losses[1] == pytest.approx(4 * losses[0], rel=0.3)
    assert losses[0] < 1


def test_a_predictor_of_an_estimator(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        weight = tf.get_variable("w", [1], initializer=tf.constant_initializer(3.0))
        answer = {"y": features["x"] * weight}
        loss = None if labels is None else tf.reduce_mean(weight - weight)
        train = None if labels is None else tf.assign_add(tf.train.get_global_step(), 1).op
        exported = {"serving_default": tf.estimator.export.PredictOutput(answer)}
        return tf.estimator.EstimatorSpec(mode, answer, loss, train, export_outputs=exported)

    def receiver() -> Any:
        one = {"x": tf.placeholder(tf.float32, [None])}
        return tf.estimator.export.ServingInputReceiver(one, one)

    made = tf.estimator.Estimator(model_fn, str(tmp_path))
    made.train(lambda: real.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])), steps=1)
    predict = tf.contrib.predictor.from_estimator(made, receiver)
    assert predict({"x": [2.0]})["y"].tolist() == [6.0]
    with pytest.raises(ValueError, match="unexpected keys"):
        predict({"z": [2.0]})
    saved = made.export_saved_model(str(tmp_path / "saved"), receiver)
    again = tf.contrib.predictor.from_saved_model(saved)
    assert again({"x": [1.0, 2.0]})["y"].tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="Available signatures"):
        tf.contrib.predictor.from_saved_model(saved, "nothing")


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
def test_an_experiment_trains_and_evaluates(tmp_path: Path) -> None:
    """``learn_runner.run(experiment_fn, run_config=...)`` of TensorFlow 1.13."""
    learn = tf.contrib.learn
    column = [tf.feature_column.numeric_column("x")]
    rows = lambda: real.data.Dataset.from_tensors(({"x": [[1.0]]}, [[1.0]])).repeat(8)  # noqa: E731

    def experiment_fn(run_config: Any, hparams: Any) -> Any:
        return learn.Experiment(tf.estimator.LinearRegressor(column, config=run_config), rows, rows, train_steps=4)

    config = learn.RunConfig(model_dir=str(tmp_path), save_checkpoints_steps=2)
    result, _ = learn.learn_runner.run(experiment_fn, run_config=config, hparams=None)
    assert result["global_step"] == 4
    assert learn.ModeKeys.INFER == tf.estimator.ModeKeys.PREDICT
    with pytest.raises(ValueError, match="output_dir or run_config"):
        learn.learn_runner.run(experiment_fn)


def test_words_and_rows_for_programs_of_learn(tmp_path: Path) -> None:
    words = tf.contrib.learn.preprocessing.VocabularyProcessor(4)
    found = np.array(list(words.fit_transform(["a cat sat", "a dog sat on a mat"])))
    assert found.tolist() == [[1, 2, 3, 0], [1, 4, 3, 5]]
    assert len(words.vocabulary_) == 7
    assert next(words.transform(["a bird"])).tolist() == [1, 0, 0, 0]
    (tmp_path / "rows.csv").write_text("2,2,no,yes\n1.5,2,0\n3,4,1\n")
    rows = tf.contrib.learn.datasets.base.load_csv_with_header(str(tmp_path / "rows.csv"), np.int32, np.float32)
    assert rows.data.tolist() == [[1.5, 2], [3, 4]]
    assert rows.target.tolist() == [0, 1]


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
def test_a_strategy_means_cores(tmp_path: Path) -> None:
    """A program that asks for GPUs trains on as many cores, and the losses are those of one device."""
    strategies = [tf.contrib.distribute.MirroredStrategy(num_gpus=2), tf.distribute.OneDeviceStrategy("/cpu:0"), None]

    def rows() -> Any:
        made = real.data.Dataset.from_tensor_slices(({"x": np.arange(8.0)[:, None]}, np.ones([8, 1])))
        return made.batch(4, drop_remainder=True).repeat()

    values = []
    for number, strategy in enumerate(strategies):
        config = tf.estimator.RunConfig(str(tmp_path / str(number)), train_distribute=strategy)
        made = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], config=config)
        made.train(rows, steps=4)
        assert bool(made._requests.cores) == (strategy is not None)
        values.append(made.get_variable_value("linear/linear_model/x/weights"))
    np.testing.assert_allclose(values[0], values[2], rtol=1e-4)
    np.testing.assert_allclose(values[1], values[2], rtol=1e-4)
    with strategies[0].scope():
        assert strategies[0].num_replicas_in_sync == 2


@pytest.mark.parametrize(("name", "limit", "stops"), [
    ("stop_if_higher_hook", {"threshold": 0.8}, [False, True]),
    ("stop_if_lower_hook", {"threshold": 0.5}, [True, False]),
    ("stop_if_no_increase_hook", {"max_steps_without_increase": 20}, [True, False]),
    ("stop_if_no_decrease_hook", {"max_steps_without_decrease": 20}, [False, True]),
])  # fmt: skip
def test_training_stops_by_the_metric_of_evaluations(tmp_path: Path, name: str, limit: dict[str, Any],
                                                     stops: list[bool]) -> None:  # fmt: skip
    found = []
    for falls, values in enumerate([[0.7, 0.6, 0.5, 0.4], [0.6, 0.7, 0.8, 0.9]]):
        folder = str(tmp_path / str(falls))
        with real.Graph().as_default(), tf1.summary.FileWriter(folder) as writer:
            for step, value in enumerate(values):
                summary = tf1.Summary(value=[tf1.Summary.Value(tag="accuracy", simple_value=value)])
                writer.add_summary(summary, 10 * step)
        hook = getattr(tf.estimator.experimental, name)(None, "accuracy", eval_dir=folder, run_every_secs=60, **limit)
        found.append(hook._should_stop(30))
    assert found == stops
