"""How to convert: the options of a conversion, and what they may be."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tpugraph.analysis import races
from tpugraph.passes import PIPELINES
from tpugraph.support.errors import ArgumentTypeError, UsageError
from tpugraph.support.suggestions import GONE, did_you_mean
from tpugraph.tpu.pipeline import check_choices

MOST_ITERATIONS = 2**31 - 1
"""The loop of the converted graph counts in int32."""

_NUMBERS = {"num_replicas": (1, 8), "iterations_per_loop": (1, 8), "max_ids": (0, 8), "shard_tables": (0, 1 << 30),
            "global_batch": (0, 256)}  # fmt: skip
"""The least value of each number, and an example."""
_OF_MODE = {
    "metrics": "eval",
    "collected": "eval",
    "predictions": "predict",
    "signature": "predict",
    "train_op": "train",
}


@dataclass(frozen=True)
class ConvertOptions:
    """How to convert.

    Attributes:
        num_replicas: number of cores, which divides the batch; None takes 8, or the largest of 4, 2 and 1 that divides it.
        iterations_per_loop: steps per Session.run.
        global_batch: rows that a step reads, where that is another number than the plain graph's; 0 leaves it.
        train_op: name of the train op (or several, separated by commas); None finds it.
        loss: name of the loss; None finds it.
        varying_updates: ``mean``, ``replica0`` or ``error``: what is written where a policy lets cores differ.
        batch_norm: ``global`` (statistics of the whole batch) or ``per_core`` (each core its own, as is usual on a TPU).
        random: ``per_core`` (each core draws its own rows, as a TPU does) or ``plain`` (every core takes its rows of what the
            plain graph draws).
        step_order: ``reads_first`` or ``writes_first``: which runs first where the plain graph leaves a read and a write of a
            variable, such as the step counter, unordered.
        batch_constants: of ``global_batch``: names of constants that grow with the batch.
        literals: of ``global_batch``: names of constants that do not.
        set_shape: shapes that the graph leaves open, as ``NODE:32,4``.
        max_ids: the most ids that a row of a sparse column has, where no shape tells; 0 leaves it open.
        shard_tables: tables of at least so many bytes that are read and written by row index are sharded over the cores; 0 for none.
        mode: ``train``, ``eval`` or ``predict``: what kind of graph the model is.
        metrics: of mode ``eval``: value tensor and update op of each metric by name; None finds them.
        predictions: of mode ``predict``: the tensor of each prediction by name; None finds them.
        signature: of mode ``predict`` of a SavedModel: the signature that names the predictions; None is the default one.
        collected: of mode ``eval``: by name, tensors of one dimension or more that are handed out of each batch beside the
            metrics; none when None.
        passes: the pipeline as text; None is the default one.
        dump_dir: folder for numbered dumps.
        dump_after: passes to dump after; all when empty.
        dump_changed: print on stderr what each of these passes changed.
    """

    num_replicas: int | None = None
    iterations_per_loop: int = 100
    global_batch: int = 0
    train_op: str | None = None
    loss: str | None = None
    varying_updates: str = "mean"
    batch_norm: str = "global"
    random: str = "per_core"
    step_order: str = races.READS_FIRST
    batch_constants: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    max_ids: int = 0
    set_shape: tuple[str, ...] = ()
    shard_tables: int = 0
    mode: str = "train"
    metrics: Mapping[str, tuple[str, str]] | None = None
    predictions: Mapping[str, str] | None = None
    signature: str | None = None
    collected: Mapping[str, str] | None = None
    passes: str | None = None
    dump_dir: str | None = None
    dump_after: tuple[str, ...] = ()
    dump_changed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name, (least, example) in _NUMBERS.items():
            value = getattr(self, name)
            if value is None and name == "num_replicas":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                kind = f"a whole number{f' of at least {least}' if least else ''}"
                raise UsageError(f"{name} is {value!r}, but must be {kind}", fix=f"--{name}={example}")
        if self.iterations_per_loop > MOST_ITERATIONS:
            raise UsageError(f"iterations_per_loop is {self.iterations_per_loop:,}, but a loop counts in 32 bits",
                             fix=f"--iterations_per_loop={MOST_ITERATIONS} or less")  # fmt: skip
        if self.dump_after and self.dump_dir is None and not self.dump_changed:
            raise UsageError("--dump_after needs a folder for the dumps", fix="give --dump_dir=DIR, or --dump_changed")
        check_choices(self, mode=tuple(PIPELINES))
        if self.mode != "train" and self.step_order != races.READS_FIRST:
            raise UsageError(f"--step_order={self.step_order} does not go with --mode={self.mode}",
                             fix="leave it out: it is for steps of training")  # fmt: skip
        for name, mode in _OF_MODE.items():
            if getattr(self, name) is not None and self.mode != mode:
                raise UsageError(f"--{name} does not go with --mode={self.mode}", fix=f"--mode={mode}, or leave it out")

    def kept(self) -> dict[str, Any]:
        """The options that are not defaults, for a later conversion of the same plain graph; without number of cores and dumps."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in found.items() if value != _DEFAULTS[name] and name not in _OF_ONE_RUN}


def of_file(kept: Mapping[str, Any]) -> ConvertOptions:
    """The options that a file keeps with its plain graph, without ``passes``, whose code the file does not hold."""
    found = {
        name: tuple(value) if isinstance(value, list) else value for name, value in kept.items() if name != "passes"
    }
    return given(None, found)


_OF_ONE_RUN = ("num_replicas", "dump_dir", "dump_after", "dump_changed")
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(ConvertOptions)}


F = TypeVar("F", bound=Callable[..., Any])


def shows_options(function: F) -> F:
    """Let ``help`` and ``inspect.signature`` show each option in place of a function's ``**fields``."""
    shown = inspect.signature(function)
    own = [each for each in shown.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in dataclasses.fields(ConvertOptions)
    ]
    vars(function)["__signature__"] = shown.replace(parameters=[*own, *options])
    return function


def given(options: ConvertOptions | None, fields: Mapping[str, Any]) -> ConvertOptions:
    """The options that a caller gives, whole or by their fields."""
    known = [option.name for option in dataclasses.fields(ConvertOptions)]
    for name in fields:
        if name in GONE:
            raise ArgumentTypeError(
                f"the option {name} is gone", fix=f"{GONE[name]}; global_batch=G has it read G rows"
            )
        if name not in known:
            raise ArgumentTypeError(f"a conversion has no option {name}",
                                    fix=did_you_mean(name, known, "help(tpugraph.ConvertOptions) lists them"))  # fmt: skip
    if options is not None and fields:
        raise UsageError("give either options or keyword arguments, not both")
    return options or ConvertOptions(**fields)
