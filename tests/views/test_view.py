"""tpugraph view: the recorded history is that of the graph itself, and the page shows it in a real browser."""

import copy
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from evaluating import evaluation

import breaking
from browser import Page
from command_line import Command
from models import CORPUS, trace
from tpugraph.cli.inspect import explain
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.compiler.tpu_check import check, view
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError
from tpugraph.tpu.program import Program
from tpugraph.views.conversion_view import View
from tpugraph.views.history import History
from tpugraph.views.view_data import NodeView, Version

CNN = CORPUS / "mnist_cnn" / "model.pb"
IRIS = CORPUS / "iris_dnn" / "model.pb"
FAMILIES = CORPUS.parent / "families"
GRADIENT = "gradients/dense/MatMul_grad/MatMul_1"
LINE = re.compile(r"(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>[^)]*)\)(?P<controls>(?: \^\S+)*)")


@pytest.fixture(scope="module")
def iris() -> View:
    return view(IRIS)


@pytest.fixture(scope="module")
def program() -> Program:
    return convert(IRIS)


@pytest.fixture(scope="module")
def refused() -> View:
    return view(breaking.graph("sampled"), num_replicas=2)


# --------------------------------------------------------------------------- the history


Nodes = dict[str, tuple[Any, ...]]


def current(node: NodeView, stage: int) -> Version:
    """A node as it is at a stage, with every field set."""
    made = Version(stage)
    for version in node.versions:
        if version.stage <= stage:
            for name in ("op", "inputs", "controls"):
                setattr(made, name, getattr(made if getattr(version, name) is None else version, name))
    return made


def seen(found: View, stage: int) -> Nodes:
    """Op, inputs and controls of each node at a stage, as the view has them."""
    nodes, made = found.data.nodes, {}
    for node in found.data.alive(stage).values():
        now = current(node, stage)
        inputs = [nodes[source].name + (f":{port}" if port else "") for source, port in now.inputs or []]
        made[node.name] = (now.op, inputs, [nodes[c].name for c in now.controls or []])
    return made


def dumped(file: Path) -> Nodes:
    found = {}
    for line in file.read_text().splitlines():
        match = LINE.match(line)
        assert match is not None, line
        inputs = [name for name in match["inputs"].split(", ") if name]
        found[match["name"]] = (match["op"], inputs, [name[1:] for name in match["controls"].split()])
    return found


def test_stages_and_their_counts(tmp_path: Path, iris: View, program: Program) -> None:
    convert(CNN, dump_dir=str(tmp_path))
    found = view(CNN)
    dumps = sorted(tmp_path.glob("*.txt"))
    assert [stage.name for stage in found.data.stages] == [dump.stem.partition("_")[2] for dump in dumps]
    for stage, dump in enumerate(dumps):
        assert seen(found, stage) == dumped(dump), dump.name
        assert found.data.stages[stage].nodes == len(found.data.alive(stage))
    prune, reduction = iris.data.stages[1], iris.data.stages[10]
    assert (prune.name, prune.added, prune.removed > 100) == ("prune", 0, True)
    assert reduction.name == "partition"
    added = [node for node in iris.data.nodes if node.born == 10]
    assert len(added) == reduction.added
    assert {node.made_by for node in added} == {"partition"}
    assert (GRADIENT, "combined over the cores: the sum over the cores") in reduction.notes
    report = program.report
    nodes = iris.data.alive().values()
    assert sum(node.side == "device" for node in nodes) == report["nodes"]["device"]
    assert sum(node.collective or 0 for node in nodes if node.made_by == "partition") == report["collectives"]["bytes"]
    fed = [sent.bytes for sent in iris.data.transfers if sent.kind == "infeed"]
    assert len(fed) == 8
    assert sum(size or 0 for size in fed) == report["bytes_per_step"]["infeed"]
    assert sum(s.bytes or 0 for s in iris.data.transfers if s.kind == "outfeed") == report["bytes_per_step"]["outfeed"]


def test_graphs_that_stop_are_refused_or_evaluate(refused: View) -> None:
    found = view(IRIS, num_replicas=5).data
    assert found.runs is False
    assert found.stages[-1].summary.startswith("The conversion stops here: ")
    assert found.stages[-1].name == "partition"
    assert "a batch of 32 rows cannot be split over 5 cores" in {finding.fault for finding in found.findings}
    found = refused.data
    assert found.runs is False
    marked = [node for node in found.nodes if any(found.findings[number].stops for number in node.findings)]
    assert {node.name for node in marked} <= {finding.node for finding in found.findings}
    assert marked
    found = view(trace(evaluation(16)), mode="eval", num_replicas=2).data
    assert [stage.name for stage in found.stages][-1] == "entry-points"
    assert found.runs
    assert any(node.side == "device" for node in found.alive().values())


def test_converted_programs_are_shown(program: Program, tmp_path: Path) -> None:
    program.save(tmp_path / "tpu.pb")
    found = view(tmp_path / "tpu.pb")
    assert [stage.name for stage in found.data.stages] == ["input"]
    assert found.data.runs
    assert sum(sent.bytes or 0 for sent in found.data.transfers if sent.kind == "infeed") == 640
    assert repr(found) == f"<View of tpu.pb: 1 stage, {program.report['nodes']['output']} nodes>"
    program = convert(IRIS, history=History("iris"))
    assert len(program.view().data.stages) == 17


def test_a_program_shows_itself_and_says_little_of_itself(program: Program) -> None:
    nodes = program.report["nodes"]["output"]
    assert repr(program) == f"<Program model.pb: {nodes} nodes, global batch 32 = 8 cores x 4>"
    found = program.view().data
    assert [stage.name for stage in found.stages] == ["converted"]
    assert found.facts == program.summary().splitlines()
    assert (GRADIENT, "partition: combined over the cores: the sum over the cores") in found.stages[0].notes
    assert program._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert all(len(repr(thing)) < 200 for thing in (program, found, graphdef.load(IRIS), check(IRIS)))


# --------------------------------------------------------------------------- the command


def test_the_command_writes_the_page(tmp_path: Path, command: Command, iris: View) -> None:
    place = tmp_path / "page.html"
    said = command("view", IRIS, "-o", place, "--json")
    assert json.loads(said.out)["written"] == [str(place)]
    assert "can run on a TPU: " in said.err
    assert place.stat().st_size < 5_000_000
    iris.save(tmp_path / "iris.json", "json")
    data = json.loads((tmp_path / "iris.json").read_text())
    assert data["format"] == 3
    assert [stage["name"] for stage in data["stages"]][:2] == ["input", "prune"]
    with pytest.raises(UsageError, match="'png' is no format of a view"):
        iris.save(tmp_path / "iris.png", "png")


def test_on_a_mesh_the_variables_have_their_placements(tmp_path: Path, command: Command) -> None:
    place = tmp_path / "iris.json"
    command("view", IRIS, "-o", place, "--format=json", "--mesh=data:4,model:2", "--shard=dense/kernel=-,model")
    nodes = {node["name"]: node for node in json.loads(place.read_text())["nodes"]}
    lives = {name: node["lives"][0] for name, node in nodes.items() if node["lives"]}
    assert {(one["kind"], one["because"]) for name, one in lives.items() if name.startswith("dense/kernel")} == {
        ("shard", "--shard='dense/kernel=-,model'"), ("shard", "as its variable 'dense/kernel'")}  # fmt: skip
    assert lives["dense/bias"] == {"port": 0, "kind": "replicate", "text": "replicated: each device holds float32[10], 40 bytes",
                                   "because": "no --shard names it", "deciding": [], "collectives": [], "given": False}  # fmt: skip


def test_the_picture_of_the_readme_counts_as_the_conversion_does() -> None:
    root = Path(__file__).parents[2]
    report = convert(root / "examples" / "iris" / "model.ckpt-0.meta", num_replicas=8, iterations_per_loop=6).report
    picture = "".join(ElementTree.parse(root / "docs" / "transformation.svg").getroot().itertext())
    nodes, traffic, sums = report["nodes"], report["bytes_per_step"], report["collectives"]
    assert f"An Estimator's graph: {nodes['input']} nodes" in picture
    assert f"the device: {nodes['device']} of {nodes['output']} nodes" in picture
    assert f"{sums['sums']} sums, {sums['bytes']} bytes" in picture
    assert f"{traffic['infeed']} bytes a step" in picture
    assert f"{traffic['outfeed']} bytes a step" in picture


# --------------------------------------------------------------------------- the page in a browser


Opened = Callable[[View], Page]


@pytest.fixture
def opened(pages: Any, tmp_path: Path) -> Iterator[Opened]:
    """Opens a view, which says nothing in the browser's console to the end of the test."""
    made = []

    def show(found: View) -> Page:
        found.save(tmp_path / "page.html")
        made.append(Page(pages, tmp_path / "page.html"))
        return made[0]

    yield show
    assert [page.said for page in made] == [[]]


def test_the_page_opens_scopes_slides_filters_and_explains(opened: Opened, iris: View, tmp_path: Path) -> None:
    page = opened(iris)
    assert "can run on a TPU" in page.text("#verdict")
    assert page.run(WHOLE_GRAPH_IN_SIGHT) is True
    assert page.run(SIDES_APART) is True
    assert "infeed 640 bytes" in page.run("view.cy.edges('.transfer').map((e) => e.data('label'))")
    page.run("view.cy.edges('.transfer').filter((e) => e.data('label').startsWith('infeed')).emit('tap') && null")
    assert "8 infeed edges" in page.text("#panel")
    assert "640 bytes between host and device in a step, for all cores" in page.text("#panel")
    few = page.run("view.cy.nodes().length")
    place = page.run("view.cy.getElementById('device:gradients/').renderedPosition()")
    page.page.mouse.dblclick(place["x"], place["y"] + page.page.locator("#graph").bounding_box()["y"])
    page.page.wait_for_function(f"view.cy.nodes().length > {few}")
    page.page.fill("#stage", "10")
    assert "10 partition: +" in page.text("#stage-name")
    assert page.run("view.cy.edges('.transfer').length") == 0
    page.page.select_option("#colour", "change")
    assert page.run("view.cy.nodes().some((n) => n.data('label').includes('+'))")
    page.page.fill("#filter", GRADIENT)
    assert "1 node with" in page.text("#panel")
    page.page.click(f"#panel a:has-text('{GRADIENT}')")
    reasons = page.text("#panel ol.because").splitlines()
    chain = explain(str(IRIS), GRADIENT, ConvertOptions())["lives"][0]["chain"]
    assert reasons == [
        f"{link.tensor}: {'; '.join((link.placement, link.because, *link.collectives))}" for link in chain
    ]
    assert page.asked == [(tmp_path / "page.html").as_uri()]


def test_what_fits_stays_in_sight_and_a_narrow_window_stacks_graph_and_panel(opened: Opened, iris: View) -> None:
    page = opened(iris)
    page.run("view.toggle('host:')")
    assert page.run(WHOLE_GRAPH_IN_SIGHT) is True
    page.page.set_viewport_size({"width": 420, "height": 800})
    page.page.wait_for_function("view.cy.width() <= 420")
    assert page.run(WHOLE_GRAPH_IN_SIGHT) is True
    assert page.run("document.documentElement.scrollWidth") == 420
    graph, panel, foot = (page.page.locator(part).bounding_box() for part in ("#graph", "#panel", "footer"))
    assert graph["width"] == panel["width"] == 420
    assert graph["y"] + graph["height"] <= panel["y"]
    assert panel["y"] + panel["height"] <= foot["y"] + 1


WHOLE_GRAPH_IN_SIGHT = """(() => {
  const box = view.cy.elements().renderedBoundingBox();
  return box.x1 >= 0 && box.y1 >= 0 && box.x2 <= view.cy.width() && box.y2 <= document.getElementById("graph").clientHeight;
})()"""
SIDES_APART = """(() => {
  const [one, other] = ["host:", "device:"].map((id) => view.cy.getElementById(id).boundingBox());
  return one.x2 < other.x1 || other.x2 < one.x1 || one.y2 < other.y1 || other.y2 < one.y1;
})()"""
EVERY_SCOPE_OPEN = """(() => {
  const open = new Set();
  const walk = (scope) => { for (const inner of scope.scopes.values()) { open.add(inner.id); walk(inner); } };
  walk(view.root);
  const items = visible(view.root, open);
  const leaves = items.filter((item) => item.scopes === undefined).map((item) => item.number).sort((a, b) => a - b);
  return [leaves.join() === view.numbers.join(), new Set(items.map((item) => item.id)).size === items.length,
    items.every((item) => item.parent === view.root || open.has(item.parent.id))];
})()"""


def test_scopes_and_groups_hold_each_node_of_a_large_graph_once(opened: Opened, tmp_path: Path) -> None:
    model = tmp_path / "bert.pb"
    model.write_bytes(gzip.decompress((FAMILIES / "bert_small" / "model.pb.gz").read_bytes()))
    page = opened(view(model))
    assert page.run("view.cy.nodes().length") < 80 < 2000 < page.run("view.numbers.length")
    for stage in (14, 0):
        page.page.fill("#stage", str(stage))
        assert page.run(EVERY_SCOPE_OPEN) == [True, True, True]
    page.page.uncheck("#sides")
    assert page.run(EVERY_SCOPE_OPEN) == [True, True, True]
    page.page.check("#controls")
    assert page.run("view.cy.edges('.control').length") > 0


def test_what_is_in_the_way_is_red_and_told_with_its_replacement(opened: Opened, refused: View) -> None:
    page = opened(refused)
    assert page.text("#verdict").startswith("cannot run on a TPU")
    page.page.select_option("#colour", "verdict")
    assert page.run("view.cy.nodes('.stops').length") > 0
    assert "fix: " in page.text("#panel")


def test_a_conversion_that_stops_before_the_sides_are_told_shows_the_graph_by_scopes(opened: Opened) -> None:
    page = opened(view(IRIS, mode="predict", predictions={"scores": "nowhere"}))
    assert page.text("#verdict").startswith("cannot run on a TPU")
    assert page.run("view.cy.getElementById('dense/').length") == 1
    assert (page.run("view.way"), page.page.is_checked("#sides")) == ("verdict", False)


def test_a_name_is_never_taken_for_markup(opened: Opened, iris: View) -> None:
    found = copy.deepcopy(iris)
    found.data.title = "</script><img src=x onerror=alert(1)>"
    found.data.nodes[0].name = "<b>bold</b>"
    page = opened(found)
    assert page.text("#title") == found.data.title
    page.page.fill("#stage", "0")
    page.page.fill("#filter", "<b>")
    assert "<b>bold</b>" in page.text("#panel")
