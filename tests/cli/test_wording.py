"""Words that depend on numbers, and numbers that are the same wherever they are said."""

from pathlib import Path

from command_line import Command
from tpugraph.support.wording import counted, folded

IRIS = str(Path(__file__).parents[1] / "data" / "corpus" / "iris_dnn" / "model.pb")


def test_wording(command: Command) -> None:
    assert [counted(n, "step") for n in (0, 1, 2, 12_345)] == ["0 steps", "1 step", "2 steps", "12,345 steps"]
    alike = [f"gathered    head/age_{n}: {64 * n} bytes, for 'head/step_{n}'" for n in range(6)]
    other = ["loop        6 steps", "note        a", "note        b"]
    assert folded([*other, *alike, "loop        9 steps"]) == [*other, f"{alike[0]} (and 5 more like it)",
                                                               "loop        9 steps"]  # fmt: skip
    assert folded(alike[:3]) == alike[:3]
    one = [IRIS, "--num_replicas=1", "--iterations_per_loop=1"]
    printed = command("run", *one, "--steps=1").out
    assert "global batch 32 = 1 core x 32\n" in printed
    assert "\ntrained 1 step in " in printed
    assert "loop        1 step per Session.run" in command("convert", *one, "--dry_run").out


def test_all_commands_count_the_same_nodes_on_the_device(tmp_path: Path, command: Command) -> None:
    converted, found = tmp_path / "iris.pb", command.json
    count = found("convert", IRIS, "-o", converted)["report"]["nodes"]["device"]
    assert found("inspect", IRIS)["report"]["nodes"]["device"] == count
    assert found("inspect", converted)["tpu"]["cluster_nodes"] == count
    assert found("check", IRIS)["device_nodes"] == found("check", converted)["device_nodes"] == count
