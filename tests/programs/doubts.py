"""The constants of programs that may be made of the rows, or be numbers of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from tpugraph.compiler import convert
from tpugraph.ir import graphdef
from tpugraph.support.errors import ConversionError

from .harness import Traced, Verdict, check, of_core
from .parts import Program


def judged(program: Program, cores: int, **options: Any) -> Verdict:
    """``check``, but a program whose number may be of the rows or of the model, as the report says, is ``noted``, not different.

    It is, where a ``--batch_constants`` of what the report names makes it equal, or the ``--literals`` of it do; otherwise it is
    different.
    """
    verdict = check(program, cores, **options)
    if not program.doubtful or verdict.outcome != "different":
        return verdict
    if not constants_in_doubt(program, cores):
        return Verdict("different", f"nothing says that a constant is in doubt, but {verdict.words}")
    for named in followed(program, cores):
        if check(program, cores, batch_constants=tuple(named), **options).outcome == "equal":
            return Verdict("noted", verdict.words)
    if check(program, cores, literals=tuple(_numbers_of_the_model(program, cores)), **options).outcome == "equal":
        return Verdict("noted", verdict.words)
    return Verdict("different", f"with no flag of the report equal, and without one {verdict.words}")


def constants_in_doubt(build: Program, cores: int) -> list[str]:
    """The constants that a conversion says may be made of the rows: those that it asks for, or where it asks for none, reports.

    Of a constant that may be made of the rows in several ways, the first of them.
    """
    return next(followed(build, cores))


def _numbers_of_the_model(build: Program, cores: int) -> list[str]:
    """What a user gives as ``--literals`` who says of all that the report names that it is a number of the model."""
    notes = " ".join(_notes(of_core(build, build.rows, build.resource), cores, ()))
    return [name for flag in re.findall(r"--literals=([^\s;,]+)", notes) for name in flag.split(",")]


def _notes(traced: Traced, cores: int, named: Iterable[str]) -> list[str]:
    """What the report of a conversion with such ``--batch_constants`` notes."""
    graph = graphdef.from_graph_def(traced.graph.as_graph_def(), source="made.pb")
    given = {"loss": traced.loss, "train_op": traced.train, "batch_constants": tuple(named)}
    return convert(graph, num_replicas=cores, **given).report["notes"]


def followed(build: Program, cores: int) -> Iterator[list[str]]:
    """What a user may give as ``--batch_constants`` who follows what a conversion says, in the order in which it says it."""
    traced = of_core(build, build.rows, build.resource)
    stack: list[list[str]] = [[]]
    while stack:
        named = stack.pop()
        try:
            notes = _notes(traced, cores, named)
        except ConversionError as error:
            more = [way for way in _ways(error.fix or "", named) if way]
            stack += [[*named, *way] for way in more[::-1]]
            if not more:
                yield named
        else:
            more = [way for way in _ways(" ".join(notes), named) if way]
            yield from [named] if named or not more else []
            yield from ([*named, *way] for way in more)


def _ways(words: str, named: Iterable[str]) -> list[list[str]]:
    """What the flags name that is not named yet: of constants that may be made of the rows in several ways, each of them."""
    known = {name.partition("=")[0] for name in named}
    found: dict[tuple[str, ...], list[list[str]]] = {}
    for flag in re.findall(r"--batch_constants=(\S+)", words):
        told = [name for name in flag.split(",") if name.partition("=")[0] not in known]
        found.setdefault(tuple(name.partition("=")[0] for name in told), []).append(told)
    found.pop((), None)
    return [[name for part in parts for name in dict.fromkeys(part)] for parts in product(*found.values())]
