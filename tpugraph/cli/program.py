"""``tpugraph program``: the names of TensorFlow 1.15 that a program uses, and which of them work."""

from __future__ import annotations

from pathlib import Path

from tpugraph.cli.console import Console, Outcome
from tpugraph.cli.flags import Parsed
from tpugraph.compat.source_symbols import Use, program_files, uses_in
from tpugraph.support.errors import LoadError

_STATES = ("not there", "works with a difference", "works")


def run(flags: Parsed, console: Console) -> Outcome:
    found = [use for path in _files(flags.model) for use in uses_in(path)]
    uses = {use.name: use for use in reversed(found)}  # the first use of each name
    counts = {state: sum(use.state == state for use in uses.values()) for state in _STATES}
    console.say(f"{flags.model} uses {len(uses)} names of TensorFlow 1.15: {counts['works']} work, "
                f"{counts['works with a difference']} with a difference, {counts['not there']} are not there")  # fmt: skip
    for state in _STATES if flags["all"] else _STATES[:2]:
        for use in sorted((use for use in uses.values() if use.state == state), key=lambda use: use.name):
            console.say(_line(use))
    return Outcome({"names": list(uses.values()), "counts": counts}, int(counts["not there"] > 0))


def _files(named: str) -> list[Path]:
    path = Path(named)
    if path.is_dir():
        return sorted(path.rglob("*.py"))
    if not path.exists():
        raise LoadError(f"'{named}' does not exist", fix="the path of a Python file, or of a folder of them")
    return program_files(path)


def _line(use: Use) -> str:
    tells = f": {use.tells}" if use.tells else ""
    return f"{use.state:<24}{use.name} ({use.where}){tells}"
