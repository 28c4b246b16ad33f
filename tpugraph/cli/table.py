"""The commands by name, as data. Needs no TensorFlow."""

from __future__ import annotations

from tpugraph.cli.comparing_commands import COMPARE, DIFF, REDUCE, VERIFY
from tpugraph.cli.declarations import Command, Flag
from tpugraph.cli.judging_commands import CHECK, COMPILE, INSPECT, REPORT, VIEW
from tpugraph.cli.running_commands import CONVERT, REBATCH, RUN, WORKER
from tpugraph.cli.shared_flags import COMMON, MODE

PASSES = Command(
    "passes",
    False,
    "list the passes of the pipeline",
    "For each pass in order: its name, its parameters, what it requires and ensures, and what it does.",
    ("tpugraph passes", "tpugraph passes --mode=eval"),
    (MODE[0], *COMMON),
)
SHELLS = ("bash", "zsh", "fish")
"""The shells that have completions."""

COMPLETION = Command(
    "completion",
    True,
    "print what a shell needs to complete commands and flags",
    "SHELL is bash, zsh or fish. The script goes where the shell looks for it; its first line says where.",
    ("tpugraph completion bash", "tpugraph completion fish"),
    COMMON,
    model="SHELL",
    tensorflow=False,
)
PROGRAM = Command(
    "program",
    True,
    "list what a program for TensorFlow 1.15 uses, and what of it is there",
    "PROGRAM is a Python file, or a folder of them. It is read and not run. Each name of TensorFlow 1.15 that it uses is said to "
    "work, to work with a difference, or not to be there, with what to use instead. The exit code is 1 where one is not there. "
    "`python -m tpugraph.compat PROGRAM` runs it as it is.",
    ("tpugraph program train.py", "tpugraph program train.py --all"),
    (Flag("all", "boolean", False, "list the names that simply work too"), *COMMON),
    model="PROGRAM",
    module="program_symbols",
)
COMMANDS = {
    command.name: command
    for command in (
        CONVERT,
        REBATCH,
        RUN,
        INSPECT,
        VERIFY,
        COMPARE,
        REDUCE,
        DIFF,
        CHECK,
        COMPILE,
        VIEW,
        REPORT,
        PASSES,
        WORKER,
        PROGRAM,
        COMPLETION,
    )
}
"""The commands by name, in the order of the help."""
