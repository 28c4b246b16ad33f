"""Graphs as text, one pass against golden text, errors as blocks."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tpugraph.compiler import ConvertOptions
from tpugraph.compiler.conversion import prepare
from tpugraph.ir import Edits, Graph, graphdef
from tpugraph.ir.text import changed_lines, format_graph, parse_graph
from tpugraph.roles.findings import Roles
from tpugraph.support.errors import TpuGraphError, UsageError
from tpugraph.support.suggestions import did_you_mean
from tpugraph.tpu.pipeline import Pass, Pipeline, Trace

UPDATE_VARIABLE = "TPUGRAPH_UPDATE_GOLDEN"
"""Where this environment variable is 1, :func:`check_golden` writes what it finds instead of comparing."""


RolesSpec = Roles | Callable[[Graph], Roles] | None
"""Roles, a function that builds them, or None: the pipeline finds those of a training graph where a pass requires them."""


def run_pass(step: Pass, graph: Graph, *, roles: RolesSpec = None, after: Sequence[Pass] = ()) -> Edits:
    """Run one pass with the pipeline's checks of ``ensures`` and of the graph's form; returns the pass's own edits.

    Args:
        graph: the graph, rewritten in place.
        roles: the roles of the graph, where they are not those that are found of a training graph.
        after: passes to run before it, whose edits do not count.

    Example:
        >>> from tpugraph.passes.prune import Prune
        >>> graph = graphdef.load("model.pb")  # doctest: +SKIP
        >>> print(run_pass(Prune(), graph))  # doctest: +SKIP
        +0 -102 ~0
    """
    return _run([*after, step], graph, roles)[-1].edits


def _run(steps: Sequence[Pass], graph: Graph, roles: RolesSpec) -> list[Trace]:
    """Run passes alone: what they require and read is taken as given (and still checked on the graph)."""
    if roles is not None:
        graph.roles = roles(graph) if callable(roles) else roles
    required: set[str | type] = {name for step in steps for name in step.requires}
    pipeline = Pipeline(steps, given=required.union(*(step.reads for step in steps)))
    pipeline.run(graph)
    return pipeline.trace


def graph_before(step: str, model: str | os.PathLike[str] | Graph, **options: Any) -> Graph:
    """A real graph in the middle of its conversion: with its roles, and what the passes before the named one made of it.

    Args:
        step: the name of the pass that is to run next.
        model: a plain graph, which is changed, or the path of one.
        **options: options of :func:`tpugraph.convert`.

    Example:
        >>> graph = graph_before("placement", "model.pb", num_replicas=4)  # doctest: +SKIP

    Raises:
        UsageError: the conversion of this graph has no such pass.
        TpuGraphError: from the conversion up to there.
    """
    graph = model if isinstance(model, Graph) else graphdef.load(model)
    passes = prepare(graph, ConvertOptions(**options))[0].passes
    names = [each.name for each in passes]
    if step not in names:
        raise UsageError(
            f"the conversion has no pass '{step}'", fix=did_you_mean(step, names, f"one of {', '.join(names)}")
        )
    return Pipeline(passes[: names.index(step)]).run(graph)


def check_pass(
    step: Pass,
    before: str | Graph,
    after: str,
    *,
    edits: str | None = None,
    roles: RolesSpec = None,
) -> Graph:
    """Run one pass, compare the result with golden text, and return the graph.

    Args:
        before: the graph, or its text.
        after: the text of the graph afterwards; indentation, blank lines, comments and implied attributes do not matter.
        edits: the edits that the pass must count, such as ``"+1 -0 ~2"``; not checked when None.
        roles: the roles of the graph, see :func:`run_pass`.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Rename(Pass):
        ...     "Old ops do nothing."
        ...     def run(self, graph):
        ...         for node in graph.of_type("Old"):
        ...             graph.retype(node, "NoOp")
        >>> _ = check_pass(Rename(), "x = Old()", "x = NoOp()", edits="+0 -0 ~1")

    Raises:
        AssertionError: the text differs (a diff is shown), or the edits do.
    """
    graph = parse_graph(before) if isinstance(before, str) else before
    counted = run_pass(step, graph, roles=roles)
    wanted, found = (format_graph(g, outputs=False, implied=False).splitlines() for g in (parse_graph(after), graph))
    _compare(step.name, wanted, found)
    if edits is not None and str(counted) != edits:
        raise AssertionError(f"{step.name} made the edits {counted}, not {edits}")
    return graph


def _compare(name: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    if list(wanted) == list(found):
        return
    diff = "\n".join(difflib.unified_diff(wanted, found, "golden", f"after {name}", lineterm="", n=2))
    raise AssertionError(f"the graph after {name} is not the golden one:\n{diff}")


def check_golden(
    step: Pass,
    path: str | os.PathLike[str],
    *,
    roles: RolesSpec = None,
    after: Sequence[Pass] = (),
) -> Graph:
    """Run one pass on the graph of a golden file, compare with what the file says of the result, and return the graph.

    The file has two sections. The first is the graph, in text form. The second begins with ``=== after`` and holds
    the whole graph afterwards, or with ``=== diff`` and holds only the lines that went (``-``) and came (``+``); its
    headline ends with the pass's edits. With ``TPUGRAPH_UPDATE_GOLDEN=1`` the second section is written
    anew: review it. ``roles`` and ``after`` are as of :func:`run_pass`.

        # What this case shows.
        x = Old()
        === after +0 -0 ~1
        x = NoOp()

    Example:
        >>> check_golden(MyPass(), "tests/golden/my-pass/simple.txt")  # doctest: +SKIP

    Raises:
        AssertionError: the result differs; a diff is shown.
    """
    place = Path(path)
    source, kind, expected = _sections(place)
    graph = parse_graph(source)
    _run(after, graph, roles)
    before = format_graph(graph, outputs=kind == "diff").splitlines()
    section = [f"{kind} {run_pass(step, graph)}"]
    found = format_graph(graph, outputs=kind == "diff").splitlines()
    section += changed_lines(before, found) if kind == "diff" else found
    if os.environ.get(UPDATE_VARIABLE) == "1":
        place.write_text(source + "\n=== " + "\n".join(section) + "\n", encoding="utf-8")
        return graph
    _compare(f"{step.name} ({place.name})", expected, section)
    return graph


def _sections(place: Path) -> tuple[str, str, list[str]]:
    """The graph of a golden file, the kind of its second section, and the lines of that, its headline first."""
    source, mark, rest = place.read_text(encoding="utf-8").partition("\n=== ")
    if not mark:
        source, rest = source.rstrip("\n"), "after"
    headline, _, body = rest.partition("\n")
    kind = headline.split()[0]
    if kind not in ("after", "diff"):
        raise AssertionError(f"{place}: the section '{kind}' is neither 'after' nor 'diff'")
    return source, kind, [headline, *body.splitlines()]


def assert_raises_block(
    function: Callable[..., object],
    *args: Any,
    words: Sequence[str],
    max_length: int = 300,
    kind: type[TpuGraphError] = TpuGraphError,
    **options: Any,
) -> TpuGraphError:
    """Call a function that must fail with one clear error block; returns the error.

    Args:
        words: texts that the block must hold: the fault, the node, the fix.
        max_length: the most characters that the block may have.
        kind: the class of the error.
        **options: keyword arguments of the function.

    Example:
        >>> _ = assert_raises_block(parse_graph, "no node", words=["line 1 is not a node"], max_length=200)

    Raises:
        AssertionError: no error, another error, a missing text, or a longer block.
    """
    try:
        function(*args, **options)
    except TpuGraphError as error:
        block = error.block()
        if not isinstance(error, kind):
            raise AssertionError(f"a {type(error).__name__}, not a {kind.__name__}: {block}") from error
        missing = [word for word in words if word not in block]
        if missing:
            raise AssertionError(f"the error does not say {missing[0]!r}:\n{block}") from error
        if len(block) > max_length:
            raise AssertionError(f"the error has {len(block)} characters, more than {max_length}:\n{block}") from error
        return error
    raise AssertionError(f"no error, though one was to say {words[0]!r}" if words else "no error")
