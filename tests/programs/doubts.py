"""The constants of programs that may be made of the rows, or be numbers of the model."""

from __future__ import annotations

import re
from typing import Any

from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.support.errors import ConversionError

from .harness import Verdict, check, trace
from .parts import Program


def judged(program: Program, cores: int, **options: Any) -> Verdict:
    """``check``, but a program whose number may be of the rows or of the model, as the report says, is ``noted``, not different.

    It is, where a ``--batch_constants`` of what the report names makes it equal; another outcome of that is the verdict.
    """
    verdict = check(program, cores, **options)
    if not program.doubtful or verdict.outcome != "different":
        return verdict
    if not (named := constants_in_doubt(program, cores)):
        return Verdict("different", f"nothing says that a constant is in doubt, but {verdict.words}")
    followed = check(program, cores, batch_constants=tuple(named), **options)
    return Verdict("noted", verdict.words) if followed.outcome == "equal" else followed


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
    """What the flags name: of a constant that may be made of the rows in several ways, the first of them."""
    told = [name for names in re.findall(r"--batch_constants=(\S+)", words) for name in names.split(",")]
    return list({name.partition("=")[0]: name for name in reversed(told)}.values())[::-1]
