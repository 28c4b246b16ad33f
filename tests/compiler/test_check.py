"""tpugraph check: the verdict is that of the real compiler, each cause is told with node, origin and fix."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import breaking
from breaking import BREAKING, GOOD, OPTIONS, RECORDED
from models import CORPUS, ORACLE, saved, trace
from tpugraph import cli, ops
from tpugraph.cli.check import lines
from tpugraph.compiler import ConvertOptions, convert
from tpugraph.compiler.tpu_check import CAUSES, Diagnostic, Report, check, kernels
from tpugraph.ir import graphdef
from tpugraph.support.errors import UsageError
from tpugraph.xla import bridge, stablehlo

ROOT = Path(__file__).parents[2]
IRIS = CORPUS / "iris_dnn" / "model.pb"
SAID: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
"""What the real compiler said of the small graphs."""

CAUSE = {
    **dict.fromkeys("""ctc crop sampled bicubic fractional sparse_product determinant glimpse histogram poisson
        segment nearest gamma""".split(), "kernel"),
    **dict.fromkeys("text hashed".split(), "text"),
    **dict.fromkeys("table python jpeg".split(), "host"),
    **dict.fromkeys("double complex_sum small_sum".split(), "dtype"),
    **dict.fromkeys("wide_spectrum whole_product".split(), "device"),
    **dict.fromkeys("""reshaped filled ranged tiled one_hot axis turned padded drawn_size broadcast segments resized rolled
        joined split array""".split(), "constant"),
    **dict.fromkeys("masked first_of looked_up".split(), "shape"),
    **dict.fromkeys("unbounded map_in_map".split(), "loop"),
    "complex_total": "conversion", "fed": "feed", "dynamic_array": "attribute",
}  # fmt: skip


def test_the_graphs_that_break_a_rule_were_all_refused_and_the_others_compiled() -> None:
    assert len(BREAKING) >= 30
    assert {name for name, said in SAID.items() if said["refused_by"]} == set(BREAKING) == set(CAUSE)
    assert {name for name, said in SAID.items() if not said["refused_by"]} == set(GOOD)
    assert set(CAUSE.values()) >= set(CAUSES) - {"compiler", "path"}


@pytest.mark.parametrize("name", [*BREAKING, *GOOD])
def test_the_verdict_is_that_of_the_real_compiler(name: str) -> None:
    report = check(breaking.graph(name), **OPTIONS)
    assert report.compiles == (SAID[name]["refused_by"] is None)
    assert report.converted == (SAID[name]["refused_by"] != "conversion")
    if report.compiles:
        assert not report.findings
        assert report.percent == 100
        return
    assert CAUSE[name] in {finding.cause for finding in report.stopping}
    assert 0 < report.percent < 100
    assert all(finding.fault and finding.fix for finding in report.stopping)
    if SAID[name]["node"] is not None and name != "whole_product":  # named by its op type there
        assert SAID[name]["node"] in {finding.node for finding in report.stopping}


def test_what_decides_a_size_is_named() -> None:
    found = {name: check(breaking.graph(name), **OPTIONS).stopping[0] for name in ("filled", "drawn_size")}
    assert found["filled"].fault == ("the operand 'dims' of Fill must be known when the step is compiled, and it depends on "
                                     "the variable 'w'")  # fmt: skip
    assert found["drawn_size"].fault.endswith("it depends on the random op 'random_uniform'")
    # XLA's complaint is about a Reshape of the gradient in each case
    for name, node in {"masked": "boolean_mask/Where", "first_of": "TopKV2", "looked_up": "Unique"}.items():
        (found,) = (f for f in check(breaking.graph(name), **OPTIONS).stopping if f.cause == "shape")
        assert found.node == node
        with pytest.raises(bridge.Refused) as raised:
            stablehlo.lower(graphdef.from_graph_def(convert(breaking.graph(name), **OPTIONS).graph_def))
        assert (raised.value.node, raised.value.fix) == (node, found.fix)


def test_stacks_of_stacks_are_a_matter_of_loops() -> None:
    report = check(breaking.graph("map_in_map"), **OPTIONS)
    assert {finding.cause for finding in report.stopping} == {"loop"}
    assert {finding.fix for finding in report.stopping} == {
        "unroll the inner loop, or compute it without tf.while_loop"
    }


def test_a_gradient_says_whose_it_is() -> None:
    report = check(breaking.graph("crop"), **OPTIONS)
    gradient = next(f for f in report.findings if f.op == "CropAndResizeGradBoxes")
    assert gradient.origin == "gradient of CropAndResize"
    assert gradient.scope == "gradients/CropAndResize_grad"
    assert gradient.fix == "goes when 'CropAndResize' is replaced"
    assert next(f for f in report.findings if f.op == "CropAndResize").fix == ops.REPLACEMENTS["CropAndResize"]


def test_a_graph_that_cannot_be_converted_is_looked_through_all_the_same() -> None:
    report = check(breaking.graph("complex_total"), **OPTIONS)
    assert not report.converted
    assert [(f.cause, f.op) for f in report.findings] == [("conversion", "Sum"), ("kernel", "RandomGamma")]
    report = check(trace(lambda: tf.constant(1.0)))
    assert (report.compiles, report.converted, report.device_nodes, report.percent) == (False, False, 0, 0.0)
    assert [finding.cause for finding in report.findings] == ["conversion"]


def test_local_files_converted_graphs_and_those_that_evaluate(tmp_path: Path) -> None:
    graph = graphdef.load(CORPUS / "mnist_cnn_no_dropout" / "model.pb")
    found = [f.fault for f in check(graph).findings]
    assert found == ["the input reads 'mnist.tfrecords'"]
    convert(IRIS).save(tmp_path / "iris_tpu.pb")
    assert check(tmp_path / "iris_tpu.pb").compiles
    assert check(ORACLE / "iris_tpu.pb").compiles
    from evaluating import evaluation

    report = check(trace(evaluation(16)), mode="eval", num_replicas=2)
    assert (report.compiles, report.converted) == (True, True)


def test_neither_jax_nor_libtpu_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("jax", "jaxlib", "libtpu"):
        monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    assert check(breaking.graph("nothing"), **OPTIONS).converted


def test_what_the_tables_say_of_ops_is_what_the_installed_tensorflow_has() -> None:
    table = kernels()
    assert len(table) > 400
    assert ops.having(lambda record: bool(record.constants)) | set(ops.TPU_LACKS) | set(ops.XLA_REFUSES) <= set(table)
    assert not set(ops.REPLACEMENTS) & set(table)
    assert all(ops.op_def(op) is not None for op in ops.REPLACEMENTS)


def test_the_shape_of_a_variable_is_known_whatever_it_holds() -> None:
    def part(x: Any, w: Any) -> Any:  # the gradient of the branch that is not taken is made of the variable's shape
        return tf.reduce_sum(tf.compat.v1.cond(x[0, 0] > 0, lambda: w * 2.0, lambda: tf.ones([3, 1])))

    graph = breaking.build(part)
    convert(graph, **OPTIONS)
    assert graph.of_type("VariableShape")
    assert check(breaking.build(part), **OPTIONS).compiles


def test_what_a_loop_carries_is_not_known_when_the_step_is_compiled() -> None:
    def part(x: Any, w: Any) -> Any:
        total = tf.stop_gradient(tf.reduce_sum(w))
        grown = tf.compat.v1.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + tf.reduce_sum(tf.zeros([i]) + total)),
                                        [0, 0.0], name="loop")  # fmt: skip
        return 0.01 * grown[1]

    (found,) = check(breaking.build(part), **OPTIONS).stopping
    assert (found.cause, found.node) == ("constant", "loop/zeros")
    assert "it depends on what the loop carries in 'loop/Merge'" in found.fault


# --------------------------------------------------------------------------- the command


def test_the_exit_code_says_whether_it_can_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(IRIS)]) == 0
    assert capsys.readouterr().out.startswith("can run on a TPU: ")
    assert cli.main(["check", str(saved(breaking.graph("crop"), tmp_path))]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("cannot run on a TPU: 3 nodes in the way; 97.")
    assert out[2:6] == [
        "no XLA kernel",
        "  XLA has no kernel for CropAndResize",
        "    node  CropAndResize",
        f"    fix   {ops.REPLACEMENTS['CropAndResize']}",
    ]
    assert "    node  gradients/CropAndResize_grad/CropAndResizeGradImage (gradient of CropAndResize)" in out


@pytest.mark.parametrize(("least", "code"), [("97", 0), ("97.9", 1), ("100", 1)])
def test_fail_under_lets_a_share_pass(
    least: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(saved(breaking.graph("crop"), tmp_path)), f"--fail_under={least}", "--json"]) == code
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not found["compiles"]
    assert 97 <= found["percent"] < 97.9
    assert {finding["cause"] for finding in found["findings"]} == {"kernel"}
    assert err.startswith("cannot run on a TPU")
    assert cli.main(["check", str(saved(breaking.graph("fed"), tmp_path)), "--fail_under=10"]) == 1
    assert "fed from outside" in capsys.readouterr().out


def test_flags_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(IRIS), "--fail_under=101"]) == 2
    assert "--fail_under=101 is more than all nodes" in capsys.readouterr().err
    assert cli.main(["check", str(ORACLE / "iris_tpu.pb"), "--num_replicas=4"]) == 2
    assert "is converted already, which --num_replicas cannot change" in capsys.readouterr().err
    assert cli.main(["check", str(tmp_path / "nothing.pb")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(UsageError, match="either options or keyword arguments"):
        check(IRIS, ConvertOptions(), num_replicas=2)


def test_many_nodes_alike_are_told_once_and_counted() -> None:
    alike = [
        Diagnostic("kernel", f"a/{i}", "Svd", "a", None, "XLA has no kernel for Svd", "other ops") for i in range(9)
    ]
    said = lines(Report("m.pb", True, 90, alike))
    assert said[0] == "cannot run on a TPU: 9 nodes in the way; 90.0 % of 90 nodes on the device can compile"
    assert "    node  ... and 5 more; --json lists all" in said
    assert sum("fix" in line for line in said) == 1
    assert Report("m.pb", True, 10_000, alike[:1]).percent == 99.9


# --------------------------------------------------------------------------- the page of verdicts


def _page() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8").partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0]: row for row in rows[2:]}


@pytest.mark.parametrize("name", sorted(_page()))
def test_the_page_of_verdicts_has_what_check_says_and_the_compiler_agrees(name: str) -> None:
    verdicts = runpy.run_path(str(ROOT / "tools" / "verdicts.py"))
    paths = {found: path for folder in (CORPUS, ORACLE) for found, path in verdicts["graphs"](folder)}
    assert set(paths) == set(_page()), "run python tools/verdicts.py"
    row = _page()[name]
    assert verdicts["checked"](paths[name]) == row[1], "docs/verdicts.md is stale: run python tools/verdicts.py"
    assert (row[1] == "yes") == (not row[2].startswith("no"))
