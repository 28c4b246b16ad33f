"""The pipeline: order proven before running, checks around every pass, traces and dumps, passes as text."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from models import corpus
from tpugraph import testing
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.compiler.conversion import build_passes
from tpugraph.ir import Graph
from tpugraph.passes import PASSES
from tpugraph.passes.prune import Prune
from tpugraph.passes.resource_variables import ResourceVariables
from tpugraph.passes.separate_rows import SeparateRows
from tpugraph.passes.static_shapes import StaticShapes
from tpugraph.support.errors import ConversionError, GraphError, InvariantError, PipelineError, UsageError
from tpugraph.tpu.invariants import INVARIANTS
from tpugraph.tpu.pipeline import Pass, Pipeline, parse_passes


@dataclass(frozen=True)
class GrowTwice(Pass):
    """Two more nodes are there.

    The second paragraph is no part of the summary.
    """

    count: int = 2
    loud: bool = False
    word: str = "n"

    def run(self, graph: Graph) -> None:
        for _ in range(self.count):
            graph.add("NoOp", self.word)


@dataclass(frozen=True)
class Counted:
    """A result."""

    nodes: int


def fail(graph: Graph) -> None:
    raise ConversionError("it cannot be", node="x (Test)")


def made(name: str, run: Callable[[Graph], object] = lambda graph: None, **fields: Any) -> type[Pass]:
    """A class of passes with such requirements, promises and results, which is ``name`` for the pipeline."""
    return type(name, (Pass,), {"run": lambda self, graph: run(graph), **fields})


NeedsShapes = made("NeedsShapes", requires=("shapes_known",))
PromisesShapes = made("PromisesShapes", ensures=("shapes_known",))  # and does not infer them
ForgetsShapes = made("ForgetsShapes", breaks=("shapes_known",))
Unknown = made("Unknown", ensures=("no_such_thing",))
Gives = made("Gives", lambda graph: graph.keep(Counted(len(graph))), gives=(Counted,))
Reads = made("Reads", lambda graph: graph.result(Counted), reads=(Counted,))
MayRead = made("MayRead", lambda graph: graph.kept(Counted), reads_if_given=(Counted,))
Peeks = made("Peeks", lambda graph: graph.kept(Counted))
Breaks = made("Breaks", lambda graph: graph.add("Const", "broken"))
Fails = made("Fails", fail)


# ------------------------------------------------------------------ the default pipeline


def test_the_default_order_is_proven_and_needed() -> None:
    Pipeline(build_passes(ConvertOptions()))
    # Each requirement of the default pipeline is needed: without the pass that ensures it the order is refused
    steps = build_passes(ConvertOptions())
    for step in steps:
        for name in step.requires:
            givers = [s for s in steps if name in s.ensures]
            rest = [s for s in steps if s not in givers]
            if name == "roles_known" or step not in rest:
                continue
            with pytest.raises(PipelineError):
                Pipeline(rest)


def test_the_pipeline_as_data() -> None:
    names = [cls.name for cls in PASSES]
    assert len(set(names)) == len(names)
    for cls in PASSES:
        assert cls.__module__ == f"tpugraph.passes.{cls.name.replace('-', '_')}"
        assert cls.summary().endswith((".", "changes."))
        assert "\n" not in cls.summary()
    # Each is written by the test file of its pass: a pass without one has no folder
    for cls in PASSES:
        assert list((Path(__file__).parents[1] / "golden" / cls.name).glob("*.txt")), cls.name
    listed = [cls.as_data() for cls in PASSES]
    assert [entry["name"] for entry in listed] == [cls.name for cls in PASSES]
    assert {name for entry in listed for name in (*entry["requires"], *entry["ensures"])} <= INVARIANTS.keys()
    assert all(invariant.meaning for invariant in INVARIANTS.values())


# ------------------------------------------------------------------ order


@pytest.mark.parametrize(
    ("passes", "words"),
    [
        ([NeedsShapes()], ["'needs-shapes' requires 'shapes_known'", "add the pass"]),
        ([NeedsShapes(), PromisesShapes()], ["run 'promises-shapes' before it"]),
        ([PromisesShapes(), ForgetsShapes(), NeedsShapes()], ["'shapes_known'"]),
        ([Unknown()], ["does not exist: no_such_thing"]),
        ([Reads(), Gives()], ["the pass 'reads' reads Counted, which nothing before it gives", "run 'gives' before it"]),
        ([MayRead(), Gives()], ["run 'gives' before it"]),
        ([Prune(), ResourceVariables(), StaticShapes(), SeparateRows()],
         ["the pass 'separate-rows' reads PaddedBatches, which nothing before it gives", "add the pass that gives it"]),
    ],
)  # fmt: skip
def test_an_order_in_which_something_is_missing_is_refused(passes: list[Pass], words: list[str]) -> None:
    testing.assert_raises_block(Pipeline, passes, words=words, kind=PipelineError)


# ------------------------------------------------------------------ running


def test_the_trace_counts_what_the_graph_counted() -> None:
    pipeline = Pipeline([GrowTwice(), GrowTwice(count=5)])
    graph = pipeline.run(testing.parse("x = Test()"))
    assert [(t.name, str(t.edits), t.nodes) for t in pipeline.trace] == [
        ("grow-twice", "+2 -0 ~0", 3),
        ("grow-twice", "+5 -0 ~0", 8),
    ]
    assert all(t.seconds >= 0 for t in pipeline.trace)
    assert graph["n"].made_by == "grow-twice"
    assert graph.stage is None
    assert pipeline.trace[0].as_dict()["added"] == 2


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        (Pipeline([PromisesShapes()]), ["after promises-shapes: shapes_known", "x (Test)"]),
        (Pipeline([NeedsShapes()], given=["shapes_known"]), ["before needs-shapes", "x (Test)"]),
        (Pipeline([GrowTwice(), Breaks()]), ["after breaks: well_formed", "broken (Const)", "is missing"]),
    ],
)
def test_an_invariant_that_does_not_hold_names_the_pass_and_the_node(pipeline: Pipeline, words: list[str]) -> None:
    graph = testing.parse("x = Test()")
    testing.assert_raises_block(pipeline.run, graph, words=words, max_length=250, kind=InvariantError)


def test_failures_get_their_stage_and_each_pass_is_announced() -> None:
    graph = testing.parse("x = Test()")
    graph.source = "model.pb"
    error = testing.assert_raises_block(Pipeline([Fails()]).run, graph, max_length=200,
                                        words=["error: fails: it cannot be", "node    x (Test)", "from    model.pb"])  # fmt: skip
    assert (error.stage, error.origin) == ("fails", "model.pb")
    assert graph.stage is None
    seen: list[Pass] = []
    Pipeline([GrowTwice(), GrowTwice(count=3)]).run(testing.parse("x = Test()"), before=seen.append)
    assert seen == [GrowTwice(), GrowTwice(count=3)]


# ------------------------------------------------------------------ dumps


def test_dumps_are_numbered_and_parse_back(tmp_path: Path) -> None:
    Pipeline([GrowTwice(), GrowTwice(word="m")]).run(testing.parse("x = Test()"), dump_dir=tmp_path / "dumps")
    files = sorted(p.name for p in (tmp_path / "dumps").iterdir())
    assert files == ["00_input.txt", "01_grow-twice.txt", "02_grow-twice.txt"]
    assert len(testing.parse((tmp_path / "dumps" / files[-1]).read_text())) == 5
    convert(corpus("iris_dnn").folder / "model.pb", dump_dir=str(tmp_path / "real"), dump_after=("prune", "replicate"))
    number = [cls.name for cls in PASSES].index("replicate") + 1
    assert sorted(p.name for p in (tmp_path / "real").iterdir()) == [
        "00_input.txt",
        "01_prune.txt",
        f"{number:02}_replicate.txt",
    ]


def test_dumps_that_cannot_be_made(tmp_path: Path) -> None:
    testing.assert_raises_block(Pipeline([GrowTwice()]).run, testing.parse("x = Test()"), dump_dir=tmp_path, dump_after=["prune"],
                                max_length=200, kind=UsageError, words=["--dump_after", "prune"])  # fmt: skip
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    testing.assert_raises_block(Pipeline([GrowTwice()]).run, testing.parse("x = Test()"), dump_dir=tmp_path / "file",
                                max_length=400, words=["the dump cannot be written", "--dump_dir"])  # fmt: skip


# ------------------------------------------------------------------ passes as text

KNOWN = (GrowTwice, NeedsShapes)


def test_passes_from_text() -> None:
    assert parse_passes("grow-twice", KNOWN, {}) == [GrowTwice()]
    text = "needs-shapes, grow-twice{count=7, loud=true,word=abc}"
    assert parse_passes(text, KNOWN, {}) == [NeedsShapes(), GrowTwice(7, loud=True, word="abc")]
    assert parse_passes("grow-twice", KNOWN, {"count": 3, "other": 1}) == [GrowTwice(3)]
    path = corpus("iris_dnn").folder / "model.pb"
    names = ",".join(cls.name for cls in PASSES)
    spelled = convert(path, num_replicas=4, iterations_per_loop=9, passes=names)
    assert spelled.graph_def == convert(path, num_replicas=4, iterations_per_loop=9).graph_def


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", ["there is no pass 'nothing'", "grow-twice"]),
        ("", ["names no pass"]),
        ("grow-twice{size=1}", ["has no parameter 'size'", "count, loud, word"]),
        ("grow-twice{count=many}", ["'many' is no int", "count=2"]),
    ],
)
def test_text_that_names_no_passes(text: str, words: list[str]) -> None:
    testing.assert_raises_block(parse_passes, text, KNOWN, {}, words=words, kind=UsageError)


def test_a_pass_looks_up_what_it_names_alone() -> None:
    graph = testing.parse("x = NoOp()")
    Pipeline([MayRead()]).run(graph)
    Pipeline([Gives(), Reads()]).run(graph)
    assert graph.result(Counted) == Counted(1)
    testing.assert_raises_block(lambda: Pipeline([Peeks()]).run(testing.parse("x = NoOp()")), max_length=400, kind=GraphError,
                                words=["the pass 'peeks' looks up Counted, which it does not name in its reads"])  # fmt: skip
    testing.assert_raises_block(lambda: testing.run_pass(Reads(), testing.parse("x = NoOp()")), max_length=400, kind=GraphError,
                                words=["Counted is not known of the graph", "run the pass that gives it before"])  # fmt: skip
