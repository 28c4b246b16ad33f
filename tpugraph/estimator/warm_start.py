"""Warm start: first values from another model's checkpoint, with a report of what was found."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpugraph.estimator.reporting import say
from tpugraph.runtime import checkpoint
from tpugraph.runtime.checkpoints.whole import verify
from tpugraph.support.errors import ArgumentError, ArgumentTypeError, CheckpointError
from tpugraph.support.wording import counted

if TYPE_CHECKING:
    from tpugraph.estimator.host_session import HostSession
    from tpugraph.estimator.tracing import Traced

tf1 = tf.compat.v1


@dataclass(frozen=True)
class WarmStartSettings:
    """What to take over from a checkpoint.

    Attributes:
        ckpt_to_initialize_from: a checkpoint's prefix, its folder, or a SavedModel's folder.
        vars_to_warm_start: a regular expression, or a list of them, that variables' names match from the start; None
            and ``".*"`` take the trainable variables and the statistics that the model keeps.
        var_name_to_vocab_info: refused: vocabularies are not mapped.
        var_name_to_prev_var_name: of a variable the name that it has in the checkpoint.

    Raises:
        ArgumentError: no checkpoint is named, or vocabularies are to be mapped (a ``ValueError``).
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: Any = None
    var_name_to_prev_var_name: Any = None

    def __post_init__(self) -> None:
        if not self.ckpt_to_initialize_from:
            raise ArgumentError("ckpt_to_initialize_from is empty", fix="give a checkpoint or its folder")
        if self.var_name_to_vocab_info:
            raise ArgumentError("var_name_to_vocab_info: vocabularies are not mapped", fix="map the rows beforehand")


def settings_of(warm_start_from: Any) -> WarmStartSettings | None:
    """The settings of a ``warm_start_from`` argument: None, a path or settings.

    Raises:
        ArgumentTypeError: something else.
    """
    if warm_start_from is None or isinstance(warm_start_from, WarmStartSettings):
        return warm_start_from
    if isinstance(warm_start_from, (str, os.PathLike)):
        return WarmStartSettings(os.fspath(warm_start_from))
    raise ArgumentTypeError(
        f"warm_start_from must be a path or WarmStartSettings, but is {warm_start_from!r}", fix="give a checkpoint"
    )


def warm_start(traced: Traced, host: HostSession, settings: WarmStartSettings | None) -> None:
    """Give the model's variables their values of a checkpoint, where it has them, and say which it has.

    Raises:
        CheckpointError: no checkpoint, or one without any of the variables.
    """
    if settings is None:
        return
    prefix = checkpoint.resolve(_path(settings.ckpt_to_initialize_from), say)
    verify(prefix)
    reader = tf.train.load_checkpoint(str(prefix))
    held = reader.get_variable_to_shape_map()
    renamed = settings.var_name_to_prev_var_name or {}
    restored, missing, mismatched = {}, [], []
    for variable in _chosen(traced.graph, settings.vars_to_warm_start):
        name = variable.op.name
        key = renamed.get(name, name)
        if key not in held:
            missing.append(name)
        elif variable.shape.as_list() != list(held[key]):
            mismatched.append(f"{name} is {variable.shape.as_list()}, in the checkpoint {list(held[key])}")
        else:
            restored[name] = reader.get_tensor(key)
    if not restored:
        raise CheckpointError(
            f"warm start: the checkpoint '{prefix}' has none of the {len(missing) + len(mismatched)} variables chosen",
            fix=f"it has {', '.join(sorted(held)[:5])}; see vars_to_warm_start and var_name_to_prev_var_name",
        )
    host.set_values(restored)
    say(f"warm start from {prefix}: {counted(len(restored), 'variable')} restored{_listed('missing', missing)}"
        f"{_listed('of another shape', mismatched)}")  # fmt: skip


def _path(path: str) -> str:
    variables = Path(path, "variables", "variables")
    return str(variables) if Path(f"{variables}.index").exists() else path


def _chosen(graph: Any, patterns: Any) -> list[Any]:
    everything = graph.get_collection(tf1.GraphKeys.GLOBAL_VARIABLES)
    trained = graph.get_collection(tf1.GraphKeys.TRAINABLE_VARIABLES)
    if patterns in (None, ".*"):
        slots = tuple(f"{variable.op.name}/" for variable in trained)
        steps = {v.op.name for v in graph.get_collection(tf1.GraphKeys.GLOBAL_STEP)}
        names = {v.op.name for v in trained}
        return [v for v in everything if v.op.name in names or not (v.op.name.startswith(slots) or v.op.name in steps
                or re.fullmatch(r"(.*/)?beta[12]_power(_\d+)?", v.op.name))]  # fmt: skip
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    return [v for v in everything if any(re.match(pattern, v.op.name) for pattern in listed)]


def _listed(label: str, names: list[str]) -> str:
    if not names:
        return ""
    return f"; {len(names)} {label}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
