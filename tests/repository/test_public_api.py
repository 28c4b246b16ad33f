"""What a user may import: everything documented, nothing that reports a private home, and cheap to import."""

import inspect
import subprocess
import sys
from dataclasses import fields

import pytest
from forked import Programs

import tpugraph
from tpugraph import testing

NAMES = sorted(tpugraph.__all__)


def test_names_of_the_package() -> None:
    assert len(set(tpugraph.__all__)) == len(tpugraph.__all__)
    assert not [name for name in NAMES if name.startswith("_") and name != "__version__"]
    with pytest.raises(AttributeError, match="no_such_name"):
        tpugraph.no_such_name  # noqa: B018
    assert set(NAMES) <= set(dir(tpugraph))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(tpugraph, name)
    if isinstance(value, str):
        return
    assert (inspect.getdoc(value) or "").strip()
    home = value.__name__ if inspect.ismodule(value) else value.__module__
    assert not any(part.startswith("_") for part in home.split("."))
    assert home.startswith("tpugraph")


@pytest.mark.parametrize("name", NAMES)
def test_public_methods_are_documented(name: str) -> None:
    value = getattr(tpugraph, name)
    if not inspect.isclass(value):
        return
    for member, found in vars(value).items():
        if member.startswith("_") or not (inspect.isfunction(found) or isinstance(found, (property, classmethod))):
            continue
        assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"


@pytest.mark.parametrize("name", sorted(testing.__all__))
def test_the_testing_module_is_documented(name: str) -> None:
    value = getattr(testing, name)
    if isinstance(value, str):
        return
    assert inspect.getdoc(value)
    assert value.__module__.startswith("tpugraph.")
    if inspect.isfunction(value):
        assert "Example:" in (inspect.getdoc(value) or "")


def test_convert_names_each_option_with_its_default() -> None:
    shown = inspect.signature(tpugraph.convert).parameters
    for option in fields(tpugraph.ConvertOptions):
        assert shown[option.name].default == option.default
        assert shown[option.name].annotation == option.type


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("batch_mode", "global_batch=G has it read G rows"),
        ("loss_reduction", "global_batch=G has it read G rows"),
        ("num_replica", "did you mean num_replicas"),
        ("speed", "help"),
    ],
)
def test_an_option_that_is_not_there_is_a_type_error_that_says_what_is(name: str, words: str) -> None:
    for question in (tpugraph.convert, tpugraph.check, tpugraph.view):
        with pytest.raises(TypeError, match=words):
            question("model.pb", **{name: 1})


def test_the_module_of_exports_can_be_imported_by_its_name(new_process: Programs) -> None:
    """By a program that has not used it yet; it has the names of ``tf.estimator.export``."""
    code = "import tpugraph.export as export; from tpugraph.export import *; import tpugraph; assert tpugraph.export is export"
    done = new_process("-c", code)
    assert done.code == 0, done.err
    original = {"ClassificationOutput", "EvalOutput", "ExportOutput", "PredictOutput", "RegressionOutput",
                "ServingInputReceiver", "TensorServingInputReceiver", "build_parsing_serving_input_receiver_fn",
                "build_raw_serving_input_receiver_fn"}  # fmt: skip
    assert original <= set(tpugraph.export.__all__)
    assert all((inspect.getdoc(getattr(tpugraph.export, name)) or "").strip() for name in tpugraph.export.__all__)


def test_tolerances_have_no_default() -> None:
    parameters = inspect.signature(testing.assert_same_training).parameters
    for name in ("relative", "absolute"):
        assert parameters[name].default is inspect.Parameter.empty
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


_AS_IN_TENSORFLOW = ("TPUEstimator", "TPUConfig", "EmbeddingConfigSpec", "TableConfig", "AdagradParameters",
                   "AdamParameters")  # fmt: skip


def test_flags_are_keyword_only() -> None:
    """No public function takes a bool by position, but those whose arguments are TensorFlow 1.15's, in its order."""
    wrong = []
    for name in (name for name in NAMES if name not in _AS_IN_TENSORFLOW):
        value = getattr(tpugraph, name)
        members = [value, *(vars(value).values() if inspect.isclass(value) else ())]
        for member in members:
            if not inspect.isfunction(member):
                continue
            for parameter in inspect.signature(member).parameters.values():
                if isinstance(parameter.default, bool) and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                    wrong.append(f"{name}.{member.__name__}({parameter.name})")
    assert wrong == []


def test_importing_needs_no_tensorflow() -> None:
    code = "import sys, tpugraph; tpugraph.LoadError; assert 'tensorflow' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(p for p in sys.path if p)})
    # What it logs of the machine comes at any level
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run([sys.executable, "-c", "import tpugraph; tpugraph.load"], check=True, env=environment,
                          stderr=subprocess.PIPE)  # fmt: skip
    assert done.stderr == b""
