"""A model traced once more with twice as many rows: what its constants are then tells which of them hold that number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tpugraph.estimator.input_tracing import trace_input
from tpugraph.estimator.reporting import say
from tpugraph.estimator.tracing import Request, Traced, trace_model

Constants = dict[str, np.ndarray[Any, Any] | None]


def at_twice_the_rows(request: Request, traced: Traced) -> Constants:
    """The constants of a model at twice the batch.

    Args:
        request: what was traced, with a fixed number of rows.
        traced: the model.

    Returns:
        Of each constant its value there, by name; None where it is the same. Nothing where the model is another one, or
        fails, at that batch: a line says so.
    """
    plan = request.plan
    doubled = {name: 2 * (getattr(plan, name) or 0) for name in ("whole", "host", "core")}
    larger = replace(request, plan=replace(plan, **doubled))
    try:
        second = trace_model(larger, trace_input(larger))
    except Exception as error:  # a model function may fail in any way at a batch that nobody asked for
        first_line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        say(f"note: model_fn fails with {doubled['core']} rows instead of {plan.core}, so that constants which may be "
            f"the number of rows cannot be told ({first_line[:120]})")  # fmt: skip
        return {}
    found = _compared(traced.graph, second.graph)
    if found is None:
        say(f"note: model_fn makes another graph with {doubled['core']} rows instead of {plan.core}, so that constants "
            "which may be the number of rows cannot be told")  # fmt: skip
        return {}
    return found


def _compared(first: Any, second: Any) -> Constants | None:
    """The constants of the second graph, by their names in the first; None where the graphs are not built alike."""
    ones, others = first.get_operations(), second.get_operations()
    if [_build(op) for op in ones] != [_build(op) for op in others]:
        return None
    found: Constants = {}
    for one, other in zip(ones, others, strict=True):
        if one.type == "Const":
            same = one.get_attr("value") == other.get_attr("value")
            found[one.name] = None if same else tf.make_ndarray(other.get_attr("value"))
    return found


def _build(op: Any) -> tuple[str, str, list[str]]:
    return op.name, op.type, [tensor.name for tensor in op.inputs]
