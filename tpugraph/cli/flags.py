"""Declarations of commands and their flags, parsing, and help. Needs no TensorFlow."""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from absl import flags as absl_flags

from tpugraph.support.errors import UsageError
from tpugraph.support.suggestions import GONE, did_you_mean, near

# --------------------------------------------------------------------------- declarations


class Flags:
    """The flags of a command, in the order in which it declares them; each is given with how its value is shown in the help."""

    def __init__(self) -> None:
        self.known = absl_flags.FlagValues()  # type: ignore[no-untyped-call]
        self.known.set_gnu_getopt(True)
        self.shown: dict[str, str] = {}

    def __iter__(self) -> Iterator[Any]:
        return (self.known[name] for name in self.shown)

    def _define(self, kind: str, shown: str, name: str, told: str, *how: Any, **more: Any) -> None:
        getattr(absl_flags, f"DEFINE_{kind}")(name, *how, told, flag_values=self.known, **more)
        self.known[name].help = told  # without what absl adds
        self.shown[name] = shown

    def string(self, name: str, shown: str, told: str, default: str | None = None, short: str | None = None) -> None:
        self._define("string", shown, name, told, default, short_name=short)

    def integer(self, name: str, shown: str, told: str, default: int | None = None, lowest: int = 0) -> None:
        self._define("integer", shown, name, told, default, lower_bound=lowest)

    def number(self, name: str, shown: str, told: str, default: float | None = None) -> None:
        self._define("float", shown, name, told, default, lower_bound=0)

    def boolean(self, name: str, told: str, short: str | None = None) -> None:
        self._define("boolean", "", name, told, False, short_name=short)

    def enum(self, name: str, values: Sequence[str], told: str, default: str | None = "") -> None:
        """The default is the first value, unless it is None."""
        self._define("enum", "|".join(values), name, told, values[0] if default == "" else default, values)

    def names(self, name: str, shown: str, told: str, default: Sequence[str] = ()) -> None:
        self._define("list", shown, name, told, list(default))

    def repeated(self, name: str, shown: str, told: str) -> None:
        self._define("multi_string", shown, name, told, [])


@dataclass(frozen=True)
class Command:
    """A command: what it is called, its arguments, and the function that declares its flags, whose docstring is its help."""

    name: str
    arguments: list[str]
    declare: Callable[[Flags], None]

    @property
    def paragraphs(self) -> list[str]:
        """What it does in a line, then at length, then command lines, the simplest one first."""
        return inspect.getdoc(self.declare).split("\n\n")  # type: ignore[union-attr]

    @property
    def examples(self) -> list[str]:
        return self.paragraphs[2].splitlines()

    def flags(self) -> Flags:
        found = Flags()
        self.declare(found)
        found.boolean("json", "print one machine-readable object on stdout, everything else on stderr")
        found.boolean("traceback", "print Python's traceback with an error")
        found.boolean("help", "print this help", short="h")
        return found


COMMANDS: dict[str, Command] = {}
"""The commands by name, in the order of the help."""


def command(arguments: str = "MODEL") -> Callable[[Callable[[Flags], None]], None]:
    """Make a command of the function that declares its flags."""

    def add(declare: Callable[[Flags], None]) -> None:
        COMMANDS[declare.__name__] = Command(declare.__name__, arguments.split(), declare)

    return add


# --------------------------------------------------------------------------- parsing


@dataclass(frozen=True)
class Parsed:
    """A parsed command line: the values of all flags, which of them were given, the MODEL, and a second one."""

    values: Mapping[str, Any]
    given: frozenset[str]
    words: Mapping[str, str] = field(default_factory=dict)  # each flag that was given, as a shell takes it
    model: str = ""
    other: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def parse(command: Command, arguments: Sequence[str]) -> Parsed:
    flags = command.flags()
    try:
        rest = flags.known([f"tpugraph {command.name}", *map(_underscores, arguments)])[1:]
    except absl_flags.UnrecognizedFlagError as error:
        raise _unknown_flag(command, error.flagname) from error
    except absl_flags.Error as error:
        raise _bad_value(command, flags, str(error)) from error
    values = {flag.name: flag.value for flag in flags}
    for name, value in values.items():
        if value != value:
            raise _bad_value(command, flags, f"--{name}=nan: is no number")
    given = frozenset(flag.name for flag in flags if flag.present)
    if values.get("topologies"):  # needs no MODEL
        return Parsed(values, given)
    words = {flag.name: " ".join(map(shlex.quote, flag.serialize().splitlines())) for flag in flags if flag.present}
    return Parsed(values, given, words, *_models(command, rest))


def _models(command: Command, rest: Sequence[str]) -> Sequence[str]:
    """The arguments of a command that are no flags."""
    wanted = command.arguments
    if len(rest) < len(wanted) or "" in rest[: len(wanted)]:
        missing = f"a {wanted[0]}" if not rest or not rest[0] else f"a second model, {wanted[1]}"
        raise UsageError(f"'tpugraph {command.name}' needs {missing}", fix=command.examples[0])
    if len(rest) > len(wanted):
        raise UsageError(f"'tpugraph {command.name}' does not take the argument '{rest[len(wanted)]}'",
                         fix=command.examples[0])  # fmt: skip
    return rest


def pairs(texts: Sequence[str], flag: str, form: str, example: str) -> dict[str, str]:
    """The values of a repeated flag NAME=VALUE, by name."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--{flag}={text} is not of the form {form}", fix=f"--{flag}={example}")
        if name in found:
            raise UsageError(f"--{flag} names '{name}' twice", fix="give each a name of its own")
        found[name] = value
    return found


def rebinds(texts: Sequence[str]) -> dict[str, str]:
    return pairs(texts, "rebind", "OLD=NEW", "train.tfrecords=/data/train.tfrecords")


def _underscores(argument: str) -> str:
    """``--batch-norm=per_core`` as ``--batch_norm=per_core``."""
    if not argument.startswith("--") or argument == "--":
        return argument
    name, equals, value = argument.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _unknown_flag(command: Command, name: str) -> UsageError:
    if name in GONE:
        return UsageError(f"--{name} is gone", fix=f"{GONE[name]}; --global_batch=G has it read G rows")
    close = near(name, command.flags().shown)
    shown = {other: list(COMMANDS[other].flags().shown) for other in COMMANDS}
    meant = next(iter(near(name, {flag for names in shown.values() for flag in names})), "")
    others = [other for other, names in shown.items() if meant in names]
    if close:
        fix = f"did you mean --{close[0]}?"
    elif others:
        fix = f"--{meant} is a flag of: tpugraph {', tpugraph '.join(others)}"
    else:
        fix = f"`tpugraph {command.name} --help` lists the flags"
    dashes = "-" if len(name) == 1 else "--"
    return UsageError(f"'tpugraph {command.name}' has no flag {dashes}{name}", fix=fix)


def _bad_value(command: Command, flags: Flags, message: str) -> UsageError:
    """absl's words about a value, with the flag's help as the fix."""
    words = message.removeprefix("flag ").strip()
    name = words.removeprefix("Missing value for flag ").lstrip("-").partition("=")[0].split(":")[0].strip()
    flag = next((f for f in flags if name in (f.name, f.short_name)), None)
    if flag is None:
        return UsageError(words, fix=f"`tpugraph {command.name} --help` lists the flags")
    usage = f"{_usage(flag, flags)}: {flag.help}"
    if words.startswith("Missing value"):
        return UsageError(f"--{flag.name} needs a value", fix=usage)
    given, values = words.partition(":")[0], values_of(flag)
    if values:
        expected = f"one of {', '.join(values)}"
    elif flag.boolean:
        expected = "true or false"
    elif isinstance(flag.parser, absl_flags.IntegerParser):
        expected = f"a whole number of at least {flag.parser.lower_bound}"
    else:
        expected = "a number of at least 0"
    return UsageError(f"{given} is not {expected}", fix=did_you_mean(given.partition("=")[2], values, usage))


def values_of(flag: Any) -> list[str]:
    """What the value of a flag may be; nothing where it may be any text or number."""
    return list(getattr(flag.parser, "enum_values", ()))


# --------------------------------------------------------------------------- help


_WIDTH, _NAMES = 80, 14  # columns of a line, and of the names of commands


def help_of(command: Command) -> str:
    (summary, text, _), flags = command.paragraphs, command.flags()
    lines = [" ".join(["usage: tpugraph", command.name, *command.arguments, "[flags]"]), "",
             *_folded(f"{summary[0].upper()}{summary[1:]}."), "", *_folded(text), "",
             "example:" if len(command.examples) == 1 else "examples:"]  # fmt: skip
    lines += [line for example in command.examples for line in _folded_command(example)]
    lines += ["", "flags (dashes instead of underscores are fine):"]
    for flag in flags:
        lines += [f"  {_usage(flag, flags)}", *_folded(flag.help + _default(flag), indent=6)]
    return "\n".join(lines)


def _default(flag: Any) -> str:
    """The default of a flag as one would write it; an enum has its own first among its values."""
    if flag.default in (None, False, [], "") or values_of(flag):
        return ""
    return f" (default {','.join(flag.default) if isinstance(flag.default, list) else flag.default})"


def _folded(text: str, *, indent: int = 0) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, _WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)


def _folded_command(text: str) -> list[str]:
    """A command in lines of a terminal's width, as a shell takes them."""
    lines = textwrap.wrap(text, _WIDTH - 2, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False,
                          break_long_words=False)  # fmt: skip
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _usage(flag: Any, flags: Flags) -> str:
    text = f"--{flag.name}" if flag.boolean else f"--{flag.name}={flags.shown[flag.name]}"
    return f"-{flag.short_name}, {text}" if flag.short_name else text


def overview() -> str:
    lines = ["usage: tpugraph COMMAND [MODEL] [flags]", "",
             *_folded("Turns a plain TensorFlow 1 training graph into a TPU training graph, and trains it."), "",
             "commands:"]  # fmt: skip
    for command in COMMANDS.values():
        first, *more = textwrap.wrap(command.paragraphs[0], _WIDTH - _NAMES)
        lines += [f"  {command.name:<{_NAMES - 2}}{first}", *(" " * _NAMES + line for line in more)]
    lines += ["", "examples:"]
    lines += [line for command in COMMANDS.values() for line in _folded_command(command.examples[0])]
    lines += ["", *_folded("`tpugraph COMMAND --help` shows the flags of a command; `tpugraph --version` the version.")]
    return "\n".join(lines)
