"""Words that depend on numbers, and numbers that are the same wherever they are said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpugraph import cli
from tpugraph.support.wording import counted, folded

IRIS = str(Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn" / "model.pb")


def test_singular_and_plural() -> None:
    assert [counted(n, "step") for n in (0, 1, 2, 12_345)] == ["0 steps", "1 step", "2 steps", "12,345 steps"]


def test_many_lines_that_differ_in_names_and_numbers_are_one_with_a_count() -> None:
    alike = [f"gathered    head/age_{n}: {64 * n} bytes, for 'head/step_{n}'" for n in range(6)]
    other = ["loop        6 steps", "note        a", "note        b"]
    assert folded([*other, *alike, "loop        9 steps"]) == [
        *other,
        f"{alike[0]} (and 5 more like it)",
        "loop        9 steps",
    ]
    assert folded(alike[:3]) == alike[:3]


def test_one_core_one_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", IRIS, "--num_replicas=1", "--iterations_per_loop=1", "--steps=1"]) == 0
    printed = capsys.readouterr().out
    assert "global batch 32 = 1 core x 32\n" in printed
    assert "\ntrained 1 step in " in printed
    assert cli.main(["convert", IRIS, "--num_replicas=1", "--iterations_per_loop=1", "--dry_run"]) == 0
    assert "loop        1 step per Session.run" in capsys.readouterr().out


def test_all_commands_count_the_same_nodes_on_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def found(*words: str) -> dict:
        assert cli.main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    converted = str(tmp_path / "iris.pb")
    count = found("convert", IRIS, "-o", converted)["report"]["nodes"]["device"]
    assert found("inspect", IRIS)["placement"]["device_nodes"] == count
    assert found("inspect", converted)["tpu"]["cluster_nodes"] == count
    assert found("check", IRIS)["device_nodes"] == found("check", converted)["device_nodes"] == count
