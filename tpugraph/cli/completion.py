"""``tpugraph completion``: what a shell needs to complete commands, flags and their values. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.commands import COMMANDS, SHELLS
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Command, Parsed, values_of
from tpugraph.support.errors import UsageError
from tpugraph.support.suggestions import did_you_mean


def run(flags: Parsed, console: Console) -> Outcome:
    """Print the script for the shell that is named in the place of MODEL."""
    shell = flags.model
    if shell not in _SCRIPTS:
        raise UsageError(f"there is no completion for '{shell}'", fix=did_you_mean(shell, SHELLS, "bash, zsh or fish"))
    script = _SCRIPTS[shell]()
    console.say(script)
    return Outcome({"shell": shell, "script": script})


# --------------------------------------------------------------------------- bash

_BASH = """\
# bash completion for tpugraph; in ~/.bashrc: source <(tpugraph completion bash)
_tpugraph() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" flag="" words=""
    if [ "$word" = "=" ]; then flag="$before"; word=""
    elif [ "$before" = "=" ]; then flag="${COMP_WORDS[COMP_CWORD-2]}"; fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="COMMANDS --help --version"
    elif [ -n "$flag" ]; then
        case "${COMP_WORDS[1]} $flag" in
VALUES
        esac
    else
        case "${COMP_WORDS[1]} $word" in
FLAGS
            completion*) words="SHELLS" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace; fi
}
# where no word fits, files do
complete -o default -F _tpugraph tpugraph"""


def _bash() -> str:
    values = [f'            "{command.name} --{flag.name}") words="{" ".join(values_of(flag))}" ;;'
              for command in COMMANDS.values() for flag in command.flags() if values_of(flag)]  # fmt: skip
    flags = [
        f'            "{command.name} -"*) words="{" ".join(_words(command))}" ;;' for command in COMMANDS.values()
    ]
    filled = _BASH.replace("COMMANDS", " ".join(COMMANDS)).replace("SHELLS", " ".join(SHELLS))
    return filled.replace("VALUES", "\n".join(values)).replace("FLAGS", "\n".join(flags))


def _words(command: Command) -> list[str]:
    """The flags of a command as they are written, with ``=`` where a value follows."""
    return [f"--{flag.name}{'' if flag.boolean else '='}" for flag in command.flags()]


# --------------------------------------------------------------------------- zsh


def _zsh() -> str:
    names = [f"        '{command.name}:{_quoted(command.paragraphs[0])}'" for command in COMMANDS.values()]
    cases = [line for command in COMMANDS.values() for line in _zsh_case(command)]
    return "\n".join([
        "#compdef tpugraph",
        "# zsh completion for tpugraph; in ~/.zshrc, behind compinit: source <(tpugraph completion zsh)",
        "_tpugraph() {",
        "    local -a commands=(",
        *names,
        "    )",
        "    if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "    local command=$words[2]",
        "    shift words; (( CURRENT-- ))",
        "    case $command in",
        *cases,
        "    esac",
        "}",
        "compdef _tpugraph tpugraph",
    ])  # fmt: skip


def _zsh_case(command: Command) -> list[str]:
    specs, flags = [], command.flags()
    for flag in flags:
        value = "" if flag.boolean else "="
        files = f"({' '.join(values_of(flag))})" if values_of(flag) else "_files"
        after = f":{_quoted(flags.shown[flag.name])}:{files}" if value else ""
        specs.append(f"            '--{flag.name}{value}[{_quoted(flag.help)}]{after}' \\")
    rest = f"'1:shell:({' '.join(SHELLS)})'" if command.name == "completion" else "'*:model:_files'"
    return [f"        {command.name}) _arguments \\", *specs, f"            {rest} ;;"]


def _quoted(text: str) -> str:
    """Text within single quotes and the brackets of ``_arguments``."""
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", "\\:")


# --------------------------------------------------------------------------- fish


def _fish() -> str:
    lines = ["# fish completion for tpugraph; tpugraph completion fish > ~/.config/fish/completions/tpugraph.fish"]
    for command in COMMANDS.values():
        start = "complete -c tpugraph"
        lines.append(
            f"{start} -n __fish_use_subcommand -f -a {command.name} -d '{_fish_quoted(command.paragraphs[0])}'"
        )
        inside = f"{start} -n '__fish_seen_subcommand_from {command.name}'"
        if command.name == "completion":
            lines.append(f"{inside} -f -a '{' '.join(SHELLS)}'")
        for flag in command.flags():
            words = " ".join(values_of(flag))
            takes = "" if flag.boolean else f" -x -a '{words}'" if words else " -r"
            short = f" -s {flag.short_name}" if flag.short_name else ""
            lines.append(f"{inside} -l {flag.name}{short}{takes} -d '{_fish_quoted(flag.help)}'")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
