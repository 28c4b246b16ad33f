"""Passes that are not tpugraph's own: found by module and class, or by the entry points of installed packages."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from tpugraph.analysis import shapes
from tpugraph.ir import Graph
from tpugraph.support.errors import GraphError, PipelineError, UsageError

GROUP = "tpugraph.passes"
"""The group of entry points in which a package names its passes."""


@cache
def installed() -> dict[str, EntryPoint]:
    """The passes that installed packages bring, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load(name: str) -> type:
    """A class by ``module:Class``, where modules of the current folder count, or by the name of an entry point.

    Raises:
        UsageError: there is no such module or class.
    """
    point = installed().get(name)
    module, _, attribute = (name if point is None else point.value).partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a console script does not look there
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
    """Whether a pass is not one of tpugraph's."""
    return not type(step).__module__.startswith("tpugraph.")


def refusal(graph: Graph) -> GraphError | None:
    """Why TensorFlow does not take a graph: its ops, attributes, dtypes, shapes or order; None where it does."""
    try:
        shapes.check(graph)
    except GraphError as error:
        return error
    return None


def failure(step: object, name: str, error: Exception) -> PipelineError:
    """What a pass that is not tpugraph's own failed with, as a block with the line that failed."""
    source = sys.modules[type(step).__module__].__file__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else source
    words = next(iter(str(error).splitlines()), "")
    return PipelineError(f"{type(error).__name__}: {words[:300]}", origin=place, stage=name,
                         fix=f"mend the pass '{name}'; --traceback prints all")  # fmt: skip
