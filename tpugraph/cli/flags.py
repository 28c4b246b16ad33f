"""Understands a command line and explains it. Needs no TensorFlow."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import flags as absl_flags

from tpugraph.cli.commands import COMMANDS, CONVERSION, Command, Flag
from tpugraph.support.errors import UsageError
from tpugraph.support.suggestions import GONE, did_you_mean, near


@dataclass(frozen=True)
class Parsed:
    """A command line that was understood: the values of all flags, which of them were given, the MODEL, and a second one."""

    values: Mapping[str, Any]
    given: frozenset[str]
    model: str
    other: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def options(self) -> dict[str, Any]:
        """The flags that are fields of ConvertOptions."""
        found = {flag.name: self.values[flag.name] for flag in CONVERSION if flag.name in self.values}
        found |= {
            name: tuple(found[name])
            for name in ("dump_after", "batch_constants", "literals", "set_shape")
            if name in found
        }
        if "metrics" in found:
            found["metrics"] = _metrics(found["metrics"]) or None
            found["predictions"] = _named_tensors(found["predictions"], "predictions", "NAME=TENSOR") or None
        return found


# --------------------------------------------------------------------------- parsing


def parse(command: Command, arguments: Sequence[str]) -> Parsed:
    """Understand the arguments of a command.

    Raises:
        UsageError: an unknown flag, a value of the wrong kind, no MODEL or more than one.
    """
    known = _define(command)
    try:
        rest = known([f"tpugraph {command.name}", *map(_underscores, arguments)])[1:]
    except absl_flags.UnrecognizedFlagError as error:
        raise _unknown_flag(command, error.flagname) from error
    except absl_flags.Error as error:
        raise _bad_value(command, str(error)) from error
    values = {flag.name: known[flag.name].value for flag in command.flags}
    for flag in command.flags:
        if flag.kind == "float" and values[flag.name] != values[flag.name]:
            raise _bad_value(command, f"--{flag.name}=nan: is no number")
    given = frozenset(flag.name for flag in command.flags if known[flag.name].present)
    if values["help"] or values.get("topologies"):
        return Parsed(values, given, "")
    return Parsed(values, given, *_models(command, rest))


def _models(command: Command, rest: Sequence[str]) -> Sequence[str]:
    """The MODEL and the second one of a command, as far as it takes them."""
    wanted = 0 if not command.takes_model else 2 if command.other else 1
    if len(rest) < wanted or "" in rest[:wanted]:
        missing = f"a {command.model}" if not rest or not rest[0] else f"a second model, {command.other}"
        raise UsageError(f"'tpugraph {command.name}' needs {missing}", fix=command.examples[0])
    if len(rest) > wanted:
        raise UsageError(
            f"'tpugraph {command.name}' does not take the argument '{rest[wanted]}'", fix=command.examples[0]
        )
    return rest or [""]


def _named_tensors(texts: Sequence[str], flag: str, form: str) -> dict[str, str]:
    """Names and what they stand for, from texts NAME=TENSOR."""
    found = {}
    for text in texts:
        name, equals, tensor = text.partition("=")
        if not (name and equals and tensor):
            raise UsageError(f"--{flag}={text} is not of the form NAME={'VALUE,UPDATE' if ',' in form else 'TENSOR'}",
                             fix=f"--{flag}={form}")  # fmt: skip
        if name in found:
            raise UsageError(f"--{flag} names '{name}' twice", fix="give each a name of its own")
        found[name] = tensor
    return found


def _metrics(texts: Sequence[str]) -> dict[str, tuple[str, str]]:
    form = "accuracy=accuracy/value,accuracy/update_op"
    found = {}
    for name, both in _named_tensors(texts, "metrics", form).items():
        value, comma, update = both.partition(",")
        if not (value and comma and update):
            raise UsageError(f"--metrics={name}={both} is not of the form NAME=VALUE,UPDATE", fix=f"--metrics={form}")
        found[name] = (value, update)
    return found


def rebinds(pairs: Sequence[str]) -> dict[str, str]:
    """File names to replace, from texts OLD=NEW."""
    found = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(
                f"--rebind={pair} is not of the form OLD=NEW", fix="--rebind=train.tfrecords=/data/train.tfrecords"
            )
        found[old] = new
    return found


def _define(command: Command) -> absl_flags.FlagValues:
    known = absl_flags.FlagValues()  # type: ignore[no-untyped-call]
    known.set_gnu_getopt(True)
    for flag in command.flags:
        common: dict[str, Any] = {"flag_values": known, "short_name": flag.short}
        if flag.kind == "integer":
            absl_flags.DEFINE_integer(flag.name, flag.default, flag.help, lower_bound=flag.lowest, **common)
        elif flag.kind == "float":
            absl_flags.DEFINE_float(flag.name, flag.default, flag.help, lower_bound=0, **common)
        elif flag.kind == "boolean":
            absl_flags.DEFINE_boolean(flag.name, flag.default, flag.help, **common)
        elif flag.kind == "enum":
            absl_flags.DEFINE_enum(flag.name, flag.default, flag.values, flag.help, **common)
        elif flag.kind == "list":
            absl_flags.DEFINE_list(flag.name, list(flag.default), flag.help, **common)
        elif flag.kind == "repeated":
            absl_flags.DEFINE_multi_string(flag.name, list(flag.default), flag.help, **common)
        else:
            absl_flags.DEFINE_string(flag.name, flag.default, flag.help, **common)
    return known


def _underscores(argument: str) -> str:
    """``--batch-norm=per_core`` as ``--batch_norm=per_core``."""
    if not argument.startswith("--") or argument == "--":
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _unknown_flag(command: Command, name: str) -> UsageError:
    if name in GONE:
        return UsageError(f"--{name} is gone", fix=f"{GONE[name]}; --global_batch=G has it read G rows")
    names = [flag.name for flag in command.flags]
    close = near(name, names)
    meant = next(iter(near(name, {flag.name for other in COMMANDS.values() for flag in other.flags})), "")
    others = [c.name for c in COMMANDS.values() if meant in [flag.name for flag in c.flags]]
    if close:
        fix = f"did you mean --{close[0]}?"
    elif others:
        fix = f"--{meant} is a flag of: tpugraph {', tpugraph '.join(others)}"
    else:
        fix = f"`tpugraph {command.name} --help` lists the flags"
    dashes = "-" if len(name) == 1 else "--"
    return UsageError(f"'tpugraph {command.name}' has no flag {dashes}{name}", fix=fix)


def _bad_value(command: Command, message: str) -> UsageError:
    """absl's words about a value, with the flag's help as the fix."""
    words = message.removeprefix("flag ").strip()
    name = words.removeprefix("Missing value for flag ").lstrip("-").partition("=")[0].split(":")[0].strip()
    flag = next((f for f in command.flags if name in (f.name, f.short)), None)
    if flag is None:
        return UsageError(words, fix=f"`tpugraph {command.name} --help` lists the flags")
    usage = f"{_usage(flag)}: {flag.help}"
    if words.startswith("Missing value"):
        return UsageError(f"--{flag.name} needs a value", fix=usage)
    given = words.partition(":")[0]
    if flag.kind == "integer":
        least = "" if flag.lowest is None else f" of at least {flag.lowest}"
        return UsageError(f"{given} is not a whole number{least}", fix=usage)
    if flag.kind == "float":
        return UsageError(f"{given} is not a number of at least 0", fix=usage)
    if flag.kind == "enum":
        value = given.partition("=")[2]
        return UsageError(f"{given} is none of {', '.join(flag.values)}", fix=did_you_mean(value, flag.values, usage))
    return UsageError(words, fix=usage)


# --------------------------------------------------------------------------- help


_WIDTH = 80


def help_of(command: Command) -> str:
    """The help of one command: usage, what it does, examples and flags."""
    model = (f" {command.model}" if command.takes_model else "") + (f" {command.other}" if command.other else "")
    parts = [
        f"usage: tpugraph {command.name}{model} [flags]",
        "",
        *_folded(f"{command.summary[0].upper()}{command.summary[1:]}."),
        "",
        *_folded(command.text),
        "",
        "example:" if len(command.examples) == 1 else "examples:",
    ]
    for example in command.examples:
        parts += _folded_command(example)
    parts += ["", "flags (dashes instead of underscores are fine):"]
    for flag in command.flags:
        parts += _folded(_usage(flag), indent=2, at="|")
        parts += _folded(flag.help + _default(flag), indent=6)
    return "\n".join(parts)


def _default(flag: Flag) -> str:
    """The default of a flag as one would write it; an enum has its own first among its values."""
    if flag.default in (None, False, (), "") or flag.kind == "enum":
        return ""
    return f" (default {','.join(flag.default) if flag.kind == 'list' else flag.default})"


def _folded(text: str, *, indent: int = 0, at: str = " ") -> list[str]:
    """Text in lines of a terminal's width; without blanks it is folded behind ``at``."""
    space = " " * indent
    if at == " ":
        return textwrap.wrap(text, _WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)
    lines, rest = [], space + text
    while len(rest) > _WIDTH and at in rest[indent + 1 : _WIDTH]:
        place = rest.rindex(at, 0, _WIDTH) + 1
        lines.append(rest[:place])
        rest = space + "    " + rest[place:]
    return [*lines, rest]


def _folded_command(text: str) -> list[str]:
    """A command in lines of a terminal's width, as a shell takes them."""
    lines = textwrap.wrap(text, _WIDTH - 2, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False,
                          break_long_words=False)  # fmt: skip
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _usage(flag: Flag) -> str:
    text = f"--{flag.name}"
    if flag.kind == "enum":
        choices = sorted(flag.values, key=lambda value: value != flag.default)
        text += f"={'|'.join(choices)}"
    elif flag.kind != "boolean":
        text += f"={flag.shown}"
    return f"-{flag.short}, {text}" if flag.short else text


def overview() -> str:
    """The help of ``tpugraph`` itself."""
    lines = ["usage: tpugraph COMMAND [MODEL] [flags]", "",
             *_folded("Turns a plain TensorFlow 1 training graph into a TPU training graph, and trains it."), "",
             "commands:"]  # fmt: skip
    for command in COMMANDS.values():
        first, *more = textwrap.wrap(command.summary, _WIDTH - _NAMES)
        lines += [f"  {command.name:<{_NAMES - 2}}{first}", *(" " * _NAMES + line for line in more)]
    lines += ["", "examples:"]
    for command in COMMANDS.values():
        lines += _folded_command(command.examples[0])
    lines += ["", *_folded("`tpugraph COMMAND --help` shows the flags of a command; `tpugraph --version` the version.")]
    return "\n".join(lines)


_NAMES = 14
"""Columns of the names of commands."""
