"""The view of a conversion: what each pass did, where values live and why, what stops the step on a TPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tpugraph.compiler import tpu_check
from tpugraph.compiler.options import ConvertOptions, given, shows_options
from tpugraph.ir import Graph, graphdef
from tpugraph.views.conversion_view import View
from tpugraph.views.history import History
from tpugraph.views.view_data import FindingView


@shows_options
def view(model: str | os.PathLike[str] | Graph, options: ConvertOptions | None = None, **fields: Any) -> View:
    """Convert a graph and show it: every stage, what each pass did, where values live and why, what stops it on a TPU.

    Args:
        model: a plain graph, which is converted, or a TPU graph; a Graph is used up.
        options: how to convert a plain graph; or give the fields of :class:`ConvertOptions` as keyword arguments.
        **fields: see there.

    Raises:
        LoadError: the graph cannot be read.
        UsageError: options that cannot be used.
    """
    options = given(options, fields)
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    history = History(Path(graph.source).name or "graph")
    report = tpu_check.check(graph, options, history=history)
    history.view.judge(runs=report.compiles, verdict=report.verdict, findings=findings_of(report))
    return View(history.view)


def findings_of(report: tpu_check.Report) -> list[FindingView]:
    """What a check found, as pages show it."""
    return [
        FindingView(tpu_check.CAUSES[f.cause], f.node, f.fault, f.fix, stops=f.cause not in tpu_check.NOTES)
        for f in report.findings
    ]
