"""The pytest that holds a reduced fault: it fails for as long as the graph shows it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tpugraph.compiler import ConvertOptions
from tpugraph.ir import graphdef
from tpugraph.support.files import write_together
from tpugraph.testing.reduction import symptoms
from tpugraph.testing.reduction.reducing import Reduction
from tpugraph.testing.reduction.tries import Question, Tries

_TEST = '''"""A fault that `tpugraph reduce` cut down: {before:,} nodes of {source} became {nodes:,}.

It showed: {words}
"""

from pathlib import Path

from tpugraph import testing

MODEL = Path(__file__).with_name("{model}")


def test_{name}() -> None:
    """Passes once the graph no longer shows it."""
    assert testing.symptom(MODEL, {arguments}) is None
'''


def symptom(
    model: str | os.PathLike[str],
    when: str,
    *,
    steps: int = 1,
    tolerance: float = 1e-4,
    topology: str = "v5e:2x4",
    checkpoint: str | None = None,
    rebind: Mapping[str, str] | None = None,
    seconds: float = 120.0,
    **options: Any,
) -> str | None:
    """What shows of a fault in a graph, in a sentence; None where it does not show. Looked for in a child process.

    Args:
        model: the file of a plain training graph.
        when: the fault, as of :func:`tpugraph.reduce`.
        steps: steps of ``differs`` and ``crashes``.
        tolerance: of ``differs``.
        topology: of ``xla``.
        checkpoint: where training starts.
        rebind: file names in the graph to replace.
        seconds: how long it may take.
        **options: options of :func:`tpugraph.convert`.

    Example:
        >>> symptom("model_reduced.pb", "differs", loss="recorded/loss")  # doctest: +SKIP
        "the loss differs by 1.7e+00 on 1 core"

    Raises:
        UsageError: no such fault.
    """
    symptoms.check_when(when)
    question = Question(when, ConvertOptions(**options), steps, tolerance, topology, checkpoint, dict(rebind or {}))
    with Tries(seconds) as tries:
        answer = tries.ask(model, question)
    return answer.words or when if answer.shows else None


def write(found: Reduction, place: Path) -> Path:
    """Write the reduced graph, and its pytest beside it; returns the pytest's path.

    Raises:
        LoadError: they cannot be written; neither is.
    """
    test = place.with_name(f"test_{re.sub(r'[^0-9A-Za-z_]', '_', place.stem)}.py")
    graph = graphdef.serialize(graphdef.to_graph_def(found.graph))
    write_together({place: graph, test: text_of(found, place, test).encode()})
    return test


def text_of(found: Reduction, place: Path, test: Path) -> str:
    """The pytest as text."""
    return _TEST.format(before=found.nodes_before, source=Path(found.source).name, nodes=found.nodes,
                        words=" ".join(found.words.replace("\\", "/").split()).replace('"""', "'''"), model=place.name,
                        name=test.stem.removeprefix("test_"), arguments=_arguments(found.question))  # fmt: skip


def _arguments(question: Question) -> str:
    """The arguments of :func:`symptom`, those that have their default left out."""
    found = [repr(question.when)]
    plain = Question(question.when, ConvertOptions())
    for name in ("steps", "tolerance", "topology", "checkpoint", "rebind"):
        if getattr(question, name) != getattr(plain, name):
            found.append(f"{name}={getattr(question, name)!r}")
    for option in fields(ConvertOptions):
        value = getattr(question.options, option.name)
        if value != getattr(plain.options, option.name):
            found.append(f"{option.name}={value!r}")
    return ", ".join(found)


def flags_of(question: Question) -> list[str]:
    """The flags of the command line that show the fault in the reduced graph."""
    plain, flags = ConvertOptions(), []
    for option in fields(ConvertOptions):
        value = getattr(question.options, option.name)
        if value != getattr(plain, option.name):
            flags.append(f"--{option.name}={','.join(value) if isinstance(value, tuple) else value}")
    return flags
