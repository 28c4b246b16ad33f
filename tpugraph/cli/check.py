"""``tpugraph check``: whether a graph can run on a TPU and which nodes stop it, without a TPU and without libtpu."""

from __future__ import annotations

import time

from tpugraph.cli import programs
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.compiler.tpu_check import CAUSES, Diagnostic, Report, check
from tpugraph.support.errors import UsageError

_MOST = 4


def run(flags: Parsed, console: Console) -> Outcome:
    flags = programs.in_folder(flags)
    least = flags["fail_under"]
    if least is not None and least > 100:
        raise UsageError(
            f"--fail_under={least:g} is more than all nodes", fix="a share in percent, such as --fail_under=99.5"
        )
    started = time.perf_counter()
    graph = programs.graph_of(flags)
    loaded = time.perf_counter() - started
    report = check(graph, programs.options(flags))
    report.seconds["load"] = loaded
    console.say(*lines(report))
    enough = report.converted and least is not None and report.percent >= least
    return Outcome(report.as_dict(), code=0 if report.compiles or enough else 1)


def lines(report: Report) -> list[str]:
    said = [report.verdict]
    groups: dict[tuple[str, str], list[Diagnostic]] = {}
    for finding in report.findings:
        groups.setdefault((finding.cause, finding.op), []).append(finding)
    heading = ""
    for (cause, _), findings in groups.items():
        if cause != heading:
            heading = cause
            said += ["", CAUSES[cause]]
        said += _group(findings)
    return said


def _group(findings: list[Diagnostic]) -> list[str]:
    """Findings of one cause and op type; each sentence and fix once."""
    said = []
    for fault in dict.fromkeys(finding.fault for finding in findings):
        alike = [finding for finding in findings if finding.fault == fault]
        said.append(f"  {fault}")
        named = [finding for finding in alike if finding.node]
        for finding in named[:_MOST]:
            said.append(f"    node  {finding.node}" + (f" ({finding.origin})" if finding.origin else ""))
        if len(named) > _MOST:
            said.append(f"    node  ... and {len(named) - _MOST:,} more; --json lists all")
        said += [f"    fix   {fix}" for fix in dict.fromkeys(finding.fix for finding in alike) if fix]
    return said
