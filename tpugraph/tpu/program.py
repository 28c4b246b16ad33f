"""Program: a TPU graph with its report; what ``convert`` returns and a session runs."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpugraph import ops
from tpugraph.analysis import shapes
from tpugraph.ir import graphdef, model_files
from tpugraph.support import files
from tpugraph.support.errors import LoadError
from tpugraph.support.wording import counted, folded
from tpugraph.views.conversion_view import View
from tpugraph.views.history import History

DEVICE_PARTS = {"train": "tpugraph/train", "eval": "tpugraph/evaluate", "predict": "tpugraph/predict"}
"""The node that is the device's part of a loop, by what a converted graph is for."""

USER_NAME = "_tpugraph_name"
"""Attribute with the user's name of a metric or prediction, which may have characters that a node's name cannot."""


@dataclass(repr=False)
class Program:
    """A converted graph.

    Attributes:
        graph_def: the TPU graph; it needs no side file.
        report: the findings and edits, as plain dicts and lists (JSON).
        history: the conversion pass by pass, where it was recorded: ``convert(..., history=History())``.
        plain: the file of the plain graph, which :meth:`save` includes so that a saved program can be evaluated; empty where a
            Graph was converted.
        options: the conversion's options that differ from the defaults; saved with the plain graph.
    """

    graph_def: Any
    report: dict[str, Any] = field(default_factory=dict)
    history: History | None = field(default=None, compare=False)
    plain: bytes = field(default=b"", compare=False)
    options: dict[str, Any] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        line = self.report.get("batch", {}).get("line")
        about = f", {line}" if line else ""
        return f"<Program {self.report.get('source', '')}: {len(self.graph_def.node):,} nodes{about}>"

    def save(self, path: str | os.PathLike[str] | None, *, report: str | os.PathLike[str] | None = None) -> None:
        """Write the graph as a binary GraphDef, and the report as JSON where a path is given: both or neither.

        Raises:
            LoadError: the place cannot be written.
        """
        contents: dict[Path, bytes] = {}
        if path is not None:
            converted = graphdef.serialize(self.graph_def)
            both = converted + model_files.embedded_plain(self.plain, self.options)
            contents[Path(path)] = both if len(both) < 2**31 else converted  # protobuf's limit
        if report is not None:
            contents[Path(report)] = (json.dumps(self.report, indent=1, sort_keys=True) + "\n").encode()
        files.write_together(contents)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """Read a converted graph back.

        Raises:
            LoadError: no file, not a graph, or a graph that was not converted.
        """
        loaded = graphdef.sniff(Path(path))
        if cores_of(loaded.graph_def) is None:
            raise LoadError(
                f"'{path}' is a plain graph, not a TPU graph", fix="convert it first: tpugraph convert MODEL"
            )
        return cls(loaded.graph_def, {"source": str(path)}, plain=loaded.plain, options=loaded.options)

    def view(self) -> View:
        """A view of the converted graph, with every pass where the conversion was recorded; see :func:`tpugraph.view`."""
        if self.history is not None:
            return View(self.history.view)
        graph = graphdef.from_graph_def(self.graph_def)
        shapes.infer(graph)
        history = History(Path(self.report.get("source", "")).name)
        history.record(graph, "converted", summary="The TPU graph.")
        found = history.finish(graph)
        found.facts = _summary_lines(self.report)
        found.stages[0].notes = [
            (note["node"], f"{note['stage']}: {note['text']}") for note in self.report.get("why", ())
        ]
        return View(found)

    def _repr_html_(self) -> str:
        """The view in a notebook."""
        return self.view()._repr_html_()

    def summary(self) -> str:
        """The report as a few lines; lines that differ only in names and numbers are merged into one with a count."""
        return "\n".join(folded(_summary_lines(self.report)))


def _summary_lines(report: dict[str, Any]) -> list[str]:
    if "nodes" not in report:
        return [f"TPU graph {report.get('source', '')}".rstrip()]
    nodes, traffic, seconds = report["nodes"], report["bytes_per_step"], f"in {report['seconds']:.2f} s"
    counts = f"{report['source']}: {nodes['input']:,} nodes -> {nodes['output']:,}"
    complete, training = report["complete"], report["mode"] == "train"
    if complete:
        lines = [f"converted {counts} ({nodes['device']:,} on the device) {seconds}", report["batch"]["line"]]
    else:
        lines = [
            f"partly rewritten {counts} {seconds}",
            f"passes      {', '.join(trace['name'] for trace in report['passes']) or 'none'}",
            "no TPU graph: the passes that --passes leaves out were not run, and `tpugraph run` takes it for a plain graph",
        ]
    if report["loss"]["name"]:
        lines.append(f"loss        {report['loss']['name']} ({report['loss']['reason']})")
    if training:
        lines.append(f"train op    {', '.join(f['name'] for f in report['train_ops'])}")
        lines.extend(collective_lines(report["collectives"]))
    if training and complete:
        lines.extend(_lookup_lines(report["lookups"]))
    if complete:
        lines.extend(_table_lines(report["tables"], report["num_replicas"]))
        lines.extend(f"metric      {name} = {tensor}" for name, tensor in report["metrics"].items())
        lines.extend(f"prediction  {name} = {tensor}" for name, tensor in report["predictions"].items())
        size = traffic["infeed_naive"]
        as_read = " has strings or open shapes" if size is None else f": {size:,}"
        naive = f" (the input as read{as_read})" if training else ""
        lines.append(f"infeed      {traffic['infeed']:,} bytes per step{naive}")
        lines.append(f"outfeed     {traffic['outfeed']:,} bytes per step")
        lines.append(f"loop        {counted(report['iterations_per_loop'], 'step')} per Session.run")
        lines.extend(_host_ops(report["host_ops"]))
    if training and complete:
        lines.extend(f"dropped     {name}: {reason}" for name, reason in list(report["dropped"].items())[:5])
        lines.extend(f"combined    {name}: {how} over cores" for name, how in report["varying_updates"].items())
    return lines + [f"note        {note}" for note in report["notes"]]


def _lookup_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    shaped = {name: most for name, most in found["padded"].items() if name not in found["by_flag"]}
    if shaped:
        lines.append(
            f"padded      {counted(len(shaped), 'list')} of ids, to {_ranged(shaped.values())} a row, as shapes tell"
        )
    if found["by_flag"]:
        most = found["padded"][found["by_flag"][0]]
        lines.append(f"padded      {counted(len(found['by_flag']), 'list')} of ids, to {most} a row by --max_ids={most}: a row with "
                     "more ends the run, and the error says how many it has")  # fmt: skip
    if found["joined"]:
        lines.append(f"joined      {counted(len(found['joined']), 'lookup')} of tables in pieces")
    return lines


def _table_lines(found: dict[str, Any], cores: int) -> list[str]:
    lines = []
    for name, table in found["sharded"].items():
        also = counted(len(table["variables"]) - 1, "variable") + " of the optimizer"
        lines.append(f"sharded     {name}{f' and {also}' if table['variables'][1:] else ''}: {table['rows']:,} rows, "
                     f"{table['rows_per_core']:,} on each of {cores} cores, {table['bytes_per_core']:,} bytes of "
                     f"{table['bytes']:,}; lookups take {counted(table['sums'], 'sum')}, {_size_of_sums(table, 'sum_')}")  # fmt: skip
    return lines + [f"not sharded {name}: {why}" for name, why in found["whole"].items()]


def _ranged(numbers: Iterable[int]) -> str:
    least, most = min(numbers := list(numbers)), max(numbers)
    return f"{most}" if least == most else f"{least} to {most}"


def collective_lines(found: dict[str, Any]) -> list[str]:
    """The sums over the cores in each step; gathered rows have a line each."""
    if not found["sums"]:
        return []
    gathered = [f"gathered    {tensor}: {words}" for tensor, words in found["gathered"].items()]
    return [f"collectives {counted(found['sums'], 'sum')}, {_size_of_sums(found)}", *gathered]


def _size_of_sums(found: dict[str, Any], prefix: str = "") -> str:
    """The bytes that a core sends for sums in a step, where known."""
    size, exact, unbounded = (found[f"{prefix}{key}"] for key in ("bytes", "bytes_exact", "unbounded"))
    known = f"{'' if exact or unbounded else 'at most '}{size:,} bytes per step"
    if not unbounded:
        return known
    return f"{known} and {counted(unbounded, 'size')} unknown" if size else "unknown bytes per step"


def _host_ops(host: dict[str, int]) -> list[str]:
    shown = ", ".join(f"{op} {count}" for op, count in sorted(host.items(), key=lambda i: (-i[1], i[0]))[:8])
    return [f"host ops    {shown}{', ...' if len(host) > 8 else ''}"] if host else []


def cores_of(graph_def: Any) -> int | None:
    """The number of cores of a TPU graph; None for a plain graph."""
    return next((n.attr["num_replicas"].i for n in graph_def.node if n.op in ops.METADATA), None)


def mode_of(names: Container[str]) -> str:
    """What a converted graph with nodes of these names is for: ``train``, ``eval`` or ``predict``."""
    return next((mode for mode, name in DEVICE_PARTS.items() if name in names), "train")
