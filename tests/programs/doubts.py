"""The constants of programs that may be made of the rows, or be numbers of the model."""

from __future__ import annotations

import re

from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.support.errors import ConversionError

from .harness import trace
from .parts import Program


def constants_in_doubt(build: Program, cores: int) -> list[str]:
    """The constants that a conversion says may be made of the rows: those that it asks for, or where it asks for none, reports."""
    traced = trace(build, build.rows, resource=build.resource)
    named: list[str] = []
    while True:
        graph = graphdef.from_graph_def(traced.graph.as_graph_def(), source="made.pb")
        given = {"loss": traced.loss, "train_op": traced.train, "batch_constants": tuple(named)}
        try:
            notes = convert(graph, num_replicas=cores, **given).report["notes"]
        except ConversionError as error:
            more = _names(error.fix or "")
            if set(more) <= set(named):
                return named
            named = list(dict.fromkeys([*named, *more]))
        else:
            return named or _names(" ".join(notes))


def _names(words: str) -> list[str]:
    return [name for names in re.findall(r"--batch_constants=(\S+)", words) for name in names.split(",")]
