"""tpugraph report: what the compilers say stands on the page and beside it as JSON, and so does what is in the way."""

import json
from pathlib import Path
from typing import Any

import pytest

import breaking
from browser import Page
from models import CORPUS
from tpugraph import cli
from tpugraph.ir import graphdef
from tpugraph.xla import memory_layouts, topologies
from tpugraph.xla.jax_client import TooLarge
from tpugraph.xla.module import Module
from tpugraph.xla.topologies import CHIPS, Compiled

IRIS = CORPUS / "iris_dnn" / "model.pb"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers that answer at once; that for v3 refuses, and cores hold 100 rows."""

    def answer(module: Module, topology: str, layout: object = None) -> Compiled:
        rows = next(v.shape[1] for v in module.arguments if v.kind == "infeed")
        limit = CHIPS[topology.partition(":")[0]].hbm
        if topology.startswith("v3") or rows > 100:
            raise TooLarge(topology, "the program", 2 * limit, limit, "dense/MatMul")
        memory = {**dict.fromkeys(("arguments", "outputs", "aliased", "code"), 0), "temporaries": rows * limit // 100}
        placed = memory_layouts.Placed("dense/MatMul", "f32[2]{0:T(128)}", 512, 8)
        return Compiled(memory, {"all-reduce": 4}, {}, topology, 8, module.num_replicas, 1.5, 2e9, 1e6, 5, (placed,))

    monkeypatch.setattr(topologies, "compile_for", answer)


def written(folder: Path, *flags: str, model: Path = IRIS, code: int = 0) -> dict[str, Any]:
    assert cli.main(["report", str(model), "-o", str(folder / "page.html"), *flags]) == code
    found: dict[str, Any] = json.loads((folder / "page.json").read_text())
    return found


@pytest.mark.usefixtures("quick")
def test_every_generation_is_asked_and_a_refusal_is_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = written(tmp_path)
    names = [target["topology"] for target in found["targets"]]
    assert names == ["v3:2x2", "v4:2x2x1", "v5e:2x4", "v5p:2x2x2", "v6e:2x4"]
    refused, fits = found["targets"][0], found["targets"][2]
    assert refused["error"].startswith("the step does not fit on a core of v3:2x2: it needs 30.96 GiB")
    assert refused["error"].endswith("(dense/MatMul)")
    assert refused["fix"].startswith("--fit searches a mesh on which the step fits; or a smaller batch")
    assert fits["error"] is None
    assert fits["compiled"]["bound_by"] == "compute"
    assert fits["compiled"]["step_seconds"] == pytest.approx(2e9 / 197e12)
    assert fits["examples_per_second"] == pytest.approx(32 * 197e12 / 2e9)
    assert fits["largest_batch"] is None
    said = capsys.readouterr().out
    assert "v3:2x2     refused: the step does not fit" in said
    assert "v5e:2x4    compiles, 645.1 MiB of 15.75 GiB per core, at least 10.2 us a step, bound by compute" in said


@pytest.mark.usefixtures("quick")
def test_the_largest_batch_is_searched_where_it_is_asked_for(tmp_path: Path) -> None:
    found = written(tmp_path, "--topology=v5e:2x4", "--largest_batch")
    assert found["targets"][0]["largest_batch"] in range(93, 101)


@pytest.mark.usefixtures("quick")
def test_ways_that_fit_have_a_column_each(pages: Any, tmp_path: Path) -> None:
    found = written(tmp_path, "--topology=v3:2x2,v5e:2x4", "--fit")
    assert found["targets"][0]["ways"] == []
    fits = found["targets"][1]["ways"]
    assert [way["flags"] for way in fits[:2]] == ["--mesh=data:8", "--mesh=data:8 --shard_optimizer=data"]
    page = Page(pages, tmp_path / "page.html")
    assert page.page.locator("#ways h2").count() == 1
    assert page.page.locator("#ways th").count() == len(fits) + 1
    assert "all-reduce 4 bytes" in page.text("#ways")
    assert page.said == []


def test_a_real_compiler_fills_the_page(pages: Any, tmp_path: Path) -> None:
    found = written(tmp_path, "--topology=v5e,v6e:2x4", "--global_batch=256")
    page = Page(pages, tmp_path / "page.html")
    assert page.text("#verdict") == found["verdict"]
    assert "v5e:2x4 (8 cores)" in page.text("#targets")
    assert (
        page.page.locator("#memory .tensor").count() == sum(len(t["compiled"]["tensors"]) for t in found["targets"]) > 0
    )
    assert page.run("chart.data.datasets.length") == 4
    assert page.page.locator("#collectives tr").count() == len(found["collectives"]) + 1 == 7
    assert page.run("collectives(Array(30).fill({ tensor: 'x', bytes: 2, how: '' })).map((part) => part.textContent)")[::2] == [
        "30 values, 60 bytes of a core.", "... and 10 more with 20 bytes together."]  # fmt: skip
    assert page.text("#memory").count("Live at once") == 2
    assert page.said == []
    assert page.asked == [(tmp_path / "page.html").as_uri()]
    page.page.set_viewport_size({"width": 420, "height": 800})
    page.page.wait_for_function("document.documentElement.scrollWidth === 420")
    said = found["targets"][0]["compiled"]
    assert said["peak"] == sum(said["memory"].values()) - 2 * said["memory"]["aliased"]
    assert said["infeed_bytes"] == 640
    assert 0 < said["most_live"] <= said["peak"]
    assert found["collectives"][0] == {"tensor": "gradients/dense_1/MatMul_grad/MatMul_1", "bytes": 400,
                                       "how": "the sum over the cores"}  # fmt: skip


def test_what_is_in_the_way_stands_on_the_page_by_cause_and_no_compiler_is_asked(pages: Any, tmp_path: Path) -> None:
    model = tmp_path / "sampled.pb"
    model.write_bytes(graphdef.serialize(graphdef.to_graph_def(breaking.graph("sampled"))))
    found = written(tmp_path, model=model, code=1)
    assert found["targets"] == []
    page = Page(pages, tmp_path / "page.html")
    said = page.text("#findings")
    assert page.text("#verdict").startswith("cannot run on a TPU")
    for finding in found["findings"]:
        assert finding["cause"] in said
        assert finding["fault"] in said
        assert finding["fix"] in said


@pytest.mark.usefixtures("quick")
def test_what_does_not_stop_the_step_is_not_in_the_way(pages: Any, tmp_path: Path) -> None:
    found = written(tmp_path, "--topology=v4", model=CORPUS / "mnist_cnn" / "model.pb")
    assert [(finding["cause"], finding["stops"]) for finding in found["findings"]] == [("local file", False)]
    said = Page(pages, tmp_path / "page.html").text("#findings")
    assert "What is in the way" not in said
    assert "the input reads 'mnist.tfrecords'" in said


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--topology=v4,v5f:2x4", "there is no topology 'v5f:2x4'\n  fix     did you mean v5e:2x4? `tpugraph compile"),
        ("--output=report.txt", "--output=report.txt is no page"),
    ],
)
def test_flags_that_cannot_be_used_are_refused_first(flag: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "nowhere.pb", flag]) == 2
    assert words in capsys.readouterr().err
