"""Passes that are not tpugraph's own, on the command line: by module and class, and by entry points of packages."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from models import corpus
from tpugraph import cli
from tpugraph.ir import Graph, Node, attrs, graphdef
from tpugraph.passes import PASSES
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.tpu import pipeline
from tpugraph.tpu.pipeline import Pass, Pipeline, parse_passes

IRIS = Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn" / "model.pb"
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

FLOAT = attrs.dtype("float32")
MEND = "TensorFlow took the graph before the pass 'edit': mend the pass"


@dataclass(frozen=True)
class Edit(Pass):
    """A node was edited."""

    edit: Callable[[Graph, Node], object]

    def run(self, graph: Graph) -> None:
        self.edit(graph, graph["dense/MatMul"])


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
    pipeline.installed.cache_clear()
    yield name
    pipeline.installed.cache_clear()


def test_verify_takes_passes_too(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "--passes=prune,...,partition,planted:ScaleGradient,..."
    assert cli.main(["verify", str(IRIS), "--num_replicas=1", "--steps=1", wrong]) == 1
    said = capsys.readouterr().out
    assert "with the plain graph: DIFFERS, 'dense_2/bias/Adagrad' by" in said
    assert "`tpugraph compare` names the first tensor that differs" in said


def ran(capsys: pytest.CaptureFixture[str], passes: str) -> list[str]:
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
    assert names("placement,...,batch-norm") == ["placement", "batch-norm"]
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


def _put_behind(graph: Graph, product: Node, op: str, **attributes: object) -> None:
    behind = graph.add(op, "behind", [product.out()], attrs=attributes, outputs=product.outputs)
    graph.replace_uses(product.out(), behind.out(), where=lambda use: use.node is not behind)


def _negated(graph: Graph, product: Node) -> None:
    _put_behind(graph, product, "Neg", T=FLOAT)


def _as_integers(graph: Graph, product: Node) -> None:
    _put_behind(graph, product, "Cast", SrcT=FLOAT, DstT=attrs.dtype("int32"))


def _call(graph: Graph, product: Node) -> None:
    _put_behind(graph, product, "PartitionedCall", f=attrs.Func("nowhere"), Tin=[FLOAT], Tout=[FLOAT])


def _read_what_is_gone(graph: Graph, product: Node) -> None:
    gone = graph.add("NoOp", "gone")
    graph.remove(gone)
    graph.add_control(product, gone)


BROKEN: dict[str, tuple[Callable[[Graph, Node], object], str, str]] = {
    "an op set by hand": (lambda g, n: setattr(n, "op", "Neg"), "the op of a node cannot be set", "graph.retype"),
    "a name set by hand": (lambda g, n: setattr(n, "name", "y"), "the name of a node cannot be set", "graph.add(op, name)"),
    "an unknown op": (lambda g, n: g.retype(n, "Matmull"), "cannot become Matmull: this TensorFlow does not", "mean MatMul?"),
    "a new node of an unknown op": (lambda g, n: _put_behind(g, n, "Mine"), "the op Mine is not known", MEND),
    "a number of inputs": (lambda g, n: g.retype(n, "Neg"), "has 2 inputs, and Neg takes 1", "give inputs="),
    "a new node of too few inputs": (lambda g, n: g.add("MatMul", "x", [n.out()], attrs={"T": FLOAT}), "has 1 inputs, but", ""),
    "an attribute that is missing": (lambda g, n: g.set_attr(n, "T", None), "well_formed: the attribute 'T' is missing", ""),
    "an attribute of another kind": (lambda g, n: g.set_attr(n, "transpose_a", 7), "'int' when 'bool' expected", MEND),
    "another dtype": (_as_integers, "was passed int32", MEND),
    "other shapes": (lambda g, n: g.set_attr(n, "transpose_b", True), "Dimensions must be equal", MEND),
    "an output that is not there": (lambda g, n: g.replace_uses(n.out(), n.out(3)), "invalid output 3", MEND),
    "a cycle": (lambda g, n: g.set_input(n, 0, n.uses()[0].node.out()), "a cycle that is no loop: dense/MatMul <- ", MEND),
    "a cycle of waiting": (lambda g, n: g.add_control(n, n.uses()[0].node), "a cycle that is no loop", MEND),
    "an input of another graph": (lambda g, n: g.set_input(n, 0, corpus("iris_dnn").graph()[n.name].out()), "not in this", ""),
    "waiting for nothing": (_read_what_is_gone, "control inputs of 'dense/MatMul': the node is not in this graph", ""),
    "a function that is not there": (_call, "calls the function 'nowhere', which is not in the graph's library", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_pass_that_breaks_the_graph_is_named(kind: str) -> None:
    edit, words, fix = BROKEN[kind]
    graph = corpus("iris_dnn").graph()
    with pytest.raises(TpuGraphError) as caught:
        Pipeline([Edit(_negated), Edit(edit), Edit(_negated)]).run(graph)
    error = caught.value
    assert (error.stage or "").removeprefix("after ") == "edit"
    assert words in error.fault
    assert error.node is not None
    assert fix in (error.fix or "")


def test_a_graph_that_is_broken_before_is_no_fault_of_the_pass() -> None:
    graph = corpus("iris_dnn").graph()
    graph.set_attr(graph["dense/MatMul"], "transpose_b", True)
    Pipeline([Edit(_negated)]).run(graph)


def test_a_module_that_does_not_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_pass.py").write_text("def (:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="'broken_pass:X' cannot be loaded: invalid syntax"):
        pipeline.load("broken_pass:X")
