"""The pipeline: order proven before running, checks around every pass, traces and dumps, passes as text."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from models import corpus
from tpugraph import roles, testing
from tpugraph.compiler import ConvertOptions, build_passes, convert, passes_of
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
class NeedsShapes(Pass):
    """Nothing changes."""

    requires = ("shapes_known",)

    def run(self, graph: Graph) -> None:
        del graph


@dataclass(frozen=True)
class PromisesShapes(NeedsShapes):
    """Shapes are promised, but not inferred."""

    requires = ()
    ensures = ("shapes_known",)


@dataclass(frozen=True)
class Counted:
    """A result."""

    nodes: int


@dataclass(frozen=True)
class Gives(Pass):
    """A result is kept."""

    gives = (Counted,)

    def run(self, graph: Graph) -> None:
        graph.keep(Counted(len(graph)))


@dataclass(frozen=True)
class Reads(Pass):
    """A result is looked up."""

    reads = (Counted,)

    def run(self, graph: Graph) -> None:
        graph.result(Counted)


@dataclass(frozen=True)
class MayRead(Pass):
    """A result is looked up where there is one."""

    reads_if_given = (Counted,)

    def run(self, graph: Graph) -> None:
        graph.kept(Counted)


@dataclass(frozen=True)
class Peeks(Pass):
    """A result is looked up in secret."""

    def run(self, graph: Graph) -> None:
        graph.kept(Counted)


@dataclass(frozen=True)
class ForgetsShapes(NeedsShapes):
    """Shapes are forgotten."""

    requires = ()
    breaks = ("shapes_known",)


@dataclass(frozen=True)
class Breaks(Pass):
    """An attribute is lost."""

    def run(self, graph: Graph) -> None:
        graph.add("Const", "broken")


@dataclass(frozen=True)
class Fails(Pass):
    """A failure without a stage and an origin."""

    def run(self, graph: Graph) -> None:
        raise ConversionError("it cannot be", node="x (Test)")


@dataclass(frozen=True)
class Unknown(Pass):
    """It names an invariant that does not exist."""

    ensures = ("no_such_thing",)


# ------------------------------------------------------------------ the default pipeline


def test_the_default_order_is_proven() -> None:
    Pipeline(build_passes(ConvertOptions()))


def test_names_derive_from_classes_and_files() -> None:
    names = [cls.name for cls in PASSES]
    assert len(set(names)) == len(names)
    for cls in PASSES:
        assert cls.__module__ == f"tpugraph.passes.{cls.name.replace('-', '_')}"
        assert cls.summary().endswith((".", "changes."))
        assert "\n" not in cls.summary()


def test_every_pass_has_a_golden_folder() -> None:
    """Each is written by the test file of its pass: a pass without one has no folder."""
    for cls in PASSES:
        assert list((Path(__file__).parents[1] / "golden" / cls.name).glob("*.txt")), cls.name


def test_no_two_neighbours_may_swap_where_one_needs_the_other() -> None:
    """Each requirement of the default pipeline is needed: without the pass that ensures it the order is refused."""
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
    listed = passes_of()
    assert [entry["name"] for entry in listed] == [cls.name for cls in PASSES]
    assert {name for entry in listed for name in (*entry["requires"], *entry["ensures"])} <= INVARIANTS.keys()
    assert all(invariant.meaning for invariant in INVARIANTS.values())


# ------------------------------------------------------------------ order


def test_a_requirement_that_nothing_ensures() -> None:
    testing.assert_raises_block(Pipeline, [NeedsShapes()], kind=PipelineError,
                                words=["'needs-shapes' requires 'shapes_known'", "add the pass"])  # fmt: skip


def test_a_requirement_that_comes_too_late() -> None:
    testing.assert_raises_block(Pipeline, [NeedsShapes(), PromisesShapes()], words=["run 'promises-shapes' before it"])


def test_a_requirement_that_was_given_up() -> None:
    testing.assert_raises_block(Pipeline, [PromisesShapes(), ForgetsShapes(), NeedsShapes()], words=["'shapes_known'"])
    Pipeline([NeedsShapes()], given=["shapes_known"])


def test_an_invariant_that_does_not_exist() -> None:
    testing.assert_raises_block(Pipeline, [Unknown()], words=["does not exist: no_such_thing"], max_length=200)


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


def test_a_broken_promise_names_the_pass_and_the_node() -> None:
    testing.assert_raises_block(Pipeline([PromisesShapes()]).run, testing.parse("x = Test()"), max_length=200,
                                kind=InvariantError, words=["after promises-shapes: shapes_known", "x (Test)"])  # fmt: skip


def test_a_requirement_is_checked_on_the_graph_too() -> None:
    testing.assert_raises_block(Pipeline([NeedsShapes()], given=["shapes_known"]).run, testing.parse("x = Test()"),
                                max_length=200, words=["before needs-shapes", "x (Test)"])  # fmt: skip


def test_a_malformed_graph_is_noticed_after_the_pass_that_made_it() -> None:
    testing.assert_raises_block(Pipeline([GrowTwice(), Breaks()]).run, testing.parse("x = Test()"), max_length=250,
                                words=["after breaks: well_formed", "broken (Const)", "is missing"])  # fmt: skip


def test_a_failure_gets_the_stage_and_the_origin() -> None:
    graph = testing.parse("x = Test()")
    graph.source = "model.pb"
    error = testing.assert_raises_block(Pipeline([Fails()]).run, graph, max_length=200,
                                        words=["error: fails: it cannot be", "node    x (Test)", "from    model.pb"])  # fmt: skip
    assert (error.stage, error.origin) == ("fails", "model.pb")
    assert graph.stage is None


def test_progress_is_told_before_each_pass() -> None:
    seen: list[tuple[str, int, int]] = []
    Pipeline([GrowTwice(), GrowTwice()]).run(testing.parse("x = Test()"), progress=lambda *a: seen.append(a))
    assert seen == [("grow-twice", 1, 2), ("grow-twice", 2, 2)]


# ------------------------------------------------------------------ dumps


def test_dumps_are_numbered_and_parse_back(tmp_path: Path) -> None:
    Pipeline([GrowTwice(), GrowTwice(word="m")]).run(testing.parse("x = Test()"), dump_dir=tmp_path / "dumps")
    files = sorted(p.name for p in (tmp_path / "dumps").iterdir())
    assert files == ["00_input.txt", "01_grow-twice.txt", "02_grow-twice.txt"]
    assert len(testing.parse((tmp_path / "dumps" / files[-1]).read_text())) == 5


def test_dumps_of_a_real_conversion(tmp_path: Path) -> None:
    convert(corpus("iris_dnn").folder / "model.pb", dump_dir=str(tmp_path), dump_after=("prune", "replicate"))
    number = [cls.name for cls in PASSES].index("replicate") + 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00_input.txt", "01_prune.txt", f"{number:02}_replicate.txt"]


def test_a_dump_after_no_pass(tmp_path: Path) -> None:
    testing.assert_raises_block(Pipeline([GrowTwice()]).run, testing.parse("x = Test()"), dump_dir=tmp_path, dump_after=["prune"],
                                max_length=200, kind=UsageError, words=["--dump_after", "prune"])  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_a_dump_that_cannot_be_written(tmp_path: Path) -> None:
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


def test_a_pipeline_from_text_gives_the_default_result() -> None:
    path = corpus("iris_dnn").folder / "model.pb"
    names = ",".join(cls.name for cls in PASSES)
    spelled = convert(path, num_replicas=4, iterations_per_loop=9, passes=names)
    assert spelled.graph_def == convert(path, num_replicas=4, iterations_per_loop=9).graph_def


def test_a_custom_pass_between_the_others() -> None:
    graph = corpus("iris_dnn").graph()
    graph.roles = roles.find(graph)
    steps = build_passes(ConvertOptions(num_replicas=2))
    behind = [step.name for step in steps].index("static-shapes") + 1
    pipeline = Pipeline([*steps[:behind], GrowTwice(), *steps[behind:]], given=("roles_known",))
    with pytest.raises(InvariantError, match="nothing is known of its outputs"):
        pipeline.run(graph)  # the new nodes have no shapes, which placement needs


def test_a_library_pipeline_on_a_graph() -> None:
    graph = testing.parse("x = Test()")
    with pytest.raises(GraphError):
        Pipeline([]).run(graph).remove(testing.parse("y = Test()")["y"])


def test_a_pass_that_reads_what_no_pass_before_it_gives_is_no_pipeline() -> None:
    passes = [Prune(), ResourceVariables(), StaticShapes(), SeparateRows()]
    testing.assert_raises_block(
        lambda: Pipeline(passes), max_length=400, kind=PipelineError,
        words=["the pass 'separate-rows' reads PaddedBatches, which nothing before it gives", "add the pass that gives it"],
    )  # fmt: skip


def test_a_result_that_a_later_pass_gives_is_asked_for_before() -> None:
    testing.assert_raises_block(
        lambda: Pipeline([Reads(), Gives()]), max_length=400, kind=PipelineError,
        words=["the pass 'reads' reads Counted, which nothing before it gives", "run 'gives' before it"],
    )  # fmt: skip
    testing.assert_raises_block(lambda: Pipeline([MayRead(), Gives()]), max_length=400, kind=PipelineError,
                                words=["run 'gives' before it"])  # fmt: skip


def test_a_pass_looks_up_what_it_names_alone() -> None:
    graph = testing.parse("x = NoOp()")
    Pipeline([MayRead()]).run(graph)
    Pipeline([Gives(), Reads()]).run(graph)
    assert graph.result(Counted) == Counted(1)
    testing.assert_raises_block(lambda: Pipeline([Peeks()]).run(testing.parse("x = NoOp()")), max_length=400, kind=GraphError,
                                words=["the pass 'peeks' looks up Counted, which it does not name in its reads"])  # fmt: skip
    testing.assert_raises_block(lambda: testing.run_pass(Reads(), testing.parse("x = NoOp()")), max_length=400, kind=GraphError,
                                words=["Counted is not known of the graph", "run the pass that gives it before"])  # fmt: skip
