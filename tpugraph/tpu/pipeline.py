"""Passes and the pipeline that runs them: the order is checked before, invariants are checked around every pass."""

from __future__ import annotations

import importlib
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar

from tpugraph import roles
from tpugraph.analysis import shapes
from tpugraph.analysis.races import ORDERS
from tpugraph.control_flow import lower_functional
from tpugraph.ir import Edits, Graph, text
from tpugraph.support.errors import GraphError, PipelineError, TpuGraphError, UsageError
from tpugraph.support.suggestions import did_you_mean
from tpugraph.tpu.invariants import INVARIANTS


@dataclass(frozen=True)
class Pass:
    """One rewrite of a graph. A subclass's fields are its parameters; its docstring states what holds afterwards.

    Attributes:
        requires: invariants that must hold before.
        ensures: invariants that hold after, until a later pass names them in ``breaks``.
        breaks: invariants that this pass gives up.
        reads: classes of earlier passes' results that it reads, see :mod:`tpugraph.analysis.step`.
        reads_if_given: those that it reads where an earlier pass gives them.
        gives: classes of results that it stores.
    """

    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    ensures: ClassVar[tuple[str, ...]] = ()
    breaks: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[type, ...]] = ()
    reads_if_given: ClassVar[tuple[type, ...]] = ()
    gives: ClassVar[tuple[type, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()

    def run(self, graph: Graph) -> None:
        """Rewrite the graph in place."""
        raise NotImplementedError

    @classmethod
    def summary(cls) -> str:
        """The docstring's first sentence."""
        return " ".join((cls.__doc__ or "").split("\n\n")[0].split())

    @classmethod
    def parameters(cls) -> dict[str, Any]:
        """Parameter names and their defaults."""
        return {f.name: f.default for f in fields(cls)}

    @classmethod
    def as_data(cls) -> dict[str, Any]:
        """What `tpugraph passes` shows of the pass."""
        about = {"requires": list(cls.requires), "ensures": list(cls.ensures), "summary": cls.summary()}
        return {"name": cls.name, "parameters": cls.parameters(), **about}


_CHOICES = {
    "varying_updates": ("mean", "replica0", "error"),
    "batch_norm": ("global", "per_core"),
    "random": ("per_core", "plain"),
    "step_order": ORDERS,
}
"""The values that a parameter of passes can have, by the parameter's name."""


def check_choices(given: object, **more: tuple[str, ...]) -> None:
    """Raise a UsageError where a parameter of a pass, or an option, has none of its choices; ``more``: those of further options."""
    for name, choices in {**_CHOICES, **more}.items():
        value = getattr(given, name, choices[0])
        if value not in choices:
            raise UsageError(f"'{value}' is no {name}", fix=f"--{name}={', '.join(choices[:-1])} or {choices[-1]}")


@dataclass(frozen=True)
class Trace:
    """One pass's edits and seconds, and the size of the graph after it."""

    name: str
    edits: Edits
    seconds: float
    nodes: int

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self.edits), "seconds": round(self.seconds, 6), "nodes": self.nodes}


class Pipeline:
    """Passes in order.

    Args:
        passes: the passes, run once each, in this order.
        given: invariants that the input graph holds already, and classes of results that it has.

    Raises:
        PipelineError: a pass requires or reads something that neither the input nor an earlier pass gives.
    """

    def __init__(self, passes: Sequence[Pass], *, given: Iterable[str | type] = ("roles_known",)) -> None:
        self.passes = tuple(passes)
        self.trace: list[Trace] = []
        self._given = frozenset(given)
        self._prove_order()

    def _prove_order(self) -> None:
        """Check that the input or an earlier pass gives each invariant and each result that a pass needs."""
        held = {*self._given, "well_formed"}
        for step in self.passes:
            unknown = {*step.requires, *step.ensures, *step.breaks} - INVARIANTS.keys()
            if unknown:
                raise PipelineError(f"the pass '{step.name}' names an invariant that does not exist: {min(unknown)}")
            needed: tuple[str | type, ...] = (*step.requires, *step.reads, *step.reads_if_given)
            for wanted in needed:
                giving = [p.name for p in self.passes if p is not step and wanted in (*p.ensures, *p.gives)]
                if wanted in held or (wanted in step.reads_if_given and not giving):
                    continue
                needs = f"requires '{wanted}'" if isinstance(wanted, str) else f"reads {wanted.__name__}"
                gives = "ensures" if isinstance(wanted, str) else "gives"
                fix = f"run '{giving[0]}' before it" if giving else f"add the pass that {gives} it"
                raise PipelineError(f"the pass '{step.name}' {needs}, which nothing before it {gives}", fix=fix)
            held = (held - set(step.breaks)) | {*step.ensures, *step.gives}

    def run(
        self,
        graph: Graph,
        *,
        dump_dir: str | Path | None = None,
        dump_after: Sequence[str] = (),
        before: Callable[[Pass], object] | None = None,
        changed: Callable[[str], None] | None = None,
        after: Callable[[Pass, float], None] | None = None,
    ) -> Graph:
        """Run all passes on the graph, in place.

        Args:
            graph: the graph; its roles as a training graph are found where they are not known and a pass requires them.
            dump_dir: folder for numbered text dumps; none are written without it.
            dump_after: names of the passes to dump after; all when empty.
            before: called with each pass before it runs.
            changed: called after each dumped pass with its changes as text: nodes before and after.
            after: called after each pass with its seconds.

        Returns:
            The same graph.

        Raises:
            TpuGraphError: from a pass or from a check, with the pass's name.
        """
        if graph.roles is None and any("roles_known" in step.requires for step in self.passes):
            lower_functional.make_initializable(graph)
            lower_functional.inline_updates(graph, None)
            graph.roles = roles.find(graph)
        unknown = set(dump_after) - {step.name for step in self.passes}
        if unknown:
            fix = did_you_mean(min(unknown), [step.name for step in self.passes], "`tpugraph passes` lists them")
            raise UsageError(f"--dump_after names no pass of this pipeline: {min(unknown)}", fix=fix)
        self.trace = []
        _dump(graph, dump_dir, 0, "input")
        for number, step in enumerate(self.passes, 1):
            if before is not None:
                before(step)
            wanted = not dump_after or step.name in dump_after
            held = text.format_graph(graph, outputs=False) if wanted and changed is not None else ""
            self._run_one(step, graph)
            if after is not None:
                after(step, self.trace[-1].seconds)
            if wanted:
                _dump(graph, dump_dir, number, step.name)
                if changed is not None:
                    changed(_change(number, step.name, held, text.format_graph(graph, outputs=False)))
        return graph

    def _run_one(self, step: Pass, graph: Graph) -> None:
        started = time.perf_counter()
        before = Edits(graph.edits.added, graph.edits.removed, graph.edits.changed)
        graph.stage = step.name
        try:
            for name in step.requires:
                INVARIANTS[name].verify(graph, f"before {step.name}")
            sound = is_own(step) and refused_by_tensorflow(graph) is None
            graph.readable = frozenset((*step.reads, *step.reads_if_given, *step.gives))
            step.run(graph)
            graph.readable = None
            for name in ("well_formed", *step.ensures):
                INVARIANTS[name].verify(graph, f"after {step.name}")
            if sound and (refusal := refused_by_tensorflow(graph)) is not None:
                refusal.fix = f"TensorFlow took the graph before the pass '{step.name}': mend the pass"
                raise refusal
        except TpuGraphError as error:
            if error.stage is None:
                error.stage = step.name
            if error.origin is None:
                error.origin = graph.source or None
            raise
        except Exception as error:
            if not is_own(step):
                raise
            raise failure(step, step.name, error) from error
        finally:
            graph.stage = graph.readable = None
        seconds = time.perf_counter() - started
        self.trace.append(Trace(step.name, graph.edits.since(before), seconds, len(graph)))


def _change(number: int, name: str, before: str, after: str) -> str:
    lines = text.changed_lines(before.splitlines(), after.splitlines())
    return "\n".join([f"{number:02} {name}{'' if lines else ': nothing changed'}", *lines])


def _dump(graph: Graph, folder: str | Path | None, number: int, name: str) -> None:
    if folder is None:
        return
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:02}_{name}.txt").write_text(text.format_graph(graph))
    except OSError as error:
        raise UsageError(
            f"the dump cannot be written to '{place}': {error.strerror}", fix="choose another --dump_dir"
        ) from error


def parse_passes(spec: str, known: Sequence[type[Pass]], defaults: dict[str, Any]) -> list[Pass]:
    """Passes from text such as ``prune,my.module:MyPass{count=2},...``.

    Args:
        spec: names in order, each with optional parameters in braces. A name is that of a known pass, ``module:Class``, or an
            entry point of an installed package. ``...`` stands for the known passes between its neighbours.
        known: the pass classes, in order.
        defaults: values for parameters that the text leaves out, by parameter name.

    Raises:
        UsageError: an unknown pass or parameter, or a value of the wrong type.
    """
    by_name = {step.name: step for step in known}
    if not re.fullmatch(f"(?:{_ITEM})*", spec):
        raise UsageError(f"'{spec}' is no list of passes", fix="as in --passes='prune,replicate{num_replicas=8}'")
    words = re.findall(_ITEM, spec)
    places = [known.index(by_name[name]) if name in by_name else None for name, _ in words]
    passes: list[Pass] = []
    for number, (name, given) in enumerate(words):
        if name == _REST:
            before = [place for place in places[:number] if place is not None]
            behind = [place for place in places[number:] if place is not None]
            between = known[before[-1] + 1 if before else 0 : behind[0] if behind else None]
            passes += [_instance(cls, "", defaults) for cls in between]
        else:
            passes.append(_instance(by_name.get(name) or _own(name, by_name), given, defaults))
    if not passes:
        raise UsageError(f"'{spec}' names no pass", fix=f"one of {', '.join(by_name)}")
    return passes


_REST = "..."
_ITEM = r"\s*([\w.:-]+)(?:\{([^}]*)\})?\s*(?:,|$)"


def _own(name: str, known: Iterable[str]) -> type[Pass]:
    if ":" not in name and name not in installed():
        names = [*known, *installed()]
        listed = f"one of {', '.join(names)}; or my.module:MyPass"
        raise UsageError(f"there is no pass '{name}'", fix=did_you_mean(name, names, listed))
    found = load(name)
    if not issubclass(found, Pass):
        raise UsageError(f"'{name}' is no pass", fix="derive a frozen dataclass from tpugraph.Pass")
    return found


def _instance(cls: type[Pass], given: str, defaults: dict[str, Any]) -> Pass:
    values = {key: defaults[key] for key in cls.parameters() if key in defaults}
    for item in filter(None, given.split(",")):
        key, _, value = item.partition("=")
        values[key.strip()] = _convert(cls, key.strip(), value.strip())
    return cls(**values)


def _convert(cls: type[Pass], key: str, value: str) -> Any:
    parameters = cls.parameters()
    if key not in parameters:
        known = ", ".join(parameters) or "none"
        raise UsageError(f"the pass '{cls.name}' has no parameter '{key}'", fix=f"its parameters: {known}")
    kind = type(parameters[key])
    try:
        return value.lower() in ("1", "true", "yes") if kind is bool else kind(value)
    except ValueError as error:
        raise UsageError(
            f"'{value}' is no {kind.__name__} for {cls.name}.{key}", fix=f"{key}={parameters[key]}"
        ) from error


# --------------------------------------------------------------------------- users' own passes

GROUP = "tpugraph.passes"
"""The entry point group of passes."""


@cache
def installed() -> dict[str, EntryPoint]:
    """The passes of installed packages, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load(name: str) -> type:
    """A class by ``module:Class``, with the current folder on the path, or by the name of an entry point."""
    point = installed().get(name)
    module, _, attribute = (name if point is None else point.value).partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # console scripts do not have it
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise UsageError(f"the pass '{name}' cannot be loaded: there is no module '{error.name}'",
                         fix="run where the module lies, or install it") from error  # fmt: skip
    except AttributeError as error:
        raise UsageError(f"the module '{module}' has no '{attribute}'", fix="--passes=my.module:MyPass") from error
    except (ImportError, SyntaxError) as error:
        raise UsageError(f"the pass '{name}' cannot be loaded: {error}", fix="mend the module") from error
    if not isinstance(found, type):
        raise UsageError(f"'{name}' is no class", fix="derive a frozen dataclass from tpugraph.Pass")
    return found


def is_own(step: object) -> bool:
    """Whether a pass is a user's own."""
    return not type(step).__module__.startswith("tpugraph.")


def refused_by_tensorflow(graph: Graph) -> GraphError | None:
    """TensorFlow's error where it does not take a graph; else None."""
    try:
        shapes.check(graph)
    except GraphError as error:
        return error
    return None


def failure(step: object, name: str, error: Exception) -> PipelineError:
    """The error of a user's own pass, with the line that failed."""
    source = sys.modules[type(step).__module__].__file__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else source
    words = next(iter(str(error).splitlines()), "")
    return PipelineError(f"{type(error).__name__}: {words[:300]}", origin=place, stage=name,
                         fix=f"mend the pass '{name}'; --traceback prints all")  # fmt: skip
