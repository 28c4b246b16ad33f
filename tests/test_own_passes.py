"""Passes that are not tpugraph's own, on the command line: by module and class, and by entry points of packages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpugraph import cli
from tpugraph.ir import graphdef
from tpugraph.passes import PASSES
from tpugraph.support.errors import UsageError
from tpugraph.tpu import own_passes
from tpugraph.tpu.pipeline import Pass, parse_passes

IRIS = Path(__file__).parent / "data" / "corpus" / "iris_dnn" / "model.pb"
NAMES = [step.name for step in PASSES]
SOURCE = '''
from dataclasses import dataclass
import tpugraph

@dataclass(frozen=True)
class WithoutSummaries(tpugraph.Pass):
    """No summary is left."""

    breaking: bool = False

    def run(self, graph):
        if self.breaking:
            raise ValueError("the pass is wrong\\nsecond line")
        for node in graph.of_type("MergeSummary"):
            graph.note(node, "seen")

NOT_A_CLASS = 3
class NoPass: pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module with passes in the current folder, and a package whose entry point names one of them."""
    name = f"their_passes_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(SOURCE)
    (tmp_path / "theirs-1.0.dist-info").mkdir()
    (tmp_path / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = f"[tpugraph.passes]\nno-summaries = {name}:WithoutSummaries\n"
    (tmp_path / "theirs-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    own_passes.installed.cache_clear()
    yield name
    own_passes.installed.cache_clear()


def test_verify_takes_passes_too(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "--passes=prune,...,cross-replica-sum,planted:ScaleGradient,..."
    assert cli.main(["verify", str(IRIS), "--num_replicas=1", "--steps=1", wrong]) == 1
    said = capsys.readouterr().out
    assert "NOT the same: 'dense_2/bias/Adagrad' differs most" in said
    assert "`tpugraph compare` names the first tensor that differs" in said


def ran(capsys: pytest.CaptureFixture[str], passes: str) -> list[str]:
    """The passes that a conversion ran."""
    assert cli.main(["convert", str(IRIS), "-o", "out.pb", "--json", f"--passes={passes}"]) == 0
    return [trace["name"] for trace in json.loads(capsys.readouterr().out)["report"]["passes"]]


def test_a_pass_by_module_and_class_and_the_rest_of_the_pipeline(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f"{module}:WithoutSummaries"
    assert ran(capsys, f"prune,{own},...") == ["prune", "without-summaries", *NAMES[1:]]
    assert any(node.op == "TPUReplicateMetadata" for node in graphdef.sniff(Path("out.pb")).graph_def.node)
    before = NAMES.index("placement") + 1
    assert ran(capsys, f"...,placement,{own},...") == [*NAMES[:before], "without-summaries", *NAMES[before:]]
    assert ran(capsys, f"{own},...") == ["without-summaries", *NAMES]


def test_a_pass_by_the_entry_point_of_a_package(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, "no-summaries,...") == ["without-summaries", *NAMES]
    assert cli.main(["passes"]) == 0
    printed = capsys.readouterr().out
    assert (
        f"of installed packages; --passes=...,NAME,... runs them:\n    no-summaries ({module}:WithoutSummaries)"
        in printed
    )


def test_the_ellipsis_stands_for_the_passes_between_its_neighbours() -> None:
    def names(text: str) -> list[str]:
        return [step.name for step in parse_passes(text, PASSES, {})]

    assert names("...") == NAMES
    assert names("prune,...,placement") == NAMES[: NAMES.index("placement") + 1]
    assert names("placement,...,split-batch") == ["placement", "split-batch"]
    assert issubclass(Pass, object)


@pytest.mark.parametrize(
    ("passes", "words"),
    [
        ("nowhere.at_all:MyPass", ["the pass 'nowhere.at_all:MyPass' cannot be loaded: there is no module 'nowhere'"]),
        ("{module}:Without", ["the module '{module}' has no 'Without'", "--passes=my.module:MyPass"]),
        ("{module}:NOT_A_CLASS", ["'{module}:NOT_A_CLASS' is no class"]),
        ("{module}:NoPass", ["'{module}:NoPass' is no pass", "derive a frozen dataclass from tpugraph.Pass"]),
        ("placment,...", ["there is no pass 'placment'", "did you mean placement?"]),
        ("prune;placement", ["'prune;placement' is no list of passes"]),
        (
            "{module}:WithoutSummaries{{breaking=true}},...",
            [
                "error: without-summaries: ValueError: the pass is wrong\n",
                "{module}.py:13",
                "mend the pass 'without-summaries'",
            ],
        ),
    ],
)
def test_what_is_wrong_is_said(module: str, capsys: pytest.CaptureFixture[str], passes: str, words: list[str]) -> None:
    assert cli.main(["convert", str(IRIS), "--dry_run", f"--passes={passes.format(module=module)}"]) == 2
    error = capsys.readouterr().err
    assert all(word.format(module=module) in error for word in words), error
    assert "Traceback" not in error


def test_a_module_that_does_not_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_pass.py").write_text("def (:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="'broken_pass:X' cannot be loaded: invalid syntax"):
        own_passes.load("broken_pass:X")
