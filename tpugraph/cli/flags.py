"""Declares the flags of commands, understands a command line and explains it. Needs no package but this one."""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tpugraph.support.errors import UsageError
from tpugraph.support.suggestions import GONE, did_you_mean, near

# --------------------------------------------------------------------------- declarations


@dataclass(frozen=True)
class Flag:
    """A flag; ``value`` makes its value of a text, and raises an error where that is not what it ``takes``."""

    name: str
    shown: str  # its value, as the help shows it; "" where it takes none
    help: str
    default: Any
    value: Callable[[str], Any] = str
    takes: str = ""
    values: Sequence[str] = ()  # all that it can have; none where it may be any text or number
    short: str = ""
    repeated: bool = False

    @property
    def usage(self) -> str:
        text = f"--{self.name}={self.shown}" if self.shown else f"--{self.name}"
        return f"-{self.short}, {text}" if self.short else text

    @property
    def default_shown(self) -> str:
        """The default as one would write it; of several values the first is."""
        if self.default in (None, False, [], "") or self.values:
            return ""
        return f" (default {','.join(self.default) if isinstance(self.default, list) else self.default})"


class Flags(dict[str, Flag]):
    """The flags of a command by name, in the order in which it declares them; each is given with how the help shows its value."""

    def _add(self, name: str, *flag: Any, **more: Any) -> None:
        self[name] = Flag(name, *flag, **more)

    def string(self, name: str, shown: str, told: str, default: str | None = None, short: str = "") -> None:
        self._add(name, shown, told, default, short=short)

    def integer(self, name: str, shown: str, told: str, default: int | None = None, lowest: int = 0) -> None:
        takes = f"a whole number of at least {lowest}"
        self._add(name, shown, told, default, partial(_at_least, lowest, int), takes)

    def number(self, name: str, shown: str, told: str, default: float | None = None) -> None:
        self._add(name, shown, told, default, partial(_at_least, 0, float), "a number of at least 0")

    def boolean(self, name: str, told: str, short: str = "") -> None:
        self._add(name, "", told, False, {"true": True, "false": False}.__getitem__, "true or false", short=short)

    def enum(self, name: str, values: Sequence[str], told: str, default: str | None = "") -> None:
        """The default is the first value, unless it is None."""
        self._add(name, "|".join(values), told, values[0] if default == "" else default, values=values)

    def names(self, name: str, shown: str, told: str, default: Sequence[str] = ()) -> None:
        self._add(name, shown, told, list(default), _names)

    def repeated(self, name: str, shown: str, told: str) -> None:
        self._add(name, shown, told, [], repeated=True)


def _at_least(lowest: int, kind: type[int] | type[float], text: str) -> float:
    value = kind(text)
    if not value >= lowest:  # which no number is not, either
        raise ValueError(text)
    return value


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


@dataclass(frozen=True)
class Command:
    """A command: what it is called, its arguments, and the function that declares its flags, whose docstring is its help."""

    name: str
    arguments: list[str]
    declare: Callable[[Flags], None]
    module: str  # of tpugraph.cli, whose ``run`` runs it

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


def command(arguments: str = "MODEL", module: str = "") -> Callable[[Callable[[Flags], None]], None]:
    """Make a command of the function that declares its flags; it is run by the module of its name, unless another is named."""

    def add(declare: Callable[[Flags], None]) -> None:
        name = declare.__name__
        COMMANDS[name] = Command(name, arguments.split(), declare, module or name)

    return add


# --------------------------------------------------------------------------- parsing


@dataclass(frozen=True)
class Parsed:
    """A command line that was understood: the values of all flags, which of them were given, the MODEL, and a second one."""

    values: Mapping[str, Any]
    given: frozenset[str]
    words: Mapping[str, str] = field(default_factory=dict)  # of each flag that was given what a shell takes
    model: str = ""
    other: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def parse(command: Command, arguments: Sequence[str]) -> Parsed:
    flags = command.flags()
    short = {flag.short: flag for flag in flags.values()}
    values, words = {name: flag.default for name, flag in flags.items()}, dict[str, str]()
    rest, left = list[str](), iter(arguments)
    for word in left:
        written, equals, text = word.partition("=")
        if word == "--":
            rest += left
        elif word == "-" or not word.startswith("-"):
            rest.append(word)
        else:
            name = written.lstrip("-").replace("-", "_")  # dashes are underscores
            flag = flags.get(name) if written.startswith("--") else short.get(name)
            if flag is None:
                raise _unknown_flag(command, flags, name)
            if not equals and flag.shown:
                text, equals = next(left, ""), "="
                if not text:
                    raise UsageError(f"--{flag.name} needs a value", fix=f"{flag.usage}: {flag.help}")
            value, said = _value(flag, text if equals else "true"), shlex.quote(f"--{flag.name}{equals}{text}")
            again = flag.repeated and flag.name in words
            values[flag.name] = [*(values[flag.name] if again else []), value] if flag.repeated else value
            words[flag.name] = f"{words[flag.name]} {said}" if again else said
    if values["help"] or values.get("topologies"):
        return Parsed(values, frozenset(words))
    return Parsed(values, frozenset(words), words, *_models(command, rest))


def _value(flag: Flag, text: str) -> Any:
    usage, given = f"{flag.usage}: {flag.help}", f"--{flag.name}={text}"
    if flag.values and text not in flag.values:
        raise UsageError(f"{given} is none of {', '.join(flag.values)}", fix=did_you_mean(text, flag.values, usage))
    try:
        return flag.value(text)
    except (ValueError, KeyError) as error:
        raise UsageError(f"{given} is not {flag.takes}", fix=usage) from error


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
    """What a repeated flag says, from texts NAME=VALUE."""
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


def _unknown_flag(command: Command, flags: Flags, name: str) -> UsageError:
    if name in GONE:
        return UsageError(f"--{name} is gone", fix=f"{GONE[name]}; --global_batch=G has it read G rows")
    close = near(name, flags)
    known = {other: COMMANDS[other].flags() for other in COMMANDS}
    meant = next(iter(near(name, {flag for names in known.values() for flag in names})), "")
    others = [other for other, names in known.items() if meant in names]
    if close:
        fix = f"did you mean --{close[0]}?"
    elif others and command.name not in others:
        fix = f"--{meant} is a flag of: tpugraph {', tpugraph '.join(others)}"
    else:
        fix = f"`tpugraph {command.name} --help` lists the flags"
    dashes = "-" if len(name) == 1 else "--"
    return UsageError(f"'tpugraph {command.name}' has no flag {dashes}{name}", fix=fix)


# --------------------------------------------------------------------------- help


_WIDTH, _NAMES = 80, 14  # columns of a line, and of the names of commands


def help_of(command: Command) -> str:
    summary, text, _ = command.paragraphs
    lines = [" ".join(["usage: tpugraph", command.name, *command.arguments, "[flags]"]), "",
             *_folded(f"{summary[0].upper()}{summary[1:]}."), "", *_folded(text), "",
             "example:" if len(command.examples) == 1 else "examples:"]  # fmt: skip
    lines += [line for example in command.examples for line in _folded_command(example)]
    lines += ["", "flags (dashes instead of underscores are fine):"]
    for flag in command.flags().values():
        lines += [f"  {flag.usage}", *_folded(flag.help + flag.default_shown, indent=6)]
    return "\n".join(lines)


def _folded(text: str, *, indent: int = 0) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, _WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)


def _folded_command(text: str) -> list[str]:
    """A command in lines of a terminal's width, as a shell takes them."""
    lines = textwrap.wrap(text, _WIDTH - 2, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False,
                          break_long_words=False)  # fmt: skip
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


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
