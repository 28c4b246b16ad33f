"""``tpugraph completion``: what bash needs to complete commands, flags and their values. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.commands import COMMANDS
from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed, values_of
from tpugraph.support.errors import UsageError


def run(flags: Parsed, console: Console) -> Outcome:
    if flags.model != "bash":
        raise UsageError(f"there is no completion for '{flags.model}'", fix="tpugraph completion bash")
    script = _bash()
    console.say(script)
    return Outcome({"shell": flags.model, "script": script})


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
            completion*) words="bash" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace; fi
}
# where no word fits, files do
complete -o default -F _tpugraph tpugraph"""


def _bash() -> str:
    values, words = [], []
    for name, flags in ((name, list(command.flags())) for name, command in COMMANDS.items()):
        values += [f'            "{name} --{flag.name}") words="{" ".join(values_of(flag))}" ;;'
                   for flag in flags if values_of(flag)]  # fmt: skip
        written = " ".join(f"--{flag.name}{'' if flag.boolean else '='}" for flag in flags)
        words.append(f'            "{name} -"*) words="{written}" ;;')
    filled = _BASH.replace("COMMANDS", " ".join(COMMANDS))
    return filled.replace("VALUES", "\n".join(values)).replace("FLAGS", "\n".join(words))
