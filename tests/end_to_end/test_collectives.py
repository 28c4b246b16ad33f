"""The cores combine no more than they have to: as many values and bytes as are counted in the plain graph."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from sampling import runs

from programs import PROGRAMS, trace

ROOT = Path(__file__).parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("collectives_page", ROOT / "tools" / "collectives.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


TOOL = script()
MODELS = TOOL.models()
SLOW = [name for name in MODELS if name.startswith("ResNet")]
REST = [name for name in MODELS if name == "BERT (family `bert_small`)"]
"""What the gate alone runs; the suite has a smaller BERT."""

assert len(REST) == 1, "it has another name now"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in MODELS if runs(n not in REST)]
)
def test_a_step_combines_the_least_and_the_page_says_so(name: str) -> None:
    row = TOOL.row(name, MODELS[name]())
    assert row.endswith("| yes |")
    assert "| 0 |" not in row.split(" | ", 3)[3]
    assert f"\n{row}\n" in TOOL.PAGE.read_text(encoding="utf-8"), "run python tools/collectives.py"


def test_the_page_has_these_models() -> None:
    rows = TOOL.PAGE.read_text(encoding="utf-8").partition("| --- |")[2].splitlines()[1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(MODELS)


def least(program: str, **sizes: Any) -> tuple[list[int], list[int], list[int], list[int]]:
    """Gradients, statistics, bounds and divisors of a program, in bytes."""
    traced = trace(PROGRAMS[program].sized(**sizes), 4)
    graph, norms = traced.graph, list(TOOL._norms(traced.graph))
    loss = graph.get_tensor_by_name(traced.loss).op
    return (list(TOOL.gradients(graph, traced.trained)), list(TOOL.statistics(norms, traced.trained)),
            list(TOOL.bounds(graph)), list(TOOL.divisors(graph, loss)))  # fmt: skip


def test_the_least_of_small_steps() -> None:
    assert least("optimizers/weight_decay_2") == ([60, 12, 12], [], [], [])
    gradients, statistics, *others = least("statistics/batch_norm_fused_2")
    assert sorted(gradients) == sorted([24, 12, 12, 144, 12, 12, 12])
    assert statistics == [12] * 4
    assert others == [[], []]
    gradients, _, _, divisors = least("attention/bert_2", depth=0)
    traced = trace(PROGRAMS["attention/bert_2"].sized(depth=0), 4).trained
    assert gradients[traced.index("places")] == 4 * 5 * 6, "five of nine places"
    assert divisors == [4], "the sum of the weights"


@pytest.mark.parametrize(("words", "size"), [(20, 20 * 12), (400, 64 * (12 + 4))])
def test_the_least_of_an_embedding_is_its_table_or_its_rows(words: int, size: int) -> None:
    with tf.Graph().as_default() as graph:
        table = tf.compat.v1.get_variable("table", [words, 3], use_resource=False)
        tf.gradients(tf.gather(table, tf.zeros([64], tf.int32)), table)
    assert list(TOOL.gradients(graph, ["table"])) == [size]
