"""The grid of ``tpugraph verify``: where in a training a difference starts, on a page in a real browser."""

import math
from pathlib import Path
from typing import Any

import pytest

from browser import Page
from models import CORPUS
from tpugraph import cli
from tpugraph.cli.verify import save_grid
from tpugraph.runtime.session import TPUSession
from tpugraph.testing.plain_run import Values
from tpugraph.testing.verification import Cell, Comparison, Verification

IRIS = str(CORPUS / "iris_dnn" / "model.pb")


@pytest.fixture
def wrong_from_step_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores whose 'dense/kernel' is a tenth larger after step 2, and after each that follows."""
    honest_train, honest = TPUSession.train, TPUSession.values
    trained: dict[TPUSession, int] = {}

    def train(self: TPUSession, steps: int) -> list[float]:
        trained[self] = trained.get(self, 0) + steps
        return honest_train(self, steps)

    def values(self: TPUSession) -> Values:
        scale = 1.1 if trained[self] > 1 else 1.0
        return {name: value * scale if name == "dense/kernel" else value for name, value in honest(self).items()}

    monkeypatch.setattr(TPUSession, "train", train)
    monkeypatch.setattr(TPUSession, "values", values)


def found(losses: list[float], variables: dict[str, list[Cell]]) -> Verification:
    return Verification([Comparison("one with the other", losses, variables)], 1e-4, ["a note"], "global batch 8")


def test_the_page_colours_orders_and_filters(
    wrong_from_step_2: None, pages: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "page.html"
    assert cli.main(["verify", IRIS, "--num_replicas=2", "--steps=3", f"--grid={place}"]) == 1
    assert f"wrote {place}" in capsys.readouterr().out
    page = Page(pages, place)
    assert page.page.locator("section .grid").count() == 2
    assert page.text("#verdict").startswith(
        "2 cores, 3 steps, with the plain graph: DIFFERS, 'dense/kernel' by 1.0e-01"
    )
    first = page.page.locator("section").first
    assert "passed first after step 2" in first.inner_text()
    name, _, *cells = first.locator("tr").nth(2).inner_text().split()
    assert [name, *cells] == ["dense/kernel", "1.0e-1", "1.0e-1"]
    first.locator("tr").nth(2).locator("td").nth(1).click()
    assert page.text("#cell") == ("dense/kernel after step 2: 1.0e-1, more than the tolerance of 0.0001 "
                                  "(2 cores, 3 steps, with the plain graph)")  # fmt: skip
    page.page.fill("#filter", "/^dense_1/")
    assert first.locator("tr").count() == 2 + 4
    page.page.fill("#filter", "(")
    assert first.locator("tr").count() == 2
    page.page.fill("#filter", "")
    page.page.select_option("#order", "name")
    assert first.locator("tr").nth(2).inner_text().split()[0] == "dense/bias"
    assert page.said == []
    assert page.asked == [place.as_uri()]


def test_a_large_grid_opens_quickly_and_shows_more_when_asked(pages: Any, tmp_path: Path) -> None:
    rows: dict[str, list[Cell]] = {
        f"layer_{n}/kernel": [math.inf if n == 7 else n * 1e-6 * step for step in range(1, 51)] for n in range(700)
    }
    place = tmp_path / "large.html"
    save_grid(found([0.0] * 50, rows), place, model="<b>large.pb")
    page = Page(pages, place)
    assert int(page.run("document.body.dataset.painted")) < 2000
    assert page.text("h1") == "<b>large.pb: plain and converted"
    assert page.page.locator("tr").count() == 102
    assert (
        page.page.locator("tr").nth(2).locator("td").first.get_attribute("title")
        == "layer_7/kernel, step 1: not finite"
    )
    page.page.click("button")
    assert page.page.locator("tr").count() == 702
    assert "note: a note" in page.text("#rest")
    assert page.said == []


def test_what_is_no_grid_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "nowhere.pb", "--grid=page.pdf"]) == 2
    assert "--grid=page.pdf is no page" in capsys.readouterr().err
